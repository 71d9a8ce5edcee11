"""Expiry of whole runs: those that finished long ago go as a whole, a few at each sweep, in the order they finished."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import Conflict, IntegrityError, NotFound
from holdfast.model.checkpoint import FINISHED
from holdfast.retain.policy import age_limit
from holdfast.retain.prune import carry_out, paced, plan, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.retain.policy import RetentionPolicy
    from holdfast.store.store import Store

_RUNS_AT_ONCE = 20
_CURSOR = "retention"
_decode = msgspec.msgpack.Decoder(dict[str, float]).decode


def expire_finished(
    store: Store, policy: RetentionPolicy, now: datetime, *, without: str, rest: Callable[[], object] = int
) -> list[str]:
    """Look at a few runs that finished longer ago than the policy's age, and return those that are gone.

    A sweep marks their checkpoints, one a day later deletes what is marked. Where the last sweep ended is kept in the
    store, so that runs which stay for their pins do not keep those behind them from being looked at.
    """
    before = age_limit(policy, now)
    if before is None:
        return []
    gone: list[str] = []
    stored = store.meta(_CURSOR)
    cursor = _decode(stored) if stored is not None else {}
    reached = dict(cursor)
    for status in sorted(FINISHED):
        found = store.finished_before(status, before, after=cursor.get(status), limit=_RUNS_AT_ONCE)
        for run in found:
            if run.id == without:
                continue
            try:
                read = read_rows(store, run.id)
                planned = paced(plan(store, run, read, policy, now), read.rows, now)
                left = carry_out(store, planned, now=now, rest=rest)
            except (NotFound, IntegrityError):
                continue  # deleted meanwhile, or damaged: verify names it, and nothing of it goes by itself
            if planned.is_whole and not left:
                gone.append(run.id)
        is_page = len(found) == _RUNS_AT_ONCE
        reached[status] = math.nextafter(found[-1].updated_at.timestamp(), math.inf) if is_page else 0.0
    if reached != cursor and (stored is not None or any(reached.values())):
        with suppress(Conflict):  # another process sweeps, too
            store.put_meta(_CURSOR, msgspec.msgpack.encode(reached), expected=stored)
    return gone
