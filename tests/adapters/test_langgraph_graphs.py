"""Real LangGraph graphs on a Holdfast store: killed, resumed, forked, with files."""

from __future__ import annotations

import asyncio
import json
import operator
from typing import Annotated, TypedDict

import pytest

pytest.importorskip("langgraph.graph")

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from holdfast.adapters.langgraph import HoldfastSaver

CONFIG = {"configurable": {"thread_id": "thread"}}

KILLED = """
    import os, signal, sys
    from typing import Annotated, TypedDict
    import operator
    from langgraph.graph import END, START, StateGraph
    from holdfast.adapters.langgraph import HoldfastSaver

    class State(TypedDict):
        done: Annotated[list[str], operator.add]

    def note(name):
        with open("calls", "a") as file:
            file.write(name + "\\n")

    def quick(state):
        note("quick")
        return {"done": ["quick"]}

    def slow(state):
        note("slow")
        if sys.argv[2] == "kill":
            import time
            deadline = time.monotonic() + 60
            with HoldfastSaver.open(sys.argv[1], read_only=True) as reader:
                while time.monotonic() < deadline:  # until the sibling's writes are durable
                    found = reader.get_tuple({"configurable": {"thread_id": "thread"}})
                    if found and any(write[1:] == ("done", ["quick"]) for write in found.pending_writes):
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(0.01)
            raise SystemExit("the writes of the finished task never became durable")
        return {"done": ["slow"]}

    graph = StateGraph(State)
    graph.add_node("quick", quick)
    graph.add_node("slow", slow)
    graph.add_edge(START, "quick")
    graph.add_edge(START, "slow")
    graph.add_edge("quick", END)
    graph.add_edge("slow", END)
    with HoldfastSaver.open(sys.argv[1]) as saver:
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "thread"}}
        start = {"done": []} if app.get_state(config).next == () else None
        print(app.invoke(start, config)["done"])
"""


def test_a_graph_killed_in_the_middle_of_a_superstep_keeps_what_its_finished_tasks_wrote(program):
    """Proves X6."""
    program.write(KILLED)
    program.run_killed("kill")
    assert sorted((program.folder / "calls").read_text().split()) == ["quick", "slow"]
    assert program.run("resume").strip() == "['quick', 'slow']"
    assert sorted((program.folder / "calls").read_text().split()) == ["quick", "slow", "slow"]


class Count(TypedDict):
    total: Annotated[int, operator.add]


def counting():
    graph = StateGraph(Count)
    graph.add_node("one", lambda _state: {"total": 1})
    graph.add_node("ask", lambda state: {"total": interrupt({"so far": state["total"]})})
    graph.add_edge(START, "one")
    graph.add_edge("one", "ask")
    graph.add_edge("ask", END)
    return graph


def test_a_graph_waits_for_a_person_and_goes_on_in_another_process(hf):
    first = counting().compile(checkpointer=HoldfastSaver(hf))
    assert first.invoke({"total": 0}, CONFIG)["__interrupt__"][0].value == {"so far": 1}
    second = counting().compile(checkpointer=HoldfastSaver(hf))
    assert second.invoke(Command(resume=41), CONFIG) == {"total": 42}


def test_a_thread_is_forked_at_an_earlier_checkpoint(hf):
    app = counting().compile(checkpointer=HoldfastSaver(hf))
    app.invoke({"total": 0}, CONFIG)
    app.invoke(Command(resume=1), CONFIG)
    asked = next(state for state in app.get_state_history(CONFIG) if state.next == ("ask",))
    forked = app.update_state(asked.config, {"total": 100})
    assert app.get_state(forked).values == {"total": 101}
    assert app.get_state(asked.config).values == {"total": 1}
    assert len({state.config["configurable"]["checkpoint_id"] for state in app.get_state_history(CONFIG)}) == 5


def test_an_asynchronous_graph_keeps_the_same(place):
    async def run():
        graph = StateGraph(MessagesState)

        async def answer(state):
            return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        async with HoldfastSaver.open(place) as saver:
            app = graph.compile(checkpointer=saver)
            for text in ("one", "two"):
                await app.ainvoke({"messages": [HumanMessage(text)]}, CONFIG)
            history = [state async for state in app.aget_state_history(CONFIG)]
            await saver.acopy_thread("thread", "copy")
            copied = await app.aget_state({"configurable": {"thread_id": "copy"}})
            await saver.adelete_thread("thread")
            assert (await app.aget_state(CONFIG)).values == {}
        return history, copied

    history, copied = asyncio.run(run())
    assert [message.content for message in copied.values["messages"]] == ["one", "answer 1", "two", "answer 3"]
    assert len(history) == 6


def test_a_subgraph_has_a_line_of_its_own(hf):
    inner = StateGraph(Count)
    inner.add_node("add", lambda _state: {"total": interrupt("how many")})
    inner.add_edge(START, "add")
    outer = StateGraph(Count)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    app = outer.compile(checkpointer=HoldfastSaver(hf))
    app.invoke({"total": 1}, CONFIG)
    assert len(hf.store.line_names("thread")) == 2
    assert app.invoke(Command(resume=2), CONFIG)["total"] >= 3


def test_files_of_the_workspace_are_part_of_the_same_checkpoint(hf, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    graph = StateGraph(Count)

    def write(state):
        (folder / "notes.txt").write_text(f"version {state['total'] + 1}")
        return {"total": 1}

    graph.add_node("first", write)
    graph.add_node("second", write)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    saver = HoldfastSaver(hf)
    app = graph.compile(checkpointer=saver)
    asked = {"configurable": {"thread_id": "thread", "holdfast_workspace": str(folder)}}
    app.invoke({"total": 0}, asked, durability="sync")  # else the next step runs while files are captured
    before = next(state for state in app.get_state_history(CONFIG) if state.next == ("second",))
    kept = saver.checkpoint_of(before.config)
    run = hf.run("thread", workspace=folder)
    run.workspace.restore(run.workspace.plan(kept))
    assert (folder / "notes.txt").read_text() == "version 1"
    assert app.get_state(CONFIG).values == {"total": 2}  # what the restore saved is none of LangGraph's checkpoints
    app.invoke(None, {"configurable": {**before.config["configurable"], "holdfast_workspace": str(folder)}})
    assert (folder / "notes.txt").read_text() == "version 2"
    assert json.dumps(app.get_state(CONFIG).values) == '{"total": 2}'
