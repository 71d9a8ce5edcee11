import dataclasses
from collections import UserDict
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from typing import NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from holdfast.encode.types import TypeRegistry, can_adapt
from holdfast.encode.values import Packer
from holdfast.errors import UsageError, ValueRefused


@dataclasses.dataclass
class Old:
    a: int
    b: int = 2


class Money:
    def __init__(self, cents):
        self.cents = cents


def there_and_back(value, types):
    packer = Packer(types)
    return packer.unpack(packer.pack(value, "state"), "state")


def test_a_class_is_found_by_itself_and_by_its_full_name_alone():
    types = TypeRegistry([Old])
    assert types.for_class(Old) is types.for_name(f"{__name__}.Old")
    assert types.for_name("Old") is None
    assert types.for_class(type("Older", (Old,), {})) is None


def test_a_class_can_be_registered_under_a_name_that_survives_moving_it():
    types = TypeRegistry()
    types.register(Old, name="old")
    assert there_and_back(Old(1), types) == Old(1)
    assert types.for_name("old").cls is Old


def test_a_class_without_fields_brings_its_own_two_functions():
    types = TypeRegistry()
    types.register(Money, take_apart=lambda money: money.cents, put_together=Money)
    assert there_and_back([Money(5)], types)[0].cents == 5


def test_registering_twice_is_fine_and_two_classes_under_one_name_are_not():
    types = TypeRegistry([Old, Old])
    with pytest.raises(UsageError, match="name="):
        types.register(Money, name=f"{__name__}.Old", take_apart=vars, put_together=vars)


@pytest.mark.parametrize("cls", [Money, int, object, type(None), UserDict])
def test_a_class_that_shows_no_fields_is_refused_with_what_to_do(cls):
    assert not can_adapt(cls)
    with pytest.raises(UsageError, match="take_apart= and put_together="):
        TypeRegistry([cls])


@pytest.mark.parametrize("container", [dict, list, set, bytearray])
def test_a_dataclass_that_is_also_a_container_would_lose_its_content_and_is_refused(container):
    cls = dataclasses.dataclass(type("Bag", (container,), {"__annotations__": {"n": int}}))
    with pytest.raises(UsageError, match=f"is also a {container.__name__}"):
        TypeRegistry([cls])


def test_every_kind_of_class_with_fields_is_taken():
    class Colour(Enum):
        RED = 1

    class Struct(msgspec.Struct):
        a: int

    class Model(pydantic.BaseModel):
        a: int

    class Tuple(NamedTuple):
        a: int

    @attrs.define
    class Attrs:
        a: int

    for cls in (Colour, Struct, Model, Tuple, Attrs, Old):
        assert can_adapt(cls)
        TypeRegistry([cls])


def renamed(cls, name="thing"):
    types = TypeRegistry()
    types.register(cls, name=name)
    return Packer(types)


@dataclasses.dataclass
class New:
    a: int
    c: int = 3


def test_a_dataclass_that_changed_since_is_an_error_that_names_the_fields():
    data = renamed(Old).pack(Old(1), "state")
    with pytest.raises(UsageError, match=r"with unknown \['b'\]"):
        renamed(New).unpack(data, "state")


class ModelBefore(pydantic.BaseModel):
    a: int


class ModelWithDefault(pydantic.BaseModel):
    a: int
    b: list[int] = pydantic.Field(default_factory=list)


class ModelWithMore(pydantic.BaseModel):
    a: int
    b: int


def test_a_pydantic_model_gets_the_defaults_of_new_fields_but_is_never_hollow():
    data = renamed(ModelBefore).pack(ModelBefore(a=1), "state")
    assert renamed(ModelWithDefault).unpack(data, "state") == ModelWithDefault(a=1)
    with pytest.raises(UsageError, match=r"without \['b'\]"):
        renamed(ModelWithMore).unpack(data, "state")


def test_pydantic_keeps_which_fields_were_set_and_its_root():
    class Root(pydantic.RootModel):
        root: list[int]

    packer = renamed(Root)
    assert packer.unpack(packer.pack(Root([1, 2]), "state"), "state") == Root([1, 2])
    packer = renamed(ModelWithDefault)
    twin = packer.unpack(packer.pack(ModelWithDefault(a=1), "state"), "state")
    assert twin.model_fields_set == {"a"}
    assert twin.model_dump() == {"a": 1, "b": []}
    assert twin.model_copy(update={"a": 2}).a == 2


@dataclasses.dataclass
class Before:
    a: int


@dataclasses.dataclass
class After:
    a: int
    b: int = 7
    c: list[int] = dataclasses.field(default_factory=list)


def test_a_dataclass_gets_the_defaults_of_fields_that_it_gained():
    data = renamed(Before).pack(Before(1), "state")
    assert renamed(After).unpack(data, "state") == After(1, 7, [])


class DaylightSaving(tzinfo):
    """A zone as in Python's own documentation: its offset without a date is not the date's."""

    def utcoffset(self, moment):
        return timedelta(hours=-5 if moment is None else -4)

    def dst(self, moment):
        return timedelta(0)


def test_a_time_zone_whose_offset_depends_on_the_date_is_refused_not_shifted():
    with pytest.raises(ValueRefused, match="time zone"):
        Packer().pack(datetime(2024, 7, 1, 12, tzinfo=DaylightSaving()), "state")
