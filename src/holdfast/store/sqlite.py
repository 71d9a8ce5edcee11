"""The SQLite store: one file, a write-ahead log, one sync a commit, many processes.

Every method is one transaction. A connection that met an I/O error is thrown away, because what the operating system
holds after a failed sync is not what was written.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from weakref import WeakSet

import apsw
import msgspec

from holdfast.encode import records
from holdfast.encode.chunks import Chunk
from holdfast.errors import (
    CheckpointCorrupt,
    Conflict,
    HeadMoved,
    IntegrityError,
    NotFound,
    RunCorrupt,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from holdfast.model.checkpoint import CheckpointRecord, RunRecord
from holdfast.store import sqlite_lease, sqlite_rebuild
from holdfast.store.api import Listing, StoreStats, StoreTraits, Tombstone
from holdfast.store.bell import CountedBell
from holdfast.store.lease import check_terms
from holdfast.store.prefix import id_range
from holdfast.store.sqlite_chunks import add_chunks, bad_holds, check_holds
from holdfast.store.sqlite_file import Durability, connect, translated
from holdfast.store.sqlite_rows import (
    CHECKPOINT_COLUMNS,
    CHUNK_COLUMNS,
    RUN_COLUMNS,
    as_bytes,
    as_number,
    bad_tombstones,
    begin_run,
    checkpoint_of,
    count_tombstones,
    lost_runs,
    may_be_pinned,
    misnumbered,
    opened,
    opened_run,
    placed,
    put_marks,
    put_run,
    run_of,
    taken_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from holdfast.model.checkpoint import Envelope, Marks
    from holdfast.store.bell import Bell
    from holdfast.store.lease import Lease

_FETCH_AT_ONCE = 200
_RECLAIM_PAGES = 2_000  # pages given back in one transaction: about 10 ms for other writers to wait


_stores: WeakSet[SQLiteStore] = WeakSet()


@cache
def _register_at_fork() -> None:
    """Let no connection cross a fork.

    SQLite counts a process's locks in memory that a child inherits, so a child would believe to hold its parent's,
    and the first side to close would delete the log that the other still writes.
    """
    held: list[SQLiteStore] = []

    def before() -> None:
        for store in list(_stores):
            store.lock_for_fork()
            held.append(store)

    def after() -> None:
        while held:
            held.pop().unlock_after_fork()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


class SQLiteStore:
    """Runs, checkpoints and chunks in one SQLite file."""

    traits = StoreTraits(durable=True, many_processes=True)

    def __init__(
        self, path: Path | str, *, durability: Durability = "power", read_only: bool = False, vfs: str | None = None
    ) -> None:
        if durability not in ("power", "process"):
            raise UsageError(f"unknown durability {durability!r}: use 'power' or 'process'")
        self.path = Path(path).absolute()
        self.folder = self.path.parent
        self.own_paths = tuple(Path(f"{self.path}{end}") for end in ("", "-wal", "-shm", "-journal"))
        self.url = f"sqlite://{quote(str(self.path))}"
        self._durability: Durability = durability
        self._read_only = read_only
        self._vfs = vfs
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None
        self._process = os.getpid()
        self._closed = False
        _register_at_fork()
        _stores.add(self)
        with self._reading():
            pass

    def commit(
        self,
        envelope: Envelope,
        marks: Marks,
        chunks: Collection[Chunk],
        *,
        expected_head: str | None,
        fence: int | None = None,
    ) -> CheckpointRecord:
        """Store chunks and checkpoint and move the head in one transaction, synced before it returns."""
        sealed, checksum = records.seal(envelope)
        sealed_marks, marks_checksum = records.seal_marks(envelope.id, marks)
        with self._writing() as execute:
            sqlite_lease.check_fenced(execute, envelope.run, fence)
            number, run = self._run_to_extend(execute, envelope, expected_head)
            added, added_sum = add_chunks(execute, number, chunks)
            execute(
                "INSERT INTO checkpoint (id, run, seq, envelope, checksum, marks, marks_checksum) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (envelope.id, envelope.run, envelope.seq, sealed, checksum, sealed_marks, marks_checksum),
            )
            extended = msgspec.structs.replace(
                run,
                head=envelope.id,
                last_seq=envelope.seq,
                checkpoints=run.checkpoints + 1,
                updated_at=envelope.created_at,
                holds=run.holds + added,
                holds_sum=run.holds_sum + added_sum,
            )
            put_run(execute, number, extended)
        return CheckpointRecord(envelope, checksum, marks)

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""
        with self._reading() as execute:
            return run_of(execute, run)[1]

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""
        with self._snapshot() as execute:
            rows = execute(
                f"SELECT {RUN_COLUMNS} FROM run ORDER BY n DESC LIMIT ?",  # noqa: S608 - our columns
                (-1 if limit is None else limit,),
            ).fetchall()
            damaged = list(lost_runs(execute, self.url))
        found: dict[str, RunRecord] = {}
        for row in rows:
            try:
                record = opened_run(row)
                if found.setdefault(record.id, record) is not record:
                    raise RunCorrupt("its record is there twice", record.id)
            except IntegrityError as error:
                damaged.append(error)
        return Listing(list(found.values()), damaged)

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, NotFound if there is none."""
        with self._reading() as execute:
            return checkpoint_of(execute, checkpoint)

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted."""
        with self._reading() as execute:
            rows = execute(
                f"SELECT {CHECKPOINT_COLUMNS} FROM checkpoint WHERE run = ? AND seq = ?",  # noqa: S608 - our columns
                (run, seq),
            ).fetchall()
            if rows:
                return placed(opened(rows[0]), run, seq)
            if count_tombstones(execute, run, seq, seq):
                return None
        raise CheckpointCorrupt("it vanished from the store without having been deleted", f"{run}@{seq}")

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first; numbers that vanished are reported as damage."""
        with self._snapshot() as execute:
            upper = run_of(execute, run)[1].last_seq + 1
            damaged: list[IntegrityError] = list(misnumbered(execute, run)) if before_seq is None else []
            upper = upper if before_seq is None else min(before_seq, upper)
            rows = execute(
                f"SELECT {CHECKPOINT_COLUMNS}, {as_number('seq')} FROM checkpoint WHERE run = ? AND seq < ? "  # noqa: S608
                "ORDER BY seq DESC LIMIT ?",
                (run, upper, -1 if limit is None else limit),
            ).fetchall()
            found: list[CheckpointRecord] = []
            complete = limit is None or len(rows) < limit
            for *row, seq in [*rows, (None, 0)] if complete else rows:
                gap = upper - seq - 1
                if gap and gap != count_tombstones(execute, run, seq + 1, upper - 1):
                    name = f"{run}@{seq + 1}..{upper - 1}"
                    damaged.append(CheckpointCorrupt("vanished from the store without having been deleted", name))
                upper = seq
                if seq:
                    try:
                        found.append(placed(opened(row), run, seq))
                    except IntegrityError as error:
                        damaged.append(error)
        return Listing(found, damaged)

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there, as they are stored."""
        found: dict[bytes, Chunk] = {}
        with self._reading() as execute:
            for start in range(0, len(ids), _FETCH_AT_ONCE):
                some = ids[start : start + _FETCH_AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"SELECT {CHUNK_COLUMNS} FROM chunk WHERE id IN ({marks})"  # noqa: S608 - only ? marks
                for row in execute(query, tuple(some)):
                    found[row[0]] = Chunk(*row)
        return found

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk, a page of them at a time."""
        last = -1
        while True:
            with self._reading() as execute:
                rows = execute(
                    f"SELECT n, {as_bytes('id')} FROM chunk WHERE n > ? ORDER BY n LIMIT 1000",  # noqa: S608 - our column
                    (last,),
                ).fetchall()
            if not rows:
                return
            if rows[-1][0] <= last:
                raise StoreCorrupt("the rows of its chunks are out of order, so they cannot be listed", self.url)
            yield from (row[1] for row in rows)
            last = rows[-1][0]

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix."""
        bounds = id_range(prefix)
        with self._reading() as execute:
            query = "SELECT id FROM checkpoint WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?"
            return [row[0] for row in execute(query, (*bounds, limit)).fetchall()] if bounds else []

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks."""
        with self._writing() as execute:
            if expected is not None:
                record = checkpoint_of(execute, checkpoint)
                if record.marks != expected:
                    raise Conflict(record.envelope.run)
            if not put_marks(execute, checkpoint, marks):
                raise NotFound("checkpoint", checkpoint)

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace the marks that are as expected, and return the ids of the others."""
        left: list[str] = []
        with self._writing() as execute:
            run_of(execute, run)
            for checkpoint, (expected, marks) in changes.items():
                try:
                    record = checkpoint_of(execute, checkpoint)
                    is_expected = record.envelope.run == run and record.marks == expected
                except (NotFound, IntegrityError):
                    is_expected = False
                if not is_expected or not put_marks(execute, checkpoint, marks):
                    left.append(checkpoint)
        return left

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints of one run; if its head is among them, the highest one left becomes the head."""
        with self._writing() as execute:
            number, record = run_of(execute, run)
            spared = [one for one in checkpoints if spare_pinned and may_be_pinned(execute, one)]
            doomed = [one for one in checkpoints if one not in spared]
            for checkpoint in doomed:
                rows = execute(
                    f"DELETE FROM checkpoint WHERE id = ? AND run = ? RETURNING seq, {as_bytes('checksum')}",  # noqa: S608
                    (checkpoint, run),
                ).fetchall()
                if not rows:
                    raise NotFound("checkpoint", checkpoint)
                seq, checksum = rows[0]
                execute(
                    "INSERT INTO tombstone (run, seq, id, checksum, seal) VALUES (?, ?, ?, ?, ?)",
                    (run, seq, checkpoint, checksum, records.seal_tombstone(run, seq, checkpoint, checksum)),
                )
            head = record.head
            if head in doomed:
                left = execute("SELECT id FROM checkpoint WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)).fetchall()
                head = left[0][0] if left else None
            count = record.checkpoints - len(doomed)
            put_run(execute, number, msgspec.structs.replace(record, head=head, checkpoints=count))
        return spared

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds; what it held is overwritten, not just unlinked."""
        with self._writing(erase=True) as execute:
            number, _ = run_of(execute, run)
            check_holds(execute)
            execute("DELETE FROM checkpoint WHERE run = ?", (run,))
            execute("DELETE FROM tombstone WHERE run = ?", (run,))
            execute("DELETE FROM ring WHERE run = ?", (run,))
            sqlite_lease.expire(execute, run)
            execute(
                "DELETE FROM chunk WHERE n IN (SELECT chunk FROM hold WHERE run = ?1) "
                "AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.chunk = chunk.n AND hold.run <> ?1)",
                (number,),
            )
            execute("DELETE FROM hold WHERE run = ?", (number,))
            execute("DELETE FROM run WHERE n = ?", (number,))
        self.reclaim()

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        with self._reading() as execute:
            number, _ = run_of(execute, run)
            return {
                row[0]
                for row in execute(
                    "SELECT CAST(chunk.id AS BLOB) FROM hold JOIN chunk ON chunk.n = hold.chunk WHERE run = ?",
                    (number,),
                )
            }

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int, created_at: datetime) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds."""
        with self._writing(erase=True) as execute:
            number, record = run_of(execute, run)
            if (record.last_seq, record.created_at) != (expected_seq, created_at):
                raise HeadMoved(run, f"{run}@{expected_seq}", record.head)
            check_holds(execute)
            holds, holds_sum = record.holds, record.holds_sum
            for chunk in chunks:
                gone = execute(
                    "DELETE FROM hold WHERE run = ? AND chunk = (SELECT n FROM chunk WHERE id = ?) RETURNING chunk",
                    (number, chunk),
                ).fetchall()
                for (n,) in gone:
                    holds, holds_sum = holds - 1, holds_sum - n
                    execute("DELETE FROM chunk WHERE n = ?1 AND NOT EXISTS (SELECT 1 FROM hold WHERE chunk = ?1)", (n,))
            put_run(execute, number, msgspec.structs.replace(record, holds=holds, holds_sum=holds_sum))

    def reclaim(self) -> None:
        """Give freed pages back to the file system, a slice at a time so that writers get in between."""
        while True:
            with self._writing() as execute:
                free = execute("PRAGMA freelist_count").fetchall()[0][0]
                execute(f"PRAGMA incremental_vacuum({_RECLAIM_PAGES})").fetchall()
            if free <= _RECLAIM_PAGES:
                break
        with self._reading() as execute:
            # Another process may be reading: then the log stays as it is and is reused.
            execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint, None if none was deleted under this id."""
        with self._reading() as execute:
            rows = execute(
                f"SELECT seq, {as_bytes('checksum')}, seal FROM tombstone WHERE run = ? AND id = ?",  # noqa: S608
                (run, checkpoint),
            )
            for seq, checksum, seal in rows.fetchall():
                if seal != records.seal_tombstone(run, seq, checkpoint, checksum):
                    raise CheckpointCorrupt("what it left when it was deleted does not match its checksum", checkpoint)
                return bytes(checksum)
        return None

    def tombstones(self, run: str) -> list[Tombstone]:
        """Return all that a run's deleted checkpoints left."""
        with self._reading() as execute:
            run_of(execute, run)
            return sqlite_lease.tombstones(execute, run)

    def bury(self, run: str, tombstone: Tombstone, *, created_at: datetime) -> None:
        """Take over a checkpoint that was deleted elsewhere as the run's next number."""
        with self._writing() as execute:
            try:
                number, record = run_of(execute, run)
            except NotFound:
                number, record = begin_run(execute, run, created_at)
            if record.last_seq != tombstone.seq - 1:
                raise HeadMoved(run, f"{run}@{tombstone.seq - 1}", record.head)
            sqlite_lease.bury(execute, run, tombstone)
            put_run(execute, number, msgspec.structs.replace(record, last_seq=tombstone.seq))

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:  # noqa: ARG002
        """Do nothing: there is one version of the schema so far."""
        return []

    def take_lease(self, run: str, *, owner: str, ttl_s: float) -> Lease:
        """Take the right to move a run, LeaseHeld if another owner has it."""
        check_terms(owner, ttl_s)
        with self._writing() as execute:
            return sqlite_lease.take(execute, run, owner, ttl_s)

    def renew_lease(self, lease: Lease, *, ttl_s: float) -> Lease:
        """Keep a lease for longer, LeaseLost if somebody took it."""
        check_terms(lease.owner, ttl_s)
        with self._writing() as execute:
            return sqlite_lease.renew(execute, lease, ttl_s)

    def end_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._writing() as execute:
            sqlite_lease.end(execute, lease)

    def lease(self, run: str) -> Lease | None:
        """Return the running lease of a run."""
        with self._reading() as execute:
            return sqlite_lease.running(execute, run)

    def wake(self, run: str) -> None:
        """Ring for all who listen for a run."""
        with self._writing() as execute:
            sqlite_lease.ring(execute, run)

    def listen(self, run: str) -> Bell:
        """Return a bell that hears every ring for the run from now on."""
        return CountedBell(lambda: self._rings(run))

    def _rings(self, run: str) -> int:
        with self._reading() as execute:
            return sqlite_lease.rings(execute, run)

    def check(self) -> Iterator[str]:
        """Yield what SQLite finds wrong with the file, and whether the bookkeeping of chunks adds up."""
        with self._snapshot() as execute:
            found = [str(line) for (line,) in execute("PRAGMA integrity_check").fetchall() if line != "ok"]
            found += map(str, bad_holds(execute))
            found += bad_tombstones(execute)
            found += [str(RunCorrupt(sqlite_lease.DAMAGED, run)) for run in sqlite_lease.damaged(execute)]
        yield from found

    def damaged_runs(self) -> list[str]:
        """Return the runs whose record, holds or lease are not as they were written."""
        with self._snapshot() as execute:
            return sqlite_rebuild.damaged_runs(execute, self.url)

    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:
        """Make a run's record anew from its checkpoints, in one transaction."""
        with self._writing() as execute:
            return sqlite_rebuild.rebuild(execute, self.url, run, reach)

    def stats(self) -> StoreStats:
        """Count what is stored."""
        with self._reading() as execute:
            runs, checkpoints = (
                execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - our tables
                for table in ("run", "checkpoint")
            )
            chunks, plain, stored = execute(
                "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(length(data)), 0) FROM chunk"
            ).fetchall()[0]
            oldest, newest = (taken_at(execute, order) for order in ("ASC", "DESC"))
        size = sum(file.stat().st_size for file in (self.path, Path(f"{self.path}-wal")) if file.exists())
        engine = f"SQLite {apsw.sqlite_lib_version()}"
        return StoreStats(
            url=self.url, engine=engine, runs=runs, checkpoints=checkpoints,
            chunks=chunks, chunk_bytes=plain, stored_bytes=stored, file_bytes=size,
            oldest_at=oldest, newest_at=newest,
        )  # fmt: skip

    def close(self) -> None:
        """Close the connection; the last one to close folds the log into the file."""
        with self._lock:
            self._closed = True
            self._drop()

    def lock_for_fork(self) -> None:
        """Wait for other threads' transactions, and let the connection go; the next call opens another."""
        self._lock.acquire()
        if self._connection is not None and self._connection.get_autocommit():
            self._drop()

    def unlock_after_fork(self) -> None:
        """Let other threads go on."""
        self._lock.release()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """Give out `execute` on a sound connection, one thread at a time."""
        with self._lock, translated(self.url):
            if self._closed:
                raise UsageError(f"store {self.url} is closed; open it again")
            if self._process != os.getpid():
                # A connection must not cross a fork: leave the parent's alone, without closing it.
                self._process, self._forked, self._connection = os.getpid(), self._connection, None
            if self._connection is None:
                self._connection = connect(
                    self.path, durability=self._durability, read_only=self._read_only, vfs=self._vfs
                )
            try:
                yield self._connection.execute
            except (apsw.IOError, apsw.FullError, apsw.CorruptError):
                self._drop()
                raise

    @contextmanager
    def _snapshot(self) -> Iterator[Any]:
        """Give out `execute` inside a transaction that reads: all its looks see the store at one moment."""
        with self._reading() as execute:
            execute("BEGIN")
            try:
                yield execute
            finally:
                self._roll_back()  # there is nothing to commit

    @contextmanager
    def _writing(self, *, erase: bool = False) -> Iterator[Any]:
        """Give out `execute` inside a transaction that is committed at the end, or leaves nothing."""
        if self._read_only:
            raise StoreUnavailable(self.url, "it was opened read-only; open it without read_only to write")
        with self._reading() as execute:
            if erase:
                execute("PRAGMA secure_delete = ON").fetchall()
            execute("BEGIN IMMEDIATE")
            try:
                yield execute
                execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                if erase and self._connection is not None:
                    execute("PRAGMA secure_delete = OFF").fetchall()

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is None or connection.get_autocommit():
            return
        try:
            connection.execute("ROLLBACK")
        except apsw.Error:
            self._drop()

    def _drop(self) -> None:
        """Throw the connection away; what it could not write is rolled back by the next one."""
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            try:
                connection.close(True)
            except apsw.Error as error:
                if not self._closed:
                    return
                raise StoreError(self.url, f"could not be closed cleanly ({error})") from error

    def _run_to_extend(self, execute: Any, envelope: Envelope, expected_head: str | None) -> tuple[int, RunRecord]:
        """Return the run that a commit extends, begun if it is new; HeadMoved if it is not where the writer thinks."""
        try:
            number, run = run_of(execute, envelope.run)
        except NotFound:
            if expected_head is not None:
                raise HeadMoved(envelope.run, expected_head, None) from None
            number, run = begin_run(execute, envelope.run, envelope.created_at)
        if run.head != expected_head or run.last_seq != envelope.seq - 1:
            raise HeadMoved(envelope.run, expected_head, run.head)
        return number, run
