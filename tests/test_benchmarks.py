"""The benchmarks run: each part, in its quick form. No test asserts a time."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as benchmarks  # noqa: E402 - the benchmarks are no installed package
from benchmarks.table import Row, Scale, table  # noqa: E402


@pytest.mark.parametrize("part", benchmarks.PARTS)
def test_every_part_of_the_benchmarks_yields_rows(part):
    rows = benchmarks.measured(part, Scale(quick=True, workdir=tempfile.gettempdir()))
    if part == "langgraph" and not rows:
        pytest.skip("LangGraph is not installed here")
    assert rows
    assert all(row.value >= 0 for row in rows)
    assert len(table(rows).splitlines()) == len(rows) + 2


def test_every_module_of_the_benchmarks_is_part_of_the_table_or_used_by_one():
    used = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    apart = {"web", "workers"}  # commands of their own: they need a browser, or queue engines
    for module in used.keys() - {"__init__", "__main__", *apart, *benchmarks.PARTS}:
        assert any(f"benchmarks.{module} import" in text for text in used.values()), module


def test_a_figure_is_reached_or_missed_by_what_is_asked():
    assert Row("m", "wall", 1.4, reach=1.5).is_reached
    assert not Row("m", "wall", 1.6, reach=1.5).is_reached
    assert Row("m", "rate", 1.6, reach=1.5, is_rate=True).is_reached
    assert Row("m", "wall", 1.6).is_reached is None
