import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import IllegalTransition, UsageError
from holdfast.model.sections import StateVisit, Workflow
from holdfast.runtime.machine import ABORTED, COMPLETE, ERROR, StateMachine
from unit.runtime.recorder import NOON, Recorder, is_identity

WAYS = {"PLAN": ["BUILD"], "BUILD": ["TEST", "PLAN"], "TEST": ["BUILD", "COMPLETE"]}
DECLARED = {"states": ["PLAN", "BUILD", "TEST"], "transitions": WAYS, "initial": "PLAN"}
some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def machine(host=None, **more):
    return StateMachine(host, **{**DECLARED, **more})


def test_a_transition_is_kept_with_its_times_and_its_trigger_and_saved():
    """Proves A4."""
    host = Recorder()
    made = machine(host)
    made.to("BUILD", "plan approved")
    assert (made.current, made.previous) == ("BUILD", "PLAN")
    first, second = made.history
    assert (first.state, second.state, second.trigger) == ("PLAN", "BUILD", "plan approved")
    assert first.exited_at == second.entered_at > first.entered_at
    assert second.exited_at is None
    assert host.saved == [("state_transition", "PLAN -> BUILD (plan approved)", None)]


def test_an_illegal_transition_lists_the_legal_ones_and_changes_nothing():
    """Proves A4."""
    host = Recorder()
    made = machine(host)
    before = made.snapshot(), made.changes
    with pytest.raises(IllegalTransition) as caught:
        made.to("TEST")
    assert caught.value.allowed == ("BUILD", "ERROR", "ABORTED")
    assert "from state PLAN to TEST" in str(caught.value)
    assert "legal are BUILD, ERROR, ABORTED" in str(caught.value)
    with pytest.raises(IllegalTransition, match="no such state"):
        made.to("SHIP")
    assert (made.snapshot(), made.changes) == before
    assert host.saved == []


@pytest.mark.parametrize("end", [ERROR, ABORTED])
@pytest.mark.parametrize("path", [[], ["BUILD"], ["BUILD", "TEST"]])
def test_error_and_aborted_are_reached_from_anywhere_and_final(path, end):
    """Proves A4."""
    made = machine()
    for state in path:
        made.to(state)
    made.to(end, "it broke")
    assert made.is_final
    assert made.allowed == ()
    with pytest.raises(IllegalTransition, match="it is final"):
        made.to("PLAN")
    with pytest.raises(IllegalTransition, match="it is final"):
        made.request(ERROR)


def test_complete_is_reached_where_it_is_declared_and_final():
    made = machine()
    with pytest.raises(IllegalTransition):
        made.to(COMPLETE)
    for state in ("BUILD", "TEST", COMPLETE):
        made.to(state)
    with pytest.raises(IllegalTransition, match="COMPLETE ends the workflow"):
        made.to(ERROR)


def test_states_without_transitions_follow_one_another():
    made = StateMachine(states=["a", "b"])
    made.to("b")
    assert made.allowed == (COMPLETE, ERROR, ABORTED)


@pytest.mark.parametrize(
    ("verdict", "words"), [(False, "does not hold"), ("tests are red", "tests are red"), ("", "no reason")]
)
def test_a_guard_that_refuses_says_why(verdict, words):
    made = machine(guards={("PLAN", "BUILD"): lambda: verdict})
    with pytest.raises(IllegalTransition, match=words):
        made.to("BUILD")
    assert made.current == "PLAN"


def test_an_asynchronous_guard_is_refused_and_does_not_count_as_a_yes():
    async def never():
        return False

    made = machine(guards={("PLAN", "BUILD"): never})
    with pytest.raises(UsageError, match="give a plain function"):
        made.to("BUILD")
    assert made.current == "PLAN"


def test_a_transition_that_was_asked_for_waits_for_its_guard():
    """Proves A4."""
    host, ready = Recorder(), []
    made = machine(host, guards={("PLAN", "BUILD"): lambda: bool(ready) or "no approval"})
    assert made.request("BUILD", "approval") is False
    assert made.pending == ("BUILD",)
    assert host.offered == [("state_transition", "PLAN waits to become BUILD: no approval")]
    assert made.advance() == []
    twin = machine(guards={("PLAN", "BUILD"): lambda: bool(ready)})
    twin.restore(made.snapshot())
    assert twin.pending == ("BUILD",)
    ready.append(1)
    assert twin.advance() == ["BUILD"]
    assert (twin.current, twin.history[-1].trigger, twin.pending) == ("BUILD", "approval", ())


def test_what_cannot_follow_any_more_is_no_longer_pending():
    made = machine(guards={("BUILD", "TEST"): lambda: False, ("BUILD", "PLAN"): lambda: True})
    made.to("BUILD")
    made.request("TEST")
    made.to("PLAN")
    assert made.pending == ()
    made.to("BUILD")
    made.request("TEST")
    assert made.withdraw("TEST")
    assert not made.withdraw("TEST")


