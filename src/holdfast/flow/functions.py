"""Python functions that a flow names as `module:function`.

Nothing is imported because a flow names it: a function is one that the caller gives, or one of a module that the
program has imported itself. Of a flow that was read from a store, only those that the caller gives are called.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from holdfast.errors import FlowInvalid, UsageError
from holdfast.flow.read import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.flow.model import Action, Flow


def resolve_functions(
    flow: Flow, given: Mapping[str, Callable[..., Any]] | None, *, trusted: bool
) -> dict[str, Callable[..., Any]]:
    """Return every function that a flow names; FlowInvalid lists those that are not to be had."""
    found: dict[str, Callable[..., Any]] = {}
    problems: list[str] = []
    for name in dict.fromkeys(_named(flow)):
        try:
            found[name] = given[name] if given and name in given else _loaded(name, trusted=trusted)
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise FlowInvalid("its functions are not there", flow.name, tuple(problems))
    return found


def _named(flow: Flow) -> Iterator[str]:
    for agent in flow.agents.values():
        if agent.call:
            yield agent.call
    for name, phase in flow.phases.items():
        tasks = phase.work(name).values()
        actions: list[Action | None] = [*tasks, *(task.fix for task in tasks), phase.replan]
        yield from (action.call for action in actions if action is not None and action.call)


def _loaded(name: str, *, trusted: bool) -> Callable[..., Any]:
    if not trusted:
        raise UsageError(f"{name!a} stands in a stored flow, so it is not looked for: give it with functions=")
    module, _, path = name.partition(":")
    value: Any = sys.modules.get(module)
    if value is None:
        raise UsageError(f"{name!a}: this program has not imported {module!a}: do so, or give functions=")
    for part in path.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{name!a}: there is no {part!a}{nearest(part, [x for x in dir(value) if x[0] != '_'])}")
        value = getattr(value, part)
    if not callable(value):
        raise UsageError(f"{name!a} is a {type(value).__name__}, which cannot be called")
    return value  # type: ignore[no-any-return]
