"""Show the runs of a queue: due, running where and since when, asleep until when; or take one out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.people import me
from holdfast.cli.queue_engine import engine_of
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("what", metavar="ls|retry|cancel", nargs="?", default="ls", choices=("ls", "retry", "cancel"))
    parser.add_argument("run", metavar="RUN", nargs="?", help="of retry and cancel: the run")
    parser.add_argument("--queue", metavar="NAME", default="default", help="the queue (default)")
    parser.add_argument("-n", "--limit", type=int, metavar="N", default=100, help="how many (100)")


def execute(arguments: Namespace, session: Session) -> int:
    """Ask the queue."""
    engine, out, hf = engine_of(session), session.out, session.open()
    try:
        if arguments.what != "ls":
            if arguments.run is None:
                raise UsageError(f"queue {arguments.what}: name the run")
            if arguments.what == "cancel":
                hf.control.cancel(arguments.run, by=me(out.environment))
            else:
                hf.control.answer(arguments.run, "retry", by=me(out.environment))
            out.document({"run": arguments.run, "asked": arguments.what})
            return 0
        rows = engine.entries(arguments.queue, limit=arguments.limit)
    finally:
        engine.close()
    waits = {row.run: [wait.question or wait.id for wait in hf.control.waiting(row.run)] for row in rows}
    out.document(
        {
            "queue": arguments.queue,
            "runs": [
                {
                    "run": row.run, "state": row.state, "attempt": row.attempt, "worker": row.worker,
                    "since": row.since, "until": row.until, "waits_for": waits[row.run],
                }
                for row in rows
            ],
        }
    )  # fmt: skip
    for row in rows:
        where = f"on {row.worker}" if row.worker else f"until {row.until:%Y-%m-%d %H:%M:%S}" if row.until else ""
        out.line(f"{row.run}  {row.state}  {where}  {'; '.join(waits[row.run])}".rstrip())
    if not rows:
        out.note(f"Queue {arguments.queue} is empty.")
    return 0
