"""The first calls of a process, and one-shot commands over a store of many checkpoints: CPU of a process of its own."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.processes import run_process
from benchmarks.table import Row, Scale
from benchmarks.turns import Laps

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "listed"
COMMANDS = {
    "ls": ("ls",),
    "log -n 20": ("log", RUN, "-n", "20"),
    "status": ("status", RUN),
    "show": ("show", f"{RUN}@7"),
}
FIRST = """
import sys, time
import holdfast
begun = time.process_time()
hf = holdfast.open(sys.argv[1], interval_s=None)
opened = time.process_time()
run = hf.run("first")
run.checkpoint(state={"messages": ["hello"], "step": 1})
saved = time.process_time()
print(opened - begun, saved - opened)
"""


def make_store(folder: Path, checkpoints: int) -> Path:
    """Make a store with a run of so many checkpoints; nobody waits for the disk."""
    (folder / ".holdfast").mkdir()
    place = folder / ".holdfast" / "holdfast.db"
    with holdfast.open(place, interval_s=None, durability="process") as hf:
        run = hf.run(RUN)
        for number in range(checkpoints):
            run.checkpoint(reason=f"step {number}", state={"step": number})
    return place


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of the first calls, of commands and of lists."""
    rounds, checkpoints = scale.of(9, 1), scale.of(100_000, 200)
    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        took: dict[str, list[float]] = {}
        for number in range(rounds):
            said = run_process("-c", FIRST, str(folder / f"first-{number}.db")).said.split()
            took.setdefault("python", []).append(run_process("-c", "pass").cpu)
            for which, seconds in zip(("open", "save"), said, strict=True):
                took.setdefault(which, []).append(float(seconds))
        python = f"python {1_000 * statistics.median(took['python']):.0f} ms"
        for which, measure, reach in (("open", "first open() of a process", 60), ("save", "first save", 20)):
            yield _ms(measure, took[which], reach, python)
        place = make_store(folder, checkpoints)
        took = {command: [] for command in COMMANDS}
        for _ in range(rounds):
            for command, arguments in COMMANDS.items():
                took[command].append(run_process("-m", "holdfast", *arguments, folder=folder).cpu)
        for command in COMMANDS:
            yield _ms(f"holdfast {command}, {checkpoints:,} checkpoints", took[command], 100, python)
        with holdfast.open(place, interval_s=None) as hf:
            laps = Laps()
            for _ in range(scale.of(50, 5)):
                laps.lap(lambda: list(hf.checkpoints(RUN, limit=50)))
            yield Row(f"50 of {checkpoints:,} checkpoints listed", "CPU", laps.cpu_ms, "ms", 5)
            laps = Laps()
            for _ in range(scale.of(3, 1)):
                assert laps.lap(hf.verify).sound
            yield Row(f"verify of {checkpoints:,} checkpoints", "CPU", min(laps.cpu), "s", 3)


def _ms(measure: str, seconds: list[float], reach: float, python: str) -> Row:
    low, middle, high = (1_000 * one for one in (min(seconds), statistics.median(seconds), max(seconds)))
    return Row(measure, "CPU", middle, "ms", reach, low, high, floor=python)
