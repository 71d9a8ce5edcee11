"""Heads: a file beside a store that witnesses how far each line had come, so that a lost tail is missed.

A log that is cut or damaged ends earlier, and looks sound. Each commit therefore writes the line's newest numbers here
once it is durable, without a sync: what is read here may lag behind the store, after a power cut or where writers race,
but never leads it. If it does, the store has lost what it acknowledged.

Beside its lines a run has two entries more: how far its inbox had come, and the last mark of a checkpoint (pin, label,
status) with how often that one was marked. So a message or a pin that is the last thing in a lost log is missed, too.

The file is a table of 1,024 sectors; a line has its place by the digest of its name. Of two lines with one place the
last one that moved is witnessed: whatever a log loses, it loses the newest, so the loss is noticed all the same.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

from holdfast.errors import StoreFull, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

SLOTS = 1024
SLOT_BYTES = 512  # a sector, which a power cut does not tear
_CHECK_BYTES = 16
_NAME_BYTES = SLOT_BYTES - _CHECK_BYTES - 16
_FREE = bytes(SLOT_BYTES)
_PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a repository may ship a link or a pipe of this name


ENTRIES = "\1inbox"
"""In the place of a line: the inbox of a run, `number` is that of its last entry."""
MARKS = "\1marks "
"""Before the name of a line: its checkpoint `seq` was the last one marked, for the `number`th time."""


class Head(NamedTuple):
    """How far a line had come: its last journal number and the number of its last checkpoint."""

    run: str
    line: str
    number: int
    seq: int


class Heads:
    """The witness file of one store; what cannot be written to it is left out, since the commit stands already."""

    def __init__(self, path: Path, *, is_written: bool) -> None:
        self.path = path
        self._is_written = is_written
        self._descriptor: int | None = None
        self._places: dict[tuple[str, str], tuple[int, bytes]] = {}

    def advance(self, head: Head) -> None:
        """Witness a commit that is durable."""
        place, name = self._place(head.run, head.line)
        if not self._is_written or len(name) > _NAME_BYTES:
            return
        descriptor = self._open(os.O_CREAT)
        if descriptor is not None:
            with suppress(OSError):
                os.pwrite(descriptor, _packed(head.number, head.seq, name), place)

    def of(self, run: str, line: str) -> Head | None:
        """Return how far a line had come, None if nothing is known of it."""
        descriptor = self._open()
        if descriptor is None:
            return None
        place, _ = self._place(run, line)
        try:
            found = _unpacked(os.pread(descriptor, SLOT_BYTES, place))
        except OSError:
            return None
        return found if found is not None and (found.run, found.line) == (run, line) else None

    def all(self) -> tuple[list[Head], int]:
        """Return everything that is witnessed, and how many entries are damaged."""
        heads, damaged = [], 0
        for _, found in self._entries():
            if found is None:
                damaged += 1
            else:
                heads.append(found)
        return heads, damaged

    def clear(self, run: str, *, is_durable: bool = True) -> None:
        """Forget a run, durably before it is deleted or known to be shorter: StoreError if that fails."""
        places = [place for place, found in self._entries() if found is None or found.run == run]
        descriptor = self._open() if places else None
        if descriptor is None:
            return
        try:
            for place in places:
                os.pwrite(descriptor, _FREE, place)
            if is_durable:
                os.fsync(descriptor)
        except OSError as error:
            if is_durable:
                kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
                raise kind(str(self.path), f"the disk refused ({error.strerror}); nothing was changed") from error

    def recreate(self) -> None:
        """Write the file again, which was deleted while it was open, from what is still open here."""
        before, self._descriptor = self._descriptor, None
        if before is None:
            return
        with suppress(OSError):
            data = os.pread(before, SLOTS * SLOT_BYTES, 0)
            descriptor = self._open(os.O_CREAT) if self._is_written else None
            if descriptor is not None:
                os.pwrite(descriptor, data, 0)
        os.close(before)

    def close(self) -> None:
        """Let the file go."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _entries(self) -> list[tuple[int, Head | None]]:
        """Return the place and content of every entry; None is damage."""
        descriptor = self._open()
        try:
            data = b"" if descriptor is None else os.pread(descriptor, SLOTS * SLOT_BYTES, 0)
        except OSError:
            data = b""
        found = []
        for place in range(0, len(data), SLOT_BYTES):
            slot = data[place : place + SLOT_BYTES]
            if slot.strip(b"\0"):
                found.append((place, _unpacked(slot)))
        return found

    def _open(self, create: int = 0) -> int | None:
        """Return a descriptor of the file, None if it is not there or cannot be opened."""
        if self._descriptor is None:
            with suppress(OSError):
                try:
                    descriptor = os.open(self.path, create | os.O_RDWR | _PLAIN, 0o600)
                except PermissionError:
                    descriptor = os.open(self.path, os.O_RDONLY | _PLAIN)
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.close(descriptor)
                    return None
                if create:
                    os.fchmod(descriptor, 0o600)  # whatever the umask
                self._descriptor = descriptor
        return self._descriptor

    def _place(self, run: str, line: str) -> tuple[int, bytes]:
        known = self._places.get((run, line))
        if known is None:
            name = f"{run}\0{line}".encode(errors="surrogatepass")
            known = int.from_bytes(blake3(name).digest(4), "big") % SLOTS * SLOT_BYTES, name
            self._places[run, line] = known
        return known


def _packed(number: int, seq: int, name: bytes) -> bytes:
    body = number.to_bytes(8, "big") + seq.to_bytes(8, "big") + name.ljust(_NAME_BYTES, b"\0")
    return blake3(body).digest(_CHECK_BYTES) + body


def _unpacked(slot: bytes) -> Head | None:
    """Return what a slot holds; None if it is damaged or holds nothing."""
    check, body = slot[:_CHECK_BYTES], slot[_CHECK_BYTES:]
    if len(slot) != SLOT_BYTES or blake3(body).digest(_CHECK_BYTES) != check:
        return None
    run, _, line = body[16:].rstrip(b"\0").decode(errors="replace").partition("\0")
    return Head(run, line, int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big"))
