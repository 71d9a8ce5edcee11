"""Stored values as plain JSON, for people and scripts: readable, not meant to be read back."""

from __future__ import annotations

import base64
import dataclasses
import math
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Any

import msgspec

from holdfast.model.redaction import Redacted

_DEEPEST = 200
_LONGEST_BITS = 14_000  # Python writes no number of more than 4,300 digits


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can say it: times as ISO text, bytes as base64, sets and tuples as lists."""
    if depth > _DEEPEST:
        return "..."
    if value is None or (isinstance(value, (bool, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, int):
        return value if value.bit_length() <= _LONGEST_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [plain(item, depth + 1) for item in items]
    return _other(value, depth)


def _other(value: Any, depth: int) -> Any:
    if isinstance(value, Redacted):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, msgspec.Struct):
        return {name: plain(item, depth + 1) for name, item in msgspec.structs.asdict(value).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name), depth + 1) for name in names}
    return str(value)
