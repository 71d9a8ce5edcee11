"""Write what a script saved to standard output, as JSON; the exit code is 3 if there is nothing yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.commands.show import section_value
from holdfast.cli.escape import json_text
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--section", metavar="NAME", default="state", help="the section (state)")
    parser.add_argument("--from", metavar="CHECKPOINT", dest="source", help="a checkpoint, instead of the run's newest")
    script.add_run_option(parser)


def execute(arguments: Namespace, session: Session) -> int:
    """Write it: the value itself, with --json too; a script continues from it."""
    session.reveals = True
    if arguments.source:
        checkpoint = session.find(arguments.source)
    else:
        checkpoint = script.head_of(session, script.meant_run(session, arguments))
    if arguments.section not in checkpoint.sections:
        raise NotFound("section", arguments.section, f"{checkpoint.run} has {', '.join(checkpoint.sections) or 'none'}")
    session.out.stdout.write(json_text(section_value(checkpoint, arguments.section)) + "\n")
    return 0
