import ast
import asyncio
import importlib
import inspect
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import AsyncHoldfast, Holdfast, Run, RunCancelled, StepTimeout, UsageError
from holdfast.aio import AWAITED, AsyncRun


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.db"


def test_a_step_is_awaited_once_over_all_lives_of_the_run(place):
    done = []

    async def ask(goal):
        await asyncio.sleep(0)
        done.append((goal, holdfast.current_step().name))
        return {"plan": goal}

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            assert await run.step("plan", ask, "x") == {"plan": "x"}
            assert await run.step("plain", len, "four") == 4
            latest = await hf.latest("r")
            assert latest.summary.steps == 2

    asyncio.run(life())
    asyncio.run(life())
    assert done == [("x", "plan")]


def test_sync_and_async_code_share_a_run(place):
    async def ask():
        return "asked"

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            return await run.step("a", ask)

    assert asyncio.run(life()) == "asked"
    with holdfast.open(place) as hf, hf.run("r") as run:
        assert run.step("a", ask) == "asked"
        assert run.calls.record("a")["code"] == "ask"


def test_parallel_steps_are_awaited_together(place):
    gate = asyncio.Event()
    begun = []

    async def work(number):
        begun.append(number)
        if len(begun) == 3:
            gate.set()
        await asyncio.wait_for(gate.wait(), 30)
        return number

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            return await run.parallel({f"p{n}": (lambda n=n: work(n)) for n in range(3)})

    assert asyncio.run(life()) == {"p0": 0, "p1": 1, "p2": 2}


def test_a_cancelled_step_is_not_done_and_is_done_in_the_next_life(place):
    begun = asyncio.Event()

    async def slow():
        begun.set()
        await asyncio.sleep(3600)

    async def quick():
        return "now"

    async def life(call, *, cancelled):
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            task = asyncio.ensure_future(run.step("a", call))
            if cancelled:
                await begun.wait()
                task.cancel()
            return await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(life(slow, cancelled=True))
    slow.__qualname__ = quick.__qualname__ = "step"
    assert asyncio.run(life(quick, cancelled=False)) == "now"


def test_cancelled_while_its_result_is_stored_a_step_is_kept(place):
    calls = []

    async def ask():
        calls.append(asyncio.current_task())
        return "answer"

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            stored = run.sync.calls.finish

            def finish(*args, **named):
                loop.call_soon_threadsafe(task.cancel)
                return stored(*args, **named)

            run.sync.calls.finish = finish
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(run.step("a", ask))
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(life())
    with holdfast.open(place) as hf, hf.run("r") as run:
        assert run.step("a", ask) == "answer"
    assert len(calls) == 1


def test_cancelled_while_its_answer_is_stored_a_question_is_not_asked_again(place):
    asked = []

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:

            def told(wait, reply):
                if reply is None:
                    asked.append(wait.id)
                    hf.sync.control.answer("r", "approve", wait=wait.id, by="ann")
                else:
                    loop.call_soon_threadsafe(task.cancel)
                    cancelled.wait(10)

            cancelled, loop = threading.Event(), asyncio.get_running_loop()
            run.sync.host.on_wait = told
            task = asyncio.ensure_future(run.approve("Ship it?", name="ship"))
            while not task.cancelling():  # noqa: ASYNC110 - what is looked at tells nobody
                await asyncio.sleep(0.01)
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await run.approve("Ship it?", name="ship")).by

    assert asyncio.run(life()) == "ann"
    assert asked == ["ship"]


def test_a_retry_is_reserved_in_the_budgets(place):
    attempts = []

    async def flaky():
        attempts.append(1)
        raise ConnectionError("again")

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r", waiting="leave") as run:
            run.budget.limit(retries=2)
            await run.step("a", flaky, retries=5, backoff=0)

    with pytest.raises(holdfast.RunWaiting):
        asyncio.run(life())
    assert len(attempts) == 3


def test_transient_errors_are_retried_and_a_slow_step_is_given_up(place):
    tries = []

    async def flaky():
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return "at last"

    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            assert await run.step("a", flaky, retries=3, backoff=0.001) == "at last"
            with pytest.raises(StepTimeout):
                await run.step("b", asyncio.sleep, 3600, timeout_s=0.01)

    asyncio.run(life())


