import signal
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import LeaseHeld, LeaseLost, NotFound, RunCancelled, RunWaiting, UsageError


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def hf(place):
    with holdfast.open(place, interval_s=None) as opened:
        yield opened


@pytest.fixture
def outside(place):
    with holdfast.open(place, interval_s=None) as opened:
        yield opened


def waits_in_leave_mode(hf, act):
    with pytest.raises(RunWaiting) as waiting, hf.run("r", waiting="leave") as run:
        act(run)
    return waiting.value


def test_an_approval_is_given_by_another_process_while_the_run_is_gone(hf, outside):
    """Proves E6."""
    error = waits_in_leave_mode(hf, lambda run: run.approve("Deploy?"))
    assert (error.kind, error.question, error.exit_code) == ("approval", "Deploy?", 9)
    assert hf.latest("r").summary.status == "waiting"
    assert [wait.question for wait in outside.control.waiting("r")] == ["Deploy?"]
    outside.control.answer("r", "approve", by="ann", note="go ahead")
    assert outside.control.waiting("r") == []
    with hf.run("r", waiting="leave") as run:
        reply = run.approve("Deploy?")
        assert (reply.approved, reply.by, reply.note) == (True, "ann", "go ahead")
        assert reply.at.tzinfo is UTC
    with hf.run("r", waiting="leave") as run:
        assert run.approve("Deploy?") == reply
    kinds = [line["kind"] for line in hf.latest("r").section("journal")]
    assert kinds.count("waits") == kinds.count("answered") == 1


def test_a_rejection_is_a_normal_outcome(hf):
    waits_in_leave_mode(hf, lambda run: run.approve("Deploy?"))
    hf.control.answer("r", "reject", by="bob")
    with hf.run("r") as run:
        assert not run.approve("Deploy?").approved


def test_a_waiting_run_is_woken_by_the_answer(hf, outside):
    replies = []
    ready = threading.Event()

    def work():
        with hf.run("r") as run:
            run.step("a", lambda: 1)
            ready.set()
            replies.append(run.approve("Deploy?", options=["blue", "green"]))

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    while not outside.control.waiting("r"):
        pass
    outside.control.answer("r", "green")
    thread.join(30)
    assert replies[0].choice == "green"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda hf: hf.control.answer("r", "maybe"), "use approve or reject"),
        (lambda hf: hf.control.answer("r", "approve", wait="other"), "it waits for approve:Deploy"),
        (lambda hf: hf.control.raise_budget("r", {"tokens": 1}), "no budget 'tokens' has a limit that could be raised"),
    ],
)
def test_an_answer_that_fits_nothing_is_refused(hf, answer, message):
    waits_in_leave_mode(hf, lambda run: run.approve("Deploy?"))
    with pytest.raises(UsageError, match=message):
        answer(hf)


def test_a_finished_or_unknown_run_takes_no_answer(hf):
    with pytest.raises(NotFound):
        hf.control.answer("nobody", "approve")
    with hf.run("r") as run:
        run.step("a", lambda: 1)
        run.complete()
    for say in (
        lambda: hf.control.answer("r", "approve"),
        lambda: hf.control.pause("r"),
        lambda: hf.control.cancel("r"),
    ):
        with pytest.raises(UsageError, match="is completed"):
            say()


def test_a_signal_is_kept_until_it_is_waited_for_and_heard_once(hf):
    with hf.run("r") as run:
        run.step("a", lambda: 1)
    hf.control.signal("r", "data-ready", {"rows": 3}, by="etl")
    with hf.run("r", waiting="leave") as run:
        reply = run.wait_signal("data-ready")
        assert (reply.value, reply.by) == ({"rows": 3}, "etl")
    with hf.run("r", waiting="leave") as run:
        assert run.wait_signal("data-ready").value == {"rows": 3}  # the same wait, from the record


def test_a_durable_timer_counts_from_the_first_life(hf):
    now = [1_800_000_000.0]
    hf.internals.clock = lambda: now[0]

    def nap(run):
        return run.sleep_until(datetime.fromtimestamp(now[0], UTC) + timedelta(hours=1), name="nap")

    waits_in_leave_mode(hf, nap)
    now[0] += 1800
    waits_in_leave_mode(hf, nap)
    now[0] += 1801
    with hf.run("r", waiting="leave") as run:
        assert nap(run).choice == "time"


