"""Pages of stored values: the children of one place in a section, or a stretch of its text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.documents import plain
from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.web import answers
    from holdfast.web.site import Handle

MOST_ITEMS = 500
_PREVIEW = 160
_TEXT_PAGE = 64 * 1024
_DEEPEST = 200
_LINE = 4  # children that fit a line


def steps_of(path: str) -> list[str | int]:
    """Return the steps of a path that is given as a JSON list of keys and indexes."""
    if not path:
        return []
    try:
        steps = json.loads(path)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"path: give a JSON list of keys and indexes ({error})") from None
    if not isinstance(steps, list) or len(steps) > _DEEPEST or not all(type(step) in (str, int) for step in steps):
        raise UsageError("path: give a JSON list of keys and indexes")
    return steps


def at(value: Any, steps: Sequence[str | int]) -> Any:
    """Return what stands at a place; NotFound if there is none."""
    value = _opened(value)
    for step in steps:
        is_key = isinstance(value, dict) and isinstance(step, str)
        is_index = isinstance(value, list) and isinstance(step, int) and step >= 0
        is_there = (is_key and step in value) or (is_index and step < len(value))  # type: ignore[operator]
        if not is_there:
            raise NotFound("place in this section", json.dumps(steps))
        value = _opened(value[step])
    return value


def _opened(value: Any) -> Any:
    """Return a value as a map, a list or a scalar; what it holds stays as it is."""
    if isinstance(value, (dict, list, str)):
        return value
    return list(value) if isinstance(value, (tuple, set, frozenset)) else plain(value)


def excerpt(handle: Handle, section: str, value: Any, steps: Sequence[str | int], *, offset: int, limit: int) -> Any:
    """Return what a page shows of a place, redacted in its place: rules go by the names on the way as well.

    No more is cleaned than is shown: of a million keys that would take seconds.
    """
    limit = min(limit, MOST_ITEMS)
    if isinstance(value, dict):
        shown: Any = {key: _sample(value[key]) for key in list(value)[offset : offset + limit]}
    else:
        shown = list(map(_sample, value[offset : offset + limit])) if isinstance(value, list) else value
    for step in reversed(steps):
        shown = {step: shown} if isinstance(step, str) else [shown]
    shown = handle.clean(shown, section)
    for step in steps:
        within = isinstance(shown, dict if isinstance(step, str) else list)
        if not within:
            return shown  # something on the way was taken out
        (shown,) = shown.values() if isinstance(shown, dict) else shown  # its name may have been taken out
    return shown


def _sample(value: Any, depth: int = 1) -> Any:
    """Return as much of a child as its line shows."""
    value = _opened(value)
    if isinstance(value, dict):
        keys = list(value)[: _LINE + 1] if depth else list(value)[:1]
        return {key: _sample(value[key], depth - 1) if depth else None for key in keys}
    if isinstance(value, list):
        return [_sample(item, depth - 1) if depth else None for item in value[: _LINE + 1 if depth else 1]]
    return value


def page(value: Any, shown: Any, *, offset: int = 0) -> answers.ValuePage:
    """Return one page of a value from its excerpt: children with previews, or a stretch of a text."""
    kind = kind_of(shown)
    if kind == "text":
        text: str = shown[offset : offset + _TEXT_PAGE]
        return {"kind": kind, "total": len(shown), "offset": offset, "text": text}
    if kind not in ("map", "list"):
        return {"kind": kind, "total": 1, "offset": 0, "text": short(shown)}
    within = list(value)[offset : offset + len(shown)] if kind == "map" else range(offset, offset + len(shown))
    names = list(shown) if kind == "map" else list(within)
    told = list(shown.values()) if kind == "map" else shown
    pairs = zip(names, told, within, strict=False)  # two names that are both taken out have become one
    items = [_child(name, item, value[key]) for name, item, key in pairs]
    return {"kind": kind, "total": len(value), "offset": offset, "items": items}


def _child(key: str | int, item: Any, stored: Any) -> answers.Child:
    """Return what a page says of one child: its preview from the excerpt, how many there are from the value itself."""
    kind = kind_of(item)
    told: answers.Child = {"key": key, "kind": kind, "preview": short(item)}
    if kind == "text":
        told["count"] = len(item)
    elif kind in ("map", "list"):
        told["count"] = len(_opened(stored))
    return told


def kind_of(value: Any) -> str:
    """Return a word for the kind of a plain value."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, (int, float)):
        return "number"
    return "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "text"


def short(value: Any) -> str:
    """Return a value in a few characters; looks at no more of it than it shows."""
    if isinstance(value, str):
        return value[:_PREVIEW] + ("…" if len(value) > _PREVIEW else "")
    if isinstance(value, dict):
        shown = ", ".join(f"{key[:40]}: {_tiny(item)}" for key, item in list(value.items())[:_LINE])
        return f"{{{shown}{', …' if len(value) > _LINE else ''}}}"[:_PREVIEW]
    if isinstance(value, list):
        return f"[{', '.join(map(_tiny, value[:_LINE]))}{', …' if len(value) > _LINE else ''}]"[:_PREVIEW]
    return json.dumps(value)[:_PREVIEW]


def _tiny(value: Any) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    if isinstance(value, str):
        return json.dumps(value[:30], ensure_ascii=False)
    return json.dumps(value)[:30]
