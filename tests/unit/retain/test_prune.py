import time
from datetime import timedelta

import msgspec
import pytest

from holdfast import Holdfast, RetentionPolicy, UsageError
from holdfast.errors import StoreUnavailable
from holdfast.model.checkpoint import Marks
from holdfast.retain.policy import TriggerRule
from holdfast.retain.prune import carry_out, plan
from holdfast.retain.worker import RetentionWorker
from holdfast.settings.file import make_settings
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SQLiteStore


class Clock:
    now = 1_790_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "sqlite"])
def hf(request, tmp_path):
    memory = request.param == "memory"
    store = MemoryStore() if memory else SQLiteStore(tmp_path / "holdfast.db", durability="process")
    settings = make_settings({"interval_s": 3600, "session": {"signals": False}, "retention": {"live": 5}})
    with Holdfast(store, settings=settings, clock=Clock()) as holdfast:
        yield holdfast


def big(n):
    return {"n": n, "blob": [f"{n} {i} " * 20 for i in range(200)]}


def test_pruning_shows_first_and_then_does_exactly_that(hf):
    """Proves E2, C13."""
    run = hf.run("r")
    for n in range(8):
        run.checkpoint(state=big(n), trigger="batch_complete" if n % 2 else "manual")
    shown = hf.prune(dry_run=True)
    assert len(hf.checkpoints("r", archived=True)) == 8
    assert {one.action for one in shown.decisions} == {"keep", "archive", "delete"}
    done = hf.prune()
    assert (done, done.decisions) == (shown, shown.decisions)
    left = hf.checkpoints("r", archived=True)
    assert [cp.id for cp in left] == [one.id for one in shown.decisions if one.action != "delete"]
    assert hf.verify().sound
    assert hf.prune("r") == []


def test_archived_checkpoints_leave_the_daily_list_but_can_be_read(hf):
    """Proves A2, A9, A15."""
    run = hf.run("r")
    made = [run.checkpoint(state=big(n)) for n in range(12)]
    assert hf.prune("r").archived == [cp.id for cp in reversed(made[:7])]
    assert [cp.seq for cp in hf.checkpoints("r")] == [12, 11, 10, 9, 8]
    assert [cp.seq for cp in hf.checkpoints("r", archived=True, limit=7)] == [12, 11, 10, 9, 8, 7, 6]
    assert [cp.seq for cp in hf.checkpoints("r", limit=2)] == [12, 11]
    old = hf.get(made[0].id)
    assert (old.status, old.section("state")) == ("archived", big(0))
    hf.mark(made[0].id, status="valid")
    assert hf.checkpoints("r")[-1].id == made[0].id


def test_a_pin_set_between_decision_and_archiving_stays(hf):
    """Proves A9: nothing that somebody pinned meanwhile leaves the daily list, or is deleted."""
    run = hf.run("r")
    made = [run.checkpoint(state=n, trigger="batch_complete" if n < 3 else "manual") for n in range(12)]
    decided = plan(hf.store, "r", RetentionPolicy(live=5, triggers={"batch_complete": TriggerRule(0)}), Clock.now)
    assert {one.action for one in decided} == {"keep", "archive", "delete"}
    hf.mark(made[0].id, pinned=True)
    hf.mark(made[4].id, pinned=True, label="good")
    left = carry_out(hf.store, "r", decided)
    assert left == {made[0].id, made[4].id}
    kept = hf.get(made[4].id)
    assert (kept.status, kept.pinned, kept.label) == ("valid", True, "good")
    assert [cp.seq for cp in hf.checkpoints("r")] == [12, 11, 10, 9, 8, 5, 1]
    assert {hf.get(cp.id).status for cp in made[3:7]} == {"archived", "valid"}


class PinnedAtTheLastMoment(MemoryStore):
    """A store in which somebody pins a checkpoint after retention looked at it and before it acts."""

    def mark_many(self, run, changes):
        self.pinned = next(iter(changes))
        self.mark(self.pinned, Marks(pinned=True))
        return super().mark_many(run, changes)

    def delete(self, run, checkpoints, **options):
        self.also_pinned = checkpoints[0]
        self.mark(self.also_pinned, Marks(pinned=True))
        return super().delete(run, checkpoints, **options)


def test_a_pin_set_while_retention_is_at_work_is_not_overwritten():
    """Proves A9, D10."""
    hf = Holdfast(PinnedAtTheLastMoment(), clock=Clock())
    run = hf.run("r")
    for n in range(10):
        run.checkpoint(state=n, trigger="batch_complete" if n < 2 else "manual")
    hf.prune(policy=RetentionPolicy(live=5, triggers={"batch_complete": TriggerRule(0)}))
    assert hf.store.checkpoint(hf.store.pinned).marks == Marks(pinned=True)
    assert hf.store.checkpoint(hf.store.also_pinned).marks == Marks(pinned=True)
    assert [cp.seq for cp in hf.checkpoints("r")] == [10, 9, 8, 7, 6, 5, 2]
    assert hf.verify().sound


def test_a_limit_counts_only_what_is_shown(hf):
    run = hf.run("r")
    made = [run.checkpoint(state=n) for n in range(300)]
    for cp in made[1:299]:
        hf.mark(cp.id, status="archived")
    assert [cp.seq for cp in hf.checkpoints("r", limit=2)] == [300, 1]


