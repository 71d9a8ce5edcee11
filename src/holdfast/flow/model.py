"""The declared workflow: frozen values, the same for a file and for Python.

`short` names the field that a plain value stands for: a task that is a string is its `run`. Nothing here is checked but
shapes; `flow/check.py` knows what must fit together.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

END = "end"
"""Where a phase's `next` leads when the flow is over."""

DURATION_EXAMPLES = ["30s", "2h", "1h30m"]
_DURATION_SCHEMA = {"examples": DURATION_EXAMPLES}

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
Text = Annotated[str, Meta(min_length=1)]
CommandLine = Text | Annotated[list[str], Meta(min_length=1)]
"""A text for the shell, or a program with its arguments."""
Count = Annotated[int, Meta(ge=1)]
Number = Annotated[int, Meta(ge=0)]
Duration = Annotated[float, Meta(gt=0, extra={"duration": True}, extra_json_schema=_DURATION_SCHEMA)]
Pause = Annotated[float, Meta(ge=0, extra={"duration": True}, extra_json_schema=_DURATION_SCHEMA)]


def command_text(command: CommandLine) -> str:
    """Return a command as one text, for people."""
    return command if isinstance(command, str) else shlex.join(command)


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every part of a flow shares: nothing unknown passes."""

    short: ClassVar[str | None] = None


class Param(Part, frozen=True):
    """A value that the caller gives; without a default it must be given."""

    short = "default"

    default: Any = msgspec.UNSET
    description: str = ""


class Subject(Part, frozen=True):
    """What the run works on; `read` is a command that prints its present form as JSON."""

    id: str | int | None = None
    issue: int | None = None
    title: str | None = None
    body: str | None = None
    labels: list[str] = []
    assignees: list[str] = []
    branch: str | None = None
    read: CommandLine | None = None


class Team(Part, frozen=True):
    """Who works on the run: names and their roles."""

    id: str | None = None
    members: dict[Name, str] = {}


class Entry(Part, frozen=True):
    """Something known: told to the run when it begins, or learned by a task."""

    short = "text"

    text: Text
    id: Text | None = None
    kind: str = ""
    source: str = ""


class Knowledge(Part, frozen=True):
    """What the run is told when it begins, and who takes what it learns."""

    short = "entries"

    entries: list[Entry] = []
    read: CommandLine | None = None
    write: CommandLine | None = None


class Message(Part, frozen=True):
    """What one member tells another; with `answer`, the task waits for the answer, which is its result."""

    to: Name
    text: Text
    sender: Name | None = msgspec.field(name="from", default=None)
    answer: bool = False


class Conflict(Part, frozen=True):
    """A question that agents settle in rounds: all hold the same, or an agent decides."""

    between: list[Name]
    question: Text
    rounds: Count = 3
    settle: Name | None = None


class Budget(Part, frozen=True):
    """Limits; what has none is counted and not limited."""

    tokens: Count | None = None
    time: Duration | None = None
    retries: Number | None = None
    subcalls: Number | None = None
    tool_calls: Number | None = None
    money: Annotated[float, Meta(gt=0)] | None = None
    other: dict[Name, Annotated[float, Meta(ge=0)]] = {}
    warn_at: Annotated[float, Meta(gt=0, le=1)] = 0.8
    on_warning: Literal["continue", "ask"] = "continue"

    @property
    def limits(self) -> dict[str, float]:
        """Every limit that is set, by the budget's name."""
        known = ("tokens", "time", "retries", "subcalls", "tool_calls", "money")
        limits = {name: value for name in known if (value := getattr(self, name)) is not None}
        return limits | self.other


class Agent(Part, frozen=True):
    """Who does a task: a command, a Python function, or a stand-in that gives scripted answers in turn."""

    short = "run"

    run: CommandLine | None = None
    call: Text | None = None
    script: list[Any] | None = None
    role: str = ""
    output: Literal["text", "json"] | None = None
    env: dict[str, str] = {}
    timeout: Duration | None = None
    most: dict[Literal["tokens", "money", "tool_calls"], Annotated[float, Meta(ge=0)]] = {}


class Action(Part, frozen=True):
    """One piece of work: a command, a Python function, or what an agent does with an input."""

    short = "run"

    agent: Name | None = None
    run: CommandLine | None = None
    call: Text | None = None
    input: Any = None
    output: Literal["text", "json"] | None = None
    env: dict[str, str] = {}
    cwd: Text | None = None
    timeout: Duration | None = None


class Gate(Part, frozen=True):
    """A check that a task must pass."""

    short = "run"

    run: CommandLine
    level: Count | None = None
    description: str = ""
    timeout: Duration | None = None
    env: dict[str, str] = {}
    cwd: Text | None = None

    @property
    def title(self) -> str:
        """Its description, or else its command."""
        return self.description or command_text(self.run)


