"""The run's lock: live state changes and is captured under it, one thread at a time.

A signal that arrives while the main thread holds it waits until the lock is let go, so that no handler ever sees state
in the middle of a change, or starts a commit inside a commit.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class RunLock:
    """A lock that its holder may take again, and that runs what was put off when it is let go for good."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._put_off: list[Callable[[bool], object]] = []  # by signal handlers, so by the main thread alone

    def is_mine(self) -> bool:
        """Tell whether this thread holds the lock."""
        # Bookkeeping of our own would leave a moment in which a signal finds the lock taken and us unaware of it.
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001

    def when_free(self, action: Callable[[bool], object]) -> None:
        """Do it now, or when this thread has let the lock go; for signal handlers, which interrupt the holder.

        The action is told whether the state is whole: not if an exception ended what was done under the lock.
        """
        if self.is_mine():
            self._put_off.append(action)
        else:
            action(True)

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if self._put_off and threading.current_thread() is threading.main_thread() and not self.is_mine():
            actions, self._put_off = self._put_off, []
            for action in actions:
                action(error is None)
