"""SQL for the rows of a store, made from the tables' declarations: look-ups, scans, writes, and a whole commit at once.

A commit is one statement of data-modifying parts (`WITH ...`). Its first guard decides: all other parts depend on it,
so a commit that lost a race writes nothing and raises nothing. If a later guard does not hold, `refuse()` ends the
statement with all that it wrote.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from psycopg.types.numeric import Float8, Int8

from holdfast.errors import UsageError
from holdfast.store.postgres_pool import Array
from holdfast.store.tables import CHECKPOINT, RUN, TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import Envelope
    from holdfast.store.medium import Batch
    from holdfast.store.tables import Column, Key, Row, Table

Statement = tuple[bytes, "Sequence[Any]"]
_TYPES = {"text": "text", "int": "bigint", "real": "double precision", "blob": "bytea"}
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_BY_VALUES = 8  # rows of one table in a commit that are written out; more come as arrays, under one statement text
_TABLES = {table.name: table for table in TABLES}
_TEXTS = {
    table.name: tuple(place for place, column in enumerate(table.all_columns) if column.type == "text")
    for table in TABLES
}


class _Unstorable(ValueError):
    """A cell that no row of this database can have, so that looking for it finds nothing."""


# Statements are made of the names in tables.py, and of numbers; everything else is a value.
# ruff: noqa: S608

# Cells


def _escaped(text: str) -> str:
    """Return a text without NUL, which the server refuses; it sorts as before, and is restored by `_plain`."""
    if "\0" in text or "\1" in text:
        text = text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def _plain(text: str) -> str:
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def _cell(column: Column, cell: Any) -> Any:
    """Return a cell as the driver takes it; _Unstorable if the server could not."""
    if cell is None:
        return None
    if column.type == "text":
        try:
            cell.encode()
        except UnicodeEncodeError:
            raise _Unstorable from None
        return _escaped(cell)
    if column.type == "int":
        if not _LOWEST <= cell <= _HIGHEST:
            raise _Unstorable
        return Int8(cell)
    return Float8(cell) if column.type == "real" else cell


def cells(table: Table, row: Row) -> list[Any]:
    """Return a row's cells as the driver takes them; UsageError if one cannot be stored."""
    try:
        return [_cell(column, cell) for column, cell in zip(table.all_columns, row, strict=True)]
    except _Unstorable:
        raise UsageError(f"a text or number of this {table.name} cannot be stored in PostgreSQL") from None


