"""Deltas: what changed between two values of a section, small enough to be a journal record, and how to apply it.

A delta is a list of changes: `[path, "set", value]`, `[path, "add", items]` (to the end of a list) or `[path, "drop"]`.
Values are compared by identity first, because parts of a run replace what they change and share the rest.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

from holdfast.errors import IntegrityError
from holdfast.model.sections import SectionValue

SET, ADD, DROP = "set", "add", "drop"
_DEEPEST = 6  # a part's own structure goes no deeper; what lies below is a value of the user's, and is set whole
Change = list[Any]
Delta = list[Change]


def delta_of(before: Any, after: Any) -> Delta:
    """Return the changes that make one value of the other; none if they are equal."""
    changes: Delta = []
    _compare(before, after, [], changes)
    return changes


def _compare(before: Any, after: Any, path: list[Any], changes: Delta) -> None:
    if before is after:
        return
    if type(before) is type(after) and len(path) < _DEEPEST:
        if isinstance(after, SectionValue):
            for name in after.__struct_fields__:
                _compare(getattr(before, name), getattr(after, name), [*path, name], changes)
            return
        if isinstance(after, dict):
            _compare_mappings(before, after, path, changes)
            return
        if isinstance(after, list) and len(after) >= len(before):
            _compare_lists(before, after, path, changes)
            return
    if type(before) is not type(after) or before != after:
        changes.append([path, SET, after])


def _compare_mappings(before: dict[Any, Any], after: dict[Any, Any], path: list[Any], changes: Delta) -> None:
    if not before.keys() <= after.keys():
        changes += [[[*path, key], DROP] for key in before if key not in after]
    # Most are the same object: of a thousand tasks one has changed, and this is asked for at each of them.
    is_alike = len(before) == len(after) and all(map(operator.eq, before, after))
    found = map(operator.is_not, before.values(), after.values())
    for key, value in itertools.compress(after.items(), found) if is_alike else after.items():
        if key in before:
            _compare(before[key], value, [*path, key], changes)
        else:
            changes.append([[*path, key], SET, value])


def _compare_lists(before: list[Any], after: list[Any], path: list[Any], changes: Delta) -> None:
    for number, item in enumerate(before):
        if item is not after[number]:
            _compare(item, after[number], [*path, number], changes)
    if len(after) > len(before):
        changes.append([path, ADD, after[len(before) :]])


def applied(value: Any, changes: Any) -> Any:
    """Return a plain value with changes made to it; IntegrityError if they do not fit it."""
    try:
        for change in changes:
            value = _apply(value, change[0], change[1], change[2] if len(change) > 2 else None)  # noqa: PLR2004
    except (TypeError, KeyError, IndexError, ValueError, AttributeError, RecursionError) as error:
        raise IntegrityError(f"a change in the journal does not fit what it changes ({error!r})") from error
    return value


def _apply(value: Any, path: list[Any], kind: str, given: Any) -> Any:
    if not path:
        if kind == ADD:
            return [*value, *given]
        if kind != SET:
            raise ValueError(kind)
        return given
    name, rest = path[0], path[1:]
    copied = dict(value) if isinstance(value, dict) else list(value)
    if kind == DROP and not rest:
        del copied[name]
    elif not rest and kind == SET:
        copied[name] = given
    else:
        inner = copied[name] if not isinstance(copied, dict) or name in copied else [] if kind == ADD else {}
        copied[name] = _apply(inner, rest, kind, given)
    return copied
