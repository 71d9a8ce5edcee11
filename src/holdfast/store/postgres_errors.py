"""The driver's errors as ours, each with what to do next; passwords never get into a sentence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from holdfast.errors import HoldfastError, StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from holdfast.store.medium import RolledBack, StaleError

if TYPE_CHECKING:
    from collections.abc import Iterator

_GONE = ("57P01", "57P02", "57P03", "57P05")  # shut down by an administrator, crashed, starting up, idle too long
_FORGOTTEN = "26000"  # a prepared statement that a proxy, or the driver after a rollback, dropped
_UNDONE = ("40001", "40P01")  # rolled back for another transaction's sake
_ALTERED = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.DatatypeMismatch,
    errors.InvalidColumnReference,
    errors.NotNullViolation,
    errors.CheckViolation,
)
_REFUSED = ("password", "authentication", "no pg_hba.conf entry", "does not exist")
_CUT = (
    "server closed the connection unexpectedly",
    "onnection reset by peer",
    "onnection has been closed unexpectedly",
    "is starting up",
    "is shutting down",
    "in recovery mode",
    "not yet accepting connections",
)
_READ_ONLY = ("session is read-only", "server is in hot standby mode")
_NO_PRIMARY = (
    "this server takes no writes: it is a standby, or its transactions are read-only; nothing was written. Give the "
    "primary's address, or all of them (host=one,two): the one that takes writes is found"
)


def can_be_repeated(error: psycopg.Error) -> bool:
    """Tell whether the same call may succeed on a new connection: nothing was said about the data."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state.startswith("08") or state in (*_GONE, *_UNDONE, _FORGOTTEN)


def is_lost(error: psycopg.Error) -> bool:
    """Tell whether a connection broke, so that what became of its transaction is not known."""
    return can_be_repeated(error) and error.sqlstate not in (*_UNDONE, _FORGOTTEN)


def is_refused_for_good(error: psycopg.Error) -> bool:
    """Tell whether a server that answers would refuse the same login again; libpq gives only words for it."""
    said = str(error)
    return error.sqlstate is None and any(words in said for words in _REFUSED) and "FATAL" in said


def is_cut_short(error: psycopg.Error) -> bool:
    """Tell whether a server that is there did not let a login come to its end; libpq gives only words for it."""
    said = str(error)
    return can_be_repeated(error) and any(words in said for words in _CUT)


@contextmanager
def translated_in_transaction(store: str) -> Iterator[None]:
    """Turn the driver's errors into ours; one that says nothing about the data is RolledBack, for all to repeat."""
    try:
        yield
    except psycopg.Error as error:
        ours = _ours(store, error)
        if can_be_repeated(error) and isinstance(ours, StoreError):
            raise RolledBack(store, ours.detail) from error
        raise ours from error


@contextmanager
def translated(store: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(store, error) from error


def _ours(store: str, error: psycopg.Error) -> HoldfastError | StaleError:
    said = _first_line(error)
    if isinstance(error, errors.UniqueViolation):
        return StaleError(said)
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory)):
        return StoreFull(store, f"the server has no room left ({said}); nothing was written. Make room, then repeat")
    if isinstance(
        error, (errors.QueryCanceled, errors.LockNotAvailable, errors.DeadlockDetected, errors.TooManyConnections)
    ):
        return StoreBusy(store, f"the server did not answer in time ({said}); nothing was written. Repeat the call")
    if isinstance(error, errors.InsufficientPrivilege):
        if "row-level security" in said:
            return StoreUnavailable(store, "this login is bound to another tenant: name its own with ?tenant=")
        return StoreUnavailable(
            store, f"the role may not do that ({said}); grant it the tables, or migrate once as their owner"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(store, _NO_PRIMARY)
    if isinstance(error, _ALTERED):
        return StoreCorrupt(f"its tables are not those of a Holdfast store ({said}): they were altered", store)
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return StoreCorrupt(f"the server found damage ({said}); restore it from a backup or a copy", store)
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreUnavailable(store, _cannot_reach(said))
    return StoreError(store, f"PostgreSQL refused ({type(error).__name__}: {said})")


def _cannot_reach(said: str) -> str:
    """Say what to do about a connection that did not come about or broke; libpq gives only words for it."""
    if any(words in said for words in _READ_ONLY):
        return _NO_PRIMARY
    if "password" in said or "authentication" in said:
        return f"the server refused the login ({said}); check user and password"
    if "database" in said and "does not exist" in said:
        return f"there is no such database ({said}); create it, then repeat"
    if "role" in said and "does not exist" in said:
        return f"there is no such user ({said}); create it, then repeat"
    return (
        f"the server cannot be reached ({said}). A commit under way may or may not be stored: open the run again to see"
    )


def _first_line(error: psycopg.Error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines and lines[0].endswith("Multiple connection attempts failed.") else " ".join(lines[:1])
