"""Say yes to what a run waits for; it continues as soon as its program looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.commands.answer import add_arguments, give_answer

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    add_arguments(parser)


def execute(arguments: Namespace, session: Session) -> int:
    return give_answer("approve", arguments, session)
