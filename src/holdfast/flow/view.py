"""The state of a flow as a person watches it, folded from its events; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.flow.events import Event

Status = Literal["pending", "running", "done", "kept", "failed", "skipped", "waiting"]
_TAIL = 5


class GateView(msgspec.Struct, frozen=True):
    """One gate of a task."""

    status: Status = "running"
    level: int | None = None


class TaskView(msgspec.Struct, frozen=True):
    """One task."""

    status: Status = "pending"
    agent: str | None = None
    gates: dict[str, GateView] = {}
    fixes: int = 0
    tries: int = 0
    detail: str = ""
    started_at: float | None = None
    took_s: float | None = None


class PhaseView(msgspec.Struct, frozen=True):
    """One phase."""

    status: Status = "pending"
    tasks: dict[str, TaskView] = {}
    visits: int = 0
    replans: int = 0
    detail: str = ""
    took_s: float | None = None


class BudgetView(msgspec.Struct, frozen=True):
    """One budget."""

    used: float = 0
    limit: float | None = None
    warned: bool = False


class View(msgspec.Struct, frozen=True):
    """Everything that the live view shows."""

    flow: str = ""
    run: str = ""
    status: Status = "pending"
    phases: dict[str, PhaseView] = {}
    budgets: dict[str, BudgetView] = {}
    output: tuple[str, ...] = ()
    waiting: str = ""
    hint: str = ""
    unprotected: str = ""
    checkpoint: str = ""
    checkpoint_at: float | None = None
    checkpoints: int = 0
    detail: str = ""
    started_at: float | None = None


def fold(view: View, event: Event) -> View:
    """Return the view after an event."""
    apply = _FOLD.get(event.kind)
    return view if apply is None else apply(view, event)


def _change(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def _phase(view: View, event: Event, **fields: Any) -> View:
    if event.phase is None:
        return view
    phase = _change(view.phases.get(event.phase, PhaseView()), **fields)
    changed: View = _change(view, phases={**view.phases, event.phase: phase})
    return changed


def _task(view: View, event: Event, **fields: Any) -> View:
    if event.phase is None or event.task is None:
        return view
    phase = view.phases.get(event.phase, PhaseView())
    task = _change(phase.tasks.get(event.task, TaskView()), **fields)
    return _phase(view, event, tasks={**phase.tasks, event.task: task})


def _task_of(view: View, event: Event) -> TaskView:
    return view.phases.get(event.phase or "", PhaseView()).tasks.get(event.task or "", TaskView())


def _begin(view: View, event: Event) -> View:
    over = event.data.get("over", {})
    phases = {
        name: view.phases.get(name) or PhaseView(over.get(name, "pending"), {task: TaskView() for task in tasks})
        for name, tasks in event.data.get("phases", {}).items()
    }
    begun: View = _change(
        view,
        flow=event.data.get("flow", view.flow),
        run=event.data.get("run", view.run),
        status="running",
        phases=phases or view.phases,
        waiting="",
        hint="",
        detail="",
        started_at=event.at.timestamp() if view.started_at is None else view.started_at,
    )
    return begun


def _end(status: Status) -> Callable[[View, Event], View]:
    return lambda view, event: _change(view, status=status, detail=_head(event), waiting="", hint="")


def _phase_began(view: View, event: Event) -> View:
    old = view.phases.get(event.phase or "", PhaseView())
    visits = event.data.get("visit", old.visits + 1)
    tasks = {name: TaskView(agent=task.agent) for name, task in old.tasks.items()} if visits > 1 else old.tasks
    return _phase(view, event, status="running", visits=visits, tasks=tasks, detail="")


def _phase_ended(status: Status) -> Callable[[View, Event], View]:
    return lambda view, event: _phase(
        view, event, status=status, detail=_head(event), took_s=event.data.get("duration_s")
    )


def _replanned(view: View, event: Event) -> View:
    old = view.phases.get(event.phase or "", PhaseView())
    return _phase(view, event, replans=old.replans + 1, status="running", detail=_head(event))


def _task_began(view: View, event: Event) -> View:
    old = _task_of(view, event)
    return _task(
        view,
        event,
        status="running",
        agent=event.data.get("agent", old.agent),
        tries=event.data.get("attempt", old.tries + 1),
        started_at=event.at.timestamp(),
    )


def _task_ended(status: Status) -> Callable[[View, Event], View]:
    return lambda view, event: _task(
        view, event, status=status, detail=_head(event), took_s=event.data.get("duration_s")
    )


def _head(event: Event) -> str:
    return event.text.partition("\n")[0]


def _printed(view: View, event: Event) -> View:
    lines = [line for line in event.text.splitlines() if line.strip()]
    printed: View = _change(view, output=(*view.output, *lines)[-_TAIL:]) if lines else view
    return printed


def _gate(status: Status) -> Callable[[View, Event], View]:
    def apply(view: View, event: Event) -> View:
        gates = _task_of(view, event).gates
        gate = GateView(status, event.data.get("level"))
        return _task(view, event, gates={**gates, event.gate or "": gate})

    return apply


def _fixed(view: View, event: Event) -> View:
    return _task(view, event, fixes=event.data.get("attempt", _task_of(view, event).fixes + 1), gates={})


def _spent(view: View, event: Event) -> View:
    known = {name: BudgetView(*amount) for name, amount in event.data.items()}
    merged = {name: _change(one, warned=view.budgets.get(name, one).warned) for name, one in known.items()}
    spent: View = _change(view, budgets={**view.budgets, **merged})
    return spent


def _warned(view: View, event: Event) -> View:
    name = event.data.get("budget", "")
    budget = _change(view.budgets.get(name, BudgetView()), warned=True)
    warned: View = _change(view, budgets={**view.budgets, name: budget})
    return warned


def _saved(view: View, event: Event) -> View:
    saved: View = _change(
        view,
        checkpoint=event.text,
        checkpoint_at=event.at.timestamp(),
        checkpoints=view.checkpoints + 1,
        unprotected="",
    )
    return saved


_FOLD: dict[str, Callable[[View, Event], View]] = {
    "flow_started": _begin,
    "flow_resumed": _begin,
    "flow_done": _end("done"),
    "flow_failed": _end("failed"),
    "phase_started": _phase_began,
    "phase_done": _phase_ended("done"),
    "phase_kept": _phase_ended("kept"),
    "phase_failed": _phase_ended("failed"),
    "phase_skipped": _phase_ended("skipped"),
    "replan": _replanned,
    "task_started": _task_began,
    "task_retry": lambda view, event: _task(view, event, detail=_head(event)),
    "task_output": _printed,
    "task_done": _task_ended("done"),
    "task_kept": _task_ended("kept"),
    "task_failed": _task_ended("failed"),
    "task_skipped": _task_ended("skipped"),
    "gate_started": _gate("running"),
    "gate_done": _gate("done"),
    "gate_kept": _gate("kept"),
    "gate_failed": _gate("failed"),
    "fix_started": _fixed,
    "waiting": lambda view, event: _change(view, waiting=event.text, hint=event.data.get("hint", ""), status="waiting"),
    "answered": lambda view, _: _change(view, waiting="", hint="", status="running"),
    "budget": _spent,
    "budget_warning": _warned,
    "checkpoint": _saved,
    "unprotected": lambda view, event: _change(view, unprotected=event.text),
    "protected": lambda view, _: _change(view, unprotected=""),
}
