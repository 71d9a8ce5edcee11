import asyncio
import inspect

import pytest

import holdfast
from holdfast import AsyncHoldfast, Divergence, Holdfast, Run, StepTimeout
from holdfast.aio import AsyncRun


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
    with holdfast.open(place) as hf, hf.run("r") as run, pytest.raises(Divergence):
        run.step("a", len, "x")


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
            stored = run.sync.steps.finish

            def finish(*args, **named):
                loop.call_soon_threadsafe(task.cancel)
                return stored(*args, **named)

            run.sync.steps.finish = finish
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(run.step("a", ask))
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(life())
    with holdfast.open(place) as hf, hf.run("r") as run:
        assert run.step("a", ask) == "answer"
    assert len(calls) == 1


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
