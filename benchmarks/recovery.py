"""`python -m benchmarks.recovery`: how fast a killed run is on its feet again, and what planning and comparing cost.

Resume: a workflow of 1,000 steps and a state of 2 MB is killed with SIGKILL; a new process is timed from its start to
the first step that is new. Beside it stand a process that only starts, imports, opens the store and decodes the two
sections, and DBOS on SQLite recovering a workflow of as many steps. Plan: over 50,000 files, beside a scan of them.
Diff: two states of 2 MB, one message changed and one added.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import holdfast

STEPS = 1_000
ROUNDS = 5
FILES = 50_000

MOVING = """
import os, signal, sys, time
import holdfast

class State:
    def __init__(self): self.messages = []
    def snapshot(self): return {"messages": self.messages}
    def restore(self, value): self.messages = value["messages"]

def work(number):
    if number == COUNT:
        print(time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": number, "text": "x" * 50}

COUNT = int(sys.argv[2])
with holdfast.open(sys.argv[1], interval_s=None).run("r") as run:
    state = run.register("state", State())
    if not state.messages:
        state.messages = [{"role": "agent", "number": n, "content": os.urandom(1000).hex()} for n in range(1000)]
    for number in range(COUNT + 1):
        run.step(f"step-{number}", work, number)
"""
DECODING = """
import sys, time
import holdfast
hf = holdfast.open(sys.argv[1], interval_s=None)
latest = hf.latest("r")
latest.section("steps"), latest.section("state")
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


def started(source, *arguments):
    """Return the seconds from the start of a process to the moment that it prints."""
    begun = time.time()
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode not in (0, -signal.SIGKILL) or not done.stdout:
        raise RuntimeError(done.stderr[-2_000:])
    return float(done.stdout.split()[-1]) - begun


def resume(folder):
    """Return medians of resuming, of decoding alone, and of DBOS where it is installed."""
    place = folder / "store.db"
    started(MOVING, place, STEPS)
    figures = {"resume": [], "decode": [], "dbos": []}
    database = folder / "dbos.db"
    try:
        started(DBOS, database, STEPS, "first")
    except RuntimeError as error:
        print(f"DBOS is left out: {error}", file=sys.stderr)
    for _ in range(ROUNDS):
        figures["decode"].append(started(DECODING, place))
        figures["resume"].append(started(MOVING, place, STEPS))
        if database.exists():
            figures["dbos"].append(started(DBOS, database, STEPS))
    return {name: statistics.median(values) for name, values in figures.items() if values}


def planning(folder):
    """Return the seconds of a plan over many files and of a scan of them, which the plan holds."""
    tree = folder / "tree"
    for number in range(FILES):
        path = tree / f"d{number % 500}" / f"f{number}.txt"
        if number < 500:
            path.parent.mkdir(parents=True)
        path.write_text(f"file {number}\n" * 5)
    scans, plans = [], []
    with holdfast.open(folder / "files.db", interval_s=None) as hf:
        run = hf.run("r", workspace=tree)
        first = run.checkpoint(state=1)
        (tree / "d1" / "f1.txt").write_text("changed\n")
        run.checkpoint(state=2)
        time.sleep(0.2)  # a scan reads again what is younger than the clock's grain
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            run.workspace.changes()
            scans.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            hf.plan(first.id, workspace=tree)
            plans.append(time.perf_counter() - begun)
    return statistics.median(plans), statistics.median(scans)


def comparing(folder):
    """Return the seconds of a diff of two states of 2 MB."""
    messages = [{"role": "agent", "number": n, "content": os.urandom(1_000).hex()} for n in range(1_000)]
    other = [*messages[:500], {**messages[500], "content": "changed"}, *messages[501:], {"role": "agent", "number": -1}]
    laps = []
    with holdfast.open(folder / "diff.db", interval_s=None) as hf:
        run = hf.run("r")
        old = run.checkpoint(state={"messages": messages, "step": 1})
        new = run.checkpoint(state={"messages": other, "step": 2})
        for _ in range(2 * ROUNDS):
            begun = time.perf_counter()
            hf.diff(old.id, new.id)
            laps.append(time.perf_counter() - begun)
    return statistics.median(laps)


def main():
    folder = Path(tempfile.mkdtemp())
    try:
        lives = resume(folder)
        plan_s, scan_s = planning(folder)
        diff_s = comparing(folder)
    finally:
        shutil.rmtree(folder)
    figures = {
        "resume_s": lives["resume"],
        "decode_s": lives["decode"],
        "resume_over_decode": lives["resume"] / lives["decode"],
        "dbos_s": lives.get("dbos"),
        "dbos_over_resume": lives["dbos"] / lives["resume"] if "dbos" in lives else None,
        "plan_s": plan_s,
        "plan_over_scan": plan_s / scan_s,
        "diff_ms": 1_000 * diff_s,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
