"""A file's bytes on their way in: read through descriptors, never through a link, and never half old and half new."""

from __future__ import annotations

import os
import stat as modes
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.workspace import cut
from holdfast.workspace.descriptors import OPEN_FILE
from holdfast.workspace.sink import NONE, Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.encode.tree import Ref

KEY: Callable[[os.stat_result], tuple[int, ...]] = attrgetter(
    "st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode"
)
SMALL_BYTES = 1024 * 1024
_TRIES = 3
_NODE_REFS = 4096


def stamp(status: os.stat_result) -> int:
    """Return a file's change time and size as one number.

    The kernel moves the change time whenever bytes, times, mode or links of a file change, and nobody can set it; the
    names of a directory are guarded by the directory's own key.
    """
    return (status.st_size << 64) + status.st_ctime_ns


class NotCaptured(Exception):
    """A file that is left out, with the reason as its argument."""


def read_file(
    directory: int, name: bytes, sink: Sink, *, limit: int, known: frozenset[bytes] = NONE
) -> tuple[Ref | None, os.stat_result, tuple[bytes, ...]]:
    """Put a regular file's bytes and return its reference, its status, and the names of its pieces if it was cut.

    A file that changes while it is read is read again, a few times; then NotCaptured says so.
    """
    for _ in range(_TRIES):
        handle = os.open(name, OPEN_FILE, dir_fd=directory)
        try:
            before = os.fstat(handle)
            if not modes.S_ISREG(before.st_mode):
                raise NotCaptured("special file")
            if before.st_size > limit:
                raise NotCaptured(f"larger than {limit:,} bytes")
            ref, pieces, size = put_open(handle, before.st_size, sink, known)
            if size == before.st_size and KEY(os.fstat(handle)) == KEY(before):
                return ref, before, pieces
        finally:
            os.close(handle)
    raise NotCaptured("changed while it was read")


def put_open(
    handle: int, size: int, sink: Sink, known: frozenset[bytes] = NONE
) -> tuple[Ref | None, tuple[bytes, ...], int]:
    """Put what an open file holds from here on; return its reference, the names of its pieces, and how much it was."""
    if size <= SMALL_BYTES:
        data = os.read(handle, size + 1)
        if len(data) < size:
            data = _whole(handle, data, size)
        return (sink.leaf(data, known) if data and len(data) <= SMALL_BYTES else None), (), len(data)
    refs: list[Ref] = []
    buffer, total = b"", 0
    while total <= size:
        more = os.read(handle, cut.MAX_PIECE)
        total += len(more)
        buffer += more
        while buffer and (len(buffer) >= cut.MAX_PIECE or not more):
            end = cut.first_cut(buffer)
            refs.append(sink.leaf(buffer[:end], known))
            buffer = buffer[end:]
        if not more:
            break
    pieces = tuple(ref.id for ref in refs)
    while len(refs) > _NODE_REFS:
        refs = [sink.node(refs[start : start + _NODE_REFS], known) for start in range(0, len(refs), _NODE_REFS)]
    return (sink.node(refs, known) if refs else None), pieces, total


def _whole(handle: int, data: bytes, size: int) -> bytes:
    """Read on after a short read, up to one byte more than expected."""
    parts = [data]
    got = len(data)
    while got <= size:
        more = os.read(handle, size + 1 - got)
        if not more:
            break
        parts.append(more)
        got += len(more)
    return b"".join(parts)
