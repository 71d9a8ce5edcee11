"""Reading of sections for adapters: verified chunks are kept for a while, because checkpoints share most of theirs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from holdfast.encode.chunks import parse_node, verified
from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import ChunkCorrupt, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        for root in roots:
            if root.size > self._max_bytes:
                raise LimitExceeded(
                    "raise max_section_bytes to read it", "a section's bytes", root.size, self._max_bytes
                )
        parts: list[list[Entry]] = [[root] for root in roots]
        depth = 0
        while wanted := {part for row in parts for part in row if isinstance(part, Ref) and part.kind == NODE}:
            depth += 1
            if depth > _MAX_DEPTH:
                raise ChunkCorrupt(f"has more than {_MAX_DEPTH} levels below it", roots[0].id.hex())
            nodes = self._entries(list(wanted))
            parts = [_widened(row, nodes) for row in parts]
        leaves = self._bytes(list({part for row in parts for part in row if isinstance(part, Ref)}))
        return [b"".join([leaves[part.id] if isinstance(part, Ref) else part for part in row]) for row in parts]

    def _entries(self, refs: list[Ref]) -> dict[bytes, list[Entry]]:
        known = self._nodes
        found = {ref.id: known[ref.id] for ref in refs if ref.id in known}
        missing = [ref for ref in refs if ref.id not in found]
        for ref, data in zip(missing, self._reader.plain(missing), strict=True) if missing else ():
            found[ref.id] = parse_node(ref, data)
        with self._lock:
            if len(known) > 10_000:  # noqa: PLR2004 - of about 1 KB each
                known.clear()
            known.update(found)
        return found

    def _bytes(self, refs: list[Ref]) -> dict[bytes, bytes]:
        with self._lock:
            found = {ref.id: self._leaves[ref.id] for ref in refs if ref.id in self._leaves}
            for name in found:
                self._leaves.move_to_end(name)
        missing = [ref for ref in refs if ref.id not in found]
        stored = self._reader.stored([ref.id for ref in missing]) if missing else {}
        for ref in missing:
            data = verified(LEAF, ref.id, stored.get(ref.id))
            if len(data) != ref.size:
                raise ChunkCorrupt(f"holds {len(data):,} bytes, its node says {ref.size:,}", ref.id.hex())
            found[ref.id] = data
        with self._lock:
            for ref in missing:
                if ref.id not in self._leaves:
                    self._leaves[ref.id] = found[ref.id]
                    self._kept += ref.size
            while self._kept > _KEPT_BYTES:
                self._kept -= len(self._leaves.popitem(last=False)[1])
        return found


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
