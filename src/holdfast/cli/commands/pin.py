"""Keep a checkpoint whatever the retention says; --off lets it go again."""

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
    parser.add_argument("--off", action="store_true", help="unpin it")


def execute(arguments: Namespace, session: Session) -> int:
    found = session.find_stored(arguments.checkpoint)
    marked = session.hf.mark(found.id, pinned=not arguments.off)
    session.out.document(checkpoint_document(marked))
    word = "is kept by pin" if marked.pinned else "is not pinned"
    session.out.note(f"{Short()(found.id)} ({found.run}@{found.seq}) {word} now.")
    return 0
