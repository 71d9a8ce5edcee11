"""What is PostgreSQL's own: tenants, schema, migrations, and what people get wrong."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest

import holdfast
from holdfast.errors import FormatTooNew, NotFound, StoreCorrupt, StoreFull, StoreUnavailable, UsageError
from holdfast.model.checkpoint import Marks
from holdfast.store import postgres_schema
from holdfast.store.commit import Commit, Draft
from holdfast.store.inspection import Inspection
from holdfast.store.named_sql import FOLDER, queries
from holdfast.store.open import open_store
from holdfast.store.postgres import PostgresMedium
from holdfast.store.postgres_url import PostgresPlace
from holdfast.store.store import Store
from holdfast.testing.contract import Line, chunk_of
from postgres_server import Server, shared_server

_EMPTY_FUNCTION = "CREATE FUNCTION hold_present(text, bigint, bytea[]) RETURNS void LANGUAGE sql AS 'SELECT NULL::void'"


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


def opened(url, **options):
    return Store(PostgresMedium(url, **options))


def connect(url, schema="holdfast"):
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(f"SET search_path = {schema}")
    return connection


def test_a_foreign_tenants_ids_are_not_found_and_its_lists_are_empty(database):
    """Proves E7."""
    with (
        closing(opened(database, tenant="mine")) as mine,
        closing(opened(f"{database}&tenant=theirs")) as theirs,
    ):
        line = Line(theirs, "run")
        record = line.commit(chunk_of("secret"))
        known = record.envelope.id
        calls = [
            lambda: mine.run("run"),
            lambda: mine.checkpoints("run"),
            lambda: mine.checkpoint(known),
            lambda: mine.mark(known, Marks()),
            lambda: mine.delete("run", [known]),
            lambda: mine.delete_run("run"),
            lambda: mine.held("run"),
        ]
        for call in calls:
            with pytest.raises(NotFound):
                call()
        assert mine.runs() == []
        assert dict(mine.fetch([chunk_of("secret").id])) == {}
        assert list(mine.chunk_ids()) == []
        assert mine.tombstone("run", known) is None
        assert mine.stats().chunks == 0
        Line(mine, "run").commit(chunk_of("secret"))
        mine.delete_run("run")
        assert list(theirs.checkpoints("run")) == [record]
        assert theirs.fetch([chunk_of("secret").id])


def test_row_level_security_hides_other_tenants_from_a_query_that_forgets_them(database):
    """Proves E7: the second line, for a role that owns the tables and is not a superuser."""
    with closing(opened(database, tenant="theirs")) as theirs:
        Line(theirs).commit(chunk_of("secret"))
    with connect(database) as connection:
        tables = ("run", "checkpoint", "chunk", "hold")
        for tenant, expected in (("theirs", 1), ("mine", 0), ("", 0)):
            connection.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenant,))
            assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables] == [
                expected
            ] * 4
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO lease VALUES ('theirs', 'run', 'main', '', '')")


def test_the_schema_equals_all_migrations_and_is_the_shape_that_is_compared(database):
    """Proves E5."""
    with connect(database, "one") as connection:
        connection.execute("CREATE SCHEMA one")
        connection.execute(queries("postgres.sql")["make_layout_version"])
        connection.execute((FOLDER / "postgres_schema.sql").read_bytes())
        whole = postgres_schema.shape(connection)
    with connect(database, "two") as connection:
        connection.execute("CREATE SCHEMA two")
        connection.execute(queries("postgres.sql")["make_layout_version"])
        for path in postgres_schema.migrations():
            connection.execute(path.read_bytes())
        assert postgres_schema.shape(connection) == whole
    assert sorted(postgres_schema.SHAPE_FILE.read_text().splitlines()) == whole
    assert [int(path.name[:4]) for path in postgres_schema.migrations()] == [1, 2, 3, 4]


def test_an_older_schema_is_migrated_on_first_use_and_keeps_what_it_holds(database):
    """Proves E5."""
    with connect(database) as connection:
        connection.execute("CREATE SCHEMA holdfast")
        connection.execute(queries("postgres.sql")["make_layout_version"])
        connection.execute(postgres_schema.migrations()[0].read_bytes())
        connection.execute("INSERT INTO layout_version VALUES (1)")
        connection.execute("SELECT set_config('holdfast.tenant', 'default', false)")
        chunk = chunk_of("old")
        row = ("default", chunk.id, 0, chunk.size, chunk.size, 1, chunk.data)
        connection.execute("INSERT INTO chunk VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
    with closing(opened(database)) as store:
        assert dict(store.fetch([chunk.id])) == {chunk.id: chunk}
        Line(store).commit(chunk_of("new"))
        assert store.migrate() == []
    with connect(database) as connection:
        versions = connection.execute("SELECT version FROM layout_version ORDER BY version").fetchall()
        assert versions == [(1,), (2,), (3,), (4,)]
        assert sorted(postgres_schema.SHAPE_FILE.read_text().splitlines()) == postgres_schema.shape(connection)


def test_many_processes_may_begin_at_once(database):
    def begin(number):
        with closing(opened(database)) as store:
            Line(store, f"run-{number}").commit()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(begin, range(8)))
    with closing(opened(database)) as store:
        assert len(store.runs()) == 8


def test_migrate_says_which_versions_it_applied(database):
    with connect(database) as connection:
        assert postgres_schema.migrate(connection, "holdfast", store="x") == [1, 2, 3, 4]
        assert postgres_schema.migrate(connection, "holdfast", store="x") == []


def test_a_database_that_cannot_hold_every_text_is_refused(database):
    name = f"{urlsplit(database).path[1:]}_ascii"
    with shared_server().admin() as admin:
        admin.execute(f"CREATE DATABASE {name} OWNER app ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(UsageError, match="UTF8"):
        opened(shared_server().url(name, "app"))
    with shared_server().admin() as admin:
        admin.execute(f"DROP DATABASE {name}")


def test_a_schema_of_format_1_is_refused_with_what_to_do(database):
    with connect(database) as connection:
        connection.execute("CREATE SCHEMA holdfast")
        connection.execute("CREATE TABLE schema_version (version integer PRIMARY KEY)")
        connection.execute("INSERT INTO schema_version VALUES (2)")
    with pytest.raises(UsageError, match=r"format 1.*another schema.*or drop"):
        opened(database)
    with closing(opened(f"{database}&schema=holdfast2")) as store:
        Line(store).commit()


def test_a_newer_schema_is_refused(database):
    with closing(opened(database)):
        pass
    with connect(database) as connection:
        connection.execute("INSERT INTO layout_version VALUES (99)")
    with pytest.raises(FormatTooNew, match="99"):
        opened(database)


@pytest.mark.parametrize(
    ("alteration", "said"),
    [
        ("ALTER TABLE checkpoint DROP COLUMN phase", "lacks `column checkpoint.phase text`"),
        ("ALTER TABLE checkpoint ADD COLUMN extra text", "has `column checkpoint.extra text`"),
        ("ALTER TABLE chunk DISABLE ROW LEVEL SECURITY", "row security chunk enabled t"),
        ("DROP POLICY own_tenant ON run", "policy run.own_tenant"),
        ("ALTER TABLE chunk ALTER COLUMN size TYPE integer", "column chunk.size bigint"),
        ("DROP INDEX checkpoint_time", "checkpoint_time"),
        (_EMPTY_FUNCTION, "function hold_present"),
    ],
)
def test_a_table_altered_by_hand_is_refused_and_the_alteration_named(database, alteration, said):
    with closing(opened(database)):
        pass
    with connect(database) as connection:
        if "FUNCTION" in alteration:
            connection.execute("DROP FUNCTION hold_present")
        connection.execute(alteration)
    with pytest.raises(StoreCorrupt) as caught:
        opened(database)
    assert said in str(caught.value)


def test_an_index_of_the_administrators_own_does_no_harm(database):
    with closing(opened(database)):
        pass
    with connect(database) as connection:
        connection.execute("CREATE INDEX mine ON checkpoint (run)")
    with closing(opened(database)) as store:
        Line(store).commit()


def test_a_table_that_vanishes_under_an_open_store_is_named(database):
    with closing(opened(database)) as store:
        with connect(database) as connection:
            connection.execute("DROP TABLE tombstone")
        with pytest.raises(StoreCorrupt, match="altered"):
            store.tombstone("run", "cp_1")


def test_a_wrong_password_is_named_and_not_shown(database):
    with shared_server().admin() as admin:
        if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'with_password'").fetchone():
            admin.execute("CREATE ROLE with_password LOGIN PASSWORD 'right'")
    name = urlsplit(database).path[1:]
    with pytest.raises(StoreUnavailable, match="refused the login") as caught:
        opened(shared_server().url(name, "with_password", "wr0ng-secret"))
    assert "wr0ng-secret" not in f"{caught.value} {caught.value.__cause__}"


def test_a_missing_database_user_or_server_is_named():
    server = shared_server()
    with pytest.raises(StoreUnavailable, match="no such database"):
        opened(server.url("absent", "postgres"))
    with pytest.raises(StoreUnavailable, match="no such user"):
        opened(server.url("postgres", "absent"))
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        opened("postgresql://postgres@/postgres?host=/nowhere", timeout_s=2)


def test_a_role_without_rights_is_told_what_it_lacks(database):
    name = urlsplit(database).path[1:]
    with shared_server().admin() as admin:
        if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'guest'").fetchone():
            admin.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreUnavailable, match="may not do that"):
        opened(shared_server().url(name, "guest"))


@pytest.mark.parametrize(
    "url", ["postgresql://h/db?unknown_option=1", "postgresql://[bad/db", "postgresql://h:port/db"]
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(UsageError):
        opened(url)


@pytest.mark.parametrize("tenant", ["", "a b", "../x", "x" * 300, "a\0b"])
def test_a_tenant_has_the_grammar_of_ids(database, tenant):
    if tenant:
        with pytest.raises(UsageError):
            opened(database, tenant=tenant)
    with pytest.raises(UsageError):
        opened(database, schema="Bad-Name")


def test_a_full_server_is_named_as_such(database, monkeypatch):
    with closing(opened(database)) as store:

        def full(*_arguments, **_options):
            raise psycopg.errors.DiskFull("could not extend file")

        monkeypatch.setattr(store.medium, "_apply", full)
        with pytest.raises(StoreFull, match="no room left"):
            Line(store).commit()


def test_a_url_opens_the_store_and_never_shows_its_password(database):
    with holdfast.open(f"{database}&tenant=acme&schema=other") as hf:
        hf.run("run").checkpoint(state={"n": 1})
        assert hf.latest("run").section("state") == {"n": 1}
        assert (hf.store.medium.tenant, hf.store.medium.schema) == ("acme", "other")
    with closing(open_store(f"{database}&tenant=acme&schema=other")) as store:
        assert [run.id for run in store.runs()] == ["run"]
    place = PostgresPlace.parse("postgresql://me:hush@host:5433/db?sslmode=require&tenant=t&password=hush2")
    assert "hush" not in place.shown
    assert place.shown == "postgresql://me@host:5433/db?sslmode=require&tenant=t"


def test_two_schemas_in_one_database_are_two_stores(database):
    with closing(opened(database)) as one, closing(opened(database, schema="two")) as two:
        Line(one).commit(chunk_of("one"))
        assert two.runs() == []


def test_a_commit_in_many_batches_is_one_transaction(database, monkeypatch):
    """Proves D10."""
    monkeypatch.setattr("holdfast.store.postgres_chunks._BATCH_BYTES", 100)
    with closing(opened(database)) as store:
        line, late = Line(store), Line(store)
        chunks = [chunk_of(f"chunk {n}") for n in range(60)]
        line.commit(*chunks)
        assert store.fetch([chunk.id for chunk in chunks]).keys() == {chunk.id for chunk in chunks}
        with closing(opened(database)) as elsewhere:
            late.store = elsewhere
            late.follow()
            late.commit()
            line.follow()
            line.commit()
            with pytest.raises(holdfast.errors.HeadMoved):
                late.commit(*[chunk_of(f"refused {n}") for n in range(60)])
        assert len(list(store.chunk_ids())) == 60
        assert list(Inspection(store).check()) == []


@pytest.fixture(scope="module")
def pair():
    """Yield a primary and its hot standby."""
    primary = Server()
    standby = Server(standby_of=primary)
    yield primary, standby
    standby.stop()
    primary.stop()


def test_a_standby_is_refused_and_the_primary_is_found_among_several(pair):
    """Proves A10: decisions are made only where they hold."""
    primary, standby = pair
    url = primary.database()
    name = urlsplit(url).path[1:]
    with closing(opened(url)) as store:
        record = Line(store).commit(chunk_of("one"))
    behind = wait_for(standby, name, record.envelope.id)
    with pytest.raises(StoreUnavailable, match=r"takes no writes.*primary's address"):
        opened(behind)
    both = f"{url}%2C{behind.partition('?host=')[2]}&port=5432,5432"
    with closing(opened(both)) as store:
        line = Line(store)
        line.follow()
        line.commit(chunk_of("two"))


def test_a_standby_that_somebody_insists_on_can_be_read_and_not_written(pair):
    """Proves A10."""
    primary, standby = pair
    url = primary.database()
    with closing(opened(url)) as store:
        line = Line(store)
        record = line.commit(chunk_of("one"))
    behind = wait_for(standby, urlsplit(url).path[1:], record.envelope.id)
    with closing(opened(f"{behind}&target_session_attrs=any")) as store:
        assert list(store.checkpoints("run")) == [record]
        line.store = store
        calls = [
            lambda: line.commit(chunk_of("two")),
            lambda: Line(store, "new").commit(),
            lambda: store.mark(record.envelope.id, Marks(pinned=True)),
            lambda: store.mark_many("run", {record.envelope.id: (Marks(), Marks(pinned=True))}),
            lambda: store.delete("run", [record.envelope.id]),
            lambda: store.delete_run("run"),
            lambda: store.leases.take("run", owner="me", ttl_s=9),
            lambda: store.write(Commit(run="run", records=[Draft("noted", "path", 1.0)])),
            lambda: store.post("run", "signal", b""),
            lambda: store.wake("run"),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                call()
        assert list(store.checkpoints("run")) == [record]


def wait_for(standby, name, checkpoint):
    """Return a database's URL on the standby, once that has a checkpoint."""
    url = standby.url(name, "app")
    query = "SELECT 1 FROM holdfast.checkpoint WHERE id = %s"
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            with standby.admin(name) as connection:
                if connection.execute(query, (checkpoint,)).fetchone():
                    return url
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
            pass  # the database itself is not there yet
        time.sleep(0.01)
    raise AssertionError("the standby did not follow")


def test_a_server_that_became_read_only_refuses_writes_in_a_store_that_is_open(database):
    """Proves A10: a primary that was made to step down."""
    name = urlsplit(database).path[1:]
    with closing(opened(f"{database}&target_session_attrs=any")) as store:
        line = Line(store)
        record = line.commit()
        with shared_server().admin() as admin:
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            line.commit()
        assert list(store.checkpoints("run")) == [record]
    with pytest.raises(StoreUnavailable, match="takes no writes"):
        opened(database)
