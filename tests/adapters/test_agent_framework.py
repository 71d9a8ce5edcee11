"""HoldfastCheckpointStorage: a real workflow with a scripted model, killed, resumed, forked, compared."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    handler,
)
from agent_framework.exceptions import WorkflowCheckpointException

from holdfast import UnprotectedWarning
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage


@dataclass
class Own:
    text: str


def made(name="flow", before=None, **fields):
    return WorkflowCheckpoint(workflow_name=name, graph_signature_hash="hash", previous_checkpoint_id=before, **fields)


def test_a_checkpoint_comes_back_whole(hf):
    storage = HoldfastCheckpointStorage(hf)
    message = Message(role="user", contents=["hello"])
    checkpoint = made(
        state={"text": "x" * 20_000, "conversation": [message] * 3, "n": None, "_executor_state": {"a": {"b": (1, 2)}}},
        metadata={"superstep": 3},
        iteration_count=7,
    )

    async def run():
        assert await storage.save(checkpoint) == checkpoint.checkpoint_id
        loaded = await storage.load(checkpoint.checkpoint_id)
        assert [one.text for one in loaded.state.pop("conversation")] == ["hello"] * 3
        kept = dict(checkpoint.state)
        kept.pop("conversation")
        assert loaded.state == kept
        assert (loaded.iteration_count, loaded.metadata) == (7, {"superstep": 3})
        with pytest.raises(WorkflowCheckpointException):
            await storage.load("no")

    asyncio.run(run())


def test_lists_latest_and_delete_go_by_the_order_of_saving(hf):
    storage = HoldfastCheckpointStorage(hf)

    async def run():
        ids, before = [], None
        for number in range(4):  # the clock goes backwards
            before = await storage.save(
                made("a flow/ü", before, state={"n": number}, timestamp=f"2030-01-0{9 - number}T00:00:00")
            )
            ids.append(before)
        await storage.save(made("other"))
        assert await storage.list_checkpoint_ids(workflow_name="a flow/ü") == ids
        assert [one.state["n"] for one in await storage.list_checkpoints(workflow_name="a flow/ü")] == [0, 1, 2, 3]
        assert (await storage.get_latest(workflow_name="a flow/ü")).state == {"n": 3}
        assert await storage.delete(ids[3])
        assert not await storage.delete(ids[3])
        assert (await storage.get_latest(workflow_name="a flow/ü")).state == {"n": 2}
        assert await storage.get_latest(workflow_name="none") is None

    asyncio.run(run())


def test_a_growing_state_costs_what_changed(place):
    async def run():
        async with HoldfastCheckpointStorage.open(place) as storage:
            before, words = None, []
            for number in range(100):
                words.append(f"{number} " + "".join(chr(97 + (number * 31 + at * 7) % 26) for at in range(1500)))
                before = await storage.save(made("flow", before, state={"log": list(words)}))
            return storage.holdfast.stats().chunk_bytes

    assert asyncio.run(run()) < 4 * 100 * 1500 * 3


def test_a_class_of_your_own_needs_to_be_allowed_or_known(place):
    async def run(**options):
        async with HoldfastCheckpointStorage.open(place, **options) as storage:
            saved = await storage.save(made(state={"own": Own("text")}))
            return (await storage.load(saved)).state["own"]

    with pytest.raises(Exception, match="Own"):
        asyncio.run(run())
    assert asyncio.run(run(allowed_checkpoint_types=[f"{Own.__module__}:Own"])) == Own("text")
    assert asyncio.run(run(types=[Own])) == Own("text")


def test_bytes_of_the_framework_are_never_edited(hf):
    secret = "AKIA" + "IOSFODNN7" + "QWERTYU"
    storage = HoldfastCheckpointStorage(hf)
    saved = asyncio.run(storage.save(made(state={"message": Message(role="user", contents=[secret]), "plain": secret})))
    loaded = asyncio.run(storage.load(saved))
    assert loaded.state["message"].text == secret
    assert secret not in loaded.state["plain"]


class Refusing(Executor):
    def __init__(self):
        super().__init__(id="refusing")

    @handler
    async def run(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("cannot", lambda: None)
        await ctx.yield_output(text)


def test_a_checkpoint_that_fails_is_told_although_the_framework_goes_on(place):
    storage = HoldfastCheckpointStorage.open(place)
    start = Refusing()
    workflow = WorkflowBuilder(
        start_executor=start, checkpoint_storage=storage, name="flow", output_from=[start]
    ).build()
    with pytest.warns(UnprotectedWarning, match="unprotected since"):
        result = asyncio.run(workflow.run("on"))
    assert result.get_outputs() == ["on"]
    assert storage.protection.since is not None
    asyncio.run(storage.save(made()))
    assert storage.protection.since is None
    storage.close()


WORKFLOW = """
    import asyncio, os, signal, sys
    from agent_framework import (
        Agent, AgentExecutor, AgentExecutorRequest, AgentExecutorResponse, BaseChatClient, ChatResponse, Executor,
        Message, WorkflowBuilder, WorkflowContext, handler,
    )
    from holdfast.adapters.agent_framework import HoldfastCheckpointStorage

    place, step, *rest = sys.argv[1:]

    class Scripted(BaseChatClient):
        def _inner_get_response(self, *, messages, stream, options, **kwargs):
            async def answer():
                with open("asked", "a") as file:
                    file.write(messages[-1].text + "\\n")
                return ChatResponse(messages=[Message(role="assistant", contents=[f"answer to {messages[-1].text}"])])
            return answer()

    class Begin(Executor):
        @handler
        async def run(self, text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
            asked = [Message(role="user", contents=[text])]
            await ctx.send_message(AgentExecutorRequest(messages=asked, should_respond=True))

    class End(Executor):
        @handler
        async def run(self, response: AgentExecutorResponse, ctx: WorkflowContext[None, str]) -> None:
            if step == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            await ctx.yield_output(response.agent_response.text + (rest[1] if len(rest) > 1 else ""))

    def build(storage):
        begin, end = Begin(id="begin"), End(id="end")
        agent = AgentExecutor(Agent(client=Scripted(), name="scripted"), id="agent")
        builder = WorkflowBuilder(start_executor=begin, checkpoint_storage=storage, name="flow", output_from=[end])
        return builder.add_edge(begin, agent).add_edge(agent, end).build()

    async def main():
        async with HoldfastCheckpointStorage.open(place) as storage:
            if step == "kill":
                await build(storage).run("question")
            latest = await storage.get_latest(workflow_name="flow")
            result = await build(storage).run(checkpoint_id=rest[0] if rest else latest.checkpoint_id)
            print(result.get_outputs()[0])
            print((await storage.get_latest(workflow_name="flow")).checkpoint_id)

    asyncio.run(main())
"""


def test_a_workflow_is_killed_resumed_without_asking_again_forked_and_compared(program):
    """Proves X6."""
    program.write(WORKFLOW)
    program.run_killed("kill")
    assert (program.folder / "asked").read_text() == "question\n"
    with HoldfastCheckpointStorage.open(program.place) as storage:
        reached = asyncio.run(storage.get_latest(workflow_name="flow"))
    output, first = program.run("resume").split("\n")[:2]
    assert output == "answer to question"
    assert (program.folder / "asked").read_text() == "question\n"
    output, second = program.run("fork", reached.checkpoint_id, " (fork)").split("\n")[:2]
    assert output == "answer to question (fork)"
    with HoldfastCheckpointStorage.open(program.place) as storage:
        assert storage.checkpoint_of(first).parent == storage.checkpoint_of(second).parent
        difference = storage.holdfast.diff(storage.checkpoint_of(first).id, storage.checkpoint_of(second).id)
        assert difference is not None
        assert storage.holdfast.verify().sound
