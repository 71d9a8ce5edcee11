"""Rows, and the one table that they are printed in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUIET = 0.5
HEADINGS = ("measure", "of", "ours", "spread", "reach", "", "floor", "peers")


class Row(NamedTuple):
    """One figure of a measure."""

    measure: str
    of: str
    value: float
    unit: str = "×"
    reach: float | None = None
    low: float | None = None
    high: float | None = None
    floor: str = ""
    peers: str = ""
    is_rate: bool = False
    """Whether more is better."""

    @property
    def is_reached(self) -> bool | None:
        """Whether the figure is what it should be; None where nothing is asked."""
        if self.reach is None:
            return None
        return self.value >= self.reach if self.is_rate else self.value <= self.reach


class Scale(NamedTuple):
    """How much is measured."""

    quick: bool = False
    workdir: str = "/tmp"

    def of(self, full: int, quick: int) -> int:
        """Return a number of laps, files or messages."""
        return quick if self.quick else full


def shown(value: float) -> str:
    """Return a figure with three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells(row: Row) -> list[str]:
    """Return a row as the table shows it."""
    spread = "" if row.low is None or row.high is None else f"{shown(row.low)}–{shown(row.high)}"
    sign = "≥" if row.is_rate else "≤"
    reach = "" if row.reach is None else f"{sign} {row.reach:g}"
    verdict = {True: "reached", False: "MISSED", None: ""}[row.is_reached]
    return [row.measure, row.of, f"{shown(row.value)} {row.unit}", spread, reach, verdict, row.floor, row.peers]


def table(rows: Sequence[Row]) -> str:
    """Return an aligned table that is Markdown as well; a measure is named in its first row only."""
    lines = [list(HEADINGS)]
    last = None
    for row in rows:
        lines.append(cells(row._replace(measure="" if row.measure == last else row.measure)))
        last = row.measure
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )


def summary(rows: Iterable[Row]) -> str:
    """Return how many of the figures that are asked for were reached."""
    asked = [row for row in rows if row.reach is not None]
    return f"{sum(bool(row.is_reached) for row in asked)} of {len(asked)} figures reached"


def load_line(when: str) -> str:
    """Return the machine's load, with a warning where wall times say little because of it."""
    load = os.getloadavg()[0]
    warning = "" if load <= QUIET else f": over {QUIET}, so of the times only ratios of CPU say something"
    return f"load {when}: {load:.2f} on {os.cpu_count()} cores{warning}"
