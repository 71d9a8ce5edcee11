"""Begin the run of a plan, or resume it: the plan file finds its own run, and what is done stays done.

The run's id goes to standard output, what is done and what is next to standard error. Headings such as `## Phase 1:
Research` name the phases (here `1-research`, or 1, or research for short). A terminal is asked whether to resume;
without one, the run is resumed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli import phase_book, script
from holdfast.cli.errors import Declined
from holdfast.cli.output import Paint
from holdfast.cli.times import age, duration, number
from holdfast.documents import plain
from holdfast.lazy import lazily
from holdfast.model.sections import Phases, PhaseState

with lazily():  # `status` uses what is here of phases, and reads no plan
    from holdfast.cli import plan_file
    from holdfast.flow import markdown

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.run import Run

_CHOICES = (
    ("retry", "leave it due: `holdfast phase start` tries it again"),
    ("skip", "continue without it"),
    ("abort", "stop here, and change nothing"),
)
_PROJECT = "project"
_SIGNS = {
    "completed": ("done", "green"),
    "skipped": ("skipped", "dim"),
    "failed": ("failed", "red"),
    "running": ("began", "yellow"),
}


def configure(parser: CommandParser) -> None:
    parser.add_argument("plan", metavar="PLAN.md", help="the plan")
    parser.add_argument("--run", metavar="RUN", help="another run than the one that follows from the plan's path")
    parser.add_argument("--fresh", action="store_true", help="set what is there aside, and start from the beginning")
    parser.add_argument("--resume", action="store_true", help="continue without asking")
    parser.add_argument("--replans", metavar="N", type=int, help="how often a phase may be replanned (2)")
    parser.add_argument(
        "--workspace", metavar="DIR", nargs="?", const="", help="with the files of a directory (the project's folder)"
    )


def execute(arguments: Namespace, session: Session) -> int:
    """Begin, or resume."""
    out = session.out
    plan = Path(arguments.plan)
    phases = plan_file.read_plan(plan)
    name = arguments.run or _own_run(plan, session)
    workspace = None if arguments.workspace is None else arguments.workspace or str(session.root)
    run = script.open_run(session, name, workspace=workspace)
    head = run.head
    is_new = head is None
    if head is not None and _wants_fresh(head, arguments, session):
        run.holdfast.recovery.start_fresh(name)
        run.recorder.reload()
        out.note(f"What was there is set aside; `holdfast log {name} -a` shows it.")
        is_new = True
    book = _begun(run, phases, plan, arguments, session, is_new=is_new)
    script.remember(session, name)
    if not is_new:
        book = _decided(run, book, session)
    out.document({"run": name, "new": is_new, **status_document(book, phase_book.saved_s(book))})
    out.line(name)
    _tell(book, name, is_new=is_new, session=session)
    return 0


def _own_run(plan: Path, session: Session) -> str:
    """Return the run of a plan; another one where that is a run of another project in the same store."""
    name = plan_file.run_of(plan, session.root)
    head = session.hf.latest(name) if session.place.is_there else None
    return name if head is None else script.own_run(session, name, plan, script.book_of(head).metadata.get(_PROJECT))


def _wants_fresh(head: Checkpoint, arguments: Namespace, session: Session) -> bool:
    if arguments.fresh or arguments.resume:
        return bool(arguments.fresh)
    book = script.book_of(head)
    left = phase_book.left(book)
    when = age(head.created_at, session.now())
    done = len(book.order) - len(left)
    session.out.note(f"Found a checkpoint, {when}: {done} of {number(len(book.order), 'phase')} done.")
    if book.order and not left:
        return False
    question = "Resume it (n sets it aside and starts over)?"
    return not session.ask.confirmed(question, unasked="the run is resumed; --fresh starts it again")


def _decided(run: Run, book: Phases, session: Session) -> Phases:
    """Ask what becomes of a phase that failed: retry, skip or abort."""
    failed = [name for name in book.order if book.phases.get(name, PhaseState()).status == "failed"]
    for name in failed:
        error = book.phases[name].error
        choice = session.ask.choose(
            f"{name} failed: {error.message if error else ''}. What now?", _CHOICES, safe="retry"
        )
        if choice == "abort":
            raise Declined
        if choice == "skip":
            with script.held(run):
                run.phases.skip(name, "chosen after it failed")
                book = run.phases.snapshot()
    return book


def _begun(
    run: Run, phases: dict[str, str], plan: Path, arguments: Namespace, session: Session, *, is_new: bool
) -> Phases:
    """Return the phases as the plan has them now; saved if that is new."""
    old = Phases() if is_new else script.book_of(run.head)
    old = phase_book.renamed(old, markdown.renamed(list(old.phases), list(phases)))
    labels = {name: PhaseState(label=title) for name, title in phases.items()}
    limits = old.limits
    if arguments.replans is not None:
        limits = {**limits, **dict.fromkeys(phases, arguments.replans)}
    order = list(phases) or old.order
    kept = [name for name in old.phases if name not in labels and old.phases[name].status != "pending"]
    book = msgspec.structs.replace(
        old,
        plan=str(plan),
        order=[*order, *(name for name in kept if name not in order)],
        phases={
            **labels,
            **{
                name: msgspec.structs.replace(state, label=phases.get(name, state.label))
                for name, state in old.phases.items()
                if name in labels or name in kept
            },
        },
        metadata={**old.metadata, _PROJECT: str(session.root.resolve())},
        limits=limits,
    )
    if arguments.workspace is not None:
        book = script.with_workspace(book, session, arguments.workspace or str(session.root))
    if not is_new and book == old and book.order and not phase_book.left(book):
        return book  # finished: there is nothing to resume
    word = "begun" if is_new else "resumed"
    with script.held(run):
        run.status.set("running")
        run.host.note(word, str(plan))
        run.checkpoint(trigger="phase_transition", reason=f"{word} from {plan}", phases=book, files=is_new)
    return book


def _tell(book: Phases, run: str, *, is_new: bool, session: Session) -> None:
    out = session.out
    for name in book.order:
        state = book.phases.get(name, PhaseState())
        word, colour = _SIGNS.get(state.status, ("to do", ""))
        took = f", {duration(state.duration_s)}" if state.duration_s else ""
        told = state.error.message if state.error is not None else state.summary
        out.note("  ", Paint(f"{word:<8}", colour), name, took, f": {told}" if told else "")
    left = phase_book.left(book)
    if not book.order:
        out.note("The plan names no phases; `holdfast phase start NAME` begins one of any name.")
    elif not left:
        out.note(f"All of {run} is done; `holdfast begin {book.plan} --fresh` starts it again.")
    else:
        saved = phase_book.saved_s(book)
        spared = f" {duration(saved)} of work is not repeated." if saved and not is_new else ""
        out.note(f"Next is {left[0]}.{spared}")


def status_document(book: Phases, saved_s: float) -> dict[str, Any]:
    """Return where the phases stand, and what a resume saved, for scripts."""
    left = phase_book.left(book)
    return {
        "plan": book.plan,
        "current": book.current,
        "next": left[0] if left else None,
        "left": left,
        "done": [name for name in book.order if name not in left],
        "current_phase": phase_book.number_of(book, left[0]) if left else None,
        "completed_phases": [phase_book.number_of(book, name) for name in book.order if name not in left],
        "replan_count": dict(Counter(str(phase_book.number_of(book, one.phase)) for one in book.replans)),
        "saved_s": saved_s,
        "phases": {name: plain(book.phases.get(name, PhaseState())) for name in book.order},
        "replans": [plain(one) for one in book.replans],
    }
