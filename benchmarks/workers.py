"""`python -m benchmarks.workers`: runs over workers on one PostgreSQL: what a step costs, what a waiting run occupies.

A trivial step of a flow (a function of the worker's own, no files) beside a step of Absurd on the same server: rounds
take turns, so that what else the machine does hits both; the ratio counts, not the times. WAL and transactions are the
server's own counts. Then waiting runs on one worker: its memory and its connections.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

import holdfast
from holdfast.flow.load import flow_from
from holdfast.settings.values import StrategySettings
from holdfast.worker.absurd import AbsurdEngine
from holdfast.worker.delivery import Worker
from holdfast.worker.port import Delivery

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import Server

SETTINGS = holdfast.Settings()
QUEUE = "bench"


class Counts:
    """WAL and transactions of a block, and its time."""

    wal_bytes = transactions = 0
    seconds = 0.0


@contextmanager
def counted(url):
    counts = Counts()
    with psycopg.connect(url, autocommit=True) as watch:
        before = _look(watch)
        begun = time.perf_counter()
        yield counts
        counts.seconds = time.perf_counter() - begun
        wal_bytes, transactions = (now - then for now, then in zip(_look(watch), before, strict=True))
    counts.wal_bytes, counts.transactions = int(wal_bytes), int(transactions)


def _look(watch):
    """Return the server's counts; sessions tell theirs at most once a second."""
    time.sleep(1.5)
    wal = watch.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchone()[0]
    row = watch.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return wal, row[0]


def flow_steps(url, name, steps, root, settings=SETTINGS):
    """Advance a run of so many tasks, one after the other, each one trivial call, as a worker does."""
    tasks = {f"t{n}": {"call": "bench:step"} for n in range(steps)}
    made = flow_from({"flow": name, "phases": {"work": {"parallel": 1, "tasks": tasks}}}, "bench")
    with holdfast.open(url, settings=SETTINGS) as hf:
        engine = AbsurdEngine(url)
        hf.submit(made, queue=QUEUE, engine=engine)
        engine.close()
    worker = Worker(
        lambda _carried: holdfast.open(url, settings=settings), root, functions={"bench:step": lambda _call: None}
    )
    with counted(url) as counts:
        outcome = worker.handle(Delivery(name, 1, threading.Event()))
    assert outcome.status == "completed", outcome
    return counts


def journal_steps(url, name, steps, root):
    """Advance it with a checkpoint at the end of a phase only: a step is a record of the journal."""
    return flow_steps(url, name, steps, root, holdfast.Settings(strategy=StrategySettings(phases=[])))


def absurd_steps(url, name, steps, *_):
    """Do the same with Absurd alone: one checkpoint a step."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT absurd.create_queue('alone')")
        connection.execute("SELECT absurd.spawn_task('alone', 'bench', %s)", (json.dumps({"run": name}),))
        run, task = connection.execute("SELECT run_id, task_id FROM absurd.claim_task('alone', 'w', 30, 1)").fetchone()
        with counted(url) as counts:
            for number in range(steps):
                connection.execute(
                    "SELECT absurd.set_task_checkpoint_state('alone', %s, %s, 'null', %s, 30)",
                    (task, f"p{number}", run),
                )
            connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT absurd.complete_run('alone', %s)", (run,))
    return counts


def compare(url, rounds, steps):
    kinds = {"checkpoint a step": flow_steps, "checkpoint a phase": journal_steps, "absurd": absurd_steps}
    found = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as root:
        for number in range(rounds):
            for kind, measure in kinds.items():
                found[kind].append(measure(url, f"{kind.replace(' ', '-')}-{number}", steps, Path(root)))
    for kind, rows in found.items():
        wal, transactions, rate, ratio = (
            statistics.median(values)
            for values in (
                [one.wal_bytes / steps for one in rows],
                [one.transactions / steps for one in rows],
                [steps / one.seconds for one in rows],
                [absurd.seconds / one.seconds for absurd, one in zip(found["absurd"], rows, strict=True)],
            )
        )
        said = f"{wal:7,.0f} bytes of WAL, {transactions:5.2f} transactions, {rate:7.1f} steps/s"
        print(f"{kind:18} {said}, {ratio:.2f} of Absurd's", flush=True)


def waiting(url, runs):
    """Let one worker bring so many runs to their wait, and say what it occupies then."""
    made = {"phases": {"ask": {"approve": "Continue?", "call": "bench:step"}}}
    engine = AbsurdEngine(url)
    with holdfast.open(url, settings=SETTINGS) as hf:
        for number in range(runs):
            hf.submit(flow_from({"flow": f"wait-{number}", **made}, "bench"), queue="waiting", engine=engine)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bench.py").write_text("def step(call):\n    return None\n")
        line = [sys.executable, "-m", "holdfast", "--store", url, "worker", "--queue", "waiting", "--root", folder]
        worker = subprocess.Popen([*line, "--functions", "bench"], cwd=folder, stderr=subprocess.DEVNULL)
        try:
            while sum(entry.state == "asleep" for entry in engine.entries("waiting", limit=runs)) < runs:
                assert worker.poll() is None
                time.sleep(2)
            time.sleep(2)
            memory = psutil.Process(worker.pid).memory_info().rss >> 20
            threads = psutil.Process(worker.pid).num_threads()
            with psycopg.connect(url) as watch:
                connections = watch.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> ALL(%s)",
                    ([watch.info.backend_pid, engine._connection.info.backend_pid],),
                ).fetchone()[0]
        finally:
            worker.terminate()
            worker.wait()
    print(f"{runs:,} waiting runs on one worker: {memory} MB, {connections} connections, {threads} threads")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--waiting", type=int, default=1000)
    options = parser.parse_args()
    os.environ.setdefault("XDG_CONFIG_HOME", tempfile.mkdtemp())
    server = Server(tempfile.gettempdir())
    url = server.database()
    try:
        compare(url, options.rounds, options.steps)
        waiting(url, options.waiting)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
