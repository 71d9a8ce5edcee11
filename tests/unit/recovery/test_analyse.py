import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.checkpoint import Summary
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import Agent, Budget, Graph, Phases, PhaseState, Spending, TaskNode, Workflow
from holdfast.recovery.analyse import analyse, summarise


def agent(name, status, attempts=0):
    return Agent(id=name, status=status, attempts=attempts)


def test_without_workflow_and_agents_a_run_can_go_on():
    """Proves A8."""
    assert analyse({}) == RecoveryInfo(can_resume=True)


def test_an_agent_in_progress_is_where_the_run_goes_on_and_that_is_said():
    """Proves A8, A11."""
    found = analyse(
        {
            "workflow": Workflow(current_state="BUILD"),
            "agents": [agent("planner", "completed"), agent("coder", "running")],
        }
    )
    assert (found.can_resume, found.resume_agent, found.resume_state) == (True, "coder", "BUILD")
    assert found.warnings == ("agent coder was in progress and will start again",)


def test_of_several_agents_in_progress_the_first_is_where_the_run_goes_on():
    assert analyse({"agents": [agent("a", "running"), agent("b", "running")]}).resume_agent == "a"


@pytest.mark.parametrize(("attempts", "can_resume"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_an_agent_that_failed_three_times_stops_the_run(attempts, can_resume):
    """Proves A11."""
    found = analyse({"agents": [agent("coder", "failed", attempts)]})
    assert found.can_resume is can_resume
    assert found.blockers == (() if can_resume else (f"agent coder failed {attempts} times",))


@pytest.mark.parametrize("status", ["pending", "running", "completed", "skipped"])
def test_attempts_of_an_agent_that_has_not_failed_stop_nothing(status):
    assert analyse({"agents": [agent("coder", status, 9)]}).can_resume


@pytest.mark.parametrize("state", ["ERROR", "ABORTED", "error", "Aborted", "cancelled"])
def test_a_workflow_in_error_or_aborted_cannot_go_on(state):
    """Proves A11."""
    found = analyse({"workflow": Workflow(current_state=state)})
    assert found.can_resume is False
    assert found.blockers == (f"the workflow is in state {state}",)


def test_every_blocker_is_named():
    """Proves A8."""
    agents = [agent("a", "failed", 3), agent("b", "running"), agent("c", "failed", 5)]
    found = analyse({"workflow": Workflow(current_state="ERROR"), "agents": agents})
    assert len(found.blockers) == 3
    assert found.resume_agent == "b"


def test_a_summary_holds_what_a_list_shows():
    budget = Budget(spending={"tokens": Spending(used=812, limit=2000), "money": Spending(used=0.5)})
    agents = [agent("a", "completed"), agent("b", "completed"), agent("c", "failed")]
    found = summarise({"workflow": Workflow(current_state="BUILD"), "agents": agents, "budget": budget})
    assert found == Summary(
        state="BUILD",
        agents={"completed": 2, "failed": 1},
        budget_used={"tokens": 812, "money": 0.5},
        budget_limits={"tokens": 2000, "money": None},
    )
    assert summarise({}) == Summary()


def test_a_blocker_has_a_kind_that_programs_can_read():
    found = analyse({"agents": [agent("team:coder", "failed", 3)], "workflow": Workflow(current_state="ERROR")})
    assert [(one.kind, one.about) for one in found.blocked_by] == [
        ("agent-failed", "team:coder"),
        ("dead-state", "ERROR"),
    ]
    assert tuple(one.text for one in found.blocked_by) == found.blockers


def test_a_cancelled_run_cannot_go_on_and_a_complete_one_says_so():
    """Proves A11, A13."""
    assert analyse({"status": {"status": "cancelled", "detail": "by ann"}}).blockers == (
        "the run was cancelled: by ann",
    )
    complete = analyse({"status": {"status": "completed"}})
    assert complete.can_resume
    assert complete.warnings == ("the run is complete: nothing is left to do",)
    assert analyse({"status": {"status": "running"}}) == RecoveryInfo()


def test_what_must_be_given_first_is_a_prerequisite():
    """Proves C9."""
    waiting = analyse({"status": {"status": "waiting", "detail": "Deploy?"}})
    assert waiting.can_resume
    assert waiting.prerequisites == ("an answer to what the run waits for: Deploy?",)
    budget = Budget(spending={"tokens": Spending(used=10, limit=10), "money": Spending(used=1, limit=2.5)})
    assert analyse({"budget": budget}).prerequisites == ("a larger budget of tokens: 10 of 10 are used",)


def test_a_graph_gives_the_batch_and_the_exact_task():
    """Proves C9."""
    nodes = {"a": "completed", "b": "skipped", "c": "running", "d": "pending"}
    graph = Graph(id="g", current_batch=1, tasks={name: TaskNode(status=status) for name, status in nodes.items()})
    found = analyse({"graph": graph})
    assert (found.resume_batch, found.resume_task) == (1, "c")
    plain = {
        "tasks": {"z": {"status": "pending"}, "y": {"status": "failed", "needs": ["x"]}, "x": {"status": "pending"}},
        "batches": [["x"], ["y", "z"]],
        "current_batch": 1,
        "completed_batches": [0],
    }
    found = analyse({"graph": plain})
    assert (found.resume_batch, found.resume_task) == (1, "y")
    assert found.prerequisites == ("task y needs x",)
    assert found.warnings == ("task y failed and will start again",)


def test_without_a_batch_the_first_task_that_could_start_is_where_the_run_goes_on():
    """Proves C9, C12."""
    tasks = {
        "ship": TaskNode(status="pending", needs=["build"]),
        "plan": TaskNode(status="completed"),
        "build": TaskNode(status="pending", needs=["plan"]),
    }
    found = analyse({"graph": Graph(id="g", tasks=tasks)})
    assert (found.resume_batch, found.resume_task, found.prerequisites) == (None, "build", ())
    tasks["late"] = TaskNode(status="running", batch=2, needs=["nowhere"])
    found = analyse({"graph": Graph(id="g", current_batch=2, tasks=tasks)})
    assert (found.resume_batch, found.resume_task, found.prerequisites) == (2, "late", ("task late needs nowhere",))


def test_a_graph_that_is_done_gives_no_task():
    graph = Graph(id="g", completed_batches=[0], tasks={"a": TaskNode(status="completed")})
    assert analyse({"graph": graph}).resume_task is None


@pytest.mark.parametrize("as_plain", [False, True])
def test_the_phase_is_the_current_one_or_the_first_that_is_not_settled(as_plain):
    """Proves B3, C9."""
    states = {"plan": PhaseState(status="completed"), "build": PhaseState(status="failed", attempt=2)}

    def phase(**fields):
        value = Phases(order=["plan", "build"], phases=states, **fields)
        return analyse({"phases": msgspec.to_builtins(value) if as_plain else value})

    assert phase(current="build").resume_phase == phase().resume_phase == "build"
    assert phase().warnings == ("phase build failed at attempt 2",)
    done = Phases(phases={"plan": PhaseState(status="completed")})
    assert analyse({"phases": done}).resume_phase is None


def test_many_failures_are_counted_and_not_all_named():
    agents = [agent(f"a{n}", "failed", 3) for n in range(500)] + [agent(f"r{n}", "running") for n in range(500)]
    found = analyse({"agents": agents})
    assert len(found.blockers) == 21
    assert found.blockers[-1] == "480 more agents failed 3 times or more"
    assert len(found.warnings) == 21


def test_a_record_from_before_a_field_was_added_can_still_be_read():
    old = msgspec.msgpack.encode([False, "coder", "BUILD", ["agent a failed 3 times"], ["a note"]])
    found = msgspec.msgpack.decode(old, type=RecoveryInfo)
    assert found.warnings == ("a note",)
    assert found.blocked_by[0].kind == ""
    assert found.blocked_by[0].text == "agent a failed 3 times"


@given(
    st.dictionaries(
        st.sampled_from(["status"]),
        st.recursive(
            st.none() | st.text() | st.integers(),
            lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["status", "detail"]), x),
        ),
    )
)
def test_a_section_of_the_users_own_under_a_known_name_does_no_harm(sections):
    assert isinstance(analyse(sections), RecoveryInfo)
    msgspec.msgpack.encode(summarise(sections))


def test_a_summary_has_phase_and_status_where_they_are_known():
    assert summarise({"phases": Phases(current="build"), "status": {"status": "running"}}) == Summary(
        phase="build", status="running"
    )
