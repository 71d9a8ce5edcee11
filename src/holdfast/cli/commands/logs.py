"""Show what the tasks of a run print: while they run, from any process on the same machine, and afterwards.

Of each task the first and the last half megabyte are there, without secrets.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.output import Paint
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.flow.task_output import Tail, TaskOutput

_OVER = ("completed", "failed", "cancelled", "ended")
_LOOK_EVERY_S = 0.3


def configure(parser: CommandParser) -> None:
    script.add_shown_run(parser)
    parser.add_argument("task", metavar="TASK", nargs="?", help="a phase, a task, or PHASE/TASK; otherwise all")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help="only the last N lines of each task")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="continue until the run ends; with --json, a line each"
    )


def execute(arguments: Namespace, session: Session) -> int:
    from holdfast.flow.task_output import Tail, run_folder  # noqa: PLC0415 - help does without

    if arguments.lines is not None and arguments.lines < 0:
        raise UsageError(f"--lines {arguments.lines}: give a number from 0 up")
    run = script.shown_run(session, arguments)
    folder = run_folder(session.hf, run)
    out = session.out
    if folder is None:
        out.note("The output of tasks is not written beside an encrypted store; `holdfast show` has what was stored.")
    elif arguments.follow:
        return _follow(run, folder, arguments, session)
    found = _chosen(folder, arguments.task) if folder is not None else []
    if arguments.task is not None and folder is not None and not found:
        raise NotFound("output of task", arguments.task, f"`holdfast logs {run}` shows all that there is")
    texts = [(one.task, _last(Tail(one.path).lines(is_last=True), arguments.lines)) for one in found]
    out.document({"run": run, "tasks": [{"task": task, "lines": lines} for task, lines in texts]})
    with out.paged():
        for task, lines in texts:
            if len(texts) > 1:
                out.line(Paint(f"{task}:", "bold"))
            for line in lines:
                out.line(_shown(line))
    if folder is not None and not found:
        out.note("Its tasks printed nothing, or they ran on another machine.")
    return 0


def _follow(run: str, folder: Path, arguments: Namespace, session: Session) -> int:
    """Show what is printed as it comes, until the run has ended or Ctrl+C."""
    import json  # noqa: PLC0415

    from holdfast.flow.task_output import Tail  # noqa: PLC0415

    out = session.out
    tails: dict[str, Tail] = {}
    while True:
        is_over = session.hf.latest(run, required=True).summary.status in _OVER
        for one in _chosen(folder, arguments.task):
            is_new = one.task not in tails
            lines = tails.setdefault(one.task, Tail(one.path)).lines(is_last=is_over)
            for line in _last(lines, arguments.lines) if is_new else lines:
                if out.json:
                    out.stdout.write(json.dumps({"task": one.task, "line": line}) + "\n")
                else:
                    out.line(Paint(f"{one.task} | ", "dim"), _shown(line))
        out.flush()
        if is_over:
            return 0
        time.sleep(_LOOK_EVERY_S)


def _chosen(folder: Path, task: str | None) -> list[TaskOutput]:
    from holdfast.flow.task_output import outputs_in  # noqa: PLC0415

    return [one for one in outputs_in(folder) if task is None or task in (one.task, *one.task.split("/"))]


def _last(lines: list[str], count: int | None) -> list[str]:
    return lines if count is None else lines[max(0, len(lines) - count) :]


def _shown(line: str) -> str:
    from holdfast.flow.task_output import without_colours  # noqa: PLC0415

    return without_colours(line)
