"""Types of LangGraph's state: LangChain messages by their fields, everything else by the saver's serializer.

A message is stored as the fields that differ from their defaults, under a name of its own: it can be shown, compared
and redacted, and loading it runs none of its code. An object that is neither plain nor registered is handed to the
serializer, and its bytes are stored opaque.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import ormsgpack
from langchain_core import messages
from pydantic import BaseModel

from holdfast.encode.opaque import Opaque
from holdfast.encode.rope import plain_copy
from holdfast.encode.types import TypeAdapter, TypeRegistry
from holdfast.encode.values import Ext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langgraph.checkpoint.serde.base import SerializerProtocol

_SERIALIZED = "langgraph.serialized"
_MESSAGES = (
    "AIMessage", "AIMessageChunk", "ChatMessage", "ChatMessageChunk", "FunctionMessage", "FunctionMessageChunk",
    "HumanMessage", "HumanMessageChunk", "RemoveMessage", "SystemMessage", "SystemMessageChunk", "ToolMessage",
    "ToolMessageChunk",
)  # fmt: skip
MESSAGE_CLASSES: frozenset[Any] = frozenset(getattr(messages, name) for name in _MESSAGES)


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


StoredMessage: TypeAlias = (
    "tuple[Callable[[dict[str, Any], dict[str, Any]], Any], dict[str, Any], dict[str, Any], bool]"
)
"""A message as it is stored: what builds it, its fields, what was added beside them, and whether none is a container.

A plain tuple, because there are thousands of them: a named one takes three times as long to make.
"""


def make_messages(stored: Iterable[StoredMessage]) -> list[Any]:
    """Return messages, again and again; they share nothing that a caller could change."""
    return [
        build(fields, {}) if is_flat else build(plain_copy(fields), plain_copy(extra))
        for build, fields, extra, is_flat in stored
    ]


@cache
def _builder(cls: Any) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    """Return what makes a message of its fields, as pydantic's own copy does it: without validation."""
    atoms, factories = _defaults(cls)
    template = {name: atoms.get(name) for name in cls.model_fields}
    fresh = tuple(factories.items())
    new = cls.__new__
    # The slots of pydantic's base class, set without a look-up by name: 0.7 µs a message instead of 1.1.
    slots = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    set_fields, set_names, set_extra, set_private = (BaseModel.__dict__[slot].__set__ for slot in slots)

    def build(stored: dict[str, Any], extra: dict[str, Any]) -> Any:
        fields = template.copy()
        for name, factory in fresh:
            fields[name] = factory()
        fields.update(stored)
        message = new(cls)
        set_fields(message, fields)
        set_names(message, set(stored))
        set_extra(message, extra)
        set_private(message, None)
        return message

    return build


def _maker(cls: Any) -> Callable[[Any], Any]:
    """Return what makes a message of what is stored of it; ValueError if it is none."""
    build, names = _builder(cls), cls.model_fields.keys()

    def make(stored: Any) -> Any:
        if type(stored) is not dict:
            raise ValueError("a message that is not a mapping of its fields")
        extra = stored.pop("+", None)
        if not stored.keys() <= names:
            raise ValueError(f"{cls.__name__} has no field {sorted(stored.keys() - names)}")
        return build(stored, {} if extra is None else extra)

    return make


def stored_messages(data: bytes) -> list[StoredMessage] | None:
    """Return the messages that these bytes are; None if they are anything but whole messages of plain fields."""
    view, start, end = memoryview(data), 0, len(data)
    found: list[StoredMessage] = []
    try:
        while start < end:
            body = start + _EXTENSIONS[data[start]]
            start = body + int.from_bytes(view[start + 1 : body - 1], "big")
            if start > end or data[body - 1] != _REGISTERED:
                return None
            name, fields = ormsgpack.unpackb(view[body:start])
            build, names = _BY_NAME[name]
            extra = fields.pop("+") if "+" in fields else {}
            if not fields.keys() <= names:
                return None
            found.append((build, fields, extra, not extra and _ATOMS.issuperset(map(type, fields.values()))))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):  # other types, or damage: the packer judges
        return None
    return found


_EXTENSIONS = {0xC7: 3, 0xC8: 4, 0xC9: 6}
"""How long the header of an extension is: a code, the size in 1, 2 or 4 bytes, and the type."""
_REGISTERED = int(Ext.REGISTERED)
_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})
_BY_NAME = {f"langchain.{cls.__name__}": (_builder(cls), frozenset(cls.model_fields)) for cls in MESSAGE_CLASSES}


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
