"""What a checkpoint says of going on from it."""

from __future__ import annotations

import msgspec


class RecoveryInfo(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Whether and where a run can go on from a checkpoint; worked out when it is taken."""

    can_resume: bool = True
    resume_agent: str | None = None
    resume_state: str | None = None
    blockers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
