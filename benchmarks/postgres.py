"""Appends and checkpoints on PostgreSQL beside a bare INSERT, on one server on a real disk with fsync on."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import holdfast
from benchmarks.conversation import Conversation, encode
from benchmarks.table import Row, Scale
from benchmarks.turns import Laps, take_turns
from holdfast.store.commit import Commit, Draft
from holdfast.store.postgres import PostgresMedium
from holdfast.store.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLE = "CREATE TABLE message (run text, step integer, body bytea, PRIMARY KEY (run, step))"
INSERT = "INSERT INTO message VALUES (%s, %s, %s)"


def rows(scale: Scale) -> Iterator[Row]:
    """Yield the rows of appends, checkpoints and writers that write at once."""
    server = Server(scale.workdir)
    try:
        yield from _one_writer(server, scale.of(600, 20))
        yield from _writers(server, scale.of(4, 1))
        yield from _checkpoints(server, scale.of(600, 20))
    finally:
        server.stop()


def _one_writer(server: Server, steps: int) -> Iterator[Row]:
    url = server.database()
    store = Store(PostgresMedium(url))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE)
        bodies = [os.urandom(2_000) for _ in range(steps)]
        laps = take_turns(
            {
                "insert": lambda step: connection.execute(INSERT, ("r", step, bodies[step]), prepare=True),
                "append": lambda step: store.write(
                    Commit(run="r", records=[Draft("noted", "log/messages", 1.0, bodies[step])])
                ),
            },
            steps,
        )
    store.close()
    floor = laps["insert"]
    told = {"floor": f"{floor.ms:.3f} ms, {floor.cpu_ms:.3f} CPU"}
    yield laps["append"].over(floor).row("PostgreSQL append of 2 KB ÷ INSERT", "wall", 1.5, **told)
    yield laps["append"].cpu_over(floor).row("PostgreSQL append of 2 KB ÷ INSERT", "CPU of the client")


def _writers(server: Server, seconds: float) -> Iterator[Row]:
    """Eight processes over one, ours and bare, in turn."""
    ratios: dict[str, list[float]] = {"append": [], "insert": []}
    for _ in range(2):
        for name, work in (("insert", _insert), ("append", _append)):
            one, eight = (_rate(server, count, seconds / 2, work) for count in (1, 8))
            ratios[name].append(eight / one)
    bare = sum(ratios["insert"]) / 2
    ours = [ratio / bare for ratio in ratios["append"]]
    yield Row(
        "PostgreSQL, 8 writers ÷ 1, over the bare floor's", "rate", sum(ours) / 2, "×", 0.9, min(ours), max(ours),
        floor=f"{bare:.2f} ×", is_rate=True,
    )  # fmt: skip


def _rate(server: Server, count: int, seconds: float, work: Callable[..., None]) -> float:
    """Return rows a second of so many processes, each on a run of its own."""
    url = server.database()
    PostgresMedium(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE)
    context = multiprocessing.get_context("fork")
    done, begin = context.Queue(), context.Barrier(count)
    processes = [context.Process(target=work, args=(url, f"run-{n}", seconds, begin, done)) for n in range(count)]
    for process in processes:
        process.start()
    total = sum(done.get() for _ in processes)
    for process in processes:
        process.join()
    server.drop(url)
    return total / seconds


def _insert(url: str, run: str, seconds: float, begin: Any, done: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSERT, (run, -1, b""), prepare=True)
        begin.wait()
        until, step = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            connection.execute(INSERT, (run, step, os.urandom(2_000)), prepare=True)
            step += 1
    done.put(step)


def _append(url: str, run: str, seconds: float, begin: Any, done: Any) -> None:
    store = Store(PostgresMedium(url))
    store.write(Commit(run=run, records=[Draft("noted", "log/messages", 1.0)]))
    begin.wait()
    until, step = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        store.write(Commit(run=run, records=[Draft("noted", "log/messages", 1.0, os.urandom(2_000))]))
        step += 1
    store.close()
    done.put(step)


def _checkpoints(server: Server, steps: int) -> Iterator[Row]:
    url, conversation = server.database(), Conversation(steps)
    laps = {name: Laps() for name in ("insert", "checkpoint")}
    with psycopg.connect(url, autocommit=True) as connection, holdfast.open(url, interval_s=None) as hf:
        connection.execute(TABLE)
        run = hf.run("conversation")
        for step in conversation.advance():
            laps["insert"].lap(
                lambda step=step: connection.execute(INSERT, ("r", step.number, encode(step.message)), prepare=True)
            )
            laps["checkpoint"].lap(lambda: run.checkpoint(state=conversation.state))
    yield laps["checkpoint"].over(laps["insert"]).row("PostgreSQL checkpoint by comparing ÷ INSERT", "wall", 3)
    yield (
        laps["checkpoint"]
        .cpu_over(laps["insert"])
        .row("PostgreSQL checkpoint by comparing ÷ INSERT", "CPU of the client")
    )
