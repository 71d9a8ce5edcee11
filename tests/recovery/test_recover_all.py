"""Automatic recovery: runs whose process is gone continue, each once, whoever else is at it."""

from __future__ import annotations

import os
import signal
import time

import pytest

import holdfast
from crash.children import Child
from holdfast.store.repair import Repair
from holdfast.verify.rebuild import rebuild
from recovery.recovery_kit import contents, damage_record, damage_section, execute


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def hf(place):
    with holdfast.open(place) as opened:
        yield opened


def step(path, name):
    with path.open("a") as file:
        file.write(name + "\n")
    return name


def begun(place, log, *runs):
    """Let a process begin runs and be killed in the second step of each."""

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    for name in runs:

        def work(report, name=name):
            with holdfast.open(place) as hf, hf.run(name) as run:
                run.step("one", step, log, f"{name} one")
                run.step("two", die)

        assert Child(work).join().signal == signal.SIGKILL


def add(hf, name, **sections):
    run = hf.run(name)
    with run.held():
        run.checkpoint(**sections)
    run.close()


def carry_on(log):
    def resume(run):
        run.step("one", step, log, f"{run.id} one")
        run.step("three", step, log, f"{run.id} three")
        run.complete()

    return resume


def test_a_run_whose_process_died_goes_on_from_where_it_stood(hf, place, tmp_path):
    """Proves A13, B8, E4: no step that was done is done again, and a complete run is left in peace."""
    log = tmp_path / "log"
    begun(place, log, "a")
    [found] = hf.recovery.recover_all(carry_on(log))
    assert (found.run, found.outcome) == ("a", "resumed")
    assert log.read_text().splitlines() == ["a one", "a three"]
    assert hf.latest("a").summary.status == "completed"
    before = contents(hf)
    assert hf.recovery.recover_all(carry_on(log)) == []
    assert contents(hf) == before


def test_a_run_whose_row_was_lost_and_repaired_goes_on(hf, place, tmp_path):
    """Proves A13."""
    log = tmp_path / "log"
    begun(place, log, "a")
    execute(place, "DELETE FROM run WHERE id = 'a'")
    assert Repair(hf.store).damaged_runs() == ["a"]
    rebuild(hf.store, "a")
    [found] = hf.recovery.recover_all(carry_on(log))
    assert (found.run, found.outcome) == ("a", "resumed")
    assert log.read_text().splitlines() == ["a one", "a three"]


def test_a_run_that_a_living_process_moves_is_left_to_it(hf, place):
    ready, done = os.pipe(), os.pipe()

    def work(report):
        with holdfast.open(place) as other, other.run("a") as run:
            run.step("one", int)
            os.write(ready[1], b"x")
            os.read(done[0], 1)

    child = Child(work)
    os.read(ready[0], 1)
    try:
        assert hf.recovery.recover_all(str) == []
    finally:
        os.write(done[1], b"x")
        child.join()
    for end in (*ready, *done):
        os.close(end)


def test_runs_that_ended_failed_or_were_never_begun_are_left(hf):
    with hf.run("ended") as run:
        run.checkpoint(state=1)
    with pytest.raises(ValueError, match="x"), hf.run("failed") as run:
        raise ValueError("x")
    hf.run("plain").checkpoint(state=1)
    before = contents(hf)
    assert hf.recovery.recover_all(str) == []
    assert contents(hf) == before


def test_what_cannot_go_on_by_itself_is_reported_with_the_reason_and_not_touched(hf, place, tmp_path):
    """Proves A13, A12."""
    log = tmp_path / "log"
    begun(place, log, "fine", "blocked", "lost")
    add(hf, "blocked", workflow={"current_state": "ERROR"})
    for one in hf.checkpoints("lost"):
        damage_record(place, one.id)
    before = {name: entry for name, entry in contents(hf).items() if name != "fine"}
    found = {one.run: one for one in hf.recovery.recover_all(carry_on(log))}
    assert found["fine"].outcome == "resumed"
    assert (found["blocked"].outcome, "ERROR" in found["blocked"].reason) == ("left", True)
    assert (found["lost"].outcome, "no sound checkpoint" in found["lost"].reason) == ("left", True)
    assert {name: entry for name, entry in contents(hf).items() if name != "fine"} == before


@pytest.mark.parametrize("way", ["record", "section"])
def test_with_the_newest_checkpoint_damaged_it_goes_on_from_the_one_before(hf, place, tmp_path, way):
    """Proves X3, A13."""
    log = tmp_path / "log"
    begun(place, log, "a")
    add(hf, "a", state="newest")
    head = hf.latest("a")
    damage_record(place, head.id) if way == "record" else damage_section(place, head, "state")
    [found] = hf.recovery.recover_all(carry_on(log))
    assert found.outcome == "resumed", found
    assert log.read_text().splitlines() == ["a one", "a three"]
    assert "state" not in hf.latest("a").sections


def test_a_program_that_fails_again_is_reported_and_the_next_run_goes_on(hf, place, tmp_path):
    log = tmp_path / "log"
    begun(place, log, "a", "b")

    def resume(run):
        if run.id == "a":
            raise ValueError("still broken")
        run.complete()

    found = {one.run: one for one in hf.recovery.recover_all(resume)}
    assert (found["a"].outcome, "still broken" in found["a"].reason) == ("failed", True)
    assert found["b"].outcome == "resumed"
    assert hf.latest("a").summary.status == "failed"


def test_options_that_do_not_fit_one_run_do_not_keep_the_others_from_going_on(hf, place, tmp_path):
    log = tmp_path / "log"
    begun(place, log, "plain", "two")
    add(hf, "plain", workflow={"current_state": "BUILD"})
    found = {one.run: one for one in hf.recovery.recover_all(carry_on(log), reset_to="PLAN")}
    assert (found["two"].outcome, "no workflow to reset" in found["two"].reason) == ("left", True)
    assert found["plain"].outcome == "resumed"


def test_a_run_that_waits_for_a_person_waits_on(hf, place, tmp_path):
    begun(place, tmp_path / "log", "a")
    [found] = hf.recovery.recover_all(lambda run: run.approve("deploy?"))
    assert (found.outcome, found.reason) == ("waiting", "deploy?")
    assert hf.latest("a").summary.status == "waiting"


def test_without_a_program_runs_are_put_back_only(hf, place, tmp_path):
    begun(place, tmp_path / "log", "a")
    stood = hf.latest("a").id
    [found] = hf.recovery.recover_all()
    assert (found.outcome, found.checkpoint) == ("ready", stood), "it stands at its head: nothing had to be put back"
    assert hf.latest("a").id == stood


def test_two_processes_at_once_resume_each_run_once(hf, place, tmp_path):
    """Proves A13, D10: counted by what the resumed steps wrote."""
    log, gate = tmp_path / "log", tmp_path / "gate"
    runs = [f"run-{number}" for number in range(6)]
    begun(place, log, *runs)

    def work(report):
        with holdfast.open(place) as other:
            while not gate.exists():
                time.sleep(0.001)
            report([[one.run, one.outcome] for one in other.recovery.recover_all(carry_on(log))])

    children = [Child(work) for _ in range(3)]
    gate.touch()
    ended = [child.join() for child in children]
    assert [end.code for end in ended] == [0, 0, 0], ended
    told = [tuple(one) for end in ended for one in end.reports[0]]
    assert sorted(run for run, outcome in told if outcome == "resumed") == runs
    lines = log.read_text().splitlines()
    assert sorted(lines) == sorted([f"{run} one" for run in runs] + [f"{run} three" for run in runs])
