"""The value of a checkpoint's workspace section: small, with the tree of files hanging below it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import ormsgpack

from holdfast.encode.footprint import check_footprint
from holdfast.encode.tree import LEAF, NODE, Entry, Ref, encode_node, leaf_id, node_id
from holdfast.errors import FormatTooNew, IntegrityError
from holdfast.workspace.paths import join, raw, text
from holdfast.workspace.position import MAX_PACKS, Base, GitChange, GitHistory, GitPosition, Head, IndexEntry
from holdfast.workspace.skips import Skip, Skips

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.sink import SinkWriter

FORMAT = 3
"""2 has its metadata in the node itself; 3, for what does not fit into one chunk, in leaves below it."""
_IN_NODE = 2
_NODE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_PAGE_REFS = 16_384
_MAX_META_BYTES = 128 << 20
_MAX_REFS = 1_000_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One capture of a workspace: the root of its tree, what was left out, and where its repositories stood."""

    root: Ref
    files: int
    directories: int
    size_bytes: int
    skips: Skips
    positions: tuple[GitPosition, ...]

    @property
    def git(self) -> GitPosition:
        """Return the position of the repository that the workspace is in; its head is "none" without one."""
        return self.positions[0]

    @property
    def not_captured(self) -> Skips:
        """Return the paths that were left out, and of repositories what could not be kept, as the path of a .git."""
        problems = [
            Skip(join(raw(one.path), b".git"), f"git: {why}")
            for one in self.positions
            for why in (one.problem, one.history and one.history.problem)
            if why
        ]
        counts = Counter(skip.reason for skip in problems)
        return Skips((*problems, *self.skips.listed), {**counts, **self.skips.counts})

    @property
    def digest(self) -> bytes:
        """Return the name of the node that holds this snapshot."""
        return store(_Naming(), self).id

    def meta(self) -> bytes:
        """Return the metadata, packed."""
        return ormsgpack.packb(
            {
                "format": _IN_NODE,
                "files": self.files,
                "directories": self.directories,
                "size_bytes": self.size_bytes,
                "skipped": [[skip.path, skip.reason] for skip in self.skips.listed],
                "skipped_counts": self.skips.counts,
                "git": [position_out(position) for position in self.positions],
            }
        )

    def below(self) -> list[Ref]:
        """Return what the metadata names beside the tree of files: contents that only an index has, and histories."""
        found = [ref for position in self.positions for _, ref in position.blobs]
        return found + [ref for position in self.positions if position.history for ref in position.history.refs]


class _Naming:
    """A writer that keeps nothing, and only says how things are named."""

    def leaf(self, data: bytes) -> Ref:
        return Ref(LEAF, len(data), leaf_id(data))

    def node(self, entries: Iterable[Entry]) -> Ref:
        data, size = encode_node(entries)
        return Ref(NODE, size, node_id(data))


def store(writer: SinkWriter, snapshot: Snapshot) -> Ref:
    """Put a snapshot's node and return its reference: the root of a checkpoint's workspace section."""
    meta, below = snapshot.meta(), snapshot.below()
    if len(meta) <= _NODE_BYTES and len(below) <= _PAGE_REFS:
        return writer.node([meta, snapshot.root, *below])
    pieces = [writer.leaf(meta[start : start + _PIECE_BYTES]) for start in range(0, len(meta), _PIECE_BYTES)]
    pages = [writer.node(below[start : start + _PAGE_REFS]) for start in range(0, len(below), _PAGE_REFS)]
    return writer.node([ormsgpack.packb({"format": FORMAT}), snapshot.root, writer.node(pieces), *pages])


def load(reader: ChunkReader, ref: Ref) -> Snapshot:
    """Return a stored snapshot; IntegrityError unless it is whole."""
    entries = reader.node(ref)
    if len(entries) < 2 or isinstance(entries[0], Ref):  # noqa: PLR2004
        raise IntegrityError(f"workspace {ref.id.hex()[:16]} has no metadata")
    refs = [entry for entry in entries[1:] if isinstance(entry, Ref)]
    if len(refs) != len(entries) - 1 or refs[0].kind != NODE:
        raise IntegrityError(f"workspace {ref.id.hex()[:16]} is not the node of a workspace")
    try:
        plain = ormsgpack.unpackb(entries[0])
        if isinstance(plain, dict) and isinstance(plain.get("format"), int) and plain["format"] > FORMAT:
            raise FormatTooNew("the workspace of this checkpoint", plain["format"], FORMAT)
        if plain == {"format": FORMAT} and len(refs) > 1:
            plain, refs = _below_node(reader, refs)
        return _snapshot(msgspec.convert(plain, _Meta), refs)
    except (ValueError, msgspec.ValidationError, LookupError, StopIteration) as error:
        raise IntegrityError(f"workspace {ref.id.hex()[:16]} cannot be decoded: {error}") from error


