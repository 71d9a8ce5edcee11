"""Epoch memory: which keys this machine has seen in which place, so that older ones put back there are noticed.

Key slots of an earlier epoch, or those of another store of the same user, are valid in themselves. Only something that
is kept outside the store can tell: a file for each place, to which a line is added when a store is first opened there
and when a key was removed. The file only grows, so whatever was seen last counts, whichever process wrote it. Where
another was seen before, a line says what is about to be begun: a crash after that makes no stranger of one's own store.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

from holdfast.errors import DocumentInvalid
from holdfast.home import make_private
from holdfast.lazy import lazily

with lazily():  # a store without keys does without
    from holdfast.encode import documents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LARGEST = 1 << 20
_BEGUN = "begun"


class Seen(NamedTuple):
    """The data key of an epoch, as it was seen."""

    ring: str
    epoch: int
    fingerprint: str
    is_begun: bool = False
    """Whether it was only about to be written, by this machine: it, or what was seen before it, is in its place."""


class EpochMemory:
    """What this user's machine remembers of the keys of stores; where nothing can be written, nothing is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def remember(self, place: str, ring: bytes, fingerprints: Sequence[str]) -> None:
        """Keep the newest data key as seen in a place, durably."""
        new = Seen(ring.hex(), len(fingerprints) - 1, fingerprints[-1])
        if self.seen(place)[-1:] != [new]:
            self._add(place, new)

    def begin(self, place: str, ring: bytes, fingerprint: str) -> None:
        """Keep, durably, that a store is about to be begun with this data key where another was seen."""
        if self.seen(place):
            self._add(place, Seen(ring.hex(), 0, fingerprint, is_begun=True))

    def _add(self, place: str, new: Seen) -> None:
        epoch = _BEGUN if new.is_begun else new.epoch
        with suppress(OSError):
            make_private(self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.file(place), flags, 0o600)
            try:
                os.write(descriptor, f"{new.ring} {epoch} {new.fingerprint} {place!a}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def seen(self, place: str) -> list[Seen]:
        """Return what was seen in a place, oldest first; a line that a power cut tore is none."""
        try:
            text = documents.read_regular(self.file(place), limit=_LARGEST).decode(errors="replace")
        except (OSError, DocumentInvalid):
            return []
        parts = [line.split(" ", 3) for line in text.splitlines() if line.count(" ") > 2]  # noqa: PLR2004
        return [
            Seen(ring, 0 if epoch == _BEGUN else int(epoch), key, epoch == _BEGUN)
            for ring, epoch, key, _ in parts
            if epoch == _BEGUN or (epoch.isascii() and epoch.isdigit())
        ]

    def file(self, place: str) -> Path:
        """Return the file of a place."""
        return self._folder / blake3(place.encode(errors="surrogatepass")).hexdigest()[:32]


def different(seen: Sequence[Seen], ring: bytes, fingerprints: Sequence[str]) -> str | None:
    """Say how a ring with these data keys, oldest first, is not what was seen last in its place; None if it is."""
    last = next((number for number, one in reversed(list(enumerate(seen))) if not one.is_begun), None)
    if last is not None and ring.hex() not in {one.ring for one in seen[last:]}:
        return "it is another store than the one that this machine has seen here: somebody exchanged it"
    for one in seen:
        if one.ring == ring.hex() and one.fingerprint not in fingerprints[one.epoch : one.epoch + 1]:
            return (
                f"its keys are not those that this machine has seen here (of epoch {one.epoch}): somebody put an older "
                "version back, which a removed key may open. Restore the store from a newer copy"
            )
    return None
