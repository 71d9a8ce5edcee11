import threading
import time
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from holdfast import Holdfast, RetentionPolicy, UsageError
from holdfast.errors import StoreUnavailable
from holdfast.model.checkpoint import Marks
from holdfast.model.rules import RULES
from holdfast.retain import compact as compact_module
from holdfast.retain.prune import carry_out, plan, read_rows
from holdfast.retain.worker import RetentionWorker
from holdfast.settings.file import make_settings
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store
from store_kit import STORES, open_store_in


class Clock:
    now = 1_790_000_000.0

    def __call__(self):
        return self.now


def opened(kind, tmp_path, clock=None, **settings):
    place = {"memory": "memory:", "sqlite": tmp_path / "holdfast.db", "files": f"file://{tmp_path}/files"}[kind]
    options = {"durability": "process"} if kind == "sqlite" else {}
    store = open_store(place, **options)
    given = {"interval_s": 3600, "session": {"signals": False}, **settings}
    return Holdfast(store, settings=make_settings(given), clock=clock or Clock())


@pytest.fixture(params=["memory", "sqlite", "files"])
def kind(request):
    return request.param


@pytest.fixture
def hf(kind, tmp_path):
    """A store in which retention works by itself."""
    with opened(kind, tmp_path, retention={"live": 5}) as holdfast:
        yield holdfast


@pytest.fixture
def still(kind, tmp_path):
    """A store in which nothing goes by itself."""
    with opened(kind, tmp_path, retention={"live": 5, "enabled": False}) as holdfast:
        yield holdfast


def big(n):
    return {"n": n, "blob": [f"{n} {i} " * 20 for i in range(200)]}


def test_pruning_shows_first_and_then_does_exactly_that(still):
    """Proves E2, C13."""
    run = still.run("r")
    for n in range(8):
        run.checkpoint(state=big(n), trigger="batch_complete" if n % 2 else "manual")
    shown = still.prune(dry_run=True)
    assert len(still.checkpoints("r", archived=True)) == 8
    assert {one.action for one in shown.decisions} == {"keep", "archive", "delete"}
    done = still.prune()
    assert (done, done.decisions) == (shown, shown.decisions)
    left = still.checkpoints("r", archived=True)
    assert [cp.id for cp in left] == [one.id for one in shown.decisions if one.action != "delete"]
    assert still.verify().sound
    assert still.prune("r") == []


def test_a_run_deleted_while_all_runs_are_pruned_is_passed_over(still, monkeypatch):
    for name in ("deleted", "kept"):
        run = still.run(name)
        for n in range(8):
            run.checkpoint(state=n, trigger="batch_complete")
    compact = compact_module.compact

    def another_deletes_first(store, run, policy, now):
        if run == "deleted":
            store.delete_run(run)
        return compact(store, run, policy, now)

    monkeypatch.setattr(compact_module, "compact", another_deletes_first)
    still.prune()
    assert [one.id for one in still.runs()] == ["kept"]
    assert len(still.checkpoints("kept", archived=True)) < 8
    assert still.verify().sound


def test_archived_checkpoints_leave_the_daily_list_but_can_be_read(still):
    """Proves A2, A9, A15."""
    run = still.run("r")
    made = [run.checkpoint(state=big(n)) for n in range(12)]
    assert still.prune("r").archived == [cp.id for cp in reversed(made[:7])]
    assert [cp.seq for cp in still.checkpoints("r")] == [12, 11, 10, 9, 8]
    assert [cp.seq for cp in still.checkpoints("r", archived=True, limit=7)] == [12, 11, 10, 9, 8, 7, 6]
    assert [cp.seq for cp in still.checkpoints("r", limit=2)] == [12, 11]
    old = still.get(made[0].id)
    assert (old.status, old.section("state")) == ("archived", big(0))
    still.mark(made[0].id, status="valid")
    assert still.checkpoints("r")[-1].id == made[0].id


def test_a_pin_set_between_decision_and_archiving_stays(still):
    """Proves A9: nothing that somebody pinned meanwhile leaves the daily list, or is deleted."""
    run = still.run("r")
    made = [run.checkpoint(state=n, trigger="batch_complete" if n < 3 else "manual") for n in range(12)]
    policy = RetentionPolicy(live=5, rules=RULES.keeping({"batch_complete": 0}))
    at = datetime.fromtimestamp(Clock.now, UTC)
    decided = plan(still.store, still.store.run("r"), read_rows(still.store, "r"), policy, at)
    assert {one.action for one in decided.decisions} == {"keep", "archive", "delete"}
    still.mark(made[0].id, pinned=True)
    still.mark(made[4].id, pinned=True, label="good")
    left = carry_out(still.store, decided)
    assert left == {made[0].id, made[4].id}
    kept = still.get(made[4].id)
    assert (kept.status, kept.pinned, kept.label) == ("valid", True, "good")
    assert [cp.seq for cp in still.checkpoints("r")] == [12, 11, 10, 9, 8, 5, 1]
    assert {still.get(cp.id).status for cp in made[3:7]} == {"archived", "valid"}


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
    hf.prune(policy=RetentionPolicy(live=5, rules=RULES.keeping({"batch_complete": 0})))
    assert hf.store.checkpoint(hf.store.pinned).marks == Marks(pinned=True)
    assert hf.store.checkpoint(hf.store.also_pinned).marks == Marks(pinned=True)
    assert [cp.seq for cp in hf.checkpoints("r")] == [10, 9, 8, 7, 6, 5, 2]
    assert hf.verify().sound


