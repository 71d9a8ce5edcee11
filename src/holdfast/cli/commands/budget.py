"""Raise the budgets of a run that waits because one is used up; it goes on then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.cli.people import me
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.add_argument("more", metavar="NAME=AMOUNT", nargs="+", help="how much more, as in tokens=10000")
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    """Raise them."""
    run = session.run_id(arguments.run)
    more = dict(map(_amount, arguments.more))
    wait = session.hf.raise_budget(run, more, by=me(session.out.environment), note=arguments.note)
    session.out.document({"run": run, "wait": wait.id, "raised": more})
    session.out.line(f"{wait.question or wait.id}: raised")
    return 0


def _amount(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    try:
        value = float(amount.replace("_", "").replace(",", ""))
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value) or value <= 0:
        raise UsageError(f"{text!a}: write NAME=AMOUNT, as in tokens=10000")
    return name, int(value) if value.is_integer() else value
