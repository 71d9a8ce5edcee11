"""Ctrl+C and SIGTERM while a run is open: save at once, then end as the signal asks; a second Ctrl+C leaves at once.

A handler runs in the middle of whatever the main thread does, maybe inside a call of the store. So it takes no lock: a
thread of its own saves, and the handler waits for it no longer than a few seconds. If the main thread itself holds what
the save needs, the wait ends, the exception unwinds, the save continues, and the end of the run's block waits for it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from holdfast.capture.lock import RunLock

_log = logging.getLogger("holdfast")
_HANDLED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_SIGNALLED = 128
_PATIENCE_S = 3.0


class Terminated(SystemExit):
    """The process was asked to end; the run's position was saved. The exit code is 128 plus the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(_SIGNALLED + number)
        self.number = number


class _Save:
    """What one signal asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.error = _ending(number)
        self.is_saved = False
        self.over = threading.Event()


class SignalGuard:
    """Handlers for as long as a run is open; in any but the main thread there is nothing to guard."""

    def __init__(self, lock: RunLock, save: Callable[[int], bool]) -> None:
        self._lock = lock
        self._save = save
        self._previous: dict[int, Any] = {}
        self._process = os.getpid()
        self._jobs: SimpleQueue[_Save | None] = SimpleQueue()  # its put() may interrupt itself
        self._met = False
        self._first: _Save | None = None
        self._second: BaseException | None = None
        self._is_hurried = False
        self._thread: threading.Thread | None = None

    def install(self) -> None:
        """Take the signals over, remembering who had them; ignored ones stay ignored (nohup)."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._thread = threading.Thread(target=self._work, name="holdfast-signals", daemon=True)
        self._thread.start()
        for number in _HANDLED:
            previous = signal.getsignal(number)
            if previous is not signal.SIG_IGN:
                self._previous[number] = previous
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Give the signals back, unless somebody took them over meanwhile."""
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous if previous is not None else signal.SIG_DFL)
        self._previous.clear()
        self._jobs.put(None)
        thread = self._thread
        # One that serves a signal while we hold the lock that it needs ends by itself, later.
        if thread is not None and thread.is_alive() and not self._is_pending():
            thread.join()

    def rearm(self) -> None:
        """Note that a checkpoint succeeded: the next signal is a first one again, unless one is being served."""
        if not self._is_pending():
            self._met = False

    def has_served(self, error: BaseException | None) -> bool:
        """Tell whether what ends the run wants no last checkpoint: it was saved for already, or is a second signal.

        Waits for a save that is still under way.
        """
        first = self._first
        if error is None or first is None:
            return False
        if error is self._second:
            return self._is_hurried or (first.is_saved and _is_behind(error, first.error))
        if error is not first.error:
            return False
        if not self._lock.is_mine():
            first.over.wait()
        return first.is_saved

    def _is_pending(self) -> bool:
        return self._first is not None and not self._first.over.is_set()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        if os.getpid() != self._process:
            raise _ending(number)  # a forked child: the run is its parent's
        if self._met or self._is_pending():
            self._is_hurried = self._is_pending()
            self._second = _ending(number)
            raise self._second
        self._met, self._is_hurried, self._second = True, False, None
        self._first = _Save(number)
        self._lock.when_free(self._serve)

    def _serve(self, whole: bool) -> None:  # noqa: FBT001 - the lock's signature
        """Save and leave; half-changed state is not saved, and after a second signal nothing is."""
        first = self._first
        if first is None or self._is_hurried:
            if first is not None:
                first.over.set()
            return
        if whole:
            self._jobs.put(first)
            first.over.wait(_PATIENCE_S)
        else:
            first.over.set()
        raise first.error

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.is_saved = self._save(job.number)
            except BaseException:  # noqa: BLE001 - logged whole; the thread serves the next signal, too
                _log.exception("the save for %s met an unexpected error", signal.Signals(job.number).name)
            finally:
                job.over.set()


def _ending(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def _is_behind(error: BaseException, first: BaseException) -> bool:
    """Tell whether an error was raised while another one was on its way out."""
    context = error.__context__
    while context is not None and context is not first:
        context = context.__context__
    return context is first
