"""Put files of a checkpoint back: the plan is shown first, and the present files are checkpointed before it is done.

Missing files are restored. What you changed since is kept or merged; --take takes the checkpoint's, and where you
and the run changed the same lines you are asked, or --take, --keep, --both or --merge decides. --exact also deletes
what was created since, whoever did.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.cli import guard_rules
from holdfast.cli.commands.files import check_has_files
from holdfast.cli.errors import Declined
from holdfast.cli.output import Paint
from holdfast.cli.paths import WHOLE, inside
from holdfast.cli.times import number
from holdfast.documents import plain
from holdfast.errors import RestoreConflict

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.output import Output
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.run import Run
    from holdfast.workspace.decide import Choice, Decisions
    from holdfast.workspace.plan import RestorePlan
    from holdfast.workspace.restore import RestoreReport

CHOICES = (
    ("refuse", "restore nothing"),
    ("keep", "keep the present files"),
    ("take", "take the checkpoint's, also of what only you changed"),
    ("both", "keep the present file, and put the checkpoint's beside it"),
    ("merge", "merge both, with markers where they collide"),
)
_SHOWN = 200


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="an id or a part of it, a label, RUN, RUN@7, RUN~2 or RUN#812"
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files and what is below them")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show the plan and do nothing")
    parser.add_argument("--into", metavar="DIR", help="restore into another directory")
    parser.add_argument("--workspace", metavar="DIR", help="the run's directory (the project's folder)")
    parser.add_argument("--git", action="store_true", help="put branch, commit and index back, too")
    add_clone(parser)
    add_links(parser)
    parser.add_argument(
        "--no-settings", action="store_true",
        help="do not read the settings file of the directory: a guarded command may have changed it",
    )  # fmt: skip
    chosen = parser.add_mutually_exclusive_group()
    for name, text in CHOICES[1:]:
        chosen.add_argument(f"--{name}", dest="choice", action="store_const", const=name, help=text)
    chosen.add_argument(
        "--exact", dest="choice", action="store_const", const="exact",
        help="take the checkpoint's of everything, and delete what was created since",
    )  # fmt: skip


def add_links(parser: CommandParser) -> None:
    """Let the line say that links may lead anywhere."""
    parser.add_argument(
        "--allow-outside-links", action="store_true", help="create links that lead out of the directory, too"
    )


def add_clone(parser: CommandParser) -> None:
    """Let the line say that commits may be fetched."""
    parser.add_argument(
        "--clone", action="store_true", help="fetch from the repository's remote what the checkpoint does not hold"
    )


def execute(arguments: Namespace, session: Session) -> int:
    """Plan, show, ask, restore."""
    out = session.out
    session.reads_settings = not arguments.no_settings
    checkpoint = session.find(arguments.checkpoint)
    check_has_files(checkpoint)
    if checkpoint.capture_note:
        out.note(f"{checkpoint.place}: {checkpoint.capture_note}.")
    run = session.hf.run(checkpoint.run, workspace=session.directory_of(checkpoint.run, arguments.workspace))
    guard_rules.apply(run)
    plan = _plan(run, checkpoint, arguments, arguments.choice)
    show_plan(plan, out)
    wants_git, into = arguments.git or arguments.clone, arguments.into
    how: dict[str, Any] = {"into": into, "clone": arguments.clone, "keep_commits": arguments.choice == "exact"}
    git = run.workspace.plan_git(checkpoint, **how) if wants_git else []
    made = [] if wants_git or arguments.paths else run.workspace.new_git(checkpoint, into=into)
    for line in (*git, *made):
        out.line(Paint("git ", "cyan"), line)
    if plan.conflicts and not arguments.dry_run:
        plan = _decided(run, checkpoint, plan, arguments, session)
    if arguments.dry_run or not (plan.changes or git or made):
        out.document({"checkpoint": checkpoint.id, "restored": False, "plan": plain(plan), "git": git})
        if not (plan.changes or git or made):
            kept = any(item.action == "keep" for item in plan.items)
            out.note(
                "Nothing to restore: what you changed is kept; --take takes the checkpoint's."
                if kept
                else "Nothing to restore: all files that were captured are as they were."
            )
        return 0
    if not session.ask.agreed(f"Restore {number(len(plan.changes), 'path')} in {plan.target}?"):
        raise Declined
    held = nullcontext() if arguments.into else run.held()  # elsewhere nothing of the run changes
    with held, session.progress("Restoring") as progress:
        report = run.workspace.restore(plan, progress=progress.update)
    done = run.workspace.restore_git(checkpoint, **how) if git else made
    _report(checkpoint, plan, report, done, session)
    return 0 if report.verified else 4


def _plan(run: Run, checkpoint: Checkpoint, arguments: Namespace, choice: str | None) -> RestorePlan:
    named = [inside(path, run.workspace.path) for path in arguments.paths]
    return run.workspace.plan(
        checkpoint,
        paths=[] if WHOLE in named else named,
        into=arguments.into,
        decisions=decisions(choice or ("take" if WHOLE in named else None), paths=bool(named), deleted="restore"),
        allow_outside_links=arguments.allow_outside_links,
    )


def decisions(choice: str | None, *, paths: bool, deleted: Literal["keep", "restore"] = "keep") -> Decisions | None:
    """Return what a choice on the line means for conflicts, and for files that only a person changed."""
    from holdfast.workspace.decide import Decisions  # noqa: PLC0415 - loaded with the workspace

    if choice is None:
        return None
    if choice == "exact":
        return Decisions(conflicts="take", edits="take", deleted="restore", created="delete", interrupted="roll_back")
    takes_all = choice == "take" or (paths and choice != "keep")
    return Decisions(conflicts=cast("Choice", choice), edits="take" if takes_all else "keep", deleted=deleted)


def _decided(
    run: Run, checkpoint: Checkpoint, plan: RestorePlan, arguments: Namespace, session: Session
) -> RestorePlan:
    """Ask what to do with conflicts, and return the plan that the answer makes."""
    question = f"{number(len(plan.conflicts), 'file')} changed by the run, and by you. What shall be done?"
    choice = session.ask.choose(question, CHOICES, safe="refuse")
    if choice != "refuse":
        plan = _plan(run, checkpoint, arguments, choice)
        show_plan(plan, session.out)
    if plan.conflicts:
        paths = tuple(item.path for item in plan.conflicts)
        raise RestoreConflict(paths, "changed by the run, and by you since; --take, --keep, --both or --merge decides")
    return plan


def show_plan(plan: RestorePlan, out: Output) -> None:
    """Show what a restore would do, and to whose changes."""
    for line in plan.lines(most=_SHOWN):
        out.line(Paint(line, "dim" if line.startswith("  = ") else "red" if line.startswith("  ! ") else ""))
    counts = ", ".join(f"{count} {action}" for action, count in sorted(plan.counts().items()))
    if counts:
        out.line(f"Into {plan.target}: {counts}.")


def _report(checkpoint: Checkpoint, plan: RestorePlan, report: RestoreReport, git: list[str], session: Session) -> None:
    out = session.out
    document: dict[str, Any] = {"checkpoint": checkpoint.id, "restored": True, "plan": plain(plan), "git": git}
    document["report"] = plain(report) | {"verified": report.verified}
    out.document(document)
    out.line(
        f"Restored: {report.written} written, {report.replaced} replaced, {report.deleted} deleted, {report.kept} kept."
    )
    for path in report.left:
        out.note(f"{path}/ stays, because it holds what is not captured.")
    for path in report.mismatches:
        out.warn(f"{path} is not as planned: somebody changed it at the same moment")
    if not plan.in_place:
        return
    out.note(f"The files as they were before are in `holdfast log {checkpoint.run}`; restoring that one undoes this.")