def rows_of(table: Table, found: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return rows as they were stored."""
    places = _TEXTS[table.name]
    if not any("\1" in row[place] for row in found for place in places if row[place] is not None):
        return list(found)
    return [
        tuple(_plain(cell) if place in places and cell is not None else cell for place, cell in enumerate(row))
        for row in found
    ]


# Reading


def scan(
    tenant: str,
    table: Table,
    prefix: Key = (),
    *,
    index: str | None = None,
    low: Any = None,
    high: Any = None,
    reverse: bool = False,
    limit: int | None = None,
) -> Statement | None:
    """Return the query for rows in the order of their key or of an index; None if no row can fit."""
    columns = _order(table.name, index)
    bounds: list[tuple[str, Any]] = []
    try:
        given = [_cell(column, cell) for column, cell in zip(columns, prefix, strict=False)]
        if low is not None:
            bounds.append((">=", _bound(columns[len(prefix)], low, is_low=True)))
        if high is not None:
            bounds.append(("<=", _bound(columns[len(prefix)], high, is_low=False)))
    except _Unstorable:
        return None
    nulls, signs = tuple(cell is None for cell in given), tuple(sign for sign, _ in bounds)
    text = _scan_text(table.name, index, nulls, signs, reverse=reverse, limit=limit)
    return text, [tenant, *(cell for cell in given if cell is not None), *(cell for _, cell in bounds)]


def in_order_begun(tenant: str, limit: int | None) -> Statement:
    """Return the query for the runs, the last begun first."""
    text = f'SELECT {_names(RUN.name)} FROM run WHERE tenant COLLATE "ucs_basic" = %s ORDER BY begun DESC'
    text += f" LIMIT {limit:d}" if limit is not None else ""
    return text.encode(), [tenant]


def _bound(column: Column, cell: Any, *, is_low: bool) -> Any:
    """Return a bound as the driver takes it: a number beyond 64 bits is cut to what a row can have."""
    if column.type == "int":
        if (cell > _HIGHEST) if is_low else (cell < _LOWEST):
            raise _Unstorable
        cell = max(_LOWEST, min(_HIGHEST, cell))
    return _cell(column, cell)


@lru_cache(maxsize=64)
def _order(table: str, index: str | None) -> tuple[Column, ...]:
    """Return the columns that rows are ordered by."""
    declared = _TABLES[table]
    if index is None:
        return declared.key
    named = {column.name: column for column in declared.all_columns}
    chosen = next(one for one in declared.indexes if one.name == index)
    rest = [column for column in declared.key if column.name not in chosen.columns]
    return (*(named[name] for name in chosen.columns), *rest)


@lru_cache(maxsize=512)
def _scan_text(
    table: str,
    index: str | None,
    nulls: tuple[bool, ...],
    signs: tuple[str, ...],
    *,
    reverse: bool,
    limit: int | None,
) -> bytes:
    columns = _order(table, index)
    optional = _optional(table)
    conditions = [_tenant(index)]
    for column, is_null in zip(columns, nulls, strict=False):
        conditions.append(f"{_q(column.name)} IS NULL" if is_null else f"{_q(column.name)} = %s")
    if signs:
        column = columns[len(nulls)]
        bounds = [f"{_q(column.name)} {sign} %s" for sign in signs]
        if signs == ("<=",) and column.name in optional:
            bounds = [f"({_q(column.name)} IS NULL OR {bounds[0]})"]  # an absent cell comes before all others
        conditions += bounds
    order = ", ".join(
        _q(column.name)
        + (" DESC" if reverse else "")
        + ((" NULLS LAST" if reverse else " NULLS FIRST") if column.name in optional else "")
        for column in columns[len(nulls) :]
    )
    text = f"SELECT {_names(table)} FROM {_q(table)} WHERE {' AND '.join(conditions)}"
    text += f" ORDER BY {order}" if order else ""
    text += f" LIMIT {limit:d}" if limit is not None else ""
    return text.encode()


def _tenant(index: str | None) -> str:
    """Return the condition on the tenant in the collation that only the wanted index serves (see the schema)."""
    if index is None:
        return "tenant = %s"
    return f'tenant COLLATE "{_COLLATIONS.get(index, "POSIX")}" = %s'


def _optional(table: str) -> frozenset[str]:
    """Return the list columns that may be absent."""
    return _OPTIONAL.get(table, frozenset())


_COLLATIONS = {
    "run_key": "C",
    "checkpoint_id": "C",
    "run_status": "ucs_basic",
    "run_updated": "ucs_basic",
    "checkpoint_time": "ucs_basic",
}
_OPTIONAL = {
    "run": frozenset({"key", "status", "forked_from"}),
    "record": frozenset({"path", "key"}),
    "checkpoint": frozenset({"phase", "key"}),
    "inbox": frozenset({"key"}),
}


# Writing


def write(tenant: str, table: Table, rows: Sequence[Row], *, replace: bool) -> Statement:
    """Return the statement that adds rows; with `replace` it replaces those that are there."""
    given = [cells(table, row) for row in rows]
    text = _insertion(table.name, _count(given), "true") + (_upsert(table.name) if replace else "")
    return text.encode(), [tenant, *_spread(table, given)]


def drop(tenant: str, table: Table, prefix: Key) -> Statement | None:
    """Return the statement that deletes the rows whose key begins with this; None if no row can."""
    try:
        values = [_cell(column, cell) for column, cell in zip(table.key, prefix, strict=False)]
    except _Unstorable:
        return None
    return _deletion(table.name, len(prefix)).encode(), [tenant, *values]


def _count(rows: Sequence[Any]) -> int:
    """Return how many rows a statement writes out; 0 means that they come as arrays."""
    return len(rows) if len(rows) <= _BY_VALUES else 0


def _spread(table: Table, rows: Sequence[list[Any]]) -> list[Any]:
    """Return the values of rows as `_insertion` takes them."""
    if _count(rows):
        return [cell for row in rows for cell in row]
    types = [column.type for column in table.all_columns]
    return [Array(kind, column) for kind, column in zip(types, zip(*rows, strict=True), strict=True)]


@lru_cache(maxsize=256)
def _insertion(table: str, count: int, condition: str) -> str:
    """Return `INSERT ... SELECT` of so many rows; its values are the tenant and their cells."""
    columns = _TABLES[table].all_columns
    names = _names(table)
    if count:
        line = "(" + ", ".join(f"%s::{_TYPES[column.type]}" for column in columns) + ")"
        source = f"(VALUES {', '.join([line] * count)})"
    else:
        source = "unnest(" + ", ".join(f"%b::{_TYPES[column.type]}[]" for column in columns) + ")"
    return (
        f"INSERT INTO {_q(table)} (tenant, {names}) "
        f"SELECT %s, given.* FROM {source} AS given ({names}) WHERE {condition}"
    )


def _upsert(table: str) -> str:
    declared = _TABLES[table]
    keys = ", ".join(_q(column.name) for column in declared.key)
    changed = declared.all_columns[len(declared.key) :]
    sets = ", ".join(f"{_q(column.name)} = excluded.{_q(column.name)}" for column in changed)
    return f" ON CONFLICT (tenant, {keys}) DO UPDATE SET {sets}"


def _deletion(table: str, width: int) -> str:
    return f"DELETE FROM {_q(table)} WHERE {_place(_TABLES[table].key[:width])}"


def _place(key: Sequence[Column]) -> str:
    return "tenant = %s" + "".join(f" AND {_q(column.name)} = %s" for column in key)


# A whole commit


class _Shape(NamedTuple):
    """What decides the text of a commit's statement; the rest are values."""

    is_locked: bool
    guards: tuple[tuple[str, bool, bool], ...]
    """Table; whether the row has to be there; whether it is put."""
    inserts: tuple[tuple[str, int], ...]
    puts: tuple[tuple[str, int], ...]
    drops: tuple[tuple[str, int], ...]
    brings_chunks: bool
    shown: int


class Apply(NamedTuple):
    """A commit as one statement, and the locks that have to be taken by statements of their own before it.

    `text` is for the driver; `numbered` is the same as the server takes it, with $1, $2, ...
    """

    text: bytes
    numbered: bytes
    values: list[Any]
    locks: list[int]


def commit(tenant: str, batch: Batch, locks: list[int], chunks: Sequence[Any] | None) -> Apply:
    """Return a batch as one statement: it says true if it was carried out, and false if its first guard failed.

    `locks` are the keys of the runs' locks, `chunks` the arguments of hold_chunks. The lock of one run is taken by the
    statement itself, as a condition of its first guard: so before any row is locked. Its look at the tables was made
    before that; still an update compares the seal with the row as it is after the wait, and an insert collides with
    one that was committed meanwhile. Only a guard that a row is absent, with no put of it, would be blind to a row
    that came while the lock was waited for: then the lock comes in an earlier statement.
    """
    puts = {(table.name, row[: len(table.key)]): (table, row) for table, row in batch.puts}
    guards = [(table, key, seal, puts.pop((table.name, key), None)) for table, key, seal in batch.guards]
    inserts = list(batch.inserts)
    if not guards and inserts:  # a row that has to be new is a guard, too
        table, row = inserts.pop(0)
        guards.append((table, row[: len(table.key)], None, (table, row)))
    is_blind = not guards or any(seal is None and put is None for _, _, seal, put in guards)
    is_locked = len(locks) == 1 and not is_blind
    values: list[Any] = []
    for number, (table, key, seal, put) in enumerate(guards):
        values += _guard_values(tenant, table, key, seal, None if put is None else put[1])
        values += [Int8(locks[0])] if is_locked and not number else []
    shapes: list[tuple[tuple[str, int], ...]] = []
    for rows in (inserts, list(puts.values())):
        grouped = _by_table(rows)
        shapes.append(tuple((name, _count(group)) for name, group in grouped.items()))
        for name, group in grouped.items():
            values += [tenant, *_spread(_TABLES[name], group)]
    for table, prefix in batch.drops:
        values += [tenant, *_key_cells(table, prefix)]
    if chunks is not None:
        values += [tenant, Int8(batch.run), *chunks]
    for key, envelope in batch.shown:
        values += [tenant, *_key_cells(CHECKPOINT, key), _shown(envelope)]
    text, numbered = _commit_text(
        _Shape(
            is_locked,
            tuple((table.name, seal is not None, put is not None) for table, _, seal, put in guards),
            shapes[0],
            shapes[1],
            tuple((table.name, len(prefix)) for table, prefix in batch.drops),
            chunks is not None,
            len(batch.shown),
        )
    )
    return Apply(text, numbered, values, [] if is_locked else locks)


def _shown(envelope: Envelope) -> str:
    """Return what the view `episode` shows of a checkpoint; JSON of the server holds no NUL."""
    summary = envelope.summary
    budget = {
        name: {"used": used, "limit": summary.budget_limits.get(name)} for name, used in summary.budget_used.items()
    }
    told = {
        "trigger": envelope.trigger,
        "reason": envelope.reason,
        "phase": summary.phase,
        "state": summary.state,
        "run_status": summary.status,
        "steps": summary.steps,
        "loop_count": summary.loop_count,
        "progress": msgspec.Raw(summary.progress.encode() or b"null"),
        "budget": budget,
        "can_resume": envelope.recovery.can_resume,
    }
    return msgspec.json.encode(told).decode().replace(r"\u0000", r"\ufffd")


@lru_cache(maxsize=256)
def _commit_text(shape: _Shape) -> tuple[bytes, bytes]:
    first = "(SELECT pg_advisory_xact_lock(%s) IS NOT NULL)" if shape.is_locked else "true"
    rest = "EXISTS (SELECT FROM g0)" if shape.guards else "true"
    parts = []
    for number, (table, has_seal, is_put) in enumerate(shape.guards):
        parts.append((f"g{number}", _guard_text(table, has_seal, is_put, rest if number else first)))
    parts += [(f"i{n}", _insertion(table, rows, rest)) for n, (table, rows) in enumerate(shape.inserts)]
    parts += [(f"p{n}", _insertion(table, rows, rest) + _upsert(table)) for n, (table, rows) in enumerate(shape.puts)]
    parts += [(f"d{n}", f"{_deletion(table, width)} AND {rest}") for n, (table, width) in enumerate(shape.drops)]
    agreed = [f"(SELECT count(*) FROM g{number}) = 1" for number in range(1, len(shape.guards))]
    if shape.brings_chunks:
        arrays = "%b::bytea[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[]"
        parts.append(("held", f"SELECT hold_chunks(%s, %s, {arrays}) AS chunks WHERE {rest}"))
        agreed.append("(SELECT chunks FROM held) IS NOT NULL")
    told = f"INSERT INTO position SELECT %s, %s, %s, %s, %s::jsonb WHERE {rest}"
    parts += [(f"shown{number}", told) for number in range(shape.shown)]
    outcome = f"CASE WHEN {' AND '.join(agreed)} THEN true ELSE refuse() END" if agreed else "true"
    if shape.guards:
        outcome = f"CASE WHEN EXISTS (SELECT FROM g0) THEN {outcome} ELSE false END"
    written = ", ".join(f"{name} AS ({text})" for name, text in parts)
    text = f"WITH {written} SELECT {outcome}"
    numbers = count(1)
    return text.encode(), re.sub("%[sb]", lambda _: f"${next(numbers)}", text).encode()


def _guard_text(table: str, has_seal: bool, is_put: bool, condition: str) -> str:  # noqa: FBT001 - of a shape
    """Return a guard, together with the put of its row if there is one: then both are one update or insert."""
    declared = _TABLES[table]
    if not has_seal:
        if is_put:
            return _insertion(table, 1, condition) + " ON CONFLICT DO NOTHING RETURNING 1"
        return f"SELECT 1 WHERE NOT EXISTS (SELECT FROM {_q(table)} WHERE {_place(declared.key)}) AND {condition}"
    where = f"{_place(declared.key)} AND seal = %s AND {condition}"
    if not is_put:
        return f"SELECT 1 FROM {_q(table)} WHERE {where} FOR UPDATE"
    sets = ", ".join(f"{_q(column.name)} = %s" for column in declared.all_columns[len(declared.key) :])
    return f"UPDATE {_q(table)} SET {sets} WHERE {where} RETURNING 1"


def _guard_values(tenant: str, table: Table, key: Key, seal: bytes | None, row: Row | None) -> list[Any]:
    if seal is None:
        return [tenant, *(_key_cells(table, key) if row is None else cells(table, row))]
    changed = [] if row is None else cells(table, row)[len(table.key) :]
    return [*changed, tenant, *_key_cells(table, key), seal]


def _key_cells(table: Table, key: Key) -> list[Any]:
    try:
        return [_cell(column, cell) for column, cell in zip(table.key, key, strict=False)]
    except _Unstorable:
        raise UsageError(f"a text or number of this {table.name} cannot be stored in PostgreSQL") from None


def _by_table(rows: Sequence[tuple[Table, Row]]) -> dict[str, list[list[Any]]]:
    """Return the cells of each table's rows together."""
    grouped: dict[str, list[list[Any]]] = {}
    for table, row in rows:
        grouped.setdefault(table.name, []).append(cells(table, row))
    return grouped


def runs_of(batch: Batch) -> set[str]:
    """Return the runs whose rows a batch changes: it has to lock them."""
    keys = [(table, key) for table, key, _ in batch.guards] + [*batch.puts, *batch.inserts, *batch.drops]
    return {str(key[0]) for table, key in keys if key and (table is RUN or table.key[0].name == "run")}


def _names(table: str) -> str:
    return ", ".join(_q(column.name) for column in _TABLES[table].all_columns)


def _q(name: str) -> str:
    return f'"{name}"'