def test_a_limit_counts_only_what_is_shown(still):
    run = still.run("r")
    made = [run.checkpoint(state=n) for n in range(300)]
    for cp in made[1:299]:
        still.mark(cp.id, status="archived")
    assert [cp.seq for cp in still.checkpoints("r", limit=2)] == [300, 1]


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


def test_a_fork_point_is_kept_for_the_run_that_was_begun_from_it(still):
    run = still.run("r")
    made = [run.checkpoint(state=n) for n in range(4)]
    still.fork(made[1].id, "fork")
    policy = RetentionPolicy(rules=RULES.keeping({"*": 1}))
    decided = {one.seq: one for one in still.prune("r", policy=policy, dry_run=True).decisions}
    assert (decided[2].action, decided[2].reason) == ("keep", "run fork was forked from it")
    assert decided[1].action == "delete"


def test_old_checkpoints_are_marked_when_a_run_is_opened_again_and_go_a_day_later(hf):
    """Proves A2, A10: clean-up of what expired at the start, and nothing goes for one wrong clock."""
    run = hf.run("r")
    for n in range(4):
        run.checkpoint(state=n, trigger="gate_complete")
    run.close()
    hf.internals.clock.now += timedelta(days=40).total_seconds()
    with hf.run("r") as run:
        run.checkpoint(state=5)
    assert {cp.seq: cp.status for cp in hf.checkpoints("r")} == {
        6: "valid", 5: "valid", 4: "expired", 3: "expired", 2: "expired", 1: "expired",
    }  # fmt: skip
    hf.internals.clock.now -= timedelta(days=40).total_seconds()
    with hf.run("r"):
        pass
    assert {cp.seq: cp.status for cp in hf.checkpoints("r")}[4] == "valid", "the clock had been wrong"
    hf.internals.clock.now += timedelta(days=40).total_seconds()
    for days in (0, 1.1):
        hf.internals.clock.now += timedelta(days=days).total_seconds()
        with hf.run("r"):
            pass
    assert all(cp.seq > 4 for cp in hf.checkpoints("r", archived=True))
    assert hf.verify().sound


def test_all_of_a_trigger_is_spared_by_age_and_archived_beyond_the_live_ones(hf):
    """Proves C13."""
    run = hf.run("r")
    made = [run.checkpoint(state=n) for n in range(8)]
    hf.internals.clock.now += timedelta(days=400).total_seconds()
    assert hf.prune() == []
    assert [cp.seq for cp in hf.checkpoints("r")] == [8, 7, 6, 5, 4]
    assert hf.get(made[0].id).status == "archived"


def test_the_limit_of_live_ones_and_the_counts_hold_for_a_plain_handle(hf):
    """Proves A10, D6."""
    run = hf.run("r")
    for n in range(12):
        run.checkpoint(state=n)
        run.checkpoint(state=n, trigger="agent_complete")
    assert [cp.seq for cp in hf.checkpoints("r")] == [24, 23, 21, 19, 17]
    assert [cp.trigger for cp in hf.checkpoints("r", archived=True)].count("agent_complete") == 1


def test_a_plain_handle_leaves_no_thread_behind(hf):
    run = hf.run("r")
    run.checkpoint(state=1)
    run.close()
    assert "holdfast-retention" not in {thread.name for thread in threading.enumerate()}


def finished(hf, name, *, pinned=False):
    with hf.run(name) as run:
        made = run.checkpoint(state=name)
        run.complete()
    if pinned:
        hf.mark(made.id, pinned=True)
    return made


def test_whole_finished_runs_go_by_prune_over_all_runs_but_for_pins(hf):
    """Proves E2, A10."""
    for name in ("a", "b"):
        finished(hf, name)
    pinned = finished(hf, "pinned", pinned=True)
    open_run = hf.run("open")
    open_run.checkpoint(state=1, trigger="gate_complete")
    hf.internals.clock.now += timedelta(days=20).total_seconds()
    assert hf.prune().runs == []
    hf.internals.clock.now += timedelta(days=20).total_seconds()
    shown = hf.prune(dry_run=True)
    assert {run.id for run in hf.runs()} == {"a", "b", "pinned", "open"}
    assert sorted(shown.runs) == ["a", "b"]
    assert hf.prune() == shown
    assert {run.id for run in hf.runs()} == {"pinned", "open"}
    assert [cp.id for cp in hf.checkpoints("pinned", archived=True)] == [pinned.id]
    assert hf.latest("open").section("state") == 1, "the newest recovery point of an unfinished run"
    assert hf.verify().sound


