"""Sections from live objects: anything with snapshot() and restore(value), captured and put back at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holdfast.errors import CaptureFailed, UsageError
from holdfast.model.ids import check_section_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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

    def register(self, name: str, live: Live) -> None:
        """Add an object; UsageError if it has not both methods, or the name is taken by another one."""
        check_section_name(name)
        for method in ("snapshot", "restore"):
            if not callable(getattr(live, method, None)):
                raise UsageError(f"section {name!a}: a {type(live).__qualname__} has no {method}(); it needs both")
        if self._objects.setdefault(name, live) is not live:
            raise UsageError(f"section {name!a} is registered already: unregister the other object first")

    def unregister(self, name: str) -> None:
        """Leave an object out from now on; its section is carried over as it is."""
        self._objects.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._objects

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all registered sections."""
        return tuple(self._objects)

    def snapshots(self, *, without: Iterable[str] = ()) -> dict[str, Any]:
        """Return every object's state but these; CaptureFailed names the section whose object raised."""
        left_out = frozenset(without)
        taken: dict[str, Any] = {}
        for name, live in self._objects.items():
            if name not in left_out:
                taken[name] = _snapshot(name, live)
        return taken

    def restore(self, values: Mapping[str, Any]) -> list[str]:
        """Put states back into the objects they came from; all or none. Return the names of those restored."""
        chosen = [name for name in self._objects if name in values]
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
