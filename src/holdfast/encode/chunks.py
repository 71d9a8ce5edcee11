"""Chunks on their way to and from a store: named by their hash, verified at every read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.encode.compress import MAX_CHUNK_BYTES, Codec, Compressor, decompress
from holdfast.encode.tree import (
    LEAF,
    NODE,
    Base,
    Entry,
    Part,
    Ref,
    apply_patch,
    chunk_id,
    content_size,
    decode_node,
    encode_node,
)
from holdfast.errors import ChunkCorrupt, LimitExceeded, StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_BATCH = 256  # chunks fetched at once: bounds memory beside the section itself
_MAX_PARTS = 1_000_000  # a hostile tree that names one node again and again stops here
_MAX_DEPTH = 100  # a node of ours has at least two entries, so 20 levels hold all parts that are allowed


class Chunk(NamedTuple):
    """A chunk as it is stored: `size` plain bytes, compressed with `codec` into `data`."""

    id: bytes
    codec: int
    size: int
    data: bytes


class ChunkContent(NamedTuple):
    """What stands below a reference, and how many stored bytes it came from."""

    data: bytes
    stored_bytes: int


class ChunkSink(Protocol):
    """What takes the chunks of one commit."""

    def leaf(self, data: bytes) -> Ref:
        """Add plain bytes and return their reference."""

    def node(self, entries: Iterable[Part]) -> Ref:
        """Add a node of these parts and return its reference."""

    def forget(self, ref: Ref) -> None:
        """Leave a chunk out again, because the store has it."""


class ChunkWriter:
    """Collects the chunks of one commit, each once."""

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self.chunks: dict[bytes, Chunk] = {}

    def leaf(self, data: bytes) -> Ref:
        """Add plain bytes and return their reference."""
        return self._add(LEAF, data, len(data))

    def node(self, entries: Iterable[Part]) -> Ref:
        """Add a node of these parts and return its reference."""
        parts = list(entries)
        data, size = encode_node(parts)
        # A node is mostly hashes, which do not shrink, unless it holds the small items of a list itself.
        is_text = 4 * sum(len(part) for part in parts if isinstance(part, bytes)) > 3 * len(data)
        return self._add(NODE, data, size, is_text=is_text)

    def forget(self, ref: Ref) -> None:
        """Leave a chunk out again, because the store has it."""
        self.chunks.pop(ref.id, None)

    def finish(self) -> None:
        """Be done: chunks are compressed as they come."""

    def close(self) -> None:
        """Let go of nothing."""

    @property
    def stored_bytes(self) -> int:
        """The compressed size of all chunks."""
        return sum(len(chunk.data) for chunk in self.chunks.values())

    def _add(self, kind: int, data: bytes, size: int, *, is_text: bool = True) -> Ref:
        if len(data) > MAX_CHUNK_BYTES:
            raise LimitExceeded("cut it smaller", "a chunk's bytes", len(data), MAX_CHUNK_BYTES)
        name = chunk_id(kind, data)
        if name not in self.chunks:
            codec, stored = self._compressor.compress(data) if is_text else (Codec.NONE, data)
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
        """Return the verified entries of these nodes, in order, patches applied."""
        nodes = self.stored_nodes(refs)
        bases = list({parts[0].id: parts[0] for parts in nodes if parts and isinstance(parts[0], Base)}.values())
        if not bases:
            return nodes  # type: ignore[return-value]  # only a patch has other parts than entries
        known = {base.id: parts for base, parts in zip(bases, self.stored_nodes(bases), strict=True)}
        return [_entries(ref, parts, known) for ref, parts in zip(refs, nodes, strict=True)]

    def stored_nodes(self, refs: Sequence[Ref]) -> list[list[Part]]:
        """Return the verified parts of these nodes as they are stored, in order: a patch names its base."""
        return [parse_node(ref, data) for ref, data in zip(refs, self.plain(refs), strict=True)] if refs else []

    def node(self, ref: Ref) -> list[Entry]:
        """Return the verified entries of one node."""
        return self.nodes([ref])[0]

    def plain(self, refs: Sequence[Ref]) -> list[bytes]:
        """Return the verified plain bytes of these chunks, in order."""
        stored = self.stored([ref.id for ref in refs])
        return [verified(ref.kind, ref.id, stored.get(ref.id)) for ref in refs]

    def read(self, root: Ref, *, limit: int) -> bytes:
        """Return all content below a reference, in order; refuses more than `limit` bytes before allocating them."""
        return self.load(root, limit=limit).data

    def load(self, root: Ref, *, limit: int) -> ChunkContent:
        """Return all content below a reference, and how many stored bytes it came from."""
        if root.size > limit:
            raise LimitExceeded("raise max_section_mb to read it", "a section's bytes", root.size, limit)
        parts = self._expand(root)
        refs = [part for part in parts if isinstance(part, Ref)]
        leaves: dict[bytes, bytes] = {}
        stored_bytes = 0
        for start in range(0, len(refs), _BATCH):
            batch = refs[start : start + _BATCH]
            stored = self.stored([ref.id for ref in batch])
            stored_bytes += sum(len(chunk.data) for chunk in stored.values())
            for ref in batch:
                data = leaves[ref.id] = verified(LEAF, ref.id, stored.get(ref.id))
                if len(data) != ref.size:
                    raise ChunkCorrupt(f"holds {len(data):,} bytes, its node says {ref.size:,}", ref.id.hex())
        return ChunkContent(
            b"".join([leaves[part.id] if isinstance(part, Ref) else part for part in parts]), stored_bytes
        )

    def stored(self, names: Sequence[bytes]) -> Mapping[bytes, Chunk]:
        """Return chunks as they are stored, for `verified`; where the store itself is damaged, find the one it is."""
        try:
            return self._fetch(names)
        except StoreCorrupt:
            for name in names:
                try:
                    self._fetch([name])
                except StoreCorrupt as error:
                    raise ChunkCorrupt(f"cannot be read ({error.detail})", name.hex()) from error
            raise

    def _expand(self, root: Ref) -> list[Entry]:
        """Replace nodes by their entries, level by level, until only literals and leaves are left."""
        parts: list[Entry] = [root]
        depth = 0
        while any(isinstance(part, Ref) and part.kind == NODE for part in parts):
            depth += 1
            if depth > _MAX_DEPTH:
                raise ChunkCorrupt(f"has more than {_MAX_DEPTH} levels below it", root.id.hex())
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


def verified(kind: int, name: bytes, chunk: Chunk | None, plain: bytes | None = None) -> bytes:
    """Return a stored chunk's plain bytes, unpacked here unless they are given; ChunkCorrupt if they lack this name."""
    if chunk is None:
        raise ChunkCorrupt("is missing", name.hex())
    try:
        if plain is None:
            plain = decompress(chunk.codec, chunk.data, chunk.size)
    except ValueError as error:
        raise ChunkCorrupt(str(error), name.hex()) from error
    if chunk_id(kind, plain) != name:
        raise ChunkCorrupt("does not match its hash", name.hex())
    return plain


def parse_node(ref: Ref, data: bytes) -> list[Part]:
    """Return a node's parts; their sizes must add up to what the reference says."""
    try:
        parts = decode_node(data)
    except ValueError as error:
        raise ChunkCorrupt(str(error), ref.id.hex()) from error
    content = parts[1:] if parts and isinstance(parts[0], Base) else parts
    sizes = [content_size(part) for part in content]
    if sum(sizes) != ref.size or 0 in sizes:
        raise ChunkCorrupt("does not have the size that its reference states", ref.id.hex())
    return parts


def _entries(ref: Ref, parts: list[Part], known: Mapping[bytes, Sequence[Part]]) -> list[Entry]:
    if not parts or not isinstance(parts[0], Base):
        return parts  # type: ignore[return-value]  # only a patch has other parts than entries
    try:
        return apply_patch(parts, known[parts[0].id])
    except ValueError as error:
        raise ChunkCorrupt(str(error), ref.id.hex()) from error
