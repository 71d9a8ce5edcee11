"""Errors that end this life of the run, not the work: the position is kept, and nothing is marked as failed."""

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

LEAVING = (
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


def is_leaving(error: BaseException) -> bool:
    """Tell whether the run is left with this error; whatever is no Exception (Ctrl+C) is meant so as well."""
    return isinstance(error, LEAVING) or not isinstance(error, Exception)
