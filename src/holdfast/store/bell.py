"""Waking those who wait for a run: a bell is listened to first, then the condition is looked at, then waited for.

A ring between listening and waiting is not missed. A ring may be spurious: look at the condition again. However many
wait in a process, one thread looks for all of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType

EVERYBODY = "*"


class Bell:
    """What one who waits for a run holds; use it in a `with` block."""

    def __init__(self, bells: Bells, name: str) -> None:
        self._bells = bells
        self.name = name
        self._rung = threading.Event()
        self._call: Callable[[], object] | None = None

    def wait(self, timeout_s: float) -> bool:
        """Return True once the run was woken, or may have been; False when the time is over."""
        return self._rung.wait(timeout_s) and self.take()

    def take(self) -> bool:
        """Tell whether it rang since it was last asked; raises what keeps it from being rung."""
        was_rung = self._rung.is_set()
        self._rung.clear()
        self._bells.check()
        return was_rung

    def call(self, notify: Callable[[], object] | None) -> None:
        """Let a function be called, on any thread, when it rings or has rung; None takes it back."""
        self._call = notify
        if notify is not None and self._rung.is_set():
            notify()

    def ring(self) -> None:
        """Wake who waits."""
        self._rung.set()
        call = self._call
        if call is not None:
            call()

    def close(self) -> None:
        """Stop listening; closing twice is fine."""
        self._bells.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Bells:
    """Every bell of one store in this process, by name."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_name: dict[str, set[Bell]] = {}

    def bell(self, name: str) -> Bell:
        """Return what rings from now on."""
        made = Bell(self, name)
        with self._lock:
            self._by_name.setdefault(name, set()).add(made)
        return made

    def forget(self, bell: Bell) -> None:
        """Take a bell out."""
        with self._lock:
            left = self._by_name.get(bell.name, set())
            left.discard(bell)
            if not left:
                self._by_name.pop(bell.name, None)

    def check(self) -> None:
        """Raise what keeps bells from being rung."""

    def ring(self, *names: str) -> None:
        """Ring the bells of these names, or of everybody."""
        with self._lock:
            chosen = list(self._by_name) if EVERYBODY in names else names
            for bell in [one for name in chosen for one in self._by_name.get(name, ())]:
                bell.ring()


class PolledBells(Bells):
    """Bells over counters that one thread reads now and then, for media that cannot call anybody."""

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

    def bell(self, name: str) -> Bell:
        """Return what rings when the counter of a name moves from now on."""
        with self._lock:
            if name not in self._by_name:
                self._seen[name] = self._read([name]).get(name, 0)
            made = super().bell(name)
            if self._thread is None or not self._thread.is_alive():
                self._stop, self._error = threading.Event(), None
                self._thread = threading.Thread(
                    target=self._look, args=(self._stop,), name="holdfast-wakes", daemon=True
                )
                self._thread.start()
        return made

    def forget(self, bell: Bell) -> None:
        """Take a bell out; after the last one no thread is left."""
        with self._lock:
            super().forget(bell)
            if bell.name not in self._by_name:
                self._seen.pop(bell.name, None)
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
                self.ring(EVERYBODY)
                return
            with self._lock:
                moved = [name for name in names if counts.get(name, 0) != self._seen.get(name, 0)]
                self._seen.update({name: counts.get(name, 0) for name in moved if name in self._by_name})
            self.ring(*moved)
