"""The stores under measurement, one file each, all behind one protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.conversation import Conversation, State
    from benchmarks.laps import Laps

FLOOR = "floor"
HOLDFAST = "holdfast"

_CLASSES = {
    FLOOR: "floor:Floor",
    HOLDFAST: "holdfast:Holdfast",
    "langgraph-delta": "langgraph_delta:LangGraphDelta",
    "langgraph-sqlite": "langgraph_sqlite:LangGraphSqlite",
    "dbos-sqlite": "dbos_sqlite:DbosSqlite",
}
NAMES = tuple(_CLASSES)


class Subject(Protocol):
    """One store, opened in a directory of its own, that holds one conversation."""

    keeps_context: ClassVar[bool]

    def __init__(self, directory: Path) -> None:
        """Open the store, making it if it is not there."""

    def save(self, conversation: Conversation, laps: Laps) -> str:
        """Save every step inside a lap; return the key of the middle one."""

    def latest(self) -> State:
        """Load the newest state."""

    def load(self, key: str) -> State:
        """Load the state that `save` named."""

    def list_newest(self, limit: int) -> int:
        """List the newest checkpoints as the store's users do; return how many came."""

    def delete(self) -> None:
        """Delete the conversation with all its checkpoints."""

    def close(self) -> None:
        """Close the store."""


def subject_class(name: str) -> type[Subject]:
    """Return a subject's class; importing it here is what tells whether it is installed."""
    module, _, attribute = _CLASSES[name].partition(":")
    return cast("type[Subject]", getattr(import_module(f"{__name__}.{module}"), attribute))
