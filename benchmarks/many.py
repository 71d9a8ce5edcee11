"""What must not grow with the number of runs in a store: pruning per run, listing 50, deleting one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.table import Row, Scale
from benchmarks.turns import Laps

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of few and of many runs."""
    few, many = scale.of(1_000, 20), scale.of(10_000, 60)
    took: dict[int, dict[str, Laps]] = {}
    for runs, reach in ((few, 0.5), (many, 5)):
        with (
            tempfile.TemporaryDirectory(dir=scale.workdir) as name,
            holdfast.open(Path(name) / "store.db", interval_s=None, durability="process") as hf,
        ):
            for number in range(runs):
                run = hf.run(f"run-{number}")
                for turn in range(2):
                    run.checkpoint(state={"step": turn})
                run.close()
            laps = took[runs] = {one: Laps() for one in ("prune", "list", "delete")}
            laps["prune"].lap(lambda hf=hf: hf.prune(dry_run=True))
            for number in range(scale.of(30, 3)):
                laps["list"].lap(lambda hf=hf: list(hf.runs(limit=50)))
                laps["delete"].lap(hf.delete_run, f"run-{number}")
        yield Row(f"prune, dry run, {runs:,} runs", "CPU", laps["prune"].cpu[0], "s", reach)
    for what, measure in (("list", "runs(limit=50)"), ("delete", "delete_run")):
        cpu = {runs: laps[what].cpu_ms for runs, laps in took.items()}
        flat = cpu[many] / cpu[few]
        yield Row(measure, f"CPU at {many:,} ÷ {few:,} runs", flat, "×", 1.3, floor=f"{cpu[few]:.2f} ms")
