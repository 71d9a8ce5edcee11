"""A section's value as a tree of chunks, at the cost of what changed since the last one.

The bytes are one MessagePack value. Long lists inside it are ropes, the stretches between them are cut like any blob.
The root of a long one is a patch of an earlier root, until what has changed since is worth a root of its own. What a
checkpoint leaves behind for the next one is a SectionMemo. A memo may be dropped at any time: the next
encoding then costs the whole section, and its chunks are found to be stored already.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from holdfast.encode.cuts import Cut, recut
from holdfast.encode.footprint import check_footprint
from holdfast.encode.rope import Rope
from holdfast.encode.tree import MOST_PATCHED, PatchBase, Ref, encode_node, stored_form
from holdfast.encode.values import array_header, below, is_utf8, map_header
from holdfast.errors import LimitExceeded

if TYPE_CHECKING:
    from holdfast.encode.chunks import ChunkReader, ChunkSink
    from holdfast.encode.tree import Entry
    from holdfast.encode.values import Packer

_SMALL = 8 * 1024
_LONG_BYTES = 8 * 1024
_LONG_COUNT = 8
_LITERAL = 128
_LONG_ROOT = 512
_PATCH_SHARE = 3
"""A patch may take a third of its base: then one root in about seven is whole, and the sum is smallest."""
_HEADER_LENGTHS = {0xDE: 3, 0xDF: 5}

# Where the long lists are: a list itself (LONG), or a mapping from keys to what is below them.
_LONG = "long"
Shape = str | dict[str, Any]


class SectionMemo:
    """What the last encoding of a section left behind."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self.looked_at = 0
        self.blobs: dict[int, list[Cut]] = {}
        self.ropes: dict[tuple[str, ...], Rope] = {}
        self.base: PatchBase | None = None
        """The root that the last one is, or is a patch of."""


