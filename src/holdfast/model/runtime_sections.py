"""The sections that a run keeps of itself: how it stands, what it waits for, its steps and its journal.

Whoever gives one of them by hand gives it in this form: the run reads it in its next process.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

Status = Literal["forked", "running", "waiting", "paused", "ended", "completed", "failed", "cancelled"]
WaitKind = Literal["approval", "signal", "time", "budget", "pause", "uncertain", "cooldown"]


class StatusValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run stands."""

    status: Status
    since: datetime
    detail: str = ""


class Wait(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a run waits for; `id` is the same in every process of the run.

    It is the path of its call; asked again about other work, it has a number more: `approve:push:2`.
    """

    id: str
    kind: WaitKind
    question: str = ""
    options: tuple[str, ...] = ()
    until: datetime | None = None
    details: dict[str, Any] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer: what was chosen, by whom, when."""

    choice: str
    at: datetime
    by: str = ""
    note: str = ""
    value: Any = None

    @property
    def approved(self) -> bool:
        """Whether it is a yes."""
        return self.choice in ("approve", "yes")


class WaitsValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is open, by the path of its call, and the signals that nobody has waited for yet; answers are in records."""

    open: dict[str, Wait] = {}
    signals: dict[str, list[Reply]] = {}


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """What every record of a step has; the rest of it depends on the event."""

    step: str
    at: datetime
    event: Literal["started", "asked", "progress", "done", "failed", "skipped", "withdrawn", "voided"]
    input: str
    code: str


class JournalLine(msgspec.Struct, frozen=True, kw_only=True):
    """What every line of the journal has."""

    at: datetime
    kind: str
    what: str = ""


RUNTIME_TYPES: dict[str, Any] = {"status": StatusValue, "waits": WaitsValue}
LOG_TYPES: dict[str, Any] = {"steps": list[StepLine], "journal": list[JournalLine]}
"""Views of the journal; only a fork may be given others than its origin has."""
