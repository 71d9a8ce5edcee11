"""Tell what a run cost: tokens, money and time by call, agent and phase.

"On this path" is what the run builds on now; "in all" is everything it ever did, also what it went back behind, as
limits count it. What stands in no call was spent outside of one, or by one whose process was killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.output import Cell, Paint
from holdfast.cli.times import duration
from holdfast.documents import plain

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.runtime.cost import Cost


def configure(parser: CommandParser) -> None:
    script.add_shown_run(parser)
    parser.add_argument("--calls", action="store_true", help="every call, also those that cost time alone")


def execute(arguments: Namespace, session: Session) -> int:
    out = session.out
    run = script.shown_run(session, arguments)
    cost = session.hf.cost(run)
    out.document(plain(cost))
    rows: list[list[Cell]] = []
    for one in cost.calls:
        if arguments.calls or _has_price(one.cost):
            told = ", ".join(
                [one.status] * (one.status != "done")
                + [f"{one.attempts} attempts"] * (one.attempts > 1)
                + ["not on this path"] * (not one.on_path)
            )
            rows.append(_row("call", one.call, one.cost, told))
    rows += [_row("agent", name, one) for name, one in cost.agents.items()]
    rows += [_row("phase", name, one) for name, one in cost.phases.items()]
    if _has_price(cost.outside):
        rows.append(_row("no call", "", cost.outside, "spent outside of calls, or by one that was killed"))
    rows += [_row("on this path", "", cost.on_path), _row("in all", "", cost.in_all)]
    out.table(rows, ("", "", "TOKENS", "MONEY", "TOOL CALLS", "TIME", ""))
    return 0


def _has_price(cost: Cost) -> bool:
    return bool(cost.tokens or cost.money or cost.tool_calls)


def _row(what: str, name: str, cost: Cost, told: str = "") -> list[Cell]:
    return [
        Cell.of(Paint(what, "dim")),
        Cell.of(name),
        Cell.of(f"{cost.tokens:,}" if cost.tokens else "-", right=True),
        Cell.of(f"{cost.money:g}" if cost.money else "-", right=True),
        Cell.of(f"{cost.tool_calls:,}" if cost.tool_calls else "-", right=True),
        Cell.of(duration(cost.time_s) if cost.time_s else "-", right=True),
        Cell.of(told),
    ]
