"""How a call that resumed a flow ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.flow.digests import FlowChanges

Ending = Literal["completed", "failed", "waiting", "cancelled", "elsewhere", "left"]


class FlowResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run stands now.

    `elsewhere` means that another process moves it, and nothing was done here; `left` that this one was asked to stop.
    """

    run: str
    flow: str
    status: Ending
    detail: str = ""
    phases: dict[str, str] = {}
    """The status of each phase."""
    results: dict[str, Any] = {}
    """What each phase came to."""
    waits_for: str | None = None
    """The id of the wait, with status `waiting`."""
    until: datetime | None = None
    """When a wait ends by itself at the latest, None if only somebody can end it."""
    changes: FlowChanges = FlowChanges()
    """What became of the flow since the run was last resumed."""
    tasks_done: int = 0
    """Tasks that were carried out in this call."""
    tasks_kept: int = 0
    """Tasks whose results were there already."""
    saved_s: float = 0.0
    """How long the kept tasks took when they were carried out."""
    saved_tokens: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to resume."""
        return self.status in ("completed", "cancelled")
