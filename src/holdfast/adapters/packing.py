"""Packing of a framework's values: by registered types, without secrets, at the cost of what changed.

A long list is packed item by item. Items that are what they were, by identity or by value, keep their bytes; a message
that was changed in place is packed again. What stands for a secret is text, because frameworks check their types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.capture.redact import RedactingPacker
from holdfast.encode.cuts import recut
from holdfast.encode.rope import NotPlainError, Rope, are_equal, plain_copy
from holdfast.encode.values import Packer, array_header
from holdfast.errors import LimitExceeded
from holdfast.model.checkpoint import SectionRecord
from holdfast.model.redaction import Redacted, Redaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.capture.redact import RedactionRules
    from holdfast.encode.chunks import ChunkSink
    from holdfast.encode.cuts import Cut
    from holdfast.encode.tree import Ref
    from holdfast.encode.types import TypeRegistry

_WHOLE = 8 * 1024
_MOST_LISTED = 100


class Packed(NamedTuple):
    """A value's bytes, and what was taken out of them."""

    data: bytes
    found: tuple[Redaction, ...] = ()


class _TextPacker(RedactingPacker):
    """Packs without secrets; a text stands where a secret was."""

    def packed(self, value: Any, where: str) -> Packed:
        """Return a value's bytes without secrets."""
        self.begin(where)
        return Packed(*self._looked_at(value, where, Packer.pack(self, value, where), None))

    def _marker(self, rule: str, env: str | None, where: str) -> Redacted | str:  # noqa: ARG002 - everywhere alike
        return str(Redacted(rule, env))


class ValuePacker:
    """Packs and unpacks the values of one framework; not for several threads at once."""

    def __init__(self, types: TypeRegistry, rules: RedactionRules | None) -> None:
        self.plain = Packer(types)
        self._redactor = _TextPacker(types, rules) if rules is not None else None

    def pack(self, value: Any, where: str) -> Packed:
        """Return a value's bytes; ValueRefused names what cannot be stored."""
        if self._redactor is not None:
            return self._redactor.packed(value, where)
        return Packed(self.plain.pack(value, where))

    def unpack(self, data: bytes, where: str) -> Any:
        """Return the value of bytes."""
        return self.plain.unpack(data, where)

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redactor.text(text) if self._redactor is not None else text


class _Ready:
    """Packs what is packed already: the items of a rope."""

    def pack(self, value: bytes, _where: str) -> bytes:
        return value


_READY: Any = _Ready()


class PackedList:
    """The items of a list, packed, with how large they are together and what was taken out of them."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.size = 0
        self.found: dict[int, tuple[Redaction, ...]] = {}

    @property
    def redactions(self) -> list[Redaction]:
        """All that was taken out, in order."""
        return [one for number in sorted(self.found) for one in self.found[number]]

    @property
    def data(self) -> bytes:
        """The list as one value."""
        return array_header(len(self.items)) + b"".join(self.items)

    def cut(self, count: int) -> None:
        """Keep so many items at the start."""
        self.size -= sum(map(len, self.items[count:]))
        del self.items[count:]
        for number in [number for number in self.found if number >= count]:
            del self.found[number]

    def add(self, packed: Packed) -> None:
        """Add an item."""
        if packed.found:
            self.found[len(self.items)] = packed.found
        self.items.append(packed.data)
        self.size += len(packed.data)


class SectionMemory:
    """What the last encoding of one section left behind; void when the checkpoint it belongs to is not the head."""

    def __init__(self, look: Callable[[list[Any]], tuple[list[Any], list[Any]]]) -> None:
        self._look = look
        self._rope: Rope | None = None
        self._cuts: list[Cut] = []
        self._packed = PackedList()
        self._kinds: list[Any] = []
        self._content: list[Any] = []

    def packed_list(self, values: list[Any], where: str, packer: ValuePacker) -> PackedList:
        """Return a list whose items are packed only where they are not what they were."""
        kinds, contents = self._look(values)
        size = len(self._kinds)
        if len(values) >= size and kinds[:size] == self._kinds and are_equal(contents[:size], self._content):
            kept = size
        else:
            kept = self._equal_at_start(kinds, contents)
            self._packed.cut(kept)
            del self._content[kept:]
        for number in range(kept, len(values)):
            self._packed.add(packer.pack(values[number], f"{where}[{number}]"))
            try:
                self._content.append(plain_copy(contents[number]))
            except NotPlainError:
                self._content.append(_NEVER)
        self._kinds = kinds
        return self._packed

    def _equal_at_start(self, kinds: list[Any], contents: list[Any]) -> int:
        """Return how many items at the start are what they were."""
        most = min(len(kinds), len(self._kinds))
        for number in range(most):
            is_kind = kinds[number] is self._kinds[number]
            if not is_kind or not are_equal([contents[number]], [self._content[number]]):
                return number
        return most

    def write_list(self, packed: PackedList, where: str, writer: ChunkSink) -> Ref:
        """Write a list whose items are packed, and return its root."""
        if packed.size <= _WHOLE and self._rope is None:
            return writer.leaf(packed.data)
        if self._rope is None:
            self._rope = Rope()
        return writer.node([array_header(len(packed.items)), *self._rope.update(packed.items, where, _READY, writer)])

    def write(self, data: bytes, writer: ChunkSink) -> Ref:
        """Write any other value, and return its root."""
        if len(data) <= _WHOLE:
            self._cuts = []
            return writer.leaf(data)
        self._cuts = recut(data, self._cuts, writer)
        return self._cuts[0].ref if len(self._cuts) == 1 else writer.node([cut.ref for cut in self._cuts])


_NEVER = object()


def section_record(name: str, root: Ref, found: Sequence[Redaction], *, max_bytes: int) -> SectionRecord:
    """Return the record of a section; LimitExceeded if it is too large to be read again."""
    if root.size > max_bytes:
        raise LimitExceeded("raise max_section_mb to save it", f"section {name}", root.size, max_bytes)
    return SectionRecord(name, root.kind, root.id, root.size, tuple(found[:_MOST_LISTED]), len(found))
