"""Cuts large files where their content says so, so that an edit changes the pieces around it and no others.

A candidate is a byte that ends lines or records (found by memchr); it is a cut if a checksum of the bytes before it
says so. That costs a few hundred checksums for each piece: far less than a rolling hash in Python, and no dependency.
"""

from __future__ import annotations

import zlib

MIN_PIECE = 128 * 1024
MAX_PIECE = 1024 * 1024
_ANCHORS = (b"\n", b"\0", b" ", b",")
_WINDOW = 32
_MASK = 511
_TRIES = 4096


def first_cut(data: bytes) -> int:
    """Return the length of the first piece of `data`, which is all of it when it holds less than a largest piece."""
    end = min(len(data), MAX_PIECE)
    if end <= MIN_PIECE:
        return end
    for anchor in _ANCHORS:
        position = MIN_PIECE
        for _ in range(_TRIES):
            position = data.find(anchor, position, end) + 1
            if not position:
                break
            if zlib.crc32(data[position - _WINDOW : position]) & _MASK == 0:
                return position
    return end
