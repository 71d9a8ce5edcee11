"""Wake-ups of those who wait for a run: open one first, then look at the condition, then wait.

A wake-up between opening and waiting is not missed. It may be spurious: look at the condition again. However many wait
in a process, one thread looks for all of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

EVERYBODY = "*"


class Wakeup:
    """What one who waits for a run holds; use it in a `with` block."""

    def __init__(self, wakeups: Wakeups, name: str) -> None:
        self._wakeups = wakeups
        self.name = name
        self._woken = threading.Event()
        self._call: Callable[[], object] | None = None

    def wait(self, timeout_s: float) -> bool:
        """Return True once the run was woken, or may have been; False when the time is over."""
        return self._woken.wait(timeout_s) and self.take()

    def take(self) -> bool:
        """Tell whether it was woken since it was last asked; raises what keeps it from being woken."""
        was_woken = self._woken.is_set()
        self._woken.clear()
        self._wakeups.check()
        return was_woken

    def call(self, notify: Callable[[], object] | None) -> None:
        """Let a function be called, on any thread, when it is woken or was; None takes it back."""
        self._call = notify
        if notify is not None and self._woken.is_set():
            notify()

    def wake(self) -> None:
        """Wake who waits."""
        self._woken.set()
        call = self._call
        if call is not None:
            call()

    def close(self) -> None:
        """Stop listening; closing twice is fine."""
        self._wakeups.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Wakeups:
    """Every wake-up of one store in this process, by name."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_name: dict[str, set[Wakeup]] = {}

    def open(self, name: str) -> Wakeup:
        """Return a wake-up for what happens from now on."""
        made = Wakeup(self, name)
        with self._lock:
            self._by_name.setdefault(name, set()).add(made)
        return made

    def forget(self, wakeup: Wakeup) -> None:
        """Remove a wake-up."""
        with self._lock:
            left = self._by_name.get(wakeup.name, set())
            left.discard(wakeup)
            if not left:
                self._by_name.pop(wakeup.name, None)

    def check(self) -> None:
        """Raise what keeps wake-ups from coming."""

    def wake(self, *names: str) -> None:
        """Wake those who wait for these names, or everybody."""
        with self._lock:
            chosen = list(self._by_name) if EVERYBODY in names else names
            for wakeup in [one for name in chosen for one in self._by_name.get(name, ())]:
                wakeup.wake()


class PolledWakeups(Wakeups):
    """Wakeups over counters that one thread reads now and then, for media that cannot call anybody."""

    def __init__(
        self,
        read: Callable[[Collection[str]], Mapping[str, int]],
        *,
        has_moved: Callable[[], bool] = lambda: True,
        look_every_s: float = 0.02,
    ) -> None:
        """`read` gives the counter of each name; it is asked only when the store `has_moved` since it was last."""
        super().__init__()
        self._read = read
        self._has_moved = has_moved
        self._look_every_s = look_every_s
        self._seen: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def open(self, name: str) -> Wakeup:
        """Return a wake-up for when the counter of a name moves from now on."""
        with self._lock:
            if name not in self._by_name:
                self._seen[name] = self._read([name]).get(name, 0)
            made = super().open(name)
            if self._thread is None or not self._thread.is_alive():
                self._stop, self._error = threading.Event(), None
                self._thread = threading.Thread(
                    target=self._look, args=(self._stop,), name="holdfast-wakes", daemon=True
                )
                self._thread.start()
        return made

    def forget(self, wakeup: Wakeup) -> None:
        """Remove a wake-up; after the last one no thread is left."""
        with self._lock:
            super().forget(wakeup)
            if wakeup.name not in self._by_name:
                self._seen.pop(wakeup.name, None)
            thread, stop = self._thread, self._stop
            if self._by_name or thread is None:
                return
            self._thread = None
            stop.set()
        if thread is not threading.current_thread():
            thread.join()

    def check(self) -> None:
        """Raise what the last look met."""
        if self._error is not None:
            raise self._error

    def _look(self, stop: threading.Event) -> None:
        while not stop.wait(self._look_every_s):
            try:
                if not self._has_moved():
                    continue
                with self._lock:
                    names = list(self._by_name)
                counts = self._read(names)
            except Exception as error:  # noqa: BLE001 - raised in every thread that waits
                self._error = error
                self.wake(EVERYBODY)
                return
            with self._lock:
                moved = [name for name in names if counts.get(name, 0) != self._seen.get(name, 0)]
                self._seen.update({name: counts.get(name, 0) for name in moved if name in self._by_name})
            self.wake(*moved)
