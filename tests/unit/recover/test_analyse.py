import pytest

from holdfast.model.checkpoint import Summary
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import Agent, Budget, Spending, Workflow
from holdfast.recover.analyse import analyse, summarise


def agent(name, status, attempts=0):
    return Agent(id=name, status=status, attempts=attempts)


def test_without_workflow_and_agents_a_run_can_go_on():
    """Proves A8."""
    assert analyse(None, ()) == RecoveryInfo(can_resume=True)


def test_an_agent_in_progress_is_where_the_run_goes_on_and_that_is_said():
    """Proves A8, A11."""
    found = analyse(Workflow(current_state="BUILD"), [agent("planner", "completed"), agent("coder", "running")])
    assert (found.can_resume, found.resume_agent, found.resume_state) == (True, "coder", "BUILD")
    assert found.notes == ("agent coder was in progress and will start again",)


def test_of_several_agents_in_progress_the_first_is_where_the_run_goes_on():
    assert analyse(None, [agent("a", "running"), agent("b", "running")]).resume_agent == "a"


@pytest.mark.parametrize(("attempts", "can_resume"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_an_agent_that_failed_three_times_stops_the_run(attempts, can_resume):
    """Proves A11."""
    found = analyse(None, [agent("coder", "failed", attempts)])
    assert found.can_resume is can_resume
    assert found.blockers == (() if can_resume else (f"agent coder failed {attempts} times",))


@pytest.mark.parametrize("status", ["pending", "running", "completed", "skipped"])
def test_attempts_of_an_agent_that_has_not_failed_stop_nothing(status):
    assert analyse(None, [agent("coder", status, 9)]).can_resume


@pytest.mark.parametrize("state", ["ERROR", "ABORTED", "error", "Aborted"])
def test_a_workflow_in_error_or_aborted_cannot_go_on(state):
    """Proves A11."""
    found = analyse(Workflow(current_state=state), ())
    assert found.can_resume is False
    assert found.blockers == (f"the workflow is in state {state}",)


def test_every_blocker_is_named():
    """Proves A8."""
    agents = [agent("a", "failed", 3), agent("b", "running"), agent("c", "failed", 5)]
    found = analyse(Workflow(current_state="ERROR"), agents)
    assert len(found.blockers) == 3
    assert found.resume_agent == "b"


def test_a_summary_holds_what_a_list_shows():
    budget = Budget(spending={"tokens": Spending(used=812, limit=2000), "money": Spending(used=0.5)})
    agents = [agent("a", "completed"), agent("b", "completed"), agent("c", "failed")]
    found = summarise({"workflow": Workflow(current_state="BUILD"), "agents": agents, "budget": budget})
    assert found == Summary(
        state="BUILD", agents={"completed": 2, "failed": 1}, budget_used={"tokens": 812, "money": 0.5}
    )
    assert summarise({}) == Summary()