@pytest.mark.parametrize(("sync", "awaited"), [(Holdfast, AsyncHoldfast), (Run, AsyncRun)])
def test_every_public_method_has_its_twin(sync, awaited, place):
    methods = [name for name, _ in inspect.getmembers(sync, inspect.isfunction) if not name.startswith("_")]
    with holdfast.open(place) as hf:
        twin = AsyncHoldfast(hf) if awaited is AsyncHoldfast else AsyncRun(hf.run("r"))
        assert [name for name in methods if not callable(getattr(twin, name))] == []


def test_the_twin_of_step_takes_the_same_arguments():
    assert list(inspect.signature(Run.step).parameters) == list(inspect.signature(AsyncRun.step).parameters)
    parallel = inspect.signature(Run.parallel).parameters
    assert list(parallel) == list(inspect.signature(AsyncRun.parallel).parameters)


def slowed(owner, name):
    """Let a method take its time, and return what undoes it."""
    method = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: (time.sleep(0.2), method(*given, **named))[1])
    return lambda: setattr(owner, name, method)


async def cancelled(coroutine):
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelled_while_it_is_entered_a_run_gives_its_lease_back(place):
    async def main():
        hf = await AsyncHoldfast.open(place)
        run = await hf.run("r")
        slowed(run.sync.host, "begin")

        async def enter():
            async with run:
                raise AssertionError

        await cancelled(enter())
        await hf.close()

    asyncio.run(main())
    with holdfast.open(place) as hf, hf.run("r"):
        pass


@pytest.mark.parametrize("where", ["begin", "finish"])
def test_a_step_whose_caller_was_cancelled_may_be_called_again(place, where):
    async def ask():
        return 1

    async def main():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            undo = slowed(run.sync.calls, where)
            await cancelled(run.step("a", ask, effect="asks"))
            undo()
            assert await run.step("a", ask, effect="asks") == 1

    asyncio.run(main())


def test_parallel_steps_need_a_limit_that_lets_one_run(place):
    async def main():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            with pytest.raises(UsageError, match="limit=0"):
                await run.parallel({"a": int}, limit=0)

    asyncio.run(main())


def test_many_that_wait_for_people_leave_room_for_the_answers(place):
    async def main():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            asked = [asyncio.create_task(run.approve(f"{i}?", name=f"w{i}")) for i in range(40)]
            while len(run.host.waits.open) < len(asked):  # noqa: ASYNC110 - threads have no asyncio.Event
                await asyncio.sleep(0.02)
            await hf.control.pause("r")
            await hf.control.cancel("r")
            ends = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
            assert {type(end) for end in ends} == {RunCancelled}

    asyncio.run(main())


@pytest.mark.parametrize("wait", [lambda run: run.approve("Deploy?"), lambda run: run.wait_signal("go")])
def test_a_cancelled_wait_ends_and_is_waited_for_again_in_the_next_life(place, wait):
    async def life():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r") as run:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await wait(run)

    asyncio.run(asyncio.wait_for(life(), 30))
    with holdfast.open(place) as hf:
        assert len(hf.control.waiting("r")) == 1


