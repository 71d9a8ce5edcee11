"""A role that the server binds to one tenant: raw SQL on its own connection reads nothing of another's."""

from __future__ import annotations

from contextlib import closing, contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

import holdfast
from holdfast import NotFound, Settings, StoreUnavailable, UsageError
from holdfast.store import postgres_schema
from holdfast.store.named_sql import queries
from holdfast.store.postgres import PostgresMedium
from holdfast.store.postgres_role import bind_role
from postgres_server import shared_server

TABLES = (
    "meta", "run", "line", "record", "gap", "checkpoint", "tombstone", "lease", "inbox", "account", "chunk", "hold",
    "doomed", "writer",
)  # fmt: skip


@pytest.fixture
def database():
    url = shared_server().database()
    yield url
    shared_server().drop(url)


@pytest.fixture
def role():
    """A name that no other test uses: roles are of the whole server."""
    return f"app_{uuid4().hex[:8]}"


@pytest.fixture
def superuser(database):
    """The address of the same database for its administrator."""
    return shared_server().url(urlsplit(database).path[1:], "postgres")


@contextmanager
def admin(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = holdfast")
        yield connection


def as_role(url, role, tenant="mine"):
    return f"{shared_server().url(urlsplit(url).path[1:], role)}&tenant={tenant}"


def bind(owner, role, tenant="mine"):
    with closing(PostgresMedium(owner, tenant=tenant)) as medium:
        return medium.bind_role(role)


def fill(url, tenant, text):
    with holdfast.open(f"{url}&tenant={tenant}" if "tenant=" not in url else url, settings=Settings()) as hf:
        with hf.run("run") as run:
            run.step("work", lambda: text)
            run.checkpoint(state={"said": text * 200}, label="one")
        hf.control.signal("run", "go", text)
        return hf.latest("run").id


def test_raw_sql_on_the_applications_own_connection_reads_and_writes_nothing_of_another_tenant(superuser, role):
    """Proves E7; issue 18.7: tables of a superuser, the application logged in as a role that owns nothing."""
    fill(superuser, "theirs", "their words")
    assert bind(superuser, role)
    fill(as_role(superuser, role), "mine", "my words")
    with psycopg.connect(as_role(superuser, role).partition("&tenant")[0], autocommit=True) as connection:
        connection.execute("SET search_path = holdfast")
        for tenant in ("theirs", "mine", "", "%", "theirs' OR true --"):
            connection.execute("SELECT set_config('holdfast.tenant', %s, false)", (tenant,))
            for table in TABLES:
                rows = connection.execute(f"SELECT tenant FROM {table}").fetchall()
                assert {name for (name,) in rows} <= {"mine"}, (tenant, table)
                assert not connection.execute(f"DELETE FROM {table} WHERE tenant <> 'mine' RETURNING 1").fetchall()
        connection.execute("SELECT set_config('holdfast.tenant', 'theirs', false)")
        for statement in (
            "INSERT INTO run (tenant, id, n, project, updated_at, value, seal) SELECT 'theirs', 'x', 9, '', 0, '', ''",
            "INSERT INTO lease VALUES ('theirs', 'run', 'main', '', '')",
            "ALTER TABLE run DISABLE ROW LEVEL SECURITY",
            f"DROP POLICY bound_{role} ON run",
            f"ALTER POLICY bound_{role} ON run USING (true)",
            "CREATE POLICY mine ON run USING (true)",
            "ALTER TABLE run OWNER TO CURRENT_USER",
            "TRUNCATE run",
            "SET ROLE postgres",
            "SET SESSION AUTHORIZATION postgres",
            "CREATE FUNCTION holdfast.leak() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
            "CREATE VIEW holdfast.leak AS SELECT * FROM run",
            "INSERT INTO layout_version VALUES (99)",
            "COPY run TO '/tmp/x'",
            "COPY run TO PROGRAM 'id'",
            "SELECT pg_read_file('PG_VERSION')",
            "CREATE ROLE another",
        ):
            with pytest.raises(psycopg.Error):
                connection.execute(statement)
        connection.execute("SET row_security = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM run")
        assert connection.execute("SELECT count(*) FROM pg_stats WHERE schemaname = 'holdfast'").fetchone() == (0,)
    fill(f"{superuser}&tenant=theirs", "theirs", "more words")  # and nothing was lost there


def test_a_bound_role_does_all_that_an_application_does(superuser, database, role):
    with pytest.raises(UsageError, match="may not make it"):
        bind(database, role)
    with admin(superuser) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    for _ in range(2):  # again, as after an upgrade
        assert not bind(database, role)
    url = as_role(database, role)
    with holdfast.open(url, settings=Settings()) as hf:
        first = fill(url, "mine", "my words")
        assert hf.latest("run").section("state") == {"said": "my words" * 200}
        hf.mark(first, pinned=True)
        hf.fork("run", "other")
        assert {run.id for run in hf.runs()} == {"run", "other"}
        assert hf.verify().sound
        hf.prune()
        hf.delete_run("other")
        assert hf.store.migrate() == []
        assert hf.store.medium.role_problem() is None


def test_another_tenant_is_empty_for_it_and_a_write_there_is_refused_with_what_to_do(superuser, role):
    fill(superuser, "theirs", "their words")
    bind(superuser, role)
    with holdfast.open(as_role(superuser, role, "theirs"), settings=Settings()) as hf:
        assert list(hf.runs()) == []
        with pytest.raises(NotFound):
            hf.store.run("run")
        with pytest.raises(StoreUnavailable, match=r"\?tenant="):
            hf.run("run").checkpoint(state=1)


@pytest.mark.parametrize("rights", ["SUPERUSER", "BYPASSRLS", "CREATEROLE", "REPLICATION"])
def test_a_role_that_could_pass_the_policies_is_refused(superuser, role, rights):
    with admin(superuser) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN {rights}")
    with pytest.raises(UsageError, match="no policy would bind it"):
        bind(superuser, role)


def test_a_member_of_the_owner_is_refused(superuser, database, role):
    holdfast.open(database, settings=Settings()).close()  # the tables are those of `app`
    with admin(superuser) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT app TO {role}")
    with pytest.raises(UsageError, match="can act as app"):
        bind(superuser, role)
    with pytest.raises(UsageError, match=r"no policy would bind it|can act as"):
        bind(superuser, "app")


@pytest.mark.parametrize("rights", ["SUPERUSER", "BYPASSRLS", "CREATEROLE", "bound"])
def test_a_member_of_a_role_that_reads_more_is_refused_and_doctor_sees_one_that_became_it(superuser, role, rights):
    """SET ROLE leaves a role's own policy behind."""
    other = f"{role}_other"
    with admin(superuser) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"CREATE ROLE {other} {'LOGIN' if rights == 'bound' else rights}")
    if rights == "bound":
        fill(superuser, "theirs", "their words")
        bind(superuser, other, "theirs")
    bind(superuser, role)
    with closing(PostgresMedium(as_role(superuser, role))) as medium:
        assert medium.role_problem() is None
        with admin(superuser) as connection:
            connection.execute(f"GRANT {other} TO {role}")
        assert f"can act as {other}" in medium.role_problem()
    with pytest.raises(UsageError, match=f"can act as {other}"):
        bind(superuser, role)