def test_a_request_whose_guard_holds_is_taken_at_once():
    host = Recorder()
    made = machine(host)
    assert made.request("BUILD")
    assert made.current == "BUILD"
    assert host.triggers == ["state_transition"]


def test_recovery_puts_it_into_any_declared_state_even_from_the_end():
    made = machine()
    made.to(ERROR)
    made.reset("BUILD", "recovery")
    assert (made.current, made.previous, made.history[-1].trigger) == ("BUILD", "ERROR", "recovery")
    made.reset()
    assert made.current == "PLAN"
    with pytest.raises(UsageError, match="declares no state 'SHIP'"):
        made.reset("SHIP")


@pytest.mark.parametrize(
    "section", [{"current_state": "SHIP"}, {"current_state": "PLAN", "pending_transitions": ["SHIP"]}]
)
def test_a_checkpoint_in_a_state_that_is_not_declared_is_refused_with_those_that_are(section):
    made = machine()
    before = made.snapshot()
    with pytest.raises(UsageError, match=r"declares no state 'SHIP'.*PLAN, BUILD, TEST"):
        made.restore(section)
    assert made.snapshot() == before


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"states": []}, "no states"),
        ({"states": ["A"], "initial": "B"}, "cannot begin in 'B'"),
        ({"states": ["A", "ERROR"], "initial": "ERROR", "transitions": {}}, "cannot begin in 'ERROR', which is final"),
        ({"states": ["A"], "transitions": {"A": ["B"]}}, "A leads to 'B'"),
        ({"states": ["A"], "transitions": {"B": ["A"]}}, "leads from 'B'"),
        ({"states": ["A"], "transitions": {"ERROR": ["A"]}}, "from ERROR, which is final"),
        ({"states": ["A", "B"], "transitions": {"A": ["COMPLETE"]}}, "no way leads from A to B"),
        ({"states": ["A", "B"], "guards": {("B", "A"): bool}}, "not a transition of it"),
        ({"states": ["A"], "guards": {("A", "ERROR"): bool}}, "reachable from anywhere"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(declared, words):
    with pytest.raises(UsageError, match=words):
        StateMachine(**declared)


def test_a_position_without_a_history_is_taken_as_it_is():
    made = machine()
    made.restore({"current_state": "BUILD"})
    assert made.snapshot() == Workflow(current_state="BUILD", states=list(made.states))
    made.to("TEST")
    assert [visit.state for visit in made.history] == ["TEST"]


@some
@given(st.lists(st.sampled_from(["PLAN", "BUILD", "TEST", "COMPLETE", "ERROR", "?"]), max_size=12), st.booleans())
def test_a_snapshot_comes_back_whole_and_never_changes(path, holds):
    made = machine(guards={("BUILD", "TEST"): lambda: holds})
    kept = []
    for state in path:
        changes = made.changes
        before = made.snapshot()
        try:
            made.request(state, f"to {state}")
        except IllegalTransition:
            assert made.changes == changes
        assert (made.snapshot() != before) <= (made.changes > changes)
        kept.append((made.snapshot(), msgspec.json.encode(made.snapshot())))
    assert is_identity("workflow", made, machine())
    assert all(msgspec.json.encode(taken) == then for taken, then in kept)


def test_a_run_goes_on_in_the_state_it_was_in(tmp_path):
    """Proves A4, A1."""
    with holdfast.open(tmp_path) as hf:
        first = hf.run("r").machine(**DECLARED)
        first.to("BUILD", "approved")
        head = hf.latest("r")
        assert (head.trigger, head.summary.state, head.recovery.resume_state) == ("state_transition", "BUILD", "BUILD")
    with holdfast.open(tmp_path) as hf:
        again = hf.run("r").machine(**DECLARED)
        assert (again.current, again.previous) == ("BUILD", "PLAN")
        assert again.snapshot() == first.snapshot()
        again.to(ERROR)
        assert hf.latest("r").recovery.blockers == ("the workflow is in state ERROR",)


def test_history_from_before_a_state_was_renamed_is_kept():
    visit = StateVisit(state="OLD", entered_at=NOON, trigger="", exited_at=NOON)
    made = machine()
    made.restore({"current_state": "BUILD", "previous_state": "OLD", "history": [visit]})
    assert made.history == (visit,)


def test_a_loop_of_thousands_keeps_its_last_stays_and_how_many_there_were():
    made = machine(keep_history=4)
    for _loop in range(1000):
        made.to("BUILD")
        made.to("PLAN")
    taken = made.snapshot()
    assert [visit.state for visit in taken.history] == ["BUILD", "PLAN", "BUILD", "PLAN"]
    assert taken.earlier_visits + len(taken.history) == 2001
    assert is_identity("workflow", made, machine())
    with pytest.raises(UsageError, match="keep_history"):
        machine(keep_history=0)
