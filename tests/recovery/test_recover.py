"""Going back to a checkpoint: planned, carried out, undone; refused without a trace."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import IntegrityError, LeaseHeld, NotFound, PlanOutdated, UsageError
from holdfast.model.sections import Agent, StateVisit, TokenUsage, Workflow
from holdfast.recovery.plan import RecoveryPlan
from recovery.recovery_kit import Notes, contents, damage_record, damage_section

THEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def hf(place):
    with holdfast.open(place) as opened:
        yield opened


def agents():
    return [
        Agent(id="coder", status="running", started_at=THEN, attempts=2, tokens=TokenUsage(input=7, output=5)),
        Agent(id="tester", status="failed", attempts=3, error="red"),
        Agent(id="writer", status="completed", output="done"),
    ]


def broken(hf):
    """Return a run whose agent failed three times and whose workflow is in ERROR."""
    run = hf.run("r")
    visits = [StateVisit(state="planning", entered_at=THEN, trigger="begin")]
    run.checkpoint(state={"n": 1}, workflow=Workflow(current_state="planning", history=visits))
    workflow = Workflow(current_state="ERROR", previous_state="planning", history=visits)
    run.checkpoint(state={"n": 2}, workflow=workflow, agents=agents(), error={"message": "red"})
    return run


def test_a_recovery_puts_a_checkpoint_back_as_one_new_one(hf):
    """Proves A12, D9, B3."""
    run = hf.run("r")
    first = run.checkpoint(state={"n": 1}, sections={"own": [1]})
    second = run.checkpoint(state={"n": 2}, sections={"later": True})
    result = hf.recover(hf.plan(first.id))
    assert result.success
    assert result.restored_from == first.id
    assert result.state == {"state": {"n": 1}, "own": [1]}
    assert result.undo == second.id
    head = hf.latest("r")
    assert (head.parent, head.trigger, head.seq) == (first.id, "recovery", 3)
    assert set(head.sections) == {"state", "own", "recovery"}
    told = head.section("recovery")
    assert (told["from"], told["undo"]) == (first.id, second.id)
    assert hf.run("r").checkpoint(state={"n": 9}).parent == head.id
    assert hf.verify().sound


def test_running_agents_come_back_as_pending_with_what_they_used_up(hf):
    """Proves A12, A11."""
    run = hf.run("r")
    run.checkpoint(agents=agents()[:1])
    run.checkpoint(agents=[])
    plan = hf.plan("r@1")
    assert plan.pending_agents == ("coder",)
    [coder] = hf.recover(plan).state["agents"]
    assert (coder.status, coder.started_at, coder.attempts) == ("pending", None, 2)
    assert coder.tokens == TokenUsage(input=7, output=5)


def test_a_blocked_checkpoint_is_refused_with_every_reason_and_what_helps(hf):
    """Proves A12, A11, A13."""
    broken(hf)
    before = contents(hf)
    plan = hf.plan("r")
    assert not plan.can_resume
    assert plan.verdict == "blocked"
    assert any("tester failed 3 times" in blocker for blocker in plan.blockers)
    assert any("ERROR" in blocker for blocker in plan.blockers)
    assert any("--skip-failed" in each for each in plan.suggestions)
    assert any("--reset-to planning" in each for each in plan.suggestions)
    result = hf.recover(plan)
    assert not result.success
    assert result.errors == plan.blockers
    assert contents(hf) == before


def test_skipping_and_resetting_take_the_blockers_away(hf):
    """Proves A12: skip failed agents, reset to a state; the error goes, the history stays."""
    broken(hf)
    plan = hf.plan("r", skip_failed=True, reset_to="planning")
    assert plan.blockers == ()
    assert plan.skipped_agents == ("tester",)
    result = hf.recover(plan)
    assert result.success
    assert result.skipped_agents == ("tester",)
    state = result.state
    assert [agent.status for agent in state["agents"]] == ["pending", "skipped", "completed"]
    workflow = state["workflow"]
    assert (workflow.current_state, workflow.previous_state) == ("planning", "ERROR")
    assert [visit.state for visit in workflow.history] == ["planning", "planning"]
    assert (workflow.history[-1].trigger, workflow.history[0].exited_at is not None) == ("recovery", True)
    assert "error" not in hf.latest("r").sections
    assert hf.latest("r").recovery.can_resume


def test_only_one_of_two_blockers_taken_away_is_not_enough(hf):
    broken(hf)
    assert [*hf.plan("r", skip_failed=True).blockers] == ["the workflow is in state ERROR"]
    assert not hf.recover("r", reset_to="planning").success


def test_an_unknown_checkpoint_gives_a_result_that_says_so(hf):
    """Proves A12, C12."""
    hf.run("r").checkpoint(state=1)
    before = contents(hf)
    for spec in ("cp_" + "0" * 32, "nobody", "r@9"):
        with pytest.raises(NotFound):
            hf.plan(spec)
        result = hf.recover(spec)
        assert not result.success
        assert result.errors
    assert contents(hf) == before


def test_a_damaged_checkpoint_gives_a_result_that_says_so(hf, place):
    """Proves A2, A12, X3: failed integrity touches nothing, but that it was found is written down."""
    run = hf.run("r")
    first = run.checkpoint(state={"n": 1})
    run.checkpoint(state={"n": 2})
    plan = hf.plan(first.id)
    damage_section(place, first, "state")
    before = contents(hf)
    for attempt in (plan, first.id):
        result = hf.recover(attempt)
        assert not result.success
        assert "state" in result.errors[0]
    with pytest.raises(IntegrityError):
        hf.plan(first.id)
    assert hf.get(first.id).status == "corrupted"
    assert first.id not in [point.checkpoint for point in hf.recovery.points("r") if point.can_resume]
    hf.mark(first.id, status="valid")
    assert contents(hf) == before


@pytest.mark.parametrize("way", ["record", "section"])
def test_a_damaged_head_is_passed_over_and_what_is_lost_is_said(hf, place, way):
    """Proves X3."""
    run = hf.run("r")
    run.checkpoint(state={"n": 1})
    second = run.checkpoint(state={"n": 2})
    third = run.checkpoint(state={"n": 3})
    damage_record(place, third.id) if way == "record" else damage_section(place, third, "state")
    plan = hf.plan("r")
    assert plan.checkpoint == second.id
    assert [damage.seq for damage in plan.damage] == [3]
    assert plan.damage[0].lost
    assert "damaged" in str(plan)
    result = hf.recover(plan)
    assert result.success, result.errors
    assert hf.latest("r").section("state") == {"n": 2}
    assert hf.run("r").checkpoint(state={"n": 4}).seq == 5


def test_a_plan_is_refused_when_the_world_moved(hf, place):
    run = hf.run("r")
    first = run.checkpoint(state=1)
    plan = hf.plan(first.id)
    run.checkpoint(state=2)
    before = contents(hf)
    with pytest.raises(PlanOutdated, match="head was"):
        hf.recover(plan)
    assert contents(hf) == before


def test_doing_it_twice_is_the_same_as_once(hf):
    """Proves D9."""
    run = hf.run("r")
    first = run.checkpoint(state=1, agents=agents()[:1])
    run.checkpoint(state=2)
    plan = hf.plan(first.id)
    once = hf.recover(plan)
    before = contents(hf)
    twice = hf.recover(RecoveryPlan.from_json(plan.to_json()))
    assert contents(hf) == before
    assert (twice.success, twice.checkpoint.id, twice.undo) == (True, once.checkpoint.id, once.undo)
    assert twice.state == once.state


def test_going_on_from_the_head_where_nothing_is_to_change_writes_nothing(hf):
    hf.run("r").checkpoint(state=1)
    before = contents(hf)
    result = hf.recover("r")
    assert result.success
    assert result.state == {"state": 1}
    assert contents(hf) == before


def test_planning_touches_nothing_and_prints_what_would_be_done(hf):
    """Proves A12: the dry run is the plan."""
    broken(hf)
    before = contents(hf)
    told = str(hf.plan("r@1"))
    assert "go back to checkpoint 1" in told
    assert contents(hf) == before


def test_an_undo_goes_back_and_undoing_it_goes_forward_again(hf):
    run = hf.run("r")
    first = run.checkpoint(state=1, sections={"own": 1})
    run.checkpoint(state=2, agents=agents())
    hf.recover(first.id)
    assert hf.undo("r").success
    head = hf.latest("r")
    assert (head.section("state"), head.section("agents")) == (2, agents())
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == 1
    assert "agents" not in hf.latest("r").sections
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == 2


def test_an_undo_works_after_the_run_went_on(hf):
    run = hf.run("r")
    first = run.checkpoint(state=1)
    run.checkpoint(state=2)
    hf.recover(first.id)
    hf.run("r").checkpoint(state=3)
    assert hf.undo("r").success
    assert hf.latest("r").section("state") == 2
    hf.undo("r")
    assert hf.latest("r").section("state") == 3


def test_without_a_recovery_there_is_nothing_to_undo(hf):
    hf.run("r").checkpoint(state=1)
    with pytest.raises(UsageError, match="nothing to undo"):
        hf.undo("r")


def test_registered_objects_get_their_state_back_and_what_they_held_is_in_the_undo_point(hf):
    notes = Notes("one")
    run = hf.run("r")
    run.register("notes", notes)
    first = run.checkpoint()
    notes.lines.append("two")
    run.checkpoint()
    notes.lines.append("never saved")
    result = hf.recover(hf.plan(first.id), run=run)
    assert result.success
    assert notes.lines == ["one"]
    assert hf.get(result.undo).section("notes") == ["one", "two", "never saved"]
    assert run.checkpoint(state=1).section("notes") == ["one"]
    assert hf.undo(run).success
    assert notes.lines == ["one", "two", "never saved"]


def test_going_on_from_the_head_keeps_what_an_object_held_unsaved_in_the_undo_point(hf):
    notes = Notes("one")
    run = hf.run("r")
    run.register("notes", notes)
    run.checkpoint()
    notes.lines.append("never saved")
    result = hf.recover("r", run=run)
    assert notes.lines == ["one"]
    assert hf.get(result.undo).section("notes") == ["one", "never saved"]


def test_an_object_that_takes_nothing_back_leaves_everything_as_it_was(hf):
    good, bad = Notes("one"), Notes("one")
    run = hf.run("r")
    run.register("good", good)
    run.register("bad", bad)
    first = run.checkpoint()
    good.lines, bad.lines = ["two"], ["two"]
    run.checkpoint()
    bad.breaks = True
    result = hf.recover(hf.plan(first.id), run=run)
    assert not result.success
    assert "these notes take nothing back" in result.errors[0]
    assert good.lines == ["two"]
    assert hf.latest("r").section("good") == ["two"]
    assert hf.latest("r").parent != first.id


def test_an_object_that_the_checkpoint_does_not_know_stays_and_is_warned_about(hf):
    run = hf.run("r")
    first = run.checkpoint(state=1)
    notes = Notes("later")
    run.register("notes", notes)
    run.checkpoint(state=2)
    result = hf.recover(hf.plan(first.id), run=run)
    assert notes.lines == ["later"]
    assert any("notes" in warning for warning in result.warnings)


def test_a_run_that_another_process_moves_is_not_recovered(hf, place):
    first = hf.run("r").checkpoint(state=1)
    hf.run("r").checkpoint(state=2)
    lease = hf.store.leases.take("r", owner="somebody else", ttl_s=60)
    before = contents(hf)
    with pytest.raises(LeaseHeld):
        hf.recover(first.id)
    assert contents(hf) == before
    hf.store.leases.end(lease)
    assert hf.recover(first.id).success


def test_a_recovery_needs_a_store_that_saves(hf):
    hf.run("r").checkpoint(state=1)
    idle = holdfast.Holdfast(hf.store, enabled=False)
    with pytest.raises(UsageError, match="disabled"):
        idle.recover("r")


def test_options_that_do_not_fit_are_named(hf):
    first = hf.run("r").checkpoint(state=1)
    for options, said in [
        ({"reset_to": "x"}, "no workflow"),
        ({"reset_to": " "}, "name a state"),
        ({"files": True}, "holds no files"),
        ({"files": "all"}, "files="),
        ({"unknown": {"a": "maybe"}}, "retry"),
        ({"unknown": {"a": "skip"}}, "not of unknown outcome"),
        ({"git": True}, "no files"),
    ]:
        with pytest.raises(UsageError, match=said):
            hf.plan(first.id, **options)
    with pytest.raises(UsageError, match="belongs into the plan"):
        hf.recover(hf.plan(first.id), skip_failed=True)
    with pytest.raises(UsageError, match="for run"):
        hf.recover(hf.plan(first.id), run=hf.run("other"))


def test_a_plan_names_the_exact_point_to_go_on_at(hf):
    """Proves C9, C12: batch and task, and the agent that was at work."""
    tasks = {"a": {"status": "completed"}, "b": {"status": "running"}, "c": {"status": "pending", "needs": ["b"]}}
    graph = {"id": "g", "completed_batches": [0], "current_batch": 1, "tasks": tasks}
    hf.run("r").checkpoint(graph=graph, agents=agents()[:1], phase="implement")
    plan = hf.plan("r")
    assert (plan.batch, plan.task, plan.agent, plan.phase) == (1, "b", "coder", "implement")
    assert "batch 1, task b, agent coder" in str(plan)
    assert hf.recover(plan).state["graph"].tasks["b"].status == "pending"
    status = hf.recovery.status("r")
    assert (status.batch, status.task) == (1, "b")


def test_the_status_says_where_a_run_can_go_on_and_what_helps(hf, place):
    """Proves A13."""
    broken(hf)
    status = hf.recovery.status("r")
    assert not status.can_resume
    assert status.checkpoint == hf.latest("r").id
    assert len(status.blockers) == 2
    assert any("--skip-failed" in each for each in status.suggestions)
    assert "cannot continue" in str(status)
    hf.recover("r", skip_failed=True, reset_to="planning")
    status = hf.recovery.status("r")
    assert (status.can_resume, status.state) == (True, "planning")
    assert status.undo is not None


def test_recovery_points_list_what_a_run_can_go_back_to(hf):
    """Proves A13, E2."""
    run = broken(hf)
    run.checkpoint(state=3, label="here")
    hf.recover("r@1")
    points = hf.recovery.points("r")
    assert [point.seq for point in points] == [4, 3, 2, 1]
    assert [point.is_on_line for point in points] == [True, False, False, True]
    assert [point.can_resume for point in points] == [True, False, False, True]
    assert points[0].is_head
    assert points[1].label == "here"
    assert [point.seq for point in hf.recovery.points("r", limit=2)] == [4, 3]


def test_going_back_gives_back_neither_what_was_spent_nor_what_was_raised(hf):
    """Proves E8: limits look at what was spent in all, over every rewind and its undo."""
    with hf.run("paid") as run:
        run.budget.limit(tokens=1000)
        start = run.checkpoint(reason="start")
        for name in ("a", "b"):
            run.step(name, lambda: run.budget.spend(tokens=200, once="the same key"))
    hf.control.raise_budget("paid", {"tokens": 500})
    with hf.run("paid") as run:
        run.step("c", lambda: run.budget.spend(tokens=100))
    assert hf.recover(start.id).success
    with hf.run("paid") as run:
        assert (run.budget.used("tokens"), run.budget.left("tokens")) == (300, 1200)
        run.step("a", lambda: run.budget.spend(tokens=200, once="the same key"))  # done again, and paid again
        assert run.budget.used("tokens") == 500
    hf.recover(start.id)
    assert hf.undo("paid").success
    with hf.run("paid") as run:
        assert run.budget.used("tokens") == 500
