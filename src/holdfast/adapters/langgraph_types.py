"""Types of LangGraph's state: LangChain messages by their fields, everything else by the saver's serializer.

A message is stored as the fields that differ from their defaults, under a name of its own: it can be shown, compared
and redacted, and loading it runs none of its code. An object that is neither plain nor registered is handed to the
serializer, and its bytes are stored opaque.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import ormsgpack
from langchain_core import messages

from holdfast.encode.opaque import Opaque
from holdfast.encode.rope import plain_copy
from holdfast.encode.types import TypeAdapter, TypeRegistry
from holdfast.encode.values import Ext

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from holdfast.adapters.packing import ValuePacker

_SERIALIZED = "langgraph.serialized"
_MESSAGES = (
    "AIMessage", "AIMessageChunk", "ChatMessage", "ChatMessageChunk", "FunctionMessage", "FunctionMessageChunk",
    "HumanMessage", "HumanMessageChunk", "RemoveMessage", "SystemMessage", "SystemMessageChunk", "ToolMessage",
    "ToolMessageChunk",
)  # fmt: skip
MESSAGE_CLASSES: frozenset[type] = frozenset(getattr(messages, name) for name in _MESSAGES)


class SerializedTypes(TypeRegistry):
    """The registered types of a store, and a serializer for all others."""

    def __init__(self, known: TypeRegistry, serializer: SerializerProtocol) -> None:
        super().__init__()
        self._known = known
        self._serializer = serializer
        self._fallback = TypeAdapter(_SERIALIZED, object, self.take_apart, self.put_together)

    def for_class(self, cls: type) -> TypeAdapter | None:
        """Return the adapter of a registered class, or the serializer's."""
        return self._known.for_class(cls) or self._fallback

    def for_name(self, name: str) -> TypeAdapter | None:
        """Return the adapter registered under a stored name."""
        return self._fallback if name == _SERIALIZED else self._known.for_name(name)

    def take_apart(self, value: Any) -> list[Any]:
        """Return the serializer's name for its format, and its bytes as they are."""
        kind, data = self._serializer.dumps_typed(value)
        return [kind, Opaque(data)]

    def put_together(self, stored: Any) -> Any:
        """Return what the serializer makes of its bytes."""
        kind, data = stored
        return self._serializer.loads_typed((kind, bytes(data)))


class Serialized:
    """A whole value that only the serializer may take: it was set from outside, and may encrypt."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class SerializerOnly(SerializedTypes):
    """Types for a serializer that was set from outside: every value goes through it whole."""

    def __init__(self, known: TypeRegistry, serializer: SerializerProtocol) -> None:
        super().__init__(known, serializer)
        self._whole = TypeAdapter(_SERIALIZED, Serialized, lambda one: self.take_apart(one.value), self.put_together)

    def for_class(self, cls: type) -> TypeAdapter | None:
        """Return the serializer's adapter."""
        return self._whole if cls is Serialized else super().for_class(cls)


def register_messages(types: TypeRegistry) -> None:
    """Let a store hold LangChain's messages, and show what the serializer stored."""
    types.show(_SERIALIZED)
    for cls in MESSAGE_CLASSES:
        if types.for_class(cls) is None:
            types.register(cls, name=f"langchain.{cls.__name__}", take_apart=message_parts, put_together=_maker(cls))


def message_parts(message: Any) -> dict[str, Any]:
    """Return the fields of a message that differ from their defaults, and what was added beside its fields."""
    cls: Any = type(message)
    atoms, factories = _defaults(cls)
    parts = {
        name: value
        for name, value in message.__dict__.items()
        if not (name in atoms and _is_same(value, atoms[name]))
        and not (not value and type(value) is factories.get(name))
    }
    extra = message.__pydantic_extra__
    return {**parts, "+": dict(extra)} if extra else parts


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is str and value == default)


@cache
def _defaults(cls: Any) -> tuple[dict[str, Any], dict[str, type]]:
    """Return the fields of a message class whose default is an atom, and those whose default is an empty container."""
    atoms: dict[str, Any] = {}
    factories: dict[str, type] = {}
    for name, field in cls.model_fields.items():
        if field.is_required():
            continue
        default = field.get_default(call_default_factory=True)
        if default is None or type(default) is str:
            atoms[name] = default
        elif type(default) in (dict, list) and not default:
            factories[name] = type(default)
    return atoms, factories


