"""The parts in a real run on SQLite: killed with SIGKILL in the middle of their work, and resumed."""

import itertools
import os
import random
import signal
from collections import Counter

import pytest

import holdfast
from crash.children import Child
from holdfast.errors import RunWaiting

TASKS = 40
LIMIT = 4


def do_everything(path, report, kill_at):
    """Work through all parts; every effect outside is reported, and the process dies at one of them."""
    numbers = itertools.count(1)

    def do(what):
        report(what)
        if next(numbers) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return what

    def task(number):
        do(f"task {number}")
        if number % 13 == 5:
            raise ValueError(f"task {number} is broken")
        return number

    with holdfast.open(f"{path}/store.db") as hf, hf.run("r", waiting="leave") as run:
        run.budget.limit(tokens=1000)
        graph = run.graph("g")
        for number in range(TASKS):
            graph.add(f"t{number}", lambda n=number: task(n), needs=[f"t{number - 6}"] if number >= 6 else [])
        result = graph.run(limit=LIMIT)
        for number in range(5):
            run.budget.spend(tokens=100, money=0.1, once=f"call {number}")
        run.mailbox.join("asker", "teller")
        ids = [run.mailbox.send("asker", "teller", i, expects_answer=True, key=f"q{i}") for i in range(4)]
        while (message := run.mailbox.receive("teller")) is not None:
            run.mailbox.answer(message, do(f"answer {message.body}"))
        gated = run.gates.task("code", lambda: do("worker"), ["true", lambda: bool(do("gate"))]).run()
        conflict = run.mailbox.conflicts.start("c", ["asker", "teller"])
        resolution = conflict.debate(lambda agent, c: do(f"{agent} {c.round}"), lambda c: c.round > 2 or None)
        run.complete()
        return {
            "completed": sorted(result.completed),
            "failed": sorted(result.failed),
            "blocked": sorted(result.blocked),
            "tokens": run.budget.used("tokens"),
            "money": str(run.budget.used("money")),
            "answers": [run.mailbox.await_answer(one) for one in ids],
            "gated": gated.success,
            "resolution": resolution,
        }


def life(path, kill_at=0):
    ended = Child(lambda report: report({"end": do_everything(path, report, kill_at)})).join()
    assert not any(isinstance(one, dict) and "traceback" in one for one in ended.reports), ended.reports
    end = ended.reports.pop()["end"] if ended.signal == 0 else None
    return end, ended.reports


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_all_parts_end_as_if_unbroken(tmp_path, seed):
    """Proves C4, C16, C17, D8, E1: on a real store, with SIGKILL."""
    chance = random.Random(seed)
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole, effects = life(tmp_path / "whole")
    assert len(whole["failed"]) == 3
    assert whole["blocked"]
    done, end, deaths = [], None, 0
    while end is None:
        end, told = life(tmp_path / "broken", chance.randint(1, 12) if deaths < 5 else 0)
        done += told
        deaths += end is None
    assert deaths >= 3
    assert end == whole
    assert set(done) == set(effects)
    repeated = Counter(done) - Counter(effects)
    assert repeated.total() <= deaths * LIMIT  # what was under way when it died, and nothing else


def test_a_used_up_budget_waits_in_the_store_and_goes_on_when_it_is_raised(tmp_path):
    """Proves E6 in part: exhaustion, raised from outside."""

    def work(hf):
        with hf.run("r", waiting="leave") as run:
            run.budget.limit(tokens=100)
            phase = run.budget.child("phase:act", {"tokens": 50})
            for number in range(4):
                phase.spend(tokens=30, once=f"call {number}")
            return run.budget.used("tokens"), run.budget.limit_of("tokens"), phase.limit_of("tokens")

    with holdfast.open(f"{tmp_path}/store.db") as hf:
        with pytest.raises(RunWaiting, match="phase:act/tokens is used up"):
            work(hf)
        (wait,) = hf.control.waiting("r")
        assert wait.details == {"budget": "tokens", "part": "phase:act", "used": 60, "limit": 50}
        hf.control.raise_budget("r", {"tokens": 500}, by="ann")
        with pytest.raises(RunWaiting, match=r"budget tokens is used up \(120 of 100\)"):
            work(hf)
        hf.control.raise_budget("r", {"tokens": 100}, by="ann")
        assert work(hf) == (120, 200, 550)
        assert hf.latest("r").section("budget").nested["phase:act"].spending["tokens"].used == 120
