"""Shims: programs that may destroy work ask for a checkpoint before they run, where a command finds them on its PATH.

A shim is a script of a program's name in a folder that stands first on the PATH. It writes its arguments to a file and
its number to a pipe, waits for an answer, and becomes the real program. What is called by its full path, what a shell
does by itself (`>`) and what a program does without another one is not seen. A shim never stops anything: without an
answer to be had it becomes the real program at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from holdfast.hook.destructive import PROGRAMS, destructive

if TYPE_CHECKING:
    from collections.abc import Callable

_SCRIPT = """\
#!/bin/sh
if kill -0 {guard} 2>/dev/null && {mkfifo} -m 600 {folder}/reply.$$ 2>/dev/null; then
    printf '%s\\0' {name} "$@" > {folder}/asked.$$ && echo $$ > {folder}/requests && read -r answer < {folder}/reply.$$
fi
exec {real} "$@"
"""
_PATIENCE_S = 2.0  # between a shim's request and its reading the answer
_LOOK_EVERY_S = 0.005
_LAST = b"0"


class Shims:
    """The folder of shims, and the thread that answers them; `ask` is called with what is about to be destroyed."""

    def __init__(self, ask: Callable[[str], object]) -> None:
        self._ask = ask
        self._folder = Path()
        self._requests = -1
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        """The PATH on which shims are found first."""
        return f"{self._folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-guard-"))
        programs = self._folder / "bin"
        programs.mkdir()
        os.mkfifo(self._folder / "requests", 0o600)
        self._requests = os.open(self._folder / "requests", os.O_RDWR | os.O_CLOEXEC)
        mkfifo = shutil.which("mkfifo")
        for name in PROGRAMS if mkfifo else ():
            real = shutil.which(name)
            if real is not None:
                folder = shlex.quote(str(self._folder))
                text = _SCRIPT.format(
                    guard=os.getpid(), mkfifo=mkfifo, folder=folder, name=name, real=shlex.quote(real)
                )
                (programs / name).write_text(text)
                (programs / name).chmod(0o700)
        self._thread = threading.Thread(target=self._serve, name="holdfast-shims", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._requests, _LAST + b"\n")
        if self._thread is not None:
            self._thread.join()
        os.close(self._requests)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        pending = b""
        while True:
            pending += os.read(self._requests, 4096)
            *numbers, pending = pending.split(b"\n")
            for number in numbers:
                if number == _LAST:
                    return
                if number.isdigit():
                    self._answer(int(number))

    def _answer(self, number: int) -> None:
        """Take a checkpoint if a program may destroy something, then let it run, whatever came of that."""
        asked, reply = self._folder / f"asked.{number}", self._folder / f"reply.{number}"
        try:
            words = asked.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
            found = destructive(shlex.join(words))
            if found is not None:
                self._ask(found)
        except OSError:
            pass  # somebody else's number
        finally:
            end = time.monotonic() + _PATIENCE_S
            while time.monotonic() < end:
                try:
                    os.close(os.open(reply, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
                    break
                except OSError:  # it does not read yet, or was killed
                    time.sleep(_LOOK_EVERY_S)
            for file in (asked, reply):
                with suppress(OSError):
                    file.unlink()
