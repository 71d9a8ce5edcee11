"""Where captured bytes go: the writer of a commit, past which known chunks are not compressed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.encode.tree import LEAF, NODE, Entry, Ref, encode_node, leaf_id, node_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NONE: frozenset[bytes] = frozenset()


class SinkWriter(Protocol):
    """What takes new chunks: the `ChunkWriter` of a commit, or one that only looks."""

    def leaf(self, data: bytes) -> Ref:
        """Add plain bytes and return their reference."""

    def node(self, entries: Iterable[Entry]) -> Ref:
        """Add a node over these entries and return its reference."""


class Sink:
    """Puts leaves and nodes that the previous snapshot does not hold."""

    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def leaf(self, data: bytes, known: frozenset[bytes] = NONE) -> Ref:
        """Put plain bytes, unless their name is among the known ones."""
        if known:
            name = leaf_id(data)
            if name in known:
                return Ref(LEAF, len(data), name)
        return self._writer.leaf(data)

    def node(self, entries: Sequence[Entry], known: frozenset[bytes] = NONE) -> Ref:
        """Put a node, unless its name is among the known ones."""
        if known:
            data, size = encode_node(entries)
            name = node_id(data)
            if name in known:
                return Ref(NODE, size, name)
        return self._writer.node(entries)
