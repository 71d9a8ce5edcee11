"""Questions and timers are calls: asked once, answered once, and never about other work than was asked about."""

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast
from crash.children import TORTURE, Child
from holdfast import RunWaiting, UsageError

WATCHED = [str(Path(holdfast.__file__).parent / "runtime" / name) for name in ("waits.py", "calls.py")]


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store.db", interval_s=None) as opened:
        yield opened


def built(run, text="one", **options):
    run.step("build", lambda: text, version=text)
    return run.approve("Ship it?", after=["build"], **options)


def leave(hf, *given, **options):
    """Go as far as the question; return its id."""
    with pytest.raises(RunWaiting) as waiting, hf.run("r", waiting="leave") as run:
        built(run, *given, **options)
    return waiting.value.wait


def questions(hf, run="r"):
    return [(one["event"], one["step"]) for one in hf.latest(run).calls if one["kind"] in ("question", "timer")]


def test_an_answer_holds_for_the_work_it_was_asked_about(hf):
    """Proves E6."""
    assert leave(hf) == "approve:Ship it?"
    hf.control.answer("r", "approve", by="ann")
    with hf.run("r", waiting="leave") as run:
        assert built(run).by == "ann"
        assert run.calls.record("approve:Ship it?")["result"]["choice"] == "approve"
    with hf.run("r", waiting="leave") as run:
        assert built(run).by == "ann"
    assert questions(hf) == [("asked", "approve:Ship it?"), ("done", "approve:Ship it?")]


@pytest.mark.parametrize(
    "other", [{"text": "two"}, {"options": ["approve", "later"]}, {"risk": "high"}], ids=["work", "options", "details"]
)
def test_other_work_is_another_question_and_the_old_yes_lapses(hf, other):
    """Proves E6."""
    leave(hf)
    hf.control.answer("r", "approve")
    with hf.run("r", waiting="leave") as run:
        assert built(run).approved
    assert leave(hf, **other) == "approve:Ship it?:2"
    with pytest.raises(UsageError, match="it waits for approve:Ship it"):
        hf.control.answer("r", "approve", wait="approve:Ship it?")
    hf.control.answer("r", "approve", wait="approve:Ship it?:2", by="bob")
    with hf.run("r", waiting="leave") as run:
        assert built(run, **other).by == "bob"


def test_another_text_under_the_same_name_is_another_question(hf):
    for text, wait in (("Ship 1.0?", "ship"), ("Ship 1.1?", "ship:2")):
        with pytest.raises(RunWaiting) as waiting, hf.run("r", waiting="leave") as run:
            run.approve(text, name="ship")
        assert waiting.value.wait == wait
    assert [one.question for one in hf.control.waiting("r")] == ["Ship 1.1?"]


def test_an_answer_that_was_under_way_when_its_question_lapsed_is_recorded_and_not_used(hf):
    leave(hf)
    hf.control.answer("r", "approve", by="late")  # nobody has read it when the work changes
    assert leave(hf, "two") == "approve:Ship it?:2"
    assert hf.latest("r").section("status")["status"] == "waiting"
    hf.control._post("r", "answer", target="approve:Ship it?", choice="approve", by="later")
    assert leave(hf, "two") == "approve:Ship it?:2"
    assert [one["by"] for one in hf.run("r").recorder.journal() if one["kind"] == "answer not used"] == ["later"]


def test_the_same_question_once_more_is_the_next_one(hf):
    def until_good(run):
        while not run.approve("Good now?").approved:
            pass

    for number in ("", "#2", "#3"):
        with pytest.raises(RunWaiting) as waiting, hf.run("r", waiting="leave") as run:
            until_good(run)
        assert waiting.value.wait == f"approve:Good now?{number}"
        hf.control.answer("r", "reject")


def test_a_question_inside_a_step_is_that_steps_own(hf):
    def work():
        return run.approve("Sure?").choice

    with pytest.raises(RunWaiting) as waiting, hf.run("r", waiting="leave") as run:
        run.step("deploy", work)
    assert waiting.value.wait == "deploy/approve:Sure?"
    hf.control.answer("r", "reject")
    with hf.run("r", waiting="leave") as run:
        assert run.step("deploy", work) == "reject"


@pytest.mark.parametrize("given", ["build", ["nothing"]])
def test_what_a_question_is_after_must_be_calls_with_a_result(hf, given):
    with hf.run("r") as run, pytest.raises(UsageError):
        run.approve("Ship it?", after=given)


def test_a_timer_and_a_signal_are_calls(hf):
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    with hf.run("r", waiting="leave") as run:
        run.sleep_until(hour_ago, name="nap")
    hf.control.signal("r", "go", 1)
    hf.control.signal("r", "go", 2)
    with hf.run("r", waiting="leave") as run:
        assert [run.wait_signal("go").value for _ in range(2)] == [1, 2]
    assert [step for event, step in questions(hf) if event == "done"] == ["nap", "signal:go", "signal:go#2"]
    assert [one.step for one in hf.replay("r")] == ["nap", "signal:go", "signal:go#2"]


def ask(path, kill_at):
    """Build and ask, in a process that dies at one of the lines that ask; return how many lines there are."""

    def life(report):
        lines = 0

        def trace(frame, event, _argument):
            nonlocal lines
            if frame.f_code.co_filename not in WATCHED:
                return None
            if event == "line":
                lines += 1
                if lines == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        with holdfast.open(path, interval_s=None) as hf:
            try:
                with hf.run("r", waiting="leave") as run:
                    run.step("build", lambda: 1)
                    sys.settrace(trace)
                    reply = run.approve("Ship it?", after=["build"])
                    sys.settrace(None)
                    report(reply.choice)
            except RunWaiting as waiting:
                sys.settrace(None)
                report(waiting.wait)
        report(lines)

    ended = Child(life).join()
    assert ended.signal in (0, signal.SIGKILL), ended
    return ended.reports


@pytest.mark.parametrize("when", ["asking", "answered"])
def test_killed_at_each_line_it_is_asked_once_and_answered_once(tmp_path, when):
    """Proves E6: with SIGKILL at every fourth line, at every one with HOLDFAST_TORTURE."""
    lines, kill_at = 1_000, 1
    while kill_at <= lines:
        path = tmp_path / f"{kill_at}.db"
        said = ask(path, kill_at if when == "asking" else 0)
        with holdfast.open(path, interval_s=None) as outside:
            if when == "asking" and len(said) < 2:  # killed: the next process asks, or waits for what was asked
                assert ask(path, 0)[0] == "approve:Ship it?"
            (wait,) = outside.control.waiting("r")
            outside.control.answer("r", "approve", wait=wait.id)
            if when == "answered":
                said = ask(path, kill_at)
            lines = said[-1] if len(said) == 2 else lines
            assert ask(path, 0)[0] == "approve"
            assert questions(outside) == [("asked", "approve:Ship it?"), ("done", "approve:Ship it?")]
            assert outside.control.waiting("r") == []
        kill_at += 1 if TORTURE else 4
    assert kill_at > 50
