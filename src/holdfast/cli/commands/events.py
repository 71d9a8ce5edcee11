"""Tell what happened in a run, when, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import duration, number
from holdfast.documents import plain
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.output import Part
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.runtime.audit import Event

_OVER = ("completed", "failed", "cancelled", "ended")


def configure(parser: CommandParser) -> None:
    script.add_shown_run(parser)
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="only the last N")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="continue until the run ends; with --json, a line each"
    )


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: give a number from 0 up")
    run = script.shown_run(session, arguments)
    if arguments.follow:
        return _follow(run, arguments.limit, session)
    found = session.hf.events(run)
    shown = found if arguments.limit is None else found[max(0, len(found) - arguments.limit) :]
    saved = session.hf.recovery.savings(run)
    out.document({"run": run, "events": [plain(one) for one in shown], "savings": plain(saved)})
    with out.paged():
        out.table([_row(one) for one in shown])
    if not found:
        out.note("Nothing is recorded.")
    if saved.resumes:
        kept = f"{number(saved.steps, 'step')} ({duration(saved.seconds)})"
        out.note(f"Resumed {number(saved.resumes, 'time')}; the last one kept {kept} from being done again.")
    return 0


def _follow(run: str, limit: int | None, session: Session) -> int:
    """Tell what happens as it is committed, until the run has ended or Ctrl+C."""
    import json  # noqa: PLC0415

    out, seen = session.out, 0
    feed = session.hf.follow(run)
    while True:
        next(feed)  # waits for a commit; those that came with it are told with it
        for _ in feed.ready():
            pass
        found = session.hf.events(run)
        if limit is not None and not seen:
            seen = max(0, len(found) - limit)
        for one in found[seen:]:
            if out.json:
                out.stdout.write(json.dumps(plain(one)) + "\n")
            else:
                out.line(*_line(one))
        seen = len(found)
        out.flush()
        if session.hf.has(run) and session.hf.latest(run, required=True).summary.status in _OVER:
            return 0


def _line(one: Event) -> list[Part]:
    cells = [cell.parts for cell in _row(one)]
    return [part for parts in cells for part in (*parts, "  ")]


def _row(one: Event) -> list[Cell]:
    told = [one.what, f"by {one.by}" if one.by else ""]
    told += [f"{name}: {plain(value)}" for name, value in one.details.items() if value not in (None, "", {}, [])]
    return [
        Cell.of(Paint(f"{one.at:%Y-%m-%d %H:%M:%S}", "dim")),
        Cell.of(Paint(one.kind, "red" if "fail" in one.kind else "cyan")),
        Cell.of(one.phase or ""),
        Cell.of(duration(one.duration_s) if one.duration_s else "", right=True),
        Cell.of(", ".join(word for word in told if word)),
    ]