def test_a_finished_run_that_goes_back_does_not_expire_as_a_whole(hf):
    with hf.run("r") as run:
        begun = run.checkpoint(state=1)
        run.complete()
    assert hf.recover(begun.id, confirmed=True).success
    hf.internals.clock.now += timedelta(days=40).total_seconds()
    assert hf.prune().runs == []
    assert hf.latest("r").section("state") == 1


def test_older_than_works_over_all_runs(hf):
    """Proves A15, E2: `deleteOlderThan` and `prune({maxAgeDays: 7})` of the documents."""
    finished(hf, "old")
    unfinished = hf.run("unfinished")
    for n in range(3):
        unfinished.checkpoint(state=n)
    hf.internals.clock.now += timedelta(days=8).total_seconds()
    finished(hf, "new")
    gone = hf.prune(older_than=timedelta(days=7))
    assert gone.runs == ["old"]
    assert {run.id for run in hf.runs()} == {"new", "unfinished"}
    assert [cp.seq for cp in hf.checkpoints("unfinished")] == [3]


def test_entering_a_run_expires_other_finished_runs_in_two_sweeps(hf):
    """Proves A10: clean-up at the start, of other runs too."""
    old = finished(hf, "old")
    fork = hf.fork(old.id, "fork").run
    hf.internals.clock.now += timedelta(days=31).total_seconds()
    with hf.run("r"):
        pass
    assert {cp.status for cp in hf.checkpoints("old")} == {"valid", "expired"}, "one is a fork point"
    hf.delete_run(fork)
    for _ in range(2):
        hf.internals.clock.now += timedelta(days=1.1).total_seconds()
        with hf.run("r"):
            pass
    assert {run.id for run in hf.runs()} == {"r"}
    assert hf.verify().sound


@pytest.mark.parametrize("kind", STORES)
def test_entering_a_run_expires_what_is_too_old_in_runs_that_nobody_continues(kind, tmp_path):
    """Proves A10: of an abandoned run the head and what a recovery falls back to stay, and it is looked at no more."""
    clock = Clock()
    with open_store_in(kind, tmp_path) as store, Holdfast(store, clock=clock) as hf:

        def statuses(run):
            return [cp.status for cp in hf.checkpoints(run, archived=True)]

        def sweep(*, days):
            clock.now += timedelta(days=days).total_seconds()
            with hf.run("r"):
                pass

        plain = hf.run("never-entered")
        with hf.run("stopped") as stopped:
            for phase in ("a", "b", "c", "d"):
                for run in (plain, stopped):
                    run.checkpoint(trigger="agent_complete", phase=phase)
            assert statuses("stopped") == ["valid"] * 5
        sweep(days=29)
        assert statuses("never-entered") == ["valid"] * 4
        sweep(days=2)
        assert statuses("never-entered") == ["valid"] * 2 + ["expired"] * 2
        assert statuses("stopped") == ["valid"] * 2 + ["expired"] * 4
        sweep(days=0.5)
        assert len(statuses("stopped")) == 6
        sweep(days=1)
        assert (statuses("never-entered"), statuses("stopped")) == (["valid"] * 2, ["valid"] * 2)
        assert hf.recover("stopped").success
        sweep(days=1)
        assert hf.verify().sound
        cursor = msgspec.msgpack.decode(store.meta("retention"))
        before = datetime.fromtimestamp(clock.now, UTC) - timedelta(days=30)
        for status in (None, "ended"):
            assert store.moved_before(status, before, after=cursor[status or ""], limit=9) == []


