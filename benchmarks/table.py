"""Plain aligned tables, readable on a terminal and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.subjects import FLOOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rounds import Row

ABSENT = "-"
UNQUIET = 1.6


class Column(NamedTuple):
    """A column: its heading, the figure it shows, and that figure's divisor."""

    heading: str
    figure: str
    divisor: float = 1.0


COLUMNS = (
    Column("p50 ms", "p50_ms"),
    Column("x floor", "p50_floors"),
    Column("p99 ms", "p99_ms"),
    Column("CPU first 100", "cpu_first_ms"),
    Column("last 100", "cpu_last_ms"),
    Column("last ÷ first", "cpu_growth"),
    Column("KB/ckpt", "checkpoint_bytes", 1e3),
    Column("MB", "stored_bytes", 1e6),
    Column("x unique", "stored_uniques"),
    Column("fsyncs", "fsyncs"),
    Column("latest ms", "latest_ms"),
    Column("x decode", "latest_decodes"),
    Column("old ms", "old_ms"),
    Column("x decode", "old_decodes"),
    Column("list 50 ms", "list_ms"),
    Column("delete s", "delete_s"),
    Column("MB left", "left_bytes", 1e6),
    Column("RSS save", "save_memory_states"),
    Column("RSS load", "load_memory_states"),
)
LEGEND = (
    "Times are medians; p50, p99 and CPU are per checkpoint, in ms. x floor: of the same round. "
    "x unique: of the\nbytes of all messages and context changes. x decode: of decoding the same "
    "state from memory with msgspec. RSS: growth\nof the peak while saving or loading, in sizes "
    "of the final state. floor and dbos-sqlite keep the messages only."
)


def conversation_table(rows: Sequence[Row]) -> str:
    """Return the table of a conversation benchmark with its legend and notes."""
    cells = [[_steps(row), row.subject, *_figures(row)] for row in rows]
    headings = ["steps", "subject", *(column.heading for column in COLUMNS)]
    notes = [f"{row.subject}, {row.steps:,} steps: {row.note}" for row in rows if row.note]
    notes += [
        f"{row.subject}, {row.steps:,} steps: measured at {row.measured_steps:,} only"
        for row in rows
        if row.measured_steps != row.steps and not row.note
    ]
    return "\n".join([render(headings, cells), "", LEGEND, *notes, *_unquiet(rows)])


def render(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return an aligned table, numbers to the right."""
    lines = [headings, *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(headings))]
    rule = ["-" * width for width in widths]
    return "\n".join(_line(line, widths) for line in (headings, rule, *cells))


def number(value: float | None) -> str:
    """Return a figure with three significant digits."""
    if value is None:
        return ABSENT
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _unquiet(rows: Sequence[Row]) -> list[str]:
    """Return a warning for each length at which the floor itself was not steady."""
    warnings = []
    for row in rows:
        p50s = [p50 for figures in row.rounds if (p50 := figures["p50_ms"])]
        if row.subject == FLOOR and p50s and max(p50s) > UNQUIET * min(p50s):
            spread = f"from {number(min(p50s))} to {number(max(p50s))} ms"
            warnings.append(f"{row.steps:,} steps: the floor's p50 went {spread}; the disk was not quiet")
    return warnings


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        cell.ljust(width) if place == 1 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(aligned)} |"


def _steps(row: Row) -> str:
    capped = row.measured_steps != row.steps
    return f"{row.steps:,} (at {row.measured_steps:,})" if capped else f"{row.steps:,}"


def _figures(row: Row) -> list[str]:
    values = [row.figures.get(column.figure) for column in COLUMNS]
    return [
        number(None if value is None else value / column.divisor) for column, value in zip(COLUMNS, values, strict=True)
    ]
