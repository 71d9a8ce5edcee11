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

    from holdfast.retain.policy import RetentionPolicy
    from holdfast.store.api import Store

_PAGE = 500
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
) -> None:
    """Archive and delete as decided, in slices; what vanished meanwhile is passed over. The head is looked at again."""
    for decision in decisions:
        if decision.action == "archive":
            _archive(store, decision.id)
            rest()
    head = store.run(run).head
    doomed = [decision.id for decision in decisions if decision.action == "delete" and decision.id != head]
    for start in range(0, len(doomed), _DELETED_AT_ONCE):
        _delete(store, run, doomed[start : start + _DELETED_AT_ONCE])
        rest()
    if doomed:
        sweep(store, run, reader=reader, slice_of=_RELEASED_AT_ONCE, rest=rest)
        if reclaims:
            store.reclaim()


def _archive(store: Store, checkpoint: str) -> None:
    try:
        record = store.checkpoint(checkpoint)
    except NotFound:
        return
    if record.marks.status == "valid" and not record.marks.pinned:
        store.mark(checkpoint, msgspec.structs.replace(record.marks, status="archived"))


def _delete(store: Store, run: str, checkpoints: list[str]) -> None:
    try:
        store.delete(run, checkpoints)
    except NotFound:
        for checkpoint in checkpoints:
            try:
                store.delete(run, [checkpoint])
            except NotFound:
                continue
