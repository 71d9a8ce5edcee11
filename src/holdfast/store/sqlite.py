"""The SQLite medium: one file, a write-ahead log, one sync a commit, many processes.

Reads and writes have a connection each, so that a read neither waits for a sync nor sees what is not committed. A
connection that met an I/O error is thrown away: what the operating system holds after a failed sync is not known.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from weakref import WeakSet

import apsw
import msgspec

from holdfast.encode.chunks import Chunk
from holdfast.errors import StoreCorrupt, StoreError, StoreUnavailable, UsageError
from holdfast.store.api import StoreTraits
from holdfast.store.heads import Heads
from holdfast.store.medium import Batch, MediumSizes, StaleError
from holdfast.store.sqlite_file import (
    Durability,
    connect,
    identity_of,
    is_deleted,
    is_same_file,
    leave_log,
    recreate,
    translated,
    translation,
)
from holdfast.store.store import Store
from holdfast.store.tables import MAIN, RUN, Table
from holdfast.store.wakeups import PolledWakeups

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from holdfast.store.tables import Cell, Key, Row
    from holdfast.store.wakeups import Wakeup

_FETCH_AT_ONCE = 200
_RECLAIM_PAGES = 2_000  # pages given back in one transaction: about 10 ms for other writers to wait
_CASTS = {"text": "BLOB", "blob": "BLOB", "int": "INTEGER", "real": "REAL"}
# Whatever damage made of a column, it is read as its type: the checksum decides whether it is right.
_CHUNK_ID = "coalesce(CAST(chunk.id AS BLOB), x'')"
_CHUNK = (
    f"{_CHUNK_ID}, coalesce(CAST(codec AS INTEGER), -1), coalesce(CAST(size AS INTEGER), -1), "
    "coalesce(CAST(data AS BLOB), x'')"
)
_NEW_CHUNK = "INSERT INTO chunk (id, codec, size, holders, data) VALUES (?, ?, ?, 1, ?) ON CONFLICT (id) DO NOTHING"
_NUMBER_BITS = 32
_LAST_NUMBER, _LAST_LINE = (1 << 32) - 1, (1 << 31) - 1

_PARTIAL = (
    ("run", "run_key", "key"),
    ("run", "run_fork", "forked_from"),
    ("record", "record_path", "path"),
    ("record", "record_key", "key"),
    ("checkpoint", "checkpoint_key", "key"),
    ("inbox", "inbox_key", "key"),
)
_SPOILING = (apsw.IOError, apsw.FullError, apsw.CorruptError)
"""After these a connection is thrown away."""

_REPLACED = (
    "its file was deleted or replaced while it was open, so what is written would be lost. Stop what replaces it (rm, "
    "git stash, git checkout), bring the file back or start the run again"
)
_log = logging.getLogger("holdfast")
_media: WeakSet[SQLiteMedium] = WeakSet()


@cache
def _register_at_fork() -> None:
    """Let no connection cross a fork.

    SQLite counts a process's locks in memory that a child inherits, so a child would believe to hold its parent's,
    and the first side to close would delete the log that the other still writes.
    """
    held: list[SQLiteMedium] = []

    def before() -> None:
        for medium in list(_media):
            medium.lock_for_fork()
            held.append(medium)

    def after() -> None:
        while held:
            held.pop().unlock_after_fork()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


class SQLiteMedium:
    """Rows and chunks in one SQLite file."""

    traits = StoreTraits(checkpoint_bytes=800, durable=True, many_processes=True)

    def __init__(
        self, path: Path | str, *, durability: Durability = "power", read_only: bool = False, vfs: str | None = None
    ) -> None:
        if durability not in ("power", "process"):
            raise UsageError(f"unknown durability {durability!r}: use 'power' or 'process'")
        self.path = Path(path).absolute()
        self._file = str(self.path)
        self._log = f"{self.path}-wal"
        if "\0" in self._file:
            raise UsageError(f"{self._file!r} is not a path: it has a NUL in it")
        self.folder = self.path.parent
        self.own_paths = tuple(Path(f"{self.path}{end}") for end in ("", "-wal", "-shm", "-journal", "-heads"))
        self.url = f"sqlite://{quote(str(self.path))}"
        self._durability: Durability = durability
        self._read_only = read_only
        self._vfs = vfs
        # With durability="process" a power cut may take commits that were witnessed, and that would be no damage.
        self.heads = Heads(self.own_paths[-1], is_written=durability == "power" and not read_only)
        self._reads = _Connection(self)
        self._wakeups = PolledWakeups(self._wakes, has_moved=self._has_moved, look_every_s=0.05)
        self._version: int | None = None
        self._writes = _Connection(self)
        self._applied: list[int] = []
        self._closed = False
        _register_at_fork()
        _media.add(self)
        with self._reads.use():
            pass

    def connect(self) -> apsw.Connection:
        """Return a new connection; the first one makes or migrates the file."""
        if self._closed:
            raise UsageError(f"store {self.url} is closed; open it again")
        self._refuse_emptied()
        connection, applied = connect(self.path, durability=self._durability, read_only=self._read_only, vfs=self._vfs)
        self._applied += applied
        return connection

    def _refuse_emptied(self) -> None:
        """Refuse to begin a new store in the place of one that was deleted or cut to nothing."""
        lost = sorted(self.heads.all()[0], key=lambda head: head.line != MAIN) if self._is_empty() else []
        if lost and self._is_empty():  # asked again: another process may have begun the store between the two looks
            runs = len({head.run for head in lost})
            raise StoreCorrupt(
                f"the file was deleted or cut to nothing; it held {runs} runs or more ({lost[0].run!r} had come to "
                f"checkpoint {lost[0].seq}). Restore it from a copy or a bundle, or delete {self.heads.path.name} to "
                "begin a new store",
                self.url,
            )

    def _is_empty(self) -> bool:
        try:
            return not self.path.stat().st_size
        except OSError:
            return True

    @contextmanager
    def fresh(self) -> Iterator[_Reader]:
        """Look at the present moment through a connection of its own."""
        with translated(self.url):
            connection = self.connect()
            try:
                yield _Reader(connection)
            finally:
                connection.close()

    @contextmanager
    def read(self) -> Iterator[_Reader]:
        """Look at one moment."""
        with translated(self.url), self._reads.use() as connection:
            if not connection.get_autocommit():
                yield _Reader(connection)  # inside a look of the same thread: the same moment
                return
            connection.execute("BEGIN")
            try:
                yield _Reader(connection)
            finally:
                self._reads.roll_back()  # there is nothing to commit

    @contextmanager
    def write(self, *, erase: bool = False) -> Iterator[_Transaction]:
        """Begin a transaction; the end of the block commits it, synced before it returns."""
        self._refuse_read_only()
        self._recreate_deleted()
        with translated(self.url), self._writes.use() as connection:
            execute = connection.execute
            if erase:
                execute("PRAGMA secure_delete = ON").fetchall()
            execute("BEGIN IMMEDIATE")
            try:
                yield _Transaction(connection, erases=erase)
                self._check_file()
                execute("COMMIT")
            except BaseException:
                self._writes.roll_back()
                raise
            finally:
                if erase and self._writes.connection is not None:
                    execute("PRAGMA secure_delete = FAST").fetchall()

    def apply(self, batch: Batch) -> None:
        """Check the guards and write everything in one transaction."""
        self._refuse_read_only()
        self._recreate_deleted()
        writes = self._writes
        try:
            with writes.lock:  # as `write` does it, without its context managers: they cost 10 us in every commit
                connection = writes.open()
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    _Transaction(connection).apply(batch)
                    self._check_file()
                    connection.execute("COMMIT")
                except BaseException as error:
                    writes.fail(error)
                    raise
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translation(error, self.url) from error

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise StoreUnavailable(self.url, "it was opened read-only; open it without read_only to write")

    def _check_file(self) -> None:
        """Refuse to write into a file that nobody will find again: it was replaced while it was open."""
        if self._vfs is None and not is_same_file(self._file, self._writes.identity):
            raise StoreUnavailable(self.url, _REPLACED)

    def _recreate_deleted(self) -> None:
        """Put back a store that was deleted while it is open here (rm, git clean): the open file still has all of it.

        So is one whose log was deleted or replaced (git reset of a store that was committed): what is in the open log
        would be lost with this process. A file that another took the place of is refused, by whoever writes to it next.
        """
        is_there, opened_log = os.path.lexists(self._file), self._writes.log
        if self._vfs is not None or (is_there and (opened_log is None or is_same_file(self._log, opened_log))):
            return
        with self._writes.lock, self._reads.lock, translated(self.url):
            opened = [one for one in (self._writes.connection, self._reads.connection) if one is not None]
            identity = self._writes.identity or self._reads.identity
            is_ours = is_same_file(self._file, identity) if is_there else is_deleted(identity)
            if not opened or not all(one.get_autocommit() for one in opened) or not is_ours:
                raise StoreUnavailable(self.url, _REPLACED)
            recreate(self.path, opened[0], self.url, identity, close=self._drop)
            self.heads.recreate()
        _log.warning(
            "store %s was deleted or rolled back while it was open, and is back: nothing that was stored is lost. Keep "
            "what does that (rm, git clean -x, git reset) away from %s, or put the store elsewhere",
            self.url,
            self.folder,
        )

    def _drop(self) -> None:
        self._reads.drop()
        self._writes.drop()

    def now(self) -> float:
        """Return the time."""
        return time.time()

    def in_order_begun(self, *, limit: int | None = None) -> list[Row]:
        """Return the rows of runs, the last begun first."""
        with self.read() as reader:
            return reader.begun(limit)

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the id of every stored chunk, a page of them at a time."""
        last = -1
        while True:
            with self.read() as reader:
                rows = reader.execute(
                    f"SELECT n, {_CHUNK_ID} FROM chunk WHERE n > ? ORDER BY n LIMIT 1000",  # noqa: S608 - our column
                    (last,),
                ).fetchall()
            if not rows:
                return
            if rows[-1][0] <= last:
                raise StoreCorrupt("the rows of its chunks are out of order, so they cannot be listed", self.url)
            yield from (row[1] for row in rows)
            last = rows[-1][0]

    def damaged_holds(self) -> Mapping[bytes, str]:
        """Return chunks whose count of holders is not the number of runs that hold them."""
        with self.read() as reader:
            rows = reader.execute(
                f"SELECT {_CHUNK_ID}, chunk.holders, count(hold.run) FROM chunk "  # noqa: S608 - our column
                "LEFT JOIN hold ON hold.chunk = chunk.n GROUP BY chunk.n HAVING chunk.holders <> count(hold.run)"
            ).fetchall()
            strays = reader.execute(
                "SELECT hold.run, hold.chunk FROM hold WHERE hold.chunk NOT IN (SELECT n FROM chunk) "
                "OR hold.run NOT IN (SELECT n FROM run)"
            ).fetchall()
        found = {chunk: f"is held by {held} runs, its count says {count}" for chunk, count, held in rows}
        for run, chunk in strays:
            found[f"{run}/{chunk}".encode()] = "of a hold, or its run, is not there"
        return found

    def recount_holds(self) -> None:
        """Make every chunk's count of holders the number of runs that hold it."""
        with self.write() as transaction:
            transaction.execute(
                "DELETE FROM hold WHERE chunk NOT IN (SELECT n FROM chunk) OR run NOT IN (SELECT n FROM run)"
            )
            transaction.execute(
                "UPDATE chunk SET holders = (SELECT count(*) FROM hold WHERE hold.chunk = chunk.n) "
                "WHERE holders <> (SELECT count(*) FROM hold WHERE hold.chunk = chunk.n)"
            )

    def wake(self, run: str) -> None:
        """Wake those who listen for a run."""
        with self.write() as transaction:
            transaction.execute(
                "INSERT INTO wake (run, times) VALUES (?, 1) ON CONFLICT (run) DO UPDATE SET times = times + 1", (run,)
            )

    def listen(self, run: str) -> Wakeup:
        """Return what wakes when the run is woken from now on."""
        return self._wakeups.open(run)

    def _has_moved(self) -> bool:
        """Tell whether anybody has committed since this was last asked: a look at shared memory, no read."""
        with translated(self.url), self._reads.use() as connection:
            version = int(connection.execute("PRAGMA data_version").fetchall()[0][0] or 0)
        before, self._version = self._version, version
        return before != version

    def _wakes(self, runs: Collection[str]) -> dict[str, int]:
        with translated(self.url), self._reads.use() as connection:
            found = connection.execute(
                "SELECT run, CAST(times AS INTEGER) FROM wake WHERE run IN (SELECT value FROM json_each(?))",
                (msgspec.json.encode(list(runs)).decode(),),
            ).fetchall()
        return {str(run): int(times or 0) for run, times in found}

    def migrate(self) -> list[int]:
        """Return the versions that opening the file has applied."""
        with self._reads.use():
            return list(self._applied)

    def check(self) -> Iterator[str]:
        """Yield what SQLite finds wrong with the file."""
        with self.read() as reader:
            found = [str(line) for (line,) in reader.execute("PRAGMA integrity_check").fetchall() if line != "ok"]
            for table, index, column in _PARTIAL:
                # SQLite does not notice rows too many in an index that leaves some out, nor a table that lost its rows.
                counts = {
                    reader.execute(f"SELECT {counted} WHERE {column} IS NOT NULL").fetchall()[0][0]
                    for counted in (
                        f"count(seal) FROM {table} NOT INDEXED",  # a column that no index has: the rows themselves
                        f"count(*) FROM {table} INDEXED BY {index}",
                    )
                }
                if len(counts) > 1:
                    found.append(f"index {index} has other rows than {table}")
        yield from found

    def sizes(self) -> MediumSizes:
        """Count what is stored."""
        with self.read() as reader:
            runs, checkpoints, records = (
                reader.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - our tables
                for table in ("run", "checkpoint", "record")
            )
            chunks, plain, stored = reader.execute(
                "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(length(data)), 0) FROM chunk"
            ).fetchall()[0]
        size = sum(file.stat().st_size for file in (self.path, Path(f"{self.path}-wal")) if file.exists())
        return MediumSizes(
            engine=f"SQLite {apsw.sqlite_lib_version()}", runs=runs, checkpoints=checkpoints, records=records,
            chunks=chunks, chunk_bytes=plain, stored_bytes=stored, file_bytes=size,
        )  # fmt: skip

    def reclaim(self) -> None:
        """Give freed pages back to the file system, a slice at a time so that writers get in between."""
        while True:
            with self.write() as transaction:
                free = transaction.execute("PRAGMA freelist_count").fetchall()[0][0]
                transaction.execute(f"PRAGMA incremental_vacuum({_RECLAIM_PAGES})").fetchall()
            if free <= _RECLAIM_PAGES:
                break
        with translated(self.url), self._writes.use() as connection:
            # Another process may be reading: then the log stays as it is and is reused.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the connections; the last one to close merges the log into the file."""
        self._closed = True
        with self._writes.lock, self._reads.lock:
            self._drop()
            self.heads.close()

    def lock_for_fork(self) -> None:
        """Wait for other threads' transactions, and close the connections; the next call opens others."""
        self._writes.lock.acquire()
        self._reads.lock.acquire()
        for one in (self._reads, self._writes):
            if one.connection is not None and one.connection.get_autocommit():
                one.drop()

    def unlock_after_fork(self) -> None:
        """Let other threads continue."""
        self._reads.lock.release()
        self._writes.lock.release()


