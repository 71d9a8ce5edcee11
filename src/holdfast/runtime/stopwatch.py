"""How long work takes: what its thread waited for somebody meanwhile is not a part of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_thread = threading.local()


def _waited_s() -> float:
    return getattr(_thread, "waited_s", 0.0)


@contextmanager
def waiting(monotonic: Callable[[], float]) -> Iterator[None]:
    """Let the stopwatches of this thread stand still; one wait may lie within another."""
    began, before = monotonic(), _waited_s()
    try:
        yield
    finally:
        _thread.waited_s = before + max(0.0, monotonic() - began)


class Stopwatch:
    """Runs from now on."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._waited_s = _waited_s()
        self._thread = threading.get_ident()

    @property
    def took_s(self) -> float:
        """The seconds that this thread has worked since; another one, which cannot know of waits here, is told all."""
        waited_s = _waited_s() - self._waited_s if threading.get_ident() == self._thread else 0.0
        return self._monotonic() - self._began_s - waited_s
