"""Runs and checkpoints as JSON documents and as parts of a line; the same words in every command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.output import Paint
from holdfast.cli.times import number

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.output import Part
    from holdfast.model.checkpoint import Envelope, RunRecord
    from holdfast.store.api import Store

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


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a list says of a checkpoint."""
    summary, recovery = checkpoint.summary, checkpoint.recovery
    return {
        "id": checkpoint.id,
        "run": checkpoint.run,
        "seq": checkpoint.seq,
        "parent": checkpoint.parent,
        "trigger": checkpoint.trigger,
        "reason": checkpoint.reason,
        "created_at": checkpoint.created_at.isoformat(),
        "status": checkpoint.status,
        "label": checkpoint.label,
        "pinned": checkpoint.pinned,
        "phase": summary.phase,
        "state": summary.state,
        "steps": summary.steps,
        "run_status": summary.status,
        "can_resume": recovery.can_resume,
        "blockers": list(recovery.blockers),
        "sections": list(checkpoint.sections),
        "size_bytes": checkpoint.size_bytes,
        "stored_bytes": checkpoint.stored_bytes,
    }


def is_moving(store: Store, run: str) -> bool:
    """Tell whether a process moves a run now: it has the lease, and is not known to be gone."""
    from holdfast.runtime.lease import is_dead  # noqa: PLC0415 - only for runs that say they are under way

    lease = store.lease(run)
    return lease is not None and not is_dead(lease.owner)


def run_document(run: RunRecord, head: Envelope | None, *, moving: bool) -> dict[str, Any]:
    """Return what a list says of a run."""
    return {
        "moving": moving,
        "id": run.id,
        "head": run.head,
        "checkpoints": run.checkpoints,
        "last_seq": run.last_seq,
        "created_at": run.created_at.isoformat(),
        "updated_at": run.updated_at.isoformat(),
        "status": head.summary.status if head is not None else None,
        "phase": head.summary.phase if head is not None else None,
        "state": head.summary.state if head is not None else None,
        "trigger": head.trigger if head is not None else None,
        "reason": head.reason if head is not None else None,
        "can_resume": head.recovery.can_resume if head is not None else None,
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
        words.append(number(summary.steps, "step"))
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
