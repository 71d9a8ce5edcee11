"""The names that templates and conditions may use, and how a dotted name finds its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.flow.read import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.flow.model import Flow, Phase

ANY: Any = object()
"""Below this name everything is allowed: it is known only when the flow runs."""

_WHILE_RUNNING = "only in the task's own run, call and input"
_AFTER = "only in gates, fix and summary of the task"
_MENDING = "only in fix and replan"
NAME_WORDS = {
    "params.NAME": "a parameter of the flow",
    "input": "what the action's `input` came to; only in the command that it is for",
    "phases.NAME.status": "pending, running, completed, failed or skipped",
    "phases.NAME.result": "the result of its one task; of several, a mapping from task to result",
    "phases.NAME.summary": "the summaries of its tasks in one line",
    "phases.NAME.error": "why it failed, nothing if it did not",
    "phases.NAME.artifacts": "the paths of the files that its tasks were to make",
    "phases.NAME.visits": "how often it was come to",
    "phases.NAME.duration_s": "how many seconds it took",
    "phases.NAME.tasks.NAME": "what a task of it came to, with the names below",
    "tasks.NAME.status": "of a task of this phase that this one needs: pending, running, completed, failed or skipped",
    "tasks.NAME.result": "the JSON that it printed or its `result`, what its function returned, or else its output",
    "tasks.NAME.output": "what it printed on standard output",
    "tasks.NAME.summary": "the last line of it that says something, or what `summary` gives",
    "tasks.NAME.exit_code": "of a command",
    "tasks.NAME.error": "why it failed, nothing if it did not",
    "tasks.NAME.artifacts": "the paths of the files that it was to make",
    "result": f"the task's own result; {_AFTER}",
    "output": f"the task's own output; {_AFTER}",
    "attempt": f"the number of this try; {_WHILE_RUNNING}. In fix and replan, the number of the fix or plan",
    "failure": f"what went wrong: a line, and below it the end of what was printed; {_MENDING}",
    "gate.command": "the command of the gate that failed; only in fix, as all of `gate`",
    "gate.description": "its description",
    "gate.level": "its number",
    "gate.exit_code": "how it ended",
    "gate.stdout": "what it printed on standard output",
    "gate.stderr": "what it printed on standard error",
    "visit": "how often this phase was come to",
    "round": "how often this phase was gone through, by visits, `repeat` and `replan` together",
    "description": "what this phase says that it is for",
    "run.id": "the run",
    "run.workspace": "the folder that it works in, nothing without one",
    "flow.name": "the flow",
    "subject.FIELD": "id, issue, title, body, labels, assignees, branch",
    "messages": "unread messages to the agent that is called: `id`, `from`, `text`, `expects_answer`, `answer_to`",
    "message.id": "the message that an agent is asked to answer, nothing elsewhere; as all of `message`",
    "message.from": "who sent it",
    "message.text": "what it says",
    "conflict.name": "the conflict that an agent is asked about, nothing elsewhere; as all of `conflict`",
    "conflict.question": "what it is about",
    "conflict.round": "the number of the round",
    "conflict.positions": "what each agent said last",
    "knowledge": "what the run was told and has learned: `id`, `text`, `kind`, `source`",
    "budget.NAME.used": "tokens, time, retries, subcalls, tool_calls, money, or a budget under `other`",
    "budget.NAME.limit": "its limit, nothing if there is none",
    "budget.NAME.left": "what is left of it, nothing if there is no limit",
}
"""What each name means, for docs/reference/flow.md."""

VARIABLE_WORDS = {
    "HOLDFAST_RUN": "the run",
    "HOLDFAST_PHASE": "the phase",
    "HOLDFAST_TASK": "the task",
    "HOLDFAST_AGENT": "the agent, nothing where none is called",
    "HOLDFAST_ATTEMPT": "the number of this attempt; in fix and replan, the number of the fix or plan",
    "HOLDFAST_KEY": "of a task with `effect`, a key that is the same in every try: hand it to services that take an "
    "idempotency key",
}
"""What each environment variable means that every command has."""

SOME_VARIABLE_WORDS = {
    "HOLDFAST_INPUT": "what the action's `input` came to, if it has one",
    "HOLDFAST_FAILURE": "what went wrong; in fix and replan",
    "HOLDFAST_MESSAGES": "of an agent: its unread messages, as JSON",
    "HOLDFAST_MESSAGE": "of an agent that is to answer: the message as JSON; its parts in `_ID`, `_FROM` and `_TEXT`",
    "HOLDFAST_CONFLICT": "of an agent that is to take a position or to decide: the conflict as JSON; its parts in "
    "`_NAME`, `_QUESTION`, `_ROUND` and `_POSITIONS`",
    "HOLDFAST_KNOWLEDGE": "of an agent: what the run was told and has learned, as JSON",
}
"""What each variable means that a command has unasked where there is such a fact."""

TASK_FACTS: dict[str, Any] = {
    "status": None,
    "result": ANY,
    "output": None,
    "summary": None,
    "exit_code": None,
    "error": None,
    "artifacts": ANY,
}
_PHASE_FACTS: dict[str, Any] = {
    "status": None,
    "result": ANY,
    "summary": None,
    "error": None,
    "artifacts": ANY,
    "visits": None,
    "duration_s": None,
}
_SUBJECT = dict.fromkeys(("id", "issue", "title", "body", "labels", "assignees", "branch"), ANY)
REPORTED = ("messages", "knowledge", "conflict")
"""What an agent may say in its JSON besides its result."""
ENTRY_VARIABLES = {"HOLDFAST_ENTRY": "{entry}"} | {
    f"HOLDFAST_ENTRY_{part.upper()}": f"{{entry.{part}}}" for part in ("id", "text", "kind", "source")
}
"""What the command that takes entries has in its environment."""
MESSAGE = dict.fromkeys(("id", "from", "text"))
CONFLICT = {**dict.fromkeys(("name", "question", "round")), "positions": ANY}
_BUDGETS = ("tokens", "time", "retries", "subcalls", "tool_calls", "money")
_AMOUNTS = {"used": None, "limit": None, "left": None}
_GATE = dict.fromkeys(("command", "description", "level", "exit_code", "stdout", "stderr"))
FAILURE: dict[str, Any] = {"failure": None, "attempt": None}
GATE_FAILURE: dict[str, Any] = {**FAILURE, "gate": _GATE}


class NameUnknown(UsageError):
    """A name that has no value here."""


def known_names(flow: Flow) -> dict[str, Any]:
    """Return the tree of names that are known everywhere in a flow."""
    return {
        "params": dict.fromkeys(flow.params, ANY),
        "phases": {name: phase_names(name, phase) for name, phase in flow.phases.items()},
        "run": {"id": None, "workspace": None},
        "flow": {"name": None},
        "subject": _SUBJECT if flow.subject else {},
        "budget": dict.fromkeys((*_BUDGETS, *(flow.budget.other if flow.budget else ())), _AMOUNTS),
        "messages": ANY,
        "message": MESSAGE,
        "conflict": CONFLICT,
        "knowledge": ANY,
        "visit": None,
        "round": None,
        "description": None,
    }


def everywhere(names: dict[str, Any], phase: str | None) -> dict[str, Any]:
    """Return the known names with those that are known only in some places of a phase."""
    tasks = names["phases"][phase]["tasks"] if phase in names["phases"] else {}
    return names | {"tasks": tasks, "input": ANY, "result": ANY, "output": None} | GATE_FAILURE


def phase_names(name: str, phase: Phase) -> dict[str, Any]:
    """Return the tree of names below one phase."""
    return {**_PHASE_FACTS, "tasks": dict.fromkeys(phase.work(name), TASK_FACTS)}


def find(tree: Mapping[str, Any], name: str) -> Any:
    """Return what stands at a dotted name; NameUnknown says where it ends, and names the nearest."""
    value: Any = tree
    parts = name.split(".")
    for at, part in enumerate(parts):
        if value is ANY:
            return ANY
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, (list, tuple)) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise NameUnknown(_lost(parts, at, value))
    return value


def leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield every dotted name of a tree that has nothing known below it."""
    for name, below in tree.items():
        if isinstance(below, dict):
            yield from leaves(below, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _lost(parts: list[str], at: int, value: Any) -> str:
    whole, above = ".".join(parts), ".".join(parts[:at])
    if isinstance(value, dict):
        return f"there is no {whole!r}{nearest(parts[at], value)}" + (f" (in {above})" if at else "")
    if isinstance(value, (list, tuple)):
        return f"there is no {whole!r}: {above} is a list of {len(value)}, counted from 0"
    return f"there is no {whole!r}: {above} is {'nothing' if value is None else 'a plain value'}"
