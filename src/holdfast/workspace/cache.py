"""What is known of a workspace, as one blob for the next process; a damaged or foreign blob is simply not used.

What an unchanged directory needs stands in the open; the rest of each directory is packed apart and decoded on demand.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ormsgpack
from blake3 import blake3

from holdfast.encode.tree import Ref
from holdfast.workspace.directory import FILE, Entry
from holdfast.workspace.known_directory import DirectoryDetails, DirectoryDraft, Known, Outcome
from holdfast.workspace.skips import NO_SKIPS, Skip, Skips

_MAGIC = b"hfws1"
_DIGEST_BYTES = 32


def dump(known: Known, digest: bytes) -> bytes:
    """Return a blob of what is known after the snapshot of this digest; empty if the tree is too deep to pack."""
    try:
        body = ormsgpack.packb([digest, _row(known)])
    except (TypeError, ValueError):
        return b""
    return _MAGIC + blake3(body).digest() + body


def load(blob: bytes) -> tuple[Known, bytes] | None:
    """Return what was known and the digest of its snapshot; None for anything but a sound blob."""
    body = blob[len(_MAGIC) + _DIGEST_BYTES :]
    if not blob.startswith(_MAGIC) or blake3(body).digest() != blob[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]:
        return None
    try:
        digest, row = ormsgpack.unpackb(body)
        return (_known(row), digest) if type(digest) is bytes else None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _row(known: Known) -> list[Any]:
    sizes = [0 if mark is None else mark >> 64 for mark in known.stamps]
    changed = [-1 if mark is None else mark & (2**64 - 1) for mark in known.stamps]
    skips = [[[skip.path, skip.reason] for skip in known.skips.listed], known.skips.counts] if known.skips else None
    return [
        known.key,
        known.mode,
        known.token,
        known.names,
        sizes,
        changed,
        _ref_out(known.ref),
        sorted(known.nodes),
        known.ignore_files,
        known.has_git,
        skips,
        (known.own_files, known.own_bytes),
        ormsgpack.packb(_details_out(known.details)),
        list(known.children),
        [_row(child) if type(child) is Known else child for child in known.children.values()],
    ]


def _known(row: list[Any]) -> Known:
    key, mode, token, names, sizes, changed, ref, nodes, ignore_files, has_git, skips, own, packed, below, rows = row
    stamps = [None if time < 0 else (size << 64) + time for size, time in zip(sizes, changed, strict=True)]
    draft = DirectoryDraft(
        key=None if key is None else tuple(key),
        mode=mode,
        token=token,
        names=names,
        stamps=stamps,
        children={
            name: child if type(child) is str else _known(child) for name, child in zip(below, rows, strict=True)
        },
        ignore_files=tuple(ignore_files),
        has_git=has_git,
    )
    if len(names) != len(stamps):
        raise ValueError("names and stamps differ in number")
    return Known(
        draft,
        _ref_in(ref),
        frozenset(nodes),
        _skips_in(skips) if skips else NO_SKIPS,
        details=partial(_details_in, packed, names),
        own=(own[0], own[1]),
    )


def _details_out(details: DirectoryDetails) -> list[Any]:
    entries = [
        [entry.kind, entry.mode, _ref_out(entry.ref), entry.target, entry.mtime_ns] if type(entry) is Entry else entry
        for entry in details.entries
    ]
    return [entries, [[name, list(pieces)] for name, pieces in details.pieces.items()], list(details.left_out.items())]


def _details_in(packed: bytes, names: list[bytes]) -> DirectoryDetails:
    stored, pieces, left_out = ormsgpack.unpackb(packed)
    entries: list[Outcome] = []
    for name, item in zip(names, stored, strict=True):
        if type(item) is str:
            entries.append(item)
        else:
            kind, mode, ref, target, mtime_ns = item
            entries.append(Entry(name, kind, mode, _ref_in(ref) if kind == FILE and ref else None, target, mtime_ns))
    return DirectoryDetails(entries, {name: tuple(parts) for name, parts in pieces}, dict(left_out))


def _skips_in(stored: list[Any]) -> Skips:
    return Skips(tuple(Skip(path, reason) for path, reason in stored[0]), dict(stored[1]))


def _ref_out(ref: Ref | None) -> bytes:
    return b"" if ref is None else bytes([ref.kind]) + ref.size.to_bytes(6, "big") + ref.id


def _ref_in(data: bytes) -> Ref:
    return Ref(data[0], int.from_bytes(data[1:7], "big"), data[7:])
