"""Which classes of the user's may stand in a checkpoint: only those registered by name, in code.

Decoding looks a stored name up here and nowhere else; nothing is imported or called because data names it.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TypeAdapter(NamedTuple):
    """How one class becomes a plain value and comes back."""

    name: str
    cls: type
    take_apart: Callable[[Any], Any]
    put_together: Callable[[Any], Any]


class TypeRegistry:
    """The classes that a caller allows, by stored name and by class."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._by_name: dict[str, TypeAdapter] = {}
        self._by_class: dict[type, TypeAdapter] = {}
        for cls in types:
            self.register(cls)

    def register(
        self,
        cls: type,
        *,
        name: str | None = None,
        take_apart: Callable[[Any], Any] | None = None,
        put_together: Callable[[Any], Any] | None = None,
    ) -> None:
        """Allow a class; a dataclass, Struct, pydantic model, attrs class, Enum or NamedTuple needs nothing else.

        Any other class brings `take_apart` (object to storable value) and `put_together` (the way back).
        """
        name = name or f"{cls.__module__}.{cls.__qualname__}"
        own = TypeAdapter(name, cls, take_apart, put_together) if take_apart and put_together else None
        adapter = own or _adapt(cls, name)
        known = self._by_name.get(name)
        if known and known.cls is not cls:
            raise UsageError(f"two classes are registered as {name!a}: pass name= for one of them")
        self._by_name[name] = self._by_class[cls] = adapter

    def for_class(self, cls: type) -> TypeAdapter | None:
        """Return the adapter of exactly this class."""
        return self._by_class.get(cls)

    def for_name(self, name: str) -> TypeAdapter | None:
        """Return the adapter registered under a stored name."""
        return self._by_name.get(name)


def can_adapt(cls: type) -> bool:
    """Tell whether registering this class would need nothing but the class."""
    try:
        _adapt(cls, "")
    except UsageError:
        return False
    return True


def _adapt(cls: type, name: str) -> TypeAdapter:
    if issubclass(cls, Enum):
        return TypeAdapter(name, cls, lambda member: member.value, cls)
    if issubclass(cls, msgspec.Struct):
        return _fields_adapter(cls, name, cls.__struct_fields__)
    if dataclasses.is_dataclass(cls):
        return _fields_adapter(cls, name, tuple(field.name for field in dataclasses.fields(cls)))
    if hasattr(cls, "__attrs_attrs__"):
        return _fields_adapter(cls, name, tuple(field.name for field in cls.__attrs_attrs__))
    if hasattr(cls, "model_fields") and hasattr(cls, "model_construct"):
        return _pydantic_adapter(cls, name)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return TypeAdapter(name, cls, list, lambda values: cls(*_expect(values, list)))
    raise UsageError(
        f"{cls.__module__}.{cls.__qualname__} is no dataclass, Struct, pydantic model, attrs class, Enum or NamedTuple"
        ": register it with take_apart= and put_together="
    )


def _fields_adapter(cls: Any, name: str, names: tuple[str, ...]) -> TypeAdapter:
    """Adapt a class by its fields, set one by one: constructors may compute, convert or refuse."""
    wanted = frozenset(names)
    is_struct = issubclass(cls, msgspec.Struct)  # its fields can be set by its constructor only, which just sets them

    def take_apart(value: Any) -> dict[str, Any]:
        return {field: getattr(value, field) for field in names}

    def put_together(stored: Any) -> Any:
        given = _expect(stored, dict)
        if given.keys() != wanted:
            missing, unknown = sorted(wanted - given.keys()), sorted(given.keys() - wanted)
            raise ValueError(f"{name} changed since: stored without {missing}, with unknown {unknown}")
        if is_struct:
            return cls(**given)
        value = cls.__new__(cls)
        for field in names:
            object.__setattr__(value, field, given[field])
        return value

    return TypeAdapter(name, cls, take_apart, put_together)


def _pydantic_adapter(cls: Any, name: str) -> TypeAdapter:
    """Adapt a pydantic model: its fields, what was set explicitly, extras and private attributes."""

    def take_apart(value: Any) -> list[Any]:
        return [
            {field: getattr(value, field) for field in cls.model_fields},
            sorted(value.model_fields_set),
            value.__pydantic_extra__,
            value.__pydantic_private__,
        ]

    def put_together(stored: Any) -> Any:
        values, fields_set, extra, private = _expect(stored, list)
        unknown = sorted(values.keys() - cls.model_fields.keys())
        if unknown:
            raise ValueError(f"{name} changed since: stored with unknown {unknown}")
        value = cls.model_construct(set(fields_set), **values)
        object.__setattr__(value, "__pydantic_extra__", extra)
        object.__setattr__(value, "__pydantic_private__", private)
        return value

    return TypeAdapter(name, cls, take_apart, put_together)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value
