"""Transcripts: an assistant's own record of a session, taken over line by line into a log of its run.

Where reading stopped is the last item of what was taken over, in the same commit, so that no line is lost or taken
twice, and it goes back with the run. A transcript that was cut or written again from the start is taken from its
beginning as a new generation.
"""

from __future__ import annotations

import json
import os
import stat as modes
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.journal.run_log import LogItems

MAX_BYTES = 64 * 1024 * 1024  # taken over by one event; the next one takes the rest
_TAIL = 256


class TranscriptMark(msgspec.Struct, frozen=True, tag="holdfast.mark"):
    """How far a transcript was read: the offset, a digest of the bytes before it, and how often it started over."""

    path: str = ""
    offset: int = 0
    tail: str = ""
    generation: int = 0
    lines: int = 0


def last_mark(log: LogItems) -> TranscriptMark:
    """Return how far the transcript in a log was read."""
    newest = next(reversed(log), None)
    return msgspec.convert(newest, TranscriptMark) if is_mark(newest) else TranscriptMark()


def is_mark(item: Any) -> bool:
    """Tell whether an item of a log is a mark, and no line of the transcript."""
    return isinstance(item, dict) and item.get("type") == "holdfast.mark"


def read_on(path: str, mark: TranscriptMark) -> tuple[list[Any], TranscriptMark]:
    """Return the lines that a transcript has since a mark, and the new mark; OSError if it cannot be read.

    A last line without its end is left for the next time: the assistant is still writing it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not modes.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path!r} is not a regular file")
        if mark.path != path or not _continues(file, mark):
            generation = mark.generation + 1 if mark.path == path else 0
            mark = TranscriptMark(path=path, generation=generation)
        file.seek(mark.offset)
        data = file.read(MAX_BYTES)
        end = data.rfind(b"\n") + 1
        if not end:
            return [], mark
        data, offset = data[:end], mark.offset + end
        file.seek(max(0, offset - _TAIL))
        tail = _digest(file.read(min(_TAIL, offset)))
    lines = list(_lines(data))
    made = TranscriptMark(
        path=path, offset=offset, tail=tail, generation=mark.generation, lines=mark.lines + len(lines)
    )
    return lines, made


def _continues(file: Any, mark: TranscriptMark) -> bool:
    """Tell whether a transcript still begins with what was read of it."""
    file.seek(max(0, mark.offset - _TAIL))
    before = file.read(min(_TAIL, mark.offset))
    return not mark.offset or _digest(before) == mark.tail


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _lines(data: bytes) -> Iterator[Any]:
    """Yield each line as its JSON value, or as text where it is none or one that cannot be stored."""
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        text = line.decode(errors="replace")
        try:
            value = json.loads(text, parse_constant=str, parse_int=_number)
        except (ValueError, RecursionError):
            value = text
        yield value if isinstance(value, dict) else text


def _number(digits: str) -> int | str:
    """Return an integer, as text where no store can hold it."""
    return int(digits) if len(digits) < 19 else digits  # noqa: PLR2004 - 64 bits
