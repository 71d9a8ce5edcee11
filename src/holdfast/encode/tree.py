"""The Merkle tree that holds a section: leaves are bytes, nodes list literals and references in order.

A section's bytes are its tree's literals and leaves, read from left to right. Directories of a workspace use the same
nodes, so that sweeping, verifying and copying walk every tree without knowing what it means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAF = 1
NODE = 2
_LITERAL = 0
_NODE_CONTEXT = "holdfast 1 tree node"
_REF_BYTES = 39


class Ref(NamedTuple):
    """Names a leaf or a node: `size` counts all content bytes below it."""

    kind: int
    size: int
    id: bytes

    def entry(self) -> bytes:
        """Return this reference as it stands in a node."""
        return self.kind.to_bytes(1, "big") + self.size.to_bytes(6, "big") + self.id


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
            parts.append(entry.entry())
            size += entry.size
        else:
            parts.append(b"\0" + len(entry).to_bytes(4, "big") + entry)
            size += len(entry)
    return b"".join(parts), size


def decode_node(data: bytes) -> list[Entry]:
    """Return a node's entries; ValueError if the bytes are not a node."""
    entries: list[Entry] = []
    position, end = 0, len(data)
    while position < end:
        kind = data[position]
        if kind == _LITERAL:
            start = position + 5
            position = start + int.from_bytes(data[position + 1 : start], "big")
            if position > end:
                raise ValueError("a literal runs past the end of its node")
            entries.append(data[start:position])
        elif kind in (LEAF, NODE):
            start, position = position, position + _REF_BYTES
            if position > end:
                raise ValueError("a reference runs past the end of its node")
            entries.append(Ref(kind, int.from_bytes(data[start + 1 : start + 7], "big"), data[start + 7 : position]))
        else:
            raise ValueError(f"unknown entry kind {kind}")
    return entries
