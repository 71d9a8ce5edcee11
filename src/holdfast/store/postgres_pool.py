"""Connections to PostgreSQL: configured for one tenant, bounded in time, repeated over a new one when one breaks."""

from __future__ import annotations

import os
import secrets
import select
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors, generators
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.types.numeric import Float8, Int8

from holdfast.errors import StoreBusy, UsageError
from holdfast.store.postgres_errors import can_be_repeated, is_cut_short, is_refused_for_good, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    from holdfast.store.tables import Type

T = TypeVar("T")
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.25
_IDLE_S = 300.0  # a connection that was not used for longer may have been forgotten by a firewall on its way


class Array(list[Any]):
    """Cells of one type, as the server takes an array."""

    def __init__(self, kind: Type, cells: Iterable[Any]) -> None:
        super().__init__(cells)
        self.kind = kind


def _array(items: Array) -> bytes:
    parts = [struct.pack(">iiiii", 1, int(None in items), _OIDS[items.kind], len(items), 1)]
    for item in items:
        data = _BYTES[type(item)](item)
        parts.append(_ABSENT if data is None else struct.pack(">i", len(data)) + data)
    return b"".join(parts)


_OIDS: dict[Type, int] = {"text": 25, "int": 20, "real": 701, "blob": 17}
_ABSENT = struct.pack(">i", -1)
_BYTES: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: None,
    str: str.encode,
    bytes: lambda value: value,
    Int8: struct.Struct(">q").pack,
    Float8: struct.Struct(">d").pack,
    Array: _array,
}


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which no call waits longer than it may, whatever the server does."""

    answer_by: float = float("inf")
    used_at: float = 0.0
    writer: int = 0
    """The name under which its transactions are counted in the database, and the number of the last one."""
    turn: int = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._named: dict[bytes, bytes] = {}

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for an answer until `answer_by`; after that the connection is of no use to anybody."""
        if timeout is not None or self.answer_by == float("inf"):
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, max(0.0, self.answer_by - time.monotonic()))
        except errors._WaitTimeout:  # noqa: SLF001 - the driver's own name for it
            self.pgconn.finish()
            raise psycopg.OperationalError("no answer in time") from None

    def ask_prepared(self, text: bytes, values: Sequence[Any]) -> bytes | None:
        """Run a statement that says one thing, and return it as bytes; half of what `execute` costs this process.

        Values are texts, Int8, Float8, bytes, and arrays of them.
        """
        name = self._named.get(text)
        if name is None:
            name = b"holdfast_%d" % len(self._named)
            self.pgconn.send_prepare(name, text)
            self._result()
            self._named[text] = name
        formats = [Format.TEXT if isinstance(value, str) else Format.BINARY for value in values]
        self.pgconn.send_query_prepared(name, [_BYTES[type(value)](value) for value in values], formats, Format.BINARY)
        return self._result().get_value(0, 0)

    def _result(self) -> PGresult:
        results: Sequence[PGresult] = self.wait(generators.execute(self.pgconn))
        # A backend that is ended behind its answer sends another result, which says so.
        result = next((one for one in results if one.status == ExecStatus.FATAL_ERROR), results[-1])
        if result.status == ExecStatus.FATAL_ERROR:
            error = errors.error_from_result(result, encoding=self.info.encoding)
            if isinstance(error, errors.InvalidSqlStatementName):
                self._named.clear()
            raise error
        return result

    def undo(self) -> None:
        """Roll the open transaction back; the driver then drops what is prepared."""
        self.rollback()
        self._named.clear()

    def extend(self, timeout_s: float) -> None:
        """Let the next statement have its time."""
        self.answer_by = time.monotonic() + timeout_s

    def is_silent(self) -> bool:
        """Tell whether the server sent nothing since the last answer: if it did, it has closed the connection."""
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)


