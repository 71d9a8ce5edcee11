"""Several calls at once, on a few threads."""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

_SLICE_S = 0.25


def run_in_threads(calls: Sequence[Callable[[], object]], limit: int, name: str = "threads") -> None:
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
        _join(threads)
    finally:
        crew.is_over = True
    if crew.errors:
        raise crew.errors[0]


def _join(threads: Sequence[threading.Thread]) -> None:
    """Wait until all threads have ended, in slices.

    A signal that another thread received, or that came just before the wait, does not end it: Ctrl+C was lost so.
    """
    for thread in threads:
        while thread.is_alive():
            thread.join(_SLICE_S)


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


def run_in_order(
    needs: Mapping[str, Collection[str]],
    do: Callable[[str], bool],
    *,
    limit: int,
    idle: Callable[[], object] = lambda: None,
) -> None:
    """Do each task as soon as all that it needs are done, up to `limit` at once; what needs a failed one is left out.

    `do` tells whether a task succeeded. After an error no more are begun, and it is raised when all have ended.
    `idle` is called before a thread waits for the tasks of others.
    """
    crew = _Ordered(needs, do, idle)
    if limit == 1 or len(needs) == 1:
        crew.work()
    else:
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(crew.work,), name="holdfast-task", daemon=True
            )
            for _ in range(min(limit, len(needs)))
        ]
        for thread in threads:
            thread.start()
        try:
            _join(threads)
        finally:
            crew.stop()
    if crew.errors:
        raise crew.errors[0]


class _Ordered:
    """Threads that take one task after another, as soon as it may begin."""

    def __init__(
        self, needs: Mapping[str, Collection[str]], do: Callable[[str], bool], idle: Callable[[], object]
    ) -> None:
        self._idle = idle
        self._needs = dict(needs)
        self._do = do
        self._waiting = list(needs)
        self._done: set[str] = set()
        self._active = 0
        self._turn = threading.Condition()
        self._is_over = False
        self.errors: list[BaseException] = []

    def stop(self) -> None:
        with self._turn:
            self._is_over = True
            self._turn.notify_all()

    def work(self) -> None:
        try:
            name = self._next()
            while name is not None:
                name = self._next(name, is_done=self._begin(name))
        except BaseException as error:  # noqa: BLE001 - raised again where the tasks were asked for
            self.errors.append(error)
            self.stop()

    def _begin(self, name: str) -> bool:
        try:
            return self._do(name)
        except BaseException as error:  # noqa: BLE001 - raised again where the tasks were asked for
            self.errors.append(error)
            self.stop()
            return False

    def _next(self, ended: str | None = None, *, is_done: bool = False) -> str | None:
        """Return the next task that may begin now that one has ended, None when there will be none."""
        with self._turn:
            if ended is not None:
                self._active -= 1
                if is_done:
                    self._done.add(ended)
            ready = self._taken()  # before others wake: what was saved at the end of the last goes with its beginning
            self._turn.notify_all()
            if ready is not None or not self._active or self._is_over:
                return ready
        self._idle()
        with self._turn:
            while (ready := self._taken()) is None and self._active and not self._is_over:
                self._turn.wait()
        return ready

    def _taken(self) -> str | None:
        """Take a task that may begin."""
        if self._is_over:
            return None
        ready = next((name for name in self._waiting if self._done.issuperset(self._needs[name])), None)
        if ready is not None:
            self._waiting.remove(ready)
            self._active += 1
        return ready
