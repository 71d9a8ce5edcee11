import pytest

from holdfast import Holdfast, RunCorrupt
from holdfast.errors import ChunkCorrupt, HeadMoved
from holdfast.retain.sweep import sweep
from holdfast.store.memory import MemoryStore


class Overtaken(MemoryStore):
    """A store in which another writer gets in between, a given number of times."""

    times = 0

    def release(self, run, chunks, **expected):
        if self.times:
            self.times -= 1
            raise HeadMoved(run, "before", "after")
        super().release(run, chunks, **expected)


def filled(store):
    run = Holdfast(store).run("run")
    for step in range(3):
        run.checkpoint(state={"log": [f"{step} {n}" * 30 for n in range(2000)]})
    return run


def test_a_sweep_lets_go_of_what_no_checkpoint_reaches_and_of_nothing_else():
    store = MemoryStore()
    run = filled(store)
    before = store.stats().chunks
    assert sweep(store, "run") == 0
    store.delete("run", [store.checkpoint_at("run", 2).envelope.id])
    gone = sweep(store, "run")
    assert gone > 0
    assert store.stats().chunks == before - gone
    assert Holdfast(store).verify().sound
    assert run.head.section("state")["log"][1].startswith("2 1")


@pytest.mark.parametrize(("times", "gone"), [(1, True), (19, True), (20, False)])
def test_a_sweep_that_is_overtaken_works_it_out_again_and_gives_up_at_last(times, gone):
    store = Overtaken()
    filled(store)
    store.delete("run", [store.checkpoint_at("run", 2).envelope.id])
    store.times = times
    assert bool(sweep(store, "run")) is gone
    assert Holdfast(store).verify().sound


def test_damage_stops_a_sweep_before_it_takes_anything():
    """Proves X3."""
    store = MemoryStore()
    filled(store)
    root = store.checkpoint_at("run", 1).envelope.sections[0].root
    store.delete("run", [store.checkpoint_at("run", 2).envelope.id])
    del store.medium._tables.chunks[root]
    held = store.held("run")
    with pytest.raises((ChunkCorrupt, RunCorrupt)):
        sweep(store, "run")
    assert store.held("run") == held
