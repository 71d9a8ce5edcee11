"""`python -m benchmarks.steps`: what a step costs beside one commit, DBOS on SQLite and a bare SQLite commit.

Every subject keeps the same results of 2 KB, one after the other; they take turns, and the median of the rounds counts.
Then 10,000 steps in one run (does a step cost more when there are many?), and parallel steps on 1 and on 8 threads.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import apsw

import holdfast
from holdfast.encode.appended import Appended

STEPS = 600
ROUNDS = 5
MANY = 10_000
PARALLEL = 800
PAYLOADS = [os.urandom(1_000).hex() for _ in range(64)]


def work(number):
    return {"text": PAYLOADS[number % 64], "number": number}


def lapped(call, count=STEPS):
    """Return the median seconds of a call."""
    laps = []
    for number in range(count):
        begun = time.perf_counter()
        call(number)
        laps.append(time.perf_counter() - begun)
    return statistics.median(laps)


def floor(folder):
    connection = apsw.Connection(str(folder / "floor.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", 2)
    connection.execute("CREATE TABLE step (name TEXT PRIMARY KEY, result BLOB)")

    def insert(number):
        data = json.dumps(work(number)).encode()
        connection.execute("INSERT INTO step VALUES (?, ?)", (f"s{number}", data))

    try:
        return lapped(insert)
    finally:
        connection.close()


def commits(folder):
    """Return what a commit costs that adds the same 2 KB to a list, and one that replaces a state of 2 KB."""
    with holdfast.open(folder / "commit.db", interval_s=None) as hf:
        added, replaced, log = hf.run("added"), hf.run("replaced"), []

        def add(number):
            log.append(work(number))
            added.checkpoint(sections={"log": Appended(log)})

        return lapped(add), lapped(lambda number: replaced.checkpoint(state=work(number)))


def steps(folder, count=STEPS):
    with holdfast.open(folder / "steps.db", interval_s=None) as hf, hf.run("r") as run:
        return lapped(lambda number: run.step(f"s{number}", work, number), count)


def dbos(folder):
    """Measure DBOS in a process of its own: it is one of a kind in each."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.steps", "--dbos", str(folder)], capture_output=True, text=True, check=False
    )
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def dbos_steps(folder):
    from dbos import DBOS  # noqa: PLC0415 - only where it is installed

    url = f"sqlite:///{folder / 'dbos.db'}"
    DBOS(config={"name": "steps", "system_database_url": url, "application_version": "1", "log_level": "ERROR"})
    DBOS.launch()

    @DBOS.workflow()
    def flow():
        return lapped(lambda number: DBOS.run_step({"name": "work"}, work, number))

    median = flow()
    DBOS.destroy()
    return median


def growth(folder):
    """Return how much more the last tenth of 10,000 steps cost than the first."""
    laps = []
    with holdfast.open(folder / "many.db", interval_s=None) as hf, hf.run("r") as run:
        for number in range(MANY):
            begun = time.perf_counter()
            run.step(f"s{number}", work, number)
            laps.append(time.perf_counter() - begun)
    tenth = MANY // 10
    return statistics.median(laps[-tenth:]) / statistics.median(laps[20:tenth])


def rate(folder, threads):
    with holdfast.open(folder / f"parallel-{threads}.db", interval_s=None) as hf, hf.run("r") as run:
        calls = {f"p{number}": partial(work, number) for number in range(PARALLEL)}
        begun = time.perf_counter()
        run.parallel(calls, limit=threads)
        return PARALLEL / (time.perf_counter() - begun)


def main():
    if sys.argv[1:2] == ["--dbos"]:
        print(dbos_steps(Path(sys.argv[2])))
        return
    figures = {"floor": [], "commit_added": [], "commit_replaced": [], "step": [], "dbos": [], "threads": []}
    for _ in range(ROUNDS):
        folder = Path(tempfile.mkdtemp())
        try:
            figures["floor"].append(floor(folder))
            added, replaced = commits(folder)
            figures["commit_added"].append(added)
            figures["commit_replaced"].append(replaced)
            figures["step"].append(steps(folder))
            figures["dbos"].append(dbos(folder))
            figures["threads"].append(rate(folder, 8) / rate(folder, 1))
        finally:
            shutil.rmtree(folder)
    folder = Path(tempfile.mkdtemp())
    grown = growth(folder)
    shutil.rmtree(folder)
    ms = {
        name: 1_000 * statistics.median(values)
        for name, values in figures.items()
        if name != "threads" and None not in values
    }
    ratios = {
        "step_over_commit_added": ms["step"] / ms["commit_added"],
        "step_over_commit_replaced": ms["step"] / ms["commit_replaced"],
        "step_over_floor": ms["step"] / ms["floor"],
        "dbos_over_step": ms["dbos"] / ms["step"] if "dbos" in ms else None,
        "dbos_over_floor": ms["dbos"] / ms["floor"] if "dbos" in ms else None,
        "last_over_first_of_10000": grown,
        "8_threads_over_1": statistics.median(figures["threads"]),
    }
    print(json.dumps({"ms": ms, "ratios": ratios}, indent=2))


if __name__ == "__main__":
    main()
