"""Show a run's checkpoints, newest first, as a graph: what each was taken on, what was rewound, what was forked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli import script
from holdfast.cli.describe import marks, position, trigger
from holdfast.cli.filters import add_filters, filters_of
from holdfast.cli.graph import LogGraph
from holdfast.cli.ids import Short
from holdfast.cli.output import Paint
from holdfast.cli.times import age, number
from holdfast.documents import checkpoint_document
from holdfast.errors import UsageError
from holdfast.model.triggers import Trigger
from holdfast.store.tables import MAIN

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.output import Part
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session

_PAGE = 100


def configure(parser: CommandParser) -> None:
    script.add_shown_run(parser)
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="show at most so many")
    parser.add_argument("--positions", action="store_true", help="show the journal number of each, for RUN#NUMBER")
    parser.add_argument("--names", action="store_true", help="show the name of each for people: phase, time, digits")
    parser.add_argument("-a", "--archived", action="store_true", help="show archived ones, too")
    parser.add_argument("--line", metavar="LINE", default=MAIN, help="another line of the run than main")
    parser.add_argument("--phase", metavar="PHASE", help="only those in this phase, no graph")
    parser.add_argument("--status", metavar="STATUS", help="only those that are valid, archived, expired or corrupted")
    add_filters(
        parser,
        prefix="only those whose key, label or id begins so",
        text="only those with this text in reason, label, phase, key or attributes",
    )
    parser.add_argument(
        "--trigger", metavar="NAME", choices=tuple(map(str, Trigger)), help="only those that this caused, no graph"
    )


def execute(arguments: Namespace, session: Session) -> int:
    hf, out = session.hf, session.out
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: give a number from 0 up")
    run = script.shown_run(session, arguments)
    filters = filters_of(arguments, session.now(), "trigger", "phase", "status")
    rows = _rows(session, run, arguments, filters)
    if out.json:
        out.document({"run": run, "head": hf.store.run(run).head, "checkpoints": [*map(checkpoint_document, rows)]})
        return 0
    graph = LogGraph(lambda checkpoint: hf.store.tombstone(run, checkpoint) is not None)
    head = hf.store.run(run).head
    short = Short()
    with out.paged():
        for checkpoint in rows:
            lanes = "*"
            if not filters:
                row = graph.row(checkpoint.id, _parent_in_run(checkpoint))
                lanes = row.lanes
                for line in row.above:
                    out.line(Paint(line, "dim"))
            out.line(
                lanes,
                " ",
                *_said(
                    checkpoint,
                    session,
                    short,
                    is_head=checkpoint.id == head,
                    positions=arguments.positions,
                    names=arguments.names,
                ),
                *_forked(checkpoint, session),
            )
    return 0


def _rows(session: Session, run: str, arguments: Namespace, filters: dict[str, Any]) -> Iterator[Checkpoint]:
    """Yield the checkpoints a page at a time, so that the first are on the screen before the last are read."""
    left = arguments.limit
    before: int | None = None
    while left is None or left > 0:
        # No more than is asked for: where retention has archived most of a run, a full page is far to read.
        size = _PAGE if left is None else min(left, _PAGE)
        page = session.hf.checkpoints(
            run, limit=size, before_seq=before, archived=arguments.archived, line=arguments.line, **filters
        )
        for checkpoint in page:
            yield checkpoint
            left = left if left is None else left - 1
            if left == 0:
                return
        if len(page) < size:
            return
        before = page[-1].seq


def _parent_in_run(checkpoint: Checkpoint) -> str | None:
    """Return the parent, None where the run was begun: a fork's parent is in another run."""
    if checkpoint.seq == 1 or checkpoint.parent is None:
        return None
    return checkpoint.parent


def _said(
    checkpoint: Checkpoint, session: Session, short: Short, *, is_head: bool, positions: bool, names: bool
) -> list[Part]:
    said: list[Part] = [Paint(short(checkpoint.id), "yellow"), f" @{checkpoint.seq} "]
    if positions:
        said.append(f"#{checkpoint.number} ")
    if is_head:
        said += [Paint("(head)", "cyan"), " "]
    said += [*marks(checkpoint), trigger(checkpoint.trigger), " "]
    if checkpoint.line != MAIN:
        said.append(f"line {checkpoint.line} ")
    text = checkpoint.reason or position(checkpoint)
    if text:
        said.append(text.split("\n")[0] + " ")
    if not checkpoint.recovery.can_resume:
        said += [Paint("cannot resume", "red"), " "]
    if checkpoint.seq == 1 and checkpoint.parent is not None:
        said += [Paint(f"forked from {short(checkpoint.parent)}", "blue"), " "]
    said.append(Paint(age(checkpoint.created_at, session.now()), "dim"))
    if names:
        said.append(f" {checkpoint.readable_id}")
    return said


def _forked(checkpoint: Checkpoint, session: Session) -> list[Part]:
    """Name the runs that were begun from a checkpoint."""
    names = session.hf.store.forks_of(checkpoint.id)
    return [Paint(f" -> {number(len(names), 'fork')}: {', '.join(names)}", "blue")] if names else []
