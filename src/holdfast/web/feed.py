"""What moved in the store, told to open pages as it happens; one thread looks, however many pages are open.

It looks at the store's own files first and reads lines only when they changed; a store without files of its own is
asked every time. An engine that follows its journal by itself can stand in for `_look` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import HoldfastError
from holdfast.web.task_output import output_mark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from holdfast.web import answers
    from holdfast.web.overview import Overview
    from holdfast.web.site import Handle, Site

_LOOK_EVERY_S = 0.1
_ASK_EVERY_S = 0.3
_LOOK_ANYWAY_S = 1.0
_PING_S = 15.0
_KEPT = 1000
_log = logging.getLogger("holdfast")


class PageFeed:
    """Tells subscribers what happened since a cursor."""

    def __init__(self, site: Site, overview: Overview) -> None:
        self._site = site
        self._overview = overview
        self._start = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._wakers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._printed: dict[str, tuple[tuple[str, int], ...]] = {}

    def start(self) -> None:
        """Begin to look; doing it twice is the same as once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="holdfast-feed", daemon=True)
                self._thread.start()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until all runs were looked at once."""
        self._ready.wait(timeout_s)

    def stop(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def tell(self, event: answers.LiveEvent) -> None:
        """Give an event to every page; it is kept for those that reconnect."""
        with self._lock:
            self._number += 1
            body = msgspec.json.encode({**event, "cursor": f"{self._start}.{self._number}"})
            self._kept.append((self._number, body))
            wakers = list(self._wakers)
        for loop, waker in wakers:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(waker.set)

    def tell_run(self, run: str) -> None:
        """Tell how a run stands now."""
        self.tell({"type": "run", "cursor": "", "run": run, "summary": self._overview.of(run)})

    async def stream(self, after: str) -> AsyncIterator[bytes]:
        """Yield events as server-sent ones, from a cursor on; a cursor of another start begins with a reset."""
        waker = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._wakers.add(waker)
            number = self._after(after)
            first = b"reset" if number is None else b"hello"
            number = self._number if number is None else number
            cursor = f"{self._start}.{number}".encode()
        try:
            yield b"event: " + first + b'\ndata: {"type":"' + first + b'","cursor":"' + cursor + b'"}\n\n'
            while not self._stop.is_set():
                with self._lock:
                    waker[1].clear()
                    fresh = [(at, body) for at, body in self._kept if at > number]
                for at, body in fresh:
                    number = at
                    yield b"data: " + body + b"\n\n"
                try:
                    await asyncio.wait_for(waker[1].wait(), _PING_S)
                except TimeoutError:
                    yield b": ping\n\n"
        finally:
            with self._lock:
                self._wakers.discard(waker)

    def _after(self, cursor: str) -> int | None:
        """Return the number of a cursor, None if what came after it is no longer known."""
        start, _, digits = cursor.partition(".")
        if start != self._start or not digits.isdigit():
            return None
        number = int(digits)
        oldest = self._kept[0][0] if self._kept else self._number + 1
        return number if oldest - 1 <= number <= self._number else None

    def _watch(self) -> None:
        seen: object = None
        looked_at = 0.0
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                with self._site.handles.read() as handle:
                    marks = _marks(handle.hf.store.own_paths) if handle.hf.store.url.startswith("sqlite:") else None
                    if marks is None or marks != seen or started - looked_at > _LOOK_ANYWAY_S:
                        seen, looked_at = marks, started
                        changed = self._overview.refresh(handle)
                        if self._ready.is_set():
                            for run in changed:
                                self.tell_run(run)
                        self._ready.set()
                    self._tell_output(handle)
            except (HoldfastError, OSError) as error:
                _log.warning("the page cannot look at the store: %s", error)
                self._ready.set()
                self._stop.wait(1.0)
            self._stop.wait(_ASK_EVERY_S if seen is None else _LOOK_EVERY_S)

    def _tell_output(self, handle: Handle) -> None:
        """Tell of runs under way whose tasks printed something; the text itself is asked for by who shows it."""
        live = [run["id"] for run in self._overview.all() if run["moving"]]
        for run in live:
            mark = output_mark(handle.hf, run)
            if mark != self._printed.get(run, ()):
                self.tell({"type": "output", "cursor": "", "run": run})
            self._printed[run] = mark
        for run in set(self._printed).difference(live):
            if output_mark(handle.hf, run) != self._printed.pop(run):
                self.tell({"type": "output", "cursor": "", "run": run})  # what it printed last


def _marks(places: Iterable[Path]) -> tuple[tuple[int, int], ...]:
    """Return size and time of the files of a store that a commit writes."""
    found = []
    for place in places:
        if not place.name.endswith("-shm"):  # readers write that one, too
            with contextlib.suppress(OSError):
                status = place.stat()
                found.append((status.st_size, status.st_mtime_ns))
    return tuple(found)
