"""An episode: perceive, plan, act, observe, round after round, within five budgets.

    python examples/episode.py DIRECTORY [--auto]

A robot puts boxes on a shelf. Its tokens do not suffice: there the episode stops, until somebody has raised
the limit; with --auto the script does that itself, as another process would. Kill it whenever you like and start it
again: it continues where it was, and no finished call is made, or paid for, twice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast

RUN = "episode-42"
BOXES = ["anvil", "books", "clock", "drums", "easel", "flute"]
NEXT = {"perceive": ["plan"], "plan": ["act"], "act": ["observe"], "observe": ["perceive", "COMPLETE"]}
COSTS = {
    "perceive": {"tokens": 120, "tool_calls": 1},
    "plan": {"tokens": 700, "subcalls": 1},
    "act": {"tokens": 80, "tool_calls": 1},
    "observe": {"tokens": 60, "tool_calls": 1},
}


class Robot:
    """A scripted agent; each call is written down, as a real one would be paid for."""

    def __init__(self, directory: Path) -> None:
        self.floor, self.shelf, self.calls = directory / "floor", directory / "shelf", directory / "calls.log"

    def set_the_scene(self) -> None:
        """Put all boxes on the floor."""
        for place in (self.floor, self.shelf):
            place.mkdir(parents=True, exist_ok=True)
        for box in BOXES:
            (self.floor / box).touch()

    def call(self, phase: str, loop: int, seen: Any) -> Any:
        """Do a phase, with what the phase before it found."""
        with self.calls.open("a") as log:
            log.write(f"{phase}-{loop}\n")
        return getattr(self, phase)(seen)

    def perceive(self, _seen: Any) -> list[str]:
        """Look what is left on the floor."""
        return sorted(path.name for path in self.floor.iterdir())

    def plan(self, boxes: list[str]) -> str:
        """Choose the next box."""
        return boxes[0]

    def act(self, box: str) -> str:
        """Put a box on the shelf; after a crash this may come a second time, and then finds it there."""
        step = holdfast.current_step()
        if box == "clock" and step is not None and step.attempt == 1:
            raise ConnectionError("the arm does not answer")  # transient, so it is tried again
        if not (self.shelf / box).exists():
            (self.floor / box).rename(self.shelf / box)
        return box

    def observe(self, _box: str) -> list[str]:
        """Look what is left to do."""
        return self.perceive(None)


def play(directory: Path) -> None:
    """Play the episode to its end; RunWaiting if somebody has to raise a budget first."""
    robot = Robot(directory)
    with holdfast.open(directory / ".holdfast") as hf, hf.run(RUN, waiting="leave") as run:
        run.step("set the scene", robot.set_the_scene)
        run.budget.limit(tokens=4000, time_s=600, retries=10, subcalls=20, tool_calls=60)
        machine = run.machine(states=NEXT, transitions=NEXT)
        while not machine.is_final:
            phase, led_here = machine.current, machine.history[-1].trigger  # the step that led here, "" at first
            loop = int(led_here.partition("-")[2] or 0) + (phase == "perceive")
            seen = (run.calls.record(led_here) or {}).get("result")
            name = f"{phase}-{loop}"
            outside: dict[str, Any] = {"effect": "moves a box", "on_unknown": "retry"} if phase == "act" else {}
            found = run.step(name, robot.call, phase, loop, seen, retries=2, backoff=0.01, **outside)
            run.budget.spend(**COSTS[phase], once=name)  # retries count by themselves, before they begin
            run.context.note(loop=loop)
            machine.to("COMPLETE" if phase == "observe" and not found else NEXT[phase][0], trigger=name)
        report(run)
        run.complete(f"{len(BOXES)} boxes are on the shelf")


def report(run: holdfast.Run) -> None:
    """Say what it cost, and what the budgets had to say on the way."""
    for name, one in run.budget.spending.items():
        print(f"  {name:<10} {one.used:>8,.6g} of {one.limit:,}")
    noted = run.holdfast.events(run.id)
    lines = [f"  {one.kind}: {one.what}" for one in noted if one.kind.startswith("budget")]
    print(*dict.fromkeys(lines), sep="\n")


def main(arguments: list[str]) -> int:
    """Play until it is done or waits for somebody; return the exit code."""
    directory, auto = Path(arguments[0]), "--auto" in arguments
    while True:
        try:
            play(directory)
        except holdfast.RunWaiting as waiting:
            print(waiting)
            if not auto:
                return waiting.exit_code
            with holdfast.open(directory / ".holdfast") as hf:  # as another process or machine would
                hf.control.raise_budget(RUN, {"tokens": 3000}, by="ann", note="worth it")
        else:
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
