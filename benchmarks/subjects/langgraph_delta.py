"""LangGraph's DeltaChannel on SQLite: the writes of each step, a snapshot every 100.

Both parts of the state are delta channels, the cheapest set-up a user can choose. The saver
is called as LangGraph's loop calls it (`put_writes`, then `put`), without the graph's own
cost; loading goes through a real graph, which proves that what was written is what it reads.
"""

from __future__ import annotations

import sqlite3
import uuid
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.subjects.langgraph_sqlite import THREAD, Versions, new_checkpoint, thread_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.conversation import Conversation, State
    from benchmarks.laps import Laps

SNAPSHOT_EVERY = 100


def _append(messages: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*messages, *(message for write in writes for message in write)]


def _merge(context: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(context)
    for write in writes:
        merged.update(write)
    return merged


class _Channels(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_append, snapshot_frequency=SNAPSHOT_EVERY)]
    context: Annotated[dict[str, Any], DeltaChannel(_merge, snapshot_frequency=SNAPSHOT_EVERY)]


class LangGraphDelta:
    """The writes that lead to a checkpoint hang on its parent; then the checkpoint itself."""

    keeps_context: ClassVar[bool] = True

    def __init__(self, directory: Path) -> None:
        """Open the database and compile the graph that reads it."""
        self._connection = sqlite3.connect(str(directory / "langgraph.db"), check_same_thread=False)
        self._saver = SqliteSaver(self._connection)
        self._saver.setup()
        builder = StateGraph(_Channels)
        builder.add_node("agent", lambda _state: {})
        builder.add_edge(START, "agent")
        builder.add_edge("agent", END)
        self._graph = builder.compile(checkpointer=self._saver)

    def save(self, conversation: Conversation, laps: Laps) -> str:
        """Save each step's writes and its checkpoint."""
        config = self._put_root(conversation)
        self._updates = dict.fromkeys(conversation.state, 0)
        middle = ""
        for step in conversation.advance():
            with laps.lap():
                writes: list[tuple[str, Any]] = [("messages", [step.message])]
                if step.change:
                    writes.append(("context", step.change))
                self._saver.put_writes(config, writes, str(uuid.uuid4()), "~__pregel_pull, agent")
                config = self._put(config, step.number, conversation.state, dict(writes))
            if step.number + 1 == len(conversation) // 2:
                middle = config["configurable"]["checkpoint_id"]
        return middle

    def latest(self) -> State:
        """Have the graph rebuild the newest state."""
        return dict(self._graph.get_state(thread_config()).values)

    def load(self, key: str) -> State:
        """Have the graph rebuild the state of one checkpoint."""
        return dict(self._graph.get_state(thread_config(key)).values)

    def list_newest(self, limit: int) -> int:
        """List tuples, which leaves the delta channels out; with them it is a rebuild for each."""
        return len(list(self._saver.list(thread_config(), limit=limit)))

    def delete(self) -> None:
        """Delete the thread."""
        self._saver.delete_thread(THREAD)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _put_root(self, conversation: Conversation) -> Any:
        initial: State = {"messages": [], "context": conversation.initial_context}
        values = {channel: _DeltaSnapshot(value) for channel, value in initial.items()}
        versions: Versions = {channel: _version(0) for channel in values}
        metadata: Any = {"source": "input", "step": -1, "parents": {}}
        checkpoint = new_checkpoint(0, values, versions)
        return self._saver.put(thread_config(), checkpoint, metadata, versions)

    def _put(self, config: Any, number: int, state: State, writes: dict[str, Any]) -> Any:
        values: dict[str, Any] = {}
        for channel in writes:
            self._updates[channel] += 1
            if self._updates[channel] == SNAPSHOT_EVERY:
                self._updates[channel] = 0
                values[channel] = _DeltaSnapshot(state[channel])
        versions: Versions = {channel: _version(number + 1) for channel in state}
        counters = {channel: (count, count) for channel, count in self._updates.items() if count}
        metadata: Any = {"source": "loop", "step": number, "parents": {}}
        metadata["counters_since_delta_snapshot"] = counters
        return self._saver.put(config, new_checkpoint(number, values, versions), metadata, versions)


def _version(number: int) -> str:
    return f"{number:032}.{0.5:016}"
