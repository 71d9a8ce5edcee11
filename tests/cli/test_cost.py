"""`holdfast cost`: tokens, money and time by call, agent, phase and path; nothing that was paid for is left out."""

from __future__ import annotations

from decimal import Decimal

import pytest

import holdfast
from holdfast import AgentOutput, Command
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow

FLOW = """\
flow: costs
agents:
  coder: |
    echo '{"result": "done", "total_cost_usd": 0.1, "usage": {"input_tokens": 10, "output_tokens": 5, "tool_calls": 2}}'
  flaky: |
    if test -e tried
    then echo '{"result": "ok", "total_cost_usd": 0.2, "usage": {"input_tokens": 1, "output_tokens": 0}}'; exit
    fi
    touch tried
    echo '{"is_error": true, "result": "busy", "total_cost_usd": 0.3, "usage": {"input_tokens": 100}}'
    exit 1
phases:
  plan: {agent: coder, input: a}
  build:
    tasks:
      one: {agent: coder, input: b}
      two: {agent: flaky, input: c, retries: 2, backoff: 0s}
  check: {run: "true", gates: ["true"]}
"""
FIXED = FLOW.replace('["true"]', "[test -e fixed], fix: {agent: mender, input: x}")
MENDER = """\
  mender: |
    touch fixed; echo '{"result": "ok", "total_cost_usd": 0.05}'
phases:"""


def test_each_call_agent_and_phase_has_its_cost_failed_attempts_too(hf, project):
    """Proves F12."""
    (project / "costs.yaml").write_text(FIXED.replace("phases:", MENDER, 1))
    assert hf("run", "costs.yaml").code == 0
    said = hf("cost", "costs", "--json").json
    calls = {one["call"]: one for one in said["calls"]}
    assert calls["plan/plan/agent:coder"]["cost"] | {"time_s": 0} == {
        "tokens": 15, "money": 0.1, "tool_calls": 2, "time_s": 0,
    }  # fmt: skip
    assert calls["build/two/agent:flaky"]["cost"]["tokens"] == 101
    assert calls["build/two/agent:flaky"]["attempts"] == 2
    assert {name: (one["tokens"], one["money"]) for name, one in said["agents"].items()} == {
        "coder": (30, 0.2), "flaky": (101, 0.5), "mender": (0, 0.05),
    }  # fmt: skip
    assert {name: one["money"] for name, one in said["phases"].items()} == {"plan": 0.1, "build": 0.6, "check": 0.05}
    assert (said["in_all"]["tokens"], said["in_all"]["money"]) == (131, 0.75)
    assert said["on_path"]["money"] == 0.75
    assert said["outside"] == {"tokens": 0, "money": 0, "tool_calls": 0, "time_s": 0.0}
    assert all(one["cost"]["time_s"] > 0 for one in said["calls"])
    used = hf("show", "costs", "budget", "--json").json
    assert "131" in str(used)
    shown = hf("cost", "costs").out
    assert "in all" in shown
    assert "0.75" in shown


def test_what_a_run_went_back_behind_is_not_on_its_path_and_still_spent(hf, project):
    """Proves F12."""
    (project / "costs.yaml").write_text(FLOW)
    assert hf("run", "costs.yaml").code == 0
    first = hf("cost", "costs", "--json").json
    assert first["in_all"]["money"] == 0.7
    assert hf("resume", "costs@2", "--yes", "--take").code == 0  # which continues the flow
    again = hf("cost", "costs", "--json").json
    assert again["on_path"]["money"] == 0.7
    assert again["in_all"]["money"] == 1.4
    assert [one["on_path"] for one in again["calls"] if one["call"] == "plan/plan/agent:coder"] == [False, True]


def test_spending_outside_of_calls_and_in_python_is_counted(hf, project):
    """Proves F12."""
    with holdfast.open() as store, store.run("mine") as run:
        run.budget.spend(tokens=7)
        with run.phase("write"):
            run.step("draft", lambda: run.budget.spend(tokens=20, money="0.5"))
    with holdfast.open() as store:
        cost = store.cost("mine")
    assert {one.call: (one.phase, one.cost.tokens) for one in cost.calls} == {"draft": ("write", 20)}
    assert (cost.outside.tokens, cost.in_all.tokens, cost.in_all.money) == (7, 27, 0.5)
    assert "spent outside of calls" in hf("cost", "mine").out


