"""Reads captured trees: every path, one path, one file's bytes; and the directory now, as a tree beside stored ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.tree import LEAF, NODE, Ref, encode_node, leaf_id, node_id
from holdfast.encode.tree import Entry as NodeEntry
from holdfast.errors import ChunkCorrupt, LimitExceeded, NotFound, UsageError
from holdfast.lazy import lazily
from holdfast.workspace import paths
from holdfast.workspace.descriptors import OPEN_FILE, open_parent, read_open
from holdfast.workspace.directory import DIRECTORY, FILE, LINK, Entry, decode

with lazily():  # only a path that is not there has a nearest one
    import difflib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.workspace.snapshot import Snapshot

KINDS = {FILE: "file", DIRECTORY: "directory", LINK: "link"}
MAX_ENTRIES = 2_000_000  # a hostile tree that names one directory again and again stops here
MAX_LEVELS = 512  # a capture takes half as many
_BATCH = 64
_SUGGESTED = 3
_COMPARED = 20_000  # paths that a misspelt one is compared with


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One path of a workspace; `hash` names a file's content, equal for equal bytes stored the same way."""

    path: str
    kind: str
    size: int
    mode: int
    hash: str
    target: str
    mtime_ns: int


def record(path: bytes, entry: Entry) -> FileRecord:
    """Return a path and its entry for people."""
    name = entry.ref.id.hex() if entry.ref is not None and entry.kind == FILE else ""
    return FileRecord(
        paths.text(path), KINDS[entry.kind], entry.size, entry.mode, name, paths.text(entry.target), entry.mtime_ns
    )


def walk(reader: ChunkReader, root: Ref) -> Iterator[tuple[bytes, Entry]]:
    """Yield every path below a root, a level at a time."""
    level: list[tuple[bytes, Ref]] = [(b"", root)]
    seen = 0
    for _ in range(MAX_LEVELS):
        if not level:
            return
        below: list[tuple[bytes, Ref]] = []
        different = list(dict.fromkeys(ref for _, ref in level))  # a directory that is named twice is read once
        opened = dict(zip(different, decode(different, reader), strict=True))
        for path, ref in level:
            entries = opened[ref]
            seen += len(entries)
            if seen > MAX_ENTRIES:
                break
            for entry in entries:
                full = paths.join(path, entry.name)
                if entry.kind == DIRECTORY and entry.ref is not None:
                    below.append((full, entry.ref))
                yield full, entry
        level = below
        if seen + len(level) > MAX_ENTRIES:
            break
    raise LimitExceeded("the stored tree is damaged or hostile", "paths in a workspace", seen, MAX_ENTRIES)


def files(reader: ChunkReader, snapshot: Snapshot) -> list[FileRecord]:
    """Return every captured path in order; directories too."""
    return [record(path, entry) for path, entry in sorted(walk(reader, snapshot.root), key=lambda item: item[0])]


def find(reader: ChunkReader, root: Ref, path: str) -> Entry:
    """Return the entry at a path from the top; NotFound with the nearest if there is none."""
    entry = look_up(reader, root, path)
    if entry is None:
        raise _not_found(reader, root, path)
    return entry


def look_up(reader: ChunkReader, root: Ref, path: str) -> Entry | None:
    """Return the entry at a path from the top, None if there is none; reads only the directories above it."""
    try:
        names = paths.split(path)
    except ValueError as error:
        raise UsageError(f"{error}; give a path from the workspace's top") from None
    entry = Entry(b"", DIRECTORY, 0o755, root)
    for name in names:
        below = [] if entry.kind != DIRECTORY or entry.ref is None else decode([entry.ref], reader)[0]
        found = [item for item in below if item.name == name]
        if not found:
            return None
        entry = found[0]
    return entry


def check_named(
    reader: ChunkReader, root: Ref, only: Iterable[str], directory: str, *, last: Ref | None = None
) -> None:
    """Raise NotFound for a path that somebody named and that neither the stored tree has nor the directory.

    One that was in the `last` known tree and is gone is not a mistake of theirs.
    """
    for path in only:
        if look_up(reader, root, path) is not None:
            continue
        is_here = os.path.lexists(os.path.join(os.fsencode(directory), paths.raw(path)))  # noqa: PTH118
        if not is_here and (last is None or look_up(reader, last, path) is None):
            raise _not_found(reader, root, path)


def _not_found(reader: ChunkReader, root: Ref, path: str) -> NotFound:
    """Return the error with the nearest names, for which the whole tree is read."""
    return NotFound("captured file", path, near_paths(path, [paths.text(one) for one, _ in walk(reader, root)]))


