import pytest

import holdfast
from holdfast.errors import ReplanLimit, UsageError
from holdfast.runtime.phases import Phases
from unit.runtime.recorder import Recorder


def test_replans_are_counted_per_phase_with_reason_and_time_and_limited_to_two():
    """Proves B6, B1."""
    host = Recorder("plan-7")
    phases = Phases(host, ["a", "b"])
    first = phases.replan("a", "the API changed")
    phases.replan("a", "the tests are red")
    phases.replan("b", "too slow")
    assert [(one.phase, one.reason) for one in phases.replans.history()] == [
        ("a", "the API changed"), ("a", "the tests are red"), ("b", "too slow"),
    ]  # fmt: skip
    assert (phases.replans.count("a"), phases.replans.left("a"), phases.replans.left("b")) == (2, 0, 1)
    assert first.at < phases.replans.history("a")[1].at
    before = phases.snapshot(), len(host.saved)
    with pytest.raises(ReplanLimit) as caught:
        phases.replan("a", "once more")
    assert (caught.value.run, caught.value.phase, caught.value.limit) == ("plan-7", "a", 2)
    for word in ("the API changed at 2030-01-01", "the tests are red"):
        assert word in str(caught.value)
    assert (phases.snapshot(), len(host.saved)) == before
    assert host.saved[0] == ("replan", "a replanned (1): the API changed", "a")
    assert phases.status().replans == {"a": 2, "b": 1}


def test_a_phase_that_is_replanned_is_due_again():
    """Proves B6."""
    phases = Phases()
    phases.phase("a").call(lambda: 1)
    phases.replan("a", "wrong way")
    assert phases.phase("a").call(lambda: 2) == 2
    assert phases.state("a").attempt == 2


def test_a_phase_that_is_under_way_is_replanned_inside_itself():
    phases = Phases()
    with phases.phase("a") as phase:
        phases.replan("a", "wrong way")
        assert phase.state.status == "running"
    assert phases.state("a").attempt == 1


def test_a_phase_may_have_a_limit_of_its_own_and_get_another():
    """Proves B6."""
    phases = Phases(replan_limit=0, replan_limits={"a": 1})
    phases.replan("a", "one")
    for name in ("a", "b"):
        with pytest.raises(ReplanLimit):
            phases.replan(name, "two")
    phases.replans.allow("a", 2)
    phases.replan("a", "two")
    twin = Phases(replan_limit=0)
    twin.restore(phases.snapshot())
    assert twin.replans.limit("a") == 2
    assert twin.replans.count("a") == 2


@pytest.mark.parametrize("limit", [-1, 1.5, "2", None])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(UsageError, match="replan limit"):
        Phases(replan_limits={"a": limit})


def test_the_limit_holds_over_restarts(tmp_path):
    """Proves B6."""
    for number in range(3):
        with holdfast.open(tmp_path) as hf:
            phases = hf.run("r").declare_phases("a", replan_limit=2)
            if number < 2:
                phases.replan("a", f"reason {number}")
                assert hf.latest("r").trigger == "replan"
            else:
                with pytest.raises(ReplanLimit, match=r"reason 0.*reason 1"):
                    phases.replan("a", "reason 2")
