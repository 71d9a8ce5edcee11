"""Pages of stored values: the children of one place in a section, or a stretch of its text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.web import answers

MOST_ITEMS = 500
_PREVIEW = 160
_TEXT_PAGE = 64 * 1024
_DEEPEST = 200


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
    for step in steps:
        is_key = isinstance(value, dict) and isinstance(step, str)
        is_index = isinstance(value, list) and isinstance(step, int) and step >= 0
        is_there = (is_key and step in value) or (is_index and step < len(value))  # type: ignore[operator]
        if not is_there:
            raise NotFound("place in this section", json.dumps(steps))
        value = value[step]
    return value


def page(value: Any, *, offset: int = 0, limit: int = 50) -> answers.ValuePage:
    """Return one page of a value: so many children with previews, or a stretch of a text."""
    kind = kind_of(value)
    if kind == "text":
        text: str = value[offset : offset + _TEXT_PAGE]
        return {"kind": kind, "total": len(value), "offset": offset, "text": text}
    if kind not in ("map", "list"):
        return {"kind": kind, "total": 1, "offset": 0, "text": short(value)}
    limit = min(limit, MOST_ITEMS)
    if kind == "map":
        items = [(key, value[key]) for key in list(value)[offset : offset + limit]]
    else:
        items = list(enumerate(value[offset : offset + limit], offset))
    return {"kind": kind, "total": len(value), "offset": offset, "items": [child(key, item) for key, item in items]}


def child(key: str | int, item: Any) -> answers.Child:
    """Return what a page says of one child."""
    kind = kind_of(item)
    told: answers.Child = {"key": key, "kind": kind, "preview": short(item)}
    if kind in ("map", "list", "text"):
        told["count"] = len(item)
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
        shown = ", ".join(f"{key[:40]}: {_tiny(item)}" for key, item in list(value.items())[:4])
        return f"{{{shown}{', …' if len(value) > 4 else ''}}}"[:_PREVIEW]  # noqa: PLR2004 - as many as fit a line
    if isinstance(value, list):
        return f"[{', '.join(map(_tiny, value[:4]))}{', …' if len(value) > 4 else ''}]"[:_PREVIEW]  # noqa: PLR2004
    return json.dumps(value)[:_PREVIEW]


def _tiny(value: Any) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    if isinstance(value, str):
        return json.dumps(value[:30], ensure_ascii=False)
    return json.dumps(value)[:30]
