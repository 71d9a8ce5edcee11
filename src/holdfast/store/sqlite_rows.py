"""Rows of runs, checkpoints and tombstones as sealed records: read with distrust, checked where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from holdfast.encode import records
from holdfast.errors import CheckpointCorrupt, IntegrityError, NotFound, RunCorrupt, StoreCorrupt
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from holdfast.model.checkpoint import Marks


def as_bytes(column: str) -> str:
    """Read a column as bytes whatever damage made of its type: the checksum decides whether they are right."""
    return f"coalesce(CAST({column} AS BLOB), x'')"


def as_number(column: str) -> str:
    """Read a column as a number, -1 where damage made it none."""
    return f"coalesce(CAST({column} AS INTEGER), -1)"


LAST_NUMBER = 2**62  # no run comes this far: a higher number is damage
CHECKPOINT_COLUMNS = ", ".join(map(as_bytes, ("id", "envelope", "checksum", "marks", "marks_checksum")))
RUN_COLUMNS = ", ".join(map(as_bytes, ("id", "record", "checksum")))
CHUNK_COLUMNS = ", ".join((as_bytes("id"), as_number("codec"), as_number("size"), as_bytes("data")))
TOMBSTONE_COLUMNS = ", ".join(
    (as_bytes("run"), as_number("seq"), as_bytes("id"), as_bytes("checksum"), as_bytes("seal"))
)
_BEGUN_RUNS = """
    WITH RECURSIVE begun (id) AS (
        SELECT min(run) FROM checkpoint
        UNION ALL SELECT (SELECT min(run) FROM checkpoint WHERE run > begun.id) FROM begun WHERE begun.id IS NOT NULL
    )
    SELECT CAST(id AS BLOB) FROM begun WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM run)
"""  # steps from run to run in the index, so it costs nothing for each checkpoint


def begin_run(execute: Any, run: str, created_at: datetime) -> tuple[int, RunRecord]:
    """Return a new run's number and record; its row is filled by whoever begins it."""
    record = RunRecord(
        format_version=FORMAT_VERSION, id=run, head=None, last_seq=0, checkpoints=0,
        created_at=created_at, updated_at=created_at,
    )  # fmt: skip
    rows = execute("INSERT INTO run (id, record, checksum) VALUES (?, ?, ?) RETURNING n", (run, b"", b""))
    return rows.fetchall()[0][0], record


def run_of(execute: Any, run: str) -> tuple[int, RunRecord]:
    """Return a run's row number and record; NotFound, or RunCorrupt if its record is lost or stale."""
    before: Any = None
    while True:
        rows = execute(f"SELECT n, {RUN_COLUMNS} FROM run WHERE id = ?", (run,)).fetchall()  # noqa: S608 - our columns
        record = opened_run(rows[0][1:]) if rows else None
        last_seq = record.last_seq if record else 0
        # Not max(seq): to look for a later one, and find none, is 50 us faster in a commit.
        later = "SELECT 1 FROM checkpoint WHERE run = ? AND seq > ? AND seq <= ? LIMIT 1"
        if not execute(later, (run, last_seq, LAST_NUMBER)).fetchall():
            break
        if rows == before:  # otherwise somebody may have committed between the two looks
            stale = f"its record ends at {last_seq}, and there are later checkpoints: it is stale"
            raise RunCorrupt(stale if rows else "its record vanished while its checkpoints are there", run)
        before = rows
    if record is None:
        raise NotFound("run", run)
    return rows[0][0], record


def put_run(execute: Any, number: int, run: RunRecord) -> None:
    """Seal a run's record into its row."""
    record, checksum = records.seal(run)
    execute("UPDATE run SET record = ?, checksum = ? WHERE n = ?", (record, checksum, number))


def checkpoint_of(execute: Any, checkpoint: str) -> CheckpointRecord:
    """Return the checkpoint of this id; NotFound, or CheckpointCorrupt if the index leads astray."""
    rows = execute(f"SELECT {CHECKPOINT_COLUMNS} FROM checkpoint WHERE id = ?", (checkpoint,)).fetchall()  # noqa: S608
    if not rows:
        if execute("SELECT 1 FROM checkpoint NOT INDEXED WHERE id = ?", (checkpoint,)).fetchall():
            raise CheckpointCorrupt("it is there, but the index of checkpoints does not know it", checkpoint)
        raise NotFound("checkpoint", checkpoint)
    record = opened(rows[0])
    if record.envelope.id != checkpoint:
        raise CheckpointCorrupt("the index of checkpoints leads to another one", checkpoint)
    return record


