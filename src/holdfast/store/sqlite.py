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
    HeadMoved,
    IntegrityError,
    NotFound,
    RunCorrupt,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, RunRecord
from holdfast.store import sqlite_lease
from holdfast.store.api import Listing, StoreStats, StoreTraits, Tombstone
from holdfast.store.bell import CountedBell
from holdfast.store.lease import check_terms
from holdfast.store.sqlite_file import Durability, connect, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from holdfast.model.checkpoint import Envelope, Marks
    from holdfast.store.bell import Bell
    from holdfast.store.lease import Lease

_FETCH_AT_ONCE = 200
_RECLAIM_PAGES = 2_000  # pages given back in one transaction: about 10 ms for other writers to wait


def _bytes(column: str) -> str:
    """Read a column as bytes whatever damage made of its type: the checksum decides whether they are right."""
    return f"coalesce(CAST({column} AS BLOB), x'')"


def _number(column: str) -> str:
    return f"coalesce(CAST({column} AS INTEGER), -1)"


_CHECKPOINT_COLUMNS = ", ".join(map(_bytes, ("id", "envelope", "checksum", "marks", "marks_checksum")))
_RUN_COLUMNS = ", ".join(map(_bytes, ("id", "record", "checksum")))
_CHUNK_COLUMNS = ", ".join((_bytes("id"), _number("codec"), _number("size"), _bytes("data")))
_TOMBSTONE_COLUMNS = ", ".join((_bytes("run"), _number("seq"), _bytes("id"), _bytes("checksum"), _bytes("seal")))
_BEGUN_RUNS = """
    WITH RECURSIVE begun (id) AS (
        SELECT min(run) FROM checkpoint
        UNION ALL SELECT (SELECT min(run) FROM checkpoint WHERE run > begun.id) FROM begun WHERE begun.id IS NOT NULL
    )
    SELECT CAST(id AS BLOB) FROM begun WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM run)
"""  # steps from run to run in the index, so it costs nothing for each checkpoint


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
            raise UsageError(f"unknown durability {durability!a}: use 'power' or 'process'")
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
            added, added_sum = _add_chunks(execute, number, chunks)
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
            _put_run(execute, number, extended)
        return CheckpointRecord(envelope, checksum, marks)

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""
        with self._reading() as execute:
            return _run(execute, run)[1]

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""
        with self._reading() as execute:
            rows = execute(
                f"SELECT {_RUN_COLUMNS} FROM run ORDER BY n DESC LIMIT ?",  # noqa: S608 - our columns
                (-1 if limit is None else limit,),
            ).fetchall()
            damaged = list(_lost_runs(execute, self.url))
        found: dict[str, RunRecord] = {}
        for row in rows:
            try:
                record = _opened_run(row)
                if found.setdefault(record.id, record) is not record:
                    raise RunCorrupt("its record is there twice", record.id)
            except IntegrityError as error:
                damaged.append(error)
        return Listing(list(found.values()), damaged)

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, NotFound if there is none."""
        with self._reading() as execute:
            return _checkpoint(execute, checkpoint)

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted."""
        with self._reading() as execute:
            rows = execute(
                f"SELECT {_CHECKPOINT_COLUMNS} FROM checkpoint WHERE run = ? AND seq = ?",  # noqa: S608 - our columns
                (run, seq),
            ).fetchall()
            if rows:
                return _placed(_opened(rows[0]), run, seq)
            if _count_tombstones(execute, run, seq, seq):
                return None
        raise CheckpointCorrupt("it vanished from the store without having been deleted", f"{run}@{seq}")

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first; numbers that vanished are reported as damage."""
        with self._reading() as execute:
            upper = _run(execute, run)[1].last_seq + 1
            upper = upper if before_seq is None else min(before_seq, upper)
            rows = execute(
                f"SELECT {_CHECKPOINT_COLUMNS}, {_number('seq')} FROM checkpoint WHERE run = ? AND seq < ? "  # noqa: S608
                "ORDER BY seq DESC LIMIT ?",
                (run, upper, -1 if limit is None else limit),
            ).fetchall()
            found: list[CheckpointRecord] = []
            damaged: list[IntegrityError] = []
            complete = limit is None or len(rows) < limit
            for *row, seq in [*rows, (None, 0)] if complete else rows:
                gap = upper - seq - 1
                if gap and gap != _count_tombstones(execute, run, seq + 1, upper - 1):
                    name = f"{run}@{seq + 1}..{upper - 1}"
                    damaged.append(CheckpointCorrupt("vanished from the store without having been deleted", name))
                upper = seq
                if seq:
                    try:
                        found.append(_placed(_opened(row), run, seq))
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
                query = f"SELECT {_CHUNK_COLUMNS} FROM chunk WHERE id IN ({marks})"  # noqa: S608 - only ? marks
                for row in execute(query, tuple(some)):
                    found[row[0]] = Chunk(*row)
        return found

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk, a page of them at a time."""
        last = -1
        while True:
            with self._reading() as execute:
                rows = execute(
                    f"SELECT n, {_bytes('id')} FROM chunk WHERE n > ? ORDER BY n LIMIT 1000",  # noqa: S608 - our column
                    (last,),
                ).fetchall()
            if not rows:
                return
            if rows[-1][0] <= last:
                raise StoreCorrupt("the rows of its chunks are out of order, so they cannot be listed", self.url)
            yield from (row[1] for row in rows)
            last = rows[-1][0]

    def mark(self, checkpoint: str, marks: Marks) -> None:
        """Replace a checkpoint's marks."""
        data, checksum = records.seal_marks(checkpoint, marks)
        with self._writing() as execute:
            changed = execute(
                "UPDATE checkpoint SET marks = ?, marks_checksum = ? WHERE id = ? RETURNING id",
                (data, checksum, checkpoint),
            ).fetchall()
            if not changed:
                raise NotFound("checkpoint", checkpoint)

    def delete(self, run: str, checkpoints: Sequence[str]) -> None:
        """Delete checkpoints of one run; if its head is among them, the highest one left becomes the head."""
        with self._writing() as execute:
            number, record = _run(execute, run)
            for checkpoint in checkpoints:
                rows = execute(
                    f"DELETE FROM checkpoint WHERE id = ? AND run = ? RETURNING seq, {_bytes('checksum')}",  # noqa: S608
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
            if head in checkpoints:
                left = execute("SELECT id FROM checkpoint WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)).fetchall()
                head = left[0][0] if left else None
            count = record.checkpoints - len(checkpoints)
            _put_run(execute, number, msgspec.structs.replace(record, head=head, checkpoints=count))

    def delete_run(self, run: str) -> None:
        """Delete a run with all that no other run holds; what it held is overwritten, not just unlinked."""
        with self._writing(erase=True) as execute:
            number, _ = _run(execute, run)
            _check_holds(execute)
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
            number, _ = _run(execute, run)
            return {
                row[0]
                for row in execute(
                    "SELECT CAST(chunk.id AS BLOB) FROM hold JOIN chunk ON chunk.n = hold.chunk WHERE run = ?",
                    (number,),
                )
            }

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int) -> None:
        """Let a run's hold on chunks go, and delete what nobody holds."""
        with self._writing(erase=True) as execute:
            number, record = _run(execute, run)
            if record.last_seq != expected_seq:
                raise HeadMoved(run, f"{run}@{expected_seq}", record.head)
            _check_holds(execute)
            holds, holds_sum = record.holds, record.holds_sum
            for chunk in chunks:
                gone = execute(
                    "DELETE FROM hold WHERE run = ? AND chunk = (SELECT n FROM chunk WHERE id = ?) RETURNING chunk",
                    (number, chunk),
                ).fetchall()
                for (n,) in gone:
                    holds, holds_sum = holds - 1, holds_sum - n
                    execute("DELETE FROM chunk WHERE n = ?1 AND NOT EXISTS (SELECT 1 FROM hold WHERE chunk = ?1)", (n,))
            _put_run(execute, number, msgspec.structs.replace(record, holds=holds, holds_sum=holds_sum))

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
                f"SELECT seq, {_bytes('checksum')}, seal FROM tombstone WHERE run = ? AND id = ?",  # noqa: S608
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
            _run(execute, run)
            return sqlite_lease.tombstones(execute, run)

    def bury(self, run: str, tombstone: Tombstone, *, created_at: datetime) -> None:
        """Take over a checkpoint that was deleted elsewhere as the run's next number."""
        with self._writing() as execute:
            try:
                number, record = _run(execute, run)
            except NotFound:
                number, record = _begin_run(execute, run, created_at)
            if record.last_seq != tombstone.seq - 1:
                raise HeadMoved(run, f"{run}@{tombstone.seq - 1}", record.head)
            sqlite_lease.bury(execute, run, tombstone)
            _put_run(execute, number, msgspec.structs.replace(record, last_seq=tombstone.seq))

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
        with self._reading() as execute:
            for (line,) in execute("PRAGMA integrity_check").fetchall():
                if line != "ok":
                    yield str(line)
            try:
                _check_holds(execute)
            except IntegrityError as error:
                yield str(error)
            yield from _bad_tombstones(execute)

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
        size = sum(file.stat().st_size for file in (self.path, Path(f"{self.path}-wal")) if file.exists())
        engine = f"SQLite {apsw.sqlite_lib_version()}"
        return StoreStats(
            url=self.url, engine=engine, runs=runs, checkpoints=checkpoints,
            chunks=chunks, chunk_bytes=plain, stored_bytes=stored, file_bytes=size,
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
            number, run = _run(execute, envelope.run)
        except NotFound:
            if expected_head is not None:
                raise HeadMoved(envelope.run, expected_head, None) from None
            number, run = _begin_run(execute, envelope.run, envelope.created_at)
        if run.head != expected_head or run.last_seq != envelope.seq - 1:
            raise HeadMoved(envelope.run, expected_head, run.head)
        return number, run


def _begin_run(execute: Any, run: str, created_at: datetime) -> tuple[int, RunRecord]:
    """Return a new run's number and record; its row is filled by whoever begins it."""
    record = RunRecord(
        format_version=FORMAT_VERSION, id=run, head=None, last_seq=0, checkpoints=0,
        created_at=created_at, updated_at=created_at,
    )  # fmt: skip
    rows = execute("INSERT INTO run (id, record, checksum) VALUES (?, ?, ?) RETURNING n", (run, b"", b""))
    return rows.fetchall()[0][0], record


def _run(execute: Any, run: str) -> tuple[int, RunRecord]:
    rows = execute(
        f"SELECT n, {_RUN_COLUMNS}, (SELECT max(seq) FROM checkpoint WHERE run = ?1) FROM run WHERE id = ?1",  # noqa: S608
        (run,),
    ).fetchall()
    if rows:
        number, *row, highest = rows[0]
        record = _opened_run(row)
        if isinstance(highest, int) and highest > record.last_seq:
            raise RunCorrupt(f"its record ends at {record.last_seq}, its checkpoints at {highest}: it is stale", run)
        return number, record
    if execute("SELECT 1 FROM checkpoint WHERE run = ? LIMIT 1", (run,)).fetchall():
        raise RunCorrupt("its record vanished while its checkpoints are there", run)
    raise NotFound("run", run)


def _put_run(execute: Any, number: int, run: RunRecord) -> None:
    record, checksum = records.seal(run)
    execute("UPDATE run SET record = ?, checksum = ? WHERE n = ?", (record, checksum, number))


def _checkpoint(execute: Any, checkpoint: str) -> CheckpointRecord:
    rows = execute(f"SELECT {_CHECKPOINT_COLUMNS} FROM checkpoint WHERE id = ?", (checkpoint,)).fetchall()  # noqa: S608
    if not rows:
        if execute("SELECT 1 FROM checkpoint NOT INDEXED WHERE id = ?", (checkpoint,)).fetchall():
            raise CheckpointCorrupt("it is there, but the index of checkpoints does not know it", checkpoint)
        raise NotFound("checkpoint", checkpoint)
    record = _opened(rows[0])
    if record.envelope.id != checkpoint:
        raise CheckpointCorrupt("the index of checkpoints leads to another one", checkpoint)
    return record


def _opened(row: Sequence[bytes]) -> CheckpointRecord:
    return records.open_checkpoint(row[0].decode(errors="replace"), *row[1:])


def _opened_run(row: Sequence[bytes]) -> RunRecord:
    return records.open_run(row[0].decode(errors="replace"), *row[1:])


def _lost_runs(execute: Any, store: str) -> Iterator[IntegrityError]:
    """Find what a list of runs lacks: runs that have checkpoints but no record, or are in the index only."""
    for (run,) in execute(_BEGUN_RUNS).fetchall():
        yield RunCorrupt("its record vanished while its checkpoints are there", run.decode(errors="replace"))
    listed = execute("SELECT count(*) FROM run NOT INDEXED").fetchall()
    if listed != execute("SELECT count(*) FROM run INDEXED BY sqlite_autoindex_run_1").fetchall():
        yield StoreCorrupt("its list of runs does not match its index: some may be missing", store)


def _bad_tombstones(execute: Any) -> Iterator[str]:
    for row in execute(f"SELECT {_TOMBSTONE_COLUMNS} FROM tombstone").fetchall():  # noqa: S608 - our columns
        if not _is_tombstone(row):
            yield f"what deleted checkpoint {row[2]!a} of run {row[0]!a} left does not match its checksum"


def _placed(record: CheckpointRecord, run: str, seq: int) -> CheckpointRecord:
    if (record.envelope.run, record.envelope.seq) != (run, seq):
        raise CheckpointCorrupt(f"its record stands in the place of {run}@{seq}", record.envelope.id)
    return record


def _count_tombstones(execute: Any, run: str, low: int, high: int) -> int:
    """Count the checkpoints in a range that were deleted by us: what only stands where a tombstone would is none."""
    query = f"SELECT {_TOMBSTONE_COLUMNS} FROM tombstone WHERE run = ? AND seq BETWEEN ? AND ?"  # noqa: S608 - our columns
    return sum(_is_tombstone(row) for row in execute(query, (run, low, high)).fetchall())


def _is_tombstone(row: Sequence[Any]) -> bool:
    run, seq, checkpoint, checksum, seal = row
    names = run.decode(errors="replace"), checkpoint.decode(errors="replace")
    return bool(seal == records.seal_tombstone(names[0], seq, names[1], checksum))


def _add_chunks(execute: Any, run: int, chunks: Collection[Chunk]) -> tuple[int, int]:
    """Add chunks and the run's hold on them; return how many holds are new and the sum of their numbers."""
    before = execute("SELECT coalesce(max(n), 0) FROM chunk").fetchall()[0][0]
    number, added, added_sum = before, 0, 0
    for chunk in chunks:
        fresh = execute(
            "INSERT INTO chunk (n, id, codec, size, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING n",
            (number + 1, *chunk),
        ).fetchall()
        if fresh:
            number += 1
        else:
            known = _share_chunk(execute, run, chunk)
            added, added_sum = added + bool(known), added_sum + known
    if number > before:
        execute("INSERT INTO hold (run, chunk) SELECT ?, n FROM chunk WHERE n > ?", (run, before))
        added += number - before
        added_sum += sum(range(before + 1, number + 1))
    return added, added_sum


def _share_chunk(execute: Any, run: int, chunk: Chunk) -> int:
    """Hold a chunk that is there already, mending its bytes if they differ; return its number if the hold is new."""
    number, codec, size, data = execute("SELECT n, codec, size, data FROM chunk WHERE id = ?", (chunk.id,)).fetchall()[
        0
    ]
    if (codec, size, data) != chunk[1:]:
        execute("UPDATE chunk SET codec = ?, size = ?, data = ? WHERE n = ?", (*chunk[1:], number))
    fresh = execute(
        "INSERT INTO hold (run, chunk) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING chunk", (run, number)
    ).fetchall()
    return number if fresh else 0


def _check_holds(execute: Any) -> None:
    """Raise unless every run's holds add up: nothing is swept by damaged bookkeeping."""
    counted = {
        number: (count, total)
        for number, count, total in execute("SELECT run, count(*), sum(chunk) FROM hold GROUP BY run").fetchall()
    }
    for number, *row in execute(f"SELECT n, {_RUN_COLUMNS} FROM run").fetchall():  # noqa: S608 - our columns
        opened = _opened_run(row)
        if counted.pop(number, (0, 0)) != (opened.holds, opened.holds_sum):
            raise RunCorrupt("the list of chunks that it holds is damaged, so nothing is swept", opened.id)
    if counted:
        raise StoreCorrupt("chunks are held for runs that are not there, so nothing is swept", "")
