"""Hypothesis strategies for everything that a checkpoint can hold, and the exact comparison that goes with them.

Needs hypothesis.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")

HOSTILE = (
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"__class__": "os.system", "__args__": ["true"]},
    {"py/object": "os.system", "py/reduce": [{"py/type": "os.system"}, {"py/tuple": ["true"]}]},
    {"__type__": "tuple", "__value__": [1]},
    {"$ref": "#/a", "$type": "System.Diagnostics.Process"},
    {"!!python/object/apply:os.system": ["true"]},
    {"__proto__": {"polluted": True}},
    {"": {"\0": {"a.b": {"a[0]": None}}}},
)


def text() -> st.SearchStrategy[str]:
    """All text, lone surrogates included."""
    return st.text(st.characters(exclude_categories=()), max_size=20)


def moments() -> st.SearchStrategy[datetime | time]:
    """Datetimes and times: naive, at fixed offsets, in regions, on both sides of a fold."""
    offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
    zones: st.SearchStrategy[Any] = st.one_of(st.none(), st.just(UTC), offsets, st.sampled_from(ZONES).map(ZoneInfo))
    folded: tuple[st.SearchStrategy[Any], ...] = (
        st.datetimes(timezones=zones),
        st.datetimes(datetime(2024, 10, 27), datetime(2024, 10, 28), timezones=zones),  # noqa: DTZ001 - the naive bounds
        st.times(timezones=zones),
    )
    return st.builds(lambda moment, fold: moment.replace(fold=fold), st.one_of(*folded), st.integers(0, 1))


def numbers() -> st.SearchStrategy[Any]:
    """Numbers of every kind, at the edges of their encodings and far beyond."""
    edges = [
        sign * (1 << bits) + step for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1) for step in (-1, 0, 1)
    ]
    return st.one_of(
        st.booleans(),
        st.integers(),
        st.sampled_from(edges),
        st.integers(-(1 << 4096), 1 << 4096),
        st.floats(),
        st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324]),
        st.decimals(allow_nan=False),
        st.sampled_from(
            [Decimal("NaN"), Decimal("-NaN12"), Decimal("Infinity"), Decimal("-0E+7"), Decimal("1E-999999")]
        ),
    )


def paths() -> st.SearchStrategy[PurePath]:
    """Paths of this system and pure paths of both, names that are not text included."""
    names = st.lists(
        st.one_of(st.sampled_from(["a", "..", ".", "b c", "\udcff"]), st.text("abé", max_size=5)), max_size=4
    )
    kinds = st.sampled_from([PurePosixPath, PureWindowsPath, type(Path())])
    return st.builds(lambda kind, parts: kind(*parts), kinds, names)


def atoms() -> st.SearchStrategy[Any]:
    """Supported values without parts; all of them can be keys."""
    return st.one_of(
        st.none(),
        numbers(),
        text(),
        st.binary(max_size=40),
        moments(),
        st.dates(),
        st.timedeltas(),
        st.uuids(),
        paths(),
    )


def keys() -> st.SearchStrategy[Any]:
    """Supported values that can be keys and members of sets."""
    return st.recursive(
        atoms(),
        lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
        max_leaves=3,
    )


def values(objects: st.SearchStrategy[Any] | None = None, *, max_leaves: int = 20) -> st.SearchStrategy[Any]:
    """Every supported value, nested; `objects` adds instances of classes that the test registers."""
    leaves = [atoms(), st.sampled_from(HOSTILE), st.sampled_from([Decimal("sNaN"), Decimal("sNaN7")])]
    if objects is not None:
        leaves.append(objects)

    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.lists(inner, max_size=5),
            st.lists(inner, max_size=5).map(tuple),
            st.dictionaries(st.text(max_size=8), inner, max_size=5),
            st.dictionaries(keys(), inner, max_size=4),
            st.sets(keys(), max_size=4),
            st.frozensets(keys(), max_size=4),
        )

    return st.recursive(st.one_of(*leaves), containers, max_leaves=max_leaves)


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are alike to the last type, sign of zero, NaN, fold and order of keys."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Enum):
        return left is right
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and all(any(same(one, other) for other in right) for one in left)
    fields = _fields(left)
    return _same_atoms(left, right) if fields is None else same(fields, _fields(right))


def _same_atoms(left: Any, right: Any) -> bool:
    if isinstance(left, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, (datetime, time)):
        return _moment(left) == _moment(right)
    if isinstance(left, PurePath):
        return str(left) == str(right)
    return bool(left == right)


def _moment(value: datetime | time) -> tuple[Any, ...]:
    zone = value.tzinfo
    named = zone.key if isinstance(zone, ZoneInfo) else value.utcoffset()
    return value.replace(tzinfo=None), value.fold, type(zone), named


def _fields(value: Any) -> dict[str, Any] | None:
    """Return what an object of a registered class is made of; None for an atom."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}
    if hasattr(value, "__pydantic_fields_set__"):
        inner = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
        return {name: getattr(value, name) for name in inner}
    return None
