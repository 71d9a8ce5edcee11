"""The PostgreSQL medium: many machines and tenants; a commit is one statement, so one round trip.

Locking. Whatever changes rows of a run holds that run's lock until its transaction ends: `apply` takes it, and
`lock(run)` does. It is an advisory lock of the transaction, keyed by schema, tenant and run. So for one run

- apply beside apply: the second waits; then its guard finds another seal (the update compares the row as it is after
  the wait), or its insert collides. StaleError, nothing written.
- apply beside an interactive transaction: whichever locks first is done first. An interactive transaction reads with a
  new look at the tables in each statement (READ COMMITTED), so after `lock` it sees all that was committed; what it
  reads then cannot change before it ends, though it locks no row. What it read before `lock` it has to read again.
- the first commit of a line beside a lease that is taken: the commit guards that there is no lease row. No row means
  nothing to wait at, so this guard is evaluated in a statement that begins after the lock was obtained.
- a post to an inbox beside the end of the run: either order is fine; the post is an insert that collides or does not.

Between runs only chunks are shared: their rows are locked in the order of ids, after the run's lock (hold_chunks and
release_chunks say how a hold and a release meet). Nothing else is locked by two runs, so no deadlock comes of it; a
commit too large for one statement may meet another in new chunks, and the one that the server gives up is repeated.

Lost answers. `apply` is repeated on a new connection: if it had been carried out, its guard no longer holds, and the
caller finds its own rows. An interactive transaction counts up a row of its connection; if the answer of its COMMIT is
lost, that row tells on another connection what became of it, after waiting for the lost one to end.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from blake3 import blake3
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8

from holdfast.errors import UsageError
from holdfast.model.ids import check_run_id
from holdfast.store import postgres_role, postgres_rows, postgres_schema
from holdfast.store.api import StoreTraits
from holdfast.store.medium import MediumSizes, RolledBack, StaleError
from holdfast.store.named_sql import queries
from holdfast.store.postgres_chunks import ChunkRows, columns
from holdfast.store.postgres_errors import is_lost, translated_in_transaction
from holdfast.store.postgres_notify import RunListener, WakeSender, channel_of
from holdfast.store.postgres_pool import Connections, PoolSettings
from holdfast.store.postgres_url import PostgresPlace
from holdfast.store.store import Store
from holdfast.store.tables import RUN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.encode.chunks import Chunk
    from holdfast.store.medium import Batch
    from holdfast.store.objects import ObjectShelf
    from holdfast.store.postgres_chunks import Brought
    from holdfast.store.postgres_pool import TimedConnection
    from holdfast.store.postgres_rows import Statement
    from holdfast.store.tables import Key, Row, Table
    from holdfast.store.wakeups import Wakeup

_Q = queries("postgres.sql")
_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = b"BEGIN"
_TRUE = b"\1"
_ROWS_AT_ONCE = 500  # in one statement: at most 32 MB of records


class PostgresMedium:
    """Rows and chunks of one tenant in a schema of a PostgreSQL database."""

    traits = StoreTraits(checkpoint_bytes=1_000, durable=True, many_processes=True, many_machines=True, tenants=True)
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
        place = PostgresPlace.parse(url, tenant=tenant, schema=schema)
        self.tenant = check_run_id(place.tenant)
        self.schema = postgres_schema.check_schema_name(place.schema)
        self.url = place.shown
        self.conninfo = place.whole
        """The whole URL, with its password, tenant and schema: for who opens the same store for itself."""
        settings = PoolSettings(
            place.conninfo,
            schema=self.schema,
            tenant=self.tenant,
            timeout_s=timeout_s,
            synchronous=durability == "power",
        )
        self._connections = Connections(settings, url=self.url, size=pool_size)
        self._chunks = ChunkRows(self.tenant, shelf)
        channel = channel_of(self.schema, self.tenant)
        self._sender = WakeSender(self._connections, self.url, channel)
        self._listener = RunListener(settings, self.url, channel)
        self._open = threading.local()
        try:
            connection, _ = self._connections.begin(self._settle, wait=False)
            self._connections.give_back(connection)
        except BaseException:
            self._connections.close()
            raise

    # Transactions

    heads = None  # its own log and witnesses, or its server, answer for how far its lines had come

    def fresh(self) -> AbstractContextManager[PostgresReader]:
        """Look at the present moment, which every look is."""
        return self.read()

    @contextmanager
    def read(self) -> Iterator[PostgresReader]:
        """Look at one moment; inside another block of the same thread, at what that one sees."""
        outer: PostgresReader | None = getattr(self._open, "reader", None)
        if outer is not None:
            yield outer
            return
        reader = PostgresReader(self, _READ)
        with self._in_block(reader):
            yield reader

    @contextmanager
    def write(self, *, erase: bool = False) -> Iterator[PostgresTransaction]:  # noqa: ARG002 - see docs/STORES.md
        """Begin a transaction; RolledBack if it broke off and nothing was written."""
        transaction = PostgresTransaction(self, _WRITE)
        with self._in_block(transaction):
            yield transaction
            transaction.commit()

    @contextmanager
    def _in_block(self, reader: PostgresReader) -> Iterator[None]:
        outer = getattr(self._open, "reader", None)
        self._open.reader = reader
        try:
            with translated_in_transaction(self.url):
                yield
        finally:
            self._open.reader = outer
            reader.end()

    def apply(self, batch: Batch) -> None:
        """Check the guards and write everything, in one round trip unless it brings more than some megabytes."""
        brought = self._chunks.prepare(batch.chunks, self.ask)
        keys = sorted(self.lock_key(run) for run in postgres_rows.runs_of(batch))
        rows = brought.rows if brought.rows is not None else []
        chunks = columns(rows) if rows else None
        statement = postgres_rows.commit(self.tenant, batch, keys, chunks)
        if brought.rows is None:
            self._connections.call(lambda connection: self._apply_large(connection, batch, brought, keys, statement))
        else:
            self._connections.call(lambda connection: self._apply(connection, statement))

    def _apply(self, connection: TimedConnection, statement: postgres_rows.Apply) -> None:
        """Send a commit; locks that have to come first go along in the same round trip and transaction."""
        try:
            if statement.locks:
                locks = [(_Q["lock"], {"key": Int8(key)}) for key in statement.locks]
                [[is_done]] = _pipelined(connection, [*locks, (statement.text, statement.values)])
            else:
                is_done = connection.ask_prepared(statement.numbered, statement.values) == _TRUE
        except errors.UniqueViolation as error:
            raise StaleError("a row that was to be new is there, or a guard did not hold") from error
        if not is_done:
            raise StaleError("a guard did not hold")

    def _apply_large(
        self,
        connection: TimedConnection,
        batch: Batch,
        brought: Brought,
        keys: list[int],
        statement: postgres_rows.Apply,
    ) -> None:
        """Send the chunks of a large commit in batches, then the rest, in one transaction."""
        with connection.transaction():
            for key in keys:
                connection.execute(_Q["lock"], {"key": Int8(key)})
            connection.execute(_Q["lock_chunks"], {"tenant": self.tenant, "ids": brought.ids})
            for rows in self._chunks.batches(batch.chunks):
                connection.execute(_Q["hold_chunks"], self._held(batch.run, columns(rows)))
            self._apply(connection, statement._replace(locks=[]))

    def _held(self, run: int, arrays: list[Any]) -> dict[str, Any]:
        names = ("ids", "codecs", "sizes", "stored_sizes", "datas")
        return {"tenant": self.tenant, "run": Int8(run), **dict(zip(names, arrays, strict=True))}

    def lock_key(self, run: str) -> int:
        """Return the number of a run's lock; two runs that share one only wait for each other."""
        text = f"{self.schema}\0{self.tenant}\0{run}".encode(errors="surrogatepass")
        return int.from_bytes(blake3(text).digest(8), "big", signed=True)

    # What is asked of the server as a whole

    def now(self) -> float:
        """Return the server's time."""
        return float(self.ask("now")[0][0])

    def in_order_begun(self, *, limit: int | None = None) -> list[Row]:
        """Return the rows of runs, the last begun first."""
        return postgres_rows.rows_of(RUN, self._ask(postgres_rows.in_order_begun(self.tenant, limit)))

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the id of every stored chunk, a page of them at a time."""
        after = b""
        while rows := self.ask("chunk_page", after=after):
            yield from (row[0] for row in rows)
            after = rows[-1][0]

    def damaged_holds(self) -> Mapping[bytes, str]:
        """Return chunks whose count of holders is not the number of runs that hold them, with what is wrong."""
        return {
            name: f"counts {holders} holders, and {count} runs hold it"
            for name, holders, count in self.ask("damaged_holds")
        }

    def recount_holds(self) -> None:
        """Make every chunk's count of holders the number of runs that hold it; holds of runs that are not there end."""
        self.ask("drop_stray_holds")
        self.ask("recount_holders")

    def wake(self, run: str) -> None:
        """Wake those who listen for a run, on any machine; at most one NOTIFY every 50 ms, outside of commits."""
        self._sender.wake(run)

    def listen(self, run: str) -> Wakeup:
        """Return what wakes when the run is woken from now on; one connection listens for all."""
        return self._listener.listen(run)

    def migrate(self) -> list[int]:
        """Bring the layout up to date; opening has done it already, unless another program came between."""
        return self._connections.call(
            lambda connection: postgres_schema.migrate(connection, self.schema, store=self.url)
        )

    def bind_role(self, role: str) -> bool:
        """Let a role use the tables for this tenant and no other; return whether it was made for it."""
        return self._connections.call(lambda connection: postgres_role.bind_role(connection, role, self.tenant))

    def role_problem(self) -> str | None:
        """Say why row-level security does not bind this login to its tenant; None if it does."""
        return self._connections.call(postgres_role.role_problem)

    def check(self) -> Iterator[str]:
        """Yield settings of the server that may lose commits, and holds of runs that are not there."""
        fsync, full_page_writes, _ = self.ask("settings")[0]
        if fsync != "on" or full_page_writes != "on":
            yield f"the server runs with fsync={fsync}, full_page_writes={full_page_writes}: a crash may lose commits"
        strays = self.ask("stray_holds")[0][0]
        if strays:
            yield f"{strays} holds name runs that are not there"

    def sizes(self) -> MediumSizes:
        """Count what is stored by this tenant; the size of files is that of all tenants' tables together."""
        runs, checkpoints, records, chunks, plain, stored, files = self.ask("sizes")[0]
        return MediumSizes(
            engine=f"PostgreSQL {self.ask('settings')[0][2]}", runs=runs, checkpoints=checkpoints, records=records,
            chunks=chunks, chunk_bytes=plain, stored_bytes=stored, file_bytes=files,
        )  # fmt: skip

    def reclaim(self) -> None:
        """Delete the objects whose chunk is gone and grace is over; in the database, autovacuum gives space back."""
        self.ask("drop_old_turns")
        while self._connections.call(self._chunks.sweep_objects):
            pass

    def sweep_orphans(self) -> int:
        """Find objects that failed commits left behind and begin their grace; return how many. Lists the bucket."""
        return self._connections.call(self._chunks.doom_orphans)

    def close(self) -> None:
        """Close the connections; wakes that are still to be sent are sent first."""
        self._sender.close()
        self._listener.close()
        self._connections.close()

    def ask(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a query by its name; inside a block of this thread on its connection, so that none waits for itself."""
        return self._ask((_Q[name], {"tenant": self.tenant, **values}))

    def _ask(self, statement: tuple[bytes, Any]) -> list[tuple[Any, ...]]:
        outer: PostgresReader | None = getattr(self._open, "reader", None)
        if outer is not None:
            return outer.run(statement)
        return self._connections.call(lambda connection: _rows(connection, statement))

    def _settle(self, connection: TimedConnection) -> None:
        postgres_schema.settle(connection, self.schema, store=self.url)

    # For readers and transactions

    def begin(self, statements: Sequence[tuple[bytes, Any]]) -> tuple[TimedConnection, list[tuple[Any, ...]]]:
        """Begin a transaction with its first statements, on whatever connection it succeeds."""
        return self._connections.begin(lambda connection: _pipelined(connection, statements))

    def give_back(self, connection: TimedConnection) -> None:
        """Let others use a connection."""
        self._connections.give_back(connection)

    def was_committed(self, writer: int, turn: int) -> bool:
        """Tell what became of a transaction whose answer was lost; waits until it has ended."""
        values = {"tenant": self.tenant, "writer": Int8(writer)}
        rows = self._connections.call(lambda connection: _rows(connection, (_Q["last_turn"], values)))
        return bool(rows[0][0] == turn)

    @property
    def timeout_s(self) -> float:
        """How long one statement may take."""
        return self._connections.timeout_s

    @property
    def chunks(self) -> ChunkRows:
        """The chunk and hold tables."""
        return self._chunks


class PostgresStore(Store):
    """A store in a PostgreSQL database; the options are those of `PostgresMedium`."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(PostgresMedium(url, **options))


class PostgresReader:
    """Looks at one moment, on a connection that is taken with the first look."""

    def __init__(self, medium: PostgresMedium, begin: bytes) -> None:
        self._medium = medium
        self._tenant = medium.tenant
        self._begin = begin
        self._connection: TimedConnection | None = None

    def get(self, table: Table, key: Key) -> Row | None:
        """Return the row with this key."""
        found = self.scan(table, key)
        return found[0] if found else None

    def scan(
        self,
        table: Table,
        prefix: Key = (),
        *,
        index: str | None = None,
        low: object = None,
        high: object = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[Row]:
        """Return rows in order."""
        statement = postgres_rows.scan(
            self._tenant, table, prefix, index=index, low=low, high=high, reverse=reverse, limit=limit
        )
        return [] if statement is None else postgres_rows.rows_of(table, self.run(statement))

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there."""
        return self._medium.chunks.fetch(list(ids), self._ask)

    def held(self, run: int) -> set[bytes]:
        """Return the ids of the chunks that a run holds."""
        return {row[0] for row in self._ask("held", run=Int8(run))}

    def run(self, *statements: tuple[bytes, Any]) -> list[tuple[Any, ...]]:
        """Run statements in one round trip, and return the rows of the last; the first time, BEGIN goes along."""
        if self._connection is None:
            self._connection, rows = self._medium.begin([(self._begin, None), *statements])
            return rows
        self._connection.extend(self._medium.timeout_s)
        if len(statements) == 1:
            return _rows(self._connection, statements[0])
        return _pipelined(self._connection, statements)

    def end(self) -> None:
        """Give the connection back; what was not committed is undone."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            status = connection.pgconn.transaction_status
            if status == TransactionStatus.INTRANS and self._begin is _READ:
                connection.execute(b"COMMIT")  # cheaper than ROLLBACK, after which the driver drops what is prepared
            elif status != TransactionStatus.IDLE and not connection.closed:
                connection.undo()
        except psycopg.Error:
            connection.close()  # the server undoes what it began for a connection that is gone
        finally:
            self._medium.give_back(connection)

    def _ask(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.run((_Q[name], {"tenant": self._tenant, **values}))


class PostgresTransaction(PostgresReader):
    """Reads and writes that take effect together; writes are sent with the next read, or with the commit."""

    def __init__(self, medium: PostgresMedium, begin: bytes) -> None:
        super().__init__(medium, begin)
        self._pending: list[Statement] = []
        self._is_counted = False

    def run(self, *statements: tuple[bytes, Any]) -> list[tuple[Any, ...]]:
        """Run statements after those that are pending, in the same round trip."""
        pending, self._pending = self._pending, []
        return super().run(*pending, *statements)

    def lock(self, run: str) -> None:
        """Let no other transaction that locks this run, and no commit to it, proceed until this one has ended."""
        self.run((_Q["lock"], {"key": Int8(self._medium.lock_key(run))}), *self._counted())

    def insert(self, table: Table, *rows: Row) -> None:
        """Add rows; StaleError if there is one with the key of one of them."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            self.run(postgres_rows.write(self._tenant, table, some, replace=False))

    def put(self, table: Table, row: Row) -> None:
        """Add a row, or replace the one with its key."""
        self._pending.append(postgres_rows.write(self._tenant, table, [row], replace=True))

    def drop(self, table: Table, prefix: Key) -> None:
        """Delete the rows whose key begins with this."""
        statement = postgres_rows.drop(self._tenant, table, prefix)
        if statement is not None:
            self._pending.append(statement)

    def hold(self, run: int, chunks: Iterable[Chunk]) -> None:
        """Store chunks and let a run hold them."""
        given = list(chunks)
        self._medium.chunks.prepare(given, self._ask)
        for rows in self._medium.chunks.batches(sorted(given)):
            arrays = dict(zip(("ids", "codecs", "sizes", "stored_sizes", "datas"), columns(rows), strict=True))
            self._ask("hold_chunks", run=Int8(run), **arrays)

    def hold_ids(self, run: int, ids: Collection[bytes]) -> None:
        """Let a run hold chunks that are there."""
        if ids:
            self._ask("hold_present", run=Int8(run), ids=list(ids))

    def release(self, run: int, ids: Collection[bytes] | None) -> None:
        """End a run's hold on chunks, and delete those that nobody holds."""
        if ids is None or ids:
            self._medium.chunks.release(run, None if ids is None else list(ids), self._ask)

    def commit(self) -> None:
        """Make it durable; if the connection breaks meanwhile, find out on another what became of it."""
        if self._connection is None and not self._pending:
            return
        try:
            self.run(*self._counted(), (b"COMMIT", None))
        except psycopg.Error as error:
            lost = self._connection
            if lost is None or not is_lost(error):
                raise
            self.end()
            if not self._medium.was_committed(lost.writer, lost.turn):
                raise RolledBack(self._medium.url, "the connection broke before the commit") from error

    def _counted(self) -> list[tuple[bytes, Any]]:
        """Return the statement that counts this transaction, the first time."""
        if self._is_counted:
            return []
        self._is_counted = True
        return [(_Q["begin_turn"], self._next_turn)]

    def _next_turn(self, connection: TimedConnection) -> dict[str, Any]:
        connection.turn += 1
        return {"tenant": self._tenant, "writer": Int8(connection.writer), "turn": Int8(connection.turn)}


def _rows(connection: TimedConnection, statement: tuple[bytes, Any]) -> list[tuple[Any, ...]]:
    text, values = statement
    cursor = connection.execute(text, values(connection) if callable(values) else values, binary=True)
    return cursor.fetchall() if cursor.description else []


def _pipelined(connection: TimedConnection, statements: Sequence[tuple[bytes, Any]]) -> list[tuple[Any, ...]]:
    """Send statements together and wait once; return the rows of the last."""
    with connection.pipeline():
        for text, values in statements:
            cursor = connection.execute(text, values(connection) if callable(values) else values, binary=True)
    return cursor.fetchall() if cursor.description else []
