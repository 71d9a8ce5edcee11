"""The Merkle tree that holds a section: leaves are bytes, nodes list literals and references in order.

A section's bytes are its tree's literals and leaves, read from left to right. Directories of a workspace use the same
nodes, so that sweeping, verifying and copying walk every tree without knowing what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAF = 1
NODE = 2
_LITERAL = 0
_NODE_CONTEXT = "holdfast 1 tree node"
_ID_BYTES = 32


class Ref:
    """Names a leaf or a node: `size` counts all content bytes below it, `entry` is how it stands in a node."""

    __slots__ = ("entry", "id", "kind", "size")

    def __init__(self, kind: int, size: int, id: bytes) -> None:  # noqa: A002 - the one name for it
        self.kind = kind
        self.size = size
        self.id = id
        self.entry = _tag(kind, size) + id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.entry == other.entry

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Ref {'leaf' if self.kind == LEAF else 'node'} {self.id.hex()[:16]} {self.size:,} bytes>"


Entry = bytes | Ref


def leaf_id(data: bytes) -> bytes:
    """Return the name of a leaf: BLAKE3-256 of its bytes."""
    return blake3(data).digest()


def node_id(data: bytes) -> bytes:
    """Return the name of a node, in a domain of its own so that no leaf can pass for one."""
    return blake3(data, derive_key_context=_NODE_CONTEXT).digest()


def chunk_id(kind: int, data: bytes) -> bytes:
    """Return the name of a chunk of this kind."""
    return leaf_id(data) if kind == LEAF else node_id(data)


def encode_node(entries: Iterable[Entry]) -> tuple[bytes, int]:
    """Return a node's bytes and the number of content bytes below it."""
    parts: list[bytes] = []
    size = 0
    for entry in entries:
        if isinstance(entry, Ref):
            parts.append(entry.entry)
            size += entry.size
        else:
            parts.append(_tag(_LITERAL, len(entry)) + entry)
            size += len(entry)
    return b"".join(parts), size


def decode_node(data: bytes) -> list[Entry]:
    """Return a node's entries; ValueError if the bytes are not a node."""
    entries: list[Entry] = []
    position, end = 0, len(data)
    while position < end:
        kind, width = data[position] & 3, data[position] >> 2
        start = position + 1 + width
        size = int.from_bytes(data[position + 1 : start], "big")
        position = start + (size if kind == _LITERAL else _ID_BYTES)
        if width > _WIDEST or kind > NODE or position > end:
            raise ValueError(f"has a malformed entry before byte {position}")
        content = data[start:position]
        entries.append(content if kind == _LITERAL else Ref(kind, size, content))
    return entries


_WIDEST = 6  # bytes of a size: 256 TiB


def _tag(kind: int, size: int) -> bytes:
    """Return what precedes an entry's content: its kind and the width of its size in one byte, then the size."""
    width = (size.bit_length() + 7) // 8
    return bytes((kind | width << 2,)) + size.to_bytes(width, "big")