@cache
def _maker(cls: Any) -> Callable[[Any], Any]:
    """Return what makes a message of its stored fields, as pydantic's own copy does it: without validation."""
    atoms, factories = _defaults(cls)
    template = {name: atoms.get(name) for name in cls.model_fields}
    fresh = tuple(factories.items())
    names = frozenset(template)
    new, assign = cls.__new__, object.__setattr__

    def make(stored: Any) -> Any:
        if type(stored) is not dict:
            raise ValueError("a message that is not a mapping of its fields")
        extra = stored.pop("+", None)
        if not stored.keys() <= names:
            raise ValueError(f"{cls.__name__} has no field {sorted(stored.keys() - names)}")
        fields = template.copy()
        for name, factory in fresh:
            fields[name] = factory()
        fields.update(stored)
        message = new(cls)
        assign(message, "__dict__", fields)
        assign(message, "__pydantic_fields_set__", set(stored))
        assign(message, "__pydantic_extra__", extra if extra is not None else {})
        assign(message, "__pydantic_private__", None)
        return message

    return make


def unpack_list(packer: ValuePacker, data: bytes, where: str) -> list[Any]:
    """Return the items of a packed list; one of nothing but messages is taken apart natively."""
    try:
        parts = _as_extensions(data)
    except msgspec.MsgspecError:
        parts = []
    if not parts or any(part.code != Ext.REGISTERED for part in parts):
        return packer.unpack(data, where)  # type: ignore[no-any-return]
    makers = {f"langchain.{cls.__name__}": _maker(cls) for cls in MESSAGE_CLASSES}
    found: list[Any] = []
    for part in parts:
        try:
            name, stored = ormsgpack.unpackb(bytes(part.data))
            found.append(makers[name](stored))
        except (ValueError, KeyError):  # it holds types of its own, is not a message, or is damaged
            return packer.unpack(data, where)  # type: ignore[no-any-return]
    return found


_as_extensions = msgspec.msgpack.Decoder(list[msgspec.msgpack.Ext]).decode


def look(values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the class of each item of a list, and what it is compared by: the fields of a message, or itself."""
    kinds = [type(value) for value in values]
    if MESSAGE_CLASSES.issuperset(kinds):
        if any(value.__pydantic_extra__ for value in values):
            return kinds, [[value.__dict__, value.__pydantic_extra__] for value in values]
        return kinds, [value.__dict__ for value in values]
    contents = [
        [value.__dict__, value.__pydantic_extra__] if kind in MESSAGE_CLASSES else value
        for kind, value in zip(kinds, values, strict=True)
    ]
    return kinds, contents


def maker_of(value: Any) -> Callable[[], Any]:
    """Return what makes a loaded value again, for a caller who may change it; NotPlainError if nothing cheap does."""
    cls: Any = type(value)
    if cls not in MESSAGE_CLASSES:
        kept = plain_copy(value)
        return lambda: plain_copy(kept)
    template = dict(value.__dict__)
    containers = [(name, _copier(part)) for name, part in template.items() if type(part) in (dict, list)]
    known = {name for name, _ in containers}
    plain_copy([part for name, part in template.items() if name not in known])
    fields_set, extra = frozenset(value.__pydantic_fields_set__), plain_copy(value.__pydantic_extra__)
    new, assign = cls.__new__, object.__setattr__

    def make() -> Any:
        fields = template.copy()
        for name, copy in containers:
            fields[name] = copy()
        message = new(cls)
        assign(message, "__dict__", fields)
        assign(message, "__pydantic_fields_set__", set(fields_set))
        assign(message, "__pydantic_extra__", plain_copy(extra) if extra else {})
        assign(message, "__pydantic_private__", None)
        return message

    return make


def _copier(value: Any) -> Callable[[], Any]:
    kept = plain_copy(value)
    return (lambda: plain_copy(kept)) if kept else type(value)