class SQLiteStore(Store):
    """A store in one SQLite file."""

    def __init__(
        self, path: Path | str, *, durability: Durability = "power", read_only: bool = False, vfs: str | None = None
    ) -> None:
        super().__init__(SQLiteMedium(path, durability=durability, read_only=read_only, vfs=vfs))
        self.path = Path(path).absolute()


class _Connection:
    """One connection, used by one thread at a time, opened when it is needed."""

    def __init__(self, medium: SQLiteMedium) -> None:
        self._medium = medium
        self.lock = threading.RLock()
        self.connection: apsw.Connection | None = None
        self.identity: tuple[int, int] | None = None
        self.log: tuple[int, int] | None = None
        self._process = os.getpid()

    @contextmanager
    def use(self) -> Iterator[apsw.Connection]:
        """Give out a sound connection."""
        with self.lock:
            connection = self.open()
            try:
                yield connection
            except _SPOILING:
                self.drop()
                raise

    def open(self) -> apsw.Connection:
        """Return a sound connection; the lock is held."""
        if self._process != os.getpid():
            # A connection must not cross a fork: leave the parent's alone, without closing it.
            self._process, self._left, self.connection = os.getpid(), self.connection, None
        if self.connection is None or self._medium._closed:  # noqa: SLF001 - one noun in two classes
            self.connection = self._medium.connect()
            self.identity = identity_of(self._medium._file)  # noqa: SLF001
            self.log = identity_of(self._medium._log)  # noqa: SLF001
        return self.connection

    def fail(self, error: BaseException) -> None:
        """End a transaction that met an error without effect, and throw the connection away if it is spoiled."""
        self.roll_back()
        if isinstance(error, _SPOILING):
            self.drop()

    def roll_back(self) -> None:
        """End a transaction without effect; SQLite may have done so already, on a full disk."""
        if self.connection is None or self.connection.get_autocommit():
            return
        try:
            self.connection.execute("ROLLBACK")
        except apsw.Error:
            self.drop()

    def drop(self) -> None:
        """Throw the connection away; what it could not write is rolled back by the next one."""
        connection, self.connection, self.log = self.connection, None, None
        if connection is not None and self._process == os.getpid():
            try:
                if not is_same_file(self._medium._file, self.identity):  # noqa: SLF001
                    leave_log(connection)
                connection.close(True)
            except apsw.Error as error:
                if self._medium._closed:  # noqa: SLF001
                    raise StoreError(self._medium.url, f"could not be closed cleanly ({error})") from error


