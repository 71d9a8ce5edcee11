"""Budgets over kills, compared with a log of calls that the agent itself writes."""

import errno
import os
import signal
import threading
import time
from contextlib import suppress
from functools import partial

import pytest

import holdfast
from crash.children import Child
from holdfast import AgentOutput, Command, RunWaiting, TokenUsage
from holdfast.errors import CommandFailed, RunCancelled, SessionOver, StepTimeout, StoreFull, ValueRefused
from holdfast.flow.load import flow_from
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk


def begun(log):
    return log.read_text().count("call") if log.exists() else 0


def test_a_crash_loop_cannot_make_more_calls_than_its_budget(tmp_path):
    """Proves E8: a reservation is durable before the call."""
    log = tmp_path / "log"

    def life(report):
        def deadly(_task):
            with log.open("a") as file:
                file.write("call\n")
            os.kill(os.getpid(), signal.SIGKILL)

        with holdfast.open(tmp_path / "s") as hf, hf.run("r", waiting="leave") as run:
            run.budget.limit(subcalls=3)
            run.agents.register("coder", deadly)
            try:
                run.agents.call("coder", "work", task="t")
            except RunWaiting:
                report("waits")
                raise

    ended = [Child(life).join() for _ in range(6)]
    assert begun(log) == 3
    assert [one.signal for one in ended] == [signal.SIGKILL] * 3 + [0] * 3
    with holdfast.open(tmp_path / "s") as hf:
        assert hf.latest("r").section("budget").spending["subcalls"].used == 3
        assert [wait.kind for wait in hf.control.waiting("r")] == ["budget"]
        hf.control.raise_budget("r", {"subcalls": 1})
    assert Child(life).join().signal == signal.SIGKILL
    assert begun(log) == 4


def killed_in_every_second_call(place, log, **registered):
    """Return what starts a process whose agent spends 500 tokens a call, and dies in the second one that it makes."""

    def life(report):
        calls = []

        def agent(_task):
            with log.open("a") as file:
                file.write("call\n")
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return AgentOutput(output="done", tokens=TokenUsage(input=400, output=100))

        with holdfast.open(place) as hf, hf.run("r", waiting="leave") as run:
            run.budget.limit(tokens=2000)
            run.agents.register("coder", agent, **registered)
            for number in range(9):
                run.agents.call("coder", number, task=f"t{number}")

    return life


def spending(place):
    with holdfast.open(place) as hf:
        return hf.find("r").section("budget").spending


def test_a_crash_loop_cannot_spend_more_tokens_than_its_budget(tmp_path):
    """Proves E8: a call whose process died in it has cost what its dearest call did."""
    log = tmp_path / "log"
    life = killed_in_every_second_call(tmp_path / "s", log)
    ended = [Child(life).join().signal for _ in range(5)]
    assert ended == [signal.SIGKILL] * 2 + [0] * 3
    spent = spending(tmp_path / "s")
    assert (begun(log), spent["subcalls"].used) == (4, 4)
    assert (spent["tokens"].used, spent["tokens"].lost, spent["tokens"].reserved) == (2000, 1000, 0)
    with holdfast.open(tmp_path / "s") as hf:
        (wait,) = hf.control.waiting("r")
        assert wait.details["lost"] == 1000


@pytest.mark.parametrize(("most", "calls", "lost"), [(None, 1, 2000), ({"tokens": 500}, 4, 2000)])
def test_a_call_of_unknown_cost_has_reserved_what_it_declared_or_all_that_was_left(tmp_path, most, calls, lost):
    """Proves E8."""
    log = tmp_path / "log"

    def life(report):
        def deadly(_task):
            with log.open("a") as file:
                file.write("call\n")
            os.kill(os.getpid(), signal.SIGKILL)

        with holdfast.open(tmp_path / "s") as hf, hf.run("r", waiting="leave") as run:
            run.budget.limit(tokens=2000)
            run.agents.register("coder", deadly, most=most)
            run.agents.call("coder", "work", task="t")

    for _ in range(6):
        Child(life).join()
    assert begun(log) == calls
    tokens = spending(tmp_path / "s")["tokens"]
    assert (tokens.used, tokens.lost) == (2000, lost)


