"""Real signals to real processes: what is saved, how the process ends, and what a second signal does."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from holdfast import Settings
from holdfast import open as open_holdfast

PROGRAM = """
import sys, time
import holdfast

class Counter:
    value = 0
    def snapshot(self):
        return self.value
    def restore(self, value):
        self.value = value

hf = holdfast.open(sys.argv[1], settings={settings})
counter = Counter()
with hf.run("r") as run:
    run.register("state", counter)
    {body}
print("continued", flush=True)
"""
WORK = """
    print("ready", flush=True)
    while True:
        with run.lock:
            counter.value += 1
        time.sleep(0.001)
"""
COMMITS = """
    print("ready", flush=True)
    while True:
        counter.value += 1
        run.checkpoint(reason="step", state={"n": counter.value, "filler": ["x" * 500] * 200})
"""
STUBBORN = """
    with run.lock:
        print("ready", flush=True)
        try:
            time.sleep(30)
        finally:
            print("left", flush=True)
"""


def _heed_signals():
    """Undo what a shell does to jobs in the background: they are started with these ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def begin(folder, body, settings="holdfast.Settings()"):
    program = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip(), settings=settings)
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_signals,  # noqa: PLW1509 - no threads here
    )
    assert child.stdout.readline().strip() == "ready"
    return child


@pytest.mark.parametrize(
    ("number", "trigger", "code"),
    [
        (signal.SIGINT, "user_interrupt", -signal.SIGINT),
        (signal.SIGTERM, "shutdown", 143),
        (signal.SIGHUP, "session_end", 129),
    ],
)
def test_a_signal_saves_at_once_and_ends_cleanly(tmp_path, number, trigger, code):
    """Proves C10, A10."""
    child = begin(tmp_path, WORK)
    time.sleep(0.05)
    child.send_signal(number)
    output, errors = child.communicate(timeout=30)
    assert child.returncode == code, errors
    assert "continued" not in output
    with open_holdfast(tmp_path, settings=Settings()) as hf:
        saved = hf.latest("r")
        assert hf.verify().sound
        assert (saved.trigger, saved.reason) == (trigger, f"{signal.Signals(number).name} received")
        assert saved.section("state") > 0
        assert sum(cp.trigger == trigger for cp in hf.checkpoints("r")) == 1, "saved twice for one signal"


@pytest.mark.parametrize("attempt", range(12))
def test_a_signal_in_the_middle_of_a_commit_waits_for_it(tmp_path, attempt):
    """A commit is never torn or nested, whenever the signal arrives; the last state is the one that is saved."""
    child = begin(tmp_path, COMMITS)
    time.sleep(0.02 + attempt * 0.0037)
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 143, errors
    with open_holdfast(tmp_path, settings=Settings()) as hf:
        listed = hf.checkpoints("r", archived=True)
        assert hf.verify().sound
        assert (listed[0].trigger, listed[0].seq) == ("shutdown", len(listed))
        last_step = listed[1].section("state")["n"]
        assert listed[0].section("state") in (last_step, last_step + 1)


def test_a_second_interrupt_leaves_at_once(tmp_path):
    """Proves C10: the first waits for the lock, the second does not."""
    child = begin(tmp_path, STUBBORN)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=10)
    assert child.returncode == -signal.SIGINT
    assert "left" in output


def test_an_ignored_signal_stays_ignored(tmp_path):
    """nohup: what the parent ignores is not taken over."""
    program = PROGRAM.format(body="print('ready', flush=True); time.sleep(0.5)", settings="holdfast.Settings()")
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # noqa: PLW1509 - no threads here
    )
    assert child.stdout.readline().strip() == "ready"
    child.send_signal(signal.SIGHUP)
    output, _ = child.communicate(timeout=30)
    assert (child.returncode, output.strip()) == (0, "continued")


