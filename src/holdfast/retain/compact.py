"""Compaction: removes journal records that no kept checkpoint, fork point or head needs, once they are old enough."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import HeadMoved
from holdfast.journal.entry import APPENDED, NOTED, SAVED
from holdfast.model.checkpoint import NO_RECOVERY_POINT
from holdfast.retain.policy import age_limit
from holdfast.retain.sweep import sweep
from holdfast.store.commit import IN_CHUNKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from holdfast.retain.policy import RetentionPolicy
    from holdfast.store.ranges import Ranges
    from holdfast.store.store import Store
    from holdfast.store.tables import Record

_REMOVED_AT_ONCE = 500


class CompactionPoint(NamedTuple):
    """A place that must stay whole: a kept checkpoint or the head of the line, and the numbers that led to it."""

    number: int
    ranges: Ranges


def superseded(
    records: Iterable[Record], points: Sequence[CompactionPoint], *, entries_from: int, before: float
) -> list[int]:
    """Return the numbers of records that nothing needs, rising; pure.

    Needed are: at each point the newest record of every path on the way to it; every item of a log on the way to one;
    entries after `entries_from`, and all on the way to one that note something; all that has a key of its own; and
    whatever is not older than `before`.
    """
    dispensable: list[int] = []
    newest: dict[tuple[int, str], int] = {}
    for record in records:
        places = [index for index, point in enumerate(points) if _leads_to(record.number, point)]
        if record.kind == SAVED:
            is_needed = record.number > entries_from or (record.path == NOTED and bool(places))
        else:
            is_needed = record.kind == APPENDED and bool(places)
            if record.path and record.kind != APPENDED:
                newest.update({(index, record.path): record.number for index in places})
        if not is_needed and record.key in (None, IN_CHUNKS) and record.at < before:
            dispensable.append(record.number)
    kept = set(newest.values())
    return [number for number in dispensable if number not in kept]


def _leads_to(number: int, point: CompactionPoint) -> bool:
    return number <= point.number and any(low <= number <= high for low, high in point.ranges)


def compact(
    store: Store, run: str, policy: RetentionPolicy, now: datetime, *, rest: Callable[[], object] = int
) -> list[int]:
    """Remove what a run's journal no longer needs, and return the numbers that are gone; gaps keep the chain sound."""
    before = age_limit(policy, now)
    line = store.line(run)
    if before is None or line is None:
        return []
    oldest = store.journal.records(line, limit=1)
    if not oldest or oldest[0].at >= before.timestamp():
        return []
    listing = store.checkpoints(run)
    if listing.damaged:
        return []  # what a damaged one stands on is not known
    points = [CompactionPoint(one.number, one.ranges) for one in listing]
    usable = [one.number for one in listing if one.marks.status not in NO_RECOVERY_POINT]
    # Should the newest turn out to be damaged, recovery continues from the one before it with the entries since.
    entries_from = usable[1] if len(usable) > 1 else 0
    gone = superseded(
        store.journal.records(line),
        [*points, CompactionPoint(line.number, line.ranges)],
        entries_from=entries_from,
        before=before.timestamp(),
    )
    for start in range(0, len(gone), _REMOVED_AT_ONCE):
        with suppress(HeadMoved):  # another process compacts, too
            store.journal.compact(run, gone[start : start + _REMOVED_AT_ONCE])
        rest()
    if gone and line.chunked:
        sweep(store, run, rest=rest)
    return gone