class SectionEncoder:
    """Encodes sections into one commit's chunks."""

    def __init__(self, packer: Packer, writer: ChunkSink, *, max_bytes: int) -> None:
        self._packer = packer
        self._writer = writer
        self._max_bytes = max_bytes

    def encode(self, name: str, value: Any, memo: SectionMemo) -> Ref:
        """Return the section's root; the memo is brought up to this value and is void if the commit fails."""
        try:
            parts = self._parts(name, value, memo)
        except _ShapeChangedError:
            memo.__init__()  # type: ignore[misc]
            parts = self._parts(name, value, memo)
        entries: list[Entry] = []
        for index, part in enumerate(parts):
            entries.extend(self._entries(index, part, memo))
        root = self._root(entries, memo)
        if root.size > self._max_bytes:
            raise LimitExceeded("raise max_section_mb to save it", f"section {name}", root.size, self._max_bytes)
        return root

    def _root(self, entries: list[Entry], memo: SectionMemo) -> Ref:
        base, memo.base = memo.base, None
        if len(entries) == 1 and isinstance(entries[0], Ref):
            return entries[0]
        if len(entries) > MOST_PATCHED:
            return self._writer.node(entries)
        forms = list(map(stored_form, entries))
        if base is not None:
            if base.forms == forms:
                memo.base = base
                return base.ref
            patch = base.diff(entries, forms)
            if len(encode_node(patch)[0]) * _PATCH_SHARE < base.stored_bytes:
                memo.base = base
                return self._writer.node(patch)
        root = self._writer.node(entries)
        if sum(map(len, forms)) >= _LONG_ROOT:
            memo.base = PatchBase(root, forms)
        return root

    def _entries(self, index: int, part: bytes | list[Entry], memo: SectionMemo) -> list[Entry]:
        if isinstance(part, list):
            return part
        if len(part) <= (_LITERAL if memo.ropes else _SMALL):
            # Cuts that this checkpoint does not use may be swept with the one before: they must not be used again.
            memo.blobs.pop(index, None)
            if memo.ropes:
                return [part] if part else []
            return [self._writer.leaf(part)]
        check_footprint("a section", part, max_bytes=self._max_bytes)  # what could not be read by the same caller
        cuts = memo.blobs[index] = recut(part, memo.blobs.get(index, ()), self._writer)
        return [cut.ref for cut in cuts]

    def _parts(self, name: str, value: Any, memo: SectionMemo) -> list[bytes | list[Entry]]:
        """Return the section's bytes as blobs, with the entries of long lists between them."""
        if memo.shape is None:
            parts: list[bytes | list[Entry]] = [self._packer.pack(value, name)]
        else:
            parts = [b""]
            self._walk((name,), value, memo.shape, memo, parts)
        blob_bytes = sum(len(part) for part in parts if isinstance(part, bytes))
        if blob_bytes < max(_LONG_BYTES, memo.looked_at * 5 // 4):
            return parts
        memo.looked_at = blob_bytes
        shape = self._find_long(name, value)
        if shape == memo.shape:
            return parts
        del parts  # a whole section's bytes
        memo.shape = shape
        memo.blobs.clear()
        # A rope knows chunks of the checkpoint before; once it is left out they may be swept, so it is not kept.
        wanted = _paths((name,), shape)
        memo.ropes = {path: rope for path, rope in memo.ropes.items() if path in wanted}
        return self._parts(name, value, memo)

    def _walk(self, path: tuple[str, ...], value: Any, shape: Shape, memo: SectionMemo, parts: list[Any]) -> None:
        where = reduce(below, path)
        if shape == _LONG:
            if type(value) is not list:
                raise _ShapeChangedError
            parts[-1] += array_header(len(value))
            rope = memo.ropes.setdefault(path, Rope())
            parts += [rope.update(value, where, self._packer, self._writer), b""]
            return
        if type(value) is not dict or not isinstance(shape, dict) or not shape.keys() <= value.keys():
            raise _ShapeChangedError
        parts[-1] += map_header(len(value))
        between: dict[str, Any] = {}
        for key, item in value.items():
            if key in shape:
                parts[-1] += self._pack_entries(where, between) + self._packer.pack(key, where)
                between = {}
                self._walk((*path, key), item, shape[key], memo, parts)
            else:
                between[key] = item
        parts[-1] += self._pack_entries(where, between)

    def _pack_entries(self, where: str, entries: dict[str, Any]) -> bytes:
        """Pack a mapping without its header."""
        data = self._packer.pack(entries, where)
        header = data[0]
        if header in _HEADER_LENGTHS:
            return data[_HEADER_LENGTHS[header] :]
        if header & 0xF0 != 0x80:  # noqa: PLR2004 - keys that are not text make it an extension
            raise _ShapeChangedError
        return data[1:]

    def _find_long(self, where: str, value: Any) -> Shape | None:
        """Find the lists worth a rope, looking through mappings only."""
        if type(value) is list:
            if len(value) >= _LONG_COUNT and len(self._packer.pack(value, where)) >= _LONG_BYTES:
                return _LONG
            return None
        if type(value) is not dict or not all(type(key) is str and is_utf8(key) for key in value):
            return None
        found = {key: shape for key, item in value.items() if (shape := self._find_long(below(where, key), item))}
        return found or None


def _paths(path: tuple[str, ...], shape: Shape | None) -> set[tuple[str, ...]]:
    """Return where a shape has its long lists."""
    if not isinstance(shape, dict):
        return {path} if shape == _LONG else set()
    return {found for key, deeper in shape.items() for found in _paths((*path, key), deeper)}


def decode_section(name: str, root: Ref, packer: Packer, reader: ChunkReader, *, max_bytes: int) -> Any:
    """Return the section's value, every chunk of it verified."""
    content = reader.load(root, limit=max_bytes)
    check_footprint(name, content.data, max_bytes=max_bytes, stored_bytes=content.stored_bytes)
    return packer.unpack(content.data, name, is_bounded=True)


class _ShapeChangedError(Exception):
    """The value no longer has its long lists where they were."""
