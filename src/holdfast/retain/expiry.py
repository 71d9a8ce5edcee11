"""Expiry in other runs: what is too old in those that nobody enters, a few at each sweep, longest untouched first.

A run that finished goes as a whole. Of one that did not, what age spares stays: the head, and what a recovery needs.
Counts and sizes are for those who write a run, and are not looked at here; runs of other projects, which may keep more,
are left alone, and so are those of adapters, which know what of them belongs together.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from holdfast.errors import Conflict, IntegrityError, NotFound
from holdfast.model.checkpoint import FINISHED
from holdfast.model.runtime_sections import Status
from holdfast.retain.policy import age_limit, by_age_alone
from holdfast.retain.prune import carry_out, paced, plan, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.model.checkpoint import RunRecord
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.store.store import Store

_RUNS_AT_ONCE = 20
_CURSOR = "retention"


class _Expired(NamedTuple):
    """What a sweep did with a run; `is_settled` if nothing is left for a later one."""

    is_settled: bool
    has_deleted: bool


_NOTHING = _Expired(is_settled=True, has_deleted=False)
_decode = msgspec.msgpack.Decoder(dict[str, float]).decode


def expire_other_runs(
    store: Store,
    policy: RetentionPolicy,
    now: datetime,
    *,
    without: str,
    rest: Callable[[], object] = int,
    deleted: Callable[[str], object] = str,
) -> None:
    """Look at a few runs that moved last before the policy's age, and expire what is too old in them.

    A sweep marks checkpoints, one a day later deletes what is marked. Where the last sweep ended is kept in the store:
    runs that finished are looked at in turns, because their pins and forks may go; the others once, until nothing in
    them is marked. `deleted` hears of each run that lost checkpoints.
    """
    project, policy = store.row_of(without).project, by_age_alone(policy)
    before = age_limit(policy, now)
    if before is None:
        return
    stored = store.meta(_CURSOR)
    cursor = _decode(stored) if stored is not None else {}
    reached = dict(cursor)
    for status in (None, *get_args(Status)):  # None: nobody ever entered it
        is_settled, name = True, status or ""
        found = store.moved_before(status, before, after=cursor.get(name), limit=_RUNS_AT_ONCE)
        for run in found:
            is_ours = run.id != without and store.row_of(run.id).project == project
            done = _expire(store, policy, now, run, rest) if is_ours else _NOTHING
            if done.has_deleted:
                deleted(run.id)
            if not done.is_settled:
                is_settled = False
            elif is_settled and status not in FINISHED:
                reached[name] = _behind(run)
        if status in FINISHED:
            reached[name] = _behind(found[-1]) if len(found) == _RUNS_AT_ONCE else 0.0
    if reached != cursor and (stored is not None or any(reached.values())):
        with suppress(Conflict):  # another process sweeps, too
            store.put_meta(_CURSOR, msgspec.msgpack.encode(reached), expected=stored)


def _behind(run: RunRecord) -> float:
    return math.nextafter(run.updated_at.timestamp(), math.inf)


def _expire(
    store: Store, policy: RetentionPolicy, now: datetime, run: RunRecord, rest: Callable[[], object]
) -> _Expired:
    """Expire what is too old in a run."""
    if "framework" in run.attributes and run.status not in FINISHED:
        return _NOTHING
    try:
        read = read_rows(store, run.id)
        planned = paced(plan(store, run, read, policy, now), read.rows, now)
        left = carry_out(store, planned, now=now, rest=rest)
    except (NotFound, IntegrityError):
        return _NOTHING  # deleted meanwhile, or damaged: verify names it, and nothing of it goes by itself
    has_deleted = any(one.action == "delete" for one in planned.decisions)
    is_settled = not left and not any(one.is_by_age and one.action != "delete" for one in planned.decisions)
    return _Expired(is_settled, has_deleted)
