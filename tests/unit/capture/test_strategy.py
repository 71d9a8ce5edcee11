import math

import pytest

from holdfast import Every, On, OnBudgetWarning, OnLoopComplete, OnPhaseComplete, Trigger, UsageError, When
from holdfast.capture.strategy import Position
from holdfast.capture.triggers import TriggerEvent
from holdfast.model.rules import RULES
from holdfast.model.triggers import checked_trigger


def event(trigger, **given):
    return TriggerEvent(trigger=Trigger(trigger), **given)


def due(condition, trigger, since=None, events=1, **given):
    return condition.due(event(trigger, **given), Position(since_last_s=since, events=events)) is not None


def test_every_trigger_has_a_reason_of_its_own():
    """Proves A1, C10, D2, E3."""
    assert len({event(trigger).text for trigger in Trigger}) == len(Trigger) == 22
    assert event("phase_complete", phase="plan").text == "a phase is complete: plan"
    assert event("manual", reason="mine").text == "mine"


def test_a_phase_strategy_takes_any_phase_or_only_some():
    """Proves E3."""
    assert due(OnPhaseComplete(), "phase_complete", phase="act")
    assert due(OnPhaseComplete("plan", "act"), "phase_complete", phase="act")
    assert not due(OnPhaseComplete("plan"), "phase_complete", phase="act")
    assert not due(OnPhaseComplete(), "loop_complete")


def test_a_loop_strategy_takes_each_or_each_nth():
    """Proves E3."""
    assert due(OnLoopComplete(), "loop_complete")
    third = OnLoopComplete(every=3)
    assert [due(third, "loop_complete", events=n) for n in range(1, 7)] == [False, False, True, False, False, True]


def test_a_time_strategy_goes_by_the_age_of_the_last_one():
    """Proves E3."""
    assert due(Every(10), "step_complete")
    assert not due(Every(10), "step_complete", since=9.9)
    assert due(Every(10), "step_complete", since=10)
    assert due(Every(10), "step_complete", since=math.inf)


def test_conditions_combine():
    """Proves E3."""
    either = OnPhaseComplete("plan") | OnBudgetWarning() | Every(60)
    assert due(either, "budget_warning", since=1)
    assert due(either, "step_complete", since=61)
    assert not due(either, "step_complete", since=1)
    both = On("agent_complete") & Every(60)
    assert due(both, "agent_complete", since=61)
    assert not due(both, "agent_complete", since=1)
    assert due(~On("manual"), "replan")
    assert not due(~On("manual"), "manual")


def test_a_custom_predicate_decides_and_may_give_the_reason():
    """Proves E3."""
    condition = When(lambda event, position: "costly" if event.details.get("cost", 0) > position.checkpoints else None)
    assert condition.due(event("step_complete", details={"cost": 3}), Position()) == "costly"
    assert condition.due(event("step_complete"), Position()) is None


@pytest.mark.parametrize(
    "make", [lambda: Every(0), lambda: Every(-1), lambda: Every(math.nan), lambda: OnLoopComplete(every=0)]
)
def test_a_condition_that_makes_no_sense_is_refused(make):
    with pytest.raises(UsageError):
        make()


def test_switches_turn_all_together_and_one_by_one():
    """Proves A14, C14."""
    assert all(RULES.takes(trigger, asked=True) for trigger in Trigger)
    assert [trigger for trigger in Trigger if not RULES.takes(trigger)] == ["step_complete"]  # its record is enough
    assert RULES.switched({"step_complete": True}).takes(Trigger.STEP_COMPLETE)
    one = RULES.switched({"agent_complete": False})
    assert [trigger for trigger in Trigger if not one.takes(trigger, asked=True)] == ["agent_complete"]
    assert one.switched({"agent_complete": True}).takes(Trigger.AGENT_COMPLETE)
    off = one.switched({"*": False})
    assert [trigger for trigger in Trigger if off.takes(trigger, asked=True)] == ["manual"]
    assert all(map(off.switched({"*": True}).takes, Trigger))
    only = RULES.switched({"*": False, "agent_complete": True})
    assert [trigger for trigger in Trigger if only.takes(trigger)] == ["agent_complete", "manual"]
    both = RULES.switched({"conflict_events": False})
    assert [trigger for trigger in Trigger if not both.takes(trigger, asked=True)] == [
        "conflict_start", "conflict_resolved",
    ]  # fmt: skip


def test_an_unknown_trigger_is_named_with_the_nearest_known_one():
    """Proves A14."""
    with pytest.raises(UsageError, match="did you mean 'agent_complete'"):
        checked_trigger("agent_completed")


def test_the_workspace_is_captured_where_it_pays():
    files = {trigger for trigger, rule in RULES.rows.items() if rule.files}
    assert {"phase_complete", "agent_complete", "batch_complete", "before_destructive", "user_interrupt"} <= files
    assert files.isdisjoint({"step_complete", "time_interval", "gate_complete", "budget_warning"})
