"""Begin a new run from a checkpoint or a position, with changed sections if you like; the old run stays as it is."""

from __future__ import annotations

import shlex
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.checkpoint import read_sections
from holdfast.cli.commands.restore import add_links
from holdfast.cli.output import Paint
from holdfast.cli.times import number
from holdfast.documents import checkpoint_document
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.recovery.fork import ForkedFiles


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="an id or a part of it, a label, RUN, RUN@7, RUN~2 or RUN#812"
    )
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
    parser.add_argument("--into", metavar="DIR", help="its directory (beside that of the run, named PROJECT-NEW)")
    parser.add_argument("--no-files", action="store_true", help="give it no directory")
    add_links(parser)


def execute(arguments: Namespace, session: Session) -> int:
    from holdfast.recovery.fork import fork_files, fork_warnings  # noqa: PLC0415 - loaded when it is used

    hf, out = session.hf, session.out
    sections = read_sections(arguments.state, arguments.section)
    origin = session.find(arguments.checkpoint)
    if origin.capture_note:
        out.note(f"{origin.place}: {origin.capture_note}.")
    name = arguments.new or next(one for one in _names(origin.run) if not hf.has(one))
    target = _target(origin, name, arguments, session)
    first = hf.fork(origin.place, name, sections=sections, drop=arguments.drop, label=arguments.label)
    made = None
    try:
        if target is not None:
            with session.progress("Restoring") as progress:
                made = fork_files(
                    hf,
                    first,
                    target,
                    beside=session.directory_of(origin.run),
                    allow_outside_links=arguments.allow_outside_links,
                    progress=progress.update,
                )
    except BaseException:
        with suppress(HoldfastError):  # a fork without its files is taken back if that can be done; why is told first
            hf.delete_run(name)
        raise
    document = {**checkpoint_document(first), "origin": origin.id, "origin_place": origin.place}
    out.document({**document, "files_written": made.written if made else None, "directory": made and made.directory})
    out.line(Paint(name, "bold"), f" begins at {origin.place}")
    for warning in fork_warnings(first):
        out.warn(warning)
    if made is not None:
        _tell(first, made, session)
    return 0


def _tell(first: Checkpoint, made: ForkedFiles, session: Session) -> None:
    """Say where the fork works, and what continues it."""
    kind = "a git worktree" + (f" on branch {made.branch}" if made.branch else "") if made.is_worktree else "a copy"
    session.out.note(f"Its directory is {made.directory} ({kind}), with {number(made.written, 'file')}.")
    if made.note:
        session.out.note(made.note)
    flow = first.section("flow") if "flow" in first.sections else None
    if isinstance(flow, dict) and flow.get("file"):
        typed = shlex.join(["holdfast", "run", flow["file"], "--run-id", first.run])
        session.out.note(f"`{typed}` continues it there.")
    else:
        session.out.note(f"hf.run({first.run!r}, workspace={made.directory!r}) in its program continues it there.")


def _target(origin: Checkpoint, name: str, arguments: Namespace, session: Session) -> Path | None:
    """Return the directory that the fork gets, None if it has no files."""
    from holdfast.cli.commands.files import check_has_files  # noqa: PLC0415

    if arguments.into and WORKSPACE in arguments.drop:
        raise UsageError(f"--drop {WORKSPACE} leaves no files to put into {arguments.into!r}: give one of both")
    if arguments.into:
        check_has_files(origin)
        return Path(arguments.into)
    if arguments.no_files or WORKSPACE in arguments.drop or WORKSPACE not in origin.sections:
        return None
    check_run_id(name)
    root = session.directory_of(origin.run).resolve()
    return root.with_name(f"{root.name}-{name}")


def _names(run: str) -> Iterator[str]:
    yield f"{run}-fork"
    yield from (f"{run}-fork-{i}" for i in count(2))
