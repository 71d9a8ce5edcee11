"""Several calls at once, on a few threads."""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def together(calls: Sequence[Callable[[], object]], limit: int, name: str = "together") -> None:
    """Make all calls, up to `limit` at once; after an error no more are begun, and it is raised when all have ended.

    Ctrl+C does not wait for calls that are under way: their threads end with the process.
    """
    if limit == 1 or len(calls) == 1:
        for call in calls:
            call()
        return
    crew = _Crew(iter(calls))
    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(crew.work,), name=f"holdfast-{name}", daemon=True)
        for _ in range(min(limit, len(calls)))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        crew.is_over = True
    if crew.errors:
        raise crew.errors[0]


class _Crew:
    """Threads that take one call after another from the same list."""

    def __init__(self, calls: Iterator[Callable[[], object]]) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self.errors: list[BaseException] = []
        self.is_over = False

    def work(self) -> None:
        while not self.is_over:
            with self._lock:
                call = next(self._calls, None)
            if call is None:
                return
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again where the calls were asked for
                self.errors.append(error)
                self.is_over = True