def test_handlers_are_given_back(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with open_holdfast(tmp_path, settings=Settings()) as hf, hf.run("r") as run:
        run.checkpoint(state=1)
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_interrupt_inside_the_block_is_saved_and_raised_here(tmp_path, request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with open_holdfast(tmp_path, settings=Settings()) as hf:
        with pytest.raises(KeyboardInterrupt), hf.run("r") as run:  # noqa: PT012 - what happens in the block is the test
            run.checkpoint(state=1)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("continued after the signal")
        assert [cp.trigger for cp in hf.checkpoints("r")] == ["user_interrupt", "manual", "state_transition"]


IN_THE_STORE = """
    run.checkpoint()
    with hf.store.medium._writes.lock:  # as hf.prune() holds it
        try:
            print("ready", flush=True)
            time.sleep(30)
        finally:
            print("inside", hf.store.run("r").last_seq, flush=True)
"""
TIMED = """
    run.checkpoint()
    with hf.store.medium._writes.lock:
        time.sleep(0.2)  # by now the timer holds the run's lock and waits for the store
        print("ready", flush=True)
        time.sleep(30)
"""


@pytest.mark.parametrize("interval_s", [None, 0.05])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_inside_a_call_of_the_store_does_not_deadlock(tmp_path, interval_s, number):
    """Main holds the store, the timer holds the run and waits for the store: the handler waits for neither for long."""
    program = TIMED if interval_s else IN_THE_STORE
    child = begin(tmp_path, program, f"holdfast.Settings(interval_s={interval_s})")
    child.send_signal(number)
    try:
        output, errors = child.communicate(timeout=12)
    finally:
        child.kill()
    assert child.returncode in (143, -signal.SIGINT), errors
    assert interval_s or output.strip() == "inside 2", "a commit was begun inside a call of the store"
    with open_holdfast(tmp_path, settings=Settings()) as hf:
        assert hf.verify().sound
        assert hf.latest("r").reason == f"{signal.Signals(number).name} received"


CAUGHT = """
    import os, signal
    for _ in range(2):
        counter.value += 1
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            counter.value += 10
            {between}
    print("ready", flush=True)
"""


@pytest.mark.parametrize(("between", "seq"), [("run.checkpoint()", 6), ("pass", 3)])
def test_after_a_caught_interrupt_the_last_state_is_saved(tmp_path, between, seq):
    """The block ends well, so its end is saved; after a checkpoint the next interrupt is a first one again."""
    child = begin(tmp_path, CAUGHT.format(between=between))
    with child:  # not communicate(), which does not see what came together with the first line
        output, errors = child.stdout.read(), child.stderr.read()
    assert (child.returncode, output.strip()) == (0, "continued"), errors
    with open_holdfast(tmp_path, settings=Settings()) as hf:
        last = hf.latest("r")
        assert (last.trigger, last.section("state"), last.seq) == ("shutdown", 22, seq)


HALF_CHANGED = """
    run.checkpoint()
    with run.lock:
        counter.value = "half-changed"
        print("ready", flush=True)
        time.sleep(30)
"""


def test_a_second_interrupt_inside_the_lock_saves_nothing(tmp_path):
    """State in the middle of a change is not saved, neither by the put-off save nor at the end of the block."""
    child = begin(tmp_path, HALF_CHANGED)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert child.returncode == -signal.SIGINT, errors
    with open_holdfast(tmp_path, settings=Settings()) as hf:
        *taken, begun = hf.checkpoints("r", archived=True)
        assert [cp.section("state") for cp in taken] == [0]
        assert "state" not in begun.sections


def test_a_signal_is_not_lost_when_what_it_waited_for_fails(tmp_path):
    body = """
    import os, signal
    print("ready", flush=True)
    try:
        with run.lock:
            os.kill(os.getpid(), signal.SIGTERM)
            raise ValueError
    except ValueError:
        pass
    """
    child = begin(tmp_path, body)
    output, errors = child.communicate(timeout=30)
    assert (child.returncode, output) == (143, ""), errors
