"""Change limits of a run's budgets: NAME+=AMOUNT adds, NAME=AMOUNT sets; a run that waits for one continues then."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli import script
from holdfast.cli.amounts import parse_amount
from holdfast.cli.people import me
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


class _Change(NamedTuple):
    name: str
    amount: float
    adds: bool
    text: str


def configure(parser: CommandParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the run; otherwise the only one")
    parser.add_argument(
        "changes",
        metavar="NAME[+]=AMOUNT",
        nargs="*",
        help="tokens+=10000 adds to a limit, tokens=10000 sets it; also time+=1h, phase:plan/tokens=500",
    )
    parser.add_argument(
        "--add", metavar="NAME=AMOUNT", action="append", default=[], help="add to a limit; may be repeated"
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    if arguments.run is not None and "=" in arguments.run:
        arguments.run, arguments.changes = None, [arguments.run, *arguments.changes]
    run = script.meant_run(session, arguments, or_only=True)
    changes = [*(_parsed(text) for text in arguments.changes), *(_parsed(text, adds=True) for text in arguments.add)]
    if not changes:
        raise UsageError("give the limits to change: NAME+=AMOUNT adds, NAME=AMOUNT sets, as in tokens+=10000")
    control = session.hf.control
    said = {"by": me(out.environment), "note": arguments.note}
    ended = []
    if added := {one.name: one.amount for one in changes if one.adds}:
        ended += control.raise_budget(run, added, **said)
    if limits := {one.name: one.amount for one in changes if not one.adds}:
        ended += control.set_limits(run, limits, **said)
    out.document({"run": run, "wait": ended[0].id if ended else None, "raised": added, "limits": limits})
    for one in changes:
        out.line(f"{one.name}: {'raised by' if one.adds else 'limit set to'} {one.text}")
    still = [wait for wait in session.hf.control.waiting(run) if wait.kind == "budget"]
    if still and not ended:
        out.note(f"The run still waits: {still[0].question}")
    elif ended:
        script.tell_start_again(session, run)
    return 0


def _parsed(text: str, *, adds: bool = False) -> _Change:
    name, equals, amount = text.partition("=")
    adds = adds or name.endswith("+")
    name = name.removesuffix("+")
    if not (name and equals):
        raise UsageError(f"{text!r}: write NAME+=AMOUNT to add or NAME=AMOUNT to set, as in tokens+=10000")
    return _Change(name, parse_amount(name, amount), adds, amount)
