"""Ask a run to end; commands that it runs now are ended, its checkpoints stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.errors import Declined
from holdfast.cli.people import me

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    script.add_meant_run(parser)
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    """Ask, then ask it."""
    run = script.meant_run(session, arguments, or_only=True)
    if not session.ask.agreed(f"Cancel {run}? It cannot be resumed, only forked."):
        raise Declined
    session.hf.control.cancel(run, by=me(session.out.environment), note=arguments.note)
    session.out.document({"run": run, "asked": "cancel"})
    session.out.note(f"{run} ends at its next boundary, its commands now.")
    return 0
