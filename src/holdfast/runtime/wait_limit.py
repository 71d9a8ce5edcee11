"""Giving up a wait: who waits on behalf of a caller looks now and then whether that caller is still there."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

_LOOK_EVERY_S = 0.1
_gone: ContextVar[tuple[threading.Event, ...]] = ContextVar("holdfast_callers_gone", default=())


def watch_for(gone: threading.Event) -> None:
    """Let waits in this context end when the event is set, too."""
    _gone.set((*_gone.get(), gone))


def is_given_up() -> bool:
    """Tell whether nobody is left who wants to hear the answer."""
    return any(gone.is_set() for gone in _gone.get())


def at_most_s(longest_s: float) -> float:
    """Return for how long a wait may sleep before it looks again."""
    return min(longest_s, _LOOK_EVERY_S) if _gone.get() else longest_s
