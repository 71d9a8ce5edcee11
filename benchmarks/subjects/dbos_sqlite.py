"""DBOS on SQLite: one workflow, one step a message, with its default settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from dbos import DBOS, SetWorkflowID

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.conversation import Conversation, State
    from benchmarks.laps import Laps

WORKFLOW = "conversation"


class DbosSqlite:
    """The results of steps are all that DBOS keeps: the messages, not the context."""

    keeps_context: ClassVar[bool] = False

    def __init__(self, directory: Path) -> None:
        """Start DBOS on the database."""
        DBOS(
            config={
                "name": "conversation",
                "system_database_url": f"sqlite:///{directory / 'dbos.db'}",
                "application_version": "1",
                "log_level": "WARNING",
            }
        )
        DBOS.launch()

    def save(self, conversation: Conversation, laps: Laps) -> str:
        """Run the workflow in this thread."""

        def say(message: dict[str, Any]) -> dict[str, Any]:
            return message

        @DBOS.workflow()
        def converse() -> None:
            for step in conversation.advance():
                with laps.lap():
                    DBOS.run_step({"name": "say"}, say, step.message)

        with SetWorkflowID(WORKFLOW):
            converse()
        return str(len(conversation) // 2)

    def latest(self) -> State:
        """Load the results of all steps."""
        return self._messages(None)

    def load(self, key: str) -> State:
        """Load the results of the first steps."""
        return self._messages(int(key))

    def list_newest(self, limit: int) -> int:
        """List steps without results; oldest first is the only order there is."""
        return len(DBOS.list_workflow_steps(WORKFLOW, load_output=False, limit=limit))

    def delete(self) -> None:
        """Delete the workflow."""
        DBOS.delete_workflow(WORKFLOW)

    def close(self) -> None:
        """Stop DBOS."""
        DBOS.destroy()

    def _messages(self, limit: int | None) -> State:
        steps = DBOS.list_workflow_steps(WORKFLOW, limit=limit)
        return {"messages": [step["output"] for step in steps]}
