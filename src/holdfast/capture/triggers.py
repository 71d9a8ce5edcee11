"""Events for which a checkpoint may be taken, and the operations that count as destructive; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Iterable

DESTRUCTIVE_OPERATIONS = ("git_push", "git_force_push", "delete_files", "migrate_database", "deploy", "publish")
_OTHER_NAMES = {
    "file_delete": "delete_files",
    "database_migrate": "migrate_database",
    "push": "git_push",
    "force_push": "git_force_push",
}
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


class TriggerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in a run, for which a checkpoint may be taken."""

    trigger: Trigger
    reason: str = ""
    phase: str | None = None
    details: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The reason given, or the trigger's own."""
        return self.reason or _REASONS[self.trigger] + (f": {self.phase}" if self.phase else "")


def known_operation(operation: str, known: Iterable[str]) -> str | None:
    """Return a destructive operation by its known name, None if nobody listed it."""
    name = _OTHER_NAMES.get(operation, operation)
    return name if name in known else None
