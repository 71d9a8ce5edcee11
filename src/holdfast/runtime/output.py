"""What a command printed: its head and its tail, however much that was."""

from __future__ import annotations

import codecs
import re
from collections import deque
from typing import NamedTuple

LIMIT_BYTES = 1 << 20
_CONTINUES = 0b1000_0000  # the top bits of a byte in the middle of a UTF-8 character
_TOP_BITS = 0b1100_0000
_GAP = re.compile(rb"\n\[\.\.\. ([0-9]{1,3}(?:,[0-9]{3})*) bytes left out \.\.\.\]\n")


class KeptOutput:
    """Takes bytes without end and keeps the first and the last of them."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.total_bytes = 0
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total_bytes += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
            self._tail_bytes -= len(self._tail.popleft())

    def text(self, left_out_before: int = 0) -> str:
        """Return what is kept; bytes that are not UTF-8 are shown as escapes, and a gap says how long it is."""
        tail = b"".join(self._tail)
        cut = len(tail) - self._tail_limit
        left_out = self.total_bytes - len(self._head) - min(len(tail), self._tail_limit)
        if left_out <= 0:
            return (bytes(self._head) + tail).decode(errors="backslashreplace")
        head = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode(bytes(self._head))
        start = max(0, cut)
        while start < len(tail) and start < cut + 4 and tail[start] & _TOP_BITS == _CONTINUES:
            start += 1
        left_out += start - max(0, cut) + left_out_before
        return f"{head}\n[... {left_out:,} bytes left out ...]\n{tail[start:].decode(errors='backslashreplace')}"


def cut(text: str, limit_bytes: int) -> str:
    """Return a text whose middle is left out if it is too long; the gap counts what was left out before, too."""
    if len(text) * 4 <= limit_bytes:
        return text
    data = text.encode(errors="backslashreplace")
    kept = KeptOutput(limit_bytes)
    kept.add(data)
    middle = data[limit_bytes // 2 : len(data) - (limit_bytes - limit_bytes // 2)]
    before = sum(int(gap[1].replace(b",", b"")) - len(gap[0]) for gap in _GAP.finditer(middle))
    return kept.text(before)


class Gap(NamedTuple):
    """Where the middle of an output was left out, and how much that was."""

    start: int
    end: int
    size_bytes: int


def left_out_of(data: bytes) -> Gap | None:
    """Return the first gap that `cut` made in an output."""
    found = _GAP.search(data)
    return None if found is None else Gap(found.start(), found.end(), int(found[1].replace(b",", b"")))
