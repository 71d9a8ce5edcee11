"""Mending what a SQLite file keeps about its runs, from the checkpoints that are there: record, holds and lease."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode import records
from holdfast.errors import IntegrityError, NotFound, RunCorrupt
from holdfast.model.checkpoint import RunRecord
from holdfast.store import sqlite_lease
from holdfast.store.rebuild import made_anew
from holdfast.store.sqlite_chunks import bad_holds
from holdfast.store.sqlite_rows import (
    CHECKPOINT_COLUMNS,
    LAST_NUMBER,
    RUN_COLUMNS,
    TOMBSTONE_COLUMNS,
    as_number,
    begin_run,
    is_tombstone,
    lost_names,
    lost_runs,
    opened,
    opened_run,
    placed,
    put_run,
    run_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.model.checkpoint import CheckpointRecord

    Reach = Callable[[Sequence[CheckpointRecord]], Collection[bytes]]


def damaged_runs(execute: Any, store: str) -> list[str]:
    """Return the runs whose record, holds or lease are not as they were written.

    Those without a record come last: one that stands under another's name is theirs again by then.
    """
    lost = [error.run for error in lost_runs(execute, store) if isinstance(error, RunCorrupt)]
    found: list[str] = []
    names: list[str] = []
    for row in execute(f"SELECT {RUN_COLUMNS} FROM run ORDER BY n").fetchall():  # noqa: S608 - our columns
        name = row[0].decode(errors="replace")
        names.append(name)
        try:
            opened_run(row)
            run_of(execute, name)
        except IntegrityError:
            found.append(name)
        if _can_come_back(execute, row[0]):
            found.append(name)
    for error in bad_holds(execute):
        found += [error.run] if isinstance(error, RunCorrupt) else names  # whose the others were, nobody knows
    found += sqlite_lease.damaged(execute)
    return [*dict.fromkeys(run for run in found if run not in lost), *lost]


def rebuild(execute: Any, store: str, run: str, reach: Reach) -> RunRecord | None:
    """Make a run's record anew unless it can be read, add the holds that its checkpoints need, free a damaged lease.

    Rows that stand under another's name, and prove by their checksum whose they are, go back there first.
    """
    _bring_records_back(execute)
    _bring_checkpoints_back(execute, run)
    sqlite_lease.free_damaged(execute, run)
    sound, checkpoints, last_seq = _rows(execute, run)
    try:
        number, record = run_of(execute, run)
    except NotFound:
        _drop_empty(execute, run)  # its lease may have been all that was left
        return None
    except IntegrityError:
        if not checkpoints and not _deleted(execute, run):
            _drop_empty(execute, run)  # nothing says that there was such a run
            return None
        record = made_anew(run, sound, checkpoints=checkpoints, last_seq=last_seq)
        rows = execute("SELECT n FROM run WHERE id = ?", (run,)).fetchall()
        number = rows[0][0] if rows else begin_run(execute, run, record.created_at)[0]
    for chunk in reach(sound):
        execute(
            "INSERT INTO hold (run, chunk) SELECT ?, n FROM chunk WHERE id = ? ON CONFLICT DO NOTHING", (number, chunk)
        )
    count, total = execute("SELECT count(*), coalesce(sum(chunk), 0) FROM hold WHERE run = ?", (number,)).fetchall()[0]
    record = msgspec.structs.replace(record, holds=count, holds_sum=total)
    put_run(execute, number, record)
    if not any(isinstance(error, RunCorrupt) for error in lost_runs(execute, store)):
        execute("DELETE FROM hold WHERE run NOT IN (SELECT n FROM run)")  # of runs that are gone for good
    return record


def _rows(execute: Any, run: str) -> tuple[list[CheckpointRecord], int, int]:
    """Return a run's sound checkpoints, highest number first, how many rows may be its own, and its last number."""
    sound: list[CheckpointRecord] = []
    others = 0
    rows = _checkpoint_rows(execute, run.encode(), most=LAST_NUMBER)
    for *row, seq in rows:
        try:
            record = opened(row)
            others += record.envelope.run != run
            sound.append(placed(record, run, seq))
        except IntegrityError:
            continue
    return sound, len(rows) - others, max([*_deleted(execute, run), *(row[-1] for row in rows), 0])


