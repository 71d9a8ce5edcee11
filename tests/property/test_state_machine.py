"""The same operations on a SQLite store and on the memory store, which is the model: whatever can be seen is equal.

Both are driven through Holdfast with the same clock and the same entropy, so even ids and checksums must agree.
"""

import copy
import random
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast import HeadMoved, Holdfast, HoldfastError
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.strategies import same, values

RUNS = ("alpha", "beta")
STATES = ("PLAN", "BUILD", "ERROR")


class Side:
    """One Holdfast with its handles: `first` and `second` are two writers on each run."""

    def __init__(self, open_store):
        self.open_store = open_store
        self.ticks = 0
        self.store = None
        self.open()

    def open(self):
        if self.store is not None:
            self.store.close()
        self.store = self.open_store()
        self.holdfast = Holdfast(self.store, clock=self.clock, entropy=self.entropy)
        self.writers = {(run, name): self.holdfast.run(run) for run in RUNS for name in ("first", "second")}

    def clock(self):
        """Run backwards every few calls: order must not depend on it."""
        self.ticks += 1
        return 1_900_000_000.0 + self.ticks * 60 - (self.ticks % 7) * 5_000

    def entropy(self, size):
        return random.Random(self.ticks).randbytes(size)


class KeptOpen(MemoryStore):
    """The model outlives being opened again, as a file does."""

    def close(self):
        pass


def outcome(call):
    """Return what a call gives, or the error it ends with, in a form that can be compared."""
    try:
        result = call()
    except HoldfastError as error:
        return type(error), error.args
    return result


def row(checkpoint):
    return checkpoint.record, checkpoint.sections


class StoreAgainstModel(RuleBasedStateMachine):
    taken = Bundle("taken")

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "holdfast.db"
        model = KeptOpen()
        self.real = Side(lambda: SQLiteStore(path, durability="process"))
        self.model = Side(lambda: model)
        self.live = {run: {"messages": [], "n": 0} for run in RUNS}
        self.saved = {}

    def both(self, act):
        """Do the same on both sides and compare; return the real side's outcome."""
        real, model = outcome(lambda: act(self.real)), outcome(lambda: act(self.model))
        assert real == model
        return real

    def take(self, run, writer, **arguments):
        found = self.both(lambda side: row(side.writers[run, writer].checkpoint(**copy.deepcopy(arguments))))
        if found[0] is HeadMoved:
            self.both(lambda side: side.writers[run, writer].recorder.reload())
            return None
        return found[0].envelope.id

    @rule(
        target=taken,
        run=st.sampled_from(RUNS),
        writer=st.sampled_from(["first", "second"]),
        grow=st.sampled_from([0, 1, 40]),
        seed=st.integers(0, 5),
        label=st.sampled_from([None, "mark"]),
        pinned=st.booleans(),
        state=st.sampled_from(STATES),
    )
    def checkpoint_with_edits(self, run, *, writer, grow, seed, label, pinned, state):
        live, rng = self.live[run], random.Random(seed)
        live["messages"].extend(rng.randbytes(1000).hex() for _ in range(grow))
        del live["messages"][: rng.choice([0, 0, 0, 1, 30])]
        live["n"] += 1
        workflow = {"current_state": state}
        name = self.take(run, writer, state=live, workflow=workflow, label=label, pinned=pinned, reason=f"edit {seed}")
        if name is not None:
            self.saved[name] = copy.deepcopy(live)
        return name

    @rule(target=taken, run=st.sampled_from(RUNS), value=values(max_leaves=6))
    def checkpoint_of_another_section(self, run, value):
        return self.take(run, "first", sections={"mine": value}, trigger="step_complete")

    @rule(target=taken, run=st.sampled_from(RUNS), drop=st.sampled_from([(), ("mine",), ("state", "workflow")]))
    def checkpoint_that_carries_over(self, run, drop):
        return self.take(run, "first", drop=drop)

    @rule(run=st.sampled_from(RUNS))
    def checkpoint_that_is_refused(self, run):
        error = self.both(lambda side: side.writers[run, "first"].checkpoint(state={"a": [object()]}))
        assert error[1][1] == "state.a[0]"

    @rule(name=taken, pinned=st.booleans(), label=st.sampled_from([None, "x", "y"]))
    def mark(self, name, pinned, label):
        if name is not None:
            self.both(lambda side: row(side.holdfast.mark(name, pinned=pinned, label=label)))

    @rule(names=st.lists(consumes(taken), max_size=3))
    def delete(self, names):
        self.both(lambda side: side.holdfast.delete(*[name for name in names if name is not None]))

    @rule(run=st.sampled_from(RUNS), keep=st.integers(1, 4), dry_run=st.booleans())
    def prune(self, run, keep, dry_run):
        self.both(lambda side: side.holdfast.prune(run, keep=keep, dry_run=dry_run))

    @rule(run=st.sampled_from(RUNS))
    def delete_run(self, run):
        self.both(lambda side: side.holdfast.delete_run(run))

    @rule()
    def reopen(self):
        for side in (self.real, self.model):
            side.open()

    @invariant()
    def everything_that_can_be_seen_is_equal(self):
        self.both(lambda side: [(run.id, run.head, run.last_seq, run.checkpoints) for run in side.holdfast.runs()])
        for run in RUNS:
            self.compare(run)
        self.both(lambda side: set(side.store.chunk_ids()))
        self.both(lambda side: (side.holdfast.stats().chunks, side.holdfast.stats().stored_bytes))

    def compare(self, run):
        self.both(lambda side: [row(found) for found in side.holdfast.checkpoints(run)])
        self.both(lambda side: [row(found) for found in side.holdfast.checkpoints(run, limit=2, before_seq=4)])
        self.both(lambda side: row(side.holdfast.latest(run, required=True)))
        self.both(lambda side: row(side.holdfast.latest(run, required=True, sound=True)))
        self.both(lambda side: side.holdfast.has(run))
        self.both(lambda side: side.store.held(run))

    @invariant()
    def both_are_sound(self):
        assert self.both(lambda side: side.holdfast.verify().faults) == ()

    def teardown(self):
        if hasattr(self, "folder"):
            self.every_checkpoint_reads_as_it_was_saved()
            self.real.store.close()
            self.folder.cleanup()

    def every_checkpoint_reads_as_it_was_saved(self):
        for run in self.real.holdfast.runs():
            for found in self.real.holdfast.checkpoints(run.id):
                twin = self.model.holdfast.get(found.id)
                for name in found.sections:
                    assert same(found.section(name), twin.section(name))
                if found.id in self.saved and found.reason.startswith("edit"):
                    assert same(found.section("state"), self.saved[found.id])


def test_the_sqlite_store_behaves_as_the_model():
    """Proves A10, D5, D10, E2."""
    moderate = settings(derandomize=True, deadline=None, database=None, max_examples=40, stateful_step_count=30)
    run_state_machine_as_test(StoreAgainstModel, settings=moderate)
