"""What lists and people see of recovering a run: how it stands, and the points to go back to."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.checkpoint import CheckpointRecord, Status
from holdfast.recover.locate import Damage
from holdfast.recover.outcomes import UnknownStep


class RecoveryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint that a run can, or cannot, go on from; `is_on_line` if the head was built on it."""

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
    """How a run stands toward going on: from where, what keeps it from it, and what can be typed against that."""

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
    prerequisites: tuple[str, ...] = ()
    unknown: tuple[UnknownStep, ...] = ()
    damage: tuple[Damage, ...] = ()
    undo: str | None = None
    """The checkpoint that hf.undo() goes back to, None if there was no recovery."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        verb = "is complete" if self.is_complete else "can go on" if self.can_resume else "cannot go on"
        told = [f"run {self.run} {verb}" + (f" from {self.checkpoint}" if self.checkpoint else "")]
        told += [f"  {blocker}" for blocker in self.blockers]
        told += [f"  try: {suggestion}" for suggestion in self.suggestions]
        told += [f"  needs {each}" for each in self.prerequisites]
        told += [f"  damaged: {each}" for each in self.damage]
        told += [f"  warning: {warning}" for warning in self.warnings]
        if self.owner is not None:
            told.append(f"  {self.owner} moves it now")
        return told


def point_of(record: CheckpointRecord, *, is_on_line: bool, is_head: bool) -> RecoveryPoint:
    """Return a checkpoint as a point to go back to."""
    envelope = record.envelope
    info = envelope.recovery
    is_sound = record.marks.status != "corrupted"
    return RecoveryPoint(
        checkpoint=envelope.id,
        seq=envelope.seq,
        created_at=envelope.created_at,
        trigger=envelope.trigger,
        reason=envelope.reason,
        can_resume=info.can_resume and is_sound,
        blockers=info.blockers if is_sound else ("it is damaged", *info.blockers),
        state=envelope.summary.state,
        phase=info.resume_phase or envelope.summary.phase,
        agent=info.resume_agent,
        steps=envelope.summary.steps,
        label=record.marks.label,
        status=record.marks.status,
        is_on_line=is_on_line,
        is_head=is_head,
    )
