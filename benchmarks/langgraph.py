"""LangGraph's savers beside HoldfastSaver, on SQLite and on PostgreSQL.

A conversation that grows by one message of 2 KB a step; every step is a put_writes and a put, by one saver and then by
the other. Reads open the store again each time.
"""

from __future__ import annotations

import random
import shutil
import statistics
import string
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import Row

_MEASURES = {  # the least that theirs is of ours, and the most ms that ours may take
    "put": (5, None),
    "put_writes": (1, None),
    "list 50": (5, None),
    "get_tuple, cold": (None, 5),
    "copy": (None, 100),
    "delete": (20, None),
}
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
        from langgraph.checkpoint.base.id import uuid6  # noqa: PLC0415 - a peer

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
    from langchain_core.messages import AIMessage, HumanMessage  # noqa: PLC0415 - a peer

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
def on_sqlite(scale):
    """Two new files."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - a peer

    from holdfast.adapters.langgraph import HoldfastSaver  # noqa: PLC0415 - imports a peer

    folder = Path(tempfile.mkdtemp(dir=scale.workdir))
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
def on_postgres(scale):
    """Two databases of one server on a real disk."""
    import psycopg  # noqa: PLC0415 - only who asks for it has a server
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    from holdfast.adapters.langgraph import HoldfastSaver  # noqa: PLC0415 - imports a peer

    sys.path.insert(0, "tests")
    from postgres_server import Server  # noqa: PLC0415 - of the tests

    def size_of(url):
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]

    server = Server(scale.workdir)
    ours, theirs = server.database(), server.database()
    with PostgresSaver.from_conn_string(theirs) as saver:
        saver.setup()
    empty = size_of(ours), size_of(theirs)
    try:
        yield [
            Place("HoldfastSaver", lambda: HoldfastSaver.open(ours), lambda: size_of(ours) - empty[0]),
            Place("PostgresSaver", lambda: PostgresSaver.from_conn_string(theirs), lambda: size_of(theirs) - empty[1]),
        ]
    finally:
        server.stop()


def rows(scale):
    """Yield the rows beside SqliteSaver and beside PostgresSaver, where they are installed."""
    for module, places, count in (
        ("langgraph.checkpoint.sqlite", on_sqlite, scale.of(1_000, 12)),
        ("langgraph.checkpoint.postgres", on_postgres, scale.of(1_000, 12)),
    ):
        try:
            if find_spec(module) is None:
                continue
        except ModuleNotFoundError:
            continue
        with places(scale) as both:
            ours, theirs = measure(both, messages_of(count))
        yield from _rows(ours, theirs, count)


def _rows(ours, theirs, count):
    peer = theirs.place.name
    for name, (ratio, most_ms) in _MEASURES.items():
        measure = f"LangGraph {name}, {count:,} messages"
        mine, other = ours.times[name], theirs.times.get(name)
        told = f"{peer} {other.clock * 1e3:.2f} ms, {other.cpu * 1e3:.2f} CPU" if other else f"{peer}: not there"
        took = f"{mine.clock * 1e3:.2f} ms, {mine.cpu * 1e3:.2f} CPU"
        if ratio is None:
            yield Row(measure, "wall", mine.clock * 1e3, "ms", most_ms, peers=told)
            yield Row(measure, "CPU", mine.cpu * 1e3, "ms", most_ms)
        else:
            yield Row(
                measure,
                f"{peer} ÷ ours, wall",
                other.clock / mine.clock,
                "×",
                ratio,
                is_rate=True,
                peers=told,
                floor=took,
            )
            yield Row(measure, f"{peer} ÷ ours, CPU", other.cpu / mine.cpu, "×", is_rate=True)
    told = f"{peer} {theirs.disk / 1e6:,.0f} MB"
    measure = f"LangGraph disk, {count:,} messages"
    yield Row(measure, f"{peer} ÷ ours", theirs.disk / ours.disk, "×", 100, is_rate=True, peers=told)
