"""A run that watches over itself, on a real store."""

import gc
import threading
import time
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import (
    CaptureFailed,
    Every,
    HeadMoved,
    Holdfast,
    OnPhaseComplete,
    RunPaused,
    RunStopped,
    SessionOver,
    Settings,
    StoreUnavailable,
    Trigger,
    UnprotectedWarning,
    UsageError,
    ValueRefused,
)
from holdfast.capture.live import LiveSections
from holdfast.settings.file import make_settings
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SQLiteStore


class Thing:
    def __init__(self, value):
        self.value = value
        self.restored = []

    def snapshot(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def restore(self, value):
        if value == "poison":
            raise ValueError("will not take it")
        self.restored.append(value)
        self.value = value


class Clock:
    def __init__(self, now=1_790_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


class Flaky(MemoryStore):
    """A store whose medium refuses for a while."""

    refuses = False

    def write(self, commit):
        if self.refuses:
            raise StoreUnavailable("flaky:", "the disk refused")
        return super().write(commit)


def opened(store=None, *, strategy=None, clock=None, monotonic=None, **settings):
    given = make_settings({"retention": {"enabled": False}, "session": {"signals": False}, **settings})
    clocks = {"clock": clock or Clock(), "monotonic": monotonic or time.monotonic}
    return Holdfast(store or MemoryStore(), settings=given, strategy=strategy, **clocks)


def test_registered_objects_are_sections_captured_and_put_back():
    """Proves A10."""
    hf = opened()
    run = hf.run("r")
    one, two = Thing({"a": 1}), Thing([1, 2])
    run.register("state", one)
    run.register("mine", two)
    taken = run.checkpoint()
    assert (taken.section("state"), taken.section("mine")) == ({"a": 1}, [1, 2])
    one.value, two.value = {"a": 2}, []
    assert run.recorder.restore_registered() == ["state", "mine"]
    assert (one.value, two.value) == ({"a": 1}, [1, 2])
    given = run.checkpoint(state="given by hand")
    assert given.section("state") == "given by hand"
    run.recorder.live.unregister("mine")
    two.value = "continued"
    assert run.checkpoint().section("mine") == [1, 2]


@pytest.mark.parametrize("value", [ValueError("broken"), {"socket": object()}])
def test_a_capture_that_fails_names_the_section_and_saves_nothing(value):
    """Proves A10: a snapshot() that raises, or returns what cannot be stored."""
    hf = opened()
    run = hf.run("r")
    good, bad = Thing("good"), Thing(value)
    run.register("state", good)
    run.register("bad", bad)
    with pytest.raises((CaptureFailed, ValueRefused), match="bad"):
        run.checkpoint()
    assert not hf.has("r")
    assert good.restored == []
    assert run.protection.since is not None
    bad.value = "fine"
    assert run.checkpoint().sections == ("state", "bad")
    assert run.protection.since is None


def test_a_restore_that_fails_puts_the_others_back():
    hf = opened()
    run = hf.run("r")
    one, two = Thing("one"), Thing("poison")
    run.register("one", one)
    run.register("two", two)
    run.checkpoint()
    one.value, two.value = "later", "later too"
    with pytest.raises(CaptureFailed, match=r"'two'.*will not take it"):
        run.recorder.restore_registered()
    assert (one.value, two.value) == ("later", "later too")


@pytest.mark.parametrize("thing", [object(), Thing])
def test_only_what_has_both_methods_is_registered(thing):
    run = opened().run("r")
    if thing is Thing:
        run.register("state", Thing(1))
        with pytest.raises(UsageError, match="registered already"):
            run.register("state", Thing(2))
    else:
        with pytest.raises(UsageError, match="no snapshot"):
            run.register("state", thing)


def test_all_sections_are_captured_at_one_moment():
    """Proves A10: another thread that changes two objects under the run's lock is never seen half-way."""
    hf = opened()
    run = hf.run("r")
    one, two = Thing(0), Thing(0)
    run.register("one", one)
    run.register("two", two)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            with run.lock:
                one.value += 1
                time.sleep(0)
                two.value += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        taken = [run.checkpoint()]
        while len(taken) < 30 or taken[-1].section("one") == taken[0].section("one"):
            time.sleep(0.001)
            taken.append(run.checkpoint())
    finally:
        stop.set()
        thread.join()
    assert all(cp.section("one") == cp.section("two") for cp in taken)


def test_switches_and_strategy_decide_together():
    """Proves A14, E3, E4."""
    hf = opened(strategy=OnPhaseComplete("plan", "act") | Every(60), triggers={"agent_complete": False})
    run = hf.run("r")
    assert run.maybe_checkpoint("phase_complete", phase="plan", state=1).summary.phase == "plan"
    assert run.maybe_checkpoint("phase_complete", phase="observe", state=2) is None
    assert run.maybe_checkpoint("agent_complete", state=3) is None
    run.switch(phase_complete=False)
    assert run.maybe_checkpoint("phase_complete", phase="act", state=4) is None
    run.switch(all=False)
    assert run.checkpoint(state=5).trigger == "manual"
    run.switch(all=True)
    assert run.maybe_checkpoint("phase_complete", phase="act", state=6).seq == 3


@pytest.mark.parametrize("trigger", list(Trigger))
def test_every_trigger_takes_a_checkpoint_with_its_reason(trigger):
    """Proves A1, C10, D2, E3."""
    taken = opened().run("r").maybe_checkpoint(trigger, state=1, reason="" if trigger != "manual" else "by hand")
    assert (taken.trigger, bool(taken.reason)) == (trigger, True)


def test_automatic_off_leaves_only_manual_checkpoints():
    """Proves C14, A9."""
    run = opened(automatic=False).run("r")
    assert run.maybe_checkpoint("phase_complete", state=1) is None
    with run.destructive("deploy") as before:
        assert before is None
    assert run.checkpoint(state=1).saved


def test_a_destructive_operation_has_a_checkpoint_before_it():
    """Proves A1, A14."""
    hf = opened(destructive={"operations": ["drop_table"]})
    run = hf.run("r")
    run.checkpoint(state="before")
    with run.destructive("drop_table", "users") as before:
        assert hf.latest("r").id == before.id
        assert (before.trigger, before.reason) == ("before_destructive", "before drop_table: users")
    with pytest.raises(ZeroDivisionError), run.destructive("git_push"):
        1 / 0  # noqa: B018
    with pytest.warns(UserWarning, match="not a known destructive"), run.destructive("unheard_of") as before:
        assert before.reason == "before unheard_of"
    with run.destructive("database_migrate") as before:
        assert before.reason == "before migrate_database", "the name of the first document"
    run.switch(before_destructive=False)
    with run.destructive("deploy") as before:
        assert before is None


def test_the_last_checkpoint_is_told_by_any_handle():
    """Proves E4."""
    clock = Clock()
    hf = opened(clock=clock)
    run = hf.run("r")
    assert run.head is None
    run.checkpoint(state=1)
    assert run.head.created_at == hf.run("r").head.created_at == datetime.fromtimestamp(clock.now, UTC)


def test_a_clock_that_jumps_back_neither_hides_nor_hurries_a_checkpoint():
    clock, monotonic = Clock(), Clock(0.0)
    hf = opened(clock=clock, monotonic=monotonic, strategy=Every(60))
    run = hf.run("r")
    run.checkpoint(state=1)
    clock.now -= 86_400
    assert run.maybe_checkpoint("step_complete", state=2) is None
    monotonic.now += 61
    assert run.maybe_checkpoint("step_complete", state=3).seq == 2
    later = opened(hf.store, clock=Clock(clock.now - 86_400), strategy=Every(60)).run("r")
    assert later.maybe_checkpoint("step_complete", state=4).seq == 3
    assert [cp.seq for cp in hf.checkpoints("r")] == [3, 2, 1]


def test_a_failing_checkpoint_does_not_stop_the_work_but_is_never_silent():
    """Proves A14."""
    store = Flaky()
    run = opened(store).run("r")
    run.checkpoint(state=0)
    store.refuses = True
    with pytest.warns(UnprotectedWarning, match="unprotected since .*the disk refused.*a crash would lose"):
        assert run.maybe_checkpoint("step_complete", state=1) is None
    first = run.protection.since
    assert first is not None
    with pytest.warns(UnprotectedWarning, match="2 checkpoints failed"), run.destructive("deploy") as before:
        assert before is None
    assert (run.protection.since, run.protection.failures) == (first, 2)
    store.refuses = False
    assert run.maybe_checkpoint("step_complete", state=2).seq == 2
    assert run.protection.since is None


@pytest.mark.parametrize(("policy", "error"), [("pause", RunPaused), ("stop", RunStopped)])
def test_the_settings_can_pause_or_stop_the_work(policy, error):
    store = Flaky()
    run = opened(store, on_checkpoint_failure=policy).run("r")
    store.refuses = True
    with pytest.raises(error, match="unprotected since"):
        run.maybe_checkpoint("step_complete", state=1)
    with pytest.raises(error), run.destructive("deploy"):
        pytest.fail("continued unprotected")
    assert error.exit_code == 7
    store.refuses = False
    assert run.maybe_checkpoint("step_complete", state=1).saved


def test_only_an_automatic_failure_shouts_and_both_are_remembered(caplog):
    run = opened().run("r")
    with pytest.raises(ValueRefused):
        run.checkpoint(state=object())
    assert not caplog.records
    assert run.protection.since is not None
    with pytest.warns(UnprotectedWarning):
        run.maybe_checkpoint("step_complete", state=object())
    assert "run 'r' is unprotected since" in caplog.text


def test_another_writer_is_never_swallowed():
    """Proves D10."""
    hf = opened()
    one, two = hf.run("r"), hf.run("r")
    one.checkpoint(state=1)
    with pytest.raises(HeadMoved):
        two.maybe_checkpoint("step_complete", state=2)


def test_leaving_saves_last_and_says_how_it_ended():
    """Proves A10, C10, D4."""
    hf = opened()
    thing = Thing(1)
    with hf.run("r") as run:
        run.register("state", thing)
        thing.value = 2
    assert (hf.latest("r").trigger, hf.latest("r").section("state")) == ("shutdown", 2)
    with pytest.raises(ValueError, match="boom"), hf.run("r") as run:  # noqa: PT012 - what happens in the block is the test
        run.register("state", thing)
        thing.value = 3
        raise ValueError("boom")
    last = hf.latest("r")
    assert (last.trigger, last.section("state"), last.section("error").code) == ("error_occurred", 3, "ValueError")
    assert "boom" in last.section("error").stack
    with pytest.raises(KeyboardInterrupt), hf.run("r"):
        raise KeyboardInterrupt
    assert hf.latest("r").trigger == "user_interrupt"
    with hf.run("nothing"):
        pass
    assert [one.trigger for one in hf.checkpoints("nothing")] == ["shutdown", "state_transition"]


def test_a_last_checkpoint_that_fails_does_not_hide_what_ended_the_run():
    """Proves A14."""
    store = Flaky()
    hf = opened(store)
    run = hf.run("r")
    run.checkpoint(state=1)
    with pytest.raises(ZeroDivisionError), run:  # noqa: PT012 - what happens in the block is the test
        store.refuses = True
        1 / 0  # noqa: B018
    assert run.protection.since is not None
    with pytest.raises(RunStopped), run:
        pass


def test_the_timer_takes_checkpoints_by_itself_and_never_inside_a_step(tmp_path):
    """Proves A1, A10."""
    hf = opened(SQLiteStore(tmp_path / "holdfast.db", durability="process"), clock=time.time, interval_s=0.02)
    thing = Thing([0, 0])
    with hf.run("r") as run:
        run.register("state", thing)
        for step in range(1, 30):
            with run.lock:
                thing.value = [step, thing.value[1]]
                time.sleep(0.01)
                thing.value = [step, step]
                if step % 10 == 0:
                    run.checkpoint(reason="step")
            time.sleep(0.005)
    listed = hf.checkpoints("r", archived=True)
    ticks = [cp for cp in listed if cp.trigger == "time_interval"]
    assert ticks
    assert all(cp.section("state")[0] == cp.section("state")[1] for cp in listed[:-1])  # the last is the begin
    assert [cp.seq for cp in listed] == list(range(len(listed), 0, -1))
    assert all(thread.name != "holdfast-timer" for thread in threading.enumerate())


def test_a_timer_that_fails_is_heard_of_in_the_next_call():
    """Proves A14."""
    store = Flaky()
    hf = opened(store, interval_s=0.01)
    with pytest.warns(UnprotectedWarning), hf.run("r") as run:  # noqa: PT031 - what happens in the block is the test
        run.register("state", Thing(1))
        run.checkpoint()
        store.refuses = True
        while run.protection.since is None:
            time.sleep(0.005)
        store.refuses = False


def test_a_deadline_saves_before_the_session_ends():
    """Proves C10, E6 in part."""
    hf = opened(session={"signals": False, "deadline_s": 0.05, "lead_s": 0.04}, interval_s=None)
    with pytest.raises(SessionOver, match="saved as cp_"), hf.run("r") as run:  # noqa: PT012 - what happens in the block is the test
        run.register("state", Thing("position"))
        while True:
            time.sleep(0.005)
            run.maybe_checkpoint("gate_complete")
    triggers = [cp.trigger for cp in hf.checkpoints("r")]
    assert triggers[0] == "session_end"
    assert triggers.count("session_end") == 2
    assert hf.latest("r").summary.status == "ended"


def test_an_interrupted_commit_that_was_stored_after_all_is_found_again():
    """A signal between the store's acknowledgement and ours leaves this writer on the right head."""

    class Interrupted(MemoryStore):
        now = False

        def write(self, commit):
            record = super().write(commit)
            if self.now:
                self.now = False
                raise KeyboardInterrupt
            return record

    store = Interrupted()
    run = opened(store).run("r")
    run.checkpoint(state=1)
    store.now = True
    with pytest.raises(KeyboardInterrupt):
        run.checkpoint(state=2)
    assert run.checkpoint(state=3).seq == 3
    assert opened(store).latest("r").section("state") == 3


def test_disabled_checkpointing_does_nothing_in_a_block_either():
    """Proves D5."""
    hf = Holdfast(MemoryStore(), enabled=False, settings=Settings())
    with hf.run("r") as run:
        run.register("state", Thing(1))
        assert run.maybe_checkpoint("phase_complete") is None
    assert not hf.has("r")


def test_an_unwritable_location_says_where_and_what_to_do(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(StoreUnavailable, match="choose another place"):
        holdfast.open(blocked / "store", settings=Settings())


def test_no_run_is_kept_alive_by_its_own_watch():
    hf = opened()
    hf.run("r").checkpoint(state=1)
    gc.collect()
    assert len(hf.internals.open_runs) == 0


def test_a_switch_reaches_the_timer_at_once():
    """Proves A14, E4."""
    hf = opened(interval_s=0.01, triggers={"time_interval": False})
    with hf.run("r") as run:
        run.register("state", Thing(1))
        time.sleep(0.06)
        assert hf.latest("r").seq == 1
        run.switch(time_interval=True)
        until = time.monotonic() + 5
        while hf.latest("r").seq == 1 and time.monotonic() < until:
            time.sleep(0.005)
        assert hf.latest("r").trigger == "time_interval"
        run.switch(all=False)
        time.sleep(0.03)  # one may be under way
        before = hf.latest("r").seq
        time.sleep(0.06)
        assert hf.latest("r").seq == before


def test_a_run_is_not_stored_when_it_begins_if_that_is_switched_off():
    """Proves A14."""
    hf = opened(triggers={"state_transition": False})
    with hf.run("r"):
        assert not hf.has("r")


def test_a_workspace_alone_is_something_to_save(tmp_path):
    """Proves A10: at the end, by the timer and for an error."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("a")
    hf = opened(interval_s=None)
    with hf.run("end", workspace=tmp_path / "work"):
        pass
    assert "workspace" in hf.latest("end").sections
    with pytest.raises(ZeroDivisionError), hf.run("error", workspace=tmp_path / "work"):
        1 / 0  # noqa: B018
    assert {"workspace", "error"} <= set(hf.latest("error").sections)
    timed = opened(interval_s=0.02)
    with timed.run("timer", workspace=tmp_path / "work"):
        while timed.latest("timer").seq == 1:
            time.sleep(0.005)
    assert "workspace" in timed.checkpoints("timer")[-2].sections


class Counting:
    """An object that counts its changes, and does not count being restored."""

    def __init__(self):
        self.changes = 1
        self.value = "first"

    def snapshot(self):
        return self.value

    def restore(self, value):
        self.value = value


def test_an_object_is_asked_again_when_it_changed_or_was_set_back_and_not_before():
    live, counting = LiveSections(), Counting()
    live.register("part", counting)
    assert live.snapshots() == {"part": "first"}
    assert live.snapshots() == {"part": "first"}  # it was not stored
    live.stored()
    assert live.snapshots() == {}
    live.restore({"part": "old"})
    assert live.snapshots() == {"part": "old"}
    live.stored()
    counting.changes += 1
    assert live.snapshots() == {"part": "old"}
    live.stored()
    live.forget()
    assert live.snapshots() == {"part": "old"}
