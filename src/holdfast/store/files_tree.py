"""A section's tree of chunks as its whole content and an outline of where it is cut; and the chunks from both again.

An outline is text: `128` is a leaf of so many bytes, `l5` a literal, `( … )` a node. One leaf alone needs none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.encode.chunks import Chunk, ChunkReader
from holdfast.encode.tree import LEAF, NODE, Ref, encode_node, leaf_id, node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.encode.tree import Entry

_TOKEN = re.compile(r"\(|\)|l?\d+")
_MAX_DEPTH = 64


def flatten(
    root: Ref, fetch: Callable[[Sequence[bytes]], Mapping[bytes, Chunk]], *, limit: int
) -> tuple[bytes, str, set[bytes]]:
    """Return the content below a root, its outline and the chunks it is made of; ChunkCorrupt or LimitExceeded."""
    known: dict[bytes, Chunk] = {}

    def fetch_once(ids: Sequence[bytes]) -> Mapping[bytes, Chunk]:
        known.update(fetch([name for name in ids if name not in known]))
        return {name: known[name] for name in ids if name in known}

    reader = ChunkReader(fetch_once)
    content = reader.read(root, limit=limit)
    seen: set[bytes] = set()
    return content, _outline(root, reader, seen, 0), seen


def _outline(ref: Ref, reader: ChunkReader, seen: set[bytes], depth: int) -> str:
    seen.add(ref.id)
    if ref.kind == LEAF:
        return str(ref.size)
    if depth > _MAX_DEPTH:
        raise ValueError("a tree deeper than any that is written")
    entries = reader.node(ref)
    return " ".join(["(", *(_outline_entry(entry, reader, seen, depth) for entry in entries), ")"])


def _outline_entry(entry: Entry, reader: ChunkReader, seen: set[bytes], depth: int) -> str:
    return _outline(entry, reader, seen, depth + 1) if isinstance(entry, Ref) else f"l{len(entry)}"


def cut(content: bytes, outline: str) -> dict[bytes, Chunk]:
    """Return the chunks of a content cut along its outline, by name; ValueError if the outline is none."""
    tokens = iter(_TOKEN.findall(outline))
    chunks: dict[bytes, Chunk] = {}
    ref, end = _Cutter(content, tokens, chunks).cut(next(tokens, ""), 0, 0)
    if not isinstance(ref, Ref) or end != len(content) or next(tokens, None) is not None:
        raise ValueError("its outline does not fit its content")
    return chunks


class _Cutter:
    """Cuts one content while it reads the outline from left to right."""

    def __init__(self, content: bytes, tokens: Iterator[str], chunks: dict[bytes, Chunk]) -> None:
        self._content = content
        self._tokens = tokens
        self._chunks = chunks

    def cut(self, sign: str, at: int, depth: int) -> tuple[Entry, int]:
        """Return what one sign of the outline stands for, and where its content ends."""
        if sign == "(":
            return self._node(at, depth)
        if not sign.lstrip("l").isdecimal():
            raise ValueError("its outline is broken")
        size = int(sign.lstrip("l"))
        data = self._content[at : at + size]
        if sign.startswith("l"):
            return data, at + size
        return Ref(LEAF, size, self._add(leaf_id(data), data)), at + size

    def _node(self, at: int, depth: int) -> tuple[Entry, int]:
        if depth > _MAX_DEPTH:
            raise ValueError("its outline is nested too deep")
        entries: list[Entry] = []
        for inner in self._tokens:
            if inner == ")":
                data, size = encode_node(entries)
                return Ref(NODE, size, self._add(node_id(data), data)), at
            entry, at = self.cut(inner, at, depth + 1)
            entries.append(entry)
        raise ValueError("its outline is cut off")

    def _add(self, name: bytes, data: bytes) -> bytes:
        self._chunks[name] = Chunk(name, 0, len(data), data)
        return name
