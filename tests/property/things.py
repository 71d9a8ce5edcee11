"""Classes of a user's, one of each kind that can be registered."""

from __future__ import annotations

import dataclasses
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
from hypothesis import strategies as st

from holdfast.encode.types import TypeRegistry
from holdfast.testing.strategies import values


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1
    HIGH = 1 << 80


class Mood(StrEnum):
    CALM = "calm"


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Note:
    title: Any
    body: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """Its constructor changes what it is given, so going through it again would be seen."""

    raw: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", [self.raw])


@attrs.define
class Shelf:
    _hidden: Any
    items: Any = attrs.field(default=None, converter=lambda item: (item,))


class Model(pydantic.BaseModel):
    """Aliases that swap, extras, private attributes and a hook: what model_construct would trip over."""

    model_config = pydantic.ConfigDict(extra="allow", populate_by_name=True, arbitrary_types_allowed=True)

    first: Any = pydantic.Field(default=None, alias="second")
    second: Any = pydantic.Field(default=None, alias="first")
    _count: int = pydantic.PrivateAttr(default=0)

    def model_post_init(self, _context: Any, /) -> None:
        self._count += 1


class Point(msgspec.Struct):
    x: Any
    y: Any = 0

    def __post_init__(self) -> None:
        self.y = (self.y,)


class Pair(NamedTuple):
    left: Any
    right: Any


ALL = (Colour, Level, Mood, Access, Note, Frozen, Shelf, Model, Point, Pair)


def registry() -> TypeRegistry:
    return TypeRegistry(ALL)


def objects() -> st.SearchStrategy[Any]:
    inner = values(max_leaves=3)
    members = st.sampled_from([*Colour, *Level, *Mood, *Access, Access.READ | Access.WRITE])
    return st.one_of(
        members,
        st.builds(Note, inner, inner),
        st.builds(Frozen, inner),
        st.builds(Shelf, inner, inner),
        st.builds(lambda one, two, more: Model(first=one, second=two, more=more), inner, inner, inner),
        st.builds(lambda one: Model.model_validate({"first": one}), inner),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(lambda one: Note(Point(one, Pair(one, [Level.HIGH]))), inner),
    )
