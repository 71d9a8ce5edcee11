"""Approvals: what all runs wait for, with the evidence for an answer."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, UsageError
from holdfast.model.sections import WORKSPACE
from holdfast.web.overview import waits_of
from holdfast.web.site import RequestRefused

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.web import answers
    from holdfast.web.overview import Overview
    from holdfast.web.site import Handle, Site

_MOST_OUTPUT = 2000
_MOST_STEPS_BACK = 4000
_MOST_ANSWERED = 30
_PEOPLE = ("approval", "budget", "pause", "uncertain", "signal")


def inbox(handle: Handle, overview: Overview) -> answers.Inbox:
    """Return what waits for a person over all runs, the longest wait first, and what was answered last."""
    waiting = [(run, wait) for run in overview.all() for wait in run["waits"] if wait["kind"] in _PEOPLE]
    waiting.sort(key=lambda pair: pair[0]["updated_at"])
    cards: list[answers.WaitCard] = [
        {
            **wait,
            "run": run["id"],
            "phase": run["phase"],
            "since": run["updated_at"],
            "evidence": evidence(handle, run["id"]),
        }
        for run, wait in waiting[:50]
    ]
    return {"waiting": cards, "total": len(waiting), "answered": _answered(handle, overview)}


def _answered(handle: Handle, overview: Overview) -> list[answers.Answered]:
    """Return what was answered in the last day, the newest first, of the runs that moved last."""
    moved = sorted(overview.all(), key=lambda run: run["updated_at"] or "", reverse=True)
    since = datetime.now(UTC) - timedelta(days=1)
    given: list[answers.Answered] = []
    for run in moved[:_MOST_ANSWERED]:
        with suppress(HoldfastError):
            replies = _replies(handle.hf.latest(run["id"], required=True))
            given += [
                {
                    "run": run["id"], "wait": handle.clean_text(wait), "choice": handle.clean_text(reply["choice"]),
                    "by": reply["by"], "note": handle.clean_text(reply["note"]), "at": reply["at"].isoformat(),
                }
                for wait, reply in replies.items()
                if reply["at"] >= since
            ]  # fmt: skip
    return sorted(given, key=lambda one: one["at"], reverse=True)[:_MOST_ANSWERED]


def _replies(head: Checkpoint) -> dict[str, Any]:
    return {
        line["step"]: line["result"]
        for line in head.calls
        if line.get("kind") == "question" and line["event"] == "done" and isinstance(line.get("result"), dict)
    }


def evidence(handle: Handle, run: str) -> answers.Evidence:
    """Return what an answer can be based on: files since the last answer, gates, budgets."""
    try:
        head = handle.hf.latest(run, required=True)
        base = at_last_answer(handle, head) or _first_with_files(handle, head)
        told: answers.Evidence = {
            "head": f"{run}@{head.seq}",
            "base": None,
            "files": None,
            "gates": gates_of(handle, head),
        }
        if base is not None and WORKSPACE in head.sections:
            changed = head.changes(base)
            counts: dict[str, int] = {}
            for change in changed:
                counts[change.status] = counts.get(change.status, 0) + 1
            told["base"], told["files"] = f"{base.run}@{base.seq}", counts
            told["paths"] = [one.path for one in changed[:8]]
    except HoldfastError as error:
        return {"problem": str(error)}
    return told


def at_last_answer(handle: Handle, head: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint at which the run stood when it was last answered, None if it never was."""
    hf = handle.hf
    last = max((reply["at"] for reply in _replies(head).values()), default=None)
    low, high = 1, head.seq
    if last is None:
        return None
    while low < high:  # times grow with numbers, but for a clock that was set back
        middle = (low + high + 1) // 2
        record = hf.store.checkpoint_at(head.run, middle)
        if record is None or record.envelope.created_at <= last:
            low = middle
        else:
            high = middle - 1
    record = hf.store.checkpoint_at(head.run, low)
    return hf.internals.opened(record) if record is not None else None


def _first_with_files(handle: Handle, head: Checkpoint) -> Checkpoint | None:
    for seq in range(1, min(head.seq, _MOST_STEPS_BACK) + 1):
        record = handle.hf.store.checkpoint_at(head.run, seq)
        if record is not None and any(one.name == WORKSPACE for one in record.envelope.sections):
            return handle.hf.internals.opened(record)
    return None


def gates_of(handle: Handle, head: Checkpoint) -> list[answers.GateAnswer]:
    """Return what the gates of the task under way said, the output of failed ones with it."""
    if "gates" not in head.sections:
        return []
    tasks = head.section("gates").tasks
    latest = max(tasks.items(), key=lambda item: str(item[1].updated_at or ""), default=None)
    if latest is None:
        return []
    return [
        {
            "task": latest[0],
            "description": handle.clean_text(one.description),
            "command": handle.clean_text(one.command or ""),
            "success": one.success,
            "skipped": one.skipped,
            "exit_code": one.exit_code,
            "output": "" if one.success else handle.clean_text((one.stdout + one.stderr)[-_MOST_OUTPUT:]),
        }
        for one in latest[1].gate_results
    ]


def answer(site: Site, handle: Handle, run: str, wait: str, body: dict[str, Any]) -> answers.GivenAnswer:
    """Answer one wait; 409 if somebody did meanwhile."""
    choice, note = body.get("choice"), body.get("note") or ""
    if not isinstance(choice, str) or not isinstance(note, str):
        raise UsageError("give choice and note as text")
    if wait not in {one["id"] for one in waits_of(handle, run)}:
        raise RequestRefused(409, "AnsweredMeanwhile", f"{run} no longer waits for this: somebody answered it")
    answered = handle.hf.control.answer(run, choice, wait=wait, by=site.user, note=note, value=body.get("value"))
    return {"run": run, "wait": answered.id, "question": answered.question, "choice": choice, "by": site.user}
