"""Holdfast through its public door, with its defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

import holdfast

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.conversation import Conversation, State
    from benchmarks.laps import Laps

RUN = "conversation"


class Holdfast:
    """The full state handed over at every step."""

    keeps_context: ClassVar[bool] = True

    def __init__(self, directory: Path) -> None:
        """Open the store."""
        self._holdfast = holdfast.open(str(directory / "store"))

    def save(self, conversation: Conversation, laps: Laps) -> str:
        """Checkpoint each step."""
        run = self._holdfast.run(RUN)
        middle = ""
        for step in conversation.advance():
            with laps.lap():
                checkpoint = run.checkpoint(trigger="manual", reason=f"step {step.number}", state=conversation.state)
            if step.number + 1 == len(conversation) // 2:
                middle = str(checkpoint.id)
        return middle

    def latest(self) -> State:
        """Load the newest state."""
        return cast("State", self._holdfast.latest(RUN).section("state"))

    def load(self, key: str) -> State:
        """Load the state of one checkpoint."""
        return cast("State", self._holdfast.get(key).section("state"))

    def list_newest(self, limit: int) -> int:
        """List checkpoints."""
        return len(list(self._holdfast.checkpoints(RUN, limit=limit)))

    def delete(self) -> None:
        """Delete the run."""
        self._holdfast.delete_run(RUN)

    def close(self) -> None:
        """Close the store."""
        self._holdfast.close()
