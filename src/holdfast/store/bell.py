"""Waking those who wait for a run: a bell is listened to first, then the condition is looked at, then waited for.

A ring between listening and waiting is not missed. A ring may be spurious: look at the condition again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Bell(Protocol):
    """What a waiting process holds; use it in a `with` block."""

    def wait(self, timeout_s: float) -> bool:
        """Return True once the run was woken, False when the time is over."""

    def close(self) -> None:
        """Stop listening; closing twice is fine."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ClosingBell:
    """What the bells of all media share: a `with` block closes them."""

    def close(self) -> None:
        """Stop listening."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CountedBell(ClosingBell):
    """A bell over a counter that is read now and then: for media that cannot call anybody."""

    def __init__(self, read: Callable[[], int], *, look_every_s: float = 0.02) -> None:
        self._read = read
        self._look_every_s = look_every_s
        self._seen = read()

    def wait(self, timeout_s: float) -> bool:
        """Return True once the counter moved, False when the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = self._read()
            if now != self._seen:
                self._seen = now
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(self._look_every_s, left))


class SharedCounter:
    """How often each run was woken, in this process; waiting threads are called at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: dict[str, int] = {}

    def ring(self, run: str) -> None:
        """Wake all who wait for a run."""
        with self._changed:
            self._counts[run] = self._counts.get(run, 0) + 1
            self._changed.notify_all()

    def bell(self, run: str) -> Bell:
        """Return a bell for one run."""
        return _SharedBell(self._changed, self._counts, run)


class _SharedBell(ClosingBell):
    def __init__(self, changed: threading.Condition, counts: dict[str, int], run: str) -> None:
        self._changed = changed
        self._counts = counts
        self._run = run
        self._seen = counts.get(run, 0)

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            woken = self._changed.wait_for(lambda: self._counts.get(self._run, 0) != self._seen, timeout_s)
            self._seen = self._counts.get(self._run, 0)
            return woken
