"""Automatic recovery: runs whose process is gone go on from their newest sound checkpoint, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError, IntegrityError, LeaseHeld, NotFound, RunWaiting
from holdfast.recover.automatic import Recovered, is_under_way, reasons_to_leave
from holdfast.recover.locate import locate
from holdfast.recovery.carry_out import recover
from holdfast.recovery.gather import Freshness, plan_recovery
from holdfast.runtime.lease import is_dead

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import RunRecord
    from holdfast.model.verdicts import Verdict
    from holdfast.run import Run


def recover_all(
    hf: Holdfast,
    resume: Callable[[Run], object] | None = None,
    *,
    workspace: Callable[[str], str | os.PathLike[str] | None] | None = None,
    **options: Any,
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
    options: dict[str, Any],
) -> Recovered | None:
    """Recover one run under its lease; None if it needs no recovery."""
    run, head = record.id, record.head
    try:
        if head is None or not is_under_way(_status(hf, run, head)):
            return None
        lease = hf.store.lease(run)
        if lease is not None and not is_dead(lease.owner):
            return None
        handle = hf.run(run, workspace=place, waiting="leave", rewinding=True)
    except (HoldfastError, OSError) as error:
        return Recovered(run=run, outcome="left", reason=str(error))
    try:
        with handle.held():
            if hf.store.run(run).head != head:
                return Recovered(run=run, outcome="left", reason="another process moved it on at the same moment")
            return _go_on(hf, handle, resume, place, options)
    except LeaseHeld as held:
        return Recovered(run=run, outcome="left", reason=f"{held.owner} moves it")
    except (HoldfastError, OSError) as error:  # the next run must not suffer for it
        return Recovered(run=run, outcome="left", reason=str(error))
    finally:
        handle.close()


def _go_on(
    hf: Holdfast,
    handle: Run,
    resume: Callable[[Run], object] | None,
    place: str | os.PathLike[str] | None,
    options: dict[str, Any],
) -> Recovered:
    try:
        # What the run's own process wrote before it died is not told from others' work: kept, and warned about.
        verdicts: dict[str, Verdict] = {"files-changed": "warn", **hf.settings.recovery.verdicts}
        given = {"freshness": Freshness(verdicts=verdicts), **options}
        plan = plan_recovery(hf, "latest", run=handle.id, workspace=place, **given)
    except IntegrityError as error:
        return Recovered(run=handle.id, outcome="left", reason=str(error))
    reasons = reasons_to_leave(plan)
    if reasons:
        return Recovered(run=handle.id, outcome="left", checkpoint=plan.checkpoint, reason="; ".join(reasons))
    result = recover(hf, plan, run=handle)
    if not result.success or result.checkpoint is None:
        reason = "; ".join(result.errors)
        return Recovered(run=handle.id, outcome="left", checkpoint=plan.checkpoint, reason=reason)
    done = Recovered(run=handle.id, outcome="recovered", checkpoint=result.checkpoint.id, warnings=result.warnings)
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


def _status(hf: Holdfast, run: str, head: str) -> str | None:
    """Return how a run stands, by its newest checkpoint that can be read."""
    try:
        return hf.store.checkpoint(head).envelope.summary.status
    except (IntegrityError, NotFound):
        return locate(hf.store, "latest", run=run).record.envelope.summary.status
