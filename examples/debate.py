"""Two agents that talk, disagree, and come to a resolution.

    python examples/debate.py DIRECTORY

The author asks the reviewer about a design, point by point. On one point they differ: that is a conflict, which has a
start, positions in rounds, and a resolution. Kill it whenever you like and start it again: each message is dealt with
once, no answer is lost, and the conflict continues in the round where it stood.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast

if TYPE_CHECKING:
    from holdfast.runtime.conflicts import Conflict

POINTS = ["one writer for each run", "names without abbreviations", "keep everything for ever", "check every byte read"]
OFFERS = {
    "author": [0, 365, 90, 30],
    "reviewer": [7, 7, 14, 30],
}  # days to keep, round by round; 0 is for ever


class Agent:
    """A scripted agent; each call is written down, as a real one would be paid for."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.calls = directory / "calls.log"

    def __call__(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Give an opinion on a point, or a position in a round of a conflict."""
        with self.calls.open("a") as log:
            log.write(f"{self.name} {asked['about']}\n")
        if "round" in asked:
            return {"days": OFFERS[self.name][asked["round"] - 1]}
        return {"agrees": "for ever" not in asked["about"]}


def debate(run: holdfast.Run, directory: Path) -> None:
    """Ask about every point, and settle the one on which they differ."""
    for name in OFFERS:
        run.team.add(name, role=name)
        run.mailbox.join(name)  # a message to anybody else is an error
        run.agents.register(name, Agent(name, directory))
    run.agents.team = run.team  # who has done what is kept in step with the calls

    asked = [
        run.mailbox.send("author", "reviewer", {"about": point}, expects_answer=True, key=point) for point in POINTS
    ]
    while (message := run.mailbox.receive("reviewer")) is not None:
        run.mailbox.answer(message, run.agents.call("reviewer", message.body, task=message.id))

    for question, point in zip(asked, POINTS, strict=True):
        if not run.mailbox.await_answer(question)["agrees"]:
            settle(run, point)


def settle(run: holdfast.Run, point: str) -> None:
    """Let both speak in turn until their positions meet."""

    def speak(agent: str, conflict: Conflict) -> Any:
        asked = {"about": f"{point}, round {conflict.round}", "round": conflict.round, "said": conflict.positions}
        return run.agents.call(agent, asked, task=f"{point}, round {conflict.round}")

    def agreed(conflict: Conflict) -> Any:
        author, reviewer = (conflict.positions[name] for name in conflict.record.agents)
        return author if author == reviewer else None

    conflict = run.mailbox.conflicts.start(point, list(OFFERS), "How long do we keep checkpoints?")
    resolution = conflict.debate(speak, agreed, by="author and reviewer")
    run.context.decide(f"keep checkpoints for {resolution['days']} days", f"agreed in round {conflict.round}")
    run.knowledge.capture(f"{point}: {resolution['days']} days", kind="decision")


def main(arguments: list[str]) -> int:
    """Hold the debate to its end; return the exit code."""
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    with holdfast.open(directory / ".holdfast") as hf, hf.run("debate") as run:
        debate(run, directory)
        for decision in run.context.decisions:
            print(f"{decision.decision} ({decision.rationale})")
        for member in run.team.members:
            print(f"  {member.agent}: {member.tasks_completed} tasks done, {member.tasks_pending} pending")
        run.complete()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
