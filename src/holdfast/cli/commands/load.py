"""Write what a script saved to standard output, as JSON; the exit code is 3 if there is nothing yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli import script
from holdfast.cli.commands.show import section_value
from holdfast.cli.escape import json_text
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("--section", metavar="NAME", default="state", help="the section (state)")
    parser.add_argument("--from", metavar="CHECKPOINT", dest="source", help="a checkpoint, instead of the run's newest")
    parser.add_argument("--default", metavar="JSON", help="what to write, with exit code 0, if there is nothing yet")
    script.add_run_option(parser)


def execute(arguments: Namespace, session: Session) -> int:
    """Write it: the value itself, with --json too; a script continues from it."""
    session.reveals = True
    try:
        found = _found(arguments, session)
    except NotFound:
        if arguments.default is None:
            raise
        session.out.stdout.write(arguments.default + "\n")
        return 0
    session.out.stdout.write(json_text(found) + "\n")
    return 0


def _found(arguments: Namespace, session: Session) -> Any:
    if arguments.source:
        checkpoint = session.find(arguments.source)
    else:
        checkpoint = script.head_of(session, script.meant_run(session, arguments))
    if arguments.section not in checkpoint.sections:
        raise NotFound("section", arguments.section, f"{checkpoint.run} has {', '.join(checkpoint.sections) or 'none'}")
    return section_value(checkpoint, arguments.section)
