"""HoldfastConversationStore: a real pydantic-ai agent with a scripted model, killed, resumed, forked, compared."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from holdfast.adapters.pydantic_ai import HoldfastConversationStore


def scripted(*answers):
    """Return an agent whose model says these things in turn."""
    left = list(answers)

    def answer(_messages, _info):
        said = left.pop(0)
        return ModelResponse(parts=[TextPart(said) if isinstance(said, str) else said])

    return Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])


def texts(conversation):
    return [
        part.content for message in conversation.messages for part in message.parts if isinstance(part.content, str)
    ]


async def talk(store, agent, prompt, conversation_id):
    conversation = await store.load(conversation_id) or Conversation(conversation_id=conversation_id)
    result = await agent.run(prompt, conversation=conversation)
    return await store.save(result)


async def scenario(store):
    agent = scripted("one", "two", "three", "four")
    await talk(store, agent, "first", "c 1/ü")
    await talk(store, agent, "second", "c 1/ü")
    loaded = await store.load("c 1/ü")
    assert texts(loaded) == ["first", "one", "second", "two"]
    assert texts(await store.load("c 1/ü", limit=2)) == ["second", "two"]
    entries = await store.load_entries("c 1/ü")
    forked = await store.fork("c 1/ü", from_entry=entries[1].id)
    await talk(store, agent, "other way", forked.conversation_id)
    assert texts(await store.load(forked.conversation_id)) == ["first", "one", "other way", "three"]
    await store.branch("c 1/ü", from_entry=entries[1].id, expected_revision=loaded.revision)
    await talk(store, agent, "again", "c 1/ü")
    assert texts(await store.load("c 1/ü")) == ["first", "one", "again", "four"]
    assert [one.conversation_id for one in await store.list_conversations()] == ["c 1/ü", forked.conversation_id]
    await store.delete("c 1/ü")
    assert await store.load("c 1/ü") is None
    assert texts(await store.load(forked.conversation_id)) == ["first", "one", "other way", "three"]


def test_a_conversation_is_saved_loaded_branched_and_forked_as_in_memory(hf):
    """Proves X6."""
    asyncio.run(scenario(InMemoryConversationStore()))
    asyncio.run(scenario(HoldfastConversationStore(hf)))


def test_of_two_who_save_the_same_conversation_one_is_told(hf):
    async def run():
        store, other = HoldfastConversationStore(hf), HoldfastConversationStore(hf)
        agent = scripted("one", "two", "three")
        await talk(store, agent, "first", "c")
        mine, theirs = await store.load("c"), await other.load("c")
        await other.save(await agent.run("theirs", conversation=theirs))
        with pytest.raises(ConversationConflict):
            await store.save(await agent.run("mine", conversation=mine))
        assert texts(await store.load("c")) == ["first", "one", "theirs", "two"]
        with pytest.raises(LookupError):
            await store.read_entry("no such entry")

    asyncio.run(run())


def test_a_large_message_is_kept_whole_and_scopes_are_apart(hf):
    async def run():
        store = HoldfastConversationStore(hf)
        large = "x" * 300_000
        result = await scripted(large).run("tell me", conversation=Conversation(conversation_id="c"))
        await store.save(result, scope="me")
        assert texts(await store.load("c", scope="me")) == ["tell me", large]
        assert await store.load("c", scope="you") is None
        assert await store.list_conversations(scope="you") == []

    asyncio.run(run())


WORKFLOW = """
    import asyncio, os, signal, sys
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from holdfast.adapters.pydantic_ai import HoldfastConversationStore

    place, step = sys.argv[1:3]

    def answer(messages, info):
        with open("asked", "a") as file:
            file.write(step + "\\n")
        if step == "first":
            return ModelResponse(parts=[ToolCallPart("deploy", {"target": "prod"}, tool_call_id="call-1")])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def deploy(target: str) -> str:
        with open("deployed", "a") as file:
            file.write(target + "\\n")
        return f"deployed to {target}"

    async def main():
        async with HoldfastConversationStore.open(place) as store:
            if step == "first":
                result = await agent.run("deploy it", conversation=Conversation(conversation_id="c"))
                await store.save(result)
                os.kill(os.getpid(), signal.SIGKILL)
            conversation = await store.load("c")
            asked = conversation.deferred_tool_requests.approvals
            answers = DeferredToolResults(approvals={call.tool_call_id: True for call in asked})
            result = await agent.run(conversation=conversation, deferred_tool_results=answers)
            await store.save(result)
            print(result.output)

    asyncio.run(main())
"""


def test_an_agent_that_waits_for_approval_is_killed_and_resumed(program):
    program.write(WORKFLOW)
    program.run_killed("first")
    assert not (program.folder / "deployed").exists()
    assert program.run("resume").strip() == "done"
    assert (program.folder / "deployed").read_text() == "prod\n"
    assert (program.folder / "asked").read_text() == "first\nresume\n"


def test_a_fork_takes_the_other_answer_and_is_compared(hf):
    async def run():
        store = HoldfastConversationStore(hf)
        agent = scripted(ToolCallPart("deploy", {"target": "prod"}, tool_call_id="call-1"), "shipped", "held back")

        @agent.tool_plain(requires_approval=True)
        def deploy(target: str) -> str:
            return f"deployed to {target}"

        result = await agent.run("deploy it", conversation=Conversation(conversation_id="one"))
        await store.save(result)
        forked = await store.fork("one")
        for conversation_id, answer in (("one", True), (forked.conversation_id, ToolDenied("not today"))):
            conversation = await store.load(conversation_id)
            answers = DeferredToolResults(approvals={"call-1": answer})
            result = await agent.run(conversation=conversation, deferred_tool_results=answers)
            await store.save(result)
        one, other = await store.load_entries("one"), await store.load_entries(forked.conversation_id)
        shared = [entry.id for entry in one if entry.id in {entry.id for entry in other}]
        assert len(shared) == 2
        assert "deployed to prod" in str(one[2].message)
        assert "not today" in str(other[2].message)

    asyncio.run(run())