def may_be_pinned(execute: Any, checkpoint: str) -> bool:
    """Tell whether a checkpoint is pinned, or cannot be read so that nobody knows."""
    try:
        return checkpoint_of(execute, checkpoint).marks.pinned
    except NotFound:
        return False
    except IntegrityError:
        return True


def put_marks(execute: Any, checkpoint: str, marks: Marks) -> bool:
    """Seal marks into a checkpoint's row; False if there is none."""
    data, checksum = records.seal_marks(checkpoint, marks)
    query = "UPDATE checkpoint SET marks = ?, marks_checksum = ? WHERE id = ? RETURNING id"
    return bool(execute(query, (data, checksum, checkpoint)).fetchall())


def taken_at(execute: Any, order: Literal["ASC", "DESC"]) -> datetime | None:
    """Return when the first or last sound checkpoint was taken: an id begins with that time, so its index knows."""
    query = f"SELECT {CHECKPOINT_COLUMNS} FROM checkpoint ORDER BY id {order} LIMIT 8"  # noqa: S608 - our columns
    for row in execute(query).fetchall():
        try:
            return opened(row).envelope.created_at
        except IntegrityError:
            continue
    return None


def opened(row: Sequence[bytes]) -> CheckpointRecord:
    """Return a row as a checkpoint, its checksums checked."""
    return records.open_checkpoint(row[0].decode(errors="replace"), *row[1:])


def opened_run(row: Sequence[bytes]) -> RunRecord:
    """Return a row as a run, its checksum checked."""
    return records.open_run(row[0].decode(errors="replace"), *row[1:])


def lost_names(execute: Any) -> list[bytes]:
    """Return the names of runs that have checkpoints but no record, as they are stored."""
    return [name for (name,) in execute(_BEGUN_RUNS).fetchall()]


def lost_runs(execute: Any, store: str) -> Iterator[IntegrityError]:
    """Find what a list of runs lacks: runs that have checkpoints but no record, or are in the index only."""
    for run in lost_names(execute):
        yield RunCorrupt("its record vanished while its checkpoints are there", run.decode(errors="replace"))
    listed = execute("SELECT count(*) FROM run NOT INDEXED").fetchall()
    if listed != execute("SELECT count(*) FROM run INDEXED BY sqlite_autoindex_run_1").fetchall():
        yield StoreCorrupt("its list of runs does not match its index: some may be missing", store)


def bad_tombstones(execute: Any) -> Iterator[str]:
    """Find tombstones that do not match their checksum."""
    for row in execute(f"SELECT {TOMBSTONE_COLUMNS} FROM tombstone").fetchall():  # noqa: S608 - our columns
        if not is_tombstone(row):
            yield f"what deleted checkpoint {row[2]!r} of run {row[0]!r} left does not match its checksum"


def placed(record: CheckpointRecord, run: str, seq: int) -> CheckpointRecord:
    """Return a record that stands where it says; CheckpointCorrupt if it was put elsewhere."""
    if (record.envelope.run, record.envelope.seq) != (run, seq):
        raise CheckpointCorrupt(f"its record stands in the place of {run}@{seq}", record.envelope.id)
    return record


def misnumbered(execute: Any, run: str) -> Iterator[CheckpointCorrupt]:
    """Find the checkpoints of a run whose number damage has made one that is never given."""
    query = f"SELECT {as_bytes('id')}, {as_number('seq')} FROM checkpoint WHERE run = ? AND seq > ?"  # noqa: S608
    for checkpoint, seq in execute(query, (run, LAST_NUMBER)).fetchall():
        yield CheckpointCorrupt(f"its number is damaged: {seq} is never given", checkpoint.decode(errors="replace"))


def count_tombstones(execute: Any, run: str, low: int, high: int) -> int:
    """Count the checkpoints in a range that were deleted by us: what only stands where a tombstone would is none."""
    query = f"SELECT {TOMBSTONE_COLUMNS} FROM tombstone WHERE run = ? AND seq BETWEEN ? AND ?"  # noqa: S608 - our columns
    return sum(is_tombstone(row) for row in execute(query, (run, low, high)).fetchall())


def is_tombstone(row: Sequence[Any]) -> bool:
    """Tell whether a row is a tombstone that we wrote."""
    run, seq, checkpoint, checksum, seal = row
    names = run.decode(errors="replace"), checkpoint.decode(errors="replace")
    return bool(seal == records.seal_tombstone(names[0], seq, names[1], checksum))
