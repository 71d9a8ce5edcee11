"""What a checkpoint's sections say of going on from it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model.checkpoint import Summary
from holdfast.model.recovery import RecoveryInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from holdfast.model.sections import Agent, Budget, Workflow

MAX_ATTEMPTS = 3
DEAD_STATES = frozenset({"ERROR", "ABORTED"})


def analyse(workflow: Workflow | None, agents: Sequence[Agent]) -> RecoveryInfo:
    """Say whether and where the run can go on: a running agent is where, three failures or a dead state are a no."""
    blockers: list[str] = []
    notes: list[str] = []
    resume_agent = None
    for agent in agents:
        if agent.status == "running" and resume_agent is None:
            resume_agent = agent.id
            notes.append(f"agent {agent.id} was in progress and will start again")
        if agent.status == "failed" and agent.attempts >= MAX_ATTEMPTS:
            blockers.append(f"agent {agent.id} failed {agent.attempts} times")
    state = workflow.current_state if workflow else None
    if state is not None and state.upper() in DEAD_STATES:
        blockers.append(f"the workflow is in state {state}")
    return RecoveryInfo(
        can_resume=not blockers,
        resume_agent=resume_agent,
        resume_state=state,
        blockers=tuple(blockers),
        notes=tuple(notes),
    )


def summarise(sections: Mapping[str, Any]) -> Summary:
    """Return what lists show, from the typed sections that are there."""
    workflow: Workflow | None = sections.get("workflow")
    agents: Sequence[Agent] = sections.get("agents") or ()
    budget: Budget | None = sections.get("budget")
    counts: dict[str, int] = {}
    for agent in agents:
        counts[agent.status] = counts.get(agent.status, 0) + 1
    return Summary(
        state=workflow.current_state if workflow else None,
        agents=counts,
        budget_used={name: spending.used for name, spending in budget.spending.items()} if budget else {},
    )
