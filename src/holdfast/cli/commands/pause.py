"""Ask a run to stop at its next boundary and wait; a command that runs now comes to its end first.

`holdfast resume` lets the run continue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.people import me

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    script.add_meant_run(parser)
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    run = script.meant_run(session, arguments, or_only=True)
    session.hf.control.pause(run, by=me(session.out.environment), note=arguments.note)
    session.out.document({"run": run, "asked": "pause"})
    session.out.note(f"{run} stops at its next boundary; `holdfast resume {run}` lets it continue.")
    return 0
