"""List the runs, the last moved first, with where each stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.describe import is_moving, position, run_document, status, trigger
from holdfast.cli.errors import told
from holdfast.cli.output import Cell, Paint
from holdfast.cli.session import HIDDEN_RUNS
from holdfast.cli.times import age
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.model.checkpoint import Envelope, RunRecord

_LOOKED_AT = 1000  # of the runs begun last; sorting more by their last move costs time that nobody has


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("-n", "--limit", type=int, default=30, metavar="N", help="show at most so many (30)")
    parser.add_argument("-a", "--all", action="store_true", help="show every run")


def execute(arguments: Namespace, session: Session) -> int:
    """List the runs."""
    out = session.out
    runs = _runs(session, None if arguments.all else _LOOKED_AT)
    shown = runs if arguments.all else runs[: max(arguments.limit, 0)]
    found = [(run, head, _is_moving(session, head)) for run in shown for head in [_head(session, run)]]
    out.document({"runs": [run_document(run, head, moving=moving) for run, head, moving in found]})
    if not runs:
        out.note("No runs yet. `holdfast checkpoint RUN` or hf.run(...) in Python begins one.")
        return 0
    rows = [_row(run, head, session, moving=moving) for run, head, moving in found]
    with out.paged():
        out.table(rows, ("RUN", "STATUS", "WHEN", "CHECKPOINTS", "LAST", "WHERE IT STANDS"))
    if len(shown) < len(runs):
        out.note(f"{len(runs) - len(shown)} more; --limit or --all shows them.")
    return 0


def _runs(session: Session, limit: int | None) -> list[RunRecord]:
    """Return the runs that are people's, the last moved first."""
    listing = session.store.runs(limit=limit)
    for error in listing.damaged:
        session.out.warn(told(error))
    runs = [run for run in listing if not run.id.startswith(HIDDEN_RUNS)]
    return sorted(runs, key=lambda run: run.updated_at, reverse=True)


def _head(session: Session, run: RunRecord) -> Envelope | None:
    if run.head is None:
        return None
    try:
        return session.store.checkpoint(run.head).envelope
    except HoldfastError as error:
        session.out.warn(told(error))
        return None


def _is_moving(session: Session, head: Envelope | None) -> bool:
    return head is not None and head.summary.status == "running" and is_moving(session.store, head.run)


def _row(run: RunRecord, head: Envelope | None, session: Session, *, moving: bool) -> list[Cell]:
    where = (position(head) or head.reason) if head is not None else "its head cannot be read"
    return [
        Cell.of(Paint(run.id, "bold")),
        Cell.of(status(head.summary.status, moving=moving) if head is not None else Paint("damaged", "red")),
        Cell.of(age(run.updated_at, session.now())),
        Cell.of(str(run.checkpoints), right=True),
        Cell.of(trigger(head.trigger) if head is not None else "-"),
        Cell.of(where),
    ]
