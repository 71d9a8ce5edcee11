from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.retain.compact import CompactionPoint, superseded
from holdfast.settings.file import make_settings
from holdfast.store.open import open_store
from holdfast.store.tables import Record


class Clock:
    now = 1_790_000_000.0

    def __call__(self):
        return self.now


def record(number, kind, path="", *, at=0.0, key=None):
    return Record(line=1, number=number, prev=b"", kind=kind, path=path, at=at, key=key)


def test_the_newest_of_a_path_at_each_point_stays_and_what_no_point_needs_goes():
    records = [
        record(1, "done", "a"), record(2, "done", "b"), record(3, "done", "a"), record(4, "appended", "log:x"),
        record(5, "done", "a"), record(6, "saved"), record(7, "appended", "log:x"), record(8, "done", "c"),
        record(9, "saved"), record(10, "done", "a"), record(11, "done", "k", key="mine"), record(12, "done", "k"),
    ]  # fmt: skip
    # A checkpoint at 3, and a head that went back from 9 to 5: 6 to 9 were left.
    points = [CompactionPoint(3, ((1, 3),)), CompactionPoint(12, ((1, 5), (10, 12)))]
    assert superseded(records, points, entries_from=5, before=1.0) == [1, 5, 7, 8]
    assert superseded(records, points, entries_from=9, before=1.0) == [1, 5, 6, 7, 8, 9]
    assert superseded(records, points, entries_from=9, before=-1.0) == [], "not old enough"


@pytest.mark.parametrize("place", ["memory:", "{}/h.db", "file://{}/files"])
def test_an_old_journal_is_compacted_by_itself_and_the_run_is_as_it_was(place, tmp_path):
    """Old entries that a newer checkpoint has go; logs, results, the state and the chain stay."""
    settings = make_settings({"interval_s": 3600, "session": {"signals": False}})
    with Holdfast(open_store(place.format(tmp_path)), settings=settings, clock=Clock()) as hf:
        with hf.run("r") as run:
            run.checkpoint(state="begun")
            run.budget.limit(tokens=1_000)
            for number in range(40):
                run.step(f"step {number}", lambda number=number: number * 2)
                run.log("messages").append(number)
                run.budget.spend(tokens=1)  # an entry that the next checkpoint makes dispensable
            run.checkpoint(state="half")
            run.checkpoint(state="full")
        before = hf.latest("r")
        steps = before.summary.steps
        records = hf.store.stats, len(hf.store.journal.records(hf.store.line("r")))
        hf.internals.clock.now += timedelta(days=31).total_seconds()
        with hf.run("r") as run:
            assert run.step("step 7", lambda number=7: f"{number} is called again") == 14
            assert list(run.log("messages")) == list(range(40))
        left = len(hf.store.journal.records(hf.store.line("r")))
        assert left <= records[1] - 30
        assert hf.store.journal.gaps(hf.store.line("r"))
        assert hf.latest("r").section("state") == "full"
        assert hf.latest("r").summary.steps == steps
        assert hf.recover("r").success
        assert hf.verify().sound
