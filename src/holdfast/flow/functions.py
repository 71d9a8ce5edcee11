"""Python functions that a flow names as `module:function`.

Nothing is imported because a flow names it: a function is one that the caller gives, or one of a module that the
program has imported itself. Of a flow that was read from a store, only those that the caller gives are called.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.flow.load import invalid, read_document
from holdfast.flow.read import Problem, nearest

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.flow.model import Action, Flow
    from holdfast.flow.text import Path


def resolve_functions(
    flow: Flow, given: Mapping[str, Callable[..., Any]] | None, *, trusted: bool
) -> dict[str, Callable[..., Any]]:
    """Return every function that a flow names; FlowInvalid lists those that are not to be had."""
    found: dict[str, Callable[..., Any]] = {}
    problems: list[Problem] = []
    for path, name in _named(flow):
        try:
            found[name] = given[name] if given and name in given else _loaded(name, trusted=trusted)
        except UsageError as error:
            problems.append(Problem(path, str(error)))
    if problems:
        raise invalid("its functions are not there", flow.name, problems)
    return found


def check_functions(flow: Flow, file: str | os.PathLike[str]) -> None:
    """Raise FlowInvalid, with line and path, if functions of a flow file are not to be had."""
    problems: list[Problem] = []
    for path, name in _named(flow):
        try:
            _loaded(name, trusted=True)
        except UsageError as error:
            problems.append(Problem(path, str(error)))
    if problems:
        raise invalid("its functions are not there", str(file), problems, read_document(file))


def _named(flow: Flow) -> Iterator[tuple[Path, str]]:
    for name, agent in flow.agents.items():
        if agent.call:
            yield ("agents", name, "call"), agent.call
    for name, phase in flow.phases.items():
        above: Path = ("phases", name)
        actions: dict[Path, Action | None] = {(*above, "replan"): phase.replan}
        for task_name, task in phase.work(name).items():
            place = (*above, "tasks", task_name) if phase.tasks else above
            actions |= {place: task, (*place, "fix"): task.fix}
        yield from (
            ((*path, "call"), action.call) for path, action in actions.items() if action is not None and action.call
        )


def _loaded(name: str, *, trusted: bool) -> Callable[..., Any]:
    if not trusted:
        raise UsageError(f"{name!r} stands in a stored flow, so it is not looked for: give it with functions=")
    module, _, path = name.partition(":")
    value: Any = sys.modules.get(module)
    if value is None:
        raise UsageError(
            f"{name!r}: {module!r} is not imported, and a flow imports nothing: `holdfast run --import {module}`; in "
            "Python, import it or give functions="
        )
    for part in path.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{name!r}: there is no {part!r}{nearest(part, [x for x in dir(value) if x[0] != '_'])}")
        value = getattr(value, part)
    if not callable(value):
        raise UsageError(f"{name!r} is a {type(value).__name__}, which cannot be called")
    return value  # type: ignore[no-any-return]
