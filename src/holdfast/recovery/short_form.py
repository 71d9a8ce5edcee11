"""Values as people and JSON see them: bounded, escaped, and never by running code of the value's own."""

from __future__ import annotations

import math
import reprlib
from datetime import datetime
from typing import Any

from holdfast.recovery.fingerprints import fields_of

_MOST_ITEMS = 50
_DEEPEST = 8


class _Short(reprlib.Repr):
    """A representation of a few items of each container, with what is not printable escaped."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 6
        self.maxstring = self.maxother = self.maxlong = width

    def repr_instance(self, x: Any, level: int) -> str:
        if type(x) is datetime:
            return x.isoformat(" ", "seconds")
        fields = fields_of(type(x))
        if not fields:
            return super().repr_instance(x, level)
        if level <= 0:
            return f"{type(x).__name__}(...)"
        shown = (f"{name}={self.repr1(getattr(x, name, None), level - 1)}" for name in fields[: self.maxdict])
        return f"{type(x).__name__}({', '.join(shown)}{', ...' if len(fields) > self.maxdict else ''})"

    def repr_bytes(self, x: bytes, _level: int) -> str:
        if len(x) <= self.maxstring:
            return repr(x)
        return f"{x[: self.maxstring]!r}... ({len(x):,} bytes)"

    def repr_str(self, x: str, _level: int) -> str:
        if len(x) <= self.maxstring:
            return repr(x)
        return f"{x[: self.maxstring]!r}... ({len(x):,} characters)"


def short(value: Any, width: int = 100) -> str:
    """Return a value in one line of about this width."""
    text = _Short(width).repr(value)
    return text if len(text) <= 2 * width else f"{text[: 2 * width - 3]}..."


def jsonable(value: Any, *, max_chars: int = 2_000, depth: int = 0) -> Any:
    """Return a value as JSON can hold it; what JSON has no word for, and what is too long, as short text."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if abs(value) < 1 << 53 else str(value)[:max_chars]
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is str and len(value) <= max_chars and value.isascii():
        return value
    if kind is str:
        text = value[:max_chars].encode("utf-8", "backslashreplace").decode()
        return text if len(value) <= max_chars else f"{text}... ({len(value):,} characters)"
    if kind is list or kind is tuple or kind is dict:
        if depth >= _DEEPEST:
            return short(value)
        more = {"...": f"{len(value) - _MOST_ITEMS:,} more"} if len(value) > _MOST_ITEMS else {}
        if kind is dict:
            items = list(value.items())[:_MOST_ITEMS]
            shown = {_key(key): jsonable(item, max_chars=max_chars, depth=depth + 1) for key, item in items}
            return shown | more
        listed = [jsonable(item, max_chars=max_chars, depth=depth + 1) for item in value[:_MOST_ITEMS]]
        return [*listed, more] if more else listed
    fields = fields_of(kind)
    if fields and depth < _DEEPEST:
        return {name: jsonable(getattr(value, name, None), max_chars=max_chars, depth=depth + 1) for name in fields}
    return short(value, min(max_chars, 200))


def _key(key: Any) -> str:
    return key if type(key) is str and key.isprintable() and len(key) <= 200 else short(key)  # noqa: PLR2004
