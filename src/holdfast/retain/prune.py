"""Carrying a retention policy out: decisions, then marks and deletions in slices that a commit can wait for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.errors import Conflict, IntegrityError, NotFound
from holdfast.retain.policy import RetentionDecision, RetentionRow, decide, in_two_sweeps, is_expired, row_of
from holdfast.retain.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.model.checkpoint import Marks, RunRecord, Status
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.store.store import Store

_PAGE = 200
_MARKED_AT_ONCE = 64
_DELETED_AT_ONCE = 32
_RELEASED_AT_ONCE = 64
_MARKS: dict[str, tuple[Status, frozenset[Status]]] = {
    "archive": ("archived", frozenset({"valid"})),
    "expire": ("expired", frozenset({"valid", "archived", "corrupted"})),
    "revive": ("valid", frozenset({"expired"})),
}
"""What a decision makes of a checkpoint's status, and which statuses it changes."""


class RunPlan(NamedTuple):
    """What retention does with the checkpoints of one run; `is_whole` if the run itself goes."""

    run: RunRecord
    decisions: Sequence[RetentionDecision]
    is_whole: bool = False

    @property
    def changes(self) -> list[RetentionDecision]:
        """The decisions that change something."""
        return [one for one in self.decisions if one.action != "keep"]


class Pruned(list[str]):
    """The ids that were (or would be) deleted, with what was archived and the reason for every checkpoint."""

    def __init__(self, plans: Iterable[RunPlan] = ()) -> None:
        self.plans = tuple(plans)
        self.decisions = tuple(one for plan in self.plans for one in plan.decisions)
        super().__init__(one.id for one in self.decisions if one.action == "delete")

    @property
    def archived(self) -> list[str]:
        """The ids that left the daily list."""
        return [one.id for one in self.decisions if one.action == "archive"]

    @property
    def runs(self) -> list[str]:
        """The runs that went as a whole."""
        return [plan.run.id for plan in self.plans if plan.is_whole]


class RowsRead(NamedTuple):
    """Checkpoints of a run as retention looks at them, newest first."""

    rows: list[RetentionRow]
    is_all: bool
    """Whether these are all that the run has; damaged ones are left alone, and out of it."""


def read_rows(store: Store, run: str, *, settled: bool = True) -> RowsRead:
    """Read a run's checkpoints; without `settled`, as far back as a page of nothing but archived ones.

    Those were decided when newer ones came, so only their age can change anything about them.
    """
    rows: list[RetentionRow] = []
    before_seq: int | None = None
    is_sound = True
    while True:
        listing = store.checkpoints(run, limit=_PAGE, before_seq=before_seq)
        page = [row_of(record, store.traits.checkpoint_bytes) for record in listing]
        rows += page
        is_sound = is_sound and not listing.damaged
        if len(listing) + len(listing.damaged) < _PAGE or not listing:
            return RowsRead(rows, is_sound)
        if not settled and all(row.status == "archived" for row in page):
            return RowsRead(rows, is_all=False)
        before_seq = page[-1].seq


def plan(store: Store, run: RunRecord, read: RowsRead, policy: RetentionPolicy, now: datetime) -> RunPlan:
    """Return what a policy does with a run's checkpoints; touches nothing."""
    return plan_with(store.forks, run, read, policy, now)


def plan_all(store: Store, policy: RetentionPolicy, now: datetime, runs: Iterable[RunRecord]) -> Iterator[RunPlan]:
    """Yield what a policy does with each of these runs; the store's forks are read once."""
    every = list(runs)
    if len(every) == 1:  # of one run only what would go is asked for, whatever else the store holds
        yield from (plan(store, run, read, policy, now) for run, read in _read_each(store, every))
        return
    forks = store.forks()
    for run, read in _read_each(store, every):
        yield plan_with(lambda doomed: {one: forks[one] for one in doomed if one in forks}, run, read, policy, now)


def _read_each(store: Store, runs: Iterable[RunRecord]) -> Iterator[tuple[RunRecord, RowsRead]]:
    for run in runs:
        try:
            read = read_rows(store, run.id) if run.checkpoints else RowsRead([], is_all=True)
        except NotFound:
            continue  # deleted meanwhile
        yield run, read


