"""How fast a killed run works again, what planning and comparing cost, and the commits of a small flow."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from benchmarks.table import Row, Scale
from benchmarks.turns import Laps

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKING = """
import os, signal, sys, time
import holdfast

COUNT = int(sys.argv[2])

def work(number):
    if number == COUNT:
        print(time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": number, "text": "x" * 50}

class State:
    def __init__(self): self.messages = []
    def snapshot(self): return {"messages": self.messages}
    def restore(self, value): self.messages = value["messages"]

with holdfast.open(sys.argv[1], interval_s=None).run("r") as run:
    state = run.register("state", State())
    if not state.messages:
        state.messages = [{"number": n, "content": os.urandom(1000).hex()} for n in range(1000)]
        run.checkpoint()
    for number in range(COUNT + 1):
        run.step(f"step-{number}", work, number)
"""
DECODING = """
import sys, time
import holdfast
hf = holdfast.open(sys.argv[1], interval_s=None)
assert len(hf.latest("r").section("state")["messages"]) == 1000
print(time.time(), flush=True)
"""
DBOS = """
import os, signal, sys, time
from dbos import DBOS, SetWorkflowID

url = "sqlite:///" + sys.argv[1]
DBOS(config={"name": "steps", "system_database_url": url, "application_version": "1", "log_level": "ERROR"})
COUNT = int(sys.argv[2])

def work(number):
    if number == COUNT:
        print(time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": number, "text": "x" * 50}

@DBOS.workflow()
def flow():
    for number in range(COUNT + 1):
        DBOS.run_step({"name": "work"}, work, number)

DBOS.launch()
if len(sys.argv) > 3:
    with SetWorkflowID("w"):
        flow()
time.sleep(60)
"""


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of resuming, planning and comparing."""
    with tempfile.TemporaryDirectory(dir=scale.workdir) as name:
        folder = Path(name)
        yield _resume(folder, scale.of(1_000, 10), scale.of(5, 1))
        yield from _plan(folder, scale.of(20_000, 200), scale.of(5, 2))
        yield _diff(folder, scale.of(10, 2))


def _started(source: str, *arguments: object) -> float:
    """Return the seconds from the start of a process to the moment that it prints."""
    begun = time.time()
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode not in (0, -signal.SIGKILL) or not done.stdout:
        raise RuntimeError(done.stderr[-2_000:])
    return float(done.stdout.split()[-1]) - begun


def _resume(folder: Path, steps: int, rounds: int) -> Row:
    """Kill a run of many steps and a state of 2 MB; time a new process up to the first step that is new."""
    place, database = folder / "store.db", folder / "dbos.db"
    took: dict[str, list[float]] = {"resume": [], "decode": [], "dbos": []}
    _started(WORKING, place, steps)
    try:
        _started(DBOS, database, steps, "first")
    except RuntimeError:
        database.unlink(missing_ok=True)  # not installed
    for _ in range(rounds):
        took["decode"].append(_started(DECODING, place))
        took["resume"].append(_started(WORKING, place, steps))
        if database.exists():
            took["dbos"].append(_started(DBOS, database, steps))
    ratios = [one / other for one, other in zip(took["resume"], took["decode"], strict=True)]
    decode = statistics.median(took["decode"])
    return Row(
        f"a killed run of {steps:,} steps works again ÷ import, open, decode", "wall", statistics.median(ratios), "×",
        1.5, min(ratios), max(ratios), f"{decode:.2f} s",
        f"DBOS {statistics.median(took['dbos']) / decode:.1f} ×" if took["dbos"] else "",
    )  # fmt: skip


def _plan(folder: Path, files: int, rounds: int) -> Iterator[Row]:
    """Plan a restore over many files, in turn with a scan of them."""
    tree = folder / "tree"
    for number in range(files):
        path = tree / f"d{number % 200}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * 5)
    scan, plan = Laps(), Laps()
    with holdfast.open(folder / "files.db", interval_s=None) as hf:
        run = hf.run("r", workspace=tree)
        first = run.checkpoint(state=1)
        (tree / "d1" / "f1.txt").write_text("changed\n")
        run.checkpoint(state=2)
        time.sleep(0.2)  # a scan reads again what is younger than the clock's grain
        for _ in range(rounds):
            scan.lap(run.workspace.changes)
            plan.lap(lambda: hf.plan(first.id, workspace=tree))
    told = {"floor": f"{scan.ms:.0f} ms"}
    yield plan.cpu_over(scan).row(f"plan over {files:,} files ÷ a scan of them", "CPU", 1.2, **told)


def _diff(folder: Path, rounds: int) -> Row:
    messages = [{"role": "agent", "number": n, "content": os.urandom(1_000).hex()} for n in range(1_000)]
    other = [*messages[:500], {**messages[500], "content": "changed"}, *messages[501:], {"role": "agent", "number": -1}]
    laps = Laps()
    with holdfast.open(folder / "diff.db", interval_s=None) as hf:
        run = hf.run("r")
        old = run.checkpoint(state={"messages": messages, "step": 1})
        new = run.checkpoint(state={"messages": other, "step": 2})
        for _ in range(rounds):
            laps.lap(hf.diff, old.id, new.id)
    return Row("diff of two states of 2 MB", "CPU", laps.cpu_ms, "ms", 50)
