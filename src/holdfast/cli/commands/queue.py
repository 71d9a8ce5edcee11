"""Show the runs of a queue: due, running where and since when, asleep until when, waiting for whom, parked and why.

`show` tells all of one run, `retry` lets a parked one be tried again, `cancel` ends one.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cli.people import me
from holdfast.cli.queue_engine import engine_of
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.engine import Holdfast
    from holdfast.worker.port import QueueEntry

_VERBS = ("ls", "show", "retry", "cancel")


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("what", metavar="|".join(_VERBS), nargs="?", default="ls", choices=_VERBS)
    parser.add_argument("run", metavar="RUN", nargs="?", help="of show, retry and cancel: the run")
    parser.add_argument("--queue", metavar="NAME", default="default", help="the queue (default)")
    parser.add_argument("-n", "--limit", type=int, metavar="N", default=100, help="how many (100)")


def execute(arguments: Namespace, session: Session) -> int:
    """Ask the queue."""
    out, hf = session.out, session.open()
    if arguments.what != "ls" and arguments.run is None:
        raise UsageError(f"queue {arguments.what}: name the run")
    if arguments.what == "cancel":
        hf.control.cancel(arguments.run, by=me(out.environment))
    elif arguments.what == "retry":
        _retry(arguments.run, session, hf)
    else:
        _show(arguments, session, hf)
        return 0
    out.document({"run": arguments.run, "asked": arguments.what})
    return 0


def _retry(run: str, session: Session, hf: Holdfast) -> None:
    """Answer a run that waits; one that waits for nothing is delivered again."""
    from holdfast.worker.port import ENGINE, QUEUE, text_of  # noqa: PLC0415 - help does without

    attributes = hf.store.row_of(run).attributes
    queue = text_of(attributes, QUEUE)
    if queue is None or hf.control.waiting(run):
        hf.control.answer(run, "retry", by=me(session.out.environment))
        return
    with closing(engine_of(session, text_of(attributes, ENGINE))) as engine:
        engine.submit(run, queue=queue)


def _show(arguments: Namespace, session: Session, hf: Holdfast) -> None:
    from holdfast.worker.port import ENGINE, QUEUE, check_queue, text_of  # noqa: PLC0415 - help does without

    out, queue, only = session.out, check_queue(arguments.queue), arguments.run
    attributes = {} if only is None else hf.store.row_of(only).attributes
    queue = text_of(attributes, QUEUE) or queue
    with closing(engine_of(session, text_of(attributes, ENGINE))) as engine:
        rows = engine.entries(queue, limit=arguments.limit, run=only)
    if only is not None and not rows:
        raise NotFound("run", only, f"queue {queue} has no such run")
    shown = [_described(hf, row) for row in rows]
    states = [row["state"] for row in shown]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    out.document(msgspec.to_builtins({"queue": queue, "counts": counts, "runs": shown}))
    for row in shown:
        out.line(
            "  ".join(part for part in (row["run"], row["state"], _where(row), "; ".join(row["waits_for"])) if part)
        )
    if not rows:
        out.note(f"Queue {queue} is empty.")


def _described(hf: Holdfast, row: QueueEntry) -> dict[str, Any]:
    """Return a run as its queue and its store have it; one that no worker could advance is parked."""
    from holdfast.worker.port import begins_at  # noqa: PLC0415 - help does without

    try:
        stored = hf.store.row_of(row.run)
        waits = hf.control.waiting(row.run) if row.state == "asleep" else []
    except NotFound:
        return {**msgspec.structs.asdict(row), "state": "deleted", "waits_for": []}
    state, until = row.state, min((wait.until for wait in waits if wait.until), default=None if waits else row.until)
    at = datetime.fromtimestamp(begins_at(stored.attributes), UTC)
    if state in ("due", "asleep") and not stored.status and at > datetime.now(UTC):
        state, until = "asleep", at
    elif any(wait.id.startswith("parked:") for wait in waits):
        state = "parked"
    elif any(wait.until is None for wait in waits):
        state = "waiting"
    elif state == "done" and stored.status in ("failed", "cancelled"):
        state = stored.status
    waits_for = [wait.question or wait.id for wait in waits]
    return {**msgspec.structs.asdict(row), "state": state, "until": until, "waits_for": waits_for}


def _where(row: dict[str, Any]) -> str:
    if row["worker"]:
        since = f" since {row['since']:%Y-%m-%d %H:%M:%S}" if row["since"] else ""
        return f"on {row['worker']}{since}"
    return f"until {row['until']:%Y-%m-%d %H:%M:%S}" if row["until"] else ""
