"""A long list as a rope of groups, so that appending to it costs what was appended.

Items are packed one by one and gathered into groups that end where an item's own bytes say so; a group is a leaf, and
groups are gathered into nodes in the same way. Small items at the end stand in the root themselves, until they are
enough for a leaf. The shape follows from the content alone, so an edit or a shift leaves
the other groups as they were.

Nothing is packed again to find out whether it changed: a plain copy of each item is kept. Settled groups are compared
with ==, which touches no text that is still the same object; so an item in a settled group that was replaced by an
equal one (True by 1, 0 by 0.0) keeps its first form. Items of the unsettled tail are few and compared to the letter.
Items with any but plain values are packed every time.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from holdfast.encode.cuts import SMALLEST_CUT, Cut, recut

if TYPE_CHECKING:
    from holdfast.encode.chunks import ChunkSink
    from holdfast.encode.tree import Entry, Ref
    from holdfast.encode.values import Packer

_GROUP_BYTES = 32 * 1024
_LARGEST_GROUP = 4 * _GROUP_BYTES
_LARGEST_LEAF = 1024 * 1024
_SMALL_ITEM = 512
_NODE_FANOUT = 16
_LARGEST_NODE = 4 * _NODE_FANOUT
_ATOMS = frozenset({str, int, float, bool, bytes, type(None)})
_NOT_PLAIN = object()


class _Packed(NamedTuple):
    """An item of the tail: its bytes, and the copy that tells whether they still hold."""

    data: bytes
    copy: Any


class Rope:
    """What one checkpoint knows of a list, for the next one to build on."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.groups: list[Ref] = []
        self.shadow: list[Any] | None = []
        self.tail: list[Cut] = []
        self._in_tail = 0  # so many unsettled items are in these cuts; the small ones behind are not
        self._packed: list[_Packed] = []  # the items of the tail
        self._spine = _Spine()

    @property
    def packed(self) -> int:
        """How many items are not packed again."""
        tail = takewhile(lambda packed: packed.copy is not _NOT_PLAIN, self._packed)
        return sum(self.counts) + len(list(tail))

    def update(self, items: list[Any], where: str, packer: Packer, writer: ChunkSink) -> list[Entry]:
        """Bring the rope to these items and return its entries: nodes, groups, then the unsettled tail."""
        known = self._keep(items, writer)
        first = sum(self.counts)
        for index, packed in enumerate(self._packed):
            if first + index == len(items) or not _is_same(items[first + index], packed.copy):
                del self._packed[index:]
                if index < self._in_tail:
                    self._in_tail = 0
                break
        self._extend(items, first, where, packer, writer, known=known)
        small = (packed.data for packed in self._packed[self._in_tail :])
        return [*self._spine.entries(), *(cut.ref for cut in self.tail), *small]

    def _extend(
        self, items: list[Any], first: int, where: str, packer: Packer, writer: ChunkSink, *, known: dict[bytes, Ref]
    ) -> None:
        tail = self._packed
        tail_bytes = sum(len(packed.data) for packed in tail)
        for index in range(first + len(tail), len(items)):
            data = packer.pack(items[index], f"{where}[{index}]")
            if len(data) > _LARGEST_LEAF and tail:  # alone in its group, its pieces do not move with its neighbours
                self._settle(known, writer)
                tail_bytes = 0
            tail.append(_Packed(data, _copy_of(items[index])))
            tail_bytes += len(data)
            if _ends_group(data) or tail_bytes >= _LARGEST_GROUP:
                self._settle(known, writer)
                tail_bytes = 0
        self._cut_tail(writer)

    def _cut_tail(self, writer: ChunkSink) -> None:
        behind = [len(packed.data) for packed in self._packed[self._in_tail :]]
        if sum(behind) >= SMALLEST_CUT or max(behind, default=0) >= _SMALL_ITEM:
            self.tail = recut(b"".join(packed.data for packed in self._packed), self.tail, writer)
            self._in_tail = len(self._packed)
        elif not self._in_tail:
            self.tail = []

    def _keep(self, items: list[Any], writer: ChunkSink) -> dict[bytes, Ref]:
        """Drop the groups from the first changed one on; return them by name, in case they come again."""
        if self.shadow is not None and are_equal(items[: len(self.shadow)], self.shadow):
            return {}
        kept = position = 0
        if self.shadow is not None:
            for count in self.counts:
                if not are_equal(items[position : position + count], self.shadow[position : position + count]):
                    break
                position += count
                kept += 1
        dropped = {ref.id: ref for ref in self.groups[kept:]}
        if dropped:
            self._packed, self._in_tail = [], 0  # what follows a changed group stands elsewhere now
        self.shadow = self.shadow[:position] if self.shadow is not None else []
        del self.counts[kept:], self.groups[kept:]
        self._spine = _Spine()
        for ref in self.groups:
            self._spine.push(ref, writer)
        return dropped

    def _settle(self, known: dict[bytes, Ref], writer: ChunkSink) -> None:
        """Make a group of the tail."""
        ref, *pieces = _write_group(b"".join(packed.data for packed in self._packed), writer)
        if ref.id in known:
            for stored in (ref, *pieces):
                writer.forget(stored)
        self.counts.append(len(self._packed))
        self.groups.append(ref)
        self._spine.push(ref, writer)
        copies = [packed.copy for packed in self._packed]
        if any(copy is _NOT_PLAIN for copy in copies):
            self.shadow = None
        elif self.shadow is not None:
            self.shadow += copies
        self._packed.clear()
        self._in_tail = 0


