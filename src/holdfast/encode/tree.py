"""The Merkle tree that holds a section: leaves are bytes, nodes list literals and references in order.

A section's bytes are its tree's literals and leaves, read from left to right. Directories of a workspace use the same
nodes, so that sweeping, verifying and copying walk every tree without knowing what it means.

A patch is a node that takes stretches of entries over from another one, its base, which it names first: what a save
changes of a long node costs what changed. A base is never a patch itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEAF = 1
NODE = 2
_LITERAL = 0
_PATCH = 3
MOST_PATCHED = 0xFFFF
"""A node with more entries is neither a patch nor the base of one."""
_NODE_CONTEXT = "holdfast 1 tree node"
_ID_BYTES = 32


class Ref:
    """Names a leaf or a node: `size` counts all content bytes below it, `entry` is how it stands in a node."""

    __slots__ = ("entry", "id", "kind", "size")

    def __init__(self, kind: int, size: int, id: bytes) -> None:  # noqa: A002 - the one name for it
        self.kind = kind
        self.size = size
        self.id = id
        self.entry = _tag(kind, size) + id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.entry == other.entry

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Ref {'leaf' if self.kind == LEAF else 'node'} {self.id.hex()[:16]} {self.size:,} bytes>"


class Base(Ref):
    """The node that a patch takes entries over from; not content itself."""

    __slots__ = ()

    def __init__(self, size: int, id: bytes) -> None:  # noqa: A002 - the one name for it
        super().__init__(NODE, size, id)
        self.entry = _tag(_PATCH, size) + id


class Copy(NamedTuple):
    """Entries that a patch takes over from its base: `size` content bytes."""

    first: int
    length: int
    size: int

    @property
    def entry(self) -> bytes:
        """How it stands in a node."""
        return _tag(_PATCH, self.size) + self.first.to_bytes(2, "big") + self.length.to_bytes(2, "big")


Entry = bytes | Ref
Part = bytes | Ref | Copy
"""What stands in a node as it is stored; in a patch the first is its Base."""


def leaf_id(data: bytes) -> bytes:
    """Return the name of a leaf: BLAKE3-256 of its bytes."""
    return blake3(data).digest()


def node_id(data: bytes) -> bytes:
    """Return the name of a node, in a domain of its own so that no leaf can pass for one."""
    return blake3(data, derive_key_context=_NODE_CONTEXT).digest()


def chunk_id(kind: int, data: bytes) -> bytes:
    """Return the name of a chunk of this kind."""
    return leaf_id(data) if kind == LEAF else node_id(data)


def encode_node(parts: Iterable[Part]) -> tuple[bytes, int]:
    """Return a node's bytes and the number of content bytes below it."""
    stored: list[bytes] = []
    size = 0
    for part in parts:
        if isinstance(part, bytes):
            stored.append(_tag(_LITERAL, len(part)) + part)
            size += len(part)
        else:
            stored.append(part.entry)
            size += 0 if isinstance(part, Base) else part.size
    return b"".join(stored), size


def decode_node(data: bytes) -> list[Part]:
    """Return a node's parts; ValueError if the bytes are not a node."""
    parts: list[Part] = []
    position, end = 0, len(data)
    while position < end:
        kind, width = data[position] & 3, data[position] >> 2
        start = position + 1 + width
        size = int.from_bytes(data[position + 1 : start], "big")
        is_copy = kind == _PATCH and bool(parts)
        position = start + (size if kind == _LITERAL else _COPY_BYTES if is_copy else _ID_BYTES)
        if width > _WIDEST or position > end or (is_copy and not isinstance(parts[0], Base)):
            raise ValueError(f"has a malformed entry before byte {position}")
        content = data[start:position]
        if kind == _LITERAL:
            parts.append(content)
        elif is_copy:
            parts.append(Copy(int.from_bytes(content[:2], "big"), int.from_bytes(content[2:], "big"), size))
        else:
            parts.append(Base(size, content) if kind == _PATCH else Ref(kind, size, content))
    return parts


def content_size(part: Part) -> int:
    """Return how many content bytes a part of a node stands for."""
    return len(part) if isinstance(part, bytes) else 0 if isinstance(part, Base) else part.size


def stored_form(entry: Entry) -> bytes:
    """Return how an entry stands in a node; no two entries have the same form."""
    return _tag(_LITERAL, len(entry)) + entry if isinstance(entry, bytes) else entry.entry


class PatchBase:
    """A node that is stored, for patches to build on."""

    def __init__(self, ref: Ref, forms: list[bytes]) -> None:
        self.ref = ref
        self.forms = forms
        self.stored_bytes = sum(map(len, forms))
        self._places = {form: place for place, form in reversed(list(enumerate(forms)))}

    def diff(self, entries: Sequence[Entry], forms: Sequence[bytes]) -> list[Part]:
        """Return entries, which have these forms, as a patch of this node."""
        parts: list[Part] = [Base(self.ref.size, self.ref.id)]
        position, end, known = 0, len(forms), self.forms
        while position < end:
            first = place = self._places.get(forms[position], -1)
            start = position
            while 0 <= place < len(known) and position < end and known[place] == forms[position]:
                place += 1
                position += 1
            if position > start:
                parts.append(Copy(first, position - start, sum(map(content_size, entries[start:position]))))
            else:
                parts.append(entries[position])
                position += 1
        return parts


def apply_patch(parts: Sequence[Part], known: Sequence[Part]) -> list[Entry]:
    """Return the entries that a patch stands for; ValueError if its base does not have what it takes over."""
    if known and isinstance(known[0], Base):
        raise ValueError("is a patch of a patch")
    entries: list[Entry] = []
    for part in parts[1:]:
        if not isinstance(part, Copy):
            entries.append(part)
            continue
        taken = known[part.first : part.first + part.length]
        if len(taken) < part.length or sum(map(content_size, taken)) != part.size:
            raise ValueError("takes over what its base does not have")
        entries += taken  # type: ignore[arg-type]  # a base has no copies
        if len(entries) > MOST_PATCHED:
            raise ValueError(f"has more than {MOST_PATCHED:,} entries")
    return entries


_WIDEST = 6  # bytes of a size: 256 TiB
_COPY_BYTES = 4


def _tag(kind: int, size: int) -> bytes:
    """Return what precedes an entry's content: its kind and the width of its size in one byte, then the size."""
    width = (size.bit_length() + 7) // 8
    return bytes((kind | width << 2,)) + size.to_bytes(width, "big")
