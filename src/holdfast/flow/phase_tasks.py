"""The tasks of one phase: alone, or as a graph in which each waits for those it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.flow.quiet import Quiet
from holdfast.model import sections
from holdfast.runtime.graphs import Graphs
from holdfast.runtime.leaving import is_leaving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.flow.facts import Facts
    from holdfast.flow.model import Phase, Task
    from holdfast.flow.tasks import Tasks
    from holdfast.flow.voice import Voice
    from holdfast.run import Run
    from holdfast.runtime.graph import TaskGraph

_LONGEST_FAILURE = 4000
_GRAPH_LAG_S = 1.0


class PhaseFailed(HoldfastError):
    """A phase did not come to its end."""

    def __init__(self, phase: str, detail: str) -> None:
        self.phase = phase
        self.detail = detail
        super().__init__()

    def sentence(self) -> str:
        """Say why."""
        return f"phase {self.phase}: {self.detail}"


class PhaseTasks:
    """Carries out the tasks of phases, one phase at a time."""

    def __init__(self, run: Run, tasks: Tasks, voice: Voice) -> None:
        self._run = run
        self._tasks = tasks
        self._voice = voice
        self._graphs = run.attach("graph", Graphs(Quiet(run), lag_s=_GRAPH_LAG_S))
        self._filled: set[str] = set()

    def do(self, name: str, phase: Phase, facts: Facts) -> dict[str, dict[str, Any]]:
        """Return what each task came to; PhaseFailed if one did not come to its end."""
        work = phase.work(name)
        if not work:
            return {}
        if len(work) > 1:
            return self._do_graph(name, phase, facts)
        ((task, definition),) = work.items()
        try:
            return {task: self._tasks.carry_out(name, task, definition, facts)}
        except Exception as error:
            raise failure_of_tasks(name, {task: error}) from error

    def _do_graph(self, name: str, phase: Phase, facts: Facts) -> dict[str, dict[str, Any]]:
        graph = self._graph(name, phase)
        if name not in self._filled:
            self._filled.add(name)
            for task, definition in phase.tasks.items():
                graph.add(task, _Node(self._tasks, name, task, definition, facts), needs=definition.needs)
        result = graph.run(limit=phase.parallel)
        if not result.is_whole:
            raise failure_of_tasks(name, {task: result.errors[task] for task in result.failed}, result.blocked)
        return {task: self._result(name, task) for task in phase.tasks}

    def _graph(self, name: str, phase: Phase) -> TaskGraph:
        """Return the graph of a phase; a task counts as done there if its step of this round is."""
        graph = self._graphs.graph(name)
        known = graph.snapshot()
        done = {
            task: node
            for task, node in known.tasks.items()
            if task in phase.tasks and node.status in ("completed", "skipped") and self._is_settled(name, task)
        }
        for task in done:
            self._voice("task_kept", phase=name, task=task)
        batches = known.completed_batches if done else []
        graph.restore(sections.Graph(id=name, tasks=done, completed_batches=batches))
        return graph

    def _is_settled(self, name: str, task: str) -> bool:
        record = self._run.steps.record(self._tasks.step_name(name, task))
        return record is not None and record["event"] in ("done", "skipped")

    def _result(self, name: str, task: str) -> dict[str, Any]:
        record = self._run.steps.record(self._tasks.step_name(name, task))
        found = record.get("result") if record else None
        return found if isinstance(found, dict) else {}


class _Node:
    """A task as a function of its phase's graph; what came of it is in its step, the graph holds only where that is."""

    def __init__(self, tasks: Tasks, phase: str, task: str, definition: Task, facts: Facts) -> None:
        self._tasks = tasks
        self._given = (phase, task, definition, facts)

    def __call__(self) -> dict[str, Any]:
        phase, task, *_ = self._given
        done = self._tasks.carry_out(*self._given)
        return {"step": self._tasks.step_name(phase, task), "summary": done.get("summary", "")}


def failure_of_tasks(name: str, failed: Mapping[str, Any], held: tuple[str, ...] = ()) -> Exception:
    """Return the error of a phase whose tasks failed; one that only leaves the run is returned as it is."""
    parts: list[str] = []
    below: list[str] = []
    for task, error in failed.items():
        if isinstance(error, Exception) and is_leaving(error):
            return error
        text = getattr(error, "message", None) or str(error)
        head, _, rest = text.partition("\n")
        parts.append(head if head.startswith("task ") else f"task {task}: {head}")
        below += [rest] if rest and len(failed) == 1 else [f"task {task}: {rest}"] if rest else []
    if held:
        parts.append(f"held back: {', '.join(held)}")
    return PhaseFailed(name, "\n".join(["; ".join(parts), *below])[:_LONGEST_FAILURE])


def first_line(failure: str) -> str:
    """Return what a failure says in short; below that stands what was printed."""
    return failure.partition("\n")[0]
