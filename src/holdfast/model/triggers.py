"""What may cause a checkpoint."""

from __future__ import annotations

from enum import StrEnum

from holdfast.errors import UsageError
from holdfast.model.nearest import hint


class Trigger(StrEnum):
    """Why a checkpoint was taken; stored by value."""

    STATE_TRANSITION = "state_transition"
    PHASE_TRANSITION = "phase_transition"
    PHASE_COMPLETE = "phase_complete"
    BATCH_COMPLETE = "batch_complete"
    AGENT_COMPLETE = "agent_complete"
    STEP_COMPLETE = "step_complete"
    STAGE_COMPLETE = "stage_complete"
    GATE_COMPLETE = "gate_complete"
    LOOP_COMPLETE = "loop_complete"
    USER_APPROVAL = "user_approval"
    ERROR_OCCURRED = "error_occurred"
    CONFLICT_START = "conflict_start"
    CONFLICT_RESOLVED = "conflict_resolved"
    REPLAN = "replan"
    BUDGET_WARNING = "budget_warning"
    TIME_INTERVAL = "time_interval"
    BEFORE_DESTRUCTIVE = "before_destructive"
    USER_INTERRUPT = "user_interrupt"
    SESSION_END = "session_end"
    RECOVERY = "recovery"
    SHUTDOWN = "shutdown"
    MANUAL = "manual"


TRIGGER_GROUPS: dict[str, tuple[Trigger, ...]] = {
    "conflict_events": (Trigger.CONFLICT_START, Trigger.CONFLICT_RESOLVED),
}
"""Names that stand for several triggers in switches and counts."""


def checked_trigger(trigger: Trigger | str) -> Trigger:
    """Return the trigger, or raise UsageError with the nearest known one."""
    try:
        return Trigger(trigger)
    except ValueError:
        meant = hint(str(trigger), map(str, [*Trigger, *TRIGGER_GROUPS]))
        raise UsageError(f"unknown trigger {trigger!r:.80}: {meant}") from None