def test_a_time_without_a_zone_is_refused(hf):
    with hf.run("r") as run, pytest.raises(UsageError, match="zone"):
        run.sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001


def test_a_pause_from_outside_is_taken_at_the_next_boundary_and_acknowledged(hf, outside):
    """Proves A16."""
    with hf.run("r") as run:
        run.step("a", lambda: 1)
    outside.control.pause("r", by="ann", note="lunch")
    with pytest.raises(RunWaiting, match="lunch"), hf.run("r", waiting="leave") as run:
        run.step("b", lambda: 2)
    assert outside.latest("r").summary.status == "paused"
    with pytest.raises(RunWaiting, match="lunch"), hf.run("r", waiting="leave"):
        pytest.fail("a paused run was moved")
    outside.control.unpause("r", by="ann")
    with hf.run("r", waiting="leave") as run:
        assert run.step("d", lambda: 4) == 4
    assert outside.latest("r").summary.status == "ended"


def test_a_pause_that_is_taken_back_in_time_is_not_noticed(hf, outside):
    with hf.run("r") as run:
        run.step("a", lambda: 1)
    outside.control.pause("r")
    outside.control.unpause("r")
    with hf.run("r", waiting="leave") as run:
        run.step("b", lambda: 2)


def test_a_cancelled_run_ends_at_the_next_boundary_and_stays_ended(hf, outside):
    """Proves A11."""
    with hf.run("r") as run:
        run.step("a", lambda: 1)
    outside.control.cancel("r", by="eve", note="wrong repository")
    with pytest.raises(RunCancelled, match="eve: wrong repository"), hf.run("r") as run:
        run.step("b", lambda: 2)
    assert hf.latest("r").summary.status == "cancelled"
    assert not hf.latest("r").recovery.can_resume
    with pytest.raises(RunCancelled), hf.run("r"):
        pytest.fail("a cancelled run was entered")


def test_an_inbox_is_hidden_and_goes_with_its_run(hf):
    with hf.run("r") as run:
        run.step("a", lambda: 1)
    hf.control.signal("r", "x")
    assert [run.id for run in hf.runs()] == ["r"]
    assert [run.id for run in hf.runs(limit=1)] == ["r"]
    hf.delete_run("r")
    assert list(hf.store.runs()) == []