def near_paths(path: str, known: Sequence[str]) -> str:
    """Return which paths somebody may have meant, as a question: those of the same name, or spelt nearly so."""
    name = path.rpartition("/")[2]
    near = [one for one in known if one.rpartition("/")[2] == name] or difflib.get_close_matches(
        path, known[:_COMPARED], n=_SUGGESTED
    )
    return f"did you mean {' or '.join(map(repr, near[:_SUGGESTED]))}?" if near else ""


def pieces(reader: ChunkReader, ref: Ref | None) -> Iterator[bytes]:
    """Yield a file's bytes piece by piece, each verified; memory stays bounded whatever the file's size."""
    if ref is None:
        return
    stack: list[Ref] = [ref]
    total = 0
    while stack:
        batch: list[Ref] = []
        while stack and len(batch) < _BATCH and stack[-1].kind == LEAF:
            batch.append(stack.pop())
        for data in _plain_by_size(reader, batch):
            total += len(data)
            yield data
        if stack and stack[-1].kind == NODE:
            below = reader.node(stack.pop())
            refs = [item for item in below if isinstance(item, Ref)]
            if len(refs) != len(below):
                raise ChunkCorrupt("holds more than the pieces of a file", ref.id.hex())
            stack.extend(reversed(refs))
        if total > ref.size:
            break
    if total != ref.size:
        raise ChunkCorrupt(f"holds {total:,} bytes, its directory says {ref.size:,}", ref.id.hex())


def _plain_by_size(reader: ChunkReader, refs: Sequence[Ref]) -> Iterator[bytes]:
    """Yield the bytes of leaves, a few megabytes fetched at once."""
    start, size = 0, 0
    for index, ref in enumerate(refs):
        size += ref.size
        if size >= 4 * 1024 * 1024 or index + 1 == len(refs):
            batch = refs[start : index + 1]
            for leaf, data in zip(batch, reader.plain(batch), strict=True):
                if len(data) != leaf.size:
                    raise ChunkCorrupt(f"holds {len(data):,} bytes, its node says {leaf.size:,}", leaf.id.hex())
                yield data
            start, size = index + 1, 0


class StoredTree:
    """A captured tree in a store; without a root it is empty."""

    def __init__(self, reader: ChunkReader, root: Ref | None) -> None:
        self.reader = reader
        self.root = root

    def content(self, path: bytes, entry: Entry, limit: int) -> bytes | None:
        """Return a file's bytes, or None if they are more than the limit."""
        del path
        return None if entry.size > limit else b"".join(pieces(self.reader, entry.ref))


class DiskTree:
    """The directory now: nodes from a scan that wrote nothing, contents from the disk."""

    def __init__(self, directory: str, reader: ChunkReader, root: Ref) -> None:
        self.directory = directory
        self.reader = reader
        self.root = root

    def content(self, path: bytes, entry: Entry, limit: int) -> bytes | None:
        """Return a file's bytes as they are on disk, or None if they are more than the limit."""
        if entry.size > limit:
            return None
        try:
            parent, name = open_parent(self.directory, path)
            try:
                handle = os.open(name, OPEN_FILE, dir_fd=parent)
            finally:
                os.close(parent)
            try:
                data = read_open(handle, limit + 1)
            finally:
                os.close(handle)
        except OSError as error:
            raise NotFound(
                "file", paths.text(path), f"{os.strerror(error.errno or 0)}; it was there just now"
            ) from error
        return data if data is not None and len(data) <= limit else None


class Scratch:
    """Takes the chunks of a scan that is only looked at: keeps the nodes, drops the contents."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, bytes] = {}

    def leaf(self, data: bytes) -> Ref:
        """Name plain bytes."""
        return Ref(LEAF, len(data), leaf_id(data))

    def node(self, entries: Iterable[NodeEntry]) -> Ref:
        """Keep a node."""
        data, size = encode_node(entries)
        name = node_id(data)
        self.nodes[name] = data
        return Ref(NODE, size, name)


class ScratchReader(ChunkReader):
    """Reads nodes of a scan that wrote nothing, and everything else from the store."""

    def __init__(self, scratch: Scratch, stored: ChunkReader) -> None:
        self._scratch = scratch
        self._beneath = stored

    def plain(self, refs: Sequence[Ref]) -> list[bytes]:
        """Return plain bytes, from the scan where it has them."""
        missing = [ref for ref in refs if ref.id not in self._scratch.nodes]
        fetched = dict(zip(missing, self._beneath.plain(missing), strict=True)) if missing else {}
        return [fetched[ref] if ref in fetched else self._scratch.nodes[ref.id] for ref in refs]
