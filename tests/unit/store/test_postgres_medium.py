"""The PostgreSQL medium itself: one round trip a commit, locks, plans, holds, cells, and its own role."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.errors import (
    CheckpointCorrupt,
    IntegrityError,
    LeaseHeld,
    NotFound,
    RunCorrupt,
    StoreUnavailable,
    UsageError,
)
from holdfast.store import postgres_rows, postgres_schema
from holdfast.store.commit import CheckpointDraft, Commit, Draft, prepare
from holdfast.store.inspection import Inspection
from holdfast.store.medium import Batch, StaleError
from holdfast.store.postgres import PostgresMedium
from holdfast.store.repair import Repair
from holdfast.store.run_copy import copy_run
from holdfast.store.store import Store
from holdfast.store.tables import INBOX, LEASE, META, RECORD, TABLES, AccountRow, LeaseRow, MetaRow
from holdfast.testing.contract import NOON, Line, chunk_of
from postgres_server import shared_server

FAR = 1 << 70


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


@pytest.fixture
def store(database):
    store = Store(PostgresMedium(database))
    yield store
    store.close()


@contextmanager
def admin(url):
    with shared_server().admin(urlsplit(url).path[1:]) as connection:
        connection.execute("SET search_path = holdfast")
        yield connection


def noted(path="path", body=b"body", **options):
    return Draft("noted", path, 1.0, body, **options)


# Round trips


@contextmanager
def counting(store, tmp_path):
    """Count how often this process waits for the server: each wait ends a message of kind Sync."""
    place = tmp_path / "trace"
    connection = store.medium._connections._idle[-1]
    waits = []
    with place.open("w") as file:
        connection.pgconn.trace(file.fileno())
        yield waits
        connection.pgconn.untrace()
    waits.append(sum(line.split("\t")[3] == "Sync" for line in place.read_text().splitlines() if line[:1].isdigit()))
    assert len(store.medium._connections._idle) == 1


def test_an_append_is_one_round_trip(store, tmp_path):
    """Proves D10, with as many records as it likes."""
    for count in (1, 3, 40):
        commit = Commit(run="run", records=[noted(f"path {n}") for n in range(count)])
        store.write(commit)
        store.write(commit)
        with counting(store, tmp_path) as waits:
            store.write(commit)
        assert waits == [1]
    assert len(store.journal.records(store.line("run"))) == 132


def test_copying_a_run_takes_hardly_more_round_trips_when_it_is_long(store, tmp_path):
    """Proves X6: a thread of a framework is copied in no time that its length decides."""
    line, taken = Line(store), []
    for length in (10, 200):
        while line.seq < length:
            line.commit(chunk_of(f"chunk {line.seq}"))
            store.write(Commit(run="run", records=[noted(f"path {line.seq}")]))
        with counting(store, tmp_path) as waits:
            copy_run(store, "run", f"copy {length}")
        taken += waits
        assert len(store.journal.records(store.line(f"copy {length}"))) == length
    assert taken[1] < taken[0] + 20
    assert store.held("copy 200") == store.held("run")
    assert list(Inspection(store).check()) == []


def test_a_commit_with_chunks_checkpoints_records_and_a_budget_is_one_round_trip(store, tmp_path):
    """Proves D10."""
    line = Line(store)
    line.commit(chunk_of("one"))
    before = None
    for turn in range(3):
        after = AccountRow(run="run", name="tokens", used=f"{turn}")
        commit = Commit(
            run="run",
            checkpoints=[CheckpointDraft(one, records=0) for one in line.envelopes([chunk_of(f"two {turn}")], [])],
            expected_head=line.head.envelope.id,
            chunks=[chunk_of(f"two {turn}"), chunk_of("one")],
            records=[noted()],
            accounts=[(before, after)],
            run_changes={"status": f"{turn}"},
        )
        with counting(store, tmp_path) as waits:
            done = store.write(commit)
        line.head, line.seq, before = done.checkpoint, done.checkpoint.envelope.seq, after
    assert waits == [1]
    assert store.accounts("run")["tokens"].used == "2"
    assert store.held("run") == {chunk_of("one").id, *(chunk_of(f"two {turn}").id for turn in range(3))}
    assert list(Inspection(store).check()) == []


def test_the_first_commit_of_a_run_is_one_round_trip_after_the_look_at_what_is_there(store, tmp_path):
    store.write(Commit(run="other", records=[noted()]))
    for run in ("one", "two", "three", "four", "five", "six"):  # the driver prepares what it has seen five times
        known = store.line_reader.look_up(run, "main")
        prepared = prepare(Commit(run=run, records=[noted()]), known, store.line_reader, store.leases)
        with counting(store, tmp_path) as waits:
            store.medium.apply(prepared.batch)
    assert waits == [1]
    assert len(store.runs()) == 7


# Guards and locks


def test_of_two_writers_that_know_the_same_line_one_wins_and_the_other_appends_after_it(database):
    """Proves D10."""
    with closing(Store(PostgresMedium(database))) as one, closing(Store(PostgresMedium(database))) as two:
        one.write(Commit(run="run", records=[noted(body=b"0")]))
        two.write(Commit(run="run", records=[noted(body=b"1")]))
        known = one.line_reader.remembered("run", "main")
        stale = prepare(Commit(run="run", records=[noted(body=b"never")]), known, one.line_reader, one.leases)
        with pytest.raises(StaleError):
            one.medium.apply(stale.batch)
        assert one.write(Commit(run="run", records=[noted(body=b"2")])).records[0].number == 3
        assert [record.body for record in two.journal.records(two.line("run"))] == [b"0", b"1", b"2"]


def test_a_batch_one_of_whose_guards_fails_writes_nothing(store):
    """Proves A10: the line's guard holds, the budget's does not."""
    store.write(Commit(run="run", records=[noted()]))
    before = store.line("run")
    wrong = AccountRow(run="run", name="tokens", used="1")
    account = AccountRow(run="run", name="tokens", used="2")
    prepared = prepare(
        Commit(run="run", records=[noted()], accounts=[(wrong, account)], chunks=[chunk_of("new")]),
        store.line_reader.remembered("run", "main"),
        store.line_reader,
        store.leases,
    )
    with pytest.raises(StaleError):
        store.medium.apply(prepared.batch)
    assert store.line("run") == before
    assert (store.accounts("run"), list(store.chunk_ids())) == ({}, [])
    assert len(store.journal.records(before)) == 1


def test_a_batch_that_inserts_a_row_that_is_there_writes_nothing(store):
    store.write(Commit(run="run", records=[noted()]))
    taken = store.codec.close(RECORD, store.journal.records(store.line("run"))[0])
    fresh = store.codec.close(META, MetaRow(name="fresh"))
    for batch in (
        Batch(inserts=[(META, fresh), (RECORD, taken)]),
        Batch(inserts=[(RECORD, taken), (META, fresh)]),
        Batch(guards=[(META, ("fresh",), None)], puts=[(META, fresh)], inserts=[(RECORD, taken)]),
        Batch(guards=[(META, ("fresh",), b"another seal")], puts=[(META, fresh)]),
        Batch(guards=[(META, ("fresh",), None), (RECORD, taken[:2], None)], puts=[(META, fresh)]),
    ):
        with pytest.raises(StaleError):
            store.medium.apply(batch)
    assert store.meta("fresh") is None
    store.medium.apply(
        Batch(guards=[(RECORD, taken[:2], taken[-1])], puts=[(META, fresh)], drops=[(RECORD, taken[:1])])
    )
    assert store.meta("fresh") == b""
    with store.medium.read() as reader:
        assert reader.scan(RECORD) == []


def test_a_commit_waits_for_a_transaction_that_has_locked_its_run_and_then_sees_what_it_did(database):
    """Proves D10: an interactive transaction reads, thinks and writes, and no commit comes between."""
    with closing(Store(PostgresMedium(database))) as store, closing(Store(PostgresMedium(database))) as other:
        for run in ("run", "elsewhere"):
            store.write(Commit(run=run, records=[noted()]))
            other.write(Commit(run=run, records=[noted()]))
        numbers = []
        thread = threading.Thread(
            target=lambda: numbers.append(
                other.write(Commit(run="run", records=[noted(body=b"late")])).records[0].number
            )
        )
        with store.medium.write() as transaction:
            transaction.lock("run")
            thread.start()
            assert other.write(Commit(run="elsewhere", records=[noted()])).records[0].number == 3
            time.sleep(0.1)
            assert numbers == []
            known = store.line_reader.read(transaction, "run")
            prepared = prepare(
                Commit(run="run", records=[noted(body=b"first")]), known, store.line_reader, store.leases
            )
            for table, row in prepared.batch.inserts + prepared.batch.puts:
                transaction.put(table, row)
        thread.join()
        assert numbers == [4]
        assert [record.body for record in store.journal.records(store.line("run"))][2:] == [b"first", b"late"]


def test_the_first_commit_of_a_line_and_a_lease_that_is_taken_meanwhile_cannot_both_be_first(database):
    """Proves D10: the commit saw no lease when it was prepared; the lease is committed while it waits for the lock."""
    with closing(Store(PostgresMedium(database))) as store, closing(Store(PostgresMedium(database))) as other:
        caught = []

        def commit():
            try:
                other.write(Commit(run="run", records=[noted()]))
            except LeaseHeld as error:
                caught.append(error)

        real = other.medium.apply
        reached = threading.Event()

        def apply(batch):
            reached.set()
            real(batch)

        other.medium.apply = apply
        thread = threading.Thread(target=commit)
        with store.medium.write() as transaction:
            transaction.lock("run")
            thread.start()
            assert reached.wait(10)
            time.sleep(0.1)
            taken = LeaseRow(run="run", line="main", owner="me", token=1, expires_at=time.time() + 60)
            transaction.put(LEASE, store.codec.close(LEASE, taken))
        thread.join()
        assert [error.owner for error in caught] == ["me"]
        assert store.line("run") is None


def test_a_block_in_a_block_needs_no_second_connection(database):
    with closing(Store(PostgresMedium(database, pool_size=1, timeout_s=2))) as store:
        lease = store.leases.take("run", owner="me", ttl_s=60)
        store.write(Commit(run="run", fence=lease.token, records=[noted()]))
        assert store.leases.running("run").owner == "me"
        store.leases.renew(lease, ttl_s=60)
        assert Repair(store).damaged_runs() == []
        store.post("run", "signal", b"")


def test_a_process_with_more_threads_than_connections_waits_for_one(database):
    with closing(Store(PostgresMedium(database, pool_size=2))) as store:

        def live(number):
            for _ in range(20):
                store.write(Commit(run=f"run-{number}", records=[noted()]))

        threads = [threading.Thread(target=live, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [store.line(f"run-{number}").number for number in range(8)] == [20] * 8


# Schema


def test_the_tables_have_the_declared_columns_in_their_order(database, store):
    types = {"text": "text", "int": "bigint", "real": "double precision", "blob": "bytea"}
    with admin(database) as connection:
        for table in TABLES:
            rows = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
                (table.name,),
            ).fetchall()
            found = [(name, kind) for name, kind, _ in rows if name not in ("tenant", "begun")]
            assert found == [(column.name, types[column.type]) for column in table.all_columns]
            assert {name for name, _, optional in rows if optional} == postgres_rows._optional(table.name)
            names = {row[0] for row in connection.execute(
                "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", (table.name,)
            ).fetchall()}  # fmt: skip
            assert {index.name for index in table.indexes} <= names


def test_a_plan_made_while_the_tables_were_empty_finds_rows_by_the_index_made_for_them(store):
    """A plan is kept for as long as a connection lives: one that reads all rows of a tenant would be kept as well."""
    connection = store.medium._connections._idle[-1]

    def plan(table, columns, **options):
        prefix = tuple("1" if column.type == "text" else 1 for column in columns)
        text, values = postgres_rows.scan("default", table, prefix, **options)
        return "\n".join(row[0] for row in connection.execute(b"EXPLAIN " + text, values).fetchall())

    for table in TABLES:
        by_key = plan(table, table.key)
        assert f"using {table.name}_pkey" in by_key, by_key
        assert all(f"({column.name} =" in by_key for column in table.key), by_key
        for index in table.indexes:
            columns = [one for one in postgres_rows._order(table.name, index.name) if one.name in index.columns]
            columns = [one for one in columns if one.name not in ("number", "seq", "created_at", "updated_at")]
            by_index = plan(table, columns, index=index.name, reverse=True, limit=1)
            names = (index.name, "run_updated") if index.name == "run_status" else (index.name,)  # both are in order
            assert any(f"{how} {name} " in by_index for how in ("using", "on") for name in names), by_index


def test_a_role_that_does_not_own_the_tables_can_do_everything_but_change_them(database, store):
    """Proves E7: row-level security binds the application, and the application cannot switch it off."""
    name = urlsplit(database).path[1:]
    with admin(database) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'worker'").fetchone():
            connection.execute("CREATE ROLE worker LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA holdfast TO worker")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO worker")
        connection.execute("REVOKE INSERT, UPDATE, DELETE ON holdfast.layout_version FROM worker")
    url = shared_server().url(name, "worker")
    with closing(Store(PostgresMedium(url, tenant="mine"))) as mine:
        line = Line(mine)
        first = line.commit(chunk_of("one"))
        line.commit(chunk_of("two"))
        mine.write(Commit(run="run", records=[noted()]))
        mine.post("run", "signal", b"")
        mine.leases.end(mine.leases.take("run", owner="me", ttl_s=9))
        mine.delete("run", [first.envelope.id])
        mine.release("run", [chunk_of("one").id], expected_seq=2, created_at=NOON)
        with mine.listen("run") as waiting:
            mine.wake("run")
            assert waiting.wait(5)
        assert list(Inspection(mine).check()) == []
        mine.delete_run("run")
        assert mine.migrate() == []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = holdfast")
        for statement in (
            "ALTER TABLE run NO FORCE ROW LEVEL SECURITY",
            "DROP POLICY own_tenant ON run",
            "INSERT INTO layout_version VALUES (99)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_opening_is_repeated_when_its_connection_is_cut(database, monkeypatch):
    real, cut = postgres_schema.settle, []

    def settle(connection, schema, **options):
        if len(cut) < 2:
            cut.append(connection.info.backend_pid)
            with admin(database) as connection_of_admin:
                connection_of_admin.execute("SELECT pg_terminate_backend(%s)", (cut[-1],))
        real(connection, schema, **options)

    monkeypatch.setattr(postgres_schema, "settle", settle)
    with closing(Store(PostgresMedium(database))) as store:
        Line(store).commit()
    assert len(cut) == 2


# Holds


def test_one_damaged_row_of_the_bookkeeping_deletes_no_chunk(database, store):
    """Proves X3: the count and the holds have to agree before anything is deleted."""
    shared = chunk_of("shared")
    Line(store, "one").commit(shared)
    Line(store, "two").commit(shared)
    with admin(database) as connection:
        connection.execute("UPDATE chunk SET holders = 1")
    assert list(store.medium.damaged_holds()) == [shared.id]
    store.delete_run("one")
    assert store.fetch([shared.id])
    store.medium.recount_holds()
    assert store.medium.damaged_holds() == {}
    Line(store, "one").commit(shared)
    with admin(database) as connection:
        connection.execute("DELETE FROM hold WHERE run = (SELECT n FROM run WHERE id = 'two')")
    assert sorted(Repair(store).damaged_runs()) == ["one", "two"], "whose hold it was, nobody knows"
    store.delete_run("one")
    assert store.fetch([shared.id])


def test_a_chunk_whose_row_was_lost_is_held_again_by_all_who_held_it(database, store):
    """Proves X3: a hold names the chunk itself, so it outlives the row."""
    shared = chunk_of("shared")
    line = Line(store, "one")
    line.commit(shared)
    Line(store, "two").commit(shared)
    with admin(database) as connection:
        connection.execute("DELETE FROM chunk")
    line.commit(shared)
    store.medium.recount_holds()
    store.delete_run("one")
    assert store.fetch([shared.id]) == {shared.id: shared}
    assert store.medium.damaged_holds() == {}
    store.delete_run("two")
    assert list(store.chunk_ids()) == []


def test_chunks_that_nobody_holds_go_with_the_next_run_that_is_deleted(database, store):
    Line(store).commit(chunk_of("mine"))
    with admin(database) as connection:
        connection.execute("INSERT INTO chunk VALUES ('default', '\\x01', 0, 1, 1, 0, 'x')")
        connection.execute("INSERT INTO chunk VALUES ('other', '\\x01', 0, 1, 1, 0, 'x')")
    store.delete_run("run")
    with admin(database) as connection:
        assert connection.execute("SELECT tenant FROM chunk").fetchall() == [("other",)]


def test_a_hold_on_what_is_not_there_is_passed_over(store):
    Line(store).commit(chunk_of("mine"))
    run = store.row_of("run").n
    with store.medium.write() as transaction:
        transaction.lock("run")
        transaction.hold_ids(run, [chunk_of("mine").id, chunk_of("no").id])
        transaction.hold(run, [chunk_of("more"), chunk_of("mine"), chunk_of("more")])
    assert store.held("run") == {chunk_of("mine").id, chunk_of("more").id}
    assert store.medium.damaged_holds() == {}


# Cells


@pytest.mark.parametrize("text", ["a\0b", "\1", "\1\1", "\1\2", "\0\1\0", "ü\U0001f600", "'; DROP TABLE run; --", ""])
def test_any_text_comes_back_as_it_was(store, text):
    store.write(Commit(run="run", records=[noted(text, key=text)], run_changes={"project": text, "status": text}))
    entry = store.post("run", "signal", b"", key=text)
    assert store.post("run", "signal", b"", key=text) == entry
    assert (store.row_of("run").project, store.row_of("run").status) == (text, text)
    line = store.line("run")
    [record] = store.journal.records(line)
    assert (record.path, record.key) == (text, text)
    assert store.journal.newest(line, text) == (record if text else None)  # what has no path is not found by one
    assert list(store.journal.with_key(line, text)) == [record]
    with store.medium.read() as reader:
        [row] = reader.scan(INBOX, ("run", text), index="inbox_key")
    assert row[2] == text


def test_texts_are_ordered_by_their_characters_as_in_every_medium(store):
    names = ["", "\0", "\0\0", "\1", "\1\1", "\2", "A", "B", "a", "a\0", "b", "ä", "\uffff", "\U0001f600"]
    with store.medium.write() as transaction:
        for name in names:
            transaction.put(META, store.codec.close(META, MetaRow(name=name)))
    with store.medium.read() as reader:
        assert [row[0] for row in reader.scan(META)] == sorted(names)
        assert [row[0] for row in reader.scan(META, reverse=True, limit=3)] == sorted(names)[:-4:-1]
        assert [row[0] for row in reader.scan(META, low="a\0", high="ä")] == ["a\0", "b", "ä"]
        assert reader.get(META, ("\ud800",)) is None


def test_numbers_beyond_64_bits_never_reach_the_server(store):
    line = Line(store)
    line.commit()
    for seq in (FAR, -FAR, 1 << 63):
        with pytest.raises(CheckpointCorrupt):
            store.checkpoint_at("run", seq)
    assert store.checkpoints("run", before_seq=-FAR) == []
    assert len(store.checkpoints("run", before_seq=FAR)) == 1
    with store.medium.read() as reader:
        assert reader.get(RECORD, (FAR, 1)) is None
        assert reader.scan(RECORD, (1,), low=-FAR, high=FAR) == []
        assert reader.scan(RECORD, (1,), low=FAR) == reader.scan(RECORD, (1,), high=-FAR) == []
    row = (1, FAR, 1, None, b"", b"")
    with pytest.raises(UsageError, match="cannot be stored"):
        store.medium.apply(Batch(inserts=[(RECORD, row)]))
    with pytest.raises(UsageError, match="cannot be stored"):
        store.medium.apply(Batch(guards=[(RECORD, (1, FAR), None)]))


def raise_first(errors):
    for error in errors:
        raise error


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("line", "value", None),
        ("line", "seal", None),
        ("line", "n", -1),
        ("run", "value", b""),
        ("run", "updated_at", float("nan")),
        ("run", "updated_at", float("inf")),
        ("run", "project", "\1 \1\3"),
        ("run", "n", None),
        ("checkpoint", "value", b"\xff" * 9),
        ("checkpoint", "created_at", -1e300),
        ("lease", "value", None),
        ("inbox", "seal", b"x" * 99),
        ("record", "path", (1 << 63) - 1),
    ],
)
def test_a_damaged_cell_is_an_integrity_error_and_not_the_drivers(database, store, table, column, value):
    """Proves D11."""
    lease = store.leases.take("run", owner="me", ttl_s=60)
    line = Line(store)
    store.write(
        Commit(run="run", fence=lease.token, checkpoints=[CheckpointDraft(line.envelope([]))], records=[noted()])
    )
    store.post("run", "signal", b"")
    found = store.line("run")
    with admin(database) as connection:
        connection.execute(f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")
        connection.execute(f"UPDATE {table} SET {column} = %s", (value,))
    calls = {
        "line": lambda: store.line("run"),
        "run": lambda: store.run("run"),
        "checkpoint": lambda: store.checkpoint_at("run", 1),
        "lease": lambda: raise_first(error for _, _, error in Inspection(store).damaged_rows()),
        "inbox": lambda: store.inbox("run"),
        "record": lambda: store.journal.records(found),
    }
    with pytest.raises(IntegrityError):
        calls[table]()
    if table == "lease":
        assert store.leases.running("run") is None
    if table in ("line", "run"):
        assert [type(error) for error in store.runs().damaged] == [RunCorrupt]


def test_a_closed_medium_refuses_and_a_server_that_is_gone_is_named(database):
    medium = PostgresMedium(database)
    medium.close()
    medium.close()
    for call in (medium.now, lambda: medium.listen("run"), lambda: medium.wake("run"), medium.sizes):
        with pytest.raises(UsageError, match="closed"):
            call()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        PostgresMedium("postgresql://x@/x?host=/nowhere")


def test_a_lease_runs_by_the_servers_clock(store, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    lease = store.leases.take("run", owner="me", ttl_s=60)
    assert abs(store.medium.now() - (lease.expires_at.timestamp() - 60)) < 5
    assert store.medium.now() > 1e9
    with pytest.raises(NotFound):
        store.run("run")
