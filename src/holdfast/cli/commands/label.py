"""Give a checkpoint a name that it can be called by; an empty one takes the name away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.ids import Short
from holdfast.documents import checkpoint_document

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="an id or a part of it, a label, RUN, RUN@7 or RUN~2")
    parser.add_argument("label", metavar="NAME", help="the name")


def execute(arguments: Namespace, session: Session) -> int:
    found = session.find_stored(arguments.checkpoint)
    marked = session.hf.mark(found.id, label=arguments.label or None)
    session.out.document(checkpoint_document(marked))
    name = f"is {marked.label!r}" if marked.label else "has no label"
    session.out.note(f"{Short()(found.id)} ({found.run}@{found.seq}) {name} now.")
    return 0
