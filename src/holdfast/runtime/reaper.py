"""One small process beside this one that ends its commands should it die, by kill -9 too.

The process groups of commands that run stand in a table in memory, which both can read. A command's shell waits at a
gate until its group stands there: should this process die before that, the gate is closed and the shell ends by itself.
A group is taken out when its leader has ended, before its number can be another's. The reaper sleeps on a pipe that
nobody writes to; once this process is gone, it ends the groups that are left: it asks them, so that git takes its locks
away, and kills them a moment later.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHELL = "/bin/sh"
WAIT_AT_GATE = "read -r _ || exit 126"
"""What a command's shell does first, its standard input being the gate."""

_SCRIPT = """\
trap '' HUP INT QUIT TERM
read -r _
groups=
while read -r group; do [ "$group" = 0 ] || groups="$groups $group"; done < "/dev/fd/$1"
[ "$groups" = '' ] && exit
for group in $groups; do kill -TERM "-$group"; done
sleep 0.3
for group in $groups; do kill -KILL "-$group"; done
"""
_ROW = b"%10d\n"
_ROW_BYTES = 11
_PATIENCE_S = 5.0


class Reaper:
    """Keeps the groups of one process's commands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._entrance = -1
        self._table: IO[bytes] | None = None
        self._rows: dict[int, int] = {}
        self._free: list[int] = []

    def spawn(self, start: Callable[[int], subprocess.Popen[bytes]]) -> tuple[subprocess.Popen[bytes], ReaperGate]:
        """Start a command by a function that gives its shell the gate as its standard input; return both.

        The shell is being loaded meanwhile; what the command says begins when the gate is opened.
        """
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._begin()
        inside, outside = os.pipe()
        gate = ReaperGate(outside)
        try:
            process = start(inside)
        except BaseException:
            gate.close()
            raise
        finally:
            os.close(inside)
        self.begun(process.pid)
        return process, gate

    def begun(self, group: int) -> None:
        """Take a group into the table."""
        with self._lock:
            row = self._rows[group] = self._free.pop() if self._free else len(self._rows)
            self._put(row, group)

    def ended(self, group: int) -> None:
        """Let go of a group whose leader has ended and is not reaped yet."""
        with self._lock:
            row = self._rows.pop(group, None)
            if row is not None:
                self._free.append(row)
                self._put(row, 0)

    def leave(self) -> None:
        """End the reaper; groups that are left end with it."""
        with self._lock:
            self._close()
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_PATIENCE_S)
            self._process = None

    def forget(self) -> None:
        """Have no reaper and no groups: they are those of the process that this one was forked from."""
        self._close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        if self._table is not None:
            self._table.close()
        self.__init__()  # type: ignore[misc]  # with a new lock, too: a thread that is not here may hold the old one

    def _put(self, row: int, group: int) -> None:
        assert self._table is not None
        os.pwrite(self._table.fileno(), _ROW % group, row * _ROW_BYTES)

    def _close(self) -> None:
        if self._entrance >= 0:
            os.close(self._entrance)
        self._entrance = -1

    def _begin(self) -> None:
        """Start the process; the table has what runs already: another one may have been killed."""
        self._close()
        if self._table is None:
            self._table = unnamed_file()
        exit_, self._entrance = os.pipe()
        table = self._table.fileno()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a script of ours
                [SHELL, "-c", _SCRIPT, "holdfast-reaper", str(table)],  # the name is for people who list processes
                cwd="/",
                stdin=exit_,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(table,),
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(exit_)


class ReaperGate:
    """What holds a command's shell back until it is opened; closed unopened, the shell ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def open(self) -> None:
        """Let the command begin."""
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._descriptor, b"\n")
        self.close()

    def close(self) -> None:
        """Close it; once it is, nothing happens."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def unnamed_file() -> IO[bytes]:
    """Return a file without a name; in memory where that is possible."""
    maker = getattr(os, "memfd_create", None)
    return os.fdopen(maker("holdfast"), "w+b", buffering=0) if maker else tempfile.TemporaryFile(buffering=0)


reaper = Reaper()
atexit.register(reaper.leave)
os.register_at_fork(after_in_child=reaper.forget)
