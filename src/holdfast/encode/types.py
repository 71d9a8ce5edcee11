"""Which classes of the user's may stand in a checkpoint: only those registered by name, in code.

Decoding looks a stored name up here and nowhere else; nothing is imported or called because data names it.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class TypeAdapter(NamedTuple):
    """How one class becomes a plain value and is restored."""

    name: str
    cls: type
    take_apart: Callable[[Any], Any]
    put_together: Callable[[Any], Any]
    flat: bool = False  # the parts of the list that it is taken apart into stand at the object's own path


class TypeRegistry:
    """The classes that a caller allows, by stored name and by class."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._by_name: dict[str, TypeAdapter] = {}
        self._by_class: dict[type, TypeAdapter] = {}
        self._shows_unknown = False
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
            raise UsageError(f"two classes are registered as {name!r}: pass name= for one of them")
        self._by_name[name] = self._by_class[cls] = adapter

    def for_class(self, cls: type) -> TypeAdapter | None:
        """Return the adapter of exactly this class."""
        return self._by_class.get(cls)

    def for_name(self, name: str) -> TypeAdapter | None:
        """Return the adapter registered under a stored name."""
        found = self._by_name.get(name)
        return _shown(name) if found is None and self._shows_unknown else found

    def show(self, name: str) -> None:
        """Read what is stored under a name as a mapping with that name, for looking at it; it is not stored again."""
        self._by_name.setdefault(name, _shown(name))

    def show_unknown(self) -> None:
        """Do so with every name that is not registered: for programs that only look."""
        self._shows_unknown = True


def _shown(name: str) -> TypeAdapter:
    """Return how a value of an unknown class is read: its fields, or its content, beside the name."""
    return TypeAdapter(
        name,
        object,
        _expect_registered,
        lambda stored: {"@type": name, **(stored if type(stored) is dict else {"content": stored})},
    )


def _expect_registered(value: Any) -> Any:
    raise UsageError(f"a {type(value).__qualname__} is not registered")


def can_adapt(cls: type) -> bool:
    """Tell whether registering this class would need nothing but the class."""
    try:
        _adapt(cls, "")
    except UsageError:
        return False
    return True


def _adapt(cls: type, name: str) -> TypeAdapter:
    container = next((kind for kind in (dict, list, set, frozenset, bytearray) if issubclass(cls, kind)), None)
    if container is not None:
        raise UsageError(
            f"{cls.__module__}.{cls.__qualname__} is also a {container.__name__}, which its fields do not show: "
            "register it with take_apart= and put_together="
        )
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
        f"{cls.__module__}.{cls.__qualname__} is not a dataclass, Struct, pydantic model, attrs class, Enum, NamedTuple"
        ": register it with take_apart= and put_together="
    )


def _fields_adapter(cls: Any, name: str, names: tuple[str, ...]) -> TypeAdapter:
    """Adapt a class by its fields, set one by one: constructors may compute, convert or refuse."""
    wanted = frozenset(names)
    defaults = _defaults(cls)
    is_struct = issubclass(cls, msgspec.Struct)  # has no __new__ of its own; what __post_init__ changes is set back

    def take_apart(value: Any) -> dict[str, Any]:
        return {field: getattr(value, field) for field in names}

    def put_together(stored: Any) -> Any:
        given = _expect(stored, dict)
        given.update({field: make() for field, make in defaults.items() if field not in given})
        if given.keys() != wanted:
            missing, unknown = sorted(wanted - given.keys()), sorted(given.keys() - wanted)
            raise UsageError(f"{name} changed since: stored without {missing}, with unknown {unknown}")
        value = cls(**given) if is_struct else cls.__new__(cls)
        assign = msgspec.structs.force_setattr if is_struct else object.__setattr__
        for field in names:
            assign(value, field, given[field])
        return value

    return TypeAdapter(name, cls, take_apart, put_together)


def _defaults(cls: Any) -> dict[str, Callable[[], Any]]:
    """Return how the fields that have a default get it: a class may have gained them since a value was stored."""
    if issubclass(cls, msgspec.Struct):
        fields: Any = msgspec.structs.fields(cls)
        none: Any = msgspec.NODEFAULT
    elif dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        none = dataclasses.MISSING
    else:
        return {
            field.name: partial(_value_of, field.default)
            for field in cls.__attrs_attrs__
            if type(field.default).__name__ not in ("_Nothing", "Factory")
        }
    found: dict[str, Callable[[], Any]] = {}
    for field in fields:
        if field.default is not none:
            found[field.name] = partial(_value_of, field.default)
        elif field.default_factory is not none:
            found[field.name] = field.default_factory
    return found


def _value_of(value: Any) -> Any:
    return value


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
        values = _expect(values, dict)
        new = {field: about for field, about in cls.model_fields.items() if field not in values}
        missing = sorted(field for field, about in new.items() if about.is_required())
        unknown = sorted(values.keys() - cls.model_fields.keys())
        if missing or unknown:
            raise UsageError(f"{name} changed since: stored without {missing}, with unknown {unknown}")
        values.update({field: about.get_default(call_default_factory=True) for field, about in new.items()})
        # Set as pydantic's own copy does it: model_construct would go by aliases and call model_post_init again.
        value = cls.__new__(cls)
        object.__setattr__(value, "__dict__", values)
        object.__setattr__(value, "__pydantic_fields_set__", set(fields_set))
        object.__setattr__(value, "__pydantic_extra__", extra)
        object.__setattr__(value, "__pydantic_private__", private)
        return value

    return TypeAdapter(name, cls, take_apart, put_together, flat=True)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value
