"""Change a checkpoint's status: archived ones leave the daily list, corrupted ones are never resumed from."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from holdfast.cli.ids import Short
from holdfast.documents import checkpoint_document
from holdfast.model.checkpoint import Status

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="an id or a part of it, a label, RUN, RUN@7 or RUN~2")
    statuses = [one for one in get_args(Status) if one != "creating"]
    parser.add_argument("status", choices=statuses, help="the new status")


def execute(arguments: Namespace, session: Session) -> int:
    found = session.find_stored(arguments.checkpoint)
    marked = session.hf.mark(found.id, status=arguments.status)
    session.out.document(checkpoint_document(marked))
    session.out.note(f"{Short()(found.id)} ({found.run}@{found.seq}) is {marked.status} now.")
    return 0
