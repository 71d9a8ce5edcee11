"""Interruptions: errors that end this process's part of a run, not its work. Nothing is marked as failed."""

from __future__ import annotations

from holdfast.errors import (
    BudgetExhausted,
    HeadMoved,
    LeaseHeld,
    LeaseLost,
    RecoveryError,
    RunCancelled,
    RunClosed,
    RunWaiting,
    SessionOver,
    Unprotected,
)

_INTERRUPTIONS = (
    RunWaiting,
    RunCancelled,
    RunClosed,
    SessionOver,
    Unprotected,
    BudgetExhausted,
    RecoveryError,
    LeaseLost,
    LeaseHeld,
    HeadMoved,
)


def is_interruption(error: BaseException) -> bool:
    """Tell whether this error leaves the run to be resumed; Ctrl+C and the like do, too."""
    return isinstance(error, _INTERRUPTIONS) or not isinstance(error, Exception)
