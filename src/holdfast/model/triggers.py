"""What may cause a checkpoint."""

from __future__ import annotations

from enum import StrEnum


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
