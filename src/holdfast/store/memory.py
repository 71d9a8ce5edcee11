"""The memory store: the same rules in plain dictionaries; the reference model for tests, gone with its process."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.encode import records
from holdfast.errors import Conflict, HeadMoved, NotFound, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, RunRecord
from holdfast.store.api import Listing, StoreStats, StoreTraits, Tombstone
from holdfast.store.bell import SharedCounter
from holdfast.store.lease import Lease, check_current, check_fence, check_takeable, check_terms
from holdfast.store.prefix import id_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import Envelope, Marks
    from holdfast.store.bell import Bell


class MemoryStore:
    """Runs, checkpoints and chunks in dictionaries, under one lock."""

    traits = StoreTraits(durable=False, many_processes=False)
    url = "memory:"
    folder = None
    own_paths = ()

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runs: dict[str, RunRecord] = {}
        self._checkpoints: dict[str, dict[int, CheckpointRecord]] = {}
        self._tombstones: dict[str, dict[str, bytes]] = {}
        self._buried: dict[str, dict[str, int]] = {}
        self._chunks: dict[bytes, Chunk] = {}
        self._holds: dict[str, set[bytes]] = {}
        self._leases: dict[str, Lease] = {}
        self._last_token = 0
        self._rings = SharedCounter()
        self._closed = False

    def commit(
        self,
        envelope: Envelope,
        marks: Marks,
        chunks: Collection[Chunk],
        *,
        expected_head: str | None,
        fence: int | None = None,
    ) -> CheckpointRecord:
        """Store chunks and checkpoint and move the run's head, all or nothing."""
        with self._open():
            check_fence(self._leases.get(envelope.run), envelope.run, fence, datetime.now(UTC))
            run = self._runs.get(envelope.run) or RunRecord(
                format_version=FORMAT_VERSION,
                id=envelope.run,
                head=None,
                last_seq=0,
                checkpoints=0,
                created_at=envelope.created_at,
                updated_at=envelope.created_at,
            )
            if run.head != expected_head or run.last_seq != envelope.seq - 1:
                raise HeadMoved(envelope.run, expected_head, run.head)
            record = CheckpointRecord(envelope, records.seal(envelope)[1], marks)
            brought = {chunk.id: chunk for chunk in chunks}
            self._chunks.update(brought)
            self._holds.setdefault(run.id, set()).update(brought)
            self._checkpoints.setdefault(run.id, {})[envelope.seq] = record
            self._tombstones.setdefault(run.id, {})
            self._runs[run.id] = msgspec.structs.replace(
                run,
                head=envelope.id,
                last_seq=envelope.seq,
                checkpoints=run.checkpoints + 1,
                updated_at=envelope.created_at,
            )
            return record

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""
        with self._open():
            if run not in self._runs:
                raise NotFound("run", run)
            return self._runs[run]

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""
        with self._open():
            return Listing(list(reversed(self._runs.values()))[:limit])

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, NotFound if there is none."""
        with self._open():
            for line in self._checkpoints.values():
                for record in line.values():
                    if record.envelope.id == checkpoint:
                        return record
        raise NotFound("checkpoint", checkpoint)

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted."""
        with self._open():
            return self._checkpoints.get(run, {}).get(seq)

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first."""
        with self._open():
            upper = self.run(run).last_seq + 1
            upper = upper if before_seq is None else min(before_seq, upper)
            line = self._checkpoints[run]
            return Listing([line[seq] for seq in sorted(line, reverse=True) if seq < upper][:limit])

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there."""
        with self._open():
            return {name: self._chunks[name] for name in ids if name in self._chunks}

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk."""
        with self._open():
            yield from list(self._chunks)

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix."""
        bounds = id_range(prefix)
        with self._open():
            names = [record.envelope.id for line in self._checkpoints.values() for record in line.values()]
        return sorted(name for name in names if bounds and bounds[0] <= name <= bounds[1])[:limit]

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks."""
        with self._open():
            record = self.checkpoint(checkpoint)
            if expected is not None and record.marks != expected:
                raise Conflict(record.envelope.run)
            self._put_marks(record, marks)

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace the marks that are as expected, and return the ids of the others."""
        with self._open():
            self.run(run)
            there = {record.envelope.id: record for record in self._checkpoints[run].values()}
            left = [name for name, (was, _) in changes.items() if name not in there or there[name].marks != was]
            for name in changes.keys() - set(left):
                self._put_marks(there[name], changes[name][1])
            return left

    def _put_marks(self, record: CheckpointRecord, marks: Marks) -> None:
        line = self._checkpoints[record.envelope.run]
        line[record.envelope.seq] = CheckpointRecord(record.envelope, record.checksum, marks)

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints of one run, leaving tombstones; all or none."""
        with self._open():
            record = self.run(run)
            line = self._checkpoints[run]
            numbers = {found.envelope.id: seq for seq, found in line.items()}
            for checkpoint in checkpoints:
                if checkpoint not in numbers:
                    raise NotFound("checkpoint", checkpoint)
            spared = [name for name in checkpoints if spare_pinned and line[numbers[name]].marks.pinned]
            doomed = {name: numbers[name] for name in checkpoints if name not in spared}
            for checkpoint, seq in doomed.items():
                self._tombstones[run][checkpoint] = line.pop(seq).checksum
                self._buried.setdefault(run, {})[checkpoint] = seq
            head = record.head
            if head in doomed:
                head = line[max(line)].envelope.id if line else None
            self._runs[run] = msgspec.structs.replace(record, head=head, checkpoints=len(line))
            return spared

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds."""
        with self._open():
            self.run(run)
            for part in (self._runs, self._checkpoints, self._tombstones):
                del part[run]
            self._leases.pop(run, None)
            self._buried.pop(run, None)
            self._drop_unheld(self._holds.pop(run))

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        with self._open():
            self.run(run)
            return set(self._holds[run])

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int, created_at: datetime) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds."""
        with self._open():
            record = self.run(run)
            if (record.last_seq, record.created_at) != (expected_seq, created_at):
                raise HeadMoved(run, f"{run}@{expected_seq}", record.head)
            self._holds[run].difference_update(chunks)
            self._drop_unheld(set(chunks))

    def reclaim(self) -> None:
        """Do nothing: the interpreter reclaims."""

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint."""
        with self._open():
            return self._tombstones.get(run, {}).get(checkpoint)

    def tombstones(self, run: str) -> list[Tombstone]:
        """Return all that a run's deleted checkpoints left."""
        with self._open():
            self.run(run)
            numbers = sorted((seq, checkpoint) for checkpoint, seq in self._buried.get(run, {}).items())
            left = self._tombstones[run]
            return [Tombstone(seq=seq, id=checkpoint, checksum=left[checkpoint]) for seq, checkpoint in numbers]

    def bury(self, run: str, tombstone: Tombstone, *, created_at: datetime) -> None:
        """Take over a checkpoint that was deleted elsewhere as the run's next number."""
        with self._open():
            record = self._runs.get(run) or RunRecord(
                format_version=FORMAT_VERSION, id=run, head=None, last_seq=0, checkpoints=0,
                created_at=created_at, updated_at=created_at,
            )  # fmt: skip
            if record.last_seq != tombstone.seq - 1:
                raise HeadMoved(run, f"{run}@{tombstone.seq - 1}", record.head)
            self._runs[run] = msgspec.structs.replace(record, last_seq=tombstone.seq)
            self._checkpoints.setdefault(run, {})
            self._holds.setdefault(run, set())
            self._tombstones.setdefault(run, {})[tombstone.id] = tombstone.checksum
            self._buried.setdefault(run, {})[tombstone.id] = tombstone.seq

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:  # noqa: ARG002
        """Do nothing: there is no schema."""
        return []

    def take_lease(self, run: str, *, owner: str, ttl_s: float) -> Lease:
        """Take the right to move a run, LeaseHeld if another owner has it."""
        check_terms(owner, ttl_s)
        with self._open():
            now = datetime.now(UTC)
            check_takeable(self._leases.get(run), owner, now)
            self._last_token += 1
            lease = Lease(run=run, owner=owner, token=self._last_token, expires_at=now + timedelta(seconds=ttl_s))
            self._leases[run] = lease
            return lease

    def renew_lease(self, lease: Lease, *, ttl_s: float) -> Lease:
        """Keep a lease for longer, LeaseLost if somebody took it."""
        check_terms(lease.owner, ttl_s)
        with self._open():
            current = check_current(self._leases.get(lease.run), lease.run, lease.token)
            expires_at = datetime.now(UTC) + timedelta(seconds=ttl_s)
            self._leases[lease.run] = msgspec.structs.replace(current, expires_at=expires_at)
            return self._leases[lease.run]

    def end_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._open():
            current = self._leases.get(lease.run)
            if current is not None and current.token == lease.token:
                self._leases[lease.run] = msgspec.structs.replace(current, expires_at=datetime.now(UTC))

    def lease(self, run: str) -> Lease | None:
        """Return the running lease of a run."""
        with self._open():
            lease = self._leases.get(run)
            return lease if lease is not None and lease.expires_at > datetime.now(UTC) else None

    def wake(self, run: str) -> None:
        """Ring for all who listen for a run."""
        with self._open():
            self._rings.ring(run)

    def listen(self, run: str) -> Bell:
        """Return a bell that hears every ring for the run from now on."""
        with self._open():
            return self._rings.bell(run)

    def damaged_runs(self) -> list[str]:
        """Return none: what is kept of a run is kept in memory."""
        return []

    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:  # noqa: ARG002
        """Return the run as it is, None if there is none."""
        try:
            return self.run(run)
        except NotFound:
            return None

    def check(self) -> Iterator[str]:
        """Find nothing: there is no medium to be wrong."""
        yield from ()

    def stats(self) -> StoreStats:
        """Count what is stored."""
        with self._open():
            stored = sum(len(chunk.data) for chunk in self._chunks.values())
            times = [record.envelope.created_at for line in self._checkpoints.values() for record in line.values()]
            return StoreStats(
                url=self.url, engine="memory", runs=len(self._runs),
                checkpoints=sum(map(len, self._checkpoints.values())), chunks=len(self._chunks),
                chunk_bytes=sum(chunk.size for chunk in self._chunks.values()), stored_bytes=stored, file_bytes=stored,
                oldest_at=min(times, default=None), newest_at=max(times, default=None),
            )  # fmt: skip

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True

    def _open(self) -> threading.RLock:
        if self._closed:
            raise UsageError("this memory store is closed, and what it held is gone")
        return self._lock

    def _drop_unheld(self, chunks: set[bytes]) -> None:
        held = set[bytes]().union(*self._holds.values())
        for name in chunks - held:
            self._chunks.pop(name, None)
