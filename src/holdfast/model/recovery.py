"""What a checkpoint says of continuing from it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Blocker(NamedTuple):
    """One reason not to continue: its kind and what it is about for programs, its text for people."""

    kind: str
    about: str
    text: str


class RecoveryInfo(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Whether and where a run can continue from a checkpoint; worked out when it is taken.

    Stored by position: a new field is added at the end, with a default, or older checkpoints cannot be read.
    """

    can_resume: bool = True
    resume_agent: str | None = None
    resume_state: str | None = None
    blockers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    resume_phase: str | None = None
    resume_batch: int | None = None
    resume_task: str | None = None
    prerequisites: tuple[str, ...] = ()
    """What must be given before the run moves again: an answer, a larger budget, another task's result."""
    blocker_kinds: tuple[str, ...] = ()
    """For each blocker "kind" or "kind:about", such as "agent-failed:coder"."""
    reset_to: str | None = None
    """The last state of the workflow that it could be set back to."""

    @property
    def prerequisites_met(self) -> bool:
        """Whether the run waits for nothing; what is outside it is in `hf.plan(...).prerequisites`."""
        return not self.prerequisites

    @property
    def blocked_by(self) -> tuple[Blocker, ...]:
        """The blockers with their kinds; one from before kinds were stored has an empty kind."""
        kinds = self.blocker_kinds + ("",) * (len(self.blockers) - len(self.blocker_kinds))
        split = (kind.partition(":") for kind in kinds)
        return tuple(Blocker(kind, about, text) for (kind, _, about), text in zip(split, self.blockers, strict=False))
