"""Carrying a retention policy out: decisions, then marks and deletions in slices that a commit can wait for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import IntegrityError, NotFound
from holdfast.retain.policy import Decision, Row, decide, row_of
from holdfast.retain.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.model.checkpoint import Marks
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.store.api import Store

_PAGE = 500
_ARCHIVED_AT_ONCE = 64
_DELETED_AT_ONCE = 32
_RELEASED_AT_ONCE = 64


class Pruned(list[str]):
    """The ids that were (or would be) deleted, with what was archived and the reason for every checkpoint."""

    def __init__(self, decisions: Sequence[Decision] = ()) -> None:
        super().__init__(decision.id for decision in decisions if decision.action == "delete")
        self.decisions = tuple(decisions)

    @property
    def archived(self) -> list[str]:
        """The ids that left the daily list."""
        return [decision.id for decision in self.decisions if decision.action == "archive"]


def rows_of(store: Store, run: str) -> Iterator[Row]:
    """Yield what retention looks at, newest first, a page at a time; damaged checkpoints are left alone."""
    before_seq: int | None = None
    while True:
        listing = store.checkpoints(run, limit=_PAGE, before_seq=before_seq)
        yield from map(row_of, listing)
        if len(listing) + len(listing.damaged) < _PAGE or not listing:
            return
        before_seq = min(record.envelope.seq for record in listing)


def fork_points(store: Store, run: str) -> dict[str, str]:
    """Return the checkpoints of a run that another run was begun from."""
    points: dict[str, str] = {}
    for other in store.runs():
        if other.id == run:
            continue
        try:
            first = store.checkpoint_at(other.id, 1)
        except (IntegrityError, NotFound):
            continue
        if first is not None and first.envelope.parent is not None:
            points[first.envelope.parent] = f"run {other.id} was forked from it"
    return points


def plan(store: Store, run: str, policy: RetentionPolicy, now_s: float) -> list[Decision]:
    """Return what a policy would do with a run's checkpoints; touches nothing."""
    head = store.run(run).head
    now = datetime.fromtimestamp(now_s, UTC)
    return decide(rows_of(store, run), policy, now=now, head=head, needed=fork_points(store, run))


def carry_out(
    store: Store,
    run: str,
    decisions: Sequence[Decision],
    *,
    reader: Store | None = None,
    rest: Callable[[], object] = int,
    reclaims: bool = True,
) -> set[str]:
    """Archive and delete as decided, in slices, and return the ids that were left alone.

    That is what vanished, was pinned or was marked anew since the decision; the head is looked at again, too.
    """
    left: set[str] = set()
    aside = [decision for decision in decisions if decision.action == "archive"]
    for start in range(0, len(aside), _ARCHIVED_AT_ONCE):
        left.update(_archive(store, run, aside[start : start + _ARCHIVED_AT_ONCE]))
        rest()
    head = store.run(run).head
    doomed = [decision.id for decision in decisions if decision.action == "delete" and decision.id != head]
    for start in range(0, len(doomed), _DELETED_AT_ONCE):
        left.update(_delete(store, run, doomed[start : start + _DELETED_AT_ONCE]))
        rest()
    if doomed:
        sweep(store, run, reader=reader, slice_of=_RELEASED_AT_ONCE, rest=rest)
        if reclaims:
            store.reclaim()
    return left


def _archive(store: Store, run: str, decisions: Sequence[Decision]) -> list[str]:
    """Archive in one transaction, each only if its marks are what they were when it was looked at."""
    left: list[str] = []
    changes: dict[str, tuple[Marks, Marks]] = {}
    for decision in decisions:
        marks = _marks_of(store, run, decision)
        if marks is None or marks.pinned:
            left.append(decision.id)
        elif marks.status == "valid":
            changes[decision.id] = (marks, msgspec.structs.replace(marks, status="archived"))
    return [*left, *store.mark_many(run, changes)] if changes else left


def _delete(store: Store, run: str, checkpoints: Sequence[str]) -> list[str]:
    """Delete in one transaction what nobody pinned meanwhile; what vanished is passed over."""
    try:
        return store.delete(run, checkpoints, spare_pinned=True)
    except NotFound:
        spared: list[str] = []
        for checkpoint in checkpoints:
            try:
                spared += store.delete(run, [checkpoint], spare_pinned=True)
            except NotFound:
                continue
        return spared


def _marks_of(store: Store, run: str, decision: Decision) -> Marks | None:
    """Return the marks as they are now, None if the checkpoint is gone or cannot be read."""
    try:
        record = store.checkpoint_at(run, decision.seq)
    except (NotFound, IntegrityError):
        return None
    return record.marks if record is not None and record.envelope.id == decision.id else None
