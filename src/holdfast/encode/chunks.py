"""Chunks on their way to and from a store: named by their hash, verified at every read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.encode.compress import MAX_CHUNK_BYTES, Compressor, decompress
from holdfast.encode.tree import LEAF, NODE, Entry, Ref, chunk_id, decode_node, encode_node
from holdfast.errors import ChunkCorrupt, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_BATCH = 256  # chunks fetched at once: bounds memory beside the section itself
_MAX_PARTS = 1_000_000  # a hostile tree that names one node again and again stops here


class Chunk(NamedTuple):
    """A chunk as it is stored: `size` plain bytes, compressed with `codec` into `data`."""

    id: bytes
    codec: int
    size: int
    data: bytes


class ChunkWriter:
    """Collects the chunks of one commit, each once."""

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self.chunks: dict[bytes, Chunk] = {}

    def leaf(self, data: bytes) -> Ref:
        """Add plain bytes and return their reference."""
        return self._add(LEAF, data, len(data))

    def node(self, entries: Iterable[Entry]) -> Ref:
        """Add a node over these entries and return its reference."""
        data, size = encode_node(entries)
        return self._add(NODE, data, size)

    def _add(self, kind: int, data: bytes, size: int) -> Ref:
        if len(data) > MAX_CHUNK_BYTES:
            raise LimitExceeded("cut it smaller", "a chunk's bytes", len(data), MAX_CHUNK_BYTES)
        name = chunk_id(kind, data)
        if name not in self.chunks:
            codec, stored = self._compressor.compress(data)
            self.chunks[name] = Chunk(name, codec, len(data), stored)
        return Ref(kind, size, name)


class ChunkReader:
    """Reads trees back, checking every chunk's bytes against its name."""

    def __init__(self, fetch: Callable[[Sequence[bytes]], Mapping[bytes, Chunk]]) -> None:
        self._fetch = fetch

    def leaf(self, ref: Ref) -> bytes:
        """Return the verified bytes of one leaf."""
        return self.plain([ref])[0]

    def nodes(self, refs: Sequence[Ref]) -> list[list[Entry]]:
        """Return the verified entries of these nodes, in order."""
        return [parse_node(ref, data) for ref, data in zip(refs, self.plain(refs), strict=True)]

    def node(self, ref: Ref) -> list[Entry]:
        """Return the verified entries of one node."""
        return self.nodes([ref])[0]

    def plain(self, refs: Sequence[Ref]) -> list[bytes]:
        """Return the verified plain bytes of these chunks, in order."""
        stored = self._fetch([ref.id for ref in refs])
        return [verified(ref.kind, ref.id, stored.get(ref.id)) for ref in refs]

    def read(self, root: Ref, *, limit: int) -> bytes:
        """Return all content below a reference, in order; refuses more than `limit` bytes before allocating them."""
        if root.size > limit:
            raise LimitExceeded("raise max_section_bytes to read it", "a section's bytes", root.size, limit)
        parts = self._expand(root)
        refs = [part for part in parts if isinstance(part, Ref)]
        leaves: dict[bytes, bytes] = {}
        for start in range(0, len(refs), _BATCH):
            batch = refs[start : start + _BATCH]
            for ref, data in zip(batch, self.plain(batch), strict=True):
                if len(data) != ref.size:
                    raise ChunkCorrupt(f"holds {len(data):,} bytes, its node says {ref.size:,}", ref.id.hex())
                leaves[ref.id] = data
        return b"".join([leaves[part.id] if isinstance(part, Ref) else part for part in parts])

    def _expand(self, root: Ref) -> list[Entry]:
        """Replace nodes by their entries, level by level, until only literals and leaves are left."""
        parts: list[Entry] = [root]
        while any(isinstance(part, Ref) and part.kind == NODE for part in parts):
            nodes = list(dict.fromkeys(part for part in parts if isinstance(part, Ref) and part.kind == NODE))
            entries = dict(zip(nodes, self.nodes(nodes), strict=True))
            wider: list[Entry] = []
            for part in parts:
                below = entries[part] if isinstance(part, Ref) and part.kind == NODE else (part,)
                if len(wider) + len(below) > _MAX_PARTS:
                    raise ChunkCorrupt(f"has more than {_MAX_PARTS:,} parts below it", root.id.hex())
                wider.extend(below)
            parts = wider
        return parts


def verified(kind: int, name: bytes, chunk: Chunk | None) -> bytes:
    """Return a stored chunk's plain bytes; ChunkCorrupt unless they have this name."""
    if chunk is None:
        raise ChunkCorrupt("is missing", name.hex())
    try:
        plain = decompress(chunk.codec, chunk.data, chunk.size)
    except ValueError as error:
        raise ChunkCorrupt(str(error), name.hex()) from error
    if chunk_id(kind, plain) != name:
        raise ChunkCorrupt("does not match its hash", name.hex())
    return plain


def parse_node(ref: Ref, data: bytes) -> list[Entry]:
    """Return a node's entries; their sizes must add up to what the reference says."""
    try:
        entries = decode_node(data)
    except ValueError as error:
        raise ChunkCorrupt(str(error), ref.id.hex()) from error
    sizes = [entry.size if isinstance(entry, Ref) else len(entry) for entry in entries]
    if sum(sizes) != ref.size or 0 in sizes:
        raise ChunkCorrupt("does not have the size that its reference states", ref.id.hex())
    return entries
