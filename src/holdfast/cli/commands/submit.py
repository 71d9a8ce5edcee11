"""Hand a flow to workers: its run is stored with its files, and a queue delivers it; nothing of it is done here.

The store must be one that the workers reach: postgresql://... The same run submitted twice is one.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.run import params_of
from holdfast.cli.queue_engine import engine_of
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("flow", metavar="FLOW", help="the flow's file")
    parser.add_argument("--queue", metavar="NAME", default="default", help="the queue (default)")
    parser.add_argument("--run-id", metavar="RUN", help="the run's name; otherwise the flow's `run_id` or name")
    parser.add_argument(
        "--param", metavar="NAME=VALUE", action="append", default=[], help="a parameter, JSON or text; may be repeated"
    )
    parser.add_argument("--workspace", metavar="DIR", help="the directory whose files go along (the project's folder)")
    parser.add_argument("--no-files", action="store_true", help="send no files along")
    parser.add_argument("--at", metavar="TIME", help="not before this time")


def execute(arguments: Namespace, session: Session) -> int:
    """Store it and tell the queue."""
    from holdfast.flow.load import load_flow  # noqa: PLC0415 - help does without
    from holdfast.worker.submit import submit_flow  # noqa: PLC0415

    file = Path(arguments.flow)
    engine = engine_of(session)
    try:
        run = submit_flow(
            session.open(),
            load_flow(file),
            engine,
            queue=arguments.queue,
            run_id=arguments.run_id,
            params=params_of(arguments.param),
            workspace=None if arguments.no_files else Path(arguments.workspace or session.root).absolute(),
            file=file.name,
            at=_time(arguments.at) if arguments.at else None,
        )
    finally:
        engine.close()
    session.out.document({"run": run, "queue": arguments.queue})
    session.out.note(f"{run} is in queue {arguments.queue}; `holdfast worker` on any machine advances it.")
    return 0


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(f"--at {text!r} is not a valid time: write 2026-11-18T20:00") from None
