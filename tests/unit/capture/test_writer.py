import itertools

import pytest

from holdfast import Holdfast, StoreBusy, StoreFull, ValueRefused
from holdfast.store.memory import MemoryStore
from holdfast.testing.strategies import same


class Refusing(MemoryStore):
    """A store that refuses commits while it is told to, after everything was encoded for it."""

    refusal = None

    def write(self, commit):
        if self.refusal is not None:
            raise self.refusal
        return super().write(commit)


def state(steps):
    return {"log": [f"{step} " * 400 for step in range(steps)], "text": "words " * steps}


@pytest.mark.parametrize("refusal", [StoreFull("memory:", "full"), StoreBusy("memory:", "busy"), KeyboardInterrupt()])
def test_after_a_refused_commit_the_same_writer_goes_on_and_nothing_is_missing(refusal):
    """Proves X3."""
    store = Refusing()
    hf = Holdfast(store)
    run = hf.run("r")
    before = run.checkpoint(state=state(200))
    store.refusal = refusal
    for steps in (400, 500):
        with pytest.raises(type(refusal)):
            run.checkpoint(state=state(steps))
    assert run.head.id == before.id
    store.refusal = None
    after = run.checkpoint(state=state(500))
    assert (after.seq, after.parent) == (2, before.id)
    assert same(after.section("state"), state(500))
    assert hf.verify().sound


def test_after_a_refused_value_the_same_writer_goes_on_and_nothing_is_missing():
    """Proves X3."""
    hf = Holdfast(MemoryStore())
    run = hf.run("r")
    run.checkpoint(state=state(200))
    with pytest.raises(ValueRefused):
        run.checkpoint(sections={"first": state(300)}, state={**state(300), "bad": object()})
    cp = run.checkpoint(sections={"first": state(300)}, state=state(300))
    assert same(cp.section("first"), state(300))
    assert same(cp.section("state"), state(300))
    assert hf.verify().sound


def test_clock_and_chance_come_from_outside():
    ticks = itertools.count(1_900_000_000)
    hf = Holdfast(MemoryStore(), clock=lambda: float(next(ticks)), entropy=lambda size: b"\7" * size)
    first, second = (hf.run("r").checkpoint(state=n) for n in range(2))
    assert first.id == f"cp_{1_900_000_000_000:012x}" + "07" * 10
    assert (second.created_at - first.created_at).total_seconds() == 1


def test_a_reload_goes_to_the_head_that_is_there_now():
    store = MemoryStore()
    run, other = Holdfast(store).run("r"), Holdfast(store).run("r")
    other.checkpoint(state=state(100))
    run.recorder.reload()
    cp = run.checkpoint(state=state(101))
    assert cp.seq == 2
    assert same(cp.section("state"), state(101))
