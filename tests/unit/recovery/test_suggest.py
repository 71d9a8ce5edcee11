import shlex

import pytest

from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import Agent, StateVisit, Workflow
from holdfast.recovery.analyse import analyse
from holdfast.recovery.suggest import suggestions
from holdfast.testing.contract import NOON


def words(sections, **names):
    return [one.words for one in suggestions(analyse(sections), **names)]


def test_for_an_agent_that_failed_too_often_there_is_a_way_round_it():
    """Proves A13."""
    agents = [Agent(id="coder", status="failed", attempts=3), Agent(id="tester", status="failed", attempts=4)]
    found = suggestions(analyse({"agents": agents}), spec="r", checkpoint="cp_1")
    assert [one.words for one in found] == [
        "holdfast resume r --retry-failed",
        "holdfast resume r --skip-failed",
        "holdfast resume r~1",
    ]
    assert found[1].options == {"skip_failed": True}
    assert found[0].blocker == "agent coder failed 3 times"


def test_for_a_dead_state_the_last_living_one_is_named():
    """Proves A13."""
    visits = [
        StateVisit(state=name, entered_at=NOON, trigger="x") for name in ("planning", "building", "ERROR", "ERROR")
    ]
    workflow = Workflow(current_state="ERROR", previous_state="ERROR", history=visits)
    assert words({"workflow": workflow}, spec="r")[0] == "holdfast resume r --reset-to building"
    assert words({"workflow": Workflow(current_state="ABORTED", previous_state="planning")})[0].endswith("planning")
    assert words({"workflow": Workflow(current_state="ABORTED")})[0] == "holdfast resume RUN --reset-to STATE"


def test_a_cancelled_run_goes_on_as_a_fork_only():
    assert words({"status": {"status": "cancelled"}}, checkpoint="cp_1") == ["holdfast fork cp_1"]


def test_every_blocker_has_a_suggestion_also_one_of_an_unknown_kind():
    """Proves A13."""
    info = RecoveryInfo(can_resume=False, blockers=("from an older program", "another"), blocker_kinds=("moon:full",))
    assert {one.blocker for one in suggestions(info)} == {"from an older program"}
    assert [one.words for one in suggestions(info, spec="r@7")] == ["holdfast resume r@7~1"]


def test_without_blockers_there_is_nothing_to_suggest():
    assert suggestions(RecoveryInfo()) == ()


@pytest.mark.parametrize("name", ["a b", "$(rm -rf ~)", "a;b", "--yes", "it's"])
def test_what_is_typed_is_one_word_for_a_shell(name):
    workflow = Workflow(current_state="ERROR", previous_state=name)
    typed = words({"workflow": workflow}, spec="r")[0]
    assert shlex.split(typed) == ["holdfast", "resume", "r", "--reset-to", name]
