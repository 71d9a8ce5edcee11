"""Stores on a memory medium that tests look at, alter and roll back behind the store's back."""

from __future__ import annotations

from contextlib import closing, contextmanager

from holdfast import generate_key
from holdfast.store.commit import Commit, Draft
from holdfast.store.keys import seal_store
from holdfast.store.memory import MemoryMedium, MemoryStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.store import Store
from holdfast.store.tables import TABLES, AccountRow
from holdfast.testing.contract import NOON, Line, chunk_of

_MAKERS = {
    "memory": lambda _place: MemoryStore(),
    "encrypted": lambda _place: seal_store(MemoryMedium(), generate_key()),
    "sqlite": lambda place: SQLiteStore(place / "store.db"),
}


def _add_stores_on_format_2():
    """Take the other stores in as soon as they are stores of this format."""
    try:
        from holdfast.store.files import FilesStore  # noqa: PLC0415
    except ImportError:
        pass
    else:
        if issubclass(FilesStore, Store):
            _MAKERS["files"] = FilesStore
    try:
        from holdfast.store.postgres import PostgresStore  # noqa: PLC0415
    except ImportError:
        return
    if issubclass(PostgresStore, Store):
        _MAKERS["postgres"] = PostgresStore


_add_stores_on_format_2()
STORES = list(_MAKERS)


@contextmanager
def open_store_in(kind, place):
    """Open a store of this kind in a folder; PostgreSQL gets a database of its own."""
    if kind != "postgres":
        with closing(_MAKERS[kind](place)) as store:
            yield store
        return
    from postgres_server import shared_server  # noqa: PLC0415 - a server is started for it

    url = shared_server().database()
    try:
        with closing(_MAKERS[kind](url)) as store:
            yield store
    finally:
        shared_server().drop(url)


def rows(medium, table):
    """Return the rows of a table by key, to be changed in place through `put_row`."""
    return dict(medium._tables.tables[table.name].rows)


def put_row(medium, table, row):
    """Write a row as somebody with access to the medium could."""
    with medium.write() as transaction:
        transaction.put(table, tuple(row))


def drop_row(medium, table, key):
    with medium.write() as transaction:
        transaction.drop(table, key)


def snapshot(medium):
    """Return all rows of a medium as they are now."""
    return {table.name: rows(medium, table) for table in TABLES}


def put_back(medium, was, *tables, only=lambda _key: True):
    """Put rows back as they once were: those of these tables, newer ones gone."""
    for table in tables or TABLES:
        now = rows(medium, table)
        for key in now:
            if only(key) and key not in was[table.name]:
                drop_row(medium, table, key)
        for key, row in was[table.name].items():
            if only(key):
                put_row(medium, table, row)


def fill(store, run="run", *, checkpoints=3, records=12):
    """Make a run with checkpoints, a journal, an inbox, an account, a tombstone and a lease that was given back."""
    line = Line(store, run)
    for number in range(checkpoints):
        line.commit(chunk_of(f"{run} {number}"), chunk_of("shared"))
        drafts = [
            Draft("step", f"path/{n % 3}", 1.0 + n, f"{run} {number} {n}".encode() * 10, key=f"k{n}")
            for n in range(records)
        ]
        store.write(Commit(run=run, records=drafts, at=NOON))
    line.follow()
    doomed = line.commit(chunk_of(f"{run} doomed"))
    line.commit()
    store.delete(run, [doomed.envelope.id])
    store.write(
        Commit(
            run=run,
            accounts=[(None, AccountRow(run=run, name="tokens", used="7", limit="100"))],
            run_changes={"status": "running", "project": "p", "attributes": {"a": 1}},
            at=NOON,
        )
    )
    store.post(run, "signal", b"hello", key="once")
    store.leases.end(store.leases.take(run, owner="me", ttl_s=60))
    return line