@pytest.mark.parametrize("ending", ["answered", "failed", "command failed", "unstored"])
def test_what_was_reserved_is_given_back_when_a_call_ends_by_itself(tmp_path, ending):
    """Proves E8: only a call of unknown cost is charged with what it did not say that it cost."""

    def agent(_task):
        if ending == "failed":
            raise ValueError("no")
        output = object() if ending == "unstored" else "done"
        return AgentOutput(output=output, tokens=TokenUsage(input=7))

    with holdfast.open(tmp_path / "s") as hf:
        with suppress(ValueError, CommandFailed, ValueRefused), hf.run("r", waiting="leave") as run:
            run.budget.limit(tokens=2000, money=1)
            run.agents.register("coder", Command("exit 3") if ending == "command failed" else agent)
            run.agents.call("coder", "work", task="t")
        section = hf.find("r").section("budget")
    tokens = section.spending["tokens"]
    said = 7 if ending in ("answered", "unstored") else 0
    assert (tokens.used, tokens.reserved, tokens.lost) == (said, 0, 0)
    assert section.largest == ({"coder": {"tokens": 7}} if said else {})


def test_a_result_that_is_stored_later_is_counted_once(tmp_path):
    """Proves E8."""
    with holdfast.open(tmp_path / "s") as hf, hf.run("r") as run:
        run.budget.limit(tokens=2000)
        coder = partial(AgentOutput, output=object(), tokens=TokenUsage(input=7))
        run.agents.register("coder", coder)
        with pytest.raises(ValueRefused):
            run.agents.call("coder", task="t")
        run.agents.register("coder", coder, store=lambda _output: "plain")
        run.agents.call("coder", task="t")
        assert run.budget.spending["tokens"].used == 7
        assert run.calls.record("agent:coder/t")["spent"]["tokens"] == 7


CUT_OFF = ["timeout", "command timeout", "command killed", "cancelled", "session over", "interrupted", "waits"]


@pytest.mark.parametrize("ending", CUT_OFF)
def test_a_call_that_was_cut_off_has_cost_what_it_had_reserved(tmp_path, ending):
    """Proves E8: nobody knows what it cost, also where the process lives on; what it said is not charged twice."""

    def agent(_task):
        run.budget.spend(tokens=100)
        if ending == "timeout":
            time.sleep(1)
        if ending == "session over":
            stop.set()
            run.step("next", lambda: 1)
        if ending == "interrupted":
            raise KeyboardInterrupt
        run.approve("go on?")

    stop, said = threading.Event(), 0 if "command" in ending or ending == "cancelled" else 100
    commands = {"command timeout": "sleep 9", "command killed": "kill -9 $$", "cancelled": "touch begun; sleep 9"}
    command = Command(commands.get(ending, "true"), cwd=tmp_path)
    with holdfast.open(tmp_path / "s") as hf:

        def cancel():
            while not (tmp_path / "begun").exists():
                time.sleep(0.01)
            hf.control.cancel("r")

        with (
            suppress(StepTimeout, CommandFailed, RunCancelled, SessionOver, KeyboardInterrupt, RunWaiting),
            hf.run("r", waiting="leave") as run,
        ):
            run.host.leave_when(stop)
            run.budget.limit(tokens=2000)
            if ending == "cancelled":
                threading.Thread(target=cancel, daemon=True).start()
            timeout = 0.2 if "timeout" in ending else None
            run.agents.register("coder", agent if said else command, timeout_s=timeout, most={"tokens": 500})
            run.agents.call("coder", "work", task="t")
        tokens = hf.find("r").section("budget").spending["tokens"]
        assert (tokens.used, tokens.reserved, tokens.lost) == (500, 0, 500 - said)
        assert [note["kind"] for note in hf.find("r").notes].count("budget_lost") == 1
        if ending == "waits":  # to look whether there is an answer begins nothing, and costs nothing
            with suppress(RunWaiting), hf.run("r", waiting="leave"):
                pass
            assert hf.find("r").section("budget").spending["tokens"].used == 500


