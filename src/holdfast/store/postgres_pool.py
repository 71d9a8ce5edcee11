"""Connections to PostgreSQL: configured for one tenant, bounded in time, repeated over a new one when one breaks."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from holdfast.errors import UsageError
from holdfast.store.postgres_errors import can_be_repeated, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import PQGen

T = TypeVar("T")
_FIRST_PAUSE_S = 0.005
_ASK_AGAIN_S = 0.5  # the pool tries to reconnect only when it is asked anew
_LONGEST_PAUSE_S = 0.25


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which no call waits longer than it may, whatever the server does."""

    answer_by: float = float("inf")

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for an answer until `answer_by`; after that the connection is of no use to anybody."""
        if timeout is not None or self.answer_by == float("inf"):
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, max(0.0, self.answer_by - time.monotonic()))
        except errors._WaitTimeout:  # noqa: SLF001 - the driver's own name for it
            self.pgconn.finish()
            raise psycopg.OperationalError("no answer in time") from None


class Settings:
    """What every connection of a store is set to."""

    def __init__(self, conninfo: str, *, schema: str, tenant: str, timeout_s: float, synchronous: bool) -> None:
        given: dict[str, Any] = conninfo_to_dict(conninfo)
        given.setdefault("connect_timeout", max(2, int(timeout_s)))
        given.setdefault("application_name", "holdfast")
        given.setdefault("target_session_attrs", "read-write")  # decisions only on the primary
        given.setdefault("tcp_user_timeout", int(timeout_s * 1000))
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
        }

    def apply(self, connection: psycopg.Connection[Any]) -> None:
        """Set a new connection up; one round trip."""
        names = ", ".join("set_config(%s, %s, false)" for _ in self._values)
        values = [part for pair in self._values.items() for part in pair]
        connection.execute(f"SELECT {names}".encode(), values)

    def connect(self) -> TimedConnection:
        """Return a connection outside any pool."""
        connection = TimedConnection.connect(self.conninfo, autocommit=True)
        connection.answer_by = time.monotonic() + self.timeout_s
        try:
            self.apply(connection)
        except BaseException:
            connection.close()
            raise
        return connection


class Connections:
    """A pool that outlives server restarts, and a fork of this process."""

    def __init__(self, settings: Settings, *, url: str, size: int) -> None:
        self._settings = settings
        self._url = url
        self._size = size
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._left_behind: list[ConnectionPool[TimedConnection]] = []
        self._pool: ConnectionPool[TimedConnection] | None = None
        self._closed = False

    def call(self, work: Callable[[TimedConnection, bool], T]) -> T:
        """Do work on a connection within the timeout; when that breaks, again on another, told that it is again.

        So work must be one that may be done twice. A server that restarts is waited for until the time is over.
        """
        deadline = time.monotonic() + self._settings.timeout_s
        pause, again = _FIRST_PAUSE_S, False
        with translated(self._url):
            while True:
                try:
                    left = max(0.001, deadline - time.monotonic())
                    with self._opened().connection(timeout=min(_ASK_AGAIN_S, left)) as connection:
                        connection.answer_by = deadline
                        return work(connection, again)
                except PoolTimeout:
                    if time.monotonic() >= deadline:
                        raise
                    continue
                except psycopg.Error as error:
                    if not can_be_repeated(error) or time.monotonic() + pause >= deadline:
                        raise
                again = True
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, pause * 1.5)

    def close(self) -> None:
        """Close all connections; closing twice is fine."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.close()

    def _opened(self) -> ConnectionPool[TimedConnection]:
        with self._lock:
            if self._closed:
                raise UsageError(f"store {self._url} is closed; open it again")
            if self._process != os.getpid():
                # Neither its sockets nor its threads crossed the fork: leave it to the parent.
                self._left_behind += [self._pool] if self._pool else []
                self._pool, self._process = None, os.getpid()
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._settings.conninfo,
                    connection_class=TimedConnection,
                    kwargs={"autocommit": True},
                    configure=self._settings.apply,
                    min_size=1,
                    max_size=self._size,
                    reconnect_timeout=0.1,
                    num_workers=2,
                    open=True,
                )
            return self._pool
