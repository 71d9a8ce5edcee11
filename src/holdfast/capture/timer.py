"""A thread that calls back every so often, and once before a deadline; it keeps no state of the run."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("holdfast")


class Timer:
    """Calls `tick` every interval and `expire` once, `lead_s` before the deadline, on a thread of its own."""

    def __init__(
        self,
        *,
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
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if there is anything to wait for."""
        if self._next is not None or self._expires is not None:
            self._thread = threading.Thread(target=self._run, name="holdfast-timer", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End and wait for a call under way; from the timer's own thread, only end."""
        self._stopping.set()
        thread = self._thread
        # A signal may have interrupted start(): a thread that is not alive yet cannot be joined, and ends by itself.
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join()

    def postpone(self) -> None:
        """Count the interval from now: a checkpoint was just taken."""
        if self._interval_s is not None:
            self._next = self._monotonic() + self._interval_s

    def _run(self) -> None:
        while not self._stopping.wait(self._wait_s()):
            now = self._monotonic()
            if self._expires is not None and now >= self._expires:
                self._expires = None
                self._call(self._expire)
            elif self._next is not None and now >= self._next:
                self.postpone()
                self._call(self._tick)
            if self._next is None and self._expires is None:
                return

    def _wait_s(self) -> float:
        due = min(moment for moment in (self._next, self._expires) if moment is not None)
        return max(0.0, due - self._monotonic())

    def _call(self, function: Callable[[], object] | None) -> None:
        if function is None:
            return
        try:
            function()
        except Exception:  # noqa: BLE001 - logged whole
            # The caller reports failures by itself; an unforeseen one must not end the thread unseen.
            _log.exception("the checkpoint timer met an unexpected error and goes on")