class _Sql:
    """The statements of one table."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.all_columns]
        self.texts = [place for place, column in enumerate(table.all_columns) if column.type == "text"]
        casts = [f"CAST({column.name} AS {_CASTS[column.type]})" for column in table.all_columns]
        self.columns: dict[str | None, list[str]] = {index.name: list(index.columns) for index in table.indexes}
        self.columns[None] = [column.name for column in table.key]
        self.is_packed = table.packed
        if table.packed:
            names = ["n", *names[2:]]
            casts = ["n >> 32", "n & 4294967295", *casts[2:]]
            self.key = "n"
        else:
            self.key = ", ".join(column.name for column in table.key)
        keys = self.key.split(", ")
        marks = ", ".join("?" * len(names))
        sets = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
        self.select = f"SELECT {', '.join(casts)} FROM {table.name}"  # noqa: S608 - our tables and columns
        self.by_key = " AND ".join(f"{name} = ?" for name in keys)
        self.insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
        self.put = f"{self.insert} ON CONFLICT ({self.key}) DO UPDATE SET {sets}"
        self.seal = f"SELECT CAST(seal AS BLOB) FROM {table.name} WHERE {self.by_key}"  # noqa: S608
        self.get = f"{self.select} WHERE {self.by_key}"
        self.delete = f"DELETE FROM {table.name}"  # noqa: S608
        # What identifies a row beside its key never changes: to leave it alone spares the page of its index.
        fixed = [name for index in table.indexes if index.unique for name in index.columns]
        self.fixed = [place for place, name in enumerate(names) if name in keys or name in fixed]
        self.changing = [place for place in range(len(names)) if place not in self.fixed]
        sets = ", ".join(f"{names[place]} = ?" for place in self.changing)
        wheres = " AND ".join(f"{names[place]} = ?" for place in self.fixed)
        self.update = f"UPDATE {table.name} SET {sets} WHERE {wheres} AND seal = ?"  # noqa: S608

    def values(self, row: Row) -> Row:
        """Return a row's cells as they are bound."""
        return (_packed(row[0], row[1]), *row[2:]) if self.is_packed else row

    def key_values(self, key: Key) -> Key:
        """Return a key's cells as they are bound."""
        return (_packed(key[0], key[1]),) if self.is_packed else key

    def row(self, cells: Sequence[Any]) -> Row:
        """Return what was read as a row, text decoded; what damage left that is not text keeps its bytes, escaped."""
        found = list(cells)
        for place in self.texts:
            if found[place] is not None:
                found[place] = found[place].decode(errors="surrogateescape")
        return tuple(found)


