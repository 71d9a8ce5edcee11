"""The footprint is about what a value takes: never far below, and ordinary values are not refused."""

import sys

import pytest

import holdfast
from holdfast import LimitExceeded, Settings, ValueRefused
from holdfast.encode.footprint import footprint
from holdfast.encode.values import Packer

VALUES = {
    "numbers": list(range(100_000)), "nothing": [None] * 100_000, "floats": [n / 7 for n in range(50_000)],
    "texts": [f"text {n}" for n in range(50_000)],
    "records": [{"id": n, "name": f"n{n}", "ok": True} for n in range(20_000)],
    "empty maps": [{} for _ in range(50_000)], "a text": "x" * 1_000_000, "a wide text": "\U0001f600" + "x" * 1_000_000,
    "tuples": [(n, n) for n in range(20_000)], "a map": {f"key {n}": n for n in range(50_000)},
    "sets": [{n, -n} for n in range(20_000)],
}  # fmt: skip


def size_of(value):
    """Return what a value takes in memory, each object once."""
    seen, todo, total = set(), [value], 0
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        todo += (
            [*one.keys(), *one.values()]
            if isinstance(one, dict)
            else one
            if isinstance(one, (list, tuple, set))
            else []
        )
    return total


@pytest.mark.parametrize("name", VALUES)
def test_it_is_near_what_the_decoded_value_takes(name):
    packer = Packer()
    data = packer.pack(VALUES[name], "x")
    taken = size_of(packer.unpack(data, "x"))
    assert 0.8 * taken <= footprint(data, 1 << 60) <= 5 * taken + 1_000


def test_it_stops_at_the_limit():
    assert footprint(b"\xdd\x00\x98\x96\x80" + b"\x80" * 10_000_000, 1_000) < 2_000


@pytest.mark.parametrize("name", VALUES)
def test_ordinary_sections_and_results_are_stored_and_read(name):
    with holdfast.open("memory:", settings=Settings(max_section_mb=4)) as hf, hf.run("r") as run:
        assert run.step("work", lambda: VALUES[name]) == VALUES[name]
        assert run.checkpoint(state=VALUES[name]).section("state") == VALUES[name]


def test_what_could_not_be_read_is_refused_when_it_is_written():
    hostile = [{}] * 2_400_000  # 2.4 MB when packed, and one object here
    with holdfast.open("memory:", settings=Settings()) as hf:
        run = hf.run("r")
        with pytest.raises(LimitExceeded, match="max_section"):
            run.checkpoint(state={"a": tuple(hostile)})
        with pytest.raises((LimitExceeded, ValueRefused)):
            run.step("work", lambda: hostile)
        with pytest.raises(LimitExceeded):
            run.log("said").append(hostile)
