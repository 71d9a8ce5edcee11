"""The memory store: the same rules in plain dictionaries; the reference model for tests, gone with its process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from holdfast.encode import records
from holdfast.errors import HeadMoved, NotFound, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, RunRecord
from holdfast.store.api import Listing, StoreStats, StoreTraits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import Envelope, Marks


class MemoryStore:
    """Runs, checkpoints and chunks in dictionaries, under one lock."""

    traits = StoreTraits(durable=False, many_processes=False)
    url = "memory:"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runs: dict[str, RunRecord] = {}
        self._checkpoints: dict[str, dict[int, CheckpointRecord]] = {}
        self._tombstones: dict[str, dict[str, bytes]] = {}
        self._chunks: dict[bytes, Chunk] = {}
        self._holds: dict[str, set[bytes]] = {}
        self._closed = False

    def commit(
        self, envelope: Envelope, marks: Marks, chunks: Sequence[Chunk], *, expected_head: str | None
    ) -> CheckpointRecord:
        """Store chunks and checkpoint and move the run's head, all or nothing."""
        with self._open():
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
            self._chunks.update((chunk.id, chunk) for chunk in chunks)
            self._holds.setdefault(run.id, set()).update(chunk.id for chunk in chunks)
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

    def mark(self, checkpoint: str, marks: Marks) -> None:
        """Replace a checkpoint's marks."""
        with self._open():
            record = self.checkpoint(checkpoint)
            line = self._checkpoints[record.envelope.run]
            line[record.envelope.seq] = CheckpointRecord(record.envelope, record.checksum, marks)

    def delete(self, run: str, checkpoints: Sequence[str]) -> None:
        """Delete checkpoints of one run, leaving tombstones; all or none."""
        with self._open():
            record = self.run(run)
            line = self._checkpoints[run]
            numbers = {found.envelope.id: seq for seq, found in line.items()}
            if len(set(checkpoints)) != len(checkpoints) or not numbers.keys() >= set(checkpoints):
                raise NotFound("checkpoint", next(name for name in checkpoints if name not in numbers))
            for checkpoint in checkpoints:
                self._tombstones[run][checkpoint] = line.pop(numbers[checkpoint]).checksum
            head = record.head
            if head in checkpoints:
                head = line[max(line)].envelope.id if line else None
            self._runs[run] = msgspec.structs.replace(record, head=head, checkpoints=len(line))

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds."""
        with self._open():
            self.run(run)
            for part in (self._runs, self._checkpoints, self._tombstones):
                del part[run]
            self._drop_unheld(self._holds.pop(run))

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        with self._open():
            self.run(run)
            return set(self._holds[run])

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds."""
        with self._open():
            record = self.run(run)
            if record.last_seq != expected_seq:
                raise HeadMoved(run, f"{run}@{expected_seq}", record.head)
            self._holds[run].difference_update(chunks)
            self._drop_unheld(set(chunks))

    def reclaim(self) -> None:
        """Do nothing: the interpreter reclaims."""

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint."""
        with self._open():
            return self._tombstones.get(run, {}).get(checkpoint)

    def check(self) -> Iterator[str]:
        """Find nothing: there is no medium to be wrong."""
        yield from ()

    def stats(self) -> StoreStats:
        """Count what is stored."""
        with self._open():
            stored = sum(len(chunk.data) for chunk in self._chunks.values())
            return StoreStats(
                url=self.url, engine="memory", runs=len(self._runs),
                checkpoints=sum(map(len, self._checkpoints.values())), chunks=len(self._chunks),
                chunk_bytes=sum(chunk.size for chunk in self._chunks.values()), stored_bytes=stored, file_bytes=stored,
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