class Ticks:
    """A loop that is alive: whoever blocks it is never let go."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()

    def wait(self):
        """Wait on a thread until the loop has come round."""
        came_round = threading.Event()
        self._loop.call_soon_threadsafe(came_round.set)
        assert came_round.wait(30), "the loop stands still"


def life(place, body, **options):
    """Run the body in one process of a run."""

    async def live():
        async with await AsyncHoldfast.open(place) as hf, await hf.run("r", **options) as run:
            return await body(run)

    return asyncio.run(live())


def test_the_loop_goes_on_while_parts_call_plain_functions(place):
    async def body(run):
        ticks = Ticks()
        run.agents.register("coder", lambda asked: (ticks.wait(), asked)[1])
        graph = run.graph()
        graph.add("one", ticks.wait)
        machine = run.machine(
            states=["a", "b"], transitions={"a": ["b"]}, guards={("a", "b"): lambda: not ticks.wait()}
        )
        await machine.to("b")
        await run.phase("build").call(ticks.wait)
        run.knowledge.capture("a fact")
        await run.knowledge.flush(lambda _entry: ticks.wait())
        conflict = await run.mailbox.conflicts.start("tabs", ["ann", "bob"])
        return (
            await run.agents.call("coder", "hello", task="t"),
            (await graph.run()).completed,
            (await run.gates.task("g", ticks.wait, [lambda: not ticks.wait()]).run()).success,
            await conflict.debate(lambda *_: ticks.wait(), lambda _: "agreed"),
        )

    assert life(place, body) == ("hello", ("one",), True, "agreed")


def test_coroutine_functions_given_to_parts_run_on_the_callers_loop(place):
    async def body(run):
        home = asyncio.get_running_loop()

        async def work(*given):
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is home and (given[0] if given else "done")

        async def holds():
            return asyncio.get_running_loop() is home

        run.agents.register("coder", work, timeout_s=60)
        graph = run.graph()
        graph.add("one", lambda: "result")
        graph.add("two", lambda results: work(results["one"]), needs=["one"])
        task = run.gates.task("g", work, [holds])
        return (
            await run.agents.call("coder", "hello", task="t"),
            (await graph.run()).results,
            (await task.run()).response,
            task.outcome.success,
            await run.phase("build").call(work, "built"),
        )

    expected = ("hello", {"one": "result", "two": "result"}, "done", True, "built")
    assert life(place, body) == life(place, body) == expected


def test_a_coroutine_that_takes_too_long_is_cancelled(place):
    ended = []

    async def body(run):
        gone = asyncio.Event()

        async def slow():
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("cancelled")
                gone.set()

        graph = run.graph()
        graph.add("slow", slow, timeout_s=0.01)
        result = await graph.run()
        await gone.wait()
        return result.failed

    assert life(place, body) == ("slow",)
    assert ended == ["cancelled"]


def test_a_cancelled_caller_of_a_part_leaves_its_tasks_to_the_next_life(place):
    async def cancelled(run):
        begun = asyncio.Event()

        async def slow():
            begun.set()
            await asyncio.sleep(3600)

        graph = run.graph()
        graph.add("slow", slow)
        task = asyncio.ensure_future(graph.run())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def again(run):
        graph = run.graph()
        graph.add("slow", lambda: "quick")
        return (await graph.run()).results

    life(place, cancelled)
    assert life(place, again) == {"slow": "quick"}


def test_phases_and_destructive_operations_are_entered_with_async_with(place):
    async def body(run):
        async with run.phase("research") as research:
            research.keep(["a", "b"])
        async with run.destructive("git_push", "origin main") as checkpoint:
            reason = checkpoint.reason
        with pytest.raises(ValueError, match="broken"):
            async with run.phase("build"):
                raise ValueError("broken")
        async with run.budget.child("phase:build", {"tokens": 5}) as budget:
            await budget.spend(tokens=2)
        return run.phase("research").result, reason, run.phases.state("build").status, run.budget.used("tokens")

    assert life(place, body) == (["a", "b"], "before git_push: origin main", "failed", 2)


def test_what_is_awaited_of_a_part_is_there():
    parts = ("agents", "phases", "phase", "machine", "graph", "gates", "budget", "mailbox", "conflicts", "knowledge")
    modules = [importlib.import_module(f"holdfast.runtime.{name}") for name in (*parts, "context")]
    facades = ("control", "engine", "recovery.facade", "transfer.facade")
    modules += [importlib.import_module(f"holdfast.{name}") for name in facades]
    for kind, methods in AWAITED.items():
        part = next(found for module in modules if (found := getattr(module, kind, None)) is not None)
        assert all(callable(getattr(part, name)) for name in methods), kind


def test_an_asynchronous_function_in_plain_code_under_a_loop_is_refused_with_what_to_do(place):
    async def ask():
        return "asked"

    async def body():
        with holdfast.open(place) as hf, hf.run("r") as run:
            run.step("a", ask)

    with pytest.raises(UsageError, match="AsyncHoldfast"):
        asyncio.run(body())


def test_the_types_of_the_asynchronous_classes_are_those_of_the_synchronous_ones():
    made = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "aio_stub.py"], capture_output=True, text=True, check=True
    ).stdout
    kept = Path(holdfast.__file__).with_name("aio_methods.pyi").read_text()
    assert ast.dump(ast.parse(made)) == ast.dump(ast.parse(kept)), "make docs writes it again"
