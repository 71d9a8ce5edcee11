"""What a store is: the few operations that every medium offers, and how media may differ.

Obligations that the signatures cannot state: `commit` is atomic and durable before it returns; every record and chunk
is checked against its checksum when it is read; order comes from `seq` alone; after an error nothing is half done.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from holdfast.encode.chunks import Chunk
    from holdfast.errors import IntegrityError
    from holdfast.model.checkpoint import CheckpointRecord, Envelope, Marks, RunRecord
    from holdfast.store.bell import Bell
    from holdfast.store.lease import Lease

T = TypeVar("T")


class StoreTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How a medium differs from the others, as data."""

    durable: bool
    many_processes: bool
    many_machines: bool = False
    tenants: bool = False
    readable: bool = False
    """Whether people may read it with an editor: documents, not chunks."""


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
    oldest_at: datetime | None = None
    newest_at: datetime | None = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """What a deleted checkpoint leaves: its number stays taken, and its child's link can still be checked."""

    seq: int
    id: str
    checksum: bytes


class Store(Protocol):
    """A place for runs, checkpoints and chunks."""

    url: str
    traits: StoreTraits

    @property
    def folder(self) -> Path | None:
        """Where it lies on this machine, if it does."""

    @property
    def own_paths(self) -> tuple[Path, ...]:
        """Return the files and folders on this machine that are its own; a workspace leaves them out."""

    def commit(
        self,
        envelope: Envelope,
        marks: Marks,
        chunks: Collection[Chunk],
        *,
        expected_head: str | None,
        fence: int | None = None,
    ) -> CheckpointRecord:
        """Store chunks and checkpoint and move the run's head, all or nothing; HeadMoved if the head is another.

        A chunk that is already there is kept, unless its stored bytes differ: then the given ones mend it. `fence` is
        the writer's lease token: LeaseLost if the run has another by now, LeaseHeld if it has one and none is given.
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

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix, in their order; none for what can begin no id."""

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks; Conflict, and nothing changes, if they are not the `expected` ones by now."""

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace marks of a run's checkpoints in one transaction, each (expected, new); return those left alone.

        Left alone is what is not as expected by now, is damaged, or is not in this run.
        """

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints of one run, leaving tombstones for the chain; their chunks stay until released.

        All or none. With `spare_pinned`, those that are pinned by now or cannot be read stay, and are returned.
        """

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds."""

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int, created_at: datetime) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds; HeadMoved if the run went on meanwhile.

        `created_at` tells a run from another that was begun under its name after it was deleted.
        """

    def reclaim(self) -> None:
        """Give freed space back to the medium."""

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint, None if none was deleted under this id."""

    def tombstones(self, run: str) -> list[Tombstone]:
        """Return all that a run's deleted checkpoints left, lowest number first; NotFound if there is no such run."""

    def bury(self, run: str, tombstone: Tombstone, *, created_at: datetime) -> None:
        """Take over a checkpoint that was deleted elsewhere as the next number; a new run began at `created_at`."""

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:
        """Bring the medium's schema up to date and return the versions applied; opening a store does it, too."""

    def take_lease(self, run: str, *, owner: str, ttl_s: float) -> Lease:
        """Take the right to move a run, new or lapsed or one's own already; LeaseHeld if another owner has it."""

    def renew_lease(self, lease: Lease, *, ttl_s: float) -> Lease:
        """Keep a lease for longer, even one that lapsed and nobody took; LeaseLost if somebody did."""

    def end_lease(self, lease: Lease) -> None:
        """Give a lease back; nothing happens if it was lost already."""

    def lease(self, run: str) -> Lease | None:
        """Return the running lease of a run, None if nobody has it."""

    def wake(self, run: str) -> None:
        """Ring for all who listen for a run."""

    def listen(self, run: str) -> Bell:
        """Return a bell that hears every ring for the run from now on."""

    def damaged_runs(self) -> list[str]:
        """Return the runs whose record, holds or lease are not as they were written: `rebuild` mends them."""

    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:
        """Make a run's record anew from its sound checkpoints, unless it can be read; None if there is no such run.

        It then holds, beside what it held, the chunks that `reach` names for them; a damaged lease is nobody's.
        """

    def check(self) -> Iterator[str]:
        """Yield what the medium itself finds wrong with its structures."""

    def stats(self) -> StoreStats:
        """Count what is stored."""

    def close(self) -> None:
        """Let the medium go; closing twice is fine."""
