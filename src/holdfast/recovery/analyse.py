"""What a checkpoint's sections say of continuing from it; pure, and cheap enough for every commit.

Sections may be typed, plain data of the same shape, or missing: what is not there says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.model.checkpoint import Summary
from holdfast.model.recovery import RecoveryInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_ATTEMPTS = 3
DEAD_STATES = frozenset({"ERROR", "ABORTED", "CANCELLED", "CANCELED"})
_SETTLED = frozenset({"completed", "skipped"})
_MOST_NAMED = 20  # of a kind; a record is small, and a list of a thousand names helps nobody

Blockers = list[tuple[str, str]]

TELLING = ("workflow", "agents", "budget", "graph", "phases", "status", "progress")
"""The sections that recovery information is worked out from."""


def analyse(sections: Mapping[str, Any]) -> RecoveryInfo:
    """Say whether and where the run can continue: a running agent is where, three failures or a dead state are a no."""
    blockers: Blockers = []
    warnings: list[str] = []
    prerequisites: list[str] = []
    agent = _of_agents(sections.get("agents") or (), blockers, warnings)
    state, reset_to = _of_workflow(sections.get("workflow"), blockers)
    _of_status(sections.get("status"), blockers, warnings, prerequisites)
    _of_budget(sections.get("budget"), prerequisites)
    phase = _of_phases(sections.get("phases"), warnings)
    batch, task = _of_graph(sections.get("graph"), warnings, prerequisites)
    return RecoveryInfo(
        can_resume=not blockers,
        resume_agent=agent,
        resume_state=state,
        blockers=tuple(text for _, text in blockers),
        warnings=tuple(warnings),
        resume_phase=phase,
        resume_batch=batch,
        resume_task=task,
        prerequisites=tuple(prerequisites),
        blocker_kinds=tuple(kind for kind, _ in blockers),
        reset_to=reset_to,
    )


def summarise(sections: Mapping[str, Any]) -> Summary:
    """Return what lists show, from the sections that are there."""
    counts: dict[str, int] = {}
    for agent in sections.get("agents") or ():
        status = _field(agent, "status")
        counts[status] = counts.get(status, 0) + 1
    spending: Mapping[str, Any] = _field(sections.get("budget"), "spending", {})
    return Summary(
        state=_text(_field(sections.get("workflow"), "current_state")),
        agents=counts,
        budget_used={name: _field(one, "used", 0) for name, one in spending.items()},
        budget_limits={name: _field(one, "limit") for name, one in spending.items()},
        loop_count=_field(sections.get("progress"), "loop_count"),
        phase=_text(_field(sections.get("phases"), "current")),
        status=_text(_field(sections.get("status"), "status")),
    )


def _of_agents(agents: Iterable[Any], blockers: Blockers, warnings: list[str]) -> str | None:
    """Return the first agent that was in progress; add what failed too often, and what runs again."""
    running: list[str] = []
    failed = 0
    for agent in agents:
        status = _field(agent, "status")
        if status == "running":
            running.append(str(_field(agent, "id")))
        elif status == "failed" and (attempts := _field(agent, "attempts", 0)) >= MAX_ATTEMPTS:
            failed += 1
            if failed <= _MOST_NAMED:
                name = _field(agent, "id")
                blockers.append((f"agent-failed:{name}", f"agent {name} failed {attempts} times"))
    if failed > _MOST_NAMED:
        blockers.append(("agent-failed", f"{failed - _MOST_NAMED} more agents failed {MAX_ATTEMPTS} times or more"))
    warnings += [f"agent {name} was in progress and will start again" for name in running[:_MOST_NAMED]]
    if len(running) > _MOST_NAMED:
        warnings.append(f"{len(running) - _MOST_NAMED} more agents were in progress and will start again")
    return running[0] if running else None


def _of_workflow(workflow: Any, blockers: Blockers) -> tuple[str | None, str | None]:
    """Return the state to continue in, and of a dead one the last before it that was not."""
    state = _text(_field(workflow, "current_state"))
    if state is None or not _is_dead(state):
        return state, None
    blockers.append((f"dead-state:{state}", f"the workflow is in state {state}"))
    previous = _text(_field(workflow, "previous_state"))
    visits = (_text(_field(visit, "state")) for visit in reversed(_field(workflow, "history", ())))
    return state, next((one for one in (previous, *visits) if one is not None and not _is_dead(one)), None)


def _of_status(status: Any, blockers: Blockers, warnings: list[str], prerequisites: list[str]) -> None:
    word = _field(status, "status")
    detail = _field(status, "detail")
    why = f": {detail}" if detail else ""
    if word == "cancelled":
        blockers.append(("cancelled", f"the run was cancelled{why}"))
    elif word == "completed":
        warnings.append("the run is complete: nothing is left to do")
    elif word == "failed":
        warnings.append(f"the run failed{why}")
    elif word == "waiting":
        prerequisites.append(f"an answer to what the run waits for{why}")
    elif word == "paused":
        prerequisites.append(f"an end to the pause{why}")


def _of_budget(budget: Any, prerequisites: list[str]) -> None:
    for name, spending in _field(budget, "spending", {}).items():
        used, limit = _field(spending, "used", 0), _field(spending, "limit")
        if limit is not None and used >= limit:
            prerequisites.append(f"a larger budget of {name}: {used:g} of {limit:g} are used")


def _of_phases(phases: Any, warnings: list[str]) -> str | None:
    """Return the phase to continue in: the current one, or the first that is not settled."""
    states: Mapping[str, Any] = _field(phases, "phases", {})
    current = _text(_field(phases, "current"))
    if current is None:
        order = _field(phases, "order", ()) or states
        current = next((name for name in order if _status(states.get(name)) not in _SETTLED), None)
    if current is not None and _status(states.get(current)) == "failed":
        attempt = _field(states[current], "attempt", 0)
        warnings.append(f"phase {current} failed" + (f" at attempt {attempt}" if attempt else ""))
    return current


def _of_graph(graph: Any, warnings: list[str], prerequisites: list[str]) -> tuple[int | None, str | None]:
    """Return the batch under way, and the first task in it that is not settled, or else the first that could start."""
    tasks: Mapping[str, Any] = _field(graph, "tasks", {})
    batch = _field(graph, "current_batch")
    task = _first_open(graph, batch, tasks)
    if task is None:
        return batch, None
    node = tasks[task]
    if _status(node) == "failed":
        warnings.append(f"task {task} failed and will start again")
    missing = [need for need in _field(node, "needs", ()) if need not in tasks or _is_open(tasks[need])]
    prerequisites += [f"task {task} needs {need}" for need in missing[:_MOST_NAMED]]
    return batch if batch is not None else _field(node, "batch"), task


def _first_open(graph: Any, batch: Any, tasks: Mapping[str, Any]) -> str | None:
    """Return the first task of a batch that is not settled, or else the first of all that could start, or of all.

    Most of a graph is settled most of the time, and each commit asks: nothing is gathered that is not looked at.
    """
    batches = _field(graph, "batches", ())
    if type(batch) is int and 0 <= batch < len(batches):
        of_batch: Iterator[str] = (name for name in batches[batch] if name in tasks and _is_open(tasks[name]))
    else:
        of_batch = (
            name
            for name, node in tasks.items()
            if _is_open(node) and batch is not None and _field(node, "batch") == batch
        )
    found = next(of_batch, None)
    if found is not None:
        return found
    unsettled = {name: node for name, node in tasks.items() if _is_open(node)}
    ready = (name for name, node in unsettled.items() if unsettled.keys().isdisjoint(_field(node, "needs", ())))
    return next(ready, None) or next(iter(unsettled), None)


def _is_dead(state: str) -> bool:
    return state.upper() in DEAD_STATES


def _is_open(node: Any) -> bool:
    return _status(node) not in _SETTLED


def _status(value: Any) -> Any:
    return value.get("status") if isinstance(value, dict) else getattr(value, "status", None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _field(value: Any, name: str, default: Any = None) -> Any:
    """Return a field of a typed value or of plain data, the default where there is none or it is None."""
    found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return default if found is None else found
