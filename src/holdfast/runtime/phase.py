"""One phase, entered with `with`: it begins an attempt, and ends it well or with the error that left the block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.runtime.coroutines import result_of
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.recorded import kept
from holdfast.runtime.stopwatch import Stopwatch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from holdfast.model.sections import Artifact, PhaseState
    from holdfast.runtime.phases import Phases

T = TypeVar("T")


class Phase:
    """One phase; `with phases.phase("research") as phase:` runs it, if `phase.is_due`."""

    def __init__(self, phases: Phases, name: str, *, clock: Callable[[], float], label: str | None = None) -> None:
        self.name = name
        self._phases = phases
        self._clock = clock
        self._label = label
        self._watch: Stopwatch | None = None

    @property
    def state(self) -> PhaseState:
        """Where the phase stands."""
        return self._phases.state(self.name)

    @property
    def is_due(self) -> bool:
        """Whether there is something to do: not if it is complete or was left out."""
        return self.state.status not in ("completed", "skipped")

    @property
    def is_complete(self) -> bool:
        """Whether it is complete."""
        return self.state.status == "completed"

    @property
    def attempt(self) -> int:
        """Which attempt this is; the first is 1."""
        return self.state.attempt

    @property
    def result(self) -> Any:
        """What it was kept with, as a copy."""
        return kept(self.state.result)

    def keep(self, result: Any) -> None:
        """Keep a result with the phase; one that cannot be stored is refused, with its path."""
        self._phases.keep(self.name, result)

    def summarise(self, summary: str) -> None:
        """Say in short what came of it."""
        self._phases.change(self.name, summary=summary)

    def add_artifact(
        self,
        path: str | os.PathLike[str],
        *,
        type: str = "file",  # noqa: A002 - the field's name
        id: str | None = None,  # noqa: A002 - the field's name
    ) -> Artifact:
        """Keep a file's path and checksum of now with the phase; one of the same id is replaced."""
        return self._phases.add_artifact(self.name, path, type=type, id=id)

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run a function as this phase if it is due, and return its result, or the one that was kept."""
        if not self.is_due:
            return self.result  # type: ignore[no-any-return]
        if self._watch is not None:
            return self._kept(function, *args, **options)
        with self:
            return self._kept(function, *args, **options)

    def _kept(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        result: T = result_of(function(*args, **options), f"the function of phase {self.name!r}")
        self.keep(result)
        return result

    def __enter__(self) -> Self:
        if self.is_due:
            self._phases.begin(self.name, label=self._label)
            self._watch = Stopwatch(self._clock)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is None:
            return
        took_s = self._watch.took_s
        self._watch = None
        if error is None:
            self._phases.complete(self.name, took_s=took_s)
        elif is_interruption(error):
            self._phases.leave(self.name)  # not the phase's fault: it is resumed in the next process
        else:
            self._phases.fail(self.name, error, took_s=took_s)