def test_retention_follows_the_commits_of_an_open_run_by_itself(hf):
    """Proves A9, A10, E7: storage stays bounded without anybody asking."""
    with hf.run("r") as run:
        for n in range(30):
            run.checkpoint(state=big(n), trigger="agent_complete")
    left = hf.checkpoints("r", archived=True)
    assert [cp.trigger for cp in left] == ["shutdown", "agent_complete", "state_transition"]
    assert left[0].section("state") == big(29)
    report = hf.verify()
    assert report.sound
    needed = {cp.id for cp in left}
    assert {cp.id for cp in hf.checkpoints("r", archived=True)} == needed
    assert hf.stats().chunks <= 40


def test_a_fork_point_is_kept_for_the_run_that_was_begun_from_it(hf):
    run = hf.run("r")
    made = [run.checkpoint(state=n) for n in range(4)]
    first = made[1].record.envelope
    fork = msgspec.structs.replace(
        first, id="cp_" + "f" * 32, run="fork", seq=1, parent=first.id, parent_checksum=made[1].record.checksum
    )
    hf.store.commit(fork, made[1].record.marks, (), expected_head=None)
    policy = RetentionPolicy(triggers={"*": TriggerRule(1)}, live=None, age_days=None)
    decided = {one.seq: one for one in hf.prune("r", policy=policy, dry_run=True).decisions}
    assert (decided[2].action, decided[2].reason) == ("keep", "run fork was forked from it")
    assert decided[1].action == "delete"


def test_old_checkpoints_go_when_a_run_is_opened_again(hf):
    """Proves A10: clean-up of what expired at the start."""
    run = hf.run("r")
    for n in range(4):
        run.checkpoint(state=n)
    hf._clock.now += timedelta(days=40).total_seconds()
    with hf.run("r") as run:
        run.checkpoint(state=5)
    assert [cp.seq for cp in hf.checkpoints("r", archived=True)] == [6, 5]


def test_an_expired_policy_is_refused_before_anything_is_touched(hf):
    hf.run("r").checkpoint(state=1)
    with pytest.raises(UsageError, match="would delete everything"):
        hf.prune(policy=RetentionPolicy(last=0))


def test_housekeeping_that_fails_does_not_stop_the_run_and_is_tried_again():
    class Refusing(MemoryStore):
        refuses = True

        def delete(self, run, checkpoints, **options):
            if self.refuses:
                raise StoreUnavailable("refusing:", "not now")
            return super().delete(run, checkpoints, **options)

    store = Refusing()
    hf = Holdfast(store, clock=Clock())
    run = hf.run("r")
    worker = RetentionWorker(store, "r", RetentionPolicy(last=1), clock=Clock(), quiet_s=0.01)
    worker.start()
    for n in range(5):
        worker.note(run.checkpoint(state=n).record)
    while worker.error is None:
        time.sleep(0.005)
    store.refuses = False
    worker.note(run.checkpoint(state=6).record)
    worker.stop()
    assert worker.error is None
    assert len(hf.checkpoints("r", archived=True)) == 2


def test_pruning_by_count_keeps_what_a_recovery_needs(hf):
    """Proves E2: the same protections as by a policy."""
    run = hf.run("r")
    for n in range(4):
        run.checkpoint(state=n)
    with run.destructive("deploy") as undo:
        pass
    sound = run.checkpoint(state=5)
    broken = run.checkpoint(state=6)
    hf.mark(broken.id, status="corrupted")
    hf.prune("r", keep=1)
    assert {cp.id for cp in hf.checkpoints("r")} == {undo.id, sound.id, broken.id}
    assert hf.prune("r", older_than=timedelta(days=-1)) == []


def test_pruning_by_count_keeps_fork_points(hf):
    run = hf.run("r")
    made = [run.checkpoint(state=n) for n in range(4)]
    first = made[1].record.envelope
    fork = msgspec.structs.replace(
        first, id="cp_" + "f" * 32, run="fork", seq=1, parent=first.id, parent_checksum=made[1].record.checksum
    )
    hf.store.commit(fork, made[1].record.marks, (), expected_head=None)
    hf.prune("r", keep=1)
    assert [cp.seq for cp in hf.checkpoints("r")] == [4, 2]


def test_housekeeping_goes_on_after_an_error_that_nobody_foresaw(caplog):
    class Odd(MemoryStore):
        breaks = True

        def delete(self, run, checkpoints, **options):
            if self.breaks:
                raise RuntimeError("a bug")
            return super().delete(run, checkpoints, **options)

    store = Odd()
    hf = Holdfast(store, clock=Clock())
    run = hf.run("r")
    worker = RetentionWorker(store, "r", RetentionPolicy(last=1), clock=Clock(), quiet_s=0.01)
    worker.start()
    for n in range(5):
        worker.note(run.checkpoint(state=n).record)
    until = time.monotonic() + 5
    while worker.error is None and time.monotonic() < until:
        time.sleep(0.005)
    assert "a bug" in caplog.text
    store.breaks = False
    worker.note(run.checkpoint(state=6).record)
    worker.stop()
    assert worker.error is None
    assert len(hf.checkpoints("r", archived=True)) == 2


def test_a_commit_noted_while_the_store_fails_is_not_forgotten():
    class Refusing(MemoryStore):
        refuses = False

        def run(self, run):
            if self.refuses:
                raise StoreUnavailable("refusing:", "not now")
            return super().run(run)

    store = Refusing()
    run = Holdfast(store, clock=Clock()).run("r")
    worker = RetentionWorker(store, "r", RetentionPolicy(last=1), clock=Clock())
    worker.note(run.checkpoint(state=1).record)
    assert [one.seq for one in worker._decisions()] == [1]
    worker.note(run.checkpoint(state=2).record)
    store.refuses = True
    with pytest.raises(StoreUnavailable):
        worker._decisions()
    store.refuses = False
    worker.note(run.checkpoint(state=3).record)
    assert [one.seq for one in worker._decisions()] == [3, 2, 1]
