"""LangGraph's SqliteSaver: the full state in a raw `put` at every step."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.conversation import Conversation, State
    from benchmarks.laps import Laps

THREAD = "conversation"
Versions = dict[str, str | int | float]


class LangGraphSqlite:
    """What a graph with plain channels writes, without the graph's own cost."""

    keeps_context: ClassVar[bool] = True

    def __init__(self, directory: Path) -> None:
        """Open the database the way the saver's `from_conn_string` does."""
        self._connection = sqlite3.connect(str(directory / "langgraph.db"), check_same_thread=False)
        self._saver = SqliteSaver(self._connection)
        self._saver.setup()

    def save(self, conversation: Conversation, laps: Laps) -> str:
        """Put each state as a child of the one before."""
        config = thread_config()
        versions: Versions = {"messages": 0, "context": 0}
        middle = ""
        for step in conversation.advance():
            with laps.lap():
                versions = dict.fromkeys(versions, step.number + 1)
                checkpoint = new_checkpoint(step.number, conversation.state, versions)
                metadata: Any = {"source": "loop", "step": step.number, "parents": {}}
                config = self._saver.put(config, checkpoint, metadata, versions)
            if step.number + 1 == len(conversation) // 2:
                middle = checkpoint["id"]
        return middle

    def latest(self) -> State:
        """Load the newest tuple."""
        return self._values(thread_config())

    def load(self, key: str) -> State:
        """Load one tuple."""
        return self._values(thread_config(key))

    def list_newest(self, limit: int) -> int:
        """List tuples."""
        return len(list(self._saver.list(thread_config(), limit=limit)))

    def delete(self) -> None:
        """Delete the thread."""
        self._saver.delete_thread(THREAD)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _values(self, config: Any) -> State:
        found = self._saver.get_tuple(config)
        if found is None:
            raise LookupError(config)
        return found.checkpoint["channel_values"]


def thread_config(checkpoint_id: str | None = None) -> Any:
    """Return the address of the thread, or of one of its checkpoints."""
    address = {"thread_id": THREAD, "checkpoint_ns": ""}
    if checkpoint_id is not None:
        address["checkpoint_id"] = checkpoint_id
    return {"configurable": address}


def new_checkpoint(number: int, values: dict[str, Any], versions: Versions) -> Any:
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
