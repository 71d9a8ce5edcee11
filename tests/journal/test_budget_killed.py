"""Budgets over kills, compared with a log of calls that the agent itself writes."""

import errno
import os
import signal

import pytest

import holdfast
from crash.children import Child
from holdfast import RunWaiting
from holdfast.errors import StoreFull
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
