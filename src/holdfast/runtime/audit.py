"""The audit trail: what happened when, by whom, how long it took, and what resuming saved; pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.journal.call_record import is_inside, is_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.model.sections import Agent, AgentTask, PhaseState

_KNOWN = frozenset({"at", "kind", "what", "phase", "by", "duration_s"})
_RESUMED = "resumed"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in a run."""

    at: datetime
    kind: str
    what: str = ""
    phase: str | None = None
    by: str = ""
    duration_s: float | None = None
    details: dict[str, Any] = {}


class Savings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did not have to do again because it was resumed and not started over."""

    resumes: int = 0
    steps: int = 0
    """Calls that were kept over the last resume; what was called inside one goes with it."""
    seconds: float = 0.0
    tokens: int = 0


def events(journal: Iterable[Mapping[str, Any]], steps: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Return everything that happened, oldest first."""
    found = [_noted(line) for line in journal]
    found += [_stepped(record) for record in steps]
    return sorted(found, key=lambda event: event.at)


def _noted(line: Mapping[str, Any]) -> Event:
    return Event(
        at=line["at"],
        kind=str(line["kind"]),
        what=str(line.get("what", "")),
        phase=line.get("phase"),
        by=str(line.get("by", "")),
        duration_s=line.get("duration_s"),
        details={name: value for name, value in line.items() if name not in _KNOWN},
    )


def _stepped(record: Mapping[str, Any]) -> Event:
    details = {name: record[name] for name in ("attempts", "effect") if name in record}
    if "error" in record:
        details["error"] = record["error"]["message"]
    reply = record.get("result") if record.get("kind") == "question" and record["event"] == "done" else None
    reply = reply if isinstance(reply, dict) else {}
    if "choice" in reply:
        details["choice"] = reply["choice"]
    return Event(
        at=record["at"],
        kind=f"{record.get('kind', 'step')} {record['event']}",
        what=record["step"],
        phase=record.get("phase"),
        by=str(reply.get("by", "")),
        duration_s=record.get("duration_s"),
        details=details,
    )


def savings(
    journal: Sequence[Mapping[str, Any]],
    steps: Iterable[Mapping[str, Any]],
    agents: Iterable[Agent] = (),
    phases: Iterable[PhaseState] = (),
) -> Savings:
    """Return what stood in the record when the run was last resumed: it was neither done nor paid for again.

    A run without steps, which a shell script moves, is resumed by every command: its complete phases are the work.
    """
    resumed = [line["at"] for line in journal if line["kind"] == _RESUMED]
    steps = [one for one in steps if is_work(one)]
    if not steps:
        settled = [phase for phase in phases if phase.status == "completed"]
        seconds = sum(phase.duration_s for phase in settled)
        return Savings(resumes=len(resumed), steps=len(settled), seconds=seconds)
    if not resumed:
        return Savings()
    last = resumed[-1]
    done = {record["step"]: record for record in steps if record["event"] == "done" and record["at"] <= last}
    kept = [record for path, record in done.items() if not is_inside(path, done)]
    calls = [one for agent in agents for one in _done_tasks(agent) if one[0] <= last]
    return Savings(
        resumes=len(resumed),
        steps=len(kept),
        seconds=sum(record.get("duration_s", 0.0) for record in kept),
        tokens=sum(task.tokens.input + task.tokens.output for _, task in calls),
    )


def _done_tasks(agent: Agent) -> list[tuple[datetime, AgentTask]]:
    done = [task for task in agent.tasks.values() if task.status == "completed"]
    return [(task.completed_at, task) for task in done if task.completed_at is not None]
