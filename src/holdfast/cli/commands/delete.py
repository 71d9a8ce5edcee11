"""Delete checkpoints, or with --run whole runs; what goes is shown first, and there is no way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.describe import marks, trigger
from holdfast.cli.errors import Declined
from holdfast.cli.ids import Short
from holdfast.cli.output import Paint
from holdfast.cli.times import age, number
from holdfast.documents import is_moving
from holdfast.errors import InvalidId, LeaseHeld, UsageError
from holdfast.model.ids import check_run_id

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "checkpoints", metavar="CHECKPOINT", nargs="*", help="an id or a part of it, a label, RUN@7, RUN~2"
    )
    parser.add_argument("--run", metavar="RUN", action="append", default=[], help="a whole run; may be repeated")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would go and do nothing")


def execute(arguments: Namespace, session: Session) -> int:
    """Show, ask, delete."""
    hf, out = session.hf, session.out
    if not (arguments.checkpoints or arguments.run):
        raise UsageError("name a checkpoint to delete, or a run with --run RUN")
    for spec in arguments.checkpoints:
        if hf.has(spec) if _could_be_run(spec) else False:
            raise UsageError(
                f"{spec!r} is a run: `--run {spec}` deletes all of it, {spec}@N or {spec}~0 one checkpoint"
            )
    found = {one.id: one for one in map(session.find_stored, arguments.checkpoints)}
    runs = [hf.store.run(session.run_id(run)) for run in dict.fromkeys(arguments.run)]
    for run in runs:
        _check_nobody_moves(run.id, session)
    short = Short(found)
    for one in found.values():
        said = [Paint("- ", "red"), Paint(short(one.id), "yellow"), f" {one.run}@{one.seq} ", *marks(one)]
        out.line(*said, trigger(one.trigger), f" {one.reason} ", Paint(age(one.created_at, session.now()), "dim"))
    for run in runs:
        out.line(Paint("- ", "red"), Paint(run.id, "bold"), f", a run of {number(run.checkpoints, 'checkpoint')}")
    document = {"checkpoints": list(found), "runs": [run.id for run in runs]}
    if arguments.dry_run:
        out.document({"deleted": False, **document})
        return 0
    if not session.ask.agreed("Delete for good?"):
        raise Declined
    hf.delete(*found)
    for run in runs:
        hf.delete_run(run.id)
    out.document({"deleted": True, **document})
    out.note("Deleted.")
    return 0


def _check_nobody_moves(run: str, session: Session) -> None:
    lease = session.hf.store.leases.running(run)
    if lease is not None and is_moving(session.hf.store, run):
        raise LeaseHeld(run, lease.owner, lease.expires_at.isoformat())


def _could_be_run(spec: str) -> bool:
    try:
        check_run_id(spec)
    except InvalidId:
        return False
    return True
