"""Triggers, `automatic` and strategies decide about every checkpoint; what happened is in the journal either way."""

import os
import signal

import pytest

import holdfast
from crash.children import Child
from holdfast import OnPhaseComplete, Settings
from holdfast.capture.triggers import Trigger

AUTOMATIC = [trigger.value for trigger in Trigger if trigger not in (Trigger.MANUAL, Trigger.RECOVERY)]


def everything(run, calls):
    """Use every part of a run that takes checkpoints."""
    machine = run.machine(states=["draft", "review"])
    run.agents.register("coder", lambda task: calls.append(f"agent {task}") or f"did {task}")
    with run.phase("plan"):
        run.step("think", lambda: calls.append("step") or "thought")
        run.agents.call("coder", "a", task="a")
    graph = run.graph()
    graph.add("one", lambda: calls.append("task") or 1)
    graph.run()
    run.gates.task("gated", lambda: calls.append("worker") or "made", [lambda: calls.append("gate") or True]).run()
    run.mailbox.conflicts.start("c", ["x"]).resolve("x wins")
    if machine.current == "draft":
        machine.to("review")
    with run.destructive("git_push", "origin main"):
        pass


def killed_after(place, settings, work):
    def life(report):
        with holdfast.open(place, settings=settings) as hf, hf.run("r") as run:
            work(run)
            os.kill(os.getpid(), signal.SIGKILL)

    assert Child(life).join().signal == signal.SIGKILL


@pytest.mark.parametrize(
    "settings",
    [
        Settings(triggers=dict.fromkeys(AUTOMATIC, False)),
        Settings(automatic=False),
    ],
    ids=["all triggers off", "automatic off"],
)
def test_with_checkpoints_switched_off_none_is_taken_and_no_finished_work_is_lost(tmp_path, settings):
    """Proves A14, C14."""
    log = tmp_path / "calls"

    def once(run):
        calls = []
        everything(run, calls)
        log.write_text(" ".join(calls))

    killed_after(tmp_path / "s", settings, once)
    assert log.read_text().split() == ["step", "agent", "a", "task", "worker", "gate"]
    with holdfast.open(tmp_path / "s", settings=settings) as hf:
        assert list(hf.checkpoints("r")) == []
        calls = []
        with hf.run("r") as run:
            everything(run, calls)
            assert run.machine(states=["draft", "review"]).current == "review"
            made = run.checkpoint(state="by hand")
        assert calls == []
        assert [one.id for one in hf.checkpoints("r")] == [made.id]


@pytest.fixture
def unsaved(tmp_path):
    """A store with a run of two steps and an agent, and no checkpoint at all."""
    with holdfast.open(tmp_path / "s", settings=Settings(automatic=False)) as hf:
        with hf.run("r") as run:
            run.step("one", lambda: 1)
            run.agents.register("coder", lambda task: f"did {task}")
            run.agents.call("coder", "a", task="a")
            run.log("said").append("hello")
        yield hf


def test_a_run_that_never_took_a_checkpoint_is_found_by_its_journal(unsaved):
    """Proves A14: its end, and any number of it, is a place to look at, to fork and to step through."""
    hf = unsaved
    found = hf.find("r")
    assert (found.summary.status, [one["step"] for one in found.calls]) == ("ended", ["one", "agent:coder/a"])
    assert [one["step"] for one in hf.get("r#2").calls] == ["one"]
    assert hf.recovery.status("r").can_resume
    hf.fork("r", "copy")
    assert list(hf.latest("copy").log("said")) == ["hello"]
    assert [one.step for one in hf.replay("r").steps] == ["one", "agent:coder/a"]
    assert (hf.latest("r"), hf.checkpoints("r")) == (None, [])


def test_a_run_that_never_took_a_checkpoint_is_recovered_to_where_it_stands(unsaved):
    """Proves A14, A1."""
    hf, again = unsaved, []
    before = hf.store.run("r").number
    plan = hf.plan("r")
    assert (plan.checkpoint, hf.store.run("r").number) == ("", before)
    result = hf.recover(plan)
    assert (result.success, result.errors) == (True, ())
    with hf.run("r") as run:
        assert run.step("one", lambda: again.append("one")) == 1
        assert list(run.log("said")) == ["hello"]
    assert again == []


def test_a_run_that_never_took_a_checkpoint_goes_back_to_a_number(unsaved):
    hf = unsaved
    at = next(number for number in range(1, 9) if len(hf.get(f"r#{number}").calls) == 1)
    result = hf.recover(f"r#{at}", confirmed=True)
    assert (result.success, result.errors) == (True, ())
    assert [one["step"] for one in hf.latest("r").calls] == ["one"]
    assert hf.undo("r").success
    assert [one["step"] for one in hf.latest("r").calls] == ["one", "agent:coder/a"]


def test_without_its_checkpoints_a_run_is_not_taken_for_one_that_had_none(tmp_path):
    """Their state is lost: what the journal has is not all of it."""
    with holdfast.open(tmp_path / "s", settings=Settings(automatic=False)) as hf:
        with hf.run("r") as run:
            run.step("one", lambda: 1)
            made = run.checkpoint(state=1)
            run.step("two", lambda: 2)
        hf.delete(made.id)
        with pytest.raises(holdfast.NotFound):
            hf.find("r")


def test_a_switch_that_is_turned_at_run_time_reaches_every_part(tmp_path):
    """Proves A14."""
    with holdfast.open(tmp_path / "s") as hf, hf.run("r") as run:
        run.switch(all=False)
        before = len(hf.checkpoints("r"))
        everything(run, [])
        assert len(hf.checkpoints("r")) == before
        run.switch(agent_complete=True)
        run.agents.call("coder", "b", task="b")
        assert [one.trigger for one in hf.checkpoints("r")][:-before] == ["agent_complete"]


def test_a_strategy_governs_the_checkpoints_of_every_part(tmp_path):
    """Proves E3."""
    with holdfast.open(tmp_path / "s", strategy=OnPhaseComplete("plan")) as hf:
        with hf.run("r") as run:
            everything(run, [])
        taken = [one.trigger for one in reversed(hf.checkpoints("r"))]
    assert taken == ["phase_complete", "before_destructive", "shutdown"]


def test_a_step_that_wrote_files_takes_a_checkpoint_with_them(tmp_path):
    (tmp_path / "work").mkdir()
    with holdfast.open(tmp_path / "s") as hf, hf.run("r", workspace=tmp_path / "work") as run:
        run.step("write", lambda: (tmp_path / "work" / "f").write_text("x"), wrote_files=True)
        run.step("think", lambda: 1)
        assert [one.trigger for one in hf.checkpoints("r")] == ["step_complete", "state_transition"]
        assert hf.latest("r").read("f") == b"x"


def test_the_first_checkpoint_of_a_run_with_a_workspace_has_its_files(tmp_path):
    """Proves A6: a file that is ruined before anything else is stored can be brought back."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "f").write_text("whole")
    with holdfast.open(tmp_path / "s") as hf:
        with hf.run("r", workspace=work):
            (work / "f").write_text("ruined")
        first = hf.checkpoints("r")[-1]
        assert (first.seq, first.read("f")) == (1, b"whole")