@cache
def _sql(table: str) -> _Sql:
    from holdfast.store.tables import TABLES  # noqa: PLC0415 - by name, so that the cache holds texts only

    return _Sql(next(one for one in TABLES if one.name == table))


@cache
def _scan_text(  # noqa: PLR0917 - the shape of a scan, as the key of a cache
    table: str,
    index: str | None,
    bound: int,
    has_low: bool,  # noqa: FBT001
    has_high: bool,  # noqa: FBT001
    reverse: bool,  # noqa: FBT001
) -> str:
    """Return the query of a scan, of which there are few: built once, it is found in SQLite's cache of statements."""
    sql = _sql(table)
    columns = sql.columns[index]
    if sql.is_packed:
        lead = columns[:-2]
        wheres = [f"{name} = ?" for name in lead[:bound]]
        if bound >= len(lead):
            wheres.append("n BETWEEN ? AND ?")
        columns = [*lead, "n"]
    else:
        wheres = [f"{name} IS ?" for name in columns[:bound]]  # a run may be of no status
        wheres += [f"{columns[bound]} >= ?"] if has_low else []
        wheres += [f"{columns[bound]} <= ?"] if has_high else []
    where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
    order = ", ".join(f"{name}{' DESC' if reverse else ''}" for name in columns)
    return f"{sql.select}{where} ORDER BY {order} LIMIT ?"


