"""Delete and archive by the retention rules, or all but the newest; the plan is shown first, each line with its reason.

The head, pinned ones, fork points and all that a recovery needs always stay.
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

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.retain.policy import Decision

_COLOURS = {"delete": "red", "archive": "yellow", "keep": "dim"}


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
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
    runs = [session.run_id(arguments.run)] if arguments.run else [run.id for run in hf.runs()]
    plan = {run: hf.prune(run, keep=arguments.keep, older_than=older, dry_run=True).decisions for run in runs}
    doomed = {run: [one for one in found if one.action != "keep"] for run, found in plan.items()}
    _show(plan, session)
    counts = Counter(one.action for found in plan.values() for one in found)
    total = counts["delete"] + counts["archive"]
    is_done = bool(total) and not arguments.dry_run
    if is_done and not session.ask.agreed(f"Delete {counts['delete']} and archive {counts['archive']} checkpoints?"):
        raise Declined
    if is_done:
        _carry_out(doomed, session)
    out.document(
        {
            "done": is_done,
            "counts": dict(counts),
            "decisions": [
                {"run": run, "id": one.id, "seq": one.seq, "action": one.action, "reason": one.reason}
                for run, found in plan.items()
                for one in found
            ],
        }
    )
    if not total:
        out.note("Nothing to prune.")
    elif is_done:
        out.note(f"Deleted {counts['delete']}, archived {counts['archive']}.")
    return 0


def _show(plan: dict[str, tuple[Decision, ...]], session: Session) -> None:
    out = session.out
    shown = [(run, one) for run, found in plan.items() for one in found if one.action != "keep" or out.verbose]
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


def _carry_out(doomed: dict[str, list[Decision]], session: Session) -> None:
    """Do exactly what was shown; what vanished meanwhile is passed over, and the head stays."""
    from holdfast.retain.prune import carry_out  # noqa: PLC0415 - only if something is done

    total = sum(len(found) for found in doomed.values())
    done = 0
    with session.progress("Pruning") as progress:
        for run, found in doomed.items():
            if found:
                carry_out(session.hf.store, run, found)
            done += len(found)
            progress.update(done, total, run)
