"""List the runs, the last moved first, with where each stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.describe import position, status, trigger
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import age
from holdfast.documents import is_moving, run_document
from holdfast.errors import HoldfastError
from holdfast.model.ids import is_reserved
from holdfast.store.inspection import Inspection
from holdfast.store.lineage import head_of

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.model.checkpoint import CheckpointRecord, Envelope, RunRecord

_LOOKED_AT = 1000  # of the runs begun last; sorting more by their last move costs time that nobody has
_DAMAGED = Paint("damaged", "red")


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("-n", "--limit", type=int, default=30, metavar="N", help="show at most so many (30)")
    parser.add_argument("-a", "--all", action="store_true", help="show every run")


def execute(arguments: Namespace, session: Session) -> int:
    """List the runs."""
    out = session.out
    runs, is_damaged = _runs(session, None if arguments.all else _LOOKED_AT)
    shown = runs if arguments.all else runs[: max(arguments.limit, 0)]
    found = [(run, head, _is_moving(session, head)) for run in shown for head in [_head(session, run)]]
    out.document({"runs": [run_document(run, head, moving=moving) for run, head, moving in found]})
    if is_damaged:
        out.note("`holdfast repair` makes what is damaged anew where that can be.")
    if not runs and not is_damaged:
        out.note("No runs yet. `holdfast checkpoint RUN` or hf.run(...) in Python begins one.")
        return 0
    rows = [_row(run, head, session, moving=moving) for run, head, moving in found]
    with out.paged():
        out.table(rows, ("RUN", "STATUS", "WHEN", "CHECKPOINTS", "LAST", "WHERE IT STANDS"))
    if len(shown) < len(runs):
        out.note(f"{len(runs) - len(shown)} more; --limit or --all shows them.")
    return 0


def _runs(session: Session, limit: int | None) -> tuple[list[RunRecord], bool]:
    """Return the runs that are people's, the last moved first, and whether more are there that cannot be read."""
    listing = session.store.runs(limit=limit)
    if limit is not None and len(listing) + len(listing.damaged) < limit:
        names = {run.id for run in listing}
        if any(name not in names for name in Inspection(session.store).runs_with_checkpoints()):
            listing = session.store.runs()  # only the whole list looks for runs whose own row is lost
    for error in listing.damaged:
        session.out.warn(str(error))
    runs = [run for run in listing if not is_reserved(run.id)]
    return sorted(runs, key=lambda run: run.updated_at, reverse=True), bool(listing.damaged)


def _head(session: Session, run: RunRecord) -> Envelope | None:
    try:
        head = head_of(session.store, run)
    except HoldfastError as error:
        session.out.warn(str(error))
        return None
    if head is None or run.number == head.number:
        return head.envelope if head is not None else None
    return _as_of_now(session, run, head)


def _as_of_now(session: Session, run: RunRecord, head: CheckpointRecord) -> Envelope:
    """Return the head with how the run stands by what its journal has since."""
    import msgspec  # noqa: PLC0415 - a list of runs that stand at their checkpoints does without the engine

    try:
        summary = session.hf.present(run.id, head).summary
    except HoldfastError as error:
        session.out.warn(str(error))
        return head.envelope
    return msgspec.structs.replace(head.envelope, summary=summary)


def _is_moving(session: Session, head: Envelope | None) -> bool:
    return head is not None and head.summary.status == "running" and is_moving(session.store, head.run)


def _row(run: RunRecord, head: Envelope | None, session: Session, *, moving: bool) -> list[Cell]:
    missing = ("-", "all its checkpoints were deleted") if run.head is None else (_DAMAGED, "its head cannot be read")
    where = (position(head) or head.reason) if head is not None else missing[1]
    return [
        Cell.of(Paint(run.id, "bold")),
        Cell.of(status(head.summary.status, moving=moving) if head is not None else missing[0]),
        Cell.of(age(run.updated_at, session.now())),
        Cell.of(str(run.checkpoints), right=True),
        Cell.of(trigger(head.trigger) if head is not None else "-"),
        Cell.of(where),
    ]
