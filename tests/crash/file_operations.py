"""Every file operation of a process: counted, and the process killed at one of them, before it is done."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from crash.children import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CHANGING = (
    "write", "pwrite", "writev", "rename", "replace", "link", "symlink", "unlink", "remove", "mkdir", "rmdir",
    "chmod", "fchmod", "utime", "fsync", "fdatasync", "sync", "truncate", "ftruncate",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class _Watch:
    """Counts the changes that this process makes, and kills it at one of them."""

    def __init__(self, kill_at: int | None) -> None:
        self.done = 0
        self._kill_at = kill_at
        self._process = os.getpid()

    def start(self) -> None:
        """Watch from here on; for the whole life of the process."""
        for name in _CHANGING:
            if hasattr(os, name):
                setattr(os, name, self._watched(getattr(os, name)))
        sys.addaudithook(self._hear)

    def _moment(self) -> None:
        if os.getpid() != self._process:
            return
        self.done += 1
        if self.done == self._kill_at:
            os.kill(self._process, signal.SIGKILL)

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*given: Any, **named: Any) -> Any:
            self._moment()
            return real(*given, **named)

        return operation

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[2], int) and given[2] & _WRITING:
            self._moment()


def operations(act: Callable[[], object], *, kill_at: int | None = None) -> int | None:
    """Do something in a child, killed before its n-th change of the file system; return how many there were.

    Whatever module makes them: those of `os`, and files that are opened for writing. A database that is written by a
    library of its own is not among them.
    """

    def work(report: Callable[[Any], None]) -> None:
        watch = _Watch(kill_at)
        watch.start()
        act()
        total = watch.done
        report(total)

    ended = Child(work).join()
    if kill_at is not None and ended.signal == signal.SIGKILL:
        return None
    assert ended.signal == 0, ended
    [count] = ended.reports
    assert isinstance(count, int), count
    return count


def moments(total: int, *, sample: int | None) -> Iterable[int]:
    """Return at which operations to kill: each of them, or so many from the first to the last."""
    if sample is None or total <= sample:
        return range(1, total + 1)
    return sorted({1 + point * (total - 1) // (sample - 1) for point in range(sample)})


def killed_before(act: Callable[[], object], name: bytes) -> None:
    """Do something in a child that is killed before it first replaces or removes a file of this name."""

    def work(report: Callable[[Any], None]) -> None:
        def watched(real: Callable[..., Any], place: int) -> Callable[..., Any]:
            def operation(*given: Any, **named: Any) -> Any:
                if given[place] == name:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **named)

            return operation

        os.rename, os.unlink = watched(os.rename, 1), watched(os.unlink, 0)
        act()
        report("not killed")

    ended = Child(work).join()
    assert ended.signal == signal.SIGKILL, ended
