"""Send a run a named signal; it is kept until the run waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.commands.answer import parse_value
from holdfast.cli.people import me

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.add_argument("name", metavar="NAME", help="the signal")
    parser.add_argument("--value", metavar="JSON", help="a value that goes with it")
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    run = session.run_id(arguments.run)
    value = parse_value(arguments.value)
    session.hf.control.signal(run, arguments.name, value, by=me(session.out.environment), note=arguments.note)
    session.out.document({"run": run, "signal": arguments.name})
    session.out.note(f"Sent {arguments.name} to {run}.")
    return 0