class PoolSettings:
    """What every connection of a store is set to."""

    def __init__(self, conninfo: str, *, schema: str, tenant: str, timeout_s: float, synchronous: bool) -> None:
        given: dict[str, Any] = conninfo_to_dict(conninfo)
        given.setdefault("connect_timeout", max(2, int(timeout_s)))
        given.setdefault("application_name", "holdfast")
        given.setdefault("target_session_attrs", "read-write")  # decisions only on the primary
        given.setdefault("tcp_user_timeout", int(timeout_s * 1000))
        given.setdefault("keepalives_idle", 30)  # so that one who only listens notices a server that is gone
        given.setdefault("keepalives_interval", 10)
        self.conninfo = make_conninfo(**given)
        self.schema = schema
        self.timeout_s = timeout_s
        self._values = {
            "search_path": schema,
            "holdfast.tenant": tenant,
            "statement_timeout": f"{int(timeout_s * 1000)}ms",
            "idle_in_transaction_session_timeout": f"{int(timeout_s * 2000)}ms",
            "synchronous_commit": "on" if synchronous else "off",
            "enable_seqscan": "off",  # a plan made while a table was empty must not stay when it is large
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",  # compiling a statement that touches three rows costs a hundred times as much as running it
        }

    def connect(self) -> TimedConnection:
        """Return a new connection, set up; one round trip after the login."""
        connection = TimedConnection.connect(self.conninfo, autocommit=True)
        connection.answer_by = time.monotonic() + self.timeout_s
        connection.writer = secrets.randbits(63)
        names = ", ".join("set_config(%s, %s, false)" for _ in self._values)
        values = [part for pair in self._values.items() for part in pair]
        try:
            connection.execute(f"SELECT {names}".encode(), values)
        except BaseException:
            connection.close()
            raise
        return connection


class Connections:
    """Open connections for the next who needs one; they outlive server restarts, and a fork of this process."""

    def __init__(self, settings: PoolSettings, *, url: str, size: int) -> None:
        self._settings = settings
        self.timeout_s = settings.timeout_s
        self._url = url
        self._size = size
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: deque[TimedConnection] = deque()
        self._free = threading.Semaphore(size)
        self._left_behind: list[deque[TimedConnection]] = []
        self._closed = False

    def call(self, work: Callable[[TimedConnection], T]) -> T:
        """Do work on a connection within the timeout; when that breaks, do it again on another.

        So work must be one that may be done twice. A server that restarts is waited for until the time is over.
        """
        connection, result = self.begin(work)
        self.give_back(connection)
        return result

    def begin(self, work: Callable[[TimedConnection], T], *, wait: bool = True) -> tuple[TimedConnection, T]:
        """Do work as `call` does, and return its connection as well: the caller gives it back.

        Without `wait` a server that cannot be reached is an error at once; one that cut the login short is asked again.
        """
        deadline = time.monotonic() + self._settings.timeout_s
        pause = _FIRST_PAUSE_S
        with translated(self._url):
            while True:
                connection: TimedConnection | None = None
                try:
                    connection = self._take(deadline)
                    connection.answer_by = deadline
                    wait = True
                    return connection, work(connection)
                except psycopg.Error as error:
                    self._drop(connection, error)
                    is_late = time.monotonic() + pause >= deadline
                    wait = wait or is_cut_short(error)
                    if is_late or not wait or not can_be_repeated(error) or is_refused_for_good(error):
                        raise
                except BaseException:
                    if connection is not None:
                        self.give_back(connection)
                    raise
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, pause * 1.5)

    def give_back(self, connection: TimedConnection) -> None:
        """Let others use a connection, unless it is broken or in the middle of something."""
        if self._process != os.getpid():  # closing it here would close it for the parent as well
            self._left_behind.append(deque([connection]))
            return
        is_usable = not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE
        if is_usable and not self._closed:
            connection.used_at = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
        self._free.release()

    def close(self) -> None:
        """Close all connections; closing twice is fine."""
        with self._lock:
            self._closed = True
        if self._process == os.getpid():
            self._close_idle()

    def _take(self, deadline: float) -> TimedConnection:
        """Return a connection that nobody else has."""
        with self._lock:
            if self._closed:
                raise UsageError(f"store {self._url} is closed; open it again")
            if self._process != os.getpid():  # the parent's sockets are the parent's
                self._left_behind.append(self._idle)
                self._idle, self._free = deque(), threading.Semaphore(self._size)
                self._process = os.getpid()
        if not self._free.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise StoreBusy(self._url, f"all {self._size} connections of this process are in use; raise pool_size")
        try:
            while True:
                try:
                    connection = self._idle.pop()
                except IndexError:
                    return self._settings.connect()
                if time.monotonic() - connection.used_at < _IDLE_S and connection.is_silent():
                    return connection
                connection.close()
        except BaseException:
            self._free.release()
            raise

    def _drop(self, connection: TimedConnection | None, error: psycopg.Error) -> None:
        """Take a connection out of use after an error; if it broke, those that idle beside it are broken as well."""
        if connection is None:
            return
        if can_be_repeated(error) and connection.closed:
            self._close_idle()
        self.give_back(connection)

    def _close_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return
