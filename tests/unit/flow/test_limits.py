"""Where a flow stops at a limit of its own, and how it is resumed from there; a replan that fails."""

import pytest


def test_a_phase_that_was_stopped_at_its_rounds_gets_as_many_again(bench):
    loop = {
        "run": f"{bench.say('x')}; wc -l < '{bench.log}'",
        "repeat": {"until": "phases.loop.result >= 5", "limit": 2},
    }
    flow = {"flow": "p", "phases": {"loop": loop, "last": bench.say("last")}}
    said = bench.run(flow).detail
    assert "after 2 rounds" in said
    assert "run it again for 2 more" in said
    assert (bench.run(flow).status, bench.said) == ("failed", ["x"] * 4)
    assert (bench.run(flow).status, bench.said) == ("completed", ["x"] * 5 + ["last"])


def test_a_condition_that_holds_meanwhile_lets_a_stopped_phase_go_on(bench):
    def flow(until):
        loop = {"run": bench.say("x"), "repeat": {"until": until, "limit": 2}}
        return {"flow": "p", "params": {"enough": 0}, "phases": {"loop": loop}}

    assert bench.run(flow("params.enough == 1")).status == "failed"
    assert bench.run(flow("params.enough == 1"), params={"enough": 1}).status == "completed"
    assert bench.said == ["x", "x"]


def test_a_failure_inside_a_round_gives_no_more_rounds(bench):
    run = f"{bench.say('x')}; test $(wc -l < '{bench.log}') -ne 2"
    loop = {"run": run, "repeat": {"until": "false", "limit": 3}, "on_failure": "abort"}
    flow = {"flow": "p", "phases": {"loop": loop}}
    assert bench.run(flow).status == "failed"
    assert bench.said == ["x"] * 2
    assert "after 3 rounds" in bench.run(flow).detail
    assert bench.said == ["x"] * 4


def test_a_circle_that_was_stopped_at_its_visits_gets_as_many_again(bench):
    run = f"{bench.say('$HOLDFAST_VISIT')}; wc -l < '{bench.log}'"
    ways = [{"to": "a", "when": "phases.a.result < 5"}, "end"]
    flow = {
        "flow": "p",
        "phases": {"a": {"run": run, "max_visits": 2, "next": "b"}, "b": {"run": "true", "next": ways}},
    }
    said = bench.run(flow).detail
    assert "visited 2 times" in said
    assert "run it again for 2 more" in said
    assert (bench.run(flow).status, bench.said) == ("failed", ["1", "2", "3", "4"])
    assert (bench.run(flow).status, bench.said) == ("completed", ["1", "2", "3", "4", "5"])


@pytest.mark.parametrize(
    ("rule", "status", "said"),
    [
        ("skip", "completed", ["d", "replan", "last"]),
        ("abort", "failed", ["d", "replan"]),
        ("ask", "waiting", ["d", "replan"]),
        ({"do": "retry", "limit": 1, "then": "skip"}, "completed", ["d", "replan", "d", "replan", "last"]),
    ],
)
def test_after_a_replan_that_failed_the_rule_for_failures_decides(bench, rule, status, said):
    """Proves B5, B6."""
    phase = {"run": f"{bench.say('d')}; false", "replan": f"{bench.say('replan')}; exit 4", "on_failure": rule}
    flow = {"flow": "p", "phases": {"d": phase, "last": bench.say("last")}}
    result = bench.run(flow)
    assert (result.status, bench.said) == (status, said)
    if status != "completed":
        assert "its replan failed" in result.detail
    if status == "waiting":
        assert (bench.run(flow).status, bench.said) == (status, said)
        with bench.open() as hf:
            hf.control.answer("p", "skip")
        assert bench.run(flow).status == "completed"
