"""The examples, killed at any moment and started again until they are done, come to the end of an unbroken run."""

from __future__ import annotations

import signal
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from crash.children import TORTURE, scratch
from holdfast.runtime import gates
from holdfast.runtime.gates import GatedTask
from recovery.killed import EXAMPLES, Example, broken, end_of, last_records, unbroken

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.checkpoint import Checkpoint

KILLS = 100 if TORTURE else 12
INTERRUPTS = 40 if TORTURE else 4


def _finished_steps(head: Checkpoint) -> set[str]:
    return {name for name, record in last_records(head).items() if record["event"] == "done"}


def _finished_calls(head: Checkpoint) -> set[str]:
    return {
        f"{agent.id} {task.input['about']}"
        for agent in (head.section("agents") if "agents" in head.sections else ())
        for task in agent.tasks.values()
        if task.status == "completed"
    }


def _finished_tasks(head: Checkpoint) -> set[str]:
    tasks = head.section("graph").tasks if "graph" in head.sections else {}
    return {name for name, task in tasks.items() if task.status == "completed"} | _finished_steps(head)


def _finished_stages(head: Checkpoint) -> set[str]:
    """Return the drafts that were written and the gates that gave their verdict on them."""
    if "gates" not in head.sections:
        return set()
    state = head.section("gates").tasks["add-slug"]
    drafts = {f"draft {number}" for number in range(state.fix_attempt + 1)} if state.coder_result else set()
    earlier = {f"gate {fix.failure.level} after fix {fix.attempt - 1}" for fix in state.fixes}
    now = {f"gate {gate.level} after fix {state.fix_attempt}" for gate in state.gate_results}
    return drafts | earlier | now


def _write_gates_down(directory: Path) -> None:
    """Let each gate that runs leave a line in the example's log."""
    check, run_gate, fixes = GatedTask._check, gates.run_gate, [0]

    def checked(task, gate, number, before):
        fixes[0] = number
        return check(task, gate, number, before)

    def written(gate, host):
        with (directory / "calls.log").open("a") as log:
            log.write(f"gate {gate.level} after fix {fixes[0]}\n")
        return run_gate(gate, host)

    GatedTask._check, gates.run_gate = checked, written


EPISODE = Example("episode", "episode-42", _finished_steps, ("--auto",))
DEBATE = Example("debate", "debate", _finished_calls)
GRAPH = Example("task_graph", "release", _finished_tasks)
GATED = Example("gated_task", "add-slug", _finished_stages, before=_write_gates_down)
ALL = [EPISODE, DEBATE, GRAPH, GATED]


@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
def test_an_example_killed_at_any_moment_comes_to_the_same_end_and_does_nothing_finished_again(example):
    """Proves D8, C12, C17, E6, B8: killed at commits and between them, over and over."""
    deaths, inside = ended_again_and_again(example, KILLS, [signal.SIGKILL])
    assert inside >= deaths // 3  # the lots fell where they hurt


@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
def test_an_example_interrupted_at_any_moment_does_so_too(example):
    """Proves C10: Ctrl+C and the end of a session."""
    ended_again_and_again(example, INTERRUPTS, [signal.SIGINT, signal.SIGTERM])


def _retries_of(end):
    spending = end["sections"].get("budget", {}).get("spending", {})
    return spending["retries"]["used"] if "retries" in spending else 0


def _without_retries(end):
    budget = end["sections"].get("budget")
    if budget is None:
        return end
    spending = {name: one for name, one in budget["spending"].items() if name != "retries"}
    return {**end, "sections": {**end["sections"], "budget": {**budget, "spending": spending}}}


def ended_again_and_again(example, number, by):
    """Check every run that it takes to end so many lives; return how many there were, and how many ended inside."""
    pace = unbroken(example)
    chance = Random(f"{example.name} {number}")
    ended = inside = 0
    while ended < number:
        deaths, last, end = broken(example, chance, pace, by=by)
        # A retry counts before it begins, so one that was killed is counted, and so is the one after it.
        assert 0 <= _retries_of(end) - _retries_of(pace.end) <= len(deaths)
        assert _without_retries(end) == _without_retries(pace.end)
        for death in deaths:
            again = {line: last.calls[line] for line in death.finished if last.calls[line] != death.calls[line]}
            assert not again, f"finished before it was killed, and done again: {again}"
        for line, count in last.calls.items():
            interrupted = sum(line in death.calls and line not in death.finished for death in deaths)
            assert count <= pace.calls[line] * (1 + interrupted)
        ended += len(deaths)
        inside += sum(0 < len(death.finished) < len(last.finished) for death in deaths)
    return ended, inside


@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
def test_an_example_runs_by_itself_and_again_does_nothing(example):
    with scratch() as directory:
        command = [sys.executable, str(EXAMPLES / f"{example.name}.py"), str(directory), *example.arguments]
        subprocess.run(command, check=True, capture_output=True)
        calls = (directory / "calls.log").read_bytes()
        end = end_of(example, directory)
        subprocess.run(command, check=True, capture_output=True)
        assert (directory / "calls.log").read_bytes() == calls
        assert end_of(example, directory) == end