def _checkpoint_rows(execute: Any, run: bytes, *, above: int = -(2**63), most: int = 2**63 - 1) -> list[Any]:
    query = (
        f"SELECT {CHECKPOINT_COLUMNS}, {as_number('seq')} FROM checkpoint "  # noqa: S608 - our columns
        "WHERE run = CAST(? AS TEXT) AND seq > ? AND seq <= ? ORDER BY seq DESC"
    )
    return list(execute(query, (run, above, most)).fetchall())


def _deleted(execute: Any, run: str) -> list[int]:
    """Return the numbers of a run's deleted checkpoints."""
    rows = execute(f"SELECT {TOMBSTONE_COLUMNS} FROM tombstone WHERE run = ?", (run,)).fetchall()  # noqa: S608
    return [row[1] for row in rows if is_tombstone(row)]


def _bring_records_back(execute: Any) -> None:
    """Give rows of runs the name that their own record proves, where no other row has it."""
    for number, name, *sealed in _run_rows(execute):
        proven = _proven_name(*sealed)
        is_free = proven and not execute("SELECT 1 FROM run WHERE id = ?", (proven,)).fetchall()
        if proven and is_free and proven.encode() != name:
            execute("UPDATE run SET id = ? WHERE n = ?", (proven, number))


def _proven_name(record: bytes, checksum: bytes) -> str | None:
    try:
        name = msgspec.msgpack.decode(record, type=RunRecord).id
        return records.open_run(name, record, checksum).id
    except (ValueError, IntegrityError):
        return None


def _can_come_back(execute: Any, run: bytes) -> bool:
    """Tell whether a checkpoint with a number that is never given says which one it had."""
    for *row, _ in _checkpoint_rows(execute, run, above=LAST_NUMBER):
        with suppress(IntegrityError):
            return opened(row).envelope.seq <= LAST_NUMBER
    return False


def _bring_checkpoints_back(execute: Any, run: str) -> None:
    """Put checkpoints that stand under a run's name, or out of their place in it, where they say they belong."""
    lost = [name for name in lost_names(execute) if name.decode(errors="replace") == run]
    for name in {run.encode(), *lost}:
        for *row, seq in _checkpoint_rows(execute, name):
            try:
                envelope = opened(row).envelope
            except IntegrityError:
                continue
            place = envelope.run, envelope.seq
            if (envelope.run.encode(), envelope.seq) != (name, seq) and not any(
                execute(f"SELECT 1 FROM {table} WHERE run = ? AND seq = ?", place).fetchall()  # noqa: S608 - our tables
                for table in ("checkpoint", "tombstone")
            ):
                query = "UPDATE checkpoint SET run = ?, seq = ? WHERE run = CAST(? AS TEXT) AND seq = ?"
                execute(query, (*place, name, seq))


def _drop_empty(execute: Any, run: str) -> None:
    """Drop rows of this name that are no record and have no checkpoints, with their holds."""
    for number, name, *sealed in _run_rows(execute):
        if name.decode(errors="replace") != run:
            continue
        rows = "SELECT run FROM checkpoint UNION ALL SELECT run FROM tombstone"
        used = f"SELECT 1 FROM ({rows}) WHERE run = CAST(? AS TEXT) LIMIT 1"  # noqa: S608 - our tables
        try:
            opened_run([name, *sealed])
        except IntegrityError:
            if not execute(used, (name,)).fetchall():
                execute("DELETE FROM hold WHERE run = ?", (number,))
                execute("DELETE FROM run WHERE n = ?", (number,))


def _run_rows(execute: Any) -> list[Any]:
    return list(execute(f"SELECT n, {RUN_COLUMNS} FROM run").fetchall())  # noqa: S608 - our columns
