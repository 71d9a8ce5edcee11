"""The typed sections of a checkpoint: frozen values without I/O.

A section may be given as one of these or as plain data of the same shape; either is validated before it is stored.
`state` has no type: it is the user's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec


class SectionValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every typed section value shares: nothing unknown passes."""


AgentStatus = Literal["pending", "running", "completed", "failed", "skipped"]
TaskStatus = Literal["pending", "running", "completed", "failed", "skipped", "blocked"]


class StateVisit(SectionValue, frozen=True):
    """One stay in a state of the workflow."""

    state: str
    entered_at: datetime
    trigger: str
    exited_at: datetime | None = None


class Workflow(SectionValue, frozen=True):
    """Where the state machine stands and how it came there."""

    current_state: str
    previous_state: str | None = None
    history: list[StateVisit] = []
    pending_transitions: list[str] = []


class TokenUsage(SectionValue, frozen=True):
    """Tokens that an agent read and wrote."""

    input: int = 0
    output: int = 0


class Agent(SectionValue, frozen=True):
    """One agent's position."""

    id: str
    status: AgentStatus
    started_at: datetime | None = None
    completed_at: datetime | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    attempts: int = 0
    tokens: TokenUsage = TokenUsage()


class Artifact(SectionValue, frozen=True):
    """A thing that the run made."""

    id: str
    type: str
    path: str
    checksum: str


class Decision(SectionValue, frozen=True):
    """Something that was decided, and why."""

    id: str
    decision: str
    rationale: str
    made_at: datetime


class Context(SectionValue, frozen=True):
    """What the run is about and has learned."""

    project: str | None = None
    session: str | None = None
    task: str | None = None
    work_breakdown: Any = None
    artifacts: list[Artifact] = []
    lessons: list[str] = []
    decisions: list[Decision] = []
    metadata: dict[str, Any] = {}


class Spending(SectionValue, frozen=True):
    """How much of one budget is used, and how much there is; no limit means unlimited."""

    used: float | int = 0
    limit: float | int | None = None


class Budget(SectionValue, frozen=True):
    """All budgets of the run, by name: tokens, time, retries, subcalls, tool calls, money."""

    spending: dict[str, Spending] = {}


class TaskNode(SectionValue, frozen=True):
    """One task of the graph."""

    status: TaskStatus
    result: Any = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class Graph(SectionValue, frozen=True):
    """The execution graph: batches done, the batch under way, each task's state."""

    id: str
    completed_batches: list[int] = []
    current_batch: int | None = None
    tasks: dict[str, TaskNode] = {}


class Messages(SectionValue, frozen=True):
    """Messages between agents that are still under way, and conflicts that are not yet resolved."""

    pending: list[Any] = []
    awaiting_response: list[Any] = []
    conflicts: list[Any] = []


class Member(SectionValue, frozen=True):
    """One member of the team."""

    agent: str
    role: str
    status: str
    tasks_completed: int = 0
    tasks_pending: int = 0


class Team(SectionValue, frozen=True):
    """Who works on the run."""

    id: str
    members: list[Member] = []


class Subject(SectionValue, frozen=True):
    """What the run works on, as it was at this moment: an issue, a task, an episode."""

    id: str
    title: str | None = None
    body: str | None = None
    labels: list[str] = []
    assignees: list[str] = []
    branch: str | None = None


class Failure(SectionValue, frozen=True):
    """What went wrong."""

    message: str
    code: str | None = None
    stack: str | None = None


WORKSPACE = "workspace"  # the section that is a tree of files, not a value
SECTION_TYPES: dict[str, Any] = {
    "workflow": Workflow,
    "agents": list[Agent],
    "context": Context,
    "budget": Budget,
    "graph": Graph,
    "messages": Messages,
    "team": Team,
    "subject": Subject,
    "error": Failure,
}