def test_each_attempt_that_was_cut_off_is_charged(tmp_path):
    """Proves E8: what an attempt before it said that it cost is not what this one cost."""
    tries = []

    def agent(_task):
        tries.append(1)
        run.budget.spend(tokens=400)
        raise ConnectionError if len(tries) == 1 else StepTimeout("coder", 1.0)

    with holdfast.open(tmp_path / "s") as hf, hf.run("r") as run:
        run.budget.limit(tokens=2000)
        run.agents.register("coder", agent, retries=1, backoff=0.0, most={"tokens": 500})
        with pytest.raises(StepTimeout):
            run.agents.call("coder", "work", task="t")
        tokens = run.budget.spending["tokens"]
        assert (tokens.used, tokens.reserved, tokens.lost) == (900, 0, 100)


@pytest.mark.parametrize("most", [None, {"tokens": 500}, {"money": 1}])
def test_of_each_budget_it_is_reserved_what_is_known_of_it(tmp_path, most):
    """Proves E8: a call that failed at once says nothing of the next, nor does what is declared for another budget."""

    def life(report):
        calls = []

        def agent(_task):
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("no")

        with holdfast.open(tmp_path / "s") as hf, hf.run("r", waiting="leave") as run:
            run.budget.limit(tokens=2000, money=3)
            run.agents.register("coder", agent, most=most)
            for _ in range(2):
                with suppress(ValueError):
                    run.agents.call("coder", "work", task="t")

    assert Child(life).join().signal == signal.SIGKILL
    with holdfast.open(tmp_path / "s") as hf, hf.run("r") as run:
        lost = {name: run.budget.spending[name].lost for name in ("tokens", "money")}
    assert lost == {"tokens": 2000, "money": 3} | (most or {})


def test_a_handle_that_looked_at_its_budget_before_charges_what_a_process_lost_since(tmp_path):
    """Proves E8."""
    with holdfast.open(tmp_path / "s") as hf:
        with hf.run("r") as run:
            run.budget.limit(tokens=2000)
        early = hf.run("r")
        assert early.budget.used("tokens") == 0
        Child(killed_in_every_second_call(tmp_path / "s", tmp_path / "log", most={"tokens": 700})).join()
        with early:
            tokens = early.budget.spending["tokens"]
            assert (tokens.used, tokens.lost, tokens.reserved) == (1200, 700, 0)


def test_a_fork_does_not_pay_for_a_call_that_is_under_way(tmp_path):
    """Proves E8: it is paid for where it was begun; what the lineage lost stays spent."""
    with holdfast.open(tmp_path / "s") as hf:
        with hf.run("r") as run:
            run.budget.limit(tokens=2000)

            def agent(_task):
                hf.fork("r", "copy")
                raise StepTimeout("coder", 1.0)

            run.agents.register("coder", agent, most={"tokens": 500})
            with suppress(StepTimeout):
                run.agents.call("coder", "work", task="t")
            hf.fork("r", "later")
        spent = {}
        for name in ("copy", "later"):
            with hf.run(name) as forked:
                tokens = forked.budget.spending["tokens"]
                spent[name] = (tokens.used, tokens.lost, tokens.reserved)
    assert spent == {"copy": (0, 0, 0), "later": (500, 500, 0)}


def test_what_an_agent_may_cost_can_be_changed_without_paying_again(tmp_path):
    """Proves E8: it does not decide what the agent does."""
    log = tmp_path / "log"
    (tmp_path / "work").mkdir()
    for most in ({}, {"most": {"tokens": 500}}, {"most": {"tokens": 900}}):
        agents = {"coder": {"run": f"echo call >> '{log}'", **most}}
        flow = flow_from(
            {"flow": "r", "agents": agents, "phases": {"build": {"agent": "coder"}, "ask": {"approve": "?"}}}
        )
        with holdfast.open(tmp_path / "s") as hf:
            holdfast.run_flow(hf, flow, workspace=tmp_path / "work", waiting="leave")
    assert begun(log) == 1


