"""The names that templates and conditions may use, and how a dotted name finds its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.flow.read import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.flow.model import Flow, Phase

ANY: Any = object()
"""Below this name everything is allowed: it is known only when the flow runs."""

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
_BUDGETS = ("tokens", "time", "retries", "subcalls", "tool_calls", "money")
_AMOUNTS = {"used": None, "limit": None, "left": None}
_GATE = dict.fromkeys(("command", "description", "level", "exit_code", "stdout", "stderr"))
FAILURE: dict[str, Any] = {"failure": None, "attempt": None, "gate": _GATE}


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
        "visit": None,
        "round": None,
    }


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


def finder(tree: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a function from names to their values in a tree."""
    return lambda name: find(tree, name)


def _lost(parts: list[str], at: int, value: Any) -> str:
    whole, above = ".".join(parts), ".".join(parts[:at])
    if isinstance(value, dict):
        return f"there is no {whole!a}{nearest(parts[at], value)}" + (f" (in {above})" if at else "")
    if isinstance(value, (list, tuple)):
        return f"there is no {whole!a}: {above} is a list of {len(value)}, counted from 0"
    return f"there is no {whole!a}: {above} is {'nothing' if value is None else 'a plain value'}"
