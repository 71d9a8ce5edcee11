"""Noticing that a run is cancelled while its commands run: one may take hours, and comes by no boundary meanwhile."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_EVERY_S = 1.0  # one small read of the store; a command that is over sooner costs none


class CancelWatch:
    """Looks once a second on a thread of its own, which ends when it finds no command running."""

    def __init__(self, look: Callable[[], bool]) -> None:
        """Begin without a thread; `look` tells whether the run is cancelled."""
        self._look = look
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._running = 0
        self._has_thread = False

    @property
    def is_cancelled(self) -> bool:
        """Whether a cancellation was noticed."""
        return self._cancelled.is_set()

    def stop(self) -> None:
        """End the commands that run now, and let no other begin: the run is no longer this process's."""
        self._cancelled.set()

    @contextmanager
    def watched(self) -> Iterator[threading.Event]:
        """Watch while a command runs; the event is set when the run is cancelled, for all commands at once."""
        with self._lock:
            self._running += 1
            begins = not self._has_thread
            self._has_thread = True
        try:
            if begins:
                self._start()
            yield self._cancelled
        finally:
            with self._lock:
                self._running -= 1

    def _start(self) -> None:
        try:
            threading.Thread(target=self._watch, name="holdfast-cancel-watch", daemon=True).start()
        except BaseException:
            with self._lock:
                self._has_thread = False  # the next command tries again
            raise

    def _watch(self) -> None:
        while not self._cancelled.is_set():
            time.sleep(_LOOK_EVERY_S)
            with self._lock:
                self._has_thread = self._running > 0
                if not self._has_thread:
                    return
            with suppress(Exception):  # a store that cannot be read now is asked again; the command continues meanwhile
                if self._look():
                    self._cancelled.set()
