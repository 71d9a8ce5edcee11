"""Mending what a SQLite file keeps about its runs, from the checkpoints that are there: record, holds and lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import IntegrityError, NotFound, RunCorrupt
from holdfast.store import sqlite_lease
from holdfast.store.rebuild import made_anew
from holdfast.store.sqlite_chunks import bad_holds
from holdfast.store.sqlite_rows import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    TOMBSTONE_COLUMNS,
    as_number,
    begin_run,
    is_tombstone,
    lost_runs,
    opened,
    opened_run,
    placed,
    put_run,
    run_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord

    Reach = Callable[[Sequence[CheckpointRecord]], Collection[bytes]]


def damaged_runs(execute: Any, store: str) -> list[str]:
    """Return the runs whose record, holds or lease are not as they were written."""
    found = [error.run for error in lost_runs(execute, store) if isinstance(error, RunCorrupt)]
    names: list[str] = []
    for row in execute(f"SELECT {RUN_COLUMNS} FROM run ORDER BY n").fetchall():  # noqa: S608 - our columns
        name = row[0].decode(errors="replace")
        names.append(name)
        try:
            opened_run(row)
            run_of(execute, name)
        except IntegrityError:
            found.append(name)
    for error in bad_holds(execute):
        found += [error.run] if isinstance(error, RunCorrupt) else names  # whose the others were, nobody knows
    found += sqlite_lease.damaged(execute)
    return list(dict.fromkeys(found))


def rebuild(execute: Any, store: str, run: str, reach: Reach) -> RunRecord | None:
    """Make a run's record anew unless it can be read, add the holds that its checkpoints need, free a damaged lease."""
    sound, checkpoints, last_seq = _rows(execute, run)
    sqlite_lease.free_damaged(execute, run)
    try:
        number, record = run_of(execute, run)
    except NotFound:
        return None  # its lease was all that was left
    except IntegrityError:
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
    """Return a run's sound checkpoints, highest number first, how many rows there are, and its last number."""
    rows = execute(
        f"SELECT {CHECKPOINT_COLUMNS}, {as_number('seq')} FROM checkpoint WHERE run = ? ORDER BY seq DESC",  # noqa: S608
        (run,),
    ).fetchall()
    sound: list[CheckpointRecord] = []
    for *row, seq in rows:
        try:
            sound.append(placed(opened(row), run, seq))
        except IntegrityError:
            continue
    deleted = execute(f"SELECT {TOMBSTONE_COLUMNS} FROM tombstone WHERE run = ?", (run,)).fetchall()  # noqa: S608
    numbers = [row[1] for row in deleted if is_tombstone(row)]
    return sound, len(rows), max([*numbers, *(row[-1] for row in rows), 0])
