"""Runs and checkpoints as parts of a line; the same words in every command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.output import Paint
from holdfast.cli.times import number

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.output import Part
    from holdfast.model.checkpoint import Envelope

_TRIGGER_COLOURS = {
    "error_occurred": "red",
    "user_interrupt": "red",
    "conflict_start": "red",
    "before_destructive": "magenta",
    "manual": "yellow",
    "user_approval": "yellow",
    "budget_warning": "yellow",
    "replan": "yellow",
    "phase_complete": "green",
    "phase_transition": "green",
    "state_transition": "green",
    "batch_complete": "green",
    "recovery": "blue",
    "shutdown": "dim",
    "session_end": "dim",
    "time_interval": "dim",
}
_STATUS_COLOURS = {
    "running": "green",
    "completed": "green",
    "waiting": "yellow",
    "paused": "yellow",
    "failed": "red",
    "cancelled": "red",
}


def trigger(name: str) -> Paint:
    """Return a trigger in its colour."""
    return Paint(name, _TRIGGER_COLOURS.get(name, "cyan"))


def status(name: str | None, *, moving: bool = True) -> Part:
    """Return a run's status in its colour; one under way that no process moves is open."""
    if name == "running" and not moving:
        return Paint("open", "yellow")
    return Paint(name, _STATUS_COLOURS.get(name, "")) if name else "-"


def position(checkpoint: Checkpoint | Envelope) -> str:
    """Return where a run stands, in a few words."""
    summary = checkpoint.summary
    words = [word for word in (summary.phase, summary.state) if word]
    if summary.steps:
        words.append(number(summary.steps, "record"))
    return ", ".join(words)


def marks(checkpoint: Checkpoint) -> list[Part]:
    """Return label, pin and status, where there is something to say."""
    said: list[Part] = []
    if checkpoint.label:
        said += [Paint(f"({checkpoint.label})", "yellow"), " "]
    if checkpoint.pinned:
        said += [Paint("[pinned]", "yellow"), " "]
    if checkpoint.status != "valid":
        said += [Paint(f"[{checkpoint.status}]", "red" if checkpoint.status == "corrupted" else "dim"), " "]
    return said