def test_a_role_is_for_one_tenant_and_only_the_owner_binds(superuser, role):
    bind(superuser, role)
    with pytest.raises(UsageError, match="another tenant"):
        bind(superuser, role, "theirs")
    with pytest.raises(UsageError, match="belong to postgres"):
        bind(as_role(superuser, role), role)
    for name in ("", "Upper", "a b", 'x"y', "pg_x", "a" * 57):
        with pytest.raises(UsageError, match="lower-case"):
            bind(superuser, name)


def test_a_table_of_a_later_version_is_closed_to_it_until_it_is_bound_again(superuser, role):
    bind(superuser, role)
    with admin(superuser) as connection:
        connection.execute("CREATE TABLE later (tenant text NOT NULL)")
        connection.execute("INSERT INTO later VALUES ('theirs'), ('mine')")
        connection.execute("ALTER TABLE later ENABLE ROW LEVEL SECURITY")
        connection.execute("CREATE POLICY own_tenant ON later USING (true)")
    with psycopg.connect(as_role(superuser, role).partition("&tenant")[0], autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM holdfast.later")
        with admin(superuser) as owner:
            bind_role(owner, role, "mine")
        assert connection.execute("SELECT tenant FROM holdfast.later").fetchall() == [("mine",)]


def test_an_owner_and_a_superuser_are_told_that_nothing_binds_them(superuser, database, role):
    with closing(PostgresMedium(database)) as medium:
        assert "owns the tables" in medium.role_problem()
    with closing(PostgresMedium(superuser)) as medium:
        assert "superuser" in medium.role_problem()
    with admin(superuser) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA holdfast TO {role}")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO {role}")
    with closing(PostgresMedium(as_role(database, role))) as medium:
        assert "no tenant" in medium.role_problem()


def test_a_policy_that_was_widened_is_noticed(superuser):
    holdfast.open(superuser, settings=Settings()).close()
    for statement in ("ALTER POLICY own_tenant ON run TO postgres", "CREATE POLICY bound_all ON run USING (true)"):
        with admin(superuser) as connection, connection.transaction(force_rollback=True):
            connection.execute(statement)
            assert postgres_schema.shape(connection) != sorted(postgres_schema.SHAPE_FILE.read_text().splitlines())
    assert "bound_to" in queries("postgres.sql")
