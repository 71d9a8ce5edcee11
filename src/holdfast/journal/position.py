"""Positions: from a journal number to a place in a run, for whoever goes back, forks, compares or replays.

A number is one record for ever: a segment that begins after going back continues after the highest number ever used,
and its first record holds the numbers that it went back to. So the numbers that led to any record are known, also to
one on a segment that was left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.errors import PositionUnavailable, RunCorrupt
from holdfast.journal.entry import SAVED, read_entry
from holdfast.model.checkpoint import NO_RECOVERY_POINT, nothing_of
from holdfast.store.commit import WENT_BACK
from holdfast.store.ranges import cut, extended
from holdfast.store.tables import MAIN

if TYPE_CHECKING:
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.ranges import Ranges
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow, Record

_decode = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...]).decode


class Position(NamedTuple):
    """A place in a journal: the newest checkpoint at or before it, and the records since that lead there."""

    run: str
    line: str
    number: int
    ranges: Ranges
    """The numbers that led to it."""
    base: CheckpointRecord
    since: tuple[Record, ...]
    is_left: bool
    """Whether it is on a segment that was gone back from."""


def resolve(
    store: Store, run: str, number: int, *, line: str = MAIN, left: bool = True, sound: bool = True
) -> Position | None:
    """Return the place of a number, None if there is no such run; PositionUnavailable says why there is none.

    Without `left`, a number on a segment that was gone back from is refused. With `sound`, a checkpoint that is damaged
    or expired is not built on.
    """
    row = store.line(run, line=line)
    if row is None:
        return None
    name = f"{run}#{number}"
    if not 0 < number <= row.number:
        raise PositionUnavailable("journal position", name, _end_of(row, number), "after the end")
    ranges = lineage(store, row, number)
    is_left = cut(row.ranges, number) != ranges
    if is_left and not left:
        hint = f"the run went back from there; `holdfast fork {name}` begins a run from it, `holdfast show` reads it"
        raise PositionUnavailable("journal position", name, hint, "left")
    base = _base(store, row, ranges, number, sound=sound) if row.last_seq else nothing_of(run, row.updated_at)
    if base is None:
        raise PositionUnavailable(
            "journal position", name, "no checkpoint at or before it is left", "before the first checkpoint"
        )
    since = _since(store, row, ranges, base, name)
    return Position(run, line, number, ranges, base, since, is_left)


def lineage(store: Store, line: LineRow, number: int) -> Ranges:
    """Return the numbers of a line that led to one of them, also to one on a segment that was left."""
    everything = msgspec.structs.replace(line, ranges=((1, line.number),))
    began = store.journal.keyed(everything, WENT_BACK, upto=number)
    if began is None:
        return ((1, number),)
    try:
        kept = _decode(began.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RunCorrupt(f"record #{began.number} of its journal cannot be decoded ({error})", line.run) from error
    begun = extended(kept, began.number)
    return (*begun[:-1], (begun[-1][0], number))


def _base(store: Store, line: LineRow, ranges: Ranges, number: int, *, sound: bool) -> CheckpointRecord | None:
    """Return the newest checkpoint on the way to a number; those of segments that were left are jumped over."""
    below: int | None = number
    while below is not None:
        found = store.checkpoint_upto(line.run, below, line=line.name)
        if found is None:
            return None
        if found.ranges == cut(ranges, found.number):
            return _usable(store, line, ranges, found, sound=sound)
        below = max((high for _low, high in ranges if high < found.number), default=None)
    return None


def _usable(
    store: Store, line: LineRow, ranges: Ranges, newest: CheckpointRecord, *, sound: bool
) -> CheckpointRecord | None:
    """Return the newest checkpoint from here down that is a recovery point, or is to be read all the same."""
    if not sound or newest.marks.status not in NO_RECOVERY_POINT:
        return newest
    for one in store.checkpoints(line.run, before_seq=newest.envelope.seq, line=line.name):
        if one.marks.status not in NO_RECOVERY_POINT and one.ranges == cut(ranges, one.number):
            return one
    return None


def _since(store: Store, line: LineRow, ranges: Ranges, base: CheckpointRecord, name: str) -> tuple[Record, ...]:
    """Return the records after a checkpoint; PositionUnavailable if they do not tell all that happened."""
    wanted = [(max(low, base.number + 1), high) for low, high in ranges if high > base.number]
    if not wanted:
        return ()
    gaps = [
        gap for gap in store.journal.gaps(line) if any(gap.first <= high and gap.last >= low for low, high in wanted)
    ]
    if gaps:
        hint = f"records #{gaps[0].first} to #{gaps[0].last} are gone; the checkpoint before it is {_named(base)}"
        raise PositionUnavailable("journal position", name, hint, "compacted")
    found = [one for low, high in wanted for one in store.journal.records(line, low=low, high=high)]
    for record in found:
        if record.kind == SAVED and not read_entry(record, store).is_whole:
            hint = (
                f"the checkpoint at #{record.number} was deleted, and only it had all that changed there; the one "
                f"before it is {_named(base)}"
            )
            raise PositionUnavailable("journal position", name, hint, "compacted")
    return tuple(found)


def _named(record: CheckpointRecord) -> str:
    return "none" if record.is_nothing else f"{record.envelope.run}@{record.envelope.seq} at #{record.number}"


def _end_of(line: LineRow, number: int) -> str:
    return f"its journal ends at #{line.number}" if number else "numbers begin at 1"