def test_many_may_speak_at_once(hf, place):
    with hf.run("r") as run:
        run.step("a", lambda: 1)

    def speak(name):
        with holdfast.open(place, interval_s=None) as other:
            for number in range(5):
                other.control.signal("r", f"{name}-{number}", number)

    threads = [threading.Thread(target=speak, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with hf.run("r", waiting="leave") as run:
        assert [run.wait_signal(f"t{i}-{n}").value for i in range(4) for n in range(5)] == list(range(5)) * 4


def test_one_process_moves_a_run_and_a_second_is_told_who(hf, outside):
    with hf.run("r") as run:
        run.step("a", lambda: 1)
        with pytest.raises(LeaseHeld, match=r"pid \d+ .* since"), outside.run("r"):
            pytest.fail("two processes have the run")
        with pytest.raises(LeaseHeld):
            outside.run("r").checkpoint(state=1)
    with outside.run("r") as run:
        run.step("b", lambda: 2)


def test_a_worker_that_lost_its_lease_cannot_commit(hf, outside):
    def lose(run):
        run.step("a", lambda: 1)
        outside.store.leases.end(outside.store.leases.running("r"))
        outside.store.leases.take("r", owner="somebody else", ttl_s=60)
        run.step("b", lambda: 2)

    with pytest.raises(LeaseLost), hf.run("r") as run:
        lose(run)
    assert outside.latest("r").summary.steps == 1


CRASHING = """
    import os, signal, sys, holdfast
    with holdfast.open(sys.argv[1], interval_s=None).run("r") as run:
        run.step("a", lambda: 1)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lease_of_a_dead_process_is_taken_over_at_once(hf, place):
    """Proves B8."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CRASHING), str(place)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert hf.store.leases.running("r") is not None
    assert hf.latest("r").summary.status == "running"
    with hf.run("r") as run:
        assert run.step("a", lambda: 2) == 1
        assert run.recorder.journal()[-1]["what"] == "it was running"


def test_a_completed_run_stays_completed_when_its_program_is_run_again(hf):
    """Proves A13."""
    for _ in range(2):
        with hf.run("r") as run:
            run.step("a", lambda: 1)
            run.complete()
    with hf.run("r") as run:
        run.step("a", lambda: 1)
    assert hf.latest("r").summary.status == "completed"
    with hf.run("r") as run:
        run.step("more", lambda: 2)
    assert hf.latest("r").summary.status == "ended"


def test_a_pause_that_comes_too_late_keeps_a_completed_run_from_nothing(hf, outside):
    with hf.run("r") as run:
        run.step("a", lambda: 1)
        outside.control.pause("r")
        run.host._looked_at = float("inf")  # not noticed in time
        run.complete()
    with hf.run("r", waiting="leave") as run:
        run.step("a", lambda: 1)
    assert hf.latest("r").summary.status == "completed"


def test_a_signal_that_does_not_come_is_waited_for_until_its_time(hf):
    with hf.run("r") as run:
        assert run.wait_signal("go", until=run.host.now() + timedelta(seconds=0.05)).choice == "time"


def test_a_signal_is_never_in_a_checkpoint_that_has_neither_it_nor_the_answer(hf):
    """Proves E6."""
    with hf.run("r") as run:
        run.step("first", str)
    hf.control.signal("r", "go", 42)
    run = hf.run("r")
    waits = run.host.waits
    take = waits._reply

    def saved_between(*given):
        take(*given)
        run.checkpoint()
        raise SystemError

    waits._reply = saved_between
    with pytest.raises(SystemError):
        run.wait_signal("go")
    with hf.run("r", waiting="leave") as run:
        assert run.wait_signal("go").value == 42


def test_a_cancellation_ends_every_thread_that_waits(hf, outside):
    timer = threading.Timer(0.5, lambda: outside.control.cancel("r", by="ann"))
    with pytest.raises(RunCancelled), hf.run("r") as run:  # noqa: PT012 - the timer begins with the run
        run.step("first", str)
        timer.start()
        run.parallel({"a": lambda: run.approve("A?"), "b": lambda: run.approve("B?")})
    assert hf.latest("r").summary.status == "cancelled"


def test_after_a_cancellation_no_more_parallel_steps_are_begun(hf, outside):
    done = []

    def work(number):
        done.append(number)
        threading.Event().wait(0.3)
        if number == 0:
            outside.control.cancel("r")

    with pytest.raises(RunCancelled), hf.run("r") as run:  # noqa: PT012 - the first step makes the run known
        run.step("first", str)
        run.parallel({f"s{i}": lambda i=i: work(i) for i in range(8)}, limit=1)
    assert len(done) < 4


def test_a_cancellation_is_not_taken_back_by_a_later_pause(hf, outside):
    with hf.run("r") as run:
        run.step("first", str)
    outside.control.cancel("r")
    outside.control.pause("r")
    outside.control.unpause("r")
    with pytest.raises(RunCancelled), hf.run("r", waiting="leave"):
        pass


def test_a_run_that_was_cancelled_between_two_lives_does_nothing_in_the_next(hf, outside):
    done = []
    with hf.run("r") as run:
        run.step("first", str)
    outside.control.cancel("r")
    with pytest.raises(RunCancelled), hf.run("r") as run:
        run.step("second", done.append, 1)
    assert done == []


def test_a_run_that_is_set_back_asks_again(hf, outside):
    with hf.run("r", waiting="leave") as run:
        run.sleep_until(run.host.now(), name="nap")
        before = run.checkpoint()
    with pytest.raises(RunWaiting), hf.run("r", waiting="leave") as run:
        run.approve("Deploy?")
    outside.control.answer("r", "approve")
    with hf.run("r", waiting="leave") as run:
        assert run.approve("Deploy?").approved
    assert hf.recover(before.id).success
    with pytest.raises(RunWaiting, match="Deploy"), hf.run("r", waiting="leave") as run:
        run.approve("Deploy?")


def test_an_answer_that_is_no_option_does_not_end_a_wait_however_it_got_into_the_inbox(hf):
    waits_in_leave_mode(hf, lambda run: run.approve("Deploy?"))
    hf.control._post("r", "answer", target="approve:Deploy?", choice="maybe")
    waits_in_leave_mode(hf, lambda run: run.approve("Deploy?"))
    assert "answer not used" in [line["kind"] for line in hf.latest("r").section("journal")]
