"""Epoch memory: which keys this machine has seen in which place, so that older ones put back there are noticed.

Key slots of an earlier epoch, or those of another store of the same user, are valid in themselves. Only something that
is kept outside the store can tell: a file for each place, to which a line is added when a store is first opened there
and when a key was removed. The file only grows, so whatever was seen last counts, whichever process wrote it. A store
that lost its keys, or is gone, is not begun again in its place before its user lets the machine forget it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

from holdfast.errors import DocumentInvalid, StoreCorrupt
from holdfast.home import make_private
from holdfast.lazy import lazily

with lazily():  # a store without keys does without
    from holdfast.encode import documents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.store.medium import Medium

_LARGEST = 1 << 20


class Seen(NamedTuple):
    """The data key of an epoch, as it was seen."""

    ring: str
    epoch: int
    fingerprint: str


class EpochMemory:
    """What this user's machine remembers of the keys of stores; where nothing can be written, nothing is."""

    def __init__(self, folder: Path, *, adds_places: bool = True) -> None:
        self._folder = folder
        self._adds_places = adds_places

    @classmethod
    def of_user(cls, config: Path | None) -> EpochMemory | None:
        """Return the memory in the folder of this user's own settings; None for a user without one."""
        return None if config is None else cls(config / "stores")

    def of_known_places(self) -> EpochMemory:
        """Return the same memory for a store that is only copied to, such as a bundle: no place is added to it."""
        return EpochMemory(self._folder, adds_places=False)

    def remember(self, place: str, ring: bytes, fingerprints: Sequence[str]) -> None:
        """Keep the newest data key as seen in a place, durably."""
        new = Seen(ring.hex(), len(fingerprints) - 1, fingerprints[-1])
        seen = self.seen(place)
        if seen[-1:] != [new] and (seen or self._adds_places):
            self._add(place, new)

    def forget(self, place: str) -> bool:
        """Forget what was seen in a place, so that another store may be begun there; tell whether there was anything.

        OSError if it cannot be forgotten.
        """
        try:
            self.file(place).unlink()
        except FileNotFoundError:
            return False
        return True

    def _add(self, place: str, new: Seen) -> None:
        with suppress(OSError):
            make_private(self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.file(place), flags, 0o600)
            try:
                os.write(descriptor, f"{new.ring} {new.epoch} {new.fingerprint} {place!a}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def seen(self, place: str) -> list[Seen]:
        """Return what was seen in a place, oldest first; a line that a power cut tore is none."""
        if not os.path.lexists(self.file(place)):  # most stores have no key, and need no reader of documents
            return []
        try:
            text = documents.read_regular(self.file(place), limit=_LARGEST).decode(errors="replace")
        except (OSError, DocumentInvalid):
            return []
        parts = [line.split(" ", 3) for line in text.splitlines() if line.count(" ") > 2]  # noqa: PLR2004
        return [Seen(ring, int(epoch), key) for ring, epoch, key, _ in parts if epoch.isascii() and epoch.isdigit()]

    def file(self, place: str) -> Path:
        """Return the file of a place."""
        return self._folder / blake3(place.encode(errors="surrogatepass")).hexdigest()[:32]


def lost_keys(memory: EpochMemory | None, medium: Medium, *, is_empty: bool) -> StoreCorrupt | None:
    """Return the refusal of a store without keys where this machine has seen one with keys; None if it has not.

    Whoever deletes the key slots, or the whole store, would otherwise have the next states written without a key, or
    have a history forgotten without a word.
    """
    if memory is None or not medium.traits.durable or not memory.seen(medium.url):
        return None
    found = "it is empty" if is_empty else "its key slots are gone, so what it holds is not vouched for"
    return StoreCorrupt(
        f"{found}, and this machine has seen it with a key: somebody deleted them. Restore the store from a copy; if "
        f"you deleted it yourself and want a new one here, say so with `holdfast store key forget` (or delete "
        f"{memory.file(medium.url)})",
        medium.url,
    )


def different(seen: Sequence[Seen], ring: bytes, fingerprints: Sequence[str]) -> str | None:
    """Say how a ring with these data keys, oldest first, is not what was seen last in its place; None if it is."""
    if seen and seen[-1].ring != ring.hex():
        return "it is another store than the one that this machine has seen here: somebody exchanged it"
    for one in seen:
        if one.ring == ring.hex() and one.fingerprint not in fingerprints[one.epoch : one.epoch + 1]:
            return (
                f"its keys are not those that this machine has seen here (of epoch {one.epoch}): somebody put an older "
                "version back, which a removed key may open. Restore the store from a newer copy"
            )
    return None
