"""What the agents of an issue have to say to each other, and what is known before and after.

Each function is a task of the flow. It may be cut short and called again: messages have keys, a conflict continues
in its round, knowledge is kept once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import Holdfast, Run
    from holdfast.flow.actions import TaskCall
    from holdfast.model.sections import KnowledgeEntry
    from holdfast.runtime.conflicts import Conflict

KNOWN = Path("knowledge.jsonl")


def talks(hf: Holdfast) -> dict[str, Callable[[TaskCall], Any]]:
    """Return the functions that the flow names, for the runs of a store."""

    def of_run(talk: Callable[[Run], Any]) -> Callable[[TaskCall], Any]:
        def call(asked: TaskCall) -> Any:
            run = hf.internals.open_run(asked.run)
            assert run is not None
            return talk(run)

        return call

    return {f"talks:{talk.__name__}": of_run(talk) for talk in (recall, questions, answers, agreement, learn)}


def recall(run: Run) -> str:
    """Tell the run what is known from earlier issues."""
    run.knowledge.inject("sessions live in memory", id="KE-7", kind="decision", source="issue 31")
    return "1 entry"


def questions(run: Run) -> str:
    """Let the coder ask the architect something."""
    run.mailbox.send("orchestrator", "writer", "Docs are due after validation.", key="heads-up")
    return run.mailbox.send("coder", "architect", "How long does a token live?", expects_answer=True, key="lifetime")


def answers(run: Run) -> str:
    """Let the architect answer what it was asked, and the coder hear it."""
    while (message := run.mailbox.receive("architect")) is not None:
        run.mailbox.answer(message, speak(run, "architect", f"answer {message.id}"))
    asked = (run.calls.record("ready/questions") or {})["result"]["result"]
    return f"a token lives {run.mailbox.await_answer(asked)}"


def agreement(run: Run) -> str:
    """Let coder and tester settle what happens after five wrong tries."""

    def said(agent: str, conflict: Conflict) -> str:
        return speak(run, agent, f"position {conflict.round}")

    def settled(conflict: Conflict) -> str | None:
        held = set(conflict.positions.values())
        return held.pop() if len(held) == 1 else None

    conflict = run.mailbox.conflicts.start("lock-out", ["coder", "tester"], "What after five wrong tries?")
    agreed: str = conflict.debate(said, settled, by="orchestrator")
    run.context.decide(agreed, "coder and tester agreed on it")
    return agreed


def learn(run: Run) -> str:
    """Hand on what was learned; the writer reads its message first."""
    with run.mailbox.reading("writer"):
        pass
    run.knowledge.capture("refresh tokens need a clock that never jumps", id="KE-42a", kind="lesson")
    run.knowledge.capture("five wrong tries lock the login for a minute", id="KE-42b", kind="decision")
    run.knowledge.flush(_write_down)
    return f"{len(run.knowledge.captured)} entries"


def speak(run: Run, agent: str, task: str) -> str:
    """Return what an agent says; it is called once, in whatever process."""
    script = Command(f"sh agents/{agent}.sh {task}", cwd=run.workspace.path)
    said = run.agents.call(agent, {"task": task}, task=task, using=script)
    return str(said["result"] if isinstance(said, dict) else said).strip()


def _write_down(entry: KnowledgeEntry) -> None:
    known = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    if not any(json.loads(line)["id"] == entry.id for line in known):  # it may come again after a crash
        with KNOWN.open("a") as file:
            file.write(json.dumps({"id": entry.id, "content": entry.content}) + "\n")
