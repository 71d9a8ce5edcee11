"""Values as plain data that JSON and YAML can say and people can read; one way only, so nothing has to be restored.

Times are ISO text, durations seconds, sets and tuples lists, paths and decimals text. What a reader has no use for in
full (bytes, what is very deep) is said by its size. A stored section is read without the types of its program.
"""

from __future__ import annotations

import dataclasses
import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec
import ormsgpack

from holdfast.encode.outcome import Outcome
from holdfast.encode.values import Ext, Packer

_DEEPEST = 60
_MOST_BYTES = 4096
_INT_BITS, _SHOWN_BITS = 60, 4096
_CONTAINERS = (Ext.TUPLE, Ext.SET, Ext.FROZENSET)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as plain data."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and not isinstance(value, Enum):
        return int(value) if value.bit_length() < _INT_BITS else _large(value)
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if depth >= _DEEPEST:
        return f"(nested deeper than {_DEEPEST} levels)"
    if type(value) is Outcome:
        return f"(the result of call {plain(value.path)})"
    if isinstance(value, Mapping):
        return _mapping(list(value.items()), depth)
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item, depth + 1) for item in value), key=repr)
    names = _field_names(value)
    return _scalar(value, depth) if names is None else {name: plain(getattr(value, name), depth + 1) for name in names}


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value)]
    return None


def _large(value: int) -> str:
    """Return a number that few readers of JSON can hold."""
    return str(value) if value.bit_length() < _SHOWN_BITS else f"(a number of {value.bit_length():,} bits)"


def _scalar(value: Any, depth: int) -> Any:
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, (Decimal, UUID, PurePath)):
        return plain(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        shown = {"base64": b64encode(data[:_MOST_BYTES]).decode()}
        return shown if len(data) <= _MOST_BYTES else {**shown, "and_more_bytes": len(data) - _MOST_BYTES}
    return f"({type(value).__qualname__})"


def _mapping(pairs: list[tuple[Any, Any]], depth: int) -> Any:
    """Return a mapping with keys that are text; pairs, where two keys would look the same."""
    named = {key if isinstance(key, str) else str(plain(key, depth + 1)): plain(item, depth + 1) for key, item in pairs}
    if len(named) == len(pairs):
        return {str(plain(key)): item for key, item in named.items()}
    return [[plain(key, depth + 1), plain(item, depth + 1)] for key, item in pairs]


def plain_section(data: bytes) -> Any:
    """Return a stored section's bytes as plain data; ValueError if they are none of ours."""
    try:
        return plain(ormsgpack.unpackb(data, ext_hook=_Extensions().revive))
    except (TypeError, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"cannot be shown ({error})") from None


class _Extensions:
    """Turns extensions into plain data, and types that only their program knows into their parts."""

    def __init__(self) -> None:
        self._packer = Packer()
        self._depth = 0

    def revive(self, code: int, data: bytes) -> Any:
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise ValueError("nested too deeply")
            if code in _CONTAINERS:
                return ormsgpack.unpackb(data, ext_hook=self.revive)
            if code == Ext.MAP:
                pairs = [(key, item) for key, item in ormsgpack.unpackb(data, ext_hook=self.revive)]
                return _mapping(pairs, self._depth)
            if code == Ext.REGISTERED:
                name, parts = ormsgpack.unpackb(data, ext_hook=self.revive)
                return {"type": name, "value": parts}
            return plain(self._packer.unpack(ormsgpack.packb(ormsgpack.Ext(code, data)), "a section"))
        finally:
            self._depth -= 1
