"""Show what one call of a run changed in the files, as a patch for `git apply`, or commit exactly that.

A commit is added to the present branch; the files in the directory stay as they are. Where calls ran at the same time,
or the trees between them are gone, all of them are named; --together shows what they changed together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.output import Paint
from holdfast.cli.times import number

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.recovery.patch import CallPatch


def configure(parser: CommandParser) -> None:
    parser.add_argument("call", metavar="CALL", help="the call, as `holdfast events` and `holdfast cost` name it")
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="the run; otherwise HOLDFAST_RUN, the one begun here, or to look at the one that moved last",
    )
    parser.add_argument("--together", action="store_true", help="with the changes of calls that cannot be told apart")
    parser.add_argument("--commit", action="store_true", help="add a git commit with exactly this to the branch")
    parser.add_argument("-m", "--message", metavar="TEXT", help="the commit's message (the call and the run)")


def execute(arguments: Namespace, session: Session) -> int:
    """Show it, or commit it."""
    out = session.out
    run = (
        script.meant_run(session, arguments, or_only=True) if arguments.commit else script.shown_run(session, arguments)
    )
    found = session.hf.files.patch(run, arguments.call, together=arguments.together)
    commit = _commit(found, arguments, session) if arguments.commit and found.patch else None
    out.document(
        {
            "run": found.run,
            "call": found.call,
            "with_calls": list(found.with_calls),
            "paths": list(found.paths),
            "since": found.since,
            "until": found.until,
            "patch": found.patch.decode("utf-8", "replace"),
            "commit": commit,
        }
    )
    if not found.patch:
        out.note(f"{found.call} changed no file.")
    elif commit is not None:
        out.line(Paint(commit[:12], "yellow"), f" {number(len(found.paths), 'path')} of {found.call}")
    elif not out.json:
        out.raw(found.patch)
    return 0


def _commit(found: CallPatch, arguments: Namespace, session: Session) -> str:
    from holdfast.workspace.commit import commit_patch  # noqa: PLC0415

    calls = ", ".join([found.call, *found.with_calls])
    message = arguments.message or f"{calls}\n\nChanged by {calls} of run {found.run}.\n"
    return commit_patch(str(session.directory_of(found.run)), found.patch, found.paths, message)
