"""Budgets of flows: their names in templates and conditions, and limits that hold before something begins."""

import json

import pytest


def budgeted(limits, **phases):
    return {"flow": "p", "on_failure": "abort", "budget": limits, "phases": phases}


def test_templates_and_conditions_know_what_is_used_limited_and_left(bench):
    usage = {"result": "x", "usage": {"input_tokens": 60}, "cost": 0.25}
    (bench.workspace / "a.json").write_text(json.dumps(usage))
    flow = budgeted(
        {"tokens": 100, "time": "1h", "other": {"turns": 3}},
        a="cat a.json",
        b="echo $HOLDFAST_BUDGET_TOKENS_USED $HOLDFAST_BUDGET_TOKENS_LIMIT $HOLDFAST_BUDGET_TOKENS_LEFT "
        "$HOLDFAST_BUDGET_MONEY_USED [$HOLDFAST_BUDGET_MONEY_LEFT]",
        c="echo $HOLDFAST_BUDGET_TOKENS",
        d="echo $HOLDFAST_BUDGET",
        e={"run": "echo few", "when": "budget.tokens.left > 50"},
        f={"run": "echo enough", "when": "budget.tokens.left > 5 and 3000 < budget.time.left"},
        g="echo $HOLDFAST_BUDGET_TURNS_LEFT",
    )
    done = bench.run(flow)
    assert done.status == "completed"
    results = done.results
    assert results["b"] == "60 100 40 0.25 []"
    assert results["c"] == {"used": 60, "limit": 100, "left": 40}
    assert set(results["d"]) == {"tokens", "time", "retries", "subcalls", "tool_calls", "money", "turns"}
    assert results["d"]["time"]["limit"] == 3600
    assert (done.phases["e"], results["f"], results["g"]) == ("skipped", "enough", 3)


@pytest.mark.parametrize("gates", [[], ["true"]])
def test_a_limit_of_retries_allows_so_many_and_then_the_run_waits(bench, gates):
    """Proves E6."""
    task = {"run": f"{bench.say('try')}; false", "retries": 5, "backoff": 0, "gates": gates}
    flow = budgeted({"retries": 1}, a=task)
    for _ in range(2):  # who starts it again without an answer pays for no further try
        result = bench.run(flow)
        assert (result.status, result.waits_for) == ("waiting", "budget:retries:1")
        assert bench.said == ["try"] * 2
    with bench.open() as hf:
        assert hf.latest("p").section("budget").spending["retries"].used == 1
        hf.control.raise_budget("p", {"retries": 1})
    assert bench.run(flow).waits_for == "budget:retries:2"
    assert bench.said == ["try"] * 4
    with bench.open() as hf:
        hf.control.answer("p", "stop")
    assert bench.run(flow).status == "failed"


def test_a_limit_of_calls_allows_so_many_also_at_once(bench):
    """Proves E6."""
    tasks = {name: {"agent": "x"} for name in "abcde"}
    flow = budgeted({"subcalls": 2}, p={"parallel": 5, "tasks": tasks}) | {"agents": {"x": bench.say("call")}}
    for called, more in ((2, 0), (2, 2), (4, 4)):
        result = bench.run(flow)
        assert (result.status, len(bench.said), len(bench.kinds("waiting"))) == ("waiting", called, 1)
        with bench.open() as hf:
            assert hf.latest("p").section("budget").spending["subcalls"].used == called
            if more:
                hf.control.raise_budget("p", {"subcalls": more})
    assert (bench.run(flow).status, len(bench.said)) == ("completed", 5)


def test_the_last_of_a_list_of_messages_says_what_the_call_cost(bench):
    messages = [{"type": "text"}, {"type": "result", "usage": {"total_tokens": 30}, "total_cost_usd": 0.5}]
    (bench.workspace / "a.json").write_text(json.dumps(messages))
    assert bench.run(budgeted({"tokens": 100}, a={"agent": "x", "run": "cat a.json"})).status == "completed"
    with bench.open() as hf:
        spending = hf.latest("p").section("budget").spending
        assert (spending["tokens"].used, spending["money"].used) == (30, 0.5)
    (bench.workspace / "a.json").write_text(json.dumps([{**messages[-1], "is_error": True, "result": "overloaded"}]))
    assert "overloaded" in bench.run(budgeted({}, a="cat a.json"), run_id="other").detail


@pytest.mark.parametrize("code", [0, 1])
def test_an_agent_that_fails_is_believed_about_its_cost_and_when_to_come_again(bench, code):
    """Proves E6: also if its command exits with an error, and what is shown is its `result`."""
    said = '{"is_error": true, "result": "overloaded", "retry_after": 0.01, "usage": {"input_tokens": 7}}'
    flow = {
        "flow": "p",
        "budget": {"tokens": 1000},
        "phases": {"one": {"run": f"cat said; exit {code}", "retries": 1, "on_failure": "abort"}},
    }
    (bench.workspace / "said").write_text(said)
    with bench.open() as hf:
        result = bench.run(flow, hf=hf)
        assert result.status == "failed"
        assert hf.latest("p").section("budget").spending["tokens"].used == 14
    failed = next(event for event in bench.events if event.kind == "task_failed")
    assert "overloaded" in failed.text
    assert "is_error" not in failed.text
