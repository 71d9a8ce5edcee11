"""Waking those who wait for a run, over LISTEN and NOTIFY: one connection listens for all waiting runs of a process.

NOTIFY serialises all writers of a database over their commit, so it is never part of one: wakes are collected, and a
process sends at most one every 50 ms. Names are hashed, because every role of a database hears every channel.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

import psycopg
from blake3 import blake3
from psycopg.sql import SQL, Identifier

from holdfast.errors import HoldfastError, UsageError
from holdfast.store.named_sql import queries
from holdfast.store.postgres_errors import can_be_repeated, is_refused_for_good, translated
from holdfast.store.wakeups import EVERYBODY, Wakeups

if TYPE_CHECKING:
    from holdfast.store.postgres_pool import Connections, PoolSettings, TimedConnection
    from holdfast.store.wakeups import Wakeup

_EVERY_S = 0.05
_RECONNECT_S = 0.1
_MOST_NAMES = 200  # of 33 characters: a payload has less than 8,000
_Q = queries("postgres.sql")


def channel_of(schema: str, tenant: str) -> str:
    """Return the channel of a tenant."""
    return f"holdfast_{blake3(f'{schema}/{tenant}'.encode()).hexdigest(length=12)}"


def _name_of(run: str) -> str:
    return blake3(run.encode(errors="surrogatepass")).hexdigest(length=16)


class WakeSender:
    """Sends wakes: the first at once, those of the next 50 ms together at their end."""

    def __init__(self, connections: Connections, url: str, channel: str) -> None:
        self._connections = connections
        self._url = url
        self._channel = channel
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._sent_at = 0.0
        self._timer: threading.Timer | None = None
        self._process = os.getpid()
        self._is_closed = False

    def wake(self, run: str) -> None:
        """Wake those who listen for a run, in any process."""
        with self._lock:
            if self._is_closed:
                raise UsageError(f"store {self._url} is closed; open it again")
            if self._process != os.getpid():  # the timer and its wakes are the parent's
                self._process, self._timer, self._pending = os.getpid(), None, set()
            self._pending.add(_name_of(run))
            due_in = self._sent_at + _EVERY_S - time.monotonic()
            if self._timer is not None:
                return
            if due_in > 0:
                self._timer = threading.Timer(due_in, self._send_late)
                self._timer.daemon = True
                self._timer.start()
                return
            names = self._taken()
        self._send(names)

    def _taken(self) -> set[str]:
        names, self._pending, self._sent_at = self._pending, set(), time.monotonic()
        return names

    def _send(self, names: set[str]) -> None:
        """Send wakes; what could not be sent goes with the next one."""
        payload = " ".join(sorted(names)) if len(names) <= _MOST_NAMES else EVERYBODY
        values = {"channel": self._channel, "payload": payload}
        try:
            self._connections.call(lambda connection: connection.execute(_Q["notify"], values))
        except BaseException:
            with self._lock:
                self._pending |= names
            raise

    def _send_late(self) -> None:
        with self._lock:
            self._timer = None
            names = self._taken()
        try:
            if names:
                self._send(names)
        except HoldfastError:
            return  # nobody waits for this thread's answer: the next call of `wake` or `close` sends it, or raises

    def close(self) -> None:
        """Send what is pending, if that still can be done."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            timer, self._timer = self._timer, None
        if is_first and self._process == os.getpid():
            if timer is not None:
                timer.cancel()
            self._send_late()


class RunListener(Wakeups):
    """One connection that listens for every run that somebody in this process waits for."""

    def __init__(self, settings: PoolSettings, url: str, channel: str) -> None:
        super().__init__()
        self._settings = settings
        self._url = url
        self._channel = channel
        self._thread: threading.Thread | None = None
        self._stop: socket.socket | None = None
        self._process = os.getpid()
        self._error: psycopg.Error | None = None
        self._is_closed = False

    def listen(self, run: str) -> Wakeup:
        """Return what is woken with a run from now on; the server has confirmed that it listens."""
        with self._lock:
            if self._is_closed:
                raise UsageError(f"store {self._url} is closed; open it again")
            if self._process != os.getpid():  # neither the thread nor its socket crossed the fork
                self._process, self._thread, self._stop, self._by_name = os.getpid(), None, None, {}
            if self._thread is None or not self._thread.is_alive():
                with translated(self._url):
                    connection = self._connected()
                self._error = None
                self._stop, stopped = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._run, args=(connection, stopped), name="holdfast-listen", daemon=True
                )
                self._thread.start()
            return self.open(_name_of(run))

    def check(self) -> None:
        """Raise if the server refuses to let this process listen any longer."""
        error = self._error
        if error is not None:
            with translated(self._url):
                raise error

    def close(self) -> None:
        """Stop listening; closing twice is fine."""
        with self._lock:
            self._is_closed = True
            thread, stop = self._thread, self._stop
            self._thread = self._stop = None
        if thread is not None and stop is not None and self._process == os.getpid():
            stop.close()
            thread.join()

    def _connected(self) -> TimedConnection:
        connection = self._settings.connect()
        try:
            connection.execute(SQL("LISTEN {}").format(Identifier(self._channel)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _run(self, connection: TimedConnection, stopped: socket.socket) -> None:
        """Hand on what is heard; a connection that is lost is replaced, and all are woken: they may have missed one."""
        current: TimedConnection | None = connection
        try:
            while True:
                try:
                    if current is None:
                        current = self._connected()
                        self.wake(EVERYBODY)
                    if not self._hear(current, stopped):
                        return
                except psycopg.Error as error:
                    if current is not None:
                        current.close()
                        current = None
                    elif not can_be_repeated(error) or is_refused_for_good(error):
                        self._error = error
                        self.wake(EVERYBODY)
                        return
                    with selectors.DefaultSelector() as selector:
                        selector.register(stopped, selectors.EVENT_READ)
                        if selector.select(_RECONNECT_S):
                            return
        finally:
            stopped.close()
            if current is not None:
                current.close()

    def _hear(self, connection: TimedConnection, stopped: socket.socket) -> bool:
        """Hand on notifications until the connection breaks; False when this process stops listening."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            selector.register(stopped, selectors.EVENT_READ)
            while True:
                while notice := connection.pgconn.notifies():
                    self.wake(*notice.extra.decode().split())
                ready = [key.fileobj for key, _ in selector.select()]
                if stopped in ready:
                    return False
                connection.pgconn.consume_input()
