"""Show a run's checkpoints, newest first, as a graph: what each was taken on, what was rewound, what was forked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.describe import marks, position, trigger
from holdfast.cli.graph import Graph
from holdfast.cli.ids import Short
from holdfast.cli.output import Paint
from holdfast.cli.times import age, number
from holdfast.documents import checkpoint_document
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.output import Part
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

_PAGE = 100
_MOST_FORKS_LOOKED_AT = 500


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run")
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="show at most so many")
    parser.add_argument("--positions", action="store_true", help="show the journal number of each, for RUN#NUMBER")
    parser.add_argument("-a", "--archived", action="store_true", help="show archived ones, too")
    parser.add_argument(
        "--trigger", metavar="NAME", choices=tuple(map(str, Trigger)), help="only those that this caused, no graph"
    )


def execute(arguments: Namespace, session: Session) -> int:
    """Show the log."""
    hf, out = session.hf, session.out
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: give a number from 0 up")
    run = session.run_id(arguments.run)
    rows = _rows(session, run, arguments)
    if out.json:
        out.document({"run": run, "head": hf.store.run(run).head, "checkpoints": [*map(checkpoint_document, rows)]})
        return 0
    graph = Graph(lambda checkpoint: hf.store.tombstone(run, checkpoint) is not None)
    forks = _forks(session, run)
    head = hf.store.run(run).head
    short = Short()
    with out.paged():
        for checkpoint in rows:
            lanes = "*"
            if not arguments.trigger:
                row = graph.row(checkpoint.id, _parent_in_run(checkpoint))
                lanes = row.lanes
                for line in row.above:
                    out.line(Paint(line, "dim"))
            out.line(
                lanes,
                " ",
                *_said(checkpoint, session, short, is_head=checkpoint.id == head, positions=arguments.positions),
                *_forked(checkpoint, forks),
            )
    return 0


def _rows(session: Session, run: str, arguments: Namespace) -> Iterator[Checkpoint]:
    """Yield the checkpoints a page at a time, so that the first are on the screen before the last are read."""
    left = arguments.limit
    before: int | None = None
    while left is None or left > 0:
        page = session.hf.checkpoints(run, limit=_PAGE, before_seq=before, archived=arguments.archived)
        for checkpoint in page:
            if arguments.trigger in (None, checkpoint.trigger):
                yield checkpoint
                left = left if left is None else left - 1
                if left == 0:
                    return
        if len(page) < _PAGE:
            return
        before = page[-1].seq


def _parent_in_run(checkpoint: Checkpoint) -> str | None:
    """Return the parent, None where the run was begun: a fork's parent is in another run."""
    if checkpoint.seq == 1 or checkpoint.parent is None:
        return None
    return checkpoint.parent


def _said(checkpoint: Checkpoint, session: Session, short: Short, *, is_head: bool, positions: bool) -> list[Part]:
    said: list[Part] = [Paint(short(checkpoint.id), "yellow"), f" @{checkpoint.seq} "]
    if positions:
        said.append(f"#{checkpoint.number} ")
    if is_head:
        said += [Paint("(head)", "cyan"), " "]
    said += [*marks(checkpoint), trigger(checkpoint.trigger), " "]
    text = checkpoint.reason or position(checkpoint)
    if text:
        said.append(text.split("\n")[0] + " ")
    if not checkpoint.recovery.can_resume:
        said += [Paint("cannot resume", "red"), " "]
    if checkpoint.seq == 1 and checkpoint.parent is not None:
        said += [Paint(f"forked from {short(checkpoint.parent)}", "blue"), " "]
    said.append(Paint(age(checkpoint.created_at, session.now()), "dim"))
    return said


def _forks(session: Session, run: str) -> dict[str, list[str]]:
    """Return the runs that were begun from this one, by the checkpoint they were begun from."""
    points: dict[str, list[str]] = {}
    for other in session.hf.runs(limit=_MOST_FORKS_LOOKED_AT):
        if other.id == run:
            continue
        try:
            first = session.hf.store.checkpoint_at(other.id, 1)
        except HoldfastError:
            continue
        if first is not None and first.envelope.parent is not None:
            points.setdefault(first.envelope.parent, []).append(other.id)
    return points


def _forked(checkpoint: Checkpoint, forks: dict[str, list[str]]) -> list[Part]:
    names = forks.get(checkpoint.id)
    return [Paint(f" -> {number(len(names), 'fork')}: {', '.join(names)}", "blue")] if names else []
