"""Copy runs from one store to another: verified on the way, ids and lineage kept, resumed if broken off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.times import number, size
from holdfast.documents import plain
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.transfer.copy import Copied


def configure(parser: CommandParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the store to copy from: a path or URL")
    parser.add_argument("target", metavar="TARGET", help="the store to copy to; made if it is not there")
    parser.add_argument("runs", metavar="RUN", nargs="*", help="these runs only; without any, all")


def execute(arguments: Namespace, session: Session) -> int:
    from holdfast.cli.place import local_path  # noqa: PLC0415

    there = local_path(arguments.source)
    if there is not None and not there.exists():
        raise NotFound("store", arguments.source)
    source = session.open(arguments.source, to_read=True)
    is_own = session.place.is_at(arguments.target)  # then it is opened with its key
    target = session.open(arguments.target) if is_own else arguments.target
    with session.progress("Copying") as progress:
        copied = source.transfer.copy_to(
            target, *arguments.runs, progress=lambda run, done, of: progress.update(done, of, run)
        )
    show_copied(copied, session)
    if not is_own and source.keys.ids():
        session.out.note(f"{arguments.target} is locked as {arguments.source} is: the same key opens it.")
    return 0


def show_copied(copied: Sequence[Copied], session: Session) -> None:
    """Say what was copied, a line a run."""
    out = session.out
    out.document({"runs": plain(list(copied))})
    for one in copied:
        known = f", {one.present} were there" if one.present else ""
        out.line(f"{one.run}: {number(one.checkpoints, 'checkpoint')}{known}, {size(one.chunk_bytes)}")
    if not copied:
        out.note("There is nothing to copy.")
