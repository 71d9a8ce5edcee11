"""When a checkpoint is due: conditions that combine with | and & and ~; pure, so that a decision can be tested.

A condition answers with the reason why it is due, or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import UsageError
from holdfast.model.triggers import Trigger, checked_trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.capture.triggers import TriggerEvent


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands: how long ago its last checkpoint was (None: never), and how many it took."""

    since_last_s: float | None = None
    checkpoints: int = 0
    events: int = 0
    """Events of the same trigger so far, this one included."""


class Condition:
    """When a checkpoint is due."""

    def due(self, event: TriggerEvent, position: Position) -> str | None:
        """Return why a checkpoint is due now, or None."""
        raise NotImplementedError

    def __or__(self, other: Condition) -> Condition:
        return AnyOf((self, other))

    def __and__(self, other: Condition) -> Condition:
        return AllOf((self, other))

    def __invert__(self) -> Condition:
        return Not(self)


class AnyOf(Condition):
    """Due when one of these is."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self.conditions = tuple(conditions)

    def due(self, event: TriggerEvent, position: Position) -> str | None:
        """Return the first reason."""
        return next((reason for one in self.conditions if (reason := one.due(event, position))), None)


class AllOf(Condition):
    """Due when all of these are."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self.conditions = tuple(conditions)

    def due(self, event: TriggerEvent, position: Position) -> str | None:
        """Return all reasons, joined."""
        reasons = [one.due(event, position) for one in self.conditions]
        return "; ".join(filter(None, reasons)) if reasons and all(reasons) else None


class Not(Condition):
    """Due when the other is not."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition

    def due(self, event: TriggerEvent, position: Position) -> str | None:
        """Return the event's own reason if the other gives none."""
        return None if self.condition.due(event, position) else event.text


class On(Condition):
    """Due at these triggers, or at every one if none is named; `every` takes each n-th."""

    def __init__(self, *triggers: Trigger | str, every: int = 1) -> None:
        if every < 1:
            raise UsageError(f"every={every}: give a number from 1 up")
        self.triggers = frozenset(map(checked_trigger, triggers))
        self.every = every

    def due(self, event: TriggerEvent, position: Position) -> str | None:
        """Return the event's own reason."""
        if self.triggers and event.trigger not in self.triggers:
            return None
        return event.text if position.events % self.every == 0 else None


class OnPhaseComplete(Condition):
    """Due when a phase is complete: any, or one of these."""

    def __init__(self, *phases: str) -> None:
        self.phases = frozenset(phases)

    def due(self, event: TriggerEvent, position: Position) -> str | None:  # noqa: ARG002 - one signature for all
        """Return the event's own reason if it is one of these phases."""
        is_end = event.trigger is Trigger.PHASE_COMPLETE
        return event.text if is_end and (not self.phases or event.phase in self.phases) else None


class OnLoopComplete(On):
    """Due when a loop is complete, or each n-th one."""

    def __init__(self, *, every: int = 1) -> None:
        super().__init__(Trigger.LOOP_COMPLETE, every=every)


class OnBudgetWarning(On):
    """Due when a budget is nearly used up."""

    def __init__(self) -> None:
        super().__init__(Trigger.BUDGET_WARNING)


class Every(Condition):
    """Due when the last checkpoint is this many seconds old, whatever happened; also when there is none yet."""

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise UsageError(f"every {seconds} seconds: give a number above 0")
        self.seconds = seconds

    def due(self, event: TriggerEvent, position: Position) -> str | None:  # noqa: ARG002
        """Return how old the last one is."""
        if position.since_last_s is None:
            return "there is no checkpoint yet"
        if position.since_last_s < self.seconds:
            return None
        return f"{position.since_last_s:.0f} s since the last checkpoint"


class When(Condition):
    """Due when a function of the user's says so; text that it returns is the reason."""

    def __init__(self, predicate: Callable[[TriggerEvent, Position], object]) -> None:
        self.predicate = predicate

    def due(self, event: TriggerEvent, position: Position) -> str | None:
        """Ask the function."""
        answer = self.predicate(event, position)
        return (answer if isinstance(answer, str) else event.text) if answer else None
