"""`python -m benchmarks.flows`: what a flow costs for each trivial shell task beside starting the command itself.

Beside it the least that keeps what was done: the command, then one SQLite row with its output, synced. All take turns,
and the median of the rounds counts. Then 1,000 tasks in one phase: do the last cost more than the first?
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import apsw

import holdfast
from holdfast.flow.load import flow_from

TASKS = 200
MANY = 1_000
ROUNDS = 5


def a_task(call, count=TASKS):
    """Return the seconds that each of so many took."""
    begun = time.perf_counter()
    call(count)
    return (time.perf_counter() - begun) / count


def commands(count):
    for _ in range(count):
        subprocess.run(["sh", "-c", "true"], capture_output=True, check=True)


def kept_commands(folder, count):
    connection = apsw.Connection(str(folder / "floor.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", 2)
    connection.execute("CREATE TABLE task (name TEXT PRIMARY KEY, output BLOB)")
    for number in range(count):
        done = subprocess.run(["sh", "-c", "true"], capture_output=True, check=True)
        connection.execute("INSERT INTO task VALUES (?, ?)", (f"t{number}", done.stdout))
    connection.close()


def flow(hf, name, parallel, count, observer=None):
    tasks = {f"t{number}": "true" for number in range(count)}
    made = flow_from({"flow": name, "phases": {"p": {"parallel": parallel, "tasks": tasks}}})
    assert holdfast.run_flow(hf, made, observer=observer).status == "completed"


def growth(hf):
    """Return how much more the last hundred of 1,000 tasks took than the first, one at a time."""
    ends = []
    flow(hf, "many", 1, MANY, lambda event: ends.append(time.perf_counter()) if event.kind == "task_done" else None)
    laps = [after - before for before, after in itertools.pairwise(ends)]
    return statistics.median(laps[-100:]) / statistics.median(laps[:100]), statistics.median(laps)


def main():
    figures = {"command": [], "kept": [], "one_at_a_time": [], "four_at_once": []}
    folder = Path(tempfile.mkdtemp())
    try:
        with holdfast.open(folder / "flows.db", interval_s=None) as hf:
            flow(hf, "warm", 1, 2)
            for number in range(ROUNDS):
                place = folder / str(number)
                place.mkdir()
                figures["command"].append(a_task(commands))
                figures["kept"].append(a_task(partial(kept_commands, place)))
                figures["one_at_a_time"].append(a_task(partial(flow, hf, f"one{number}", 1)))
                figures["four_at_once"].append(a_task(partial(flow, hf, f"four{number}", 4)))
            grown, many = growth(hf)
    finally:
        shutil.rmtree(folder)
    ms = {name: 1_000 * statistics.median(values) for name, values in figures.items()}
    ms["one_at_a_time_of_1000"] = 1_000 * many
    ratios = {f"{name}_over_command": value / ms["command"] for name, value in ms.items() if name != "command"}
    print(json.dumps({"ms": ms, "ratios": {**ratios, "last_over_first_of_1000": grown}}, indent=2))


if __name__ == "__main__":
    main()
