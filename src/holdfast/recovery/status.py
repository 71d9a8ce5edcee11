"""How a run stands toward a recovery, and the points that it can go back to; reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import IntegrityError, NotFound
from holdfast.model.checkpoint import CheckpointRecord
from holdfast.model.ids import check_run_id
from holdfast.recover.line import RunLine
from holdfast.recover.locate import locate
from holdfast.recover.outcomes import unknown_steps
from holdfast.recover.record import SECTION, read_record
from holdfast.recover.status import RecoveryPoint, RecoveryStatus, point_of
from holdfast.recover.suggest import suggestions
from holdfast.recovery.gather import log_of

if TYPE_CHECKING:
    from holdfast.engine import Holdfast


def recovery_status(hf: Holdfast, run: str) -> RecoveryStatus:
    """Say whether and where a run can go on, from its newest sound checkpoint."""
    try:
        located = locate(hf.store, "latest", run=check_run_id(run))
    except IntegrityError as error:
        return RecoveryStatus(run=run, status=None, can_resume=False, blockers=(str(error),))
    checkpoint = hf.opened(located.record)
    envelope = located.record.envelope
    info = envelope.recovery
    lease = hf.store.lease(run)
    told = read_record(checkpoint.section(SECTION)) if SECTION in checkpoint.sections else None
    is_complete = envelope.summary.status == "completed"
    return RecoveryStatus(
        run=run,
        status=envelope.summary.status,
        can_resume=info.can_resume and not is_complete,
        is_complete=is_complete,
        checkpoint=envelope.id,
        state=info.resume_state or envelope.summary.state,
        phase=info.resume_phase or envelope.summary.phase,
        agent=info.resume_agent,
        batch=info.resume_batch,
        task=info.resume_task,
        steps=envelope.summary.steps,
        owner=lease.owner if lease is not None else None,
        blockers=info.blockers,
        suggestions=tuple(map(str, suggestions(info, run=run, checkpoint=envelope.id))),
        warnings=info.warnings,
        prerequisites=info.prerequisites,
        unknown=unknown_steps(log_of(checkpoint, "steps"), {}),
        damage=located.skipped,
        undo=told.undo if told is not None else None,
    )


def recovery_points(hf: Holdfast, run: str, *, limit: int | None = None) -> list[RecoveryPoint]:
    """Return a run's checkpoints as points to go back to, newest first; records only, no payload is read."""
    line = RunLine(hf.store, check_run_id(run))
    on_line = {row.envelope.id for row in line.line() if isinstance(row, CheckpointRecord)}
    head = _head(hf, run)
    found: list[RecoveryPoint] = []
    for row in line.rows():
        if isinstance(row, CheckpointRecord):
            name = row.envelope.id
            found.append(point_of(row, is_on_line=name in on_line, is_head=name == head))
            if limit is not None and len(found) >= limit:
                break
    return found


def _head(hf: Holdfast, run: str) -> str | None:
    try:
        return hf.store.run(run).head
    except (NotFound, IntegrityError):
        return None
