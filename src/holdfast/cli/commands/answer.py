"""Answer what a run waits for, with any of its options; `approve` and `reject` are the short forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli import script
from holdfast.cli.ask import YES_AND_NO
from holdfast.cli.json_values import read_value
from holdfast.cli.people import me

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("choice", metavar="CHOICE", help="the answer; `holdfast status RUN` shows the options")
    add_arguments(parser)
    parser.add_argument("--value", metavar="JSON", help="a value that goes with it")


def add_arguments(parser: CommandParser) -> None:
    """Let a command name the run, the question and a note."""
    script.add_meant_run(parser)
    parser.add_argument("--wait", metavar="ID", help="which question, if the run waits for several")
    parser.add_argument("--note", metavar="TEXT", default="", help="why")


def execute(arguments: Namespace, session: Session) -> int:
    return give_answer(arguments.choice, arguments, session)


def give_answer(choice: str, arguments: Namespace, session: Session) -> int:
    """Answer a run, and say what was answered."""
    out = session.out
    run = script.meant_run(session, arguments, or_only=True)
    value = parse_value(getattr(arguments, "value", None))
    options = {
        one for wait in session.hf.control.waiting(run) if arguments.wait in (None, wait.id) for one in wait.options
    }
    meant = YES_AND_NO.get(choice.lower())
    if choice not in options and meant in options:
        choice = meant
    wait = session.hf.control.answer(
        run, choice, wait=arguments.wait, by=me(out.environment), note=arguments.note, value=value
    )
    out.document({"run": run, "wait": wait.id, "question": wait.question, "choice": choice})
    out.line(f"{wait.question or wait.id}: {choice}")
    script.tell_start_again(session, run)
    return 0


def parse_value(text: str | None) -> Any:
    """Return the value of a JSON text."""
    return None if text is None else read_value(text, f"{text!r:.80}", "; a text needs quotes: '\"text\"'")
