"""How sections are restored: running agents pending, failed ones skipped, the workflow reset; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from holdfast.errors import UsageError
from holdfast.model.sections import Agent, AgentTask, Graph, StateVisit, TaskNode, Workflow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from holdfast.recovery.plan import Request

RECOVERY_TRIGGER = "recovery"
_Working = TypeVar("_Working", Agent, AgentTask, TaskNode)
_Failing = TypeVar("_Failing", Agent, AgentTask)


class Restoring(NamedTuple):
    """What was asked for of the sections that are restored."""

    skip_failed: bool = False
    retry_failed: bool = False
    reset_to: str | None = None
    decided: Collection[str] = ()
    """The steps of unknown outcome that were decided on: questions about them are answered by that."""

    @classmethod
    def of(cls, request: Request, decided: Collection[str]) -> Restoring:
        """Return what a request asks for."""
        return cls(request.skip_failed, request.retry_failed, request.reset_to, decided)


def restored_agents(agents: Sequence[Agent], how: Restoring, *, since: datetime | None = None) -> list[Agent]:
    """Return agents as they are restored: running ones pending, failed ones skipped or tried again on request.

    What failed `since` a state that the workflow is set back to has not happened: it is forgotten.
    """
    return [_restored_agent(agent, how, since) for agent in agents]


def _restored_agent(agent: Agent, how: Restoring, since: datetime | None) -> Agent:
    if any(task.status == "running" for task in agent.tasks.values()):
        agent = msgspec.structs.replace(agent, tasks={name: _pending(task) for name, task in agent.tasks.items()})
    if agent.status == "failed" and (how.retry_failed or _is_since(agent, since)):
        tasks = {name: _again(task) if task.status == "failed" else task for name, task in agent.tasks.items()}
        return _again(msgspec.structs.replace(agent, tasks=tasks))
    if agent.status == "failed" and how.skip_failed:
        return msgspec.structs.replace(agent, status="skipped")
    return _pending(agent)


def _is_since(agent: Agent, since: datetime | None) -> bool:
    ended = agent.completed_at or agent.started_at
    return since is not None and ended is not None and ended >= since


def _again(one: _Failing) -> _Failing:
    return msgspec.structs.replace(one, status="pending", attempts=0, error=None, started_at=None, completed_at=None)


def check_state(workflow: Any, state: str | None) -> None:
    """Raise UsageError if a workflow is to be set back to a state that it does not have."""
    if state is not None and workflow is not None and workflow.states and state not in workflow.states:
        raise UsageError(f"reset_to={state!r}: the workflow has no such state; it has {', '.join(workflow.states)}")


def _entered_at(workflow: Workflow, state: str) -> datetime | None:
    """Return when a workflow last came to a state."""
    return next((visit.entered_at for visit in reversed(workflow.history) if visit.state == state), None)


def restored_graph(graph: Graph) -> Graph:
    """Return a graph as it is restored: tasks that were under way are pending."""
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
    """Return what a run waits for without the questions about steps that were decided on; stored data may be false."""
    asked = waits.get("open") if isinstance(waits, dict) else None
    if not isinstance(asked, dict):
        return {}
    left = {name: wait for name, wait in asked.items() if not any(_is_about(name, step) for step in decided)}
    changed: dict[str, Any] = {"waits": {**waits, "open": left}}
    if not left and isinstance(status, dict) and status.get("status") == "waiting":
        changed["status"] = {**status, "status": "running", "since": at, "detail": ""}
    return changed


def _is_about(wait: str, step: str) -> bool:
    """Tell whether a question is about this call: it is named for its kind, its path and its start."""
    _kind, _, rest = wait.partition(":")
    path, _, start = rest.rpartition(":")
    return path == step and bool(start)


def restored(values: Mapping[str, Any], how: Restoring, *, at: datetime) -> dict[str, Any]:
    """Return those of these sections that are not restored as they were stored, as they are restored."""
    changed: dict[str, Any] = {}
    workflow: Workflow | None = values.get("workflow")
    since = None
    if workflow is not None and how.reset_to is not None:
        since = _entered_at(workflow, how.reset_to)
        changed["workflow"] = reset_workflow(workflow, how.reset_to, at)
    agents: list[Agent] | None = values.get("agents")
    if agents is not None:
        changed["agents"] = restored_agents(agents, how, since=since)
    graph: Graph | None = values.get("graph")
    if graph is not None:
        changed["graph"] = restored_graph(graph)
    if how.decided:
        changed |= _answered(values.get("waits"), values.get("status"), how.decided, at)
    return {name: value for name, value in changed.items() if value != values.get(name)}
