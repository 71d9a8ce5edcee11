"""Timers: what is called every so often, and once before a deadline; one thread watches the clock for all of them."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("holdfast")
_LONGEST_WAIT_S = 3_600.0


class Timers:
    """The timers of a process: one thread waits for the next that is due, and a call has a thread while it takes."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._timers: set[Timer] = set()
        self._thread: threading.Thread | None = None

    def add(self, timer: Timer) -> None:
        """Watch the clock for a timer."""
        with self._changed:
            self._timers.add(timer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-timers", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def remove(self, timer: Timer) -> None:
        """Leave a timer alone; after the last one no thread is left."""
        with self._changed:
            self._timers.discard(timer)
            thread = self._thread
            if self._timers or thread is None:
                return
            self._thread = None
            self._changed.notify_all()
        if thread is not threading.current_thread() and thread.is_alive():  # not yet, if a signal interrupted its start
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._thread is not threading.current_thread():
                    return
                first = min(self._timers, key=lambda timer: timer.due_at)
                left_s = first.due_at - self._monotonic()
                if left_s > 0:
                    self._changed.wait(min(left_s, _LONGEST_WAIT_S))
                    continue
                first.fire()


class Timer:
    """Calls `tick` every interval and `expire` once, `lead_s` before the deadline, on a thread while it takes."""

    def __init__(
        self,
        *,
        timers: Timers,
        interval_s: float | None,
        tick: Callable[[], object],
        deadline_s: float | None = None,
        lead_s: float = 0.0,
        expire: Callable[[], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._tick = tick
        self._expire = expire
        self._monotonic = monotonic
        now = monotonic()
        self._next = None if interval_s is None else now + interval_s
        self._expires = None if deadline_s is None else now + max(0.0, deadline_s - lead_s)
        self._timers = timers
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if there is anything to wait for."""
        if self._next is not None or self._expires is not None:
            self._timers.add(self)

    def stop(self) -> None:
        """End and wait for a call under way; from the call itself, only end."""
        self._timers.remove(self)
        thread = self._thread
        # A signal may have interrupted start(): a thread that is not alive yet cannot be joined, and ends by itself.
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join()

    def postpone(self) -> None:
        """Count the interval from now: a checkpoint was just taken."""
        if self._interval_s is not None:
            self._next = self._monotonic() + self._interval_s

    @property
    def due_at(self) -> float:
        """The moment of the next call."""
        return min((moment for moment in (self._next, self._expires) if moment is not None), default=math.inf)

    def fire(self) -> None:
        """Make the call that is due, aside; one that is still under way is not overtaken."""
        now, call = self._monotonic(), self._tick
        if self._expires is not None and now >= self._expires:
            self._expires, call = None, self._expire or self._tick
        else:
            self.postpone()
            if self._thread is not None and self._thread.is_alive():
                return
        before = self._thread
        self._thread = threading.Thread(target=self._call, args=(call, before), name="holdfast-timer", daemon=True)
        self._thread.start()

    def _call(self, function: Callable[[], object], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            function()
        except Exception:  # noqa: BLE001 - logged whole
            # The caller reports failures by itself; an unforeseen one must not end the thread unseen.
            _log.exception("the checkpoint timer met an unexpected error and continues")
