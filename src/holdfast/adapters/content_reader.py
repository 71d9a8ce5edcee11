"""Reading of sections for adapters: verified chunks are kept for a while, because checkpoints share most of theirs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from holdfast.encode.chunks import verified
from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import ChunkCorrupt, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.tree import Entry

_KEPT_BYTES = 32 * 1024 * 1024
_MAX_DEPTH = 100
_MAX_PARTS = 1_000_000


class ContentReader:
    """Reads what stands below several roots at once, level by level, each chunk verified once."""

    def __init__(self, reader: ChunkReader, *, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._leaves: OrderedDict[bytes, bytes] = OrderedDict()
        self._nodes: dict[bytes, list[Entry]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def read(self, roots: Sequence[Ref]) -> list[bytes]:
        """Return the bytes below each root, in order."""
        parts = self.parts(roots)
        leaves = self.leaves(part for row in parts for part in row if isinstance(part, Ref))
        return [joined(row, leaves) for row in parts]

    def parts(self, roots: Sequence[Ref]) -> list[list[Entry]]:
        """Return what stands below each root, in order: its leaves, and what its nodes hold themselves."""
        for root in roots:
            if root.size > self._max_bytes:
                raise LimitExceeded("raise max_section_mb to read it", "a section's bytes", root.size, self._max_bytes)
        parts: list[list[Entry]] = [[root] for root in roots]
        depth = 0
        while wanted := {part for row in parts for part in row if isinstance(part, Ref) and part.kind == NODE}:
            depth += 1
            if depth > _MAX_DEPTH:
                raise ChunkCorrupt(f"has more than {_MAX_DEPTH} levels below it", roots[0].id.hex())
            nodes = self._entries(list(wanted))
            parts = [_widened(row, nodes) for row in parts]
        return parts

    def _entries(self, refs: list[Ref]) -> dict[bytes, list[Entry]]:
        known = self._nodes
        found = {ref.id: known[ref.id] for ref in refs if ref.id in known}
        missing = [ref for ref in refs if ref.id not in found]
        for ref, entries in zip(missing, self._reader.nodes(missing), strict=True):
            found[ref.id] = entries
        with self._lock:
            if len(known) > 10_000:  # noqa: PLR2004 - of about 1 KB each
                known.clear()
            known.update(found)
        return found

    def leaves(self, refs: Iterable[Ref]) -> dict[bytes, bytes]:
        """Return the bytes of leaves by their id; they are kept for a while."""
        wanted = set(refs)
        with self._lock:
            found = {ref.id: self._leaves[ref.id] for ref in wanted if ref.id in self._leaves}
            for name in found:
                self._leaves.move_to_end(name)
        for ref, data in self.each([ref for ref in wanted if ref.id not in found]):
            found[ref.id] = data
            self.keep(ref, data)
        return found

    def each(self, refs: Sequence[Ref]) -> Iterator[tuple[Ref, bytes]]:
        """Yield leaves with their bytes, fetched together and unpacked one by one; none is kept."""
        stored = self._reader.stored([ref.id for ref in refs]) if refs else {}
        for ref in refs:
            data = verified(LEAF, ref.id, stored.get(ref.id))
            if len(data) != ref.size:
                raise ChunkCorrupt(f"holds {len(data):,} bytes, its node says {ref.size:,}", ref.id.hex())
            yield ref, data

    def keep(self, ref: Ref, data: bytes) -> None:
        """Keep the bytes of a leaf for a while."""
        with self._lock:
            if ref.id not in self._leaves:
                self._leaves[ref.id] = data
                self._kept += ref.size
            while self._kept > _KEPT_BYTES:
                self._kept -= len(self._leaves.popitem(last=False)[1])


def joined(parts: Sequence[Entry], leaves: dict[bytes, bytes]) -> bytes:
    """Return the bytes of parts, one after the other."""
    return b"".join([leaves[part.id] if isinstance(part, Ref) else part for part in parts])


def _widened(row: list[Entry], nodes: dict[bytes, list[Entry]]) -> list[Entry]:
    """Return a row of entries with its nodes replaced by what they list."""
    wider: list[Entry] = []
    for part in row:
        if isinstance(part, Ref) and part.kind == NODE:
            wider += nodes[part.id]
        else:
            wider.append(part)
    if len(wider) > _MAX_PARTS:
        raise ChunkCorrupt(f"has more than {_MAX_PARTS:,} parts below it", "a section")
    return wider
