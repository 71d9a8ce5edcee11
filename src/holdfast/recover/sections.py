"""How sections come back: running agents pending, failed ones skipped, the workflow reset; pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.model.sections import Agent, AgentTask, Graph, StateVisit, TaskNode, Workflow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

RECOVERY_TRIGGER = "recovery"
_Working = TypeVar("_Working", Agent, AgentTask, TaskNode)


def restored_agents(agents: Sequence[Agent], *, skip_failed: bool) -> list[Agent]:
    """Return agents as they come back: running ones pending, failed ones skipped on request; attempts stay."""
    return [_restored_agent(agent, skip_failed=skip_failed) for agent in agents]


def _restored_agent(agent: Agent, *, skip_failed: bool) -> Agent:
    if any(task.status == "running" for task in agent.tasks.values()):
        agent = msgspec.structs.replace(agent, tasks={name: _pending(task) for name, task in agent.tasks.items()})
    if agent.status == "failed" and skip_failed:
        return msgspec.structs.replace(agent, status="skipped")
    return _pending(agent)


def restored_graph(graph: Graph) -> Graph:
    """Return a graph as it comes back: tasks that were under way are pending."""
    return msgspec.structs.replace(graph, tasks={name: _pending(task) for name, task in graph.tasks.items()})


def _pending(one: _Working) -> _Working:
    return msgspec.structs.replace(one, status="pending", started_at=None) if one.status == "running" else one


def reset_workflow(workflow: Workflow, state: str, at: datetime) -> Workflow:
    """Return a workflow that was put into a state by a recovery; where it stood before stays in its history."""
    history = list(workflow.history)
    if history and history[-1].exited_at is None:
        history[-1] = msgspec.structs.replace(history[-1], exited_at=at)
    history.append(StateVisit(state=state, entered_at=at, trigger=RECOVERY_TRIGGER))
    return msgspec.structs.replace(
        workflow, current_state=state, previous_state=workflow.current_state, history=history, pending_transitions=[]
    )


def _answered(waits: Any, status: Any, decided: Collection[str], at: datetime) -> dict[str, Any]:
    """Return what a run waits for without the questions about steps that were decided on; stored data is no truth."""
    asked = waits.get("open") if isinstance(waits, dict) else None
    if not isinstance(asked, dict):
        return {}
    left = {name: wait for name, wait in asked.items() if not any(_is_about(name, step) for step in decided)}
    changed: dict[str, Any] = {"waits": {**waits, "open": left}}
    if not left and isinstance(status, dict) and status.get("status") == "waiting":
        changed["status"] = {**status, "status": "running", "since": at, "detail": ""}
    return changed


def _is_about(wait: str, step: str) -> bool:
    """Tell whether a question is about this step: it is named for the step and the time of its start."""
    start = wait.removeprefix(f"step:{step}:")
    try:
        return start != wait and bool(datetime.fromisoformat(start))
    except ValueError:
        return False


def restored(
    values: Mapping[str, Any],
    *,
    skip_failed: bool = False,
    reset_to: str | None = None,
    decided: Collection[str] = (),
    at: datetime,
) -> dict[str, Any]:
    """Return those of these sections that do not come back as they were stored, as they come back.

    Questions about the steps that were `decided` on are answered by that.
    """
    changed: dict[str, Any] = {}
    agents: list[Agent] | None = values.get("agents")
    if agents is not None:
        changed["agents"] = restored_agents(agents, skip_failed=skip_failed)
    graph: Graph | None = values.get("graph")
    if graph is not None:
        changed["graph"] = restored_graph(graph)
    workflow: Workflow | None = values.get("workflow")
    if workflow is not None and reset_to is not None:
        changed["workflow"] = reset_workflow(workflow, reset_to, at)
    if decided:
        changed |= _answered(values.get("waits"), values.get("status"), decided, at)
    return {name: value for name, value in changed.items() if value != values.get(name)}
