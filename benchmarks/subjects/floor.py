"""The floor: one SQLite row with just the new message, WAL, synchronous=FULL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import apsw
import msgspec

from benchmarks.conversation import Conversation, State, encode

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.laps import Laps


class Floor:
    """An append-only table: no past context, no verification, nothing but a durable row."""

    keeps_context: ClassVar[bool] = False

    def __init__(self, directory: Path) -> None:
        """Open the database."""
        self._connection = apsw.Connection(str(directory / "floor.db"))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.execute("CREATE TABLE IF NOT EXISTS messages (step INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def save(self, conversation: Conversation, laps: Laps) -> str:
        """Insert each message; a statement outside a transaction is its own commit."""
        insert = "INSERT INTO messages (step, body) VALUES (?, ?)"
        for step in conversation.advance():
            with laps.lap():
                self._connection.execute(insert, (step.number, encode(step.message)))
        return str(len(conversation) // 2)

    def latest(self) -> State:
        """Read every message."""
        return self._messages("SELECT body FROM messages ORDER BY step", ())

    def load(self, key: str) -> State:
        """Read the messages up to a step."""
        return self._messages("SELECT body FROM messages WHERE step < ? ORDER BY step", (int(key),))

    def list_newest(self, limit: int) -> int:
        """Read the newest step numbers."""
        query = "SELECT step FROM messages ORDER BY step DESC LIMIT ?"
        return len(self._connection.execute(query, (limit,)).fetchall())

    def delete(self) -> None:
        """Delete every row."""
        self._connection.execute("DELETE FROM messages")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _messages(self, query: str, bindings: tuple[int, ...]) -> State:
        decoder = msgspec.msgpack.Decoder(dict[str, Any])
        rows = self._connection.execute(query, bindings)
        return {"messages": [decoder.decode(body) for (body,) in rows]}
