"""What Holdfast sets out to reach on the conversation, and whether it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.subjects import HOLDFAST
from benchmarks.table import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rounds import Row

DELTA = "langgraph-delta"


class Target(NamedTuple):
    """A figure and the most it may be."""

    claim: str
    figure: str
    limit: float


TARGETS = (
    Target("p50 ÷ floor's p50", "p50_floors", 4.0),
    Target("CPU of the last 100 ÷ first 100", "cpu_growth", 1.5),
    Target("bytes on disk ÷ unique payload", "stored_uniques", 3.0),
    Target("fsync calls a checkpoint", "fsyncs", 1.1),
    Target("latest ÷ decoding alone", "latest_decodes", 1.5),
    Target("old checkpoint ÷ decoding alone", "old_decodes", 1.5),
    Target("delete the run, s", "delete_s", 1.0),
    Target("memory for saving ÷ state", "save_memory_states", 3.0),
    Target("memory for loading ÷ state", "load_memory_states", 3.0),
)


def target_lines(rows: Sequence[Row]) -> list[str]:
    """Return one line for each target at the longest conversation measured."""
    own = [row for row in rows if row.subject == HOLDFAST and row.figures]
    if not own:
        return []
    row = max(own, key=lambda candidate: candidate.steps)
    targets = [*TARGETS, *_against_delta(rows, row.steps)]
    lines = [f"Targets at {row.steps:,} steps (they are meant for 3,000):"]
    return lines + [_line(target, row.figures.get(target.figure)) for target in targets]


def _against_delta(rows: Sequence[Row], steps: int) -> list[Target]:
    p50s = [row.figures.get("p50_ms") for row in rows if (row.subject, row.steps) == (DELTA, steps)]
    return [Target(f"p50, ms, no more than {DELTA}", "p50_ms", p50) for p50 in p50s if p50]


def _line(target: Target, value: float | None) -> str:
    verdicts = {None: "not measured", True: "reached", False: "MISSED"}
    verdict = verdicts[None if value is None else value <= target.limit]
    return f"  {verdict:<12} {target.claim}: {number(value)} (at most {number(target.limit)})"
