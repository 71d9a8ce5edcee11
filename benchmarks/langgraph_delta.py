"""LangGraph's DeltaChannel on SQLite: the writes of each step, a snapshot every 100.

Both parts of the state are delta channels, the cheapest set-up a user can choose. The saver is called as LangGraph's
loop calls it (`put_writes`, then `put`), without the graph's own cost.
"""

from __future__ import annotations

import sqlite3
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.conversation import Conversation, Step

SNAPSHOT_EVERY = 100
CONFIG = {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}


class LangGraphDelta:
    """The writes that lead to a checkpoint hang on its parent; then the checkpoint itself."""

    def __init__(self, folder: Path, conversation: Conversation) -> None:
        self._connection = sqlite3.connect(str(folder / "langgraph.db"), check_same_thread=False)
        self._saver = SqliteSaver(self._connection)
        self._saver.setup()
        initial = {"messages": [], "context": conversation.initial_context}
        values = {channel: _DeltaSnapshot(value) for channel, value in initial.items()}
        versions = {channel: _version(0) for channel in values}
        metadata: Any = {"source": "input", "step": -1, "parents": {}}
        self._config = self._saver.put(CONFIG, _checkpoint(0, values, versions), metadata, versions)
        self._updates = dict.fromkeys(values, 0)

    def step(self, step: Step, state: dict[str, Any]) -> None:
        """Save one step's writes and its checkpoint."""
        writes: list[tuple[str, Any]] = [("messages", [step.message])]
        if step.change:
            writes.append(("context", step.change))
        self._saver.put_writes(self._config, writes, str(uuid.uuid4()), "~__pregel_pull, agent")
        values: dict[str, Any] = {}
        for channel, _ in writes:
            self._updates[channel] += 1
            if self._updates[channel] == SNAPSHOT_EVERY:
                self._updates[channel] = 0
                values[channel] = _DeltaSnapshot(state[channel])
        versions = {channel: _version(step.number + 1) for channel in state}
        metadata: Any = {"source": "loop", "step": step.number, "parents": {}}
        metadata["counters_since_delta_snapshot"] = {name: (count, count) for name, count in self._updates.items()}
        checkpoint = _checkpoint(step.number, values, versions)
        self._config = self._saver.put(self._config, checkpoint, metadata, versions)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def _version(number: int) -> str:
    return f"{number:032}.{0.5:016}"


def _checkpoint(number: int, values: dict[str, Any], versions: dict[str, str]) -> Any:
    """Return a checkpoint as LangGraph's own loop builds it."""
    return {
        "v": 4,
        "ts": datetime.now(UTC).isoformat(),
        "id": str(uuid6(clock_seq=number)),
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"agent": dict(versions)},
        "updated_channels": sorted(versions),
    }
