"""Count that a phase is replanned, and make it due again; exits with 11 when that was done too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.plan_file import phase_named

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the phase: its name, its number in the plan, or how it begins")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why")
    script.add_run_option(parser)


def execute(arguments: Namespace, session: Session) -> int:
    run = script.open_run(session, script.meant_run(session, arguments))
    book = script.book_of(run.head)
    name = phase_named(arguments.name, book.order, list(book.phases))
    with script.held(run):
        run.host.note("replanned", name, reason=arguments.reason)
        run.phases.replan(name, arguments.reason)
        replans = run.phases.replans
    count, left = replans.count(name), replans.left(name)
    session.out.document({"run": run.id, "phase": name, "count": count, "left": left, "limit": replans.limit(name)})
    session.out.note(f"{name} is replanned for the {_nth(count)} time; {left} left.")
    return 0


def _nth(count: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(count, f"{count}th")
