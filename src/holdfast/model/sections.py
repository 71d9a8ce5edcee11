"""The typed sections of a checkpoint: frozen values without I/O.

A section may be given as one of these or as plain data of the same shape; either is validated before it is stored.
`state` has no type: it is the user's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec


class SectionValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every typed section value shares: nothing unknown passes."""


AgentStatus = Literal["pending", "running", "completed", "failed", "skipped"]
TaskStatus = Literal["pending", "running", "completed", "failed", "skipped", "blocked"]
OnUnknown = Literal["retry", "skip", "ask"]
CoderStatus = Literal["success", "error", "issue"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Stage = Annotated[
    str,
    msgspec.Meta(pattern=r"^(before_execution|coder_response|gate_[1-9][0-9]*|fix_[1-9][0-9]*|complete|failed)$"),
]
PhaseStatus = Literal["pending", "running", "completed", "failed", "skipped"]


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
    pending_triggers: dict[str, str] = {}  # what each pending one was asked by, where that is known
    earlier_visits: int = 0  # how many stays before the history are no longer listed
    states: list[str] = []  # all that are declared, where that is known


class TokenUsage(SectionValue, frozen=True):
    """Tokens that an agent read and wrote."""

    input: Count = 0
    output: Count = 0


class AgentTask(SectionValue, frozen=True):
    """What one agent did for one task: what it was given, what came of it, and where that lies."""

    status: AgentStatus
    started_at: datetime | None = None
    completed_at: datetime | None = None
    input: Any = None
    input_digest: str | None = None  # tells another input from the same one, also where it was redacted
    step: str | None = None  # the step that it was called in
    output: Any = None
    summary: Any = ""  # text; where it is stored it may refer to the output
    location: str | None = None
    error: Failure | None = None
    reason: str = ""
    attempts: Count = 0
    tokens: TokenUsage = TokenUsage()


class Agent(SectionValue, frozen=True):
    """One agent's position; its task of last is what its own fields show."""

    id: str
    status: AgentStatus
    started_at: datetime | None = None
    completed_at: datetime | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    attempts: Count = 0
    tokens: TokenUsage = TokenUsage()
    role: str = ""
    tasks: dict[str, AgentTask] = {}


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
    lesson_digests: list[str] = []  # tell a lesson that is there already, also where a secret was taken out of it


class Progress(SectionValue, frozen=True):
    """How far a loop has come: which round it is in, and what the program says of it."""

    loop_count: Count = 0
    detail: dict[str, Any] = {}


class Spending(SectionValue, frozen=True):
    """How much of one budget is used, and how much there is; no limit means unlimited."""

    used: float | int = 0
    limit: float | int | None = None
    raised: float | int = 0  # how much of the limit was added by people while the run was under way
    warned: bool = False
    asked: int = 0  # how often somebody was asked to raise it, and answered
    reserved: float | int = 0  # what calls under way may cost
    lost: float | int = 0  # how much of what is used was reserved by calls of unknown cost


class BudgetPart(SectionValue, frozen=True):
    """The budgets of one part of the run, by name."""

    spending: dict[str, Spending] = {}


class Budget(SectionValue, frozen=True):
    """All budgets of the run, by name: tokens, time, retries, subcalls, tool calls, money.

    `nested` has those of its parts, by path: "phase:research", "phase:research/agent:coder".
    """

    spending: dict[str, Spending] = {}
    nested: dict[str, BudgetPart] = {}
    counted: list[str] = []  # the keys of what is to be counted once
    largest: dict[str, dict[str, float | int]] = {}  # the most that one call of each agent cost


class TaskNode(SectionValue, frozen=True):
    """One task of the graph."""

    status: TaskStatus
    result: Any = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: Failure | None = None
    attempts: Count = 0
    needs: list[str] = []
    batch: int | None = None  # the one that it ran in last
    effect: str | None = None
    on_unknown: OnUnknown = "retry"


class Graph(SectionValue, frozen=True):
    """The execution graph: batches done, the batch under way, each task's state."""

    id: str
    completed_batches: list[int] = []
    current_batch: int | None = None
    tasks: dict[str, TaskNode] = {}
    others: dict[str, Graph] = {}  # the run's other graphs, by id: those of earlier phases


class Messages(SectionValue, frozen=True):
    """Messages between agents that are still under way, and conflicts that are not yet resolved."""

    pending: list[Any] = []
    awaiting_response: list[Any] = []
    conflicts: list[Any] = []
    answers: dict[str, Any] = {}  # by the id of the message that was answered
    keys: dict[str, str] = {}  # the message that was sent for each key
    resolved: list[Any] = []  # conflicts that are settled
    sent: int = 0  # how many messages there were


class GateResult(SectionValue, frozen=True):
    """What one gate said."""

    level: Annotated[int, msgspec.Meta(ge=1)]
    description: str
    success: bool
    command: str | None = None
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    skipped: bool = False
    duration_s: float = 0.0


class CoderResult(SectionValue, frozen=True):
    """How the worker's call ended: well, with an error, or with something that a person must look at."""

    status: CoderStatus
    message: str = ""


class Fix(SectionValue, frozen=True):
    """One call that fixed a failed gate, or tried to."""

    attempt: Annotated[int, msgspec.Meta(ge=1)]
    failure: GateResult
    response: Any = None
    completed_at: datetime | None = None


class GatedTask(SectionValue, frozen=True):
    """Where a task with gates stands: which stage is behind it, and what came of it."""

    stage: Stage
    plan_path: str | None = None
    coder_response: Any = None
    coder_result: CoderResult | None = None
    gate_results: list[GateResult] = []
    fix_attempt: Count = 0
    fixes: list[Fix] = []
    error: Failure | None = None
    fingerprint: str | None = None  # of the files, when a gate last looked at them
    attempts: Count = 0  # how often the worker was called
    tries: int = 1  # how often the gates were begun, after failures that somebody wants tried again
    started_at: datetime | None = None
    updated_at: datetime | None = None
    duration_s: float = 0.0  # of the worker's call


class Gates(SectionValue, frozen=True):
    """Every task with gates, by name."""

    tasks: dict[str, GatedTask] = {}


class Member(SectionValue, frozen=True):
    """One member of the team."""

    agent: str
    role: str
    status: str
    tasks_completed: Count = 0
    tasks_pending: Count = 0
    completed: list[str] = []
    pending: list[str] = []


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
    session: str | None = None
    url: str | None = None
    seen_at: datetime | None = None
    metadata: dict[str, Any] = {}


class Failure(SectionValue, frozen=True):
    """What went wrong."""

    message: str
    code: str | None = None
    stack: str | None = None


class PhaseState(SectionValue, frozen=True):
    """Where one phase stands: an attempt ends by failing, each later process that enters it is a resume."""

    status: PhaseStatus = "pending"
    label: str | None = None
    attempt: Count = 0
    resumes: Count = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_s: float = 0.0
    summary: str = ""
    artifacts: list[Artifact] = []
    result: Any = None
    error: Failure | None = None
    reason: str = ""


class Replan(SectionValue, frozen=True):
    """A phase that was replanned, and why."""

    phase: str
    reason: str
    at: datetime


class Phases(SectionValue, frozen=True):
    """The phases of a plan, in order, and how often each was replanned."""

    plan: str | None = None
    current: str | None = None
    order: list[str] = []
    phases: dict[str, PhaseState] = {}
    replans: list[Replan] = []
    limits: dict[str, int] = {}
    metadata: dict[str, Any] = {}


class KnowledgeEntry(SectionValue, frozen=True):
    """One thing that is known; its id follows from its content, so it is the same in every process of the run."""

    id: str
    content: Any
    kind: str = ""
    source: str = ""
    at: datetime | None = None


class Knowledge(SectionValue, frozen=True):
    """What the run was told, what it learned and handed on, and what it learned and has still to hand on."""

    injected: list[KnowledgeEntry] = []
    captured: list[KnowledgeEntry] = []
    pending: list[KnowledgeEntry] = []


WORKSPACE = "workspace"  # the section that is a tree of files, not a value
SECTION_TYPES: dict[str, Any] = {
    "workflow": Workflow,
    "agents": list[Agent],
    "context": Context,
    "budget": Budget,
    "progress": Progress,
    "graph": Graph,
    "gates": Gates,
    "messages": Messages,
    "team": Team,
    "subject": Subject,
    "phases": Phases,
    "knowledge": Knowledge,
    "error": Failure,
}