def _raw(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")  # no bytes that were ever stored: it will not be found


def _packed(line: Cell, number: Cell) -> int:
    return int(line) << _NUMBER_BITS | int(number)  # type: ignore[arg-type]


def _packed_bounds(key: Sequence[Any], low: Any, high: Any) -> tuple[int, int] | None:
    """Return the first and the last packed key that begin with these cells, None if there can be none."""
    if len(key) > 1:
        return (_packed(*key),) * 2
    top = _LAST_NUMBER if key else _LAST_LINE
    low, high = 0 if low is None else max(0, low), top if high is None else min(top, high)
    if low > high:
        return None
    return (_packed(key[0], low), _packed(key[0], high)) if key else (_packed(low, 0), _packed(high, _LAST_NUMBER))


class _Reader:
    """Looks at one moment of the file."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._changes = connection.changes
        self._new_row = connection.last_insert_rowid

    def execute(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement; a value that is escaped bytes and no text is compared as what it is."""
        try:
            return self._execute(text, values)
        except UnicodeEncodeError:
            raw = [_raw(one) if isinstance(one, str) else one for one in values]
            marks = ["CAST(? AS TEXT)" if isinstance(one, str) else "?" for one in values]
            parts = text.split("?")
            return self._execute("".join(map("".join, zip(parts, [*marks, ""], strict=True))), raw)

    def get(self, table: Table, key: Key) -> Row | None:
        """Return the row with this key."""
        sql = _sql(table.name)
        rows = self.execute(sql.get, sql.key_values(key)).fetchall()
        return sql.row(rows[0]) if rows else None

    def scan(
        self,
        table: Table,
        prefix: Key = (),
        *,
        index: str | None = None,
        low: Any = None,
        high: Any = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[Row]:
        """Return rows in the order of their key or of an index."""
        sql = _sql(table.name)
        given: tuple[Any, ...] = prefix
        if sql.is_packed:
            lead = len(sql.columns[index]) - 2
            if len(prefix) >= lead:
                bounds = _packed_bounds(prefix[lead:], low, high)
                if bounds is None:
                    return []
                given = (*prefix[:lead], *bounds)
        else:
            given += () if low is None else (low,)
            given += () if high is None else (high,)
        text = _scan_text(table.name, index, len(prefix), low is not None, high is not None, reverse)
        rows = self.execute(text, (*given, -1 if limit is None else limit)).fetchall()
        if not rows and index is not None and limit != 0:
            self._check_index(table, index, prefix)
        return [sql.row(row) for row in rows]

    def _check_index(self, table: Table, index: str, prefix: Key) -> None:
        """Raise StoreCorrupt if a row is there that a unique index does not know: it would pass for not there."""
        chosen = next(one for one in table.indexes if one.name == index)
        if chosen.unique and len(prefix) == len(chosen.columns):
            wheres = " AND ".join(f"{name} = ?" for name in chosen.columns)
            if self.execute(f"SELECT 1 FROM {table.name} NOT INDEXED WHERE {wheres} LIMIT 1", prefix).fetchall():  # noqa: S608
                raise StoreCorrupt(f"index {index} does not know a row that is there", "here")

    def begun(self, limit: int | None) -> list[Row]:
        """Return the rows of runs, the last begun first."""
        sql = _sql(RUN.name)
        rows = self.execute(f"{sql.select} ORDER BY begun DESC LIMIT ?", (-1 if limit is None else limit,)).fetchall()
        return [sql.row(row) for row in rows]

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there, as they are stored."""
        found: dict[bytes, Chunk] = {}
        for some in _parts(ids):
            query = f"SELECT {_CHUNK} FROM chunk WHERE id IN ({_marks(some)})"  # noqa: S608 - only ? marks
            for row in self.execute(query, some):
                found[row[0]] = Chunk(*row)
        return found

    def held(self, run: int) -> set[bytes]:
        """Return the ids of the chunks that a run holds."""
        query = f"SELECT {_CHUNK_ID} FROM hold JOIN chunk ON chunk.n = hold.chunk WHERE hold.run = ?"  # noqa: S608
        return {row[0] for row in self.execute(query, (run,))}


class _Transaction(_Reader):
    """Reads and writes that take effect together."""

    def __init__(self, connection: apsw.Connection, *, erases: bool = False) -> None:
        super().__init__(connection)
        self._erases = erases

    def lock(self, run: str) -> None:
        """Do nothing: one transaction writes at a time."""

    def apply(self, batch: Batch) -> None:
        """Carry a batch out; a row that is replaced under a guard is checked by the statement that replaces it."""
        guards = {(table.name, key): seal for table, key, seal in batch.guards}
        puts = []
        for table, row in batch.puts:
            place = table.name, row[: len(table.key)]
            if guards.get(place) is None or not self._replaced(table, row, guards[place]):
                puts.append((table, row))
            else:
                del guards[place]
        for (name, key), seal in guards.items():
            rows = self.execute(_sql(name).seal, _sql(name).key_values(key)).fetchall()
            if (rows[0][0] if rows else None) != seal:
                raise StaleError(name)
        if batch.chunks:
            self.hold(batch.run, batch.chunks)
        for table, row in batch.inserts:
            self.insert(table, row)
        for table, row in puts:
            self.put(table, row)
        for table, key in batch.drops:
            self.drop(table, key)

    def _replaced(self, table: Table, row: Row, seal: bytes | None) -> bool:
        """Replace a row that has this seal; False if there is none, or its identity is another."""
        sql = _sql(table.name)
        cells = sql.values(row)
        given = [*[cells[place] for place in sql.changing], *[cells[place] for place in sql.fixed], seal]
        self.execute(sql.update, given)
        return bool(self._changes())

    def insert(self, table: Table, *rows: Row) -> None:
        """Add rows; StaleError if there is one with the key of one of them."""
        sql = _sql(table.name)
        try:
            for row in rows:
                self.execute(sql.insert, sql.values(row))
        except apsw.ConstraintError:
            raise StaleError(table.name) from None

    def put(self, table: Table, row: Row) -> None:
        """Add a row, or replace the one with its key."""
        sql = _sql(table.name)
        try:
            self.execute(sql.put, sql.values(row))
        except apsw.ConstraintError:
            raise StaleError(table.name) from None

    def drop(self, table: Table, prefix: Key) -> None:
        """Delete the rows whose key begins with this."""
        sql = _sql(table.name)
        if sql.is_packed and len(prefix) == 1:
            bounds = _packed(prefix[0], 0), _packed(prefix[0], _LAST_NUMBER)
            self.execute(f"{sql.delete} WHERE n BETWEEN ? AND ?", bounds)
        elif sql.is_packed:
            self.execute(f"{sql.delete} WHERE n = ?", sql.key_values(prefix))
        else:
            wheres = " AND ".join(f"{column.name} = ?" for column in table.key[: len(prefix)])
            self.execute(f"{sql.delete} WHERE {wheres}", prefix)

    def hold(self, run: int, chunks: Iterable[Chunk]) -> None:
        """Store chunks and let a run hold them; one that is there with other bytes is replaced."""
        execute = self.execute
        for chunk in chunks:
            execute(_NEW_CHUNK, chunk)
            if self._changes():
                execute("INSERT OR IGNORE INTO hold (run, chunk) VALUES (?, ?)", (run, self._new_row()))
                continue
            there = execute(f"SELECT n, {_CHUNK} FROM chunk WHERE id = ?", (chunk.id,)).fetchall()  # noqa: S608
            if not there:
                raise StoreCorrupt("the index of chunks knows one that is not there", "here")
            number, *stored = there[0]
            if tuple(stored) != tuple(chunk):
                execute(
                    "UPDATE chunk SET codec = ?, size = ?, data = ? WHERE n = ?",
                    (chunk.codec, chunk.size, chunk.data, number),
                )
            self._hold(run, number)

    def _hold(self, run: int, chunk: int) -> None:
        rows = self.execute(
            "INSERT OR IGNORE INTO hold (run, chunk) VALUES (?, ?) RETURNING 1", (run, chunk)
        ).fetchall()
        if rows:
            self.execute("UPDATE chunk SET holders = holders + 1 WHERE n = ?", (chunk,))

    def hold_ids(self, run: int, ids: Collection[bytes]) -> None:
        """Let a run hold chunks that are there."""
        found: list[int] = []
        for some in _parts(list(ids)):
            query = f"SELECT n FROM chunk WHERE id IN ({_marks(some)})"  # noqa: S608 - only ? marks
            found += [number for (number,) in self.execute(query, some)]
        for some in _parts(sorted(found)):  # in the order of the rows, so that each page is changed once
            new = self.execute(
                f"INSERT OR IGNORE INTO hold (run, chunk) SELECT ?, n FROM chunk WHERE n IN ({_marks(some)}) "  # noqa: S608
                "RETURNING chunk",
                (run, *some),
            ).fetchall()
            numbers = [number for (number,) in new]
            self.execute(
                f"UPDATE chunk SET holders = holders + 1 WHERE n IN ({_marks(numbers)})",  # noqa: S608 - only ? marks
                numbers,
            )

    def release(self, run: int, ids: Collection[bytes] | None) -> None:
        """End a run's hold on chunks, and delete those whose holders are all gone, by count and by row."""
        if ids is None:
            gone = self.execute("DELETE FROM hold WHERE run = ? RETURNING chunk", (run,)).fetchall()
        else:
            gone = []
            for name in ids:
                gone += self.execute(
                    "DELETE FROM hold WHERE run = ? AND chunk = (SELECT n FROM chunk WHERE id = ?) RETURNING chunk",
                    (run, name),
                ).fetchall()
        for (number,) in gone:
            self.execute("UPDATE chunk SET holders = holders - 1 WHERE n = ? AND holders > 1", (number,))
            if not self.execute("SELECT changes()").fetchall()[0][0]:
                if self._erases:  # secure_delete leaves what balancing copied into the unused part of a page
                    self.execute(
                        "UPDATE chunk SET data = zeroblob(length(data)) WHERE n = ?1 AND holders <= 1 "
                        "AND NOT EXISTS (SELECT 1 FROM hold WHERE chunk = ?1)",
                        (number,),
                    )
                self.execute(
                    "DELETE FROM chunk WHERE n = ?1 AND holders <= 1 "
                    "AND NOT EXISTS (SELECT 1 FROM hold WHERE chunk = ?1)",
                    (number,),
                )


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _FETCH_AT_ONCE):
        yield items[start : start + _FETCH_AT_ONCE]


def _marks(items: Sequence[Any]) -> str:
    return ",".join("?" * len(items))
