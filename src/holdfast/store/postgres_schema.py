"""The schema of a PostgreSQL store: made and migrated under one lock, and compared before it is believed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Identifier

from holdfast.errors import FormatTooNew, StoreCorrupt, UsageError
from holdfast.store.named_sql import FOLDER, queries

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg

_LOCK = 0x484F4C44_0001
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_HARMLESS_EXTRAS = ("index ", "function ")
SHAPE_FILE = FOLDER / "postgres_shape.txt"


def check_schema_name(schema: object) -> str:
    """Return the schema's name, UsageError unless it can stand unquoted."""
    if not isinstance(schema, str) or not _SCHEMA_NAME.match(schema) or schema.startswith("pg_"):
        raise UsageError(f"schema={schema!r}: use lower-case letters, digits and _, at most 63")
    return schema


def migrations() -> list[Path]:
    """Return all migrations in order; a migration's number is the version that it leads to."""
    return sorted((FOLDER / "postgres_migrations").glob("*.sql"))


def latest_version() -> int:
    """Return the schema version that this program works with."""
    return int(migrations()[-1].name[:4])


def settle(connection: psycopg.Connection[Any], schema: str, *, store: str) -> None:
    """Make or migrate the schema if need be, then compare it; FormatTooNew or StoreCorrupt if it is not ours."""
    if version(connection) < latest_version():
        migrate(connection, schema, store=store)
    found = version(connection)
    if found > latest_version():
        raise FormatTooNew(f"store {store}", found, latest_version())
    _compare(connection, store)


def version(connection: psycopg.Connection[Any]) -> int:
    """Return the schema's version, 0 if there is none."""
    if not _one(connection, "has_schema"):
        return 0
    return int(_one(connection, "layout_version"))


def migrate(connection: psycopg.Connection[Any], schema: str, *, store: str) -> list[int]:
    """Bring the schema up to date in one transaction, one process at a time; return the versions applied."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        exists = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
        if exists is None:
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        if connection.info.parameter_status("server_encoding") != "UTF8":
            raise UsageError(f"the database of {store} cannot hold every text: make one with ENCODING 'UTF8'")
        if _one(connection, "has_format_1"):
            raise UsageError(
                f"schema {schema!r} of {store} holds a store of format 1, which this version of Holdfast does not "
                "read: name another schema (?schema=holdfast2), or drop this one if its runs are no longer needed"
            )
        present = version(connection)
        pending = [path for path in migrations() if int(path.name[:4]) > present]
        if not present and not _one(connection, "has_schema"):
            connection.execute(queries("postgres.sql")["make_layout_version"])
            connection.execute((FOLDER / "postgres_schema.sql").read_bytes())
        else:
            for path in pending:
                connection.execute(path.read_bytes())
        for path in pending:
            connection.execute(queries("postgres.sql")["note_version"], {"version": int(path.name[:4])})
    return [int(path.name[:4]) for path in pending]


def shape(connection: psycopg.Connection[Any]) -> list[str]:
    """Return what the schema consists of, a line for each column, index, policy, function and trigger."""
    return sorted(line for (line,) in connection.execute(queries("postgres.sql")["shape"], {}).fetchall())


def _compare(connection: psycopg.Connection[Any], store: str) -> None:
    """Raise StoreCorrupt naming the first thing that somebody altered; more indexes or functions do no harm."""
    wanted = SHAPE_FILE.read_text().splitlines()
    found = shape(connection)
    missing = [line for line in wanted if line not in found]
    extra = [line for line in found if line not in wanted and not line.startswith(_HARMLESS_EXTRAS)]
    if missing or extra:
        detail = f"lacks `{missing[0]}`" if missing else f"has `{extra[0]}`, which Holdfast did not make"
        raise StoreCorrupt(f"its schema was altered: it {detail}. Undo that, or give it another schema", store)


def _one(connection: psycopg.Connection[Any], name: str) -> Any:
    row = connection.execute(queries("postgres.sql")[name]).fetchone()
    return row[0] if row else None
