"""Which events may cause a checkpoint, which operations count as destructive, and what a trigger captures; pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import UsageError
from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DESTRUCTIVE_OPERATIONS = ("git_push", "git_force_push", "delete_files", "migrate_database", "deploy", "publish")
WORKSPACE_TRIGGERS = frozenset(
    {
        Trigger.STATE_TRANSITION,
        Trigger.PHASE_TRANSITION,
        Trigger.PHASE_COMPLETE,
        Trigger.AGENT_COMPLETE,
        Trigger.BATCH_COMPLETE,
        Trigger.BEFORE_DESTRUCTIVE,
        Trigger.ERROR_OCCURRED,
        Trigger.USER_INTERRUPT,
        Trigger.SESSION_END,
        Trigger.SHUTDOWN,
        Trigger.MANUAL,
    }
)
_REASONS = {
    Trigger.STATE_TRANSITION: "the workflow changed its state",
    Trigger.PHASE_TRANSITION: "a phase begins",
    Trigger.PHASE_COMPLETE: "a phase is complete",
    Trigger.BATCH_COMPLETE: "a batch is complete",
    Trigger.AGENT_COMPLETE: "an agent is done",
    Trigger.STEP_COMPLETE: "a step is done",
    Trigger.STAGE_COMPLETE: "a stage is complete",
    Trigger.GATE_COMPLETE: "a gate was checked",
    Trigger.LOOP_COMPLETE: "a loop is complete",
    Trigger.USER_APPROVAL: "a person decided",
    Trigger.ERROR_OCCURRED: "an error occurred",
    Trigger.CONFLICT_START: "a conflict began",
    Trigger.CONFLICT_RESOLVED: "a conflict is resolved",
    Trigger.REPLAN: "the plan was changed",
    Trigger.BUDGET_WARNING: "a budget is nearly used up",
    Trigger.TIME_INTERVAL: "time for the regular checkpoint",
    Trigger.BEFORE_DESTRUCTIVE: "before a destructive operation",
    Trigger.USER_INTERRUPT: "a person interrupted the run",
    Trigger.SESSION_END: "the session ends",
    Trigger.RECOVERY: "the run was put back",
    Trigger.SHUTDOWN: "the run was shut down",
    Trigger.MANUAL: "asked for",
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in a run, for which a checkpoint may be taken."""

    trigger: Trigger
    reason: str = ""
    phase: str | None = None
    details: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The reason given, or the trigger's own."""
        return self.reason or _REASONS[self.trigger] + (f": {self.phase}" if self.phase else "")


def checked_trigger(trigger: Trigger | str) -> Trigger:
    """Return the trigger, or raise UsageError with the nearest known one."""
    try:
        return Trigger(trigger)
    except ValueError:
        near = difflib.get_close_matches(str(trigger), [one.value for one in Trigger], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(Trigger)}"
        raise UsageError(f"unknown trigger {trigger!r:.80}: {hint}") from None


class TriggerSwitches(msgspec.Struct, frozen=True, kw_only=True):
    """Which triggers take checkpoints: all on or off together, and each by itself."""

    off: frozenset[Trigger] = frozenset()

    def allow(self, trigger: Trigger) -> bool:
        """Tell whether this trigger takes a checkpoint; a manual one always does."""
        return trigger is Trigger.MANUAL or trigger not in self.off

    def switched(self, switches: Mapping[Trigger | str, bool]) -> TriggerSwitches:
        """Return these switches with some of them turned."""
        off = set(self.off)
        for name, is_on in switches.items():
            (off.discard if is_on else off.add)(checked_trigger(name))
        return msgspec.structs.replace(self, off=frozenset(off))

    def all_on(self) -> TriggerSwitches:
        """Return switches that are all on."""
        return TriggerSwitches()

    def all_off(self) -> TriggerSwitches:
        """Return switches that are all off."""
        return TriggerSwitches(off=frozenset(Trigger))


def checked_operation(operation: str, known: Iterable[str]) -> str:
    """Return the destructive operation, or raise UsageError that says how to add it."""
    names = list(known)
    if operation in names:
        return operation
    near = difflib.get_close_matches(str(operation), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"{operation!r:.80} is no known destructive operation: {hint}Known are {', '.join(names)}; "
        "add yours to destructive.operations in the settings, or with holdfast.open(destructive=[...])"
    )
