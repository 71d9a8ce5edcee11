"""Commands of runs and of the watch itself: what is cancelled ends, and what is short is not looked after."""

import threading
import time

import pytest

import holdfast
from holdfast import Command
from holdfast.runtime.cancel_watch import CancelWatch


def of_the_watch():
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-cancel-watch"]


def test_many_short_commands_cost_no_look_and_one_thread_that_ends():
    looks = []
    watch = CancelWatch(lambda: bool(looks.append(1)))
    before = len(of_the_watch())
    for _ in range(500):
        with watch.watched() as cancelled:
            assert not cancelled.is_set()
    assert len(of_the_watch()) - before <= 1
    deadline = time.monotonic() + 10
    while len(of_the_watch()) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (len(of_the_watch()) <= before, looks) == (True, [])


def test_a_store_that_cannot_be_read_for_a_while_is_asked_again():
    answers = iter([OSError("no network"), True])

    def look():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with CancelWatch(look).watched() as cancelled:
        assert cancelled.wait(10)


def end_of(hf, work):
    """Carry out work in a run until that ends."""
    with hf.run("r") as run:
        run.step("first", lambda: 1)
        work(run)


def cancel_when_it_began(hf):
    return lambda _stream, text: hf.control.cancel("r", by="ann") if "begun" in text else None


@pytest.mark.parametrize("waits", [False, True])
def test_a_command_of_a_run_ends_with_it_and_is_no_failure(waits):
    command = Command("echo begun; sleep 60")

    def work(run):
        if waits:
            hf.control.signal("r", "go")
            run.wait_signal("go")
        run.step("long", lambda: command.run(host=run.host, on_output=cancel_when_it_began(hf)))

    with holdfast.open("memory:") as hf:
        with pytest.raises(holdfast.RunCancelled, match="by ann"):
            end_of(hf, work)
        assert hf.latest("r").summary.status == "cancelled"
        assert [line["step"] for line in hf.latest("r").calls if line["kind"] == "step"] == ["first"]


def test_an_agent_that_is_a_command_ends_with_its_run():
    def work(run):
        run.agents.register("coder", Command("sleep 60"))
        threading.Timer(0.2, lambda: hf.control.cancel("r")).start()
        run.agents.call("coder", "go", task="t")

    with holdfast.open("memory:") as hf:
        with pytest.raises(holdfast.RunCancelled):
            end_of(hf, work)
        (agent,) = hf.latest("r").section("agents")
        assert (agent.status, agent.error) == ("running", None)


def test_no_command_begins_after_a_cancellation_was_noticed(tmp_path):
    made = tmp_path / "made"

    def work(run):
        with pytest.raises(holdfast.RunCancelled):
            Command("echo begun; sleep 60").run(host=run.host, on_output=cancel_when_it_began(hf))
        Command(["touch", str(made)]).run(host=run.host)

    with holdfast.open("memory:") as hf, pytest.raises(holdfast.RunCancelled):
        end_of(hf, work)
    assert not made.exists()
