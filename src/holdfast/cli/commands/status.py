"""Tell where a run stands: its status, its phases, what it waits for, what it has used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli import phase_book, script
from holdfast.cli.commands.begin import status_document
from holdfast.cli.describe import status, trigger
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import age, duration, number
from holdfast.documents import checkpoint_document, is_moving, plain
from holdfast.model.sections import WORKSPACE, PhaseState
from holdfast.runtime.ledger import TIME

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.model.sections import Phases

_COLOURS = {"completed": "green", "running": "yellow", "failed": "red", "skipped": "dim"}


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    script.add_shown_run(parser, metavar="RUN|CHECKPOINT", more=", or a checkpoint of it (RUN@7)")
    parser.add_argument("--left", action="store_true", help="only the names of the phases that are still to be done")


def execute(arguments: Namespace, session: Session) -> int:
    """Tell it."""
    out = session.out
    head, is_now = script.shown(session, arguments)
    run = head.run
    book = script.book_of(head)
    if arguments.left:
        out.document({"run": head.run, "left": phase_book.left(book)})
        for name in phase_book.left(book):
            out.line(name)
        return 0
    waits = session.hf.control.waiting(run) if is_now and not head.skipped else []
    moving = is_now and is_moving(session.hf.store, run)
    document: dict[str, Any] = {
        "moving": moving,
        "run": head.run,
        "status": head.summary.status,
        "head": checkpoint_document(head),
    }
    document["waits"] = [plain(wait) for wait in waits]
    document["answered"] = is_answered = is_now and head.summary.status in ("waiting", "paused") and not waits
    ways = () if head.recovery.can_resume else session.hf.recovery.status(run if is_now else head.place).suggestions
    document["suggestions"] = list(ways)
    work = _work(head)
    document |= work
    document["budget"] = _budget(head)
    document["protection"] = protection = _protection(head, session)
    if book.order or book.phases:
        document |= status_document(book, session.hf.recovery.savings(run).seconds)
    out.document(document)
    _facts(head, session, moving=moving, is_now=is_now)
    for way in ways:
        out.fact("try", way)
    _budget_facts(document["budget"], session)
    _protection_facts(protection, head, session)
    _work_facts(work, session)
    for wait in waits:
        out.fact("waits for", Paint(wait.kind, "yellow"), f" {wait.id}: {wait.question}")
        if wait.options:
            out.fact("", f"answers: {', '.join(wait.options)}")
    if is_answered and not moving:
        out.fact("answered", script.start_again(run))
    _phases(book, session)
    return 0


def _facts(head: Checkpoint, session: Session, *, moving: bool, is_now: bool) -> None:
    out, summary = session.out, head.summary
    out.fact("run", Paint(head.run if is_now else head.place, "bold"))
    is_open = is_now and summary.status == "running" and not moving
    told = ": no process moves it now" if is_open else ""
    if is_now and summary.status == "forked":
        told = f": it has not begun: {script.start_again(head.run)}"
    out.fact("status", status(summary.status, moving=moving or not is_now), told)
    at = (" at ", trigger(head.trigger), f" {head.reason}") if head.id else (" in the journal: no checkpoint yet",)
    out.fact("saved", age(head.created_at, session.now()), *at)
    for name, value in (("phase", summary.phase), ("state", summary.state)):
        if value:
            out.fact(name, value)
    if summary.steps:
        out.fact("steps", f"{summary.steps} recorded")
    if summary.agents:
        out.fact("agents", ", ".join(f"{count} {name}" for name, count in summary.agents.items()))
    if not head.recovery.can_resume:
        out.fact("blocked", Paint("; ".join(head.recovery.blockers), "red"))


def _budget(head: Checkpoint) -> dict[str, Any]:
    """Return what is used of each budget and what its limit is, those of parts by their path."""
    if "budget" not in head.sections:
        return {}
    stored = head.section("budget")
    parts = {"": stored.spending} | {f"{path}/": part.spending for path, part in stored.nested.items()}
    return {
        f"{path}{name}": {"used": one.used, "limit": one.limit, **({"lost": one.lost} if one.lost else {})}
        for path, spending in parts.items()
        for name, one in spending.items()
        if one.used or one.limit is not None
    }


def _budget_facts(budget: dict[str, Any], session: Session) -> None:
    for name, one in budget.items():
        used, limit = (_amount(name, one[part]) for part in ("used", "limit"))
        if one["limit"] is None:
            session.out.fact("used", f"{name} {used}, no limit")
            continue
        is_full = one["used"] >= one["limit"]
        share = f" ({one['used'] / one['limit']:.0%})" if one["limit"] else ""
        lost = f", {_amount(name, one['lost'])} of it by calls of unknown cost" if "lost" in one else ""
        session.out.fact("budget", Paint(f"{name} {used} of {limit}{share}{lost}", "red" if is_full else ""))


def _amount(name: str, amount: float | None) -> str:
    if amount is None:
        return ""
    return duration(amount) if name.endswith(TIME) else f"{amount:,}" if isinstance(amount, int) else f"{amount:,.10g}"


def _protection(head: Checkpoint, session: Session) -> dict[str, Any]:
    """Return what the newest checkpoint could put back, and how old it is."""
    told: dict[str, Any] = {
        "checkpoint": head.id,
        "age_s": round((session.now() - head.created_at).total_seconds(), 3),
        "files": None,
        "git": False,
        "not_captured": {},
    }
    if WORKSPACE in head.sections:
        snapshot = head.workspace
        has_git = snapshot.git.head not in ("none", "unknown")
        told |= {"files": snapshot.files, "git": has_git, "not_captured": dict(snapshot.not_captured.counts)}
    return told


def _protection_facts(told: dict[str, Any], head: Checkpoint, session: Session) -> None:
    what = "state alone: this run captures no files"
    if told["files"] is not None:
        git = " and git" if told["git"] else ""
        what = f"{number(told['files'], 'file')}{git}"
        left_out = [f"{count} {reason}" for reason, count in told["not_captured"].items()]
        what += f"; not captured: {', '.join(left_out)}" if left_out else ""
    taken = f"checkpoint {age(head.created_at, session.now())}" if head.id else "no checkpoint yet"
    session.out.fact("protected", f"{what} ({taken})")


def _work(head: Checkpoint) -> dict[str, Any]:
    """Return what the run is at besides its phases: batch and tasks, messages, conflicts, context."""
    told: dict[str, Any] = {}
    if "graph" in head.sections:
        graph = head.section("graph")
        under_way = [name for name, node in graph.tasks.items() if node.status == "running"]
        pending = [name for name, node in graph.tasks.items() if node.status == "pending"]
        told["batch"] = {
            "graph": graph.id,
            "current": graph.current_batch,
            "completed": graph.completed_batches,
            "running": under_way,
            "pending": pending,
        }
    if "messages" in head.sections:
        messages = head.section("messages")
        told["messages"] = {"pending": len(messages.pending), "awaiting_response": len(messages.awaiting_response)}
        told["conflicts"] = [{name: one[name] for name in ("name", "agents", "round")} for one in messages.conflicts]
    if "team" in head.sections:
        told["team"] = [
            {"agent": one.agent, "role": one.role, "status": one.status, "pending": one.pending}
            for one in head.section("team").members
        ]
    if "knowledge" in head.sections:
        known = head.section("knowledge")
        told["knowledge"] = {name: len(getattr(known, name)) for name in ("injected", "captured", "pending")}
    metadata = head.section("context").metadata if "context" in head.sections else {}
    told["artifact_paths"] = metadata.get("artifact_paths", {})
    told["context_metadata"] = plain({name: value for name, value in metadata.items() if name != "artifact_paths"})
    return told


def _work_facts(work: dict[str, Any], session: Session) -> None:
    out, batch = session.out, work.get("batch")
    if batch is not None and (batch["running"] or batch["pending"]):
        now = f"batch {batch['current']}" if batch["current"] is not None else "between batches"
        out.fact("tasks", f"{now}: {', '.join(batch['running']) or 'none'} running, {len(batch['pending'])} pending")
    messages = work.get("messages")
    if messages is not None and any(messages.values()):
        out.fact("messages", f"{messages['pending']} pending, {messages['awaiting_response']} awaiting a response")
    known = work.get("knowledge")
    if known is not None and any(known.values()):
        out.fact("knowledge", f"{known['injected']} told, {known['captured']} handed on, {known['pending']} pending")
    for one in work.get("team", ()):
        at = f" at {', '.join(one['pending'])}" if one["pending"] else ""
        out.fact("team", f"{one['agent']} ({one['role']}): {one['status']}{at}")
    for one in work.get("conflicts", ()):
        out.fact("conflict", f"{one['name']}: {', '.join(one['agents'])}, round {one['round']}")
    for name, path in work["artifact_paths"].items():
        out.fact("artifacts", f"{name}: {path}")


def _phases(book: Phases, session: Session) -> None:
    if not book.order:
        return
    rows = []
    for name in book.order:
        state = book.phases.get(name, PhaseState())
        told = state.error.message if state.error is not None else state.summary or state.reason
        replans = sum(one.phase == name for one in book.replans)
        rows.append(
            [
                Cell.of(Paint(state.status, _COLOURS.get(state.status, ""))),
                Cell.of(name),
                Cell.of(duration(state.duration_s) if state.duration_s else "-", right=True),
                Cell.of(str(state.attempt or "-"), right=True),
                Cell.of(str(replans or "-"), right=True),
                Cell.of(told.partition("\n")[0]),
            ]
        )
    session.out.line()
    session.out.table(rows, ("PHASE", "", "TOOK", "ATTEMPT", "REPLANS", ""))