def test_a_killed_call_that_was_charged_is_in_all_of_it(project):
    """Proves F12."""

    class Killed(BaseException):
        pass

    def work(call):
        raise Killed

    flow = flow_from({"flow": "killed", "phases": {"one": {"call": "mine:work"}}})
    with holdfast.open() as store:
        with pytest.raises(Killed):
            run_flow(store, flow, functions={"mine:work": work})
        assert store.cost("killed").in_all.tokens == 0
        with store.run("paid") as run:
            run.budget.limit(tokens=100)
            with pytest.raises(Killed):
                run.step("half", lambda: (run.budget.spend(tokens=30), work(None)))
        cost = store.cost("paid")
    assert (cost.outside.tokens, cost.in_all.tokens, cost.calls) == (30, 30, ())


AGENT = """\
#!/bin/sh
# Takes its next price, notes it down as the bank would, and reports it; odd calls fail.
n=$(($(cat calls 2>/dev/null || echo 0) + 1)); echo $n > calls
price=$(sed -n "${n}p" prices); echo "$price" >> paid
case $((n % 4)) in
  0) echo "{\\"result\\": \\"done\\", \\"cost_usd\\": $price}";;
  1) echo "{\\"is_error\\": true, \\"result\\": \\"busy\\", \\"cost_usd\\": $price}";;
  2) echo "{\\"result\\": \\"lost\\", \\"usage\\": {\\"cost_usd\\": $price, \\"input_tokens\\": 7}}"; exit 1;;
  3) echo "{\\"cost_usd\\": $price}"; echo "Traceback: it broke"; exit 3;;
esac
"""
PRICES = ["0.1", "0.2", "0.0000017", "0.3", "1e-7", "0.7", "0.1", "0.1", "2", "0.05", "0.3", "0.1"]


@pytest.fixture
def paying(project):
    """An agent that writes down what each of its calls costs; return what it wrote, added up."""
    (project / "agent.sh").write_text(AGENT)
    (project / "prices").write_text("\n".join(PRICES) + "\n")
    return lambda: float(sum(map(Decimal, (project / "paid").read_text().split())))


def test_money_counts_exactly_also_of_failed_calls(hf, project, paying):
    """Proves F12, B3: `cost_usd` of every attempt of an agent in a flow, as its own log has it."""
    (project / "f.yaml").write_text(
        "flow: f\nagents: {a: sh agent.sh}\nbudget: {money: 100}\nphases:\n"
        "  one: {agent: a, input: x, retries: 3, backoff: 0s}\n  two: {agent: a, input: y, retries: 3, backoff: 0s}\n"
    )
    assert hf("run", "f.yaml", "--no-wait").code == 0
    assert len((project / "paid").read_text().split()) == 8
    assert hf("cost", "f", "--json").json["in_all"]["money"] == paying()
    assert hf("cost", "f", "--json").json["in_all"]["tokens"] == 14


def test_a_money_limit_stops_at_what_an_agent_reports(hf, project, paying):
    """Proves B3, F12."""
    (project / "f.yaml").write_text(
        "flow: f\nagents: {a: sh agent.sh}\nbudget: {money: 0.25}\nphases:\n"
        "  one: {agent: a, input: x, retries: 3, backoff: 0s}\n"
    )
    done = hf("run", "f.yaml", "--no-wait")
    assert done.code == 9
    assert "money" in done.out
    assert paying() == 0.3


@pytest.mark.parametrize("way", ["command", "function"])
def test_money_of_an_agent_in_python_counts_exactly(hf, project, paying, way):
    """Proves F12: failed attempts of a command, and every way in which a function says what it spent."""

    def said(price):
        forms = [{"cost_usd": float(price)}, AgentOutput(money=price), {"usage": {"cost": float(price)}, "cost": None}]
        with (project / "paid").open("a") as paid:
            paid.write(f"{price}\n")
        return forms[len(price) % 3]

    with holdfast.open() as store, store.run("mine") as run:
        run.budget.limit(money=100)
        if way == "command":
            run.agents.register("a", Command("sh agent.sh"), retries=3, backoff=0, transient=lambda _: True)
            run.agents.call("a", "x")
        else:
            run.agents.register("a", said)
            for price in PRICES:
                run.agents.call("a", price)
    assert hf("cost", "mine", "--json").json["in_all"]["money"] == paying()
