"""What a store is: the few operations that every medium offers, and how media may differ.

Obligations that the signatures cannot state: `commit` is atomic and durable before it returns; every record and chunk
is checked against its checksum when it is read; order comes from `seq` alone; after an error nothing is half done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.encode.chunks import Chunk
    from holdfast.errors import IntegrityError
    from holdfast.model.checkpoint import CheckpointRecord, Envelope, Marks, RunRecord

T = TypeVar("T")


class StoreTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How a medium differs from the others, as data."""

    durable: bool
    many_processes: bool


class Listing(list[T], Generic[T]):
    """The sound rows of a list, with the damage that was met on the way: never silently shorter."""

    def __init__(self, rows: Sequence[T] = (), damaged: Sequence[IntegrityError] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)


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


class Store(Protocol):
    """A place for runs, checkpoints and chunks."""

    url: str
    traits: StoreTraits

    def commit(
        self, envelope: Envelope, marks: Marks, chunks: Sequence[Chunk], *, expected_head: str | None
    ) -> CheckpointRecord:
        """Store chunks and checkpoint and move the run's head, all or nothing; HeadMoved if the head is another.

        A chunk that is already there is kept, unless its stored bytes differ: then the given ones mend it.
        """

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, NotFound if there is none."""

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted; CheckpointCorrupt if it vanished."""

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first."""

    def fetch(self, ids: Sequence[bytes]) -> Mapping[bytes, Chunk]:
        """Return those of these chunks that are there, as they are stored."""

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk."""

    def mark(self, checkpoint: str, marks: Marks) -> None:
        """Replace a checkpoint's marks."""

    def delete(self, run: str, checkpoints: Sequence[str]) -> None:
        """Delete checkpoints of one run, leaving tombstones for the chain; their chunks stay until released."""

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds."""

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds; HeadMoved if the run went on meanwhile."""

    def reclaim(self) -> None:
        """Give freed space back to the medium."""

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint, None if none was deleted under this id."""

    def check(self) -> Iterator[str]:
        """Yield what the medium itself finds wrong with its structures."""

    def stats(self) -> StoreStats:
        """Count what is stored."""

    def close(self) -> None:
        """Let the medium go; closing twice is fine."""
