"""Delete and archive by the retention rules, or all but the newest; the plan is shown first, each line with its reason.

The head, pinned ones, fork points and all that a recovery needs always stay. A run that finished longer ago than the
age goes as a whole, but for pins.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.cli.errors import Declined
from holdfast.cli.ids import Short
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import parse_span
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.retain.prune import RunPlan

_COLOURS = {"delete": "red", "archive": "yellow", "keep": "dim"}


def configure(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="one run only; without it, every run")
    parser.add_argument("--keep", type=int, metavar="N", help="delete all but the newest N, instead of by the rules")
    parser.add_argument("--older-than", metavar="AGE", help="delete what is older: 90s, 30m, 12h, 7d, 2w")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show the plan and do nothing")


def execute(arguments: Namespace, session: Session) -> int:
    """Plan, show, ask, prune."""
    hf, out = session.hf, session.out
    if arguments.keep is not None and arguments.keep < 0:
        raise UsageError(f"--keep {arguments.keep}: give a number from 0 up")
    older = parse_span(arguments.older_than) if arguments.older_than else None
    run = session.run_id(arguments.run) if arguments.run else None
    plans = hf.prune(run, keep=arguments.keep, older_than=older, dry_run=True).plans
    _show(plans, session)
    counts = Counter(one.action for plan in plans for one in plan.decisions)
    runs = [plan.run.id for plan in plans if plan.is_whole]
    total = counts["delete"] + counts["archive"] + len(runs)
    is_done = bool(total) and not arguments.dry_run
    whole = f", and {len(runs)} whole runs" if runs else ""
    question = f"Delete {counts['delete']} and archive {counts['archive']} checkpoints{whole}?"
    if is_done and not session.ask.agreed(question):
        raise Declined
    if is_done:
        _carry_out(plans, session)
    out.document(
        {
            "done": is_done,
            "counts": dict(counts),
            "runs": runs,
            "decisions": [
                {"run": plan.run.id, "id": one.id, "seq": one.seq, "action": one.action, "reason": one.reason}
                for plan in plans
                for one in plan.decisions
            ],
        }
    )
    if not total:
        out.note("Nothing to prune.")
    elif is_done:
        out.note(f"Deleted {counts['delete']}, archived {counts['archive']}{whole}.")
    return 0


def _show(plans: Sequence[RunPlan], session: Session) -> None:
    out = session.out
    shown = [(plan.run.id, one) for plan in plans for one in plan.decisions if one.action != "keep" or out.verbose]
    short = Short(one.id for _, one in shown)
    rows = [
        [
            Cell.of(Paint(one.action, _COLOURS[one.action])),
            Cell.of(Paint(short(one.id), "yellow")),
            Cell.of(f"{run}@{one.seq}"),
            Cell.of(Paint(one.reason, "dim")),
        ]
        for run, one in shown
    ]
    with out.paged():
        out.table(rows)


def _carry_out(plans: Sequence[RunPlan], session: Session) -> None:
    """Do exactly what was shown; what vanished meanwhile is passed over, and the head stays."""
    from holdfast.retain.prune import carry_out  # noqa: PLC0415 - only if something is done

    due = [plan for plan in plans if plan.is_whole or plan.changes]
    with session.progress("Pruning") as progress:
        for done, plan in enumerate(due, 1):
            carry_out(session.hf.store, plan)
            progress.update(done, len(due), plan.run.id)