class Approve(Part, frozen=True):
    """A question to a person before the work begins."""

    short = "question"

    question: Text
    on_reject: Literal["abort", "skip"] = "abort"


class Replan(Action, frozen=True):
    """What replans a failed phase, and how often it may."""

    short = "run"

    limit: Number = 2


class Repeat(Part, frozen=True):
    """Go through a phase again until a condition holds."""

    until: Text
    limit: Count
    on_limit: Literal["fail", "continue"] = "fail"


class Route(Part, frozen=True):
    """One way out of a phase; the first whose condition holds is taken."""

    short = "to"

    to: Name
    when: Text | None = None


class OnFailure(Part, frozen=True):
    """What happens when a phase has failed; `retry` tries so many times more, `then` does the other thing."""

    short = "do"

    do: Literal["ask", "retry", "skip", "abort"] = "ask"
    limit: Count = 2
    then: Literal["ask", "skip", "abort"] = "abort"


class Work(Action, frozen=True):
    """What a task has, and a phase that is its own one task."""

    message: Message | None = None
    conflict: Conflict | None = None
    knowledge: list[Entry] = []
    gates: list[Gate] = []
    fix: Action | None = None
    max_fixes: Number = 3
    retries: Number = 0
    backoff: Pause = 1.0
    effect: Text | None = None
    on_unknown: Literal["retry", "skip", "ask"] | None = None
    on_interrupt: Literal["keep", "roll_back", "ask"] | None = None
    destructive: Name | None = None
    approve: Approve | None = None
    artifacts: list[Text] = []
    inputs: list[Text] = []
    summary: Text | None = None
    writes: bool = True

    @property
    def asked(self) -> list[str]:
        """The agents whose words decide what comes of it, besides the one that does it."""
        conflict = self.conflict
        named = [*conflict.between, conflict.settle] if conflict is not None else []
        return [*filter(None, named), *([self.message.to] if self.message and self.message.answer else [])]

    @property
    def texts(self) -> list[str]:
        """The texts that decide what is said in it, with names in them."""
        said = [self.message.text] if self.message is not None else []
        return [*said, *([self.conflict.question] if self.conflict is not None else [])]


class Task(Work, frozen=True):
    """One task of a phase; `needs` names the tasks of the same phase whose results it builds on."""

    needs: list[Name] = []


class Phase(Work, frozen=True):
    """One stage: a graph of tasks, or one task written right here."""

    description: str = ""
    tasks: dict[Name, Task] = {}
    parallel: Count = 4
    when: Text | None = None
    next: list[Route] = []
    max_visits: Count = 100
    repeat: Repeat | None = None
    replan: Replan | None = None
    budget: Budget | None = None
    on_failure: OnFailure | None = None

    def work(self, name: str) -> dict[str, Task]:
        """Return the phase's tasks; a phase with its own `run` is one task of the phase's name."""
        if self.tasks or not (self.run or self.call or self.agent or self.message or self.conflict):
            return self.tasks
        given = {field: getattr(self, field) for field in Work.__struct_fields__ if field != "approve"}
        return {name: Task(**given)}


class Hook(Part, frozen=True):
    """Whom to tell: a command with the event in its variables, or a URL that gets it as JSON."""

    short = "run"

    run: Text | None = None
    url: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    timeout: Duration = 10.0


class Hooks(Part, frozen=True):
    """Who hears of what happens in a run, each event once at most."""

    on_wait: Hook | None = None
    on_failure: Hook | None = None


class Flow(Part, frozen=True):
    """A whole workflow."""

    name: Name = msgspec.field(name="flow")
    phases: Annotated[dict[Name, Phase], Meta(min_length=1)]
    description: str = ""
    params: dict[Name, Param] = {}
    subject: Subject | None = None
    team: Team | None = None
    knowledge: Knowledge | None = None
    agents: dict[Name, Agent] = {}
    budget: Budget | None = None
    start: Name | None = None
    run_id: Text | None = None
    on_failure: OnFailure = OnFailure()
    hooks: Hooks = Hooks()
    env: dict[str, str] = {}
    env_from: list[Text] = []
    timeout: Duration | None = None

    @property
    def first(self) -> str:
        """The phase that the flow begins with."""
        return self.start or next(iter(self.phases))

    @property
    def in_order(self) -> bool:
        """Whether phases simply follow each other as they are written."""
        return self.start is None and not any(phase.next for phase in self.phases.values())

    def after(self, phase: str) -> str:
        """Return the phase written below another one, `end` after the last."""
        names = [*self.phases, END]
        return names[names.index(phase) + 1]


class Plan(Flow, frozen=True):
    """A flow of a plan file: a phase is its number, and keeps the name that its run knows when its title changes."""
