"""Interruptions: errors that end this process's part of a run, not its work. Nothing is marked as failed."""

from __future__ import annotations

import signal

from holdfast.errors import (
    BudgetExhausted,
    CommandFailed,
    HeadMoved,
    LeaseHeld,
    LeaseLost,
    RecoveryError,
    RunCancelled,
    RunClosed,
    RunWaiting,
    SessionOver,
    StepTimeout,
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

_SIGNALLED = 128


def is_interruption(error: BaseException) -> bool:
    """Tell whether this error leaves the run to be resumed; Ctrl+C and the like do, too."""
    return isinstance(error, _INTERRUPTIONS) or not isinstance(error, Exception)


def is_cut_off(error: BaseException) -> bool:
    """Tell whether this error ended work from outside, before it could say what it cost."""
    if isinstance(error, CommandFailed):  # a shell reports a signal as 128 and its number
        return error.status < 0 or _SIGNALLED < error.status < _SIGNALLED + signal.NSIG
    return isinstance(error, StepTimeout) or is_interruption(error)
