"""Values as bytes that are equal exactly when the values are alike to the last type: comparing at memory speed.

Not every value has such bytes; one that has none is compared by walking it. They are never stored.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
import ormsgpack

if TYPE_CHECKING:
    from collections.abc import Hashable

_STRICT = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_SORT_KEYS
)
_BY_TEXT = frozenset({int, date, timedelta, UUID})  # their repr says all
_TUPLE, _FIELDS, _TEXT, _SET, _FROZENSET = range(1, 6)


class Vague(NamedTuple):
    """What stands for a value that has no exact bytes: alike values share it, and others may."""

    value: int


Print = Any  # text and bytes stand for themselves, a Vague for what has no exact bytes


def print_of(value: Any) -> Print:
    """Return what stands for a value when it is compared with many others."""
    if type(value) is str:
        return value
    exact = exact_bytes(value)
    return Vague(_vague(value, 0)) if exact is None else exact


def exact_bytes(value: Any) -> bytes | None:
    """Return bytes that only values alike to the last type share, None if this one has none."""
    try:
        return ormsgpack.packb(value, default=_extend, option=_STRICT)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return None


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the fields of a dataclass, Struct, attrs class, pydantic model or NamedTuple; () for another type."""
    found = _known_fields.get(kind)
    if found is None:
        found = _known_fields[kind] = _fields(kind)
    return found


_known_fields: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()


def _fields(kind: type) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return tuple(field.name for field in attributes)
    named = getattr(kind, "__pydantic_fields__", None) or (issubclass(kind, tuple) and getattr(kind, "_fields", None))
    return tuple(named or ())


def float_token(value: float) -> Hashable:
    """Return what tells floats apart: NaN is like NaN, and 0.0 is not like -0.0."""
    return "nan" if math.isnan(value) else (value, math.copysign(1, value))


def moment_token(value: datetime | time) -> Hashable:
    """Return what tells times apart, their zone and fold included."""
    zone = value.tzinfo
    return value.replace(tzinfo=None), value.fold, type(zone), getattr(zone, "key", None) or value.utcoffset()


def _extend(value: Any) -> ormsgpack.Ext:
    """Encode what the native encoder does not; TypeError for what has no exact bytes."""
    kind = type(value)
    if kind is tuple:
        return ormsgpack.Ext(_TUPLE, _packed(list(value)))
    if kind is set or kind is frozenset:
        return ormsgpack.Ext(_SET if kind is set else _FROZENSET, _packed(sorted(_packed(item) for item in value)))
    if kind in _BY_TEXT:
        return ormsgpack.Ext(_TEXT, f"{kind.__name__} {value!r}".encode())
    if kind is datetime or kind is time:
        return ormsgpack.Ext(_TEXT, f"{kind.__name__} {moment_token(value)!r}".encode())
    if kind is Decimal:
        return ormsgpack.Ext(_TEXT, f"Decimal {value.as_tuple()!r}".encode())
    fields = fields_of(kind)
    if not fields:
        raise TypeError(kind.__name__)
    return ormsgpack.Ext(_FIELDS, _packed([id(kind), *(getattr(value, field) for field in fields)]))


def _packed(value: Any) -> bytes:
    return ormsgpack.packb(value, default=_extend, option=_STRICT)


def _vague(value: Any, depth: int) -> int:
    """Return a hash of type, size and what is inside, to a depth."""
    kind = type(value)
    if depth < 4:  # noqa: PLR2004 - what is further down seldom tells values apart, and comparing them does
        if kind is list or kind is tuple:
            return hash((kind, *(_vague(item, depth + 1) for item in value)))
        if kind is dict:
            return hash((kind, frozenset((_hash(key), _vague(item, depth + 1)) for key, item in value.items())))
    return hash((kind, _hash(value)))


def _hash(value: Any) -> int:
    """Return a hash that alike values share, 0 for what has none of its own."""
    if isinstance(value, float) or getattr(type(value), "__hash__", None) is object.__hash__:
        return 0  # of NaN and of an object that tells only itself from others, a hash says nothing
    try:
        return hash(value)
    except (TypeError, ValueError, RecursionError):
        return 0
