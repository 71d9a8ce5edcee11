"""LangGraph's savers beside HoldfastSaver, in one interleaved run: python -m benchmarks.langgraph [--postgres].

A conversation that grows by one message of 2 KB a step; every step is a put_writes and a put, by one saver and then by
the other. Reads open the store again each time. Times are medians; only their ratios travel, and the CPU time of this
process beside them says what a machine without other work would take at least.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import string
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base.id import uuid6

from holdfast.adapters.langgraph import HoldfastSaver

_AIMS = {"put": 5, "put_writes": 1, "list 50": 5, "disk": 100, "delete": 20}
_AIMS_MS = {"get_tuple, cold": 5, "copy": 100}
_ROUNDS = 5
_CONFIG = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}


class Place(NamedTuple):
    """Where a saver keeps its threads."""

    name: str
    open: object
    """Opens the saver again and again."""
    size: object


class Times:
    """Times of one operation, by the clock and of this process."""

    def __init__(self):
        self.taken = []

    @contextmanager
    def one(self):
        clock, cpu = time.perf_counter(), time.process_time()
        yield
        self.taken.append((time.perf_counter() - clock, time.process_time() - cpu))

    @property
    def clock(self):
        return statistics.median(clock for clock, _ in self.taken[-100:])

    @property
    def cpu(self):
        return statistics.median(cpu for _, cpu in self.taken[-100:])


class Saver:
    """One saver on its way through the conversation."""

    def __init__(self, place):
        self.place = place
        self.times = {}
        self.disk = 0
        self._last = _CONFIG

    def timed(self, operation):
        return self.times.setdefault(operation, Times()).one()

    def step(self, saver, number, messages):
        if number > 1:
            with self.timed("put_writes"):
                saver.put_writes(self._last, [("messages", messages[-1])], f"task {number}", "~pull")
        versions = dict.fromkeys(("messages", "branch:to:agent"), number)
        checkpoint = {
            "v": 4, "id": str(uuid6(clock_seq=number)), "ts": "2026-11-18T00:00:00+00:00",
            "channel_values": {"messages": messages}, "channel_versions": versions,
            "versions_seen": {"agent": {"branch:to:agent": number - 1}, "__input__": {}},
            "updated_channels": ["messages"],
        }  # fmt: skip
        metadata = {"source": "loop", "step": number, "parents": {}, "run_id": "run"}
        with self.timed("put"):
            self._last = saver.put(self._last, checkpoint, metadata, versions)

    def read(self, count):
        with self.place.open() as saver, self.timed("get_tuple, cold"):
            found = saver.get_tuple(self._last)
        assert len(found.checkpoint["channel_values"]["messages"]) == count
        with self.place.open() as saver, self.timed("list 50"):
            listed = list(saver.list(_CONFIG, limit=50))
        assert len(listed[0].checkpoint["channel_values"]["messages"]) == count

    def copy(self):
        with self.place.open() as saver:
            try:
                with self.timed("copy"):
                    saver.copy_thread("thread", "copy")
                saver.delete_thread("copy")
            except NotImplementedError:
                del self.times["copy"]

    def delete(self):
        with self.place.open() as saver, self.timed("delete"):
            saver.delete_thread("thread")


def messages_of(count):
    """Return a conversation, the same every time."""
    chance = random.Random(7)
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(5000)]
    texts = (" ".join(chance.choices(words, k=310)) for _ in range(count))
    return [(HumanMessage, AIMessage)[number % 2](text, id=f"message {number}") for number, text in enumerate(texts)]


def measure(places, messages):
    """Return the savers of these places, with what they took; they take turns."""
    savers = [Saver(place) for place in places]
    with ExitStack() as stack:
        opened = [stack.enter_context(saver.place.open()) for saver in savers]
        turns = list(zip(savers, opened, strict=True))
        for number in range(1, len(messages) + 1):
            for saver, target in turns:
                saver.step(target, number, messages[:number])
            turns.reverse()
    for saver in savers:
        saver.disk = saver.place.size()
    for _ in range(_ROUNDS):
        for saver in savers:
            saver.read(len(messages))
            saver.copy()
        savers.reverse()
    for saver in savers:
        saver.delete()
    return sorted(savers, key=lambda saver: saver.place.name)


@contextmanager
def on_sqlite():
    """Two new files."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - a peer

    folder = Path(tempfile.mkdtemp(prefix="holdfast-langgraph-"))
    ours, theirs = folder / "h.db", folder / "s.db"

    def size_of(file):
        return sum(one.stat().st_size for one in folder.glob(f"{file.name}*") if one.is_file())

    try:
        yield [
            Place("HoldfastSaver", lambda: HoldfastSaver.open(ours), lambda: size_of(ours)),
            Place("SqliteSaver", lambda: SqliteSaver.from_conn_string(str(theirs)), lambda: size_of(theirs)),
        ]
    finally:
        shutil.rmtree(folder)


@contextmanager
def on_postgres():
    """Two databases of one server."""
    import psycopg  # noqa: PLC0415 - only who asks for it has a server
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    sys.path.insert(0, "tests")
    from postgres_server import shared_server  # noqa: PLC0415

    def size_of(url):
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]

    ours, theirs = shared_server().database(), shared_server().database()
    with PostgresSaver.from_conn_string(theirs) as saver:
        saver.setup()
    empty = size_of(ours), size_of(theirs)
    yield [
        Place("HoldfastSaver", lambda: HoldfastSaver.open(ours), lambda: size_of(ours) - empty[0]),
        Place("PostgresSaver", lambda: PostgresSaver.from_conn_string(theirs), lambda: size_of(theirs) - empty[1]),
    ]


def rows_of(ours, theirs):
    """Yield the lines of the table."""
    yield f"| | {ours.place.name} | {theirs.place.name} | ratio | aim |\n|---|---|---|---|---|"
    for name in ("put", "put_writes", "list 50", "get_tuple, cold", "copy", "delete"):
        mine, other = ours.times[name], theirs.times.get(name)
        aim = f"≤ 1/{_AIMS[name]}" if name in _AIMS else f"≤ {_AIMS_MS[name]} ms"
        ratio = f"1/{other.clock / mine.clock:.1f}" if other else "-"
        yield f"| {name} | {_shown(mine)} | {_shown(other)} | {ratio} | {aim} |"
    ratio = theirs.disk / ours.disk
    yield f"| disk | {ours.disk / 1e6:.1f} MB | {theirs.disk / 1e6:.1f} MB | 1/{ratio:.0f} | ≤ 1/{_AIMS['disk']} |"


def _shown(times):
    return "-" if times is None else f"{times.clock * 1e3:.2f} ms ({times.cpu * 1e3:.2f} CPU)"


def main():
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", nargs="?", type=int, default=1000)
    parser.add_argument("--postgres", action="store_true")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    with (on_postgres if arguments.postgres else on_sqlite)() as places:
        ours, theirs = measure(places, messages_of(arguments.messages))
    load = f"load {before:.1f} to {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{arguments.messages:,} messages of 2 KB, {load}:\n")
    print("\n".join(rows_of(ours, theirs)))


if __name__ == "__main__":
    main()
