"""What the commands that recover share: a plan shown in order, questions answered, and exactly that carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.cli.errors import Declined, told_text
from holdfast.cli.ids import shortened
from holdfast.cli.output import Paint
from holdfast.cli.times import age, number
from holdfast.documents import plain
from holdfast.errors import CannotResume, RecoveryError
from holdfast.recovery.verdict import enforce

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.session import Session
    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.recovery.result import RecoveryResult
    from holdfast.workspace.plan import RestorePlan

_COLOURS = {
    "damaged:": "red",
    "cannot continue:": "red",
    "warning:": "yellow",
    "warn:": "yellow",
    "ask:": "yellow",
    "fresh:": "red",
    "unknown:": "yellow",
    "try:": "cyan",
    "resume:": "green",
}


_MOST_LINES = 60  # of a diff, before a question


class NotRecovered(RecoveryError):
    """A recovery was refused or put back; nothing is half done."""

    errors: tuple[str, ...]

    def sentence(self) -> str:
        """Give every reason."""
        return f"run {self.run!r} was not recovered, and nothing is changed: {'; '.join(self.errors)}"


def show_plan(plan: RecoveryPlan, session: Session) -> None:
    """Show what a recovery would do, in the order in which it matters."""
    out = session.out
    for line in plan.lines():
        first = line.strip().split(" ", 1)[0]
        word = next((mark for mark in _COLOURS if line.strip().startswith(mark)), first)
        out.line(Paint(shortened(told_text(line)), _COLOURS.get(word, "")))


def tell_found(checkpoint: Checkpoint, session: Session) -> None:
    """Say what was found: when it was taken, where it stood, what is done."""
    out, summary = session.out, checkpoint.summary
    taken = age(checkpoint.created_at, session.now())
    if checkpoint.id:
        why = f"{checkpoint.trigger}{': ' + checkpoint.reason if checkpoint.reason else ''}"
        out.note(f"Found checkpoint {checkpoint.seq} of {checkpoint.run}, {taken} ({why}).")
    else:
        out.note(f"Found the journal of {checkpoint.run}, {taken}: it has no checkpoint.")
    if checkpoint.capture_note:
        out.note(f"{checkpoint.place}: {checkpoint.capture_note}.")
    stood = [f"phase {summary.phase}" if summary.phase else "", f"state {summary.state}" if summary.state else ""]
    done = [number(summary.steps, "record") + " of calls" if summary.steps else ""]
    words = [word for word in (*stood, *done) if word]
    if words:
        out.note(f"Where it stood: {', '.join(words)}.")


def check_can_resume(plan: RecoveryPlan) -> None:
    """Raise CannotResume with what to type, if the plan is blocked."""
    if plan.blockers:
        raise CannotResume(plan.run, plan.checkpoint, plan.blockers, plan.suggestions)


def agree(
    plan: RecoveryPlan,
    session: Session,
    *,
    again: Callable[[dict[str, Any]], RecoveryPlan],
    look: Callable[[], None],
) -> RecoveryPlan | None:
    """Ask what the plan leaves open; return the plan that was agreed to, None to start fresh, or raise Declined."""
    shown = plan
    answers: dict[str, Any] = _unknown_steps(plan, session)
    if plan.files is not None:
        answers |= _conflicts(plan.files, session)
        answers |= _interrupted(plan, session, look)
        answers |= _deleted(plan.files, session, answers)
    if answers:
        plan = again(answers)
    check_can_resume(plan)
    if plan.files != shown.files:
        show_plan(plan, session)
    is_edited = any(one.kind == "files-changed" for one in plan.findings)
    if plan.verdict == "fresh" and not session.ask.can_ask:
        enforce(plan.run, plan.checkpoint, plan.findings)
    if plan.verdict in ("ask", "fresh") or (is_edited and session.ask.can_ask):
        choice = _choice(plan, session, look, is_edited=is_edited)
        if choice == "take":
            from holdfast.workspace.decide import Decisions  # noqa: PLC0415 - only with files

            plan = again({**answers, "decisions": Decisions(edits="take", conflicts="take", deleted="restore")})
            show_plan(plan, session)
        return None if choice == "fresh" else plan
    changes = len(plan.files.changes) if plan.files is not None else 0
    if plan.files is not None and plan.files.overwrites:
        if not session.ask.agreed(f"Change {number(changes, 'file')} in {plan.files.target}?"):
            raise Declined
    else:
        what = f"{number(changes, 'file')} that {'is' if changes == 1 else 'are'} not there" if changes else "no file"
        unasked = f"the plan is carried out: it overwrites nothing, and writes {what}"
        if not session.ask.confirmed("Continue?", unasked=unasked):
            raise Declined
    return plan


def _choice(plan: RecoveryPlan, session: Session, look: Callable[[], None], *, is_edited: bool) -> str:
    """Show what others changed, and ask what to do about a world that moved: resume, take or fresh."""
    from holdfast.cli.commands.diff import show_diff_line  # noqa: PLC0415 - only where something moved

    if is_edited and session.ask.can_ask:
        for line in plan.diff.splitlines()[:_MOST_LINES]:
            show_diff_line(line, session.out)
        if plan.diff.count("\n") > _MOST_LINES:
            session.out.note("`diff` shows the rest.")
    keeps = "continue, and keep what you changed" if is_edited else "continue all the same"
    take = ("take", "continue with the checkpoint's files; `holdfast undo` brings yours back")
    options = (
        ("stop", "do nothing"),
        ("diff", "look at the files that differ"),
        ("resume", keeps),
        *((take,) if is_edited else ()),
        ("fresh", "set the run aside, and start from the beginning"),
    )
    agreed = "resume" if plan.verdict != "fresh" else None  # --yes says neither to start fresh, nor to do without
    while True:
        choice = session.ask.choose("Something changed since. What now?", options, safe="stop", agreed=agreed)
        if choice == "stop":
            raise Declined
        if choice != "diff":
            return choice
        look()


def _unknown_steps(plan: RecoveryPlan, session: Session) -> dict[str, Any]:
    """Ask about steps that may or may not have happened; return what was decided, if anything was."""
    decided = {one.step: one.treated for one in plan.unknown if one.decided}
    asked = False
    for one in plan.unknown:
        if one.treated != "ask" or one.decided:
            continue
        choice = session.ask.choose(
            f"Step {one.step} ({one.effect or 'no effect'}) began and has no recorded end. What now?",
            (
                ("ask", "decide when the run gets there"),
                ("retry", "do it again"),
                ("skip", "take it as done"),
            ),
            safe="ask",
        )
        if choice != "ask":
            decided[one.step] = cast("Any", choice)
            asked = True
    return {"unknown": decided} if asked else {}


def _conflicts(files: RestorePlan, session: Session) -> dict[str, Any]:
    """Ask about files that the run and a person changed."""
    from holdfast.cli.commands.restore import CHOICES, decisions  # noqa: PLC0415 - only with files

    if not files.conflicts:
        return {}
    question = f"{number(len(files.conflicts), 'file')} changed by the run, and by you. What shall be done?"
    choice = session.ask.choose(question, CHOICES, safe="refuse")
    if choice == "refuse":
        raise Declined
    return {"decisions": decisions(choice, paths=False)}


def _interrupted(plan: RecoveryPlan, session: Session, look: Callable[[], None]) -> dict[str, Any]:
    """Ask about files that an interrupted call had changed, unless that is decided or nobody can be asked."""
    files = plan.files
    half = files.kept("interrupted") if files is not None else ()
    if files is None or not half or plan.request.interrupted != "ask" or not session.ask.can_ask:
        return {}
    question = f"{files.interrupted} was interrupted and had changed {number(len(half), 'file')}. What now?"
    options = (("keep", "keep them as they are"), ("roll_back", "put them back as they were"), ("diff", "look at them"))
    while True:
        choice = session.ask.choose(question, options, safe="keep", agreed="keep")
        if choice != "diff":
            return {"interrupted": choice}
        look()


def _deleted(files: RestorePlan, session: Session, answers: dict[str, Any]) -> dict[str, Any]:
    """Ask about files that a person deleted, unless nobody can be asked."""
    from holdfast.workspace.decide import Decisions  # noqa: PLC0415 - only with files

    gone = files.kept("person", "unknown", deleted=True)
    if not gone or not session.ask.can_ask:
        return {}
    question = f"You deleted {number(len(gone), 'file')} since. What now?"
    options = (("keep", "leave them deleted"), ("restore", "bring them back"))
    if session.ask.choose(question, options, safe="keep", agreed="keep") == "keep":
        return {}
    chosen = answers.get("decisions") or Decisions()
    return {"decisions": msgspec.structs.replace(chosen, deleted="restore")}


def carry_out(plan: RecoveryPlan, session: Session) -> RecoveryResult:
    """Do exactly what was shown; NotRecovered says why nothing was done."""
    with session.progress("Restoring") as progress:
        result = session.hf.recover(plan, confirmed=True, progress=progress.update)
    if not result.success:
        raise NotRecovered(plan.run, result.errors)
    return result


def result_document(result: RecoveryResult) -> dict[str, Any]:
    """Return what came of a recovery, for scripts."""
    return {
        "success": result.success,
        "run": result.run,
        "checkpoint": result.checkpoint.id if result.checkpoint is not None else None,
        "restored_from": result.restored_from,
        "restored_sections": list(result.restored_sections),
        "skipped_agents": list(result.skipped_agents),
        "warnings": list(result.warnings),
        "errors": list(result.errors),
        "undo": result.undo,
        "files": plain(result.files) if result.files is not None else None,
    }


def tell_result(result: RecoveryResult, session: Session, *, plan: RecoveryPlan | None = None) -> None:
    """Say what was done, and how it is undone; what the plan warned of was shown with it."""
    out = session.out
    for warning in result.warnings:
        if plan is not None and warning in plan.all_warnings:
            continue
        out.note(Paint("warning: ", "yellow"), warning)
    if result.files is not None:
        done = result.files
        out.line(f"Files: {done.written} written, {done.replaced} replaced, {done.deleted} deleted, {done.kept} kept.")
    place = (
        (plan.place if plan is not None else None) or shortened(str(result.restored_from)) or "the end of its journal"
    )
    if not result.is_recovered:
        out.line(f"Nothing to recover: {result.run} stands at {place}.")
        return
    part = "" if result.success else ", but not all of it"
    out.line(Paint("Recovered ", "green"), f"{result.run} from {place}{part}.")
    for error in result.errors:
        out.note(Paint("error: ", "red"), told_text(error))
    if result.undo is not None:
        out.note(f"`holdfast undo {result.run}` goes back to before.")
