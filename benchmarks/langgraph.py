"""LangGraph's savers beside HoldfastSaver, in one run: python -m benchmarks.langgraph [messages] [--postgres].

A conversation that grows by one message of 2 KB a step; every step is a put_writes and a put. Times are medians of the
last hundred steps; only their ratios travel.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import string
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base.id import uuid6

from holdfast.adapters.langgraph import HoldfastSaver

_TARGETS = {"put": 1 / 5, "put_writes": 1, "list 50": 1 / 5, "disk": 1 / 100, "delete": 1 / 20}


class Conversation:
    """The same steps for every saver."""

    def __init__(self, count):
        chance = random.Random(7)
        words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(5000)]
        self.messages = []
        for number in range(count):
            text = " ".join(chance.choices(words, k=310))
            self.messages.append((HumanMessage, AIMessage)[number % 2](text, id=f"message {number}"))

    def run(self, saver):
        """Put every step; return the times of puts and of writes, and the last configuration."""
        puts, writes, last = [], [], {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
        for number, message in enumerate(self.messages, 1):
            if number > 1:
                begun = time.perf_counter()
                saver.put_writes(last, [("messages", message)], f"task {number}", "~pull")
                writes.append(time.perf_counter() - begun)
            versions = dict.fromkeys(("messages", "branch:to:agent"), number)
            checkpoint = {
                "v": 4, "id": str(uuid6(clock_seq=number)), "ts": "2026-11-18T00:00:00+00:00",
                "channel_values": {"messages": self.messages[:number]}, "channel_versions": versions,
                "versions_seen": {"agent": {"branch:to:agent": number - 1}, "__input__": {}},
                "updated_channels": ["messages"],
            }  # fmt: skip
            metadata = {"source": "loop", "step": number, "parents": {}, "run_id": "run"}
            begun = time.perf_counter()
            last = saver.put(last, checkpoint, metadata, versions)
            puts.append(time.perf_counter() - begun)
        return puts, writes, last


def _timed(work):
    begun = time.perf_counter()
    found = work()
    return time.perf_counter() - begun, found


def measure(conversation, opened, size):
    """Return the figures of one saver; `opened` opens it again and again on one place."""
    config = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    with opened() as saver:
        puts, writes, last = conversation.run(saver)
        took, listed = _timed(lambda: list(saver.list(config, limit=50)))
        assert len(listed[0].checkpoint["channel_values"]["messages"]) == len(conversation.messages)
    figures = {
        "put": statistics.median(puts[-100:]),
        "put_writes": statistics.median(writes[-100:]),
        "list 50": took,
        "disk": size(),
    }
    with opened() as saver:
        figures["get_tuple, cold"], _ = _timed(lambda: saver.get_tuple(last))
    with opened() as saver:
        try:
            figures["copy"], _ = _timed(lambda: saver.copy_thread("thread", "copy"))
        except NotImplementedError:
            figures["copy"] = None
        figures["delete"], _ = _timed(lambda: saver.delete_thread("thread"))
    return figures


def _bytes_in(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _folder():
    folder = Path(tempfile.mkdtemp(prefix="holdfast-langgraph-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def on_sqlite(conversation):
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - a peer

    with _folder() as folder:
        yield (
            "HoldfastSaver",
            measure(conversation, lambda: HoldfastSaver.open(folder / "h.db"), lambda: _bytes_in(folder)),
        )
    with _folder() as folder:
        yield (
            "SqliteSaver",
            measure(
                conversation, lambda: SqliteSaver.from_conn_string(str(folder / "s.db")), lambda: _bytes_in(folder)
            ),
        )


def on_postgres(conversation):
    import psycopg  # noqa: PLC0415 - only who asks for it has a server
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415

    sys.path.insert(0, "tests")
    from postgres_server import shared_server  # noqa: PLC0415

    def size_of(url):
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute("SELECT pg_database_size(current_database())").fetchone()[0]

    url = shared_server().database()
    empty = size_of(url)
    yield "HoldfastSaver", measure(conversation, lambda: HoldfastSaver.open(url), lambda: size_of(url) - empty)
    url = shared_server().database()
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    empty = size_of(url)
    yield (
        "PostgresSaver",
        measure(conversation, lambda: PostgresSaver.from_conn_string(url), lambda: size_of(url) - empty),
    )


def _shown(name, value):
    if value is None:
        return "-"
    return f"{value / 1e6:.1f} MB" if name == "disk" else f"{value * 1e3:.2f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", nargs="?", type=int, default=1000)
    parser.add_argument("--postgres", action="store_true")
    arguments = parser.parse_args()
    conversation = Conversation(arguments.messages)
    (ours, mine), (theirs, other) = (on_postgres if arguments.postgres else on_sqlite)(conversation)
    print(f"| {arguments.messages:,} messages of 2 KB | {ours} | {theirs} | ratio | aim |\n|---|---|---|---|---|")
    for name, value in mine.items():
        peer = other[name]
        ratio = f"1/{peer / value:.1f}" if peer and value else "-"
        aim = f"≤ 1/{1 / _TARGETS[name]:.0f}" if name in _TARGETS else {"copy": "≤ 100 ms"}.get(name, "≤ 5 ms")
        print(f"| {name} | {_shown(name, value)} | {_shown(name, peer)} | {ratio} | {aim} |")


if __name__ == "__main__":
    main()
