"""Raise limits of a run's budgets; if it waits because one of them is used up, it goes on then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.amounts import parse_amount
from holdfast.cli.people import me
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.add_argument(
        "more",
        metavar="NAME=AMOUNT",
        nargs="+",
        help="how much more, as in tokens=10000, time=1h or phase:plan/tokens=500",
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    """Raise them."""
    out = session.out
    run = session.run_id(arguments.run)
    more = dict(map(_amount, arguments.more))
    ended = session.hf.raise_budget(run, more, by=me(out.environment), note=arguments.note)
    out.document({"run": run, "wait": ended[0].id if ended else None, "raised": more})
    for name, text in (one.split("=", 1) for one in arguments.more):
        out.line(f"{name}: raised by {text}")
    still = [wait for wait in session.hf.waiting(run) if wait.kind == "budget"]
    if still and not ended:
        out.note(f"The run still waits: {still[0].question}")
    return 0


def _amount(text: str) -> tuple[str, float]:
    name, equals, amount = text.partition("=")
    if not (name and equals):
        raise UsageError(f"{text!r}: write NAME=AMOUNT, as in tokens=10000")
    return name, parse_amount(name, amount)
