"""Replanning a phase: counted with reason and time, and limited, so that no run replans for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import ReplanLimit, UsageError
from holdfast.model.sections import Replan
from holdfast.model.triggers import Trigger
from holdfast.runtime.recorded import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.runtime.host import Host

LIMIT = 2


class Replans:
    """The replans of a run's phases; they are stored in the section of the phases."""

    def __init__(
        self,
        host: Host,
        *,
        limit: int = LIMIT,
        limits: Mapping[str, int] | None = None,
        changed: Callable[[], None],
        again: Callable[[str, str], object],
    ) -> None:
        """Count for phases that hear of every change, and are told which of them is due again and why."""
        self._host = host
        self._limit = _checked(limit)
        self._limits = {phase: _checked(own) for phase, own in (limits or {}).items()}
        self._history: list[Replan] = []
        self._changed = changed
        self._again = again

    @property
    def limits(self) -> dict[str, int]:
        """The limits of those phases that have one of their own."""
        return dict(self._limits)

    def limit(self, phase: str) -> int:
        """Return how often a phase may be replanned."""
        return self._limits.get(phase, self._limit)

    def allow(self, phase: str, limit: int) -> None:
        """Give a phase a limit of its own."""
        with self._host.lock:
            self._limits[phase] = _checked(limit)
            self._changed()

    def history(self, phase: str | None = None) -> tuple[Replan, ...]:
        """Return every replan, oldest first, of one phase or of all."""
        return tuple(replan for replan in self._history if phase is None or replan.phase == phase)

    def count(self, phase: str) -> int:
        """Return how often a phase was replanned."""
        return len(self.history(phase))

    def counts(self) -> dict[str, int]:
        """Return how often each phase was replanned."""
        found: dict[str, int] = {}
        for replan in self._history:
            found[replan.phase] = found.get(replan.phase, 0) + 1
        return found

    def left(self, phase: str) -> int:
        """Return how often a phase may still be replanned."""
        return max(0, self.limit(phase) - self.count(phase))

    def add(self, phase: str, reason: str) -> Replan:
        """Count one more, make the phase due again and save; ReplanLimit names the history when there are enough."""
        with self._host.lock:
            history = self.history(phase)
            if len(history) >= self.limit(phase):
                told = tuple(f"{reason_of(replan.reason)} at {replan.at:%Y-%m-%d %H:%M}" for replan in history)
                raise ReplanLimit(self._host.id, phase, self.limit(phase), told)
            replan = Replan(phase=phase, reason=reason, at=self._host.now())
            self._history.append(replan)
            self._again(phase, reason)
            path = f"{phase}/replan:{len(history) + 1}"
            self._host.calls.mark("done", "decision", path, phase=phase, result={"reason": reason})
            self._changed()
        self._host.save(Trigger.REPLAN, reason_of(f"{phase} replanned ({len(history) + 1}): {reason}"), phase=phase)
        return replan

    def restore(self, history: Iterable[Replan], limits: Mapping[str, int]) -> None:
        """Take the history and the limits of a checkpoint."""
        self._history = list(history)
        self._limits = dict(limits)


def _checked(limit: int) -> int:
    if not isinstance(limit, int) or limit < 0:
        raise UsageError(f"a replan limit of {limit!r}: give a number from 0 up")
    return limit
