"""Chunks as rows, each hold of a run on one, and whether these holds add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import IntegrityError, RunCorrupt
from holdfast.store.sqlite_rows import RUN_COLUMNS, opened_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from holdfast.encode.chunks import Chunk


def add_chunks(execute: Any, run: int, chunks: Collection[Chunk]) -> tuple[int, int]:
    """Add chunks and the run's hold on them; return how many holds are new and the sum of their numbers."""
    before = execute("SELECT coalesce(max(n), 0) FROM chunk").fetchall()[0][0]
    number, added, added_sum = before, 0, 0
    for chunk in chunks:
        fresh = execute(
            "INSERT INTO chunk (n, id, codec, size, data) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING n",
            (number + 1, *chunk),
        ).fetchall()
        if fresh:
            number += 1
        else:
            known = _share_chunk(execute, run, chunk)
            added, added_sum = added + bool(known), added_sum + known
    if number > before:
        execute("INSERT INTO hold (run, chunk) SELECT ?, n FROM chunk WHERE n > ?", (run, before))
        added += number - before
        added_sum += sum(range(before + 1, number + 1))
    return added, added_sum


def _share_chunk(execute: Any, run: int, chunk: Chunk) -> int:
    """Hold a chunk that is there already, mending its bytes if they differ; return its number if the hold is new."""
    number, codec, size, data = execute("SELECT n, codec, size, data FROM chunk WHERE id = ?", (chunk.id,)).fetchall()[
        0
    ]
    if (codec, size, data) != chunk[1:]:
        execute("UPDATE chunk SET codec = ?, size = ?, data = ? WHERE n = ?", (*chunk[1:], number))
    fresh = execute(
        "INSERT INTO hold (run, chunk) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING chunk", (run, number)
    ).fetchall()
    return number if fresh else 0


def check_holds(execute: Any) -> None:
    """Raise unless every run's holds add up: nothing is swept by damaged bookkeeping."""
    for error in bad_holds(execute):
        raise error


def bad_holds(execute: Any) -> Iterator[IntegrityError]:
    """Find the runs whose holds do not add up, and holds of runs that are not there."""
    counted = {
        number: (count, total)
        for number, count, total in execute("SELECT run, count(*), sum(chunk) FROM hold GROUP BY run").fetchall()
    }
    for number, *row in execute(f"SELECT n, {RUN_COLUMNS} FROM run").fetchall():  # noqa: S608 - our columns
        held = counted.pop(number, (0, 0))
        try:
            opened = opened_run(row)
        except IntegrityError as error:
            yield error
            continue
        if held != (opened.holds, opened.holds_sum):
            yield RunCorrupt("the list of chunks that it holds is damaged, so nothing is swept", opened.id)
    if counted:
        yield IntegrityError("the store holds chunks for runs that are not there, so nothing is swept")