def _below_node(reader: ChunkReader, refs: list[Ref]) -> tuple[Any, list[Ref]]:
    """Return metadata that is kept in leaves, and what it refers to: both may be hostile, so their size comes first."""
    content = reader.load(refs[1], limit=_MAX_META_BYTES)
    check_footprint("a workspace", content.data, max_bytes=_MAX_META_BYTES, stored_bytes=content.stored_bytes)
    found = [refs[0]]
    for page in reader.nodes(refs[2:]):
        found += [entry for entry in page if isinstance(entry, Ref)]
        if len(found) > _MAX_REFS:
            raise ValueError(f"it refers to more than {_MAX_REFS:,} contents")
    return ormsgpack.unpackb(content.data), found


class _HistoryOut(msgspec.Struct, forbid_unknown_fields=True):
    base: Base
    tips: list[bytes]
    packs: int
    has_details: bool
    size_bytes: int
    problem: str | None


class _PositionOut(msgspec.Struct, forbid_unknown_fields=True):
    path: bytes
    head: Head
    branch: bytes | None
    commit: str | None
    staged: list[tuple[bytes, str]]
    unstaged: list[tuple[bytes, str]]
    operation: str | None
    state_files: list[tuple[str, bytes]]
    index: list[tuple[bytes, int, int, str]]
    blobs: list[str]
    problem: str | None
    history: _HistoryOut | None = None


class _Meta(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    files: int
    directories: int
    size_bytes: int
    skipped: list[tuple[bytes, str]]
    skipped_counts: dict[str, int]
    git: list[_PositionOut]


def _snapshot(meta: _Meta, refs: list[Ref]) -> Snapshot:
    below = iter(refs[1:])
    blobs = [[next(below) for _ in item.blobs] for item in meta.git]
    histories = [_history_in(item.history, below) for item in meta.git]
    positions = tuple(map(_position_in, meta.git, blobs, histories))
    if not positions or next(below, None) is not None:
        raise ValueError("its references do not fit its metadata")
    skips = Skips(tuple(Skip(path, reason) for path, reason in meta.skipped), meta.skipped_counts)
    return Snapshot(refs[0], meta.files, meta.directories, meta.size_bytes, skips, positions)


def position_out(position: GitPosition) -> dict[str, Any]:
    """Return a position as plain values; what it refers to is stored by its writer."""
    return {
        "path": raw(position.path),
        "head": position.head,
        "branch": None if position.branch is None else raw(position.branch),
        "commit": position.commit,
        "staged": [[raw(path), status] for path, status in position.staged],
        "unstaged": [[raw(path), status] for path, status in position.unstaged],
        "operation": position.operation,
        "state_files": [list(item) for item in position.state_files],
        "index": [[raw(path), stage, mode, name] for path, stage, mode, name in position.index],
        "blobs": [name for name, _ in position.blobs],
        "problem": None if position.problem is None else ascii(position.problem)[1:-1],
        **({} if position.history is None else {"history": _history_out(position.history)}),
    }


def position_in(plain: object) -> GitPosition:
    """Return a position that refers to nothing from its plain values; ValueError if they are not one."""
    return _position_in(msgspec.convert(plain, _PositionOut), [], None)


def _history_out(history: GitHistory) -> dict[str, Any]:
    return {
        "base": history.base,
        "tips": [bytes.fromhex(tip) for tip in history.tips],
        "packs": len(history.packs),
        "has_details": history.details is not None,
        "size_bytes": history.size_bytes,
        "problem": None if history.problem is None else ascii(history.problem)[1:-1],
    }


def _history_in(stored: _HistoryOut | None, refs: Iterator[Ref]) -> GitHistory | None:
    if stored is None:
        return None
    details = next(refs) if stored.has_details else None
    packs = tuple(islice(refs, stored.packs))
    if len(packs) != stored.packs or stored.packs > MAX_PACKS:
        raise ValueError("its references do not fit its metadata")
    tips = tuple(tip.hex() for tip in stored.tips)
    return GitHistory(stored.base, tips, packs, details, stored.size_bytes, stored.problem)


def _position_in(stored: _PositionOut, refs: list[Ref], history: GitHistory | None) -> GitPosition:
    return GitPosition(
        path=text(stored.path),
        head=stored.head,
        branch=None if stored.branch is None else text(stored.branch),
        commit=stored.commit,
        staged=tuple(GitChange(text(path), status) for path, status in stored.staged),
        unstaged=tuple(GitChange(text(path), status) for path, status in stored.unstaged),
        operation=stored.operation,
        state_files=tuple(stored.state_files),
        index=tuple(IndexEntry(text(path), stage, mode, name) for path, stage, mode, name in stored.index),
        blobs=tuple(zip(stored.blobs, refs, strict=True)),
        problem=stored.problem,
        history=history,
    )
