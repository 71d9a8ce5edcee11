"""LISTEN and NOTIFY for waiting runs: names are hashed, because every role of a database hears every channel."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
from blake3 import blake3
from psycopg.sql import SQL, Identifier

from holdfast.store.bell import ClosingBell
from holdfast.store.postgres_errors import can_be_repeated, translated

if TYPE_CHECKING:
    from typing import Any

    from holdfast.store.postgres_pool import Settings

_PAUSE_S = 0.1


def channel_of(schema: str, tenant: str) -> str:
    """Return the channel of a tenant."""
    return f"holdfast_{blake3(f'{schema}/{tenant}'.encode()).hexdigest(length=12)}"


def payload_of(tenant: str, run: str) -> str:
    """Return what is sent to wake a run."""
    return blake3(f"{tenant}/{run}".encode()).hexdigest(length=16)


class PostgresBell(ClosingBell):
    """A connection of its own that listens; after losing it, it rings once, since a ring may have been missed."""

    def __init__(self, settings: Settings, url: str, channel: str, payload: str) -> None:
        self._settings = settings
        self._url = url
        self._channel = channel
        self._payload = payload
        with translated(url):
            self._connection: psycopg.Connection[Any] | None = self._listening()

    def wait(self, timeout_s: float) -> bool:
        """Return True once the run was woken, or may have been; False when the time is over."""
        deadline = time.monotonic() + timeout_s
        while self._connection is None:
            try:
                self._connection = self._listening()
            except psycopg.Error as error:
                if not can_be_repeated(error):
                    with translated(self._url):
                        raise
                if time.monotonic() + _PAUSE_S >= deadline:
                    return False
                time.sleep(_PAUSE_S)
            else:
                return True
        try:
            return self._heard(self._connection, deadline)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.close()
            return self.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop listening."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _heard(self, connection: psycopg.Connection[Any], deadline: float) -> bool:
        while (left := deadline - time.monotonic()) > 0:
            for notice in connection.notifies(timeout=left, stop_after=1):
                if notice.payload == self._payload:
                    return True
        return False

    def _listening(self) -> psycopg.Connection[Any]:
        connection = self._settings.connect()
        connection.execute(SQL("LISTEN {}").format(Identifier(self._channel)))
        connection.answer_by = float("inf")
        return connection