def test_entering_a_run_expires_others_by_age_alone_and_none_of_an_adapter(tmp_path):
    """Proves A10, C11, C13: counts are for those who write a run; readable documents go with their checkpoints."""
    clock, place, mirror = Clock(), tmp_path / "holdfast.db", tmp_path / "mirror"
    settings = make_settings({"mirror": {"form": "json", "location": f"{mirror}/{{run}}"}})
    keeps_all = make_settings(
        {"retention": {"triggers": {"*": -1}}, "mirror": {"form": "json", "location": f"{mirror}/{{run}}"}}
    )
    with Holdfast(open_store(place), clock=clock, settings=keeps_all) as hf:
        runs = [hf.run("idle"), hf.run("thread", attributes={"framework": "langgraph"})]
        for n in range(8):
            for run in runs:
                run.checkpoint(trigger="agent_complete", state=n)
        assert len(list(mirror.rglob("*.json"))) > 16
    clock.now += timedelta(days=30.5).total_seconds()

    def left(hf, run):
        return [cp.status for cp in hf.checkpoints(run, archived=True)]

    with Holdfast(open_store(place), clock=clock, settings=settings) as hf:
        for days, idle in ((0, ["valid"] * 2 + ["expired"] * 6), (1.1, ["valid"] * 2)):
            clock.now += timedelta(days=days).total_seconds()
            with hf.run("other"):
                pass
            assert (left(hf, "idle"), left(hf, "thread")) == (idle, ["valid"] * 8)
        assert len([one for one in mirror.rglob("*.json") if "idle" in str(one)]) <= 4  # two, the latest, the index


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
    worker = RetentionWorker(store, "r", RetentionPolicy(rules=RULES.keeping({"*": 1})), clock=Clock(), quiet_s=0.01)
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


def test_pruning_by_count_keeps_what_a_recovery_needs(still):
    """Proves E2: the same protections as by a policy."""
    run = still.run("r")
    for n in range(4):
        run.checkpoint(state=n)
    with run.destructive("deploy") as undo:
        pass
    sound = run.checkpoint(state=5)
    broken = run.checkpoint(state=6)
    still.mark(broken.id, status="corrupted")
    still.prune("r", keep=1)
    assert {cp.id for cp in still.checkpoints("r")} == {undo.id, sound.id, broken.id}
    assert still.prune("r", older_than=timedelta(days=-1)) == []


def test_pruning_by_count_keeps_fork_points(still):
    run = still.run("r")
    made = [run.checkpoint(state=n) for n in range(4)]
    still.fork(made[1].id, "fork")
    still.prune("r", keep=1)
    assert [cp.seq for cp in still.checkpoints("r")] == [4, 2]


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
    worker = RetentionWorker(store, "r", RetentionPolicy(rules=RULES.keeping({"*": 1})), clock=Clock(), quiet_s=0.01)
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

        def run(self, run, **options):
            if self.refuses:
                raise StoreUnavailable("refusing:", "not now")
            return super().run(run, **options)

    store = Refusing()
    run = Holdfast(store, clock=Clock(), settings=make_settings({"retention": {"enabled": False}})).run("r")
    worker = RetentionWorker(store, "r", RetentionPolicy(live=2), clock=Clock(), quiet_s=60)
    for number in range(1, 4):
        worker.note(run.checkpoint(state=number).record)
    store.refuses = True
    worker.flush()
    assert worker.error is not None
    store.refuses = False
    worker.note(run.checkpoint(state=4).record)
    worker.stop()
    statuses = [record.marks.status for record in store.checkpoints("r")]
    assert statuses == ["valid", "valid", "archived", "archived"]


def on_disk(folder):
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum(status.st_size for status in files)


@pytest.mark.parametrize("kind", ["sqlite", "files"])
@pytest.mark.parametrize(("size", "count"), [(100_000, 30), (200, 1_500)])
def test_the_size_limit_is_one_of_bytes_on_the_disk(kind, tmp_path, size, count):
    """Proves C14, E7: on every store, for a few large checkpoints and for many small ones."""
    random = Random(7)
    limit = 0.8
    with opened(kind, tmp_path):
        pass
    empty = on_disk(tmp_path)
    with opened(kind, tmp_path, retention={"total_mb": limit}) as hf:
        with hf.run("r") as run:
            for number in range(count):
                run.checkpoint(state={"n": number, "text": random.randbytes(size).hex()})
        left = hf.checkpoints("r", archived=True)
    assert 2 < len(left) < count
    # An empty SQLite store has pages of its own; the log of a store of files is rewritten when half of it is gone.
    share = 2.5 if kind == "files" and size == 200 else 1.4
    assert on_disk(tmp_path) - empty <= share * limit * (1 << 20)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_size_and_codec_are_those_of_the_disk_on_every_store(kind, tmp_path, codec):
    """Proves A7: the compression setting is honoured, and what the envelope says is true."""
    text = [f"line {number} of a text that compresses well" for number in range(20_000)]
    with opened(kind, tmp_path, compression=codec) as hf:
        run = hf.run("r")
        run.checkpoint(state=0)
        before = hf.stats().stored_bytes
        envelope = run.checkpoint(state=text).record.envelope
        assert envelope.codec == codec
        assert envelope.stored_bytes == hf.stats().stored_bytes - before
        assert (envelope.stored_bytes > 800_000) == (codec == "none")
    if kind == "files":
        chunks = on_disk(tmp_path / "files" / "chunks")
        assert envelope.stored_bytes <= chunks <= envelope.stored_bytes + 5_000
