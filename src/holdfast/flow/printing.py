"""What Python functions of a flow print: told apart by the task that prints it, although several run at once.

`redirected` is for a program whose standard output is its own, such as `holdfast run`. A library leaves both streams
alone: without it only `call.print` is heard.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TextIO

from holdfast.runtime.output import KeptOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Stream = Literal["stdout", "stderr"]

_printing: ContextVar[Printed | None] = ContextVar("holdfast_printing", default=None)
_under_way: list[Printed] = []  # for threads that a function starts: they do not know whose they are


class Printed:
    """Takes what one function prints: hands it on line by line, and keeps it."""

    def __init__(self, tell: Callable[[Stream, str], None], keep_bytes: int) -> None:
        self._tell = tell
        self._kept = KeptOutput(keep_bytes)
        self._open: dict[Stream, str] = {"stdout": "", "stderr": ""}
        self._lock = threading.Lock()

    def write(self, stream: Stream, text: str) -> None:
        """Take a piece of text; whole lines are handed on."""
        with self._lock:
            if stream == "stdout":
                self._kept.add(text.encode(errors="backslashreplace"))
            lines, newline, rest = (self._open[stream] + text).rpartition("\n")
            self._open[stream] = rest
        if newline:
            self._tell(stream, lines + newline)

    def close(self) -> str:
        """Hand on what has no end of line yet, and return what is kept of standard output."""
        for stream, text in self._open.items():
            if text:
                self._tell(stream, text)
        self._open = dict.fromkeys(self._open, "")
        return self._kept.text()


@contextlib.contextmanager
def printing(printed: Printed) -> Iterator[None]:
    """Let what is printed in this context go to a task, where streams are redirected."""
    token = _printing.set(printed)
    _under_way.append(printed)
    try:
        yield
    finally:
        _under_way.remove(printed)
        _printing.reset(token)


@contextlib.contextmanager
def redirected() -> Iterator[None]:
    """Let all that Python code prints go to the task that prints it, to standard error if it is of none."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Redirected("stdout", before[1]), _Redirected("stderr", before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Redirected(io.TextIOBase):
    """A standard stream that asks for each text whose it is."""

    def __init__(self, stream: Stream, otherwise: TextIO) -> None:
        self._stream = stream
        self._otherwise = otherwise
        self.buffer: Any = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Text is handed on as text, so any character goes."""
        return "utf-8"

    def writable(self) -> bool:
        """Tell that it takes text."""
        return True

    def write(self, text: str) -> int:
        """Hand a text on to the task that prints it."""
        printed = _printing.get() or (_under_way[0] if len(_under_way) == 1 else None)
        if printed is not None:
            printed.write(self._stream, text)
        else:
            self._otherwise.write(text)
        return len(text)


class _Bytes(io.RawIOBase):
    def __init__(self, text: _Redirected) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode(errors="backslashreplace"))
        return len(data)
