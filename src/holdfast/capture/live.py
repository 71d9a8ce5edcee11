"""Sections from live objects: anything with snapshot() and restore(value), captured and put back at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.capture.delta import delta_of
from holdfast.errors import CaptureFailed, UsageError
from holdfast.model.ids import check_section_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.capture.delta import Delta


@runtime_checkable
class Live(Protocol):
    """An object whose state is a section."""

    def snapshot(self) -> Any:
        """Return the state as a value that can be stored; it must not change afterwards."""

    def restore(self, value: Any, /) -> None:
        """Take a state back."""


class LiveSections:
    """The registered objects of one run, by section name."""

    def __init__(self) -> None:
        self._objects: dict[str, Live] = {}
        self._quiet: set[str] = set()
        self._asked: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._journaled: dict[str, tuple[int | None, Any]] = {}

    def journal(self, name: str, value: Any = None) -> None:
        """Let the changes of a registered object go into the journal from now on; `value` is what that has of it."""
        self._journaled[name] = (None, value)

    def changes(self) -> tuple[dict[str, Delta], dict[str, tuple[int | None, Any]]]:
        """Return what changed in journaled objects since the journal last had them, and what it will have then."""
        deltas: dict[str, Delta] = {}
        after: dict[str, tuple[int | None, Any]] = {}
        for name, (seen, value) in self._journaled.items():
            live = self._objects.get(name)
            changes = getattr(live, "changes", None)
            if live is None or (changes is not None and changes == seen):
                continue
            now = _snapshot(name, live)
            made = delta_of(value, now)
            if made:
                deltas[name] = made
            after[name] = (changes, now)
        return deltas, after

    def journaled(self, after: Mapping[str, tuple[int | None, Any]]) -> None:
        """Note what the journal has now."""
        self._journaled.update({name: seen for name, seen in after.items() if name in self._journaled})

    def journal_whole(self, names: Iterable[str]) -> None:
        """Let the journal get these objects whole next time: what it has of them was replaced."""
        for name in names:
            if name in self._journaled:
                self._journaled[name] = (None, None)

    def mark(self) -> tuple[dict[str, int], dict[str, tuple[int | None, Any]]]:
        """Return what is noted as stored, for `rewind`."""
        return dict(self._stored), dict(self._journaled)

    def rewind(self, mark: tuple[dict[str, int], dict[str, tuple[int | None, Any]]]) -> None:
        """Note as stored what was noted then: what came after it is not stored."""
        stored, journaled = mark
        self._stored = {name: seen for name, seen in stored.items() if name in self._objects}
        self._journaled = {name: journaled.get(name, (None, None)) for name in self._journaled}

    def rebase(self) -> None:
        """Note that journaled objects are as the journal has them: they were restored from it."""
        for name in self._journaled:
            live = self._objects.get(name)
            if live is not None:
                self._journaled[name] = (getattr(live, "changes", None), _snapshot(name, live))

    def register(self, name: str, live: Live, *, quiet: bool = False) -> None:
        """Add an object; UsageError if it has not both methods, or the name is taken by another one.

        A quiet one goes with every checkpoint, but alone is no reason to take one.
        """
        check_section_name(name)
        for method in ("snapshot", "restore"):
            if not callable(getattr(live, method, None)):
                raise UsageError(f"section {name!r}: a {type(live).__qualname__} has no {method}(); it needs both")
        if self._objects.setdefault(name, live) is not live:
            raise UsageError(f"section {name!r} is registered already: unregister the other object first")
        if quiet:
            self._quiet.add(name)

    def unregister(self, name: str) -> None:
        """Leave an object out from now on; its section is carried over as it is."""
        self._objects.pop(name, None)
        self._quiet.discard(name)
        self._stored.pop(name, None)
        self._journaled.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._objects

    def __len__(self) -> int:
        return len(self._objects.keys() - self._quiet)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all registered sections."""
        return tuple(self._objects)

    def snapshots(self, *, without: Iterable[str] = ()) -> dict[str, Any]:
        """Return every object's state but these; CaptureFailed names the section whose object raised.

        An object that counts its `changes` is not asked while the count stands as it did at the last stored snapshot:
        its section is carried over.
        """
        left_out = frozenset(without)
        self.forget(left_out)
        self._asked = {}
        taken: dict[str, Any] = {}
        for name, live in list(self._objects.items()):
            changes = getattr(live, "changes", None)
            if name in left_out or (changes is not None and self._stored.get(name) == changes):
                continue
            if changes is not None:
                self._asked[name] = changes
            taken[name] = _snapshot(name, live)
        return taken

    @property
    def trusted(self) -> frozenset[str]:
        """The sections whose objects give values of the section's own type, so that they need no validation."""
        return frozenset(name for name, live in self._objects.items() if getattr(live, "gives_typed", False))

    def stored(self) -> None:
        """Note that the last snapshots are stored."""
        self._stored |= self._asked

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Ask these objects again, by default all: their sections are not what the next checkpoint builds on."""
        for name in list(self._stored) if names is None else names:
            self._stored.pop(name, None)

    def restore(self, values: Mapping[str, Any]) -> list[str]:
        """Put states back into the objects they came from; all or none. Return the names of those restored."""
        chosen = [name for name in self._objects if name in values]
        self.forget(chosen)
        before = {name: _snapshot(name, self._objects[name]) for name in chosen}
        done: list[str] = []
        for name in chosen:
            done.append(name)
            try:
                self._objects[name].restore(values[name])
            except Exception as error:
                self._put_back(done, before)
                raise CaptureFailed(f"its restore() raised {_shown(error)}", name) from error
        return done

    def _put_back(self, names: list[str], before: Mapping[str, Any]) -> None:
        for name in reversed(names):
            try:
                self._objects[name].restore(before[name])
            except Exception as error:
                raise CaptureFailed(f"it could not be put back as it was ({_shown(error)})", name) from error


def _snapshot(name: str, live: Live) -> Any:
    try:
        return live.snapshot()
    except Exception as error:
        raise CaptureFailed(f"its snapshot() raised {_shown(error)}", name) from error


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
