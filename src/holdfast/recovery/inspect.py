"""How a run stands toward a recovery, and the points that it can go back to; reads only."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import IntegrityError
from holdfast.model.checkpoint import NO_RECOVERY_POINT, CheckpointRecord, Status
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.find import Damage, locate, opened
from holdfast.recovery.gather import info_of, plan_recovery, steps_of
from holdfast.recovery.line import RunLine
from holdfast.recovery.outcomes import UnknownStep, unknown_steps
from holdfast.recovery.prerequisites import Prerequisite, all_met, prerequisites_of
from holdfast.recovery.record import SECTION, read_record
from holdfast.recovery.suggest import suggestions

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.recovery import RecoveryInfo
    from holdfast.recovery.plan import PlanOptions


def recovery_status(hf: Holdfast, spec: str, options: PlanOptions) -> RecoveryStatus:
    """Say whether and where a run can continue: from its newest sound checkpoint, or from the one that is named.

    Where a workspace or a subject is among the options it looks whether branch, files and subject are as they were.
    """
    try:
        located = locate(hf.store, spec)
    except IntegrityError as error:
        return RecoveryStatus(run=spec, status=None, can_resume=False, blockers=(str(error),))
    checkpoint = opened(hf, located)
    envelope = located.record.envelope
    run = envelope.run
    named = run if located.is_end else checkpoint.place
    info, summary = info_of(hf, checkpoint), checkpoint.summary
    lease = hf.store.leases.running(run)
    told = read_record(checkpoint.section(SECTION)) if SECTION in checkpoint.sections else None
    is_complete = summary.status == "completed"
    return RecoveryStatus(
        run=run,
        status=summary.status,
        can_resume=info.can_resume and not is_complete,
        is_complete=is_complete,
        checkpoint=envelope.id,
        state=info.resume_state or summary.state,
        phase=info.resume_phase or summary.phase,
        agent=info.resume_agent,
        batch=info.resume_batch,
        task=info.resume_task,
        steps=summary.steps,
        owner=lease.owner if lease is not None else None,
        blockers=info.blockers,
        suggestions=tuple(map(str, suggestions(info, spec=named, checkpoint=envelope.id))),
        warnings=info.warnings,
        prerequisites=plan_recovery(hf, spec, options).prerequisites if options else _needs(checkpoint, info),
        unknown=unknown_steps(steps_of(checkpoint), {}),
        damage=located.skipped,
        undo=told.undo if told is not None else None,
    )


def _needs(checkpoint: Checkpoint, info: RecoveryInfo) -> tuple[Prerequisite, ...]:
    """Return what a checkpoint needs where nobody looks how the world is."""
    from holdfast.recovery.freshness import facts_then  # noqa: PLC0415 - it knows git

    return prerequisites_of(info, facts_then(checkpoint), has_files=WORKSPACE in checkpoint.sections)


def recovery_points(hf: Holdfast, run: str, *, limit: int | None = None) -> list[RecoveryPoint]:
    """Return a run's checkpoints as points to go back to, newest first; records only, no payload is read.

    Reads no further back than the last one that is returned. What is expired, corrupted or unfinished is not a point.
    """
    line = RunLine(hf.store, check_run_id(run))
    head = line.record.head if line.record is not None else None
    on_line = (row for row in line.line() if isinstance(row, CheckpointRecord))
    lineage = next(on_line, None)
    found: list[RecoveryPoint] = []
    for row in line.rows():
        if limit is not None and len(found) >= limit:
            break
        if not isinstance(row, CheckpointRecord):
            continue
        while lineage is not None and lineage.envelope.seq > row.envelope.seq:
            lineage = next(on_line, None)
        if row.marks.status not in NO_RECOVERY_POINT:
            is_on_line = lineage is not None and lineage.envelope.seq == row.envelope.seq
            found.append(point_of(row, is_on_line=is_on_line, is_head=row.envelope.id == head))
    return found


class RecoveryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint that a run can, or cannot, continue from; `is_on_line` if the head was built on it."""

    checkpoint: str
    seq: int
    created_at: datetime
    trigger: str
    reason: str
    can_resume: bool
    blockers: tuple[str, ...] = ()
    state: str | None = None
    phase: str | None = None
    agent: str | None = None
    steps: int = 0
    label: str | None = None
    status: Status = "valid"
    is_on_line: bool = True
    is_head: bool = False


class RecoveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands toward continuing: from where, what keeps it from it, and what can be typed against that."""

    run: str
    status: str | None
    can_resume: bool
    is_complete: bool = False
    checkpoint: str | None = None
    state: str | None = None
    phase: str | None = None
    agent: str | None = None
    batch: int | None = None
    task: str | None = None
    steps: int = 0
    owner: str | None = None
    """Who moves the run at this moment, None if nobody does."""
    blockers: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    prerequisites: tuple[Prerequisite, ...] = ()
    """The branch, the subject, the files and what the run waits for, each with whether it is there."""
    unknown: tuple[UnknownStep, ...] = ()
    damage: tuple[Damage, ...] = ()
    undo: str | None = None
    """The checkpoint that hf.undo() goes back to, None if there was no recovery."""

    @property
    def prerequisites_met(self) -> bool | None:
        """Return whether all that the run needs is there; None where nobody looked at a part of it."""
        return all_met(self.prerequisites)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        verb = "is complete" if self.is_complete else "can continue" if self.can_resume else "cannot continue"
        told = [f"run {self.run} {verb}" + (f" from {self.checkpoint}" if self.checkpoint else "")]
        told += [f"  {blocker}" for blocker in self.blockers]
        told += [f"  try: {suggestion}" for suggestion in self.suggestions]
        told += [f"  needs {each}" for each in self.prerequisites if each.is_met is False]
        told += [f"  damaged: {each}" for each in self.damage]
        told += [f"  warning: {warning}" for warning in self.warnings]
        if self.owner is not None:
            told.append(f"  {self.owner} moves it now")
        return told


def point_of(record: CheckpointRecord, *, is_on_line: bool, is_head: bool) -> RecoveryPoint:
    """Return a checkpoint as a point to go back to."""
    envelope = record.envelope
    info = envelope.recovery
    return RecoveryPoint(
        checkpoint=envelope.id,
        seq=envelope.seq,
        created_at=envelope.created_at,
        trigger=envelope.trigger,
        reason=envelope.reason,
        can_resume=info.can_resume,
        blockers=info.blockers,
        state=envelope.summary.state,
        phase=info.resume_phase or envelope.summary.phase,
        agent=info.resume_agent,
        steps=envelope.summary.steps,
        label=record.marks.label,
        status=record.marks.status,
        is_on_line=is_on_line,
        is_head=is_head,
    )
