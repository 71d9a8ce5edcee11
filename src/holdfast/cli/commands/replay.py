"""Step through a run by its record, forwards and backwards, with state and files; no agent is called.

On a terminal: next, back, to N, state [SECTION], files, cat PATH, fork NEW, quit. Elsewhere every step is listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import told
from holdfast.cli.escape import json_text
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import duration, number
from holdfast.documents import plain
from holdfast.errors import HoldfastError, ReplayEnded

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.recovery.replay import Replay, ReplayedStep

_COLOURS = {"done": "green", "failed": "red", "skipped": "dim"}
_HELP = "next, back, to N or STEP, state [SECTION], files, cat PATH, fork NEW, quit"


def configure(parser: CommandParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="RUN|CHECKPOINT",
        help="the run, or a checkpoint or position (RUN#812) up to which it is replayed",
    )
    parser.add_argument("--list", action="store_true", help="list every step, on a terminal, too")


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    replay = session.hf.replay(arguments.checkpoint)
    if out.json or arguments.list or not (out.interactive and session.ask.can_ask):
        steps = [replay.next() for _ in range(len(replay))]
        out.document({"run": replay.run_id, "steps": [plain(one) for one in steps]})
        rows = [row for one in steps for row in (*map(_event_row, one.events), _row(one))]
        out.table(rows, ("STEP", "", "TOOK", "POSITION", "RESULT"))
        if not steps:
            out.note("No steps are recorded.")
        return 0
    out.line(f"{replay.run_id}: {number(len(replay), 'recorded step')}. {_HELP}.")
    while True:
        line = session.ask.line(f"[{replay.position}/{len(replay)}] ")
        if line is None or not _done(line, replay, session):
            out.line()
            return 0


def _done(line: str, replay: Replay, session: Session) -> bool:
    """Do what a person typed; False ends it."""
    out = session.out
    word, _, rest = line.strip().partition(" ")
    word = word.lower()
    if word in ("q", "quit", "exit"):
        return False
    try:
        _do(word, rest.strip(), replay, session)
    except ReplayEnded:
        out.line("The record ends here.")
    except HoldfastError as error:
        out.line(Paint(told(error), "red"))
    return True


def _do(word: str, rest: str, replay: Replay, session: Session) -> None:
    out = session.out
    if word in ("", "n", "next"):
        _show(replay.next(), session)
    elif word in ("b", "back"):
        _show(replay.back(), session)
    elif word in ("t", "to"):
        _show(replay.to(int(rest) if rest.isdecimal() else rest), session)
    elif word in ("s", "state"):
        found = replay.state
        shown: Any = found.get(rest) if rest else found
        out.block(json_text(plain(shown)))
        _note(replay, session)
    elif word in ("f", "files"):
        for one in replay.files:
            out.line(one.path)
        _note(replay, session)
    elif word == "cat":
        out.block(replay.read(rest).decode("utf-8", "surrogateescape"))
    elif word == "fork":
        first = replay.fork(rest)
        out.line(f"{first.run} begins at step {replay.position}.")
    else:
        out.line(_HELP)


def _show(step: ReplayedStep | None, session: Session) -> None:
    if step is None:
        session.out.line("Before the first step.")
        return
    for event in step.events:
        session.out.line("   ", Paint(event, "dim"))
    session.out.line(
        f"{step.number}. ",
        Paint(step.step, "bold"),
        " ",
        Paint(step.event, _COLOURS.get(step.event, "")),
        f" ({duration(step.duration_s)})",
        f" [{step.phase}]" if step.phase else "",
    )
    if step.error:
        session.out.line("   ", Paint(step.error, "red"))
    elif step.result is not None:
        session.out.block("   " + json_text(plain(step.result)).replace("\n", "\n   "))


def _note(replay: Replay, session: Session) -> None:
    if replay.note:
        session.out.line(Paint(replay.note, "yellow"))


def _event_row(event: str) -> list[Cell]:
    kind, _, what = event.partition(" ")
    return [Cell.of(Paint(kind, "dim")), *map(Cell.of, ("", "", "", what))]


def _row(one: ReplayedStep) -> list[Cell]:
    import json  # noqa: PLC0415

    result = one.error or (json.dumps(plain(one.result), ensure_ascii=False) if one.result is not None else "")
    return [
        Cell.of(Paint(one.step, "bold")),
        Cell.of(Paint(one.event, _COLOURS.get(one.event, ""))),
        Cell.of(duration(one.duration_s), right=True),
        Cell.of(one.place),
        Cell.of(result if len(result) <= 200 else result[:197] + "..."),  # noqa: PLR2004
    ]
