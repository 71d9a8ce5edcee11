"""One directory as a tree node: a literal with names, kinds and modes, then the references of its children in order.

A directory of many names is cut into pages at names chosen by their hash, so that one change rewrites one page.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import ormsgpack

from holdfast.encode.tree import NODE, Ref
from holdfast.errors import IntegrityError
from holdfast.workspace import paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.tree import Entry as NodeEntry
    from holdfast.workspace.sink import Sink

FILE = 0
DIRECTORY = 1
LINK = 2
_EMPTY = 3  # a file without content has no reference
_PLAIN = 1
_PAGED = 2
_PLAIN_FIELDS = 6
_PAGE_NAMES = 256
_MODE = 0o777
_BATCH = 256


class Entry(NamedTuple):
    """One name in a directory."""

    name: bytes
    kind: int
    mode: int
    ref: Ref | None
    target: bytes = b""
    mtime_ns: int = 0

    @property
    def size(self) -> int:
        """Return the bytes of a file's content."""
        return self.ref.size if self.ref and self.kind == FILE else 0

    def same(self, other: Entry) -> bool:
        """Return whether both hold the same thing, whenever it was modified."""
        return self[1:5] == other[1:5]


def encode(entries: Sequence[Entry], sink: Sink, known: frozenset[bytes] = frozenset()) -> tuple[Ref, frozenset[bytes]]:
    """Put a directory, its names in ascending order; return its reference and the names of its nodes."""
    if len(entries) <= _PAGE_NAMES:
        ref = sink.node(_page(entries), known)
        return ref, frozenset((ref.id,))
    pages: list[Ref] = []
    start = 0
    for end in _cuts(entries):
        pages.append(sink.node(_page(entries[start:end]), known))
        start = end
    ref = sink.node([ormsgpack.packb([_PAGED, len(entries)]), *pages], known)
    return ref, frozenset((ref.id, *(page.id for page in pages)))


def decode(refs: Sequence[Ref], reader: ChunkReader) -> list[list[Entry]]:
    """Return the entries of some directories; IntegrityError unless every name is safe and they ascend."""
    for ref in refs:
        if ref.kind != NODE:
            raise _damaged(ref, "is stored as a file")
    heads = _open(refs, reader)
    pages = [page for head, below in heads if head[0] == _PAGED for page in below]
    for page in pages:
        if page.kind != NODE:
            raise _damaged(page, "is a page that is not a node")
    opened = dict(zip(pages, _open(pages, reader), strict=True)) if pages else {}
    found: list[list[Entry]] = []
    for ref, (head, below) in zip(refs, heads, strict=True):
        if head[0] == _PAGED:
            entries = [entry for page in below for entry in _entries(page, *opened[page])]
        else:
            entries = _entries(ref, head, below)
        _check_names(ref, entries)
        found.append(entries)
    return found


def _open(refs: Sequence[Ref], reader: ChunkReader) -> list[tuple[list[Any], list[Ref]]]:
    """Return the literals and references of some nodes, fetched in batches."""
    opened: list[tuple[list[Any], list[Ref]]] = []
    for start in range(0, len(refs), _BATCH):
        batch = refs[start : start + _BATCH]
        opened += [_opened(ref, entries) for ref, entries in zip(batch, reader.nodes(batch), strict=True)]
    return opened


def _check_names(ref: Ref, entries: Sequence[Entry]) -> None:
    last = b""
    for entry in entries:
        if entry.name <= last:
            raise _damaged(ref, f"lists {paths.text(entry.name)!r} twice or out of order")
        problem = paths.fault(entry.name)
        if problem:
            raise _damaged(ref, f"lists {paths.text(entry.name)!r}, which {problem}")
        last = entry.name


def _cuts(entries: Sequence[Entry]) -> list[int]:
    """Return where the pages end: after a name whose hash says so, so that an insertion moves one boundary at most."""
    ends: list[int] = []
    last = 0
    for index, entry in enumerate(entries, 1):
        if (zlib.crc32(entry.name) & 127 == 0 and index - last >= 32) or index - last >= 2 * _PAGE_NAMES:  # noqa: PLR2004
            ends.append(index)
            last = index
    if last < len(entries):
        ends.append(len(entries))
    return ends


def _page(entries: Sequence[Entry]) -> list[NodeEntry]:
    kinds = bytes([_EMPTY if entry.kind == FILE and entry.ref is None else entry.kind for entry in entries])
    literal = ormsgpack.packb(
        [
            _PLAIN,
            [entry.name for entry in entries],
            kinds,
            [entry.mode for entry in entries],
            [entry.mtime_ns for entry in entries if entry.kind == FILE],
            [entry.target for entry in entries if entry.kind == LINK],
        ]
    )
    return [literal, *[entry.ref for entry in entries if entry.ref is not None]]


def _opened(ref: Ref, node: list[NodeEntry]) -> tuple[list[Any], list[Ref]]:
    """Return a node's decoded literal and its references."""
    refs = [entry for entry in node if isinstance(entry, Ref)]
    if not node or isinstance(node[0], Ref) or len(refs) != len(node) - 1:
        raise _damaged(ref, "is not a directory")
    try:
        head = ormsgpack.unpackb(node[0])
    except ValueError as error:
        raise _damaged(ref, f"cannot be decoded ({error})") from error
    if not isinstance(head, list) or not head or head[0] not in (_PLAIN, _PAGED):
        raise _damaged(ref, "has a form that this program does not know")
    return head, refs


def _entries(ref: Ref, head: list[Any], refs: list[Ref]) -> list[Entry]:
    """Return the entries of one page; everything is checked, because stored bytes are untrusted."""
    if head[0] != _PLAIN or not _well_formed(head):
        raise _damaged(ref, "does not have the fields of a directory")
    _, names, kinds, modes, mtimes, targets = head
    children, times, links = iter(refs), iter(mtimes), iter(targets)
    entries: list[Entry] = []
    try:
        for name, kind, mode in zip(names, kinds, modes, strict=True):
            if kind == LINK:
                entries.append(Entry(name, LINK, 0, None, next(links)))
            elif kind == DIRECTORY:
                entries.append(Entry(name, DIRECTORY, mode & _MODE, next(children)))
            elif kind == FILE:
                entries.append(Entry(name, FILE, mode & _MODE, next(children), b"", next(times)))
            elif kind == _EMPTY:
                entries.append(Entry(name, FILE, mode & _MODE, None, b"", next(times)))
            else:
                raise _damaged(ref, f"has an entry of unknown kind {kind}")
    except (StopIteration, ValueError):
        raise _damaged(ref, "has fewer fields than names") from None
    if any(next(rest, None) is not None for rest in (children, times, links)):
        raise _damaged(ref, "has more references than names")
    if any(e.kind == DIRECTORY and e.ref is not None and e.ref.kind != NODE for e in entries):
        raise _damaged(ref, "has a directory that is stored as a file")
    return entries


def _well_formed(head: list[Any]) -> bool:
    if (
        len(head) != _PLAIN_FIELDS
        or not isinstance(head[2], bytes)
        or not all(isinstance(part, list) for part in (head[1], *head[3:]))
    ):
        return False
    return (
        all(type(name) is bytes for name in head[1])
        and all(type(mode) is int for mode in head[3])
        and all(type(mtime) is int for mtime in head[4])
        and all(type(target) is bytes and target and b"\0" not in target for target in head[5])
    )


def _damaged(ref: Ref, detail: str) -> IntegrityError:
    return IntegrityError(f"directory {ref.id.hex()[:16]} of a workspace {detail}: nothing of it is restored")
