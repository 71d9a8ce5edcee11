"""One small process beside this one that ends its commands should it die, by kill -9 too.

Each command tells it, before it does anything else, the process group that it leads. This process tells it that a
group has ended, before the group's number can be another's. All of this goes through one pipe. Once nobody holds its
other end any more, which is when this process is gone and each command that it had begun has told its group, the reaper
ends the groups that are left: it asks them, so that git takes its locks away, and kills them a moment later.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHELL = "/bin/sh"
TELL_GROUP = "echo $$ >&0"
"""What a command's shell does first, its standard input being the entrance."""

_SCRIPT = """\
trap '' HUP INT QUIT TERM
groups=' '
while read -r group; do
    case $group in
        -*) group=${group#-}
            case $groups in *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;; esac ;;
        *) groups="$groups$group " ;;
    esac
done
[ "$groups" = ' ' ] && exit
for group in $groups; do kill -TERM "-$group"; done
sleep 0.3
for group in $groups; do kill -KILL "-$group"; done
"""
_PATIENCE_S = 5.0


class Reaper:
    """Keeps the groups of one process's commands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._entrance = -1
        self._groups: set[int] = set()

    def spawn(self, start: Callable[[int], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a command by a function that gives it this descriptor as its standard input; return its process."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._begin()
            process = start(self._entrance)
            self._groups.add(process.pid)
            return process

    def ended(self, group: int) -> None:
        """Let go of a group whose leader has ended and is not reaped yet."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._groups.discard(group)
            if self._entrance >= 0:
                os.write(self._entrance, b"-%d\n" % group)

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
        self.__init__()  # type: ignore[misc]  # with a new lock, too: a thread that is not here may hold the old one

    def _close(self) -> None:
        if self._entrance >= 0:
            os.close(self._entrance)
        self._entrance = -1

    def _begin(self) -> None:
        """Start the process, and tell it of what runs already: another one may have been killed."""
        self._close()
        exit_, self._entrance = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a script of ours
                [SHELL, "-c", _SCRIPT, "holdfast-reaper"],  # the name is for people who list processes
                cwd="/",
                stdin=exit_,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(exit_)
        for group in self._groups:
            os.write(self._entrance, b"%d\n" % group)


reaper = Reaper()
atexit.register(reaper.leave)
os.register_at_fork(after_in_child=reaper.forget)
