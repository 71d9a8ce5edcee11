"""Recoveries of runs with steps: what is kept, what runs again, and what nobody knows."""

from __future__ import annotations

import os
import signal

import pytest

import holdfast
from crash.children import Child
from holdfast import RunWaiting
from holdfast.runtime.steps import current_step


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def hf(place):
    with holdfast.open(place) as opened:
        yield opened


CALLS = []


def note(what):
    CALLS.append(what)
    return what


def done(hf):
    return [record["step"] for record in hf.latest("r").log("steps") if record["event"] == "done"]


def push(log):
    with log.open("a") as file:
        file.write(current_step().key + "\n")
    os.kill(os.getpid(), signal.SIGKILL)


def pushed(log):
    with log.open("a") as file:
        file.write(current_step().key + "\n")
    return "pushed"


push.__qualname__ = pushed.__qualname__ = "push"  # the same step in two lives, one of which dies in it


def died_in_push(place, log):
    def work(report):
        with holdfast.open(place) as hf, hf.run("r") as run:
            run.step("one", note, 1)
            run.step("push", push, log, effect="git push")

    assert Child(work).join().signal == signal.SIGKILL


def test_a_step_of_unknown_outcome_is_told_and_asked_about(hf, place, tmp_path):
    """Proves A12, B8: started, no end, an outside effect: nobody but a person knows."""
    died_in_push(place, tmp_path / "log")
    plan = hf.plan("r")
    [unknown] = plan.unknown
    assert (unknown.step, unknown.treated, unknown.effect) == ("push", "ask", "git push")
    assert "push (git push) began and has no recorded end" in str(plan)
    [status] = hf.recovery.status("r").unknown
    assert status == unknown
    with pytest.raises(RunWaiting), hf.run("r", waiting="leave") as run:
        run.step("push", pushed, tmp_path / "log", effect="git push")


def test_a_person_can_decide_that_it_happened(hf, place, tmp_path):
    log = tmp_path / "log"
    died_in_push(place, log)
    assert hf.recover("r", unknown={"push": "skip"}).success
    with hf.run("r") as run:
        assert run.step("push", pushed, log, effect="git push") is None
    assert len(log.read_text().splitlines()) == 1


def test_a_person_can_decide_to_try_again_and_the_key_is_the_same(hf, place, tmp_path):
    log = tmp_path / "log"
    died_in_push(place, log)
    assert hf.recover("r", unknown={"push": "retry"}).success
    with hf.run("r") as run:
        assert run.step("push", pushed, log, effect="git push") == "pushed"
    first, second = log.read_text().splitlines()
    assert first == second


def test_steps_behind_the_checkpoint_run_again_and_the_plan_names_them(hf):
    """Proves D8."""
    with hf.run("r") as run:
        run.switch(step_complete=True)
        for number in range(4):
            run.step(f"s{number}", note, number)
    points = [point for point in hf.recovery.points("r") if point.steps == 2]
    plan = hf.plan(points[0].checkpoint)
    assert (plan.steps_done, plan.rerun) == (2, ("s2", "s3"))
    assert hf.recover(plan).success
    assert hf.latest("r").summary.steps == 2
    CALLS.clear()
    with hf.run("r") as run:
        for number in range(4):
            run.step(f"s{number}", note, number)
    assert CALLS == [2, 3]
    assert done(hf) == ["s0", "s1", "s2", "s3"]


def test_an_open_run_goes_back_with_its_parts(hf):
    with hf.run("r") as run:
        run.step("s0", note, 0)
        first = run.checkpoint(state=1)
        run.step("s1", note, 1)
        run.host.note("something")
        CALLS.clear()
        assert hf.recover(hf.plan(first.id), run=run).success
        assert [line["step"] for line in hf.latest("r").calls] == ["s0"]
        run.step("s1", note, 1)
        assert CALLS == [1]
    log = hf.latest("r").log("steps")
    assert [record["step"] for record in log] == ["s0", "s1"]
    assert hf.latest("r").summary.steps == 2


def test_the_journal_says_that_the_run_was_recovered(hf):
    """Proves B9."""
    with hf.run("r") as run:
        run.host.note("begun")
        first = run.checkpoint(state=1)
        run.step("s0", note, 0)
    hf.recover(first.id)
    kinds = [line["kind"] for line in hf.latest("r").log("journal")]
    assert kinds[-1] == "recovered"
    assert "begun" in kinds


def test_calls_go_back_with_the_run(hf):
    with hf.run("r") as run:
        run.switch(step_complete=True)
        for number in range(12):
            run.step(f"s{number}", note, number)
    half = next(point for point in hf.recovery.points("r") if point.steps == 3)
    assert hf.recover(half.checkpoint).success
    with hf.run("r") as run:
        for number in range(12):
            run.step(f"s{number}", note, number)
    assert done(hf) == [f"s{number}" for number in range(12)]
