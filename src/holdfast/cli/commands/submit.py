"""Hand a flow to workers: its run is stored with its files, and a queue delivers it; nothing of it is done here.

The store must be one that the workers reach: postgresql://... The same run submitted twice is one.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from holdfast.cli.commands.run import params_of
from holdfast.cli.queue_engine import engine_of
from holdfast.errors import UsageError
from holdfast.workspace import git

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


_ALLOWED = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}  # what a person would clone from
_CLONE_TIMEOUT_S = 600


def configure(parser: CommandParser) -> None:
    parser.add_argument("flow", metavar="FLOW", help="the flow's file, or module:function of the workers' own")
    parser.add_argument("--queue", metavar="NAME", default="default", help="the queue (default)")
    parser.add_argument("--run-id", metavar="RUN", help="the run's name; otherwise the flow's `run_id` or name")
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter, JSON or text; may be repeated"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the directory whose files go along (the project's folder)")
    parser.add_argument("--git", metavar="URL[@REF]", help="a repository whose files go along, instead of a directory")
    parser.add_argument("--no-files", action="store_true", help="send no files along")
    parser.add_argument("--at", metavar="TIME", help="not before this time")
    parser.add_argument(
        "--setup", metavar="COMMAND", help="run once in each directory that the files are brought to: dependencies"
    )
    parser.add_argument("--priority", metavar="N", type=int, help="1 is the most urgent (Temporal alone has them)")


def execute(arguments: Namespace, session: Session) -> int:
    if sum(map(bool, (arguments.git, arguments.workspace, arguments.no_files))) > 1:
        raise UsageError("--git, --workspace and --no-files: give one of them")
    with ExitStack() as stack:
        engine = stack.enter_context(closing(engine_of(session)))
        workspace = None if arguments.no_files else Path(arguments.workspace or session.root).absolute()
        if arguments.git:
            folder = stack.enter_context(TemporaryDirectory(prefix="holdfast-submit-"))
            workspace = _cloned(arguments.git, Path(folder) / "files")
        run = session.open().submit(
            arguments.flow,
            queue=arguments.queue,
            run_id=arguments.run_id,
            params=params_of(arguments.param),
            workspace=workspace,
            at=_time(arguments.at) if arguments.at else None,
            setup=arguments.setup,
            priority=arguments.priority,
            engine=engine,
        )
    session.out.document({"run": run, "queue": arguments.queue})
    session.out.note(f"{run} is in queue {arguments.queue}; `holdfast worker` on any machine advances it.")
    return 0


def _cloned(source: str, folder: Path) -> Path:
    """Clone a repository, at a branch, tag or commit after the last @; UsageError says what git said."""
    url, at, ref = source.rpartition("@")
    if not at or "/" not in url or ":" in ref:  # user@host:path has no reference
        url, ref = source, ""
    lines = [["clone", "--quiet", "--", url, str(folder)]]
    if ref:
        lines.append(["-C", str(folder), "checkout", "--quiet", ref])
    for line in lines:
        done = git.finish(line, str(folder.parent), git.users_environment() | _ALLOWED, timeout_s=_CLONE_TIMEOUT_S)
        if done.code:
            raise UsageError(f"--git {source}: {done.said or 'git failed'}")
    return folder


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--at {text!r} is not a valid time: write 2026-11-18T20:00") from None
