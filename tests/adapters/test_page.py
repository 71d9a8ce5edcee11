"""Threads and sessions of frameworks in a real `holdfast ui`: as readable as a run of one's own."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("starlette", reason="the page needs the extra `web`")
pytest.importorskip("uvicorn", reason="the page needs the extra `web`")

import holdfast
from web.ui_kit import page


def said(ui, run, **asked):
    words = "&".join(f"{name}={value}" for name, value in asked.items())
    found = ui.get(f"/api/runs/{run}/messages?{words}")
    return [(one["by"], one["text"]) for one in found["messages"]]


def test_a_langgraph_thread_shows_what_was_said_at_each_checkpoint(tmp_path):
    graphs = pytest.importorskip("langgraph.graph")
    from langchain_core.messages import AIMessage, HumanMessage  # noqa: PLC0415

    from holdfast.adapters.langgraph import HoldfastSaver  # noqa: PLC0415

    with holdfast.open(tmp_path / ".holdfast") as hf:
        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node(
            "model", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])} " + "x" * 300)]}
        )
        graph.add_edge(graphs.START, "model")
        app = graph.compile(checkpointer=HoldfastSaver(hf))
        for number in range(4):
            app.invoke({"messages": [HumanMessage(f"question {number}")]}, {"configurable": {"thread_id": "talk 1"}})
    with page(tmp_path) as ui:
        (run,) = ui.get("/api/runs")["runs"]
        assert run["attributes"] == {"framework": "langgraph", "thread": "talk 1"}
        found = said(ui, run["id"])
        assert [by for by, _ in found] == ["user", "assistant"] * 4
        assert found[0] == ("user", "question 0")
        rows = ui.get(f"/api/runs/{run['id']}/checkpoints")["rows"][::-1]
        counts = [len(said(ui, run["id"], at=row["seq"])) for row in rows]
        assert counts == sorted(counts)
        assert set(counts) == set(range(9))
        early, late = (
            next(row["seq"] for row, n in zip(rows, counts, strict=True) if n == wanted) for wanted in (2, 8)
        )
        told = ui.get(f"/api/compare/messages?a={run['id']}@{early}&b={run['id']}@{late}")
        assert (told["added"], told["removed"], told["kept"]) == (6, 0, 2)
        back = ui.get(f"/api/compare/messages?a={run['id']}@{late}&b={run['id']}@{early}")
        assert (back["added"], back["removed"]) == (0, 6)


def test_a_session_without_checkpoints_shows_its_conversation(tmp_path):
    pytest.importorskip("agents")
    from holdfast.adapters.openai import HoldfastSession  # noqa: PLC0415

    async def talk(session):
        call = {"type": "function_call", "name": "search", "arguments": '{"q": 1}', "call_id": "c"}
        await session.add_items([{"role": "user", "content": "find it"}, call])
        await session.add_items([{"type": "function_call_output", "call_id": "c", "output": "found"}])
        await session.add_items([{"role": "assistant", "content": [{"type": "output_text", "text": "wrong"}]}])
        await session.pop_item()
        await session.add_items([{"role": "assistant", "content": [{"type": "output_text", "text": "here"}]}])

    with holdfast.open(tmp_path / ".holdfast") as hf:
        asyncio.run(talk(HoldfastSession("chat-7", hf)))
    with page(tmp_path) as ui:
        wanted = [("user", "find it"), ("assistant", 'search({"q": 1})'), ("tool", "found"), ("assistant", "here")]
        assert said(ui, "chat-7") == wanted
        assert said(ui, "chat-7", limit=1, offset=1) == wanted[2:3]


def test_a_conversation_of_pydantic_ai_is_shown(tmp_path):
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, Conversation  # noqa: PLC0415
    from pydantic_ai.models.test import TestModel  # noqa: PLC0415

    from holdfast.adapters.pydantic_ai import HoldfastConversationStore  # noqa: PLC0415

    async def talk(store):
        agent = Agent(TestModel(custom_output_text="it is so"))
        await store.save(await agent.run("is it so?", conversation=Conversation(conversation_id="c")))

    with holdfast.open(tmp_path / ".holdfast") as hf:
        asyncio.run(talk(HoldfastConversationStore(hf)))
    with page(tmp_path) as ui:
        (run,) = ui.get("/api/runs")["runs"]
        assert said(ui, run["id"]) == [("user", "is it so?"), ("assistant", "it is so")]


def test_a_claude_session_is_shown(tmp_path):
    pytest.importorskip("claude_agent_sdk")
    from holdfast.adapters.claude import HoldfastSessionStore  # noqa: PLC0415

    entries = [
        {"type": "user", "uuid": "1", "message": {"role": "user", "content": "list the files"}},
        {"type": "custom-title", "customTitle": "files"},
        {"type": "assistant", "uuid": "2", "message": {"role": "assistant", "content": [
            {"type": "text", "text": "I look."}, {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
        ]}},
    ]  # fmt: skip
    with holdfast.open(tmp_path / ".holdfast") as hf:
        asyncio.run(HoldfastSessionStore(hf).append({"project_key": "p", "session_id": "s"}, entries))
    with page(tmp_path) as ui:
        (run,) = ui.get("/api/runs")["runs"]
        assert said(ui, run["id"]) == [("user", "list the files"), ("assistant", 'I look.\nBash({"command": "ls"})')]
