"""The tasks of one phase: alone, or several at once, each as soon as those it needs are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import HoldfastError
from holdfast.flow.digests import needs_first
from holdfast.model import sections
from holdfast.model.failure import failure_of
from holdfast.model.triggers import Trigger
from holdfast.runtime.batches import make_batches
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.threads import run_in_order

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from holdfast.flow.facts import Facts
    from holdfast.flow.model import Phase
    from holdfast.flow.tasks import Tasks
    from holdfast.run import Run

_LONGEST_FAILURE = 4000


class PhaseFailed(HoldfastError):
    """A phase did not come to its end."""

    phase: str
    detail: str
    template = "phase {phase}: {detail}"


class PhaseTasks:
    """Carries out the tasks of phases, one phase at a time: each task as soon as those it needs are done."""

    def __init__(self, run: Run, tasks: Tasks) -> None:
        self._run = run
        self._tasks = tasks
        self._view = run.host.attach("graph", GraphView(), journaled=True)

    def do(self, name: str, phase: Phase, facts: Facts) -> dict[str, dict[str, Any]]:
        """Return what each task came to; PhaseFailed if one did not come to its end."""
        work = phase.work(name)
        if not work:
            return {}
        if len(work) > 1:
            return self._do_all(name, phase, facts)
        ((task, definition),) = work.items()
        try:
            return {task: self._tasks.carry_out(name, task, definition, facts)}
        except Exception as error:
            raise failure_of_tasks(name, {task: error}) from error

    def _do_all(self, name: str, phase: Phase, facts: Facts) -> dict[str, dict[str, Any]]:
        run, view = self._run, self._view
        needs = {task: tuple(definition.needs) for task, definition in phase.tasks.items()}
        results: dict[str, dict[str, Any]] = {}
        errors: dict[str, Exception] = {}
        kept: set[str] = set()
        for task in needs_first(phase.tasks):
            if kept.issuperset(needs[task]) and self._tasks.is_settled(name, task):
                kept.add(task)
        with run.lock:
            view.begin(name, needs, kept)

        def do(task: str) -> bool:
            with run.lock:
                batch = view.start(task, run.host.now())
            if batch is not None:
                run.host.save(Trigger.STAGE_COMPLETE, f"before batch {batch}")
            try:
                results[task] = done = self._tasks.carry_out(name, task, phase.tasks[task], facts)
            except Exception as error:
                if is_interruption(error):
                    raise
                errors[task] = error
                with run.lock:
                    view.change(task, status="failed", error=failure_of(error), completed_at=run.host.now())
                return False
            place = self._tasks.result_of(name, task, done)
            with run.lock:
                over = view.end(task, run.host.now(), place)
            if over is not None:
                run.host.save(Trigger.BATCH_COMPLETE, f"batch {over}")
            return True

        run_in_order(needs, do, limit=phase.parallel, idle=run.host.flush)
        if errors:
            held = tuple(task for task in needs if task not in results and task not in errors)
            with run.lock:
                for task in held:
                    view.change(task, status="blocked")
            raise failure_of_tasks(name, {task: errors[task] for task in needs if task in errors}, held)
        return {task: results[task] for task in phase.tasks}


class GraphView:
    """Where the tasks of each phase stand, and which batches (levels of their graph) are behind it; a live section."""

    gives_typed = True

    def __init__(self) -> None:
        self._value = sections.Graph(id="graph")
        self._left: dict[int | None, set[str]] = {}  # of each batch of the phase, what is not completed
        self.changes = 0

    def snapshot(self) -> sections.Graph:
        """Return it as its section."""
        return self._value

    def restore(self, value: Any) -> None:
        """Take a section back."""
        self._value = typed("graph", value)
        self.changes += 1

    def begin(self, phase: str, needs: dict[str, tuple[str, ...]], kept: set[str]) -> None:
        """Show the tasks of a phase, those that are kept as completed; the last phase stands beside it from now on."""
        others = dict(self._value.others)
        if self._value.tasks and self._value.id != phase:
            others[self._value.id] = msgspec.structs.replace(self._value, others={})
        before = others.pop(phase, None) if self._value.id != phase else self._value
        known = before.tasks if before is not None else {}
        batches = {task: number for number, batch in enumerate(make_batches(needs), 1) for task in batch}
        tasks = {}
        for task, wanted in needs.items():
            node = known.get(task, sections.TaskNode(status="pending"))
            status = "completed" if task in kept else "pending"
            tasks[task] = msgspec.structs.replace(node, status=status, needs=list(wanted), batch=batches[task])
        self._left = {node.batch: set() for node in tasks.values()}
        for task, node in tasks.items():
            if node.status != "completed":
                self._left[node.batch].add(task)
        over = sorted(number for number, left in self._left.items() if number is not None and not left)
        self._put(id=phase, tasks=tasks, others=others, completed_batches=over, current_batch=None)

    def start(self, task: str, now: datetime) -> int | None:
        """Show that a task begins; return the number of its batch if it is the first of it."""
        node = self._value.tasks[task]
        is_first = node.batch not in (self._value.current_batch, *self._value.completed_batches)
        is_first = is_first and node.batch is not None and node.batch > (self._value.current_batch or 0)
        if node.status != "completed":
            self.change(task, status="running", started_at=now, error=None, attempts=node.attempts + 1)
        if is_first:
            self._put(current_batch=node.batch)
        return node.batch if is_first else None

    def end(self, task: str, now: datetime, result: dict[str, Any]) -> int | None:
        """Show that a task is done; return the number of the batch that is over with it."""
        node = self._value.tasks[task]
        if node.status != "completed" or node.result is None:  # killed after its call was kept, before this was shown
            self.change(task, status="completed", completed_at=node.completed_at or now, result=result)
        left = self._left[node.batch]
        left.discard(task)
        if left or node.batch is None or node.batch in self._value.completed_batches:
            return None
        over, current = sorted([*self._value.completed_batches, node.batch]), self._value.current_batch
        self._put(completed_batches=over, current_batch=None if current in over else current)
        return node.batch

    def change(self, task: str, **fields: Any) -> None:
        """Show a task with other fields."""
        node = msgspec.structs.replace(self._value.tasks[task], **fields)
        self._put(tasks={**self._value.tasks, task: node})

    def _put(self, **fields: Any) -> None:
        self._value = msgspec.structs.replace(self._value, **fields)
        self.changes += 1


def failure_of_tasks(name: str, failed: Mapping[str, Any], held: tuple[str, ...] = ()) -> Exception:
    """Return the error of a phase whose tasks failed; one that only leaves the run is returned as it is."""
    parts: list[str] = []
    below: list[str] = []
    for task, error in failed.items():
        if isinstance(error, Exception) and is_interruption(error):
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