class _Spine:
    """Groups gathered into nodes, and nodes into nodes, each level's open end kept at hand."""

    def __init__(self) -> None:
        self._levels: list[list[Ref]] = [[]]

    def push(self, ref: Ref, writer: ChunkSink, level: int = 0) -> None:
        """Append one reference; close its node where the reference's own name says so."""
        if level == len(self._levels):
            self._levels.append([])
        refs = self._levels[level]
        refs.append(ref)
        if (ref.id[0] < 256 // _NODE_FANOUT and len(refs) > 1) or len(refs) >= _LARGEST_NODE:
            self._levels[level] = []
            self.push(writer.node(refs), writer, level + 1)

    def entries(self) -> list[Entry]:
        """Return all references in order: the highest level comes first."""
        return [ref for level in reversed(self._levels) for ref in level]


def _write_group(data: bytes, writer: ChunkSink) -> list[Ref]:
    """Return a group's reference, and its pieces if an item in it is larger than a chunk may be."""
    if len(data) <= _LARGEST_LEAF:
        return [writer.leaf(data)]
    pieces = [writer.leaf(data[at : at + _LARGEST_LEAF]) for at in range(0, len(data), _LARGEST_LEAF)]
    return [writer.node(pieces), *pieces]


def are_equal(items: list[Any], known: list[Any]) -> bool:
    """Compare; values that refuse to be compared are not plain, so they are not what is known."""
    try:
        return items == known
    except Exception:  # noqa: BLE001 - arrays and the like raise what they please
        return False


class NotPlainError(Exception):
    """An item holds something whose equality is not ours to trust."""


def plain_copy(value: Any) -> Any:
    """Copy containers, share atoms; anything else has an equality of its own and is not compared."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: item if type(item) in _ATOMS else plain_copy(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) in _ATOMS else plain_copy(item) for item in value]
    raise NotPlainError


def _copy_of(item: Any) -> Any:
    try:
        return plain_copy(item)
    except NotPlainError:
        return _NOT_PLAIN


def _is_same(item: Any, copy: Any) -> bool:
    """Tell whether an item would be packed as its copy was: the same types and order, unlike ==."""
    kind = type(item)
    if kind is not type(copy):
        return False
    if kind is dict:
        return list(item) == list(copy) and all(map(_is_same, item.values(), copy.values()))
    if kind is list:
        return len(item) == len(copy) and all(map(_is_same, item, copy))
    return item is copy or (kind in _ATOMS and item == copy and (kind is not float or item.hex() == copy.hex()))


def _ends_group(data: bytes) -> bool:
    """Tell by an item's bytes alone whether a group ends behind it: every _GROUP_BYTES on average."""
    return crc32(data) * _GROUP_BYTES < len(data) << 32
