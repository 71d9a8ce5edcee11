"""The PostgreSQL store: many machines and tenants; one round trip and one transaction for a small commit.

Every call is bounded in time and may be repeated: a commit is known by its checkpoint's id and checksum, so one whose
answer was lost is found, not doubled. A run's sealed record is compared and swapped as a whole; what this process last
saw of it is only a guess that saves a round trip.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from psycopg.types.numeric import Int8

from holdfast.encode import records
from holdfast.errors import (
    CheckpointCorrupt,
    Conflict,
    HeadMoved,
    IntegrityError,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RunCorrupt,
    UsageError,
)
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, RunRecord
from holdfast.model.ids import check_run_id
from holdfast.store import postgres_schema
from holdfast.store.api import Listing, StoreStats, StoreTraits, Tombstone
from holdfast.store.lease import Lease, check_terms
from holdfast.store.named_sql import queries
from holdfast.store.postgres_bell import PostgresBell, channel_of, payload_of
from holdfast.store.postgres_chunks import ChunkRows, holds_sum, of_64_bits
from holdfast.store.postgres_errors import translated
from holdfast.store.postgres_pool import Connections, Settings
from holdfast.store.postgres_url import PostgresPlace
from holdfast.store.prefix import id_range
from holdfast.store.rebuild import made_anew

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import Envelope, Marks
    from holdfast.store.bell import Bell
    from holdfast.store.objects import ObjectShelf
    from holdfast.store.postgres_pool import TimedConnection

_Q = queries("postgres.sql")
_REMEMBERED_RUNS = 4096
_EVERYTHING = 1 << 62
T = TypeVar("T")


class _Known(NamedTuple):
    """A run as it was last seen: its row number, its record, and the checksum that a commit swaps."""

    n: int
    record: RunRecord
    checksum: bytes


class PostgresStore:
    """Runs, checkpoints and chunks of one tenant in a PostgreSQL database."""

    traits = StoreTraits(durable=True, many_processes=True, many_machines=True, tenants=True)
    folder = None
    own_paths = ()

    def __init__(
        self,
        url: str,
        *,
        tenant: str | None = None,
        schema: str | None = None,
        timeout_s: float = 30.0,
        pool_size: int = 8,
        durability: str = "power",
        shelf: ObjectShelf | None = None,
    ) -> None:
        if durability not in ("power", "process"):
            raise UsageError(f"unknown durability {durability!r}: use 'power' or 'process'")
        place = PostgresPlace.parse(url)
        self.tenant = check_run_id(tenant or place.tenant)
        self.schema = postgres_schema.check_schema_name(schema or place.schema)
        self.url = place.shown
        self._settings = Settings(
            place.conninfo,
            schema=self.schema,
            tenant=self.tenant,
            timeout_s=timeout_s,
            synchronous=durability == "power",
        )
        with translated(self.url), self._settings.connect() as connection:
            postgres_schema.settle(connection, self.schema, store=self.url)
        self._connections = Connections(self._settings, url=self.url, size=pool_size)
        self._chunks = ChunkRows(self.tenant, shelf)
        self._known: dict[str, _Known | None] = {}

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:
        """Bring the schema up to date; opening the store has done it already, unless another program came between."""
        with translated(self.url), self._settings.connect() as connection:
            return postgres_schema.migrate(connection, self.schema, progress=progress)

    def commit(
        self,
        envelope: Envelope,
        marks: Marks,
        chunks: Collection[Chunk],
        *,
        expected_head: str | None,
        fence: int | None = None,
    ) -> CheckpointRecord:
        """Store chunks and checkpoint and move the head in one transaction, durable before it returns."""
        sealed, checksum = records.seal(envelope)
        sealed_marks, marks_checksum = records.seal_marks(envelope.id, marks)
        brought = self._chunks.prepare(chunks)
        stored = CheckpointRecord(envelope, checksum, marks)
        values: dict[str, Any] = {
            "tenant": self.tenant, "run": envelope.run, "seq": Int8(envelope.seq), "id": envelope.id,
            "created_at": envelope.created_at, "envelope": sealed, "checksum": checksum, "marks": sealed_marks,
            "marks_checksum": marks_checksum, "fence": None if fence is None else Int8(fence), "held": brought.ids,
        }  # fmt: skip
        if envelope.run not in self._known:
            self._look_up(envelope.run)
        are_objects_put = not brought.outside
        while True:
            known = self._known.get(envelope.run)
            if not _is_at(known, expected_head, envelope):
                known = self._look_up(envelope.run)
                if not _is_at(known, expected_head, envelope):
                    if self._is_stored(stored):
                        return stored
                    raise HeadMoved(envelope.run, expected_head, known.record.head if known else None)
            if not are_objects_put:
                self._connections.call(lambda connection, _: self._chunks.put_objects(connection, brought))
                are_objects_put = True
            extended = _extended(known, envelope, brought.ids)
            record, record_checksum = records.seal(extended)
            swap = {"was": known.checksum if known else None, "record": record, "record_checksum": record_checksum}
            outcome = self._connections.call(
                lambda connection, _: self._chunks.commit(connection, {**values, **swap}, brought)  # noqa: B023 - at once
            )
            if outcome in ("done", "again"):
                self._remember(
                    envelope.run, _Known(known.n if known else 0, extended, record_checksum), outcome == "done"
                )
                return stored
            self._known.pop(envelope.run, None)
            if outcome != "stale":
                raise self._refused(envelope.run, outcome, fence)
            self._look_up(envelope.run)

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""
        known = self._look_up(run)
        if known is None:
            if self._rows("has_checkpoints", run=run):
                raise RunCorrupt("its record vanished while its checkpoints are there", run)
            raise NotFound("run", run)
        return known.record

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""
        found, damaged = [], []
        for run, record, checksum in self._rows("runs", limit=_EVERYTHING if limit is None else limit):
            try:
                found.append(records.open_run(run, record, checksum))
            except IntegrityError as error:
                damaged.append(error)
        return Listing(found, damaged)

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, NotFound if there is none or if it is another tenant's."""
        rows = self._rows("checkpoint", id=checkpoint)
        if not rows:
            raise NotFound("checkpoint", checkpoint)
        return records.open_checkpoint(*rows[0])

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted."""
        rows = self._rows("checkpoint_at", run=run, seq=of_64_bits(seq))
        if rows:
            return _placed(records.open_checkpoint(*rows[0]), run, seq)
        if self._rows("tombstone_numbers", run=run, low=of_64_bits(seq), high=of_64_bits(seq)):
            return None
        raise CheckpointCorrupt("it vanished from the store without having been deleted", f"{run}@{seq}")

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first; numbers that vanished are reported as damage."""
        upper = self.run(run).last_seq + 1
        upper = upper if before_seq is None else max(1, min(before_seq, upper))
        wanted = _EVERYTHING if limit is None else limit
        rows = self._rows("checkpoints", run=run, before=Int8(upper), limit=Int8(wanted))
        lowest = 1 if len(rows) < wanted else rows[-1][-1] if rows else upper
        present = {row[-1] for row in rows}
        absent = [seq for seq in range(lowest, upper) if seq not in present]
        deleted = set[int]()
        if absent:
            gaps = self._rows("tombstone_numbers", run=run, low=Int8(absent[0]), high=Int8(absent[-1]))
            deleted = {seq for (seq,) in gaps}
        found: list[CheckpointRecord] = []
        damaged: list[IntegrityError] = [
            CheckpointCorrupt("vanished from the store without having been deleted", f"{run}@{seq}")
            for seq in reversed(absent)
            if seq not in deleted
        ]
        for *row, seq in rows:
            try:
                found.append(_placed(records.open_checkpoint(*row), run, seq))
            except IntegrityError as error:
                damaged.append(error)
        return Listing(found, damaged)

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there, as they are stored."""
        return self._connections.call(lambda connection, _: self._chunks.fetch(connection, list(ids)))

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk, a page of them at a time."""
        after = 0
        while rows := self._rows("chunk_page", after=Int8(after)):
            yield from (row[1] for row in rows)
            after = rows[-1][0]

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix."""
        bounds = id_range(prefix)
        low, high = bounds or ("", "")
        return [row[0] for row in self._rows("find", low=low, high=high, limit=Int8(limit if bounds else 0))]

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks."""
        if expected is not None:
            if self._mark_expected(None, {checkpoint: (expected, marks)}):
                raise Conflict(self.checkpoint(checkpoint).envelope.run)
            return
        data, checksum = records.seal_marks(checkpoint, marks)
        if not self._rows("mark", id=checkpoint, marks=data, checksum=checksum):
            raise NotFound("checkpoint", checkpoint)

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace the marks that are as expected, and return the ids of the others."""
        left = self._mark_expected(run, changes)
        if len(left) == len(changes):
            self.run(run)  # NotFound if that is why
        return left

    def _mark_expected(self, run: str | None, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace marks that are as expected, of one run or of any; two statements, the rows locked in between."""

        def work(connection: TimedConnection, again: bool) -> list[str]:  # noqa: FBT001
            with connection.transaction():
                fit: list[str] = []
                for row in self._on(connection, "lock_checkpoints", run=run, ids=list(changes)):
                    try:
                        marks = records.open_checkpoint(*row).marks
                    except IntegrityError:
                        continue
                    expected, new = changes[row[0]]
                    if marks == expected or (again and marks == new):
                        fit.append(row[0])
                sealed = [records.seal_marks(checkpoint, changes[checkpoint][1]) for checkpoint in fit]
                if fit:
                    marks_of, checksums = (list(column) for column in zip(*sealed, strict=True))
                    self._on(connection, "mark_many", ids=fit, marks=marks_of, checksums=checksums)
                return [checkpoint for checkpoint in changes if checkpoint not in set(fit)]

        return self._connections.call(work)

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints of one run; if its head is among them, the highest one left becomes the head."""

        def work(connection: TimedConnection, again: bool) -> list[str]:  # noqa: FBT001
            with connection.transaction():
                known = self._locked(connection, run)
                rows = self._on(connection, "lock_checkpoints", run=run, ids=list(checkpoints)) if spare_pinned else []
                spared = [row[0] for row in rows if _may_be_pinned(row)]
                doomed = [checkpoint for checkpoint in checkpoints if checkpoint not in spared]
                gone = self._on(connection, "delete_checkpoints", run=run, ids=doomed)
                missing = set(doomed) - {row[0] for row in gone}
                for checkpoint in missing:
                    if not again or not self._on(connection, "tombstone", run=run, id=checkpoint):
                        raise NotFound("checkpoint", checkpoint)
                for checkpoint, seq, checksum in gone:
                    seal = records.seal_tombstone(run, seq, checkpoint, checksum)
                    self._on(
                        connection, "put_tombstone", run=run, seq=Int8(seq), id=checkpoint, checksum=checksum, seal=seal
                    )
                head = known.record.head
                if head in doomed:
                    left = self._on(connection, "newest_id", run=run)
                    head = left[0][0] if left else None
                count = known.record.checkpoints - len(gone)
                self._put_run(connection, known, head=head, checkpoints=count)
                return spared

        return self._forgetting(run, work)

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds."""

        def work(connection: TimedConnection, again: bool) -> None:  # noqa: FBT001
            with connection.transaction():
                try:
                    known = self._locked(connection, run)
                except NotFound:
                    if again:
                        return
                    raise
                self._check_holds(connection, run, known)
                self._chunks.let_go(connection, known.n, None)
                for name in ("delete_run_checkpoints", "delete_run_tombstones", "delete_run_lease"):
                    self._on(connection, name, run=run)
                self._on(connection, "delete_run", n=Int8(known.n))

        self._forgetting(run, work)
        self.reclaim()

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        known = self._look_up(run)
        if known is None:
            raise NotFound("run", run)
        return {row[0] for row in self._rows("held", n=Int8(known.n))}

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int, created_at: datetime) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds; writers elsewhere are waited for."""

        def work(connection: TimedConnection, _again: bool) -> None:  # noqa: FBT001
            with connection.transaction():
                known = self._locked(connection, run)
                if (known.record.last_seq, known.record.created_at) != (expected_seq, created_at):
                    raise HeadMoved(run, f"{run}@{expected_seq}", known.record.head)
                self._check_holds(connection, run, known)
                gone = self._chunks.let_go(connection, known.n, list(chunks))
                holds = known.record.holds - sum(times for _, times in gone)
                total = holds_sum(known.record.holds_sum, ((name, -times) for name, times in gone))
                self._put_run(connection, known, holds=holds, holds_sum=total)

        self._forgetting(run, work)
        self.reclaim()

    def reclaim(self) -> None:
        """Delete the objects whose chunk is gone and grace is over; in the database, autovacuum gives space back."""
        while self._connections.call(lambda connection, _: self._chunks.sweep_objects(connection)):
            pass

    def sweep_orphans(self) -> int:
        """Find objects that failed commits left behind and begin their grace; return how many. Lists the bucket."""
        return self._connections.call(lambda connection, _: self._chunks.doom_orphans(connection))

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint, None if none was deleted under this id."""
        for seq, checksum, seal in self._rows("tombstone", run=run, id=checkpoint):
            if seal != records.seal_tombstone(run, seq, checkpoint, checksum):
                raise CheckpointCorrupt("what it left when it was deleted does not match its checksum", checkpoint)
            return bytes(checksum)
        return None

    def tombstones(self, run: str) -> list[Tombstone]:
        """Return all that a run's deleted checkpoints left."""
        self.run(run)
        found = []
        for seq, checkpoint, checksum, seal in self._rows("tombstones", run=run):
            if seal != records.seal_tombstone(run, seq, checkpoint, checksum):
                raise CheckpointCorrupt("what it left when it was deleted does not match its checksum", checkpoint)
            found.append(Tombstone(seq=seq, id=checkpoint, checksum=bytes(checksum)))
        return found

    def bury(self, run: str, tombstone: Tombstone, *, created_at: datetime) -> None:
        """Take over a checkpoint that was deleted elsewhere as the run's next number."""
        seal = records.seal_tombstone(run, tombstone.seq, tombstone.id, tombstone.checksum)
        values = {"run": run, "seq": Int8(tombstone.seq), "id": tombstone.id, "checksum": tombstone.checksum}
        begun, begun_checksum = records.seal(_new_run(run, created_at))

        def work(connection: TimedConnection, again: bool) -> None:  # noqa: FBT001
            with connection.transaction():
                self._on(connection, "begin_run", run=run, record=begun, checksum=begun_checksum)
                known = self._locked(connection, run)
                if again and self._on(connection, "tombstone", run=run, id=tombstone.id):
                    return
                if known.record.last_seq != tombstone.seq - 1:
                    raise HeadMoved(run, f"{run}@{tombstone.seq - 1}", known.record.head)
                self._on(connection, "put_tombstone", seal=seal, **values)
                self._put_run(connection, known, last_seq=tombstone.seq)

        self._forgetting(run, work)

    def take_lease(self, run: str, *, owner: str, ttl_s: float) -> Lease:
        """Take the right to move a run, LeaseHeld if another owner has it; the time is the server's."""
        check_terms(owner, ttl_s)
        rows = self._rows("take_lease", run=run, owner=owner, ttl_s=float(ttl_s))
        if rows:
            return _lease(run, rows[0])
        holder = self.lease(run)
        if holder is None:  # it ended a moment ago
            return self.take_lease(run, owner=owner, ttl_s=ttl_s)
        raise LeaseHeld(run, holder.owner, holder.expires_at.isoformat())

    def renew_lease(self, lease: Lease, *, ttl_s: float) -> Lease:
        """Keep a lease for longer, LeaseLost if somebody took it."""
        check_terms(lease.owner, ttl_s)
        rows = self._rows("renew_lease", run=lease.run, token=Int8(lease.token), ttl_s=float(ttl_s))
        if not rows:
            raise self._refused(lease.run, "fenced", lease.token)
        return _lease(lease.run, rows[0])

    def end_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        self._rows("end_lease", run=lease.run, token=Int8(lease.token))

    def lease(self, run: str) -> Lease | None:
        """Return the running lease of a run."""
        rows = self._rows("lease", run=run)
        return _lease(run, rows[0]) if rows else None

    def wake(self, run: str) -> None:
        """Ring for all who listen for a run, on any machine."""
        channel = channel_of(self.schema, self.tenant)
        self._rows("wake", channel=channel, payload=payload_of(self.tenant, run))

    def listen(self, run: str) -> Bell:
        """Return a bell that hears every ring for the run from now on."""
        channel = channel_of(self.schema, self.tenant)
        return PostgresBell(self._settings, self.url, channel, payload_of(self.tenant, run))

    def damaged_runs(self) -> list[str]:
        """Return the runs whose record or holds are not as they were written."""
        found = [run for (run,) in self._rows("lost_runs")]
        listing = self.runs()
        found += [error.run for error in listing.damaged if isinstance(error, RunCorrupt)]
        if any(self._rows("strays")[0]):
            found += [run.id for run in listing]  # whose the holds were, nobody knows
        for run in listing:
            try:
                self._connections.call(lambda connection, _: self._recheck_holds(connection, run.id))  # noqa: B023 - at once
            except IntegrityError:
                found.append(run.id)
        return list(dict.fromkeys(found))

    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:
        """Make a run's record anew from its checkpoints; meanwhile its holds do not add up, so nothing is swept."""
        rows = self._rows("checkpoints", run=run, before=Int8(_EVERYTHING), limit=Int8(_EVERYTHING))
        sound: list[CheckpointRecord] = []
        for *row, seq in rows:
            with suppress(IntegrityError):
                sound.append(_placed(records.open_checkpoint(*row), run, seq))
        deleted = [
            seq
            for seq, checkpoint, checksum, seal in self._rows("tombstones", run=run)
            if seal == records.seal_tombstone(run, seq, checkpoint, checksum)
        ]
        if not rows and not deleted:
            with suppress(NotFound, IntegrityError):
                return self.run(run)
            return None  # nothing says that there was such a run
        last_seq = max([*deleted, *(row[-1] for row in rows), 0])
        fresh = made_anew(run, sound, checkpoints=len(rows), last_seq=last_seq)
        begun, begun_checksum = records.seal(fresh)
        needed = list(reach(sound))

        def work(connection: TimedConnection, _again: bool) -> RunRecord:  # noqa: FBT001
            with connection.transaction():
                self._on(connection, "begin_run", run=run, record=begun, checksum=begun_checksum)
                [[n, *sealed]] = self._on(connection, "lock_run", run=run)
                try:
                    record = records.open_run(run, *sealed)
                except RunCorrupt:
                    record = fresh
                self._on(connection, "add_holds", n=Int8(n), ids=needed)
                if not self._on(connection, "lost_runs"):
                    self._on(connection, "drop_strays")
                held = self._on(connection, "held", n=Int8(n))
                record = msgspec.structs.replace(
                    record, holds=sum(times for _, times in held), holds_sum=holds_sum(0, held)
                )
                data, checksum = records.seal(record)
                self._on(connection, "put_run", n=Int8(n), record=data, checksum=checksum)
                return record

        return self._forgetting(run, work)

    def check(self) -> Iterator[str]:
        """Yield settings of the server that may lose commits, and whether the bookkeeping of chunks adds up."""
        fsync, full_page_writes, _ = self._rows("settings")[0]
        if fsync != "on" or full_page_writes != "on":
            yield f"the server runs with fsync={fsync}, full_page_writes={full_page_writes}: a crash may lose commits"
        for what, count in zip(("runs", "chunks"), self._rows("strays")[0], strict=True):
            if count:
                yield f"{count} holds name {what} that are not there"
        for (lost,) in self._rows("lost_runs"):
            yield str(RunCorrupt("its record vanished while its checkpoints are there", lost))
        for run in self.runs():
            try:
                self._connections.call(lambda connection, _: self._recheck_holds(connection, run.id))  # noqa: B023 - at once
            except IntegrityError as error:
                yield str(error)

    def stats(self) -> StoreStats:
        """Count what is stored by this tenant; the size is of all tenants' tables together."""
        runs, checkpoints, oldest, newest, chunks, plain, stored = self._rows("stats")[0]
        return StoreStats(
            url=self.url, engine=f"PostgreSQL {self._rows('settings')[0][2]}", runs=runs, checkpoints=checkpoints,
            chunks=chunks, chunk_bytes=plain, stored_bytes=stored, file_bytes=self._rows("relation_bytes")[0][0],
            oldest_at=oldest, newest_at=newest,
        )  # fmt: skip

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connections.call(lambda connection, _: self._on(connection, name, **values))

    def _on(self, connection: TimedConnection, name: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(_Q[name], {"tenant": self.tenant, **values}, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _look_up(self, run: str) -> _Known | None:
        """Read a run's record and remember it."""
        rows = self._rows("run", run=run)
        known = _Known(rows[0][0], records.open_run(run, *rows[0][1:]), rows[0][2]) if rows else None
        self._remember(run, known, True)
        return known

    def _remember(self, run: str, known: _Known | None, keep: bool) -> None:  # noqa: FBT001
        if len(self._known) >= _REMEMBERED_RUNS:
            self._known.clear()
        if keep:
            self._known[run] = known
        else:
            self._known.pop(run, None)

    def _forgetting(self, run: str, work: Callable[[TimedConnection, bool], T]) -> T:
        """Do work that changes a run's record, and forget what was known of it."""
        try:
            return self._connections.call(work)
        finally:
            self._known.pop(run, None)

    def _locked(self, connection: TimedConnection, run: str) -> _Known:
        """Return a run, locked until the transaction ends."""
        rows = self._on(connection, "lock_run", run=run)
        if not rows:
            raise NotFound("run", run)
        return _Known(rows[0][0], records.open_run(run, *rows[0][1:]), rows[0][2])

    def _put_run(self, connection: TimedConnection, known: _Known, **changes: Any) -> None:
        record, checksum = records.seal(msgspec.structs.replace(known.record, **changes))
        self._on(connection, "put_run", n=Int8(known.n), record=record, checksum=checksum)

    def _check_holds(self, connection: TimedConnection, run: str, known: _Known) -> None:
        """Raise unless a run's holds add up: nothing is swept by damaged bookkeeping."""
        held = self._on(connection, "held", n=Int8(known.n))
        counted = sum(times for _, times in held), holds_sum(0, held)
        if counted != (known.record.holds, known.record.holds_sum):
            raise RunCorrupt("the list of chunks that it holds is damaged, so nothing is swept", run)

    def _recheck_holds(self, connection: TimedConnection, run: str) -> None:
        with connection.transaction():
            try:
                self._check_holds(connection, run, self._locked(connection, run))
            except NotFound:
                return

    def _is_stored(self, record: CheckpointRecord) -> bool:
        """Tell whether this very checkpoint is there: then its commit was done and only the answer was lost."""
        rows = self._rows("checkpoint_at", run=record.envelope.run, seq=of_64_bits(record.envelope.seq))
        return bool(rows) and (rows[0][0], rows[0][2]) == (record.envelope.id, record.checksum)

    def _refused(self, run: str, outcome: str, fence: int | None) -> LeaseHeld | LeaseLost:
        holder = self.lease(run)
        if outcome == "held" and holder is not None:
            return LeaseHeld(run, holder.owner, holder.expires_at.isoformat())
        return LeaseLost(run, fence or 0, holder.owner if holder else None)


def _is_at(known: _Known | None, head: str | None, envelope: Envelope) -> bool:
    """Tell whether a run stands where the writer of this envelope thinks."""
    if known is None:
        return head is None and envelope.seq == 1
    return known.record.head == head and known.record.last_seq == envelope.seq - 1


def _may_be_pinned(row: tuple[Any, ...]) -> bool:
    try:
        return records.open_checkpoint(*row).marks.pinned
    except IntegrityError:
        return True


def _new_run(run: str, created_at: datetime) -> RunRecord:
    return RunRecord(
        format_version=FORMAT_VERSION, id=run, head=None, last_seq=0, checkpoints=0,
        created_at=created_at, updated_at=created_at,
    )  # fmt: skip


def _extended(known: _Known | None, envelope: Envelope, brought: Sequence[bytes]) -> RunRecord:
    run = known.record if known else _new_run(envelope.run, envelope.created_at)
    return msgspec.structs.replace(
        run,
        head=envelope.id,
        last_seq=envelope.seq,
        checkpoints=run.checkpoints + 1,
        updated_at=envelope.created_at,
        holds=run.holds + len(brought),
        holds_sum=holds_sum(run.holds_sum, ((name, 1) for name in brought)),
    )


def _placed(record: CheckpointRecord, run: str, seq: int) -> CheckpointRecord:
    if (record.envelope.run, record.envelope.seq) != (run, seq):
        raise CheckpointCorrupt(f"its record stands in the place of {run}@{seq}", record.envelope.id)
    return record


def _lease(run: str, row: tuple[Any, ...]) -> Lease:
    owner, token, expires_at = row
    return Lease(run=run, owner=owner, token=token, expires_at=expires_at)
