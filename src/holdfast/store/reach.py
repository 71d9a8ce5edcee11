"""What is reached from some roots: the names of all chunks at and below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.tree import NODE, Ref
from holdfast.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.store.store import Store

_BATCH = 256


class Reach:
    """The names of all chunks at and below some roots; more roots can be added, and cost what is new below them."""

    def __init__(self, store: Store) -> None:
        self.seen: set[bytes] = set()
        self._reader = ChunkReader(store.fetch)
        self._nodes: list[Ref] = []

    def add(self, roots: Iterable[Ref], *, past_damage: bool = False) -> None:
        """Follow these roots down; IntegrityError where a node cannot be read, unless it is to be passed by."""
        for root in roots:
            self._meet(root)
        while self._nodes:
            size = 1 if past_damage else _BATCH
            batch = [self._nodes.pop() for _ in range(min(size, len(self._nodes)))]
            try:
                for parts in self._reader.stored_nodes(batch):
                    for part in parts:
                        if isinstance(part, Ref):
                            self._meet(part)
            except IntegrityError:
                if not past_damage:
                    raise

    def _meet(self, ref: Ref) -> None:
        if ref.id not in self.seen:
            self.seen.add(ref.id)
            if ref.kind == NODE:
                self._nodes.append(ref)
