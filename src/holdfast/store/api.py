"""What stores say about themselves and their contents: traits, lists with the damage found, counts, tombstones."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import IntegrityError

T = TypeVar("T")


class StoreTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How a medium differs from the others, as data."""

    durable: bool
    many_processes: bool
    many_machines: bool = False
    tenants: bool = False
    many_runs: bool = True
    """Whether one transaction may change several runs."""
    readable: bool = False
    """Whether people may read it with an editor: documents, not chunks."""
    checkpoint_bytes: int = 0
    """What a checkpoint takes beside its chunks: its row, indexes and the rows that its commit writes; measured."""


class Listing(list[T], Generic[T]):
    """The sound rows of a list, with the damage that was met on the way: never silently shorter."""

    def __init__(
        self, rows: Sequence[T] = (), damaged: Sequence[IntegrityError] = (), after: str | None = None
    ) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)
        self.after = after
        """What continues a list that was cut at a limit behind this page, None at its end."""


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much is in a store, and what keeps it."""

    url: str
    engine: str
    runs: int
    checkpoints: int
    chunks: int
    chunk_bytes: int
    stored_bytes: int
    file_bytes: int
    oldest_at: datetime | None = None
    newest_at: datetime | None = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """What a deleted checkpoint leaves: its number stays taken, and its child's link can still be checked."""

    seq: int
    id: str
    checksum: bytes