@pytest.mark.parametrize("budget", [{"subcalls": 2}, {"tokens": 1000}])
def test_the_budget_of_a_phase_holds_over_kills_and_fixes(tmp_path, budget):
    """Proves E8: what an agent is called for in a phase counts in the budget of that phase."""
    log = tmp_path / "log"
    (tmp_path / "work").mkdir()
    flow = flow_from(
        {
            "flow": "r",
            "agents": {"coder": {"run": f"echo call >> '{log}'; kill -9 $PPID; sleep 9", "most": {"tokens": 500}}},
            "phases": {"first": "true", "build": {"agent": "coder", "budget": budget}},
        }
    )

    def life(report):
        with holdfast.open(tmp_path / "s") as hf:
            holdfast.run_flow(hf, flow, workspace=tmp_path / "work", waiting="leave")

    for _ in range(4):
        Child(life).join()
    assert begun(log) == 2
    with holdfast.open(tmp_path / "s") as hf:
        part = hf.find("r").section("budget").nested["phase:build"].spending
        assert [wait.details["part"] for wait in hf.control.waiting("r")] == ["phase:build"]
    assert part["subcalls"].used == 2


def test_agents_and_retries_feed_the_budgets_in_python(tmp_path):
    """Proves E8, A3: the documented forms of reporting usage count."""
    tries = []

    def flaky(task):
        tries.append(task)
        if len(tries) == 1:
            raise ConnectionError("down")
        return {"summary": "done", "usage": {"input_tokens": 9, "output_tokens": 2}}

    with holdfast.open(tmp_path / "s") as hf, hf.run("r") as run:
        run.budget.limit(tokens=100, retries=5, subcalls=9)
        run.agents.register("coder", flaky, retries=2, backoff=0.0)
        run.agents.call("coder", "work", task="t")
        used = {name: run.budget.used(name) for name in ("tokens", "retries", "subcalls")}
    assert used == {"tokens": 11, "retries": 1, "subcalls": 2}


@pytest.mark.parametrize("loop", ["fixes", "retries"])
def test_a_token_budget_stops_a_loop_of_fixes_and_retries(tmp_path, loop):
    """Proves E8, F1: a limit of 2,000 tokens is passed by the call that reaches it, and by no other."""
    log = tmp_path / "log"
    usage = '{"result": "x", "usage": {"input_tokens": 1000, "output_tokens": 500}}'
    (tmp_path / "usage").write_text(usage)
    agent = f"echo call >> '{log}'; cat '{tmp_path}/usage'" + ("" if loop == "fixes" else "; exit 1")
    task = {"agent": "coder"}
    task |= {"gates": ["false"], "fix": {"agent": "coder"}, "max_fixes": 6} if loop == "fixes" else {"retries": 6}
    flow = flow_from(
        {
            "flow": "loop",
            "budget": {"tokens": 2000},
            "agents": {"coder": {"run": agent}},
            "phases": {"build": {**task, "backoff": "0s"}},
        }
    )
    (tmp_path / "work").mkdir()
    with holdfast.open(tmp_path / "s") as hf:
        holdfast.run_flow(hf, flow, workspace=tmp_path / "work", waiting="leave")
        spent = hf.latest("loop").section("budget").spending["tokens"].used
    assert begun(log) == 2
    assert spent == 3000


def test_a_store_that_refuses_stops_no_spending_but_every_reservation(tmp_path):
    """Proves A14, E8: what is spent is spent; what is reserved must be stored before the call begins."""
    disk = FaultyDisk(tmp_path, name="full budget")
    called = []
    with holdfast.Holdfast(SQLiteStore(tmp_path / "s.db", vfs=disk.vfs)) as hf, hf.run("r") as run:
        run.budget.limit(tokens=100, subcalls=5)
        run.agents.register("coder", called.append)
        disk.arm(Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True))
        with pytest.warns(holdfast.UnprotectedWarning):
            run.budget.spend(tokens=7)
        with pytest.warns(holdfast.UnprotectedWarning), pytest.raises(StoreFull):
            run.agents.call("coder", "work", task="t")
        disk.arm(None)
        assert (called, run.budget.used("tokens"), run.budget.used("subcalls")) == ([], 7, 0)
    disk.close()
