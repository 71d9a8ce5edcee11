"""What happens in a flow, as it happens: one small value an event, for people's eyes and for machines."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    Observer = Callable[["Event"], None]

Kind = Literal[
    "flow_started", "flow_resumed", "flow_changed", "flow_done", "flow_failed", "subject_changed",
    "phase_started", "phase_done", "phase_failed", "phase_skipped", "phase_kept", "replan",
    "task_started", "task_output", "task_done", "task_kept", "task_failed", "task_skipped", "task_retry",
    "background_ended", "artifact_gone", "hook_failed", "report_refused", "knowledge_failed",
    "gate_started", "gate_done", "gate_kept", "gate_failed", "fix_started", "fix_done",
    "waiting", "answered", "budget", "budget_warning", "checkpoint", "unprotected", "protected",
]  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened."""

    kind: Kind
    at: datetime
    phase: str | None = None
    task: str | None = None
    gate: str | None = None
    text: str = ""
    data: dict[str, Any] = {}


def json_line(event: Event) -> str:
    """Return an event as one line of JSON."""
    return msgspec.json.encode(event, enc_hook=str).decode() + "\n"
