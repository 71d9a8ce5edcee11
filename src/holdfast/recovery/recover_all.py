"""Automatic recovery: runs whose process is gone continue from their newest sound checkpoint, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import CannotResume, HoldfastError, IntegrityError, LeaseHeld, RunWaiting
from holdfast.recovery.apply import recover
from holdfast.recovery.gather import plan_recovery
from holdfast.store.owner import is_dead

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import RunRecord
    from holdfast.recovery.plan import PlanOptions
    from holdfast.run import Run


def recover_all(
    hf: Holdfast,
    resume: Callable[[Run], object] | None = None,
    *,
    workspace: Callable[[str], str | os.PathLike[str] | None] | None = None,
    options: PlanOptions,
) -> list[Recovered]:
    """Put back every run that was under way when its process ended, and let `resume` move it on; report each.

    `resume` gets the run open, as in a `with` block. `workspace` gives the directory of a run. A run that another
    process takes at the same moment is left to it.
    """
    found: list[Recovered] = []
    for record in hf.runs():
        place = workspace(record.id) if workspace is not None else None
        one = _recover_one(hf, record, resume=resume, place=place, options=options)
        if one is not None:
            found.append(one)
    return found


def _recover_one(
    hf: Holdfast,
    record: RunRecord,
    *,
    resume: Callable[[Run], object] | None,
    place: str | os.PathLike[str] | None,
    options: PlanOptions,
) -> Recovered | None:
    """Recover one run under its lease; None if it needs no recovery."""
    run, head = record.id, record.head
    try:
        if not is_under_way(record.status):
            return None
        lease = hf.store.leases.running(run)
        if lease is not None and not is_dead(lease.owner):
            return None
        handle = hf.run(run, workspace=place, waiting="leave", rewinding=True)
    except (HoldfastError, OSError) as error:
        return Recovered(run=run, outcome="left", reason=str(error))
    try:
        with handle.held():
            if hf.store.run(run).head != head:
                return Recovered(run=run, outcome="left", reason="another process moved it on at the same moment")
            return _continue(hf, handle, resume, place, options)
    except LeaseHeld as held:
        return Recovered(run=run, outcome="left", reason=f"{held.owner} moves it")
    except (HoldfastError, OSError) as error:  # the next run must not suffer for it
        return Recovered(run=run, outcome="left", reason=str(error))
    finally:
        handle.close()


def _continue(
    hf: Holdfast,
    handle: Run,
    resume: Callable[[Run], object] | None,
    place: str | os.PathLike[str] | None,
    options: PlanOptions,
) -> Recovered:
    try:
        plan = plan_recovery(hf, "latest", {**options, "workspace": place}, run=handle.id)
    except IntegrityError as error:
        return Recovered(run=handle.id, outcome="left", reason=str(error))
    try:
        result = recover(hf, plan, run=handle)
    except (RunWaiting, CannotResume) as error:
        reason = error.question if isinstance(error, RunWaiting) else "; ".join(error.blockers)
        return Recovered(run=handle.id, outcome="left", checkpoint=plan.checkpoint, reason=reason)
    if not result.success or result.checkpoint is None:
        reason = "; ".join(result.errors)
        return Recovered(run=handle.id, outcome="left", checkpoint=plan.checkpoint, reason=reason)
    outcome: Outcome = "recovered" if result.is_recovered else "ready"
    done = Recovered(run=handle.id, outcome=outcome, checkpoint=result.checkpoint.id, warnings=result.warnings)
    if resume is None:
        return done
    try:
        with handle:
            resume(handle)
    except RunWaiting as waiting:
        return msgspec.structs.replace(done, outcome="waiting", reason=waiting.question)
    except Exception as error:  # noqa: BLE001 - the next run must not suffer for it; it is reported, and in the record
        return msgspec.structs.replace(done, outcome="failed", reason=f"{type(error).__name__}: {error}")
    return msgspec.structs.replace(done, outcome="resumed")


Outcome = Literal["resumed", "recovered", "ready", "waiting", "left", "failed"]
_UNDER_WAY = frozenset({"running", "waiting"})


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What an automatic recovery did with one run, and why not more.

    resumed: `resume` came to its end; recovered: it was put back, and there is no `resume`; ready: it stands where it
    continues, so there was nothing to put back; waiting: it continued, and waits; left: it cannot continue, and was not
    touched; failed: `resume` raised.
    """

    run: str
    outcome: Outcome
    checkpoint: str | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"run {self.run}: {self.outcome}" + (f", {self.reason}" if self.reason else "")


def is_under_way(status: str | None) -> bool:
    """Tell whether a run with this status was being moved, or waited, when its process ended."""
    return status in _UNDER_WAY
