"""HoldfastSession: a real OpenAI Agents workflow with a scripted model, killed, resumed, forked, compared."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("agents")

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast import NotFound, UsageError
from holdfast.adapters.openai import HoldfastSession, Question

QUIET = RunConfig(tracing_disabled=True)


def text_of(items):
    return [item.get("content") if isinstance(item.get("content"), str) else item.get("type") for item in items]


def test_items_are_kept_in_order_taken_back_and_cleared(hf):
    session = HoldfastSession("user:1/ü\0", hf)

    async def run():
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([{"role": "user", "content": str(number)} for number in range(5)])
        await session.add_items([])
        assert (await session.pop_item())["content"] == "4"
        assert (await session.pop_item())["content"] == "3"
        await session.add_items([{"role": "user", "content": "large " + "x" * 200_000}])
        assert text_of(await session.get_items(2))[0] == "2"
        assert len(await session.get_items()) == 4
        assert await session.get_items(0) == []
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items([{"role": "user", "content": "after"}])
        assert text_of(await HoldfastSession("user:1/ü\0", hf).get_items()) == ["after"]

    asyncio.run(run())


def test_two_sessions_that_take_back_at_once_never_take_the_same_item(place):
    async def run():
        with HoldfastSession("s", place) as one, HoldfastSession("s", place) as other:
            await one.add_items([{"role": "user", "content": str(number)} for number in range(20)])
            taken = await asyncio.gather(*(session.pop_item() for session in (one, other) * 8))
            assert len({item["content"] for item in taken}) == 16
            assert len(await one.get_items()) == 4

    asyncio.run(run())


def test_what_cannot_be_stored_is_named_and_nothing_is_added(hf):
    session = HoldfastSession("s", hf)
    with pytest.raises(UsageError, match="items"):
        asyncio.run(session.add_items([{"role": "user", "content": "good"}, {"role": "user", "content": object()}]))
    assert asyncio.run(session.get_items()) == []
    with pytest.raises(NotFound):
        session.checkpoint_of()


WORKFLOW = """
    import asyncio, os, signal, sys
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call
    from holdfast.adapters.openai import HoldfastSession

    place, step = sys.argv[1:3]
    quiet = RunConfig(tracing_disabled=True)

    @function_tool(needs_approval=True)
    def deploy(target: str) -> str:
        with open("deployed", "a") as file:
            file.write(target + "\\n")
        return f"deployed to {target}"

    async def main():
        async with HoldfastSession("deploy-7", place) as session:
            if step == "first":
                asked = function_call("deploy", {"target": "prod"}, call_id="call-1")
                model = ScriptedModel([[assistant_message("hello")], [asked]])
                agent = Agent(name="ops", model=model, tools=[deploy])
                await Runner.run(agent, "hi", session=session, run_config=quiet)
                result = await Runner.run(agent, "deploy it", session=session, run_config=quiet)
                await session.save_state(result.to_state())
                os.kill(os.getpid(), signal.SIGKILL)
            agent = Agent(name="ops", model=ScriptedModel([[assistant_message("done")]]), tools=[deploy])
            if step == "ask":
                print(*[(question.call_id, question.tool) for question in await session.questions(agent)])
            if step in ("yes", "no"):
                await session.answer("call-1", approved=step == "yes", reason="too risky")
            if step == "resume":
                state = await session.load_state(agent)
                result = await Runner.run(agent, state, session=session, run_config=quiet)
                print(result.final_output)

    asyncio.run(main())
"""


def test_a_run_that_waits_for_approval_is_killed_answered_elsewhere_and_resumed(program):
    """Proves X6."""
    program.write(WORKFLOW)
    program.run_killed("first")
    assert program.run("ask").strip() == "('call-1', 'deploy')"
    program.run("yes")
    program.run("no")  # the first answer counts
    assert program.run("ask").strip() == ""
    assert program.run("resume").strip() == "done"
    assert (program.folder / "deployed").read_text() == "prod\n"

    async def history():
        async with HoldfastSession("deploy-7", program.place) as session:
            return text_of(await session.get_items())

    kept = asyncio.run(history())
    assert kept[0] == "hi"
    assert kept.count("function_call") == kept.count("function_call_output") == 1


def test_a_fork_takes_the_other_answer_and_is_compared(hf):
    @function_tool(needs_approval=True)
    def deploy(target: str) -> str:
        return f"deployed to {target}"

    def agent(*steps):
        return Agent(name="ops", model=ScriptedModel(list(steps)), tools=[deploy])

    async def run():
        session = HoldfastSession("one", hf)
        first = agent([function_call("deploy", {"target": "prod"}, call_id="call-1")])
        result = await Runner.run(first, "deploy it", session=session, run_config=QUIET)
        await session.save_state(result.to_state())
        other = await session.fork("two")
        assert await other.questions(first) == [Question("call-1", "deploy", '{"target":"prod"}')]
        await session.answer("call-1", approved=True)
        await other.answer("call-1", approved=False, reason="not today")
        outputs = []
        for one, text in ((session, "shipped"), (other, "held back")):
            ready = agent([assistant_message(text)])
            state = await one.load_state(ready)
            result = await Runner.run(ready, state, session=one, run_config=QUIET)
            await one.save_state(result.to_state())
            assert result.final_output == text
            outputs.append(
                [item["output"] for item in await one.get_items() if item.get("type") == "function_call_output"]
            )
        assert outputs == [["deployed to prod"], ["not today"]]
        difference = hf.diff(session.checkpoint_of().id, other.checkpoint_of().id)
        assert "not today" in str(difference)
        await session.delete()
        assert len(await other.get_items()) >= 3

    asyncio.run(run())


def test_files_are_part_of_each_batch_of_items(hf, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    session = HoldfastSession("s", hf, workspace=folder)

    async def run():
        for number in (1, 2):
            (folder / "a.txt").write_text(str(number))
            await session.add_items([{"role": "user", "content": str(number)}])

    asyncio.run(run())
    first = hf.checkpoints(session.run)[-1]
    opened = hf.run(session.run, workspace=folder)
    opened.workspace.restore(opened.workspace.plan(first))
    assert (folder / "a.txt").read_text() == "1"
