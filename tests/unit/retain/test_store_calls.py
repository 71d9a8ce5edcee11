"""Store calls per run do not grow with the number of runs, nor with the length of one; counted on a real medium."""

import gc
from collections import Counter
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.settings.file import make_settings
from holdfast.store.memory import MemoryMedium
from holdfast.store.store import Store


class Counting(MemoryMedium):
    """A medium that counts what it is asked for, and how many rows it gives."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def read(self):
        return self._counted(super().read())

    def write(self, **options):
        return self._counted(super().write(**options))

    def in_order_begun(self, *, limit=None):
        found = super().in_order_begun(limit=limit)
        self.calls["rows"] += len(found)
        return found

    def _counted(self, context):
        return _Context(context, self.calls)


class _Context:
    def __init__(self, context, calls):
        self._context, self._calls = context, calls

    def __enter__(self):
        return _Reader(self._context.__enter__(), self._calls)

    def __exit__(self, *error):
        return self._context.__exit__(*error)


class _Reader:
    def __init__(self, reader, calls):
        self._reader, self._calls = reader, calls

    def get(self, table, key):
        self._calls["calls"] += 1
        return self._reader.get(table, key)

    def scan(self, *where, **options):
        self._calls["calls"] += 1
        found = self._reader.scan(*where, **options)
        self._calls["rows"] += len(found)
        return found

    def __getattr__(self, name):
        return getattr(self._reader, name)


class Clock:
    now = 1_790_000_000.0

    def __call__(self):
        return self.now


def opened(**settings):
    medium = Counting()
    given = make_settings({"interval_s": 3600, "session": {"signals": False}, **settings})
    return Holdfast(Store(medium), settings=given, clock=Clock()), medium


def cost(medium, work):
    gc.collect()  # handles that are still there would read their run again
    medium.calls.clear()
    work()
    return medium.calls["calls"], medium.calls["rows"]


def store_of(runs, **settings):
    hf, medium = opened(**settings)
    for number in range(runs):
        hf.internals.clock.now += 1  # a list orders runs by their last move
        run = hf.run(f"run-{number:04}")
        for n in range(3):
            run.checkpoint(state=n, trigger="agent_complete")
        run.close()
    return hf, medium


def test_prune_over_all_runs_costs_the_same_for_each():
    few, few_medium = store_of(10, retention={"enabled": False})
    many, many_medium = store_of(80, retention={"enabled": False})
    few_calls, few_rows = cost(few_medium, lambda: few.prune(dry_run=True))
    many_calls, many_rows = cost(many_medium, lambda: many.prune(dry_run=True))
    assert many_calls <= 8 * few_calls
    assert many_rows <= 8 * few_rows
    assert cost(many_medium, many.prune)[0] <= 8 * cost(few_medium, few.prune)[0]


@pytest.mark.parametrize(
    "work",
    [
        lambda hf: hf.prune("run-0001"),
        lambda hf: hf.prune("run-0002", keep=1),
        lambda hf: hf.runs(limit=5),
        lambda hf: hf.delete_run("run-0003"),
        lambda hf: hf.checkpoints("run-0005"),
    ],
)
def test_what_concerns_one_run_costs_the_same_among_many(work):
    costs = []
    for count in (10, 80):
        hf, medium = store_of(count, retention={"enabled": False})
        costs.append(cost(medium, lambda hf=hf: work(hf)))
    assert costs[0] == costs[1]


def test_retention_of_one_run_costs_the_same_among_many():
    costs = []
    for count in (10, 80):
        hf, medium = store_of(count)
        run = hf.run("another")
        for n in range(60):
            run.checkpoint(state=n, trigger="agent_complete")
        costs.append(cost(medium, lambda hf=hf: hf.checkpoints("another")))
    assert costs[1][0] <= costs[0][0] + 20
    assert costs[1][1] <= costs[0][1] + 20


def test_points_to_go_back_to_read_what_is_asked_for():
    costs = []
    for count in (100, 1_500):
        hf, medium = opened(retention={"enabled": False})
        run = hf.run("r")
        for n in range(count):
            run.checkpoint(state=n)
        costs.append(cost(medium, lambda hf=hf: hf.recovery.points("r", limit=20)))
        assert [point.seq for point in hf.recovery.points("r", limit=3)] == [count, count - 1, count - 2]
    assert costs[1] == costs[0]
    assert costs[1][1] <= 200


def test_a_plain_handle_on_a_long_run_reads_the_newest_only():
    hf, medium = opened(retention={"enabled": False})
    run = hf.run("r")
    for n in range(2_500):
        run.checkpoint(state=n)
    hf.prune()
    again = Holdfast(hf.store, settings=make_settings({"session": {"signals": False}}), clock=Clock())
    handle = again.run("r")

    def checkpoint_and_list():
        handle.checkpoint(state="more")
        again.checkpoints("r", limit=50)

    _, rows = cost(medium, checkpoint_and_list)
    assert rows <= 1_500, "and not 2,500 or a multiple"
    assert len(again.checkpoints("r")) == 50


def test_entering_a_run_looks_at_a_bounded_number_of_finished_ones():
    hf, medium = opened()
    for number in range(60):
        with hf.run(f"done-{number}") as run:
            run.complete()
        hf.internals.clock.now += 10
    hf.internals.clock.now += timedelta(days=40).total_seconds()

    def enter():
        with hf.run("r"):
            pass

    marked = []
    for _ in range(3):
        _, rows = cost(medium, enter)
        marked.append(sum(cp.status == "expired" for one in hf.runs() for cp in hf.checkpoints(one.id)))
        assert rows <= 3_000
    assert marked[0] < marked[1] < marked[2], "the next sweep continues where the last one ended"
