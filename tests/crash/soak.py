"""Soak: mixed load on one store for a given time, with retention on; what must not grow is watched.

    python tests/crash/soak.py SECONDS [PLACE] [--rounds] [--leak descriptors|threads|memory|disk]

PLACE is a folder, file:///folder or postgresql://...; without one a folder that is deleted afterwards. Ten times it
prints one line: rounds done, memory, descriptors, threads, bytes of the log and of the store. It ends with exit code 0
and `no growth`, or with 1 and what grew between the middle third and the last. With `--rounds` the number is one of
rounds, so that a busy machine takes longer instead of doing less. `--leak` plants a fault that it must find.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import psutil

import holdfast
from holdfast.settings.values import RetentionSettings

_WORKERS = 3
_SETTINGS = holdfast.Settings(retention=RetentionSettings(triggers={"*": None}, last=5, live=None), interval_s=None)
_SLACK = {"memory": 16 << 20, "descriptors": 3, "threads": 3, "log": 8 << 20, "disk": 8 << 20}
"""What may come and go: allocators, threads of a call, a log before it is merged."""
_MAY_BE = 1.05


class Sample(NamedTuple):
    """How much there is of what must not grow."""

    rounds: int
    memory: int
    descriptors: int
    threads: int
    log: int
    disk: int


def load(hf: holdfast.Holdfast, worker: int, number: int) -> None:
    """Do a little of everything to runs of one worker's own."""
    chance = Random(f"{worker} {number}")
    run_id = f"w{worker}-{number % 4}"
    with hf.run(run_id) as run:
        run.step(f"step {number}", lambda: chance.randbytes(2_000))
        run.checkpoint(state={"n": number, "data": chance.randbytes(20_000)})
        run.agents.call("coder", using=lambda: {"result": "done", "tokens": 5}, task=f"t{number}")
        graph = run.graph(f"g{number}")
        graph.add("one", lambda: 1)
        graph.add("two", lambda: 2, needs=["one"])
        graph.run()
        hf.control.signal(run_id, "go", number)
    hf.checkpoints(run_id)
    hf.latest(run_id, required=True).section("state")
    if number % 5 == 0:
        hf.recover(f"{run_id}~1")
    if number % 7 == 0:
        hf.fork(run_id, f"{run_id}-fork-{number}")
        hf.delete_run(f"{run_id}-fork-{number}")
    if number % 20 > 15:  # each of its four runs in turn, so that none grows without end
        hf.delete_run(run_id)
    if number % 40 == 0:
        hf.prune()
        assert hf.verify(hf.latest(run_id, required=True)).sound


class Leak:
    """A fault that is planted: each round leaves something behind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._left: list[Any] = []
        self._ended = threading.Event()

    def round(self, hf: holdfast.Holdfast, name: str) -> None:
        """Leave something behind."""
        if self._kind == "descriptors":
            self._left.append(open(__file__))  # noqa: SIM115, PTH123 - never closed: that is the fault
        elif self._kind == "memory":
            self._left.append(b"x" * (4 << 20))
        elif self._kind == "threads":
            self._left.append(threading.Thread(target=self._ended.wait, daemon=True))
            self._left[-1].start()
        elif self._kind == "disk":
            hf.run(f"forgotten-{name}").checkpoint(state=Random(name).randbytes(3_000_000))


class Workers:
    """Threads that put the load on a store until they are told to end; the first error of one is raised then."""

    def __init__(self, hf: holdfast.Holdfast, leak: Leak) -> None:
        self._hf, self._leak = hf, leak
        self.ended = threading.Event()
        self.rounds = [0] * _WORKERS
        self._failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=(worker,)) for worker in range(_WORKERS)]
        for thread in self._threads:
            thread.start()

    def _work(self, worker: int) -> None:
        try:
            while not self.ended.is_set():
                load(self._hf, worker, self.rounds[worker])
                self._leak.round(self._hf, f"{worker}-{self.rounds[worker]}")
                self.rounds[worker] += 1
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self._failed.append(error)
            self.ended.set()

    def end(self) -> None:
        """Let them end."""
        self.ended.set()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]


def soak(amount: float, place: str, *, in_rounds: bool, leak: str = "", samples: int = 10) -> list[Sample]:
    """Put the load on a store for so many seconds or rounds, and return what was there, in equal steps."""
    with holdfast.open(place, settings=_SETTINGS) as hf:
        workers, taken = Workers(hf, Leak(leak)), []
        try:
            while len(taken) < samples and not workers.ended.wait(0.05 if in_rounds else amount / samples):
                if in_rounds and sum(workers.rounds) < amount / samples * (len(taken) + 1):
                    continue
                taken.append(_sample(hf, place, sum(workers.rounds)))
                print(f"{len(taken):3} of {samples}: {taken[-1]}", flush=True)
        finally:
            workers.end()
        report = hf.verify()
        assert report.sound, report.faults
    return taken


def _sample(hf: holdfast.Holdfast, place: str, rounds: int) -> Sample:
    gc.collect()
    this = psutil.Process()
    folder = Path(place.removeprefix("file://"))
    files = [one for one in folder.rglob("*") if one.is_file()] if folder.is_dir() else []
    sizes = {}
    for one in files:
        try:
            sizes[one] = one.stat().st_size
        except FileNotFoundError:
            continue  # gone meanwhile
    log = sum(size for one, size in sizes.items() if one.name.endswith("-wal"))
    disk = sum(sizes.values()) - log if files else hf.stats().file_bytes
    return Sample(rounds, this.memory_info().rss, this.num_fds(), this.num_threads(), log, disk)


def growth(taken: list[Sample]) -> list[str]:
    """Return what is larger in the last third than it ever was in the middle one, by more than comes and goes."""
    third = len(taken) // 3
    middle, last = taken[third : 2 * third], taken[-third:]
    grown = []
    for name, slack in _SLACK.items():
        before = max(getattr(one, name) for one in middle)
        after = int(median(getattr(one, name) for one in last))  # a moment's peak is not growth
        if after > before * _MAY_BE + slack:
            grown.append(f"{name} grew from {before:,} to {after:,}")
    return grown


def main(arguments: list[str]) -> int:
    """Soak, and say what grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--rounds", action="store_true")
    parser.add_argument("place", nargs="?")
    parser.add_argument("--leak", default="", choices=["", "descriptors", "threads", "memory", "disk"])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        taken = soak(given.seconds, given.place or folder, in_rounds=given.rounds, leak=given.leak)
    grown = growth(taken)
    print("; ".join(grown) or f"no growth in {taken[-1].rounds:,} rounds")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
