"""Begin a new run from a checkpoint, with changed sections if you like; the old run stays as it is."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from holdfast.cli.commands.checkpoint import read_sections
from holdfast.cli.commands.restore import add_links
from holdfast.cli.describe import checkpoint_document
from holdfast.cli.output import Paint
from holdfast.cli.times import number
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="an id or a part of it, a label, RUN, RUN@7 or RUN~2")
    parser.add_argument("new", metavar="NEW", nargs="?", help="the new run (RUN-fork, RUN-fork-2 ...)")
    parser.add_argument("--state", metavar="FILE", help="another state section: a JSON file, or - for standard input")
    parser.add_argument(
        "--section",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="any other section, likewise; may be repeated",
    )
    parser.add_argument(
        "--drop", metavar="NAME", action="append", default=[], help="leave a section out; may be repeated"
    )
    parser.add_argument("--label", metavar="NAME", help="a name for its first checkpoint")
    parser.add_argument("--into", metavar="DIR", help="put its files into a new directory")
    add_links(parser)


def execute(arguments: Namespace, session: Session) -> int:
    """Fork it."""
    hf, out = session.hf, session.out
    sections = read_sections(arguments.state, arguments.section)
    origin = session.find(arguments.checkpoint)
    name = arguments.new or next(one for one in _names(origin.run) if not hf.has(one))
    put = _planned(origin, name, arguments, session) if arguments.into else None
    first = hf.fork(origin.id, name, sections=sections, drop=arguments.drop, label=arguments.label)
    try:
        written = put() if put is not None else None
    except BaseException:
        with suppress(HoldfastError):  # a fork without its files is taken back if that can be done; why is told first
            hf.delete_run(name)
        raise
    out.document({**checkpoint_document(first), "origin": origin.id, "files_written": written})
    out.line(Paint(name, "bold"), f" begins at {origin.run}@{origin.seq}")
    if written is not None:
        out.note(f"{number(written, 'file')} written to {arguments.into}.")
    elif WORKSPACE in first.sections:
        out.note(f"`holdfast restore {name} --into DIR` gives it a directory of its own.")
    return 0


def _names(run: str) -> Iterator[str]:
    yield f"{run}-fork"
    yield from (f"{run}-fork-{i}" for i in count(2))


def _planned(origin: Checkpoint, name: str, arguments: Namespace, session: Session) -> Callable[[], int]:
    """Return what puts the files into the new directory; a restore that is refused is refused before the fork."""
    from holdfast.cli.commands.files import check_has_files  # noqa: PLC0415

    if WORKSPACE in arguments.drop:
        raise UsageError(f"--drop {WORKSPACE} leaves no files to put into {arguments.into!r}: give one of both")
    check_has_files(origin)
    files = session.hf.run(name, workspace=session.root).workspace
    plan = files.plan(origin, into=arguments.into, allow_outside_links=arguments.allow_outside_links)

    def put() -> int:
        with session.progress("Restoring") as progress:
            return files.restore(plan, progress=progress.update).written

    return put
