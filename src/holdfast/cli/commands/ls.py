"""List the runs, the last moved first, with where each stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.describe import position, status, trigger
from holdfast.cli.filters import add_filters, filters_of
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import age
from holdfast.documents import is_moving, run_document
from holdfast.errors import HoldfastError
from holdfast.model.checkpoint import nothing_of
from holdfast.model.ids import is_reserved
from holdfast.store.api import Listing
from holdfast.store.inspection import Inspection
from holdfast.store.lineage import head_of
from holdfast.store.queries import RunFilters, checked_filters
from holdfast.store.tables import MAIN

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.model.checkpoint import CheckpointRecord, Envelope, RunRecord

_DAMAGED = Paint("damaged", "red")


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("-n", "--limit", type=int, default=30, metavar="N", help="show at most so many (30)")
    parser.add_argument("-a", "--all", action="store_true", help="show every run")
    parser.add_argument("--after", metavar="CURSOR", help="continue a list: `after` of its --json")
    parser.add_argument("--status", metavar="STATUS", help="only those that stand so: running, waiting, completed ...")
    add_filters(
        parser,
        prefix="only those whose id begins so",
        text="only those with this text in id, key, status or attributes",
    )


def execute(arguments: Namespace, session: Session) -> int:
    """List the runs."""
    out = session.out
    filters = checked_filters(filters_of(arguments, session.now(), "status"), RunFilters)
    runs = _runs(session, filters, None if arguments.all else max(arguments.limit, 0), arguments.after)
    is_damaged = bool(runs.damaged)
    found = [(run, head, _is_moving(session, head)) for run in runs for head in [_head(session, run)]]
    lines = {run.id: _other_lines(session, run) for run in runs}
    documents = [run_document(run, head, moving=moving) | {"lines": lines[run.id]} for run, head, moving in found]
    out.document({"runs": documents, "after": runs.after})
    if is_damaged:
        out.note("`holdfast repair` rebuilds what is damaged where that can be.")
    if not runs and not is_damaged and (filters or arguments.after):
        out.note("No run fits.")
        return 0
    if not runs and not is_damaged and not runs.after:
        out.note("No runs yet. `holdfast checkpoint RUN` or hf.run(...) in Python begins one.")
        return 0
    rows = [_row(run, head, session, lines[run.id], moving=moving) for run, head, moving in found]
    with out.paged():
        out.table(rows, ("RUN", "STATUS", "WHEN", "CHECKPOINTS", "LAST", "WHERE IT STANDS"))
    if runs.after:
        out.note("There are more; --limit or --all shows them.")
    return 0


def _runs(session: Session, filters: dict[str, Any], limit: int | None, after: str | None) -> Listing[RunRecord]:
    """Return the runs that are people's, the last moved first, with those that are there and cannot be read."""
    listing = session.store.queries.runs(filters, limit=limit, after=after)
    if not filters and after is None and listing.after is None:
        names = {run.id for run in listing}
        if any(
            name not in names and not is_reserved(name) for name in Inspection(session.store).runs_with_checkpoints()
        ):
            found = session.store.runs()  # only the whole list looks for runs whose own row is lost
            listing = Listing(sorted(listing, key=lambda run: run.updated_at, reverse=True), found.damaged)
    for error in listing.damaged:
        session.out.warn(str(error))
    return listing


def _other_lines(session: Session, run: RunRecord) -> list[str]:
    """Return the lines that a run has beside its main one."""
    try:
        return [name for name in session.store.line_names(run.id) if name != MAIN]
    except HoldfastError:
        return []


def _head(session: Session, run: RunRecord) -> Envelope | None:
    try:
        head = head_of(session.store, run)
    except HoldfastError as error:
        session.out.warn(str(error))
        return None
    if head is None and run.number and not run.last_seq:
        head = nothing_of(run.id, run.updated_at)  # it stands on its journal alone
    if head is None or run.number == head.number:
        return head.envelope if head is not None else None
    return _as_of_now(session, run, head)


def _as_of_now(session: Session, run: RunRecord, head: CheckpointRecord) -> Envelope:
    """Return the head with how the run stands by what its journal has since."""
    import msgspec  # noqa: PLC0415 - a list of runs that stand at their checkpoints does without the engine

    try:
        summary = session.hf.internals.present(run.id, head).summary
    except HoldfastError as error:
        session.out.warn(str(error))
        return head.envelope
    return msgspec.structs.replace(head.envelope, summary=summary)


def _is_moving(session: Session, head: Envelope | None) -> bool:
    return head is not None and head.summary.status == "running" and is_moving(session.store, head.run)


def _row(run: RunRecord, head: Envelope | None, session: Session, lines: list[str], *, moving: bool) -> list[Cell]:
    missing = ("-", "all its checkpoints were deleted") if run.head is None else (_DAMAGED, "its head cannot be read")
    where = (position(head) or head.reason) if head is not None else missing[1]
    where = ", ".join([*([where] if where else []), *(f"line {name}" for name in lines)])
    return [
        Cell.of(Paint(run.id, "bold")),
        Cell.of(status(head.summary.status, moving=moving) if head is not None else missing[0]),
        Cell.of(age(run.updated_at, session.now())),
        Cell.of(str(run.checkpoints), right=True),
        Cell.of(trigger(head.trigger) if head is not None and head.id else "-"),
        Cell.of(where),
    ]