def plan_with(
    forks: Callable[[Sequence[str]], Mapping[str, str]],
    run: RunRecord,
    read: RowsRead,
    policy: RetentionPolicy,
    now: datetime,
) -> RunPlan:
    """Return what a policy does with a run, whose fork points are looked up for what would go and nothing else."""
    needed: dict[str, str] = {}
    while True:
        decisions = decide(read.rows, policy, now=now, run=run, needed=needed)
        doomed = [one.id for one in decisions if one.action == "delete"]
        found = {one: f"run {fork} was forked from it" for one, fork in (forks(doomed) if doomed else {}).items()}
        if not found:
            is_whole = read.is_all and is_expired(run, policy, now) and len(doomed) == len(decisions)
            return RunPlan(run, decisions, is_whole)
        needed.update(found)


def paced(planned: RunPlan, rows: Iterable[RetentionRow], now: datetime) -> RunPlan:
    """Return a plan as an automatic sweep carries it out; see `in_two_sweeps`."""
    decisions = in_two_sweeps(planned.decisions, {row.id: row for row in rows}, now)
    return planned._replace(
        decisions=decisions,
        is_whole=planned.is_whole and bool(decisions) and all(one.action == "delete" for one in decisions),
    )


def carry_out(
    store: Store,
    planned: RunPlan,
    *,
    now: datetime | None = None,
    reader: Store | None = None,
    rest: Callable[[], object] = int,
    reclaims: bool = True,
) -> set[str]:
    """Mark and delete as decided, in slices, and return the ids that were left alone.

    That is what vanished, was pinned or was marked by somebody else since the decision; the head is looked at again.
    """
    run = planned.run.id
    if planned.is_whole:
        return set() if _delete_run(store, planned.run) else {one.id for one in planned.decisions}
    left: set[str] = set()
    marked = [one for one in planned.decisions if one.action in _MARKS]
    at = now or datetime.now(UTC)
    for start in range(0, len(marked), _MARKED_AT_ONCE):
        left.update(_mark(store, run, marked[start : start + _MARKED_AT_ONCE], at))
        rest()
    doomed = [one.id for one in planned.decisions if one.action == "delete"]
    if doomed:
        present = store.run(run)
        doomed = [one for one in doomed if one != present.head or present == planned.run]
    for start in range(0, len(doomed), _DELETED_AT_ONCE):
        left.update(_delete(store, run, doomed[start : start + _DELETED_AT_ONCE]))
        rest()
    if doomed:
        sweep(store, run, reader=reader, slice_of=_RELEASED_AT_ONCE, rest=rest)
        if reclaims:
            store.reclaim()
    return left


def _delete_run(store: Store, run: RunRecord) -> bool:
    """Delete a run unless somebody has taken it up since; tell whether it is gone."""
    if store.leases.running(run.id) is not None:
        return False
    try:
        store.delete_run(run.id, expected=run)
    except NotFound:
        return True
    except Conflict:
        return False
    return True


def _mark(store: Store, run: str, decisions: Sequence[RetentionDecision], at: datetime) -> list[str]:
    """Mark in one transaction, each only if its marks are what they were when it was looked at."""
    left: list[str] = []
    changes: dict[str, tuple[Marks, Marks]] = {}
    for one in decisions:
        marks = _marks_of(store, run, one)
        status, fits = _MARKS[one.action]
        if marks is None or marks.pinned:
            left.append(one.id)
        elif marks.status in fits:
            expired_at = at if status == "expired" else None
            changes[one.id] = (marks, msgspec.structs.replace(marks, status=status, expired_at=expired_at))
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


def _marks_of(store: Store, run: str, decision: RetentionDecision) -> Marks | None:
    """Return the marks as they are now, None if the checkpoint is gone or cannot be read."""
    try:
        record = store.checkpoint_at(run, decision.seq)
    except (NotFound, IntegrityError):
        return None
    return record.marks if record is not None and record.envelope.id == decision.id else None
