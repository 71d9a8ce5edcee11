"""Files of checkpoints: one directory at a time, one file as text or bytes, and the history of one path."""

from __future__ import annotations

import difflib
import itertools
import time
from typing import TYPE_CHECKING

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.tree import Ref
from holdfast.errors import IntegrityError, NotFound
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.store.lineage import head_of
from holdfast.web.history import SEARCH_S, ancestors
from holdfast.web.site import RequestRefused
from holdfast.workspace import paths, snapshot, tree
from holdfast.workspace.diff import is_binary
from holdfast.workspace.directory import DIRECTORY, FILE, Entry, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.web import answers
    from holdfast.web.site import Handle
    from holdfast.workspace.compare import Change
    from holdfast.workspace.snapshot import Snapshot

MOST_SHOWN_BYTES = 512 * 1024
_MOST_VERSIONS = 100
_MOST_BLAMED_BYTES = 100_000
_MOST_COUNTED = 40  # directories whose entries are counted: each is read for it


def captured(hf: Holdfast, record: CheckpointRecord) -> tuple[ChunkReader, Snapshot]:
    """Return a checkpoint's snapshot of its directory, and what reads it; NotFound if it has none."""
    found = next((one for one in record.envelope.sections if one.name == WORKSPACE), None)
    if found is None:
        raise NotFound("captured directory in checkpoint", record.envelope.id)
    reader = ChunkReader(hf.store.fetch)
    return reader, snapshot.load(reader, Ref(found.kind, found.size, found.root))


def directory(
    hf: Holdfast, record: CheckpointRecord, under: str, *, offset: int, limit: int, changed: list[Change]
) -> answers.DirectoryPage:
    """Return a page of what lies in one directory, those that differ from the parent marked."""
    reader, shot = captured(hf, record)
    entry = tree.find(reader, shot.root, under) if under else Entry(b"", DIRECTORY, 0o755, shot.root)
    if entry.kind != DIRECTORY:
        raise NotFound("captured directory", under)
    entries = decode([entry.ref], reader)[0] if entry.ref is not None else []
    entries = sorted(entries, key=lambda one: (one.kind != DIRECTORY, one.name))
    shown = entries[offset : offset + limit]
    inside = [one for one in shown if one.kind == DIRECTORY and one.ref is not None][:_MOST_COUNTED]
    counts = dict(
        zip((one.name for one in inside), map(len, decode([one.ref for one in inside if one.ref], reader)), strict=True)
    )
    prefix = f"{under}/" if under else ""
    status = {change.path: change.status for change in changed}
    above = {path for one in status for path in _above(one)}
    rows = [_row(prefix, one, counts, status, above) for one in shown]
    gone = [change.path for change in changed if change.status == "deleted" and _parent(change.path) == under]
    return {
        "id": record.envelope.id,
        "seq": record.envelope.seq,
        "under": under,
        "total": len(entries),
        "offset": offset,
        "entries": rows,
        "deleted": gone[:limit],
    }


def _row(
    prefix: str, entry: Entry, counts: dict[bytes, int], status: Mapping[str, str], above: set[str]
) -> answers.FileEntry:
    record = tree.record(paths.raw(prefix) + entry.name, entry)
    return {
        "path": record.path,
        "name": paths.text(entry.name),
        "kind": record.kind,
        "size": record.size,
        "mode": record.mode,
        "target": record.target,
        "entries": counts.get(entry.name),
        "change": status.get(record.path) or ("inside" if record.path in above else None),
    }


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def changed_paths(checkpoint: Checkpoint) -> list[Change]:
    """Return what became of the files since the parent; all is new in a run's first capture, so nothing is marked."""
    if WORKSPACE not in checkpoint.sections or checkpoint.parent is None:
        return []
    try:
        return checkpoint.changes()
    except (NotFound, IntegrityError):
        return []


def left_out(checkpoint: Checkpoint) -> answers.LeftOut:
    """Return what was not captured, and why."""
    skips = checkpoint.not_captured
    return {
        "counts": dict(skips.counts),
        "listed": [(paths.text(skip.path), skip.reason) for skip in skips.listed[:500]],
    }


def file_text(handle: Handle, record: CheckpointRecord, path: str, *, offset: int) -> answers.FileText:
    """Return a stretch of a captured file as text; binary ones say so."""
    reader, shot = captured(handle.hf, record)
    entry = tree.find(reader, shot.root, path)
    if entry.kind != FILE:
        raise NotFound("captured file", path)
    data = _stretch(reader, entry, offset)
    binary = is_binary(data)
    text = None if binary else handle.clean_text(data.decode("utf-8", "surrogateescape"))
    return {"path": path, "size": entry.size, "mode": entry.mode, "offset": offset, "binary": binary, "text": text}


def _stretch(reader: ChunkReader, entry: Entry, offset: int) -> bytes:
    """Return so many bytes from an offset; what comes before is read and not kept."""
    found = b""
    seen = 0
    for piece in tree.pieces(reader, entry.ref):
        start = max(0, offset - seen)
        seen += len(piece)
        found += piece[start : start + MOST_SHOWN_BYTES - len(found)]
        if len(found) >= MOST_SHOWN_BYTES:
            break
    return found


def file_bytes(hf: Holdfast, record: CheckpointRecord, path: str) -> tuple[int, Iterator[bytes]]:
    """Return a captured file's size and its bytes, piece by piece."""
    reader, shot = captured(hf, record)
    entry = tree.find(reader, shot.root, path)
    if entry.kind != FILE:
        raise NotFound("captured file", path)
    return entry.size, tree.pieces(reader, entry.ref)


def history(handle: Handle, run: str, path: str, *, before: int | None) -> answers.FileHistoryAnswer:
    """Return the versions of one path, newest first, each with the checkpoint that first had it."""
    hf = handle.hf
    try:
        paths.split(path)
    except ValueError as error:
        raise RequestRefused(404, "NotFound", f"{path[:80]!r} is not a path: {error}") from None
    hf.store.run(check_run_id(run))
    ends = time.monotonic() + SEARCH_S
    found: list[answers.FileVersionAnswer] = []
    damaged: list[answers.DamagedVersion] = []
    last: tuple[CheckpointRecord, Entry | None] | None = None
    last_root: bytes | None = None
    looked, more = 0, None
    for record in _line(hf, run, before):
        looked += 1
        section = next((one for one in record.envelope.sections if one.name == WORKSPACE), None)
        if section is None:
            continue
        if section.root != last_root:
            try:
                reader, shot = captured(hf, record)
                entry = tree.look_up(reader, shot.root, path)
            except IntegrityError as error:
                damaged.append({"damaged": str(error), "seq": record.envelope.seq})
                continue
            if last is not None and _differs(last[1], entry):
                found.append(_version(*last, entry))
            last_root = section.root
            last = (record, entry)
        elif last is not None:
            last = (record, last[1])
        if time.monotonic() > ends:
            more = record.envelope.seq
            break
    if last is not None and more is None and last[1] is not None:
        found.append(_version(*last, None))
    return {"run": run, "path": path, "versions": found, "damaged": damaged, "looked_at": looked, "next": more}


def blame(handle: Handle, run: str, path: str) -> answers.Blame:
    """Return the lines of a file as the run's head has it, each with the checkpoint that first had it."""
    told = history(handle, run, path, before=None)
    versions = told["versions"][:_MOST_VERSIONS]
    lines: list[str] = []
    origins: list[int] = []
    for number in range(len(versions) - 1, -1, -1):  # oldest first: what stays keeps its origin
        text = _text_of(handle.hf, versions[number], path)
        if text is None:
            return {"run": run, "path": path, "versions": [], "lines": [], "note": "it is binary, or too large"}
        origins = _carried(lines, text, origins, number)
        lines = text
    is_whole = told["next"] is None and not told["damaged"] and len(versions) == len(told["versions"])
    return {
        "run": run,
        "path": path,
        "versions": versions,
        "lines": [(origin, handle.clean_text(line)) for origin, line in zip(origins, lines, strict=True)],
        "note": None if is_whole else "older versions are counted as the oldest that was looked at",
    }


def _carried(old: list[str], new: list[str], origins: list[int], number: int) -> list[int]:
    """Return the origins of the lines of a version: those of the one before where they stayed, else its own."""
    found = [number] * len(new)
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        found[block.b : block.b + block.size] = origins[block.a : block.a + block.size]
    return found


def _text_of(hf: Holdfast, version: answers.FileVersionAnswer, path: str) -> list[str] | None:
    if version["status"] == "deleted":
        return []
    reader, shot = captured(hf, hf.store.checkpoint(version["id"]))
    entry = tree.find(reader, shot.root, path)
    if entry.kind != FILE or entry.size > _MOST_BLAMED_BYTES:
        return None
    data = b"".join(tree.pieces(reader, entry.ref))
    return None if is_binary(data) else data.decode("utf-8", "surrogateescape").splitlines()


def _line(hf: Holdfast, run: str, before: int | None) -> Iterator[CheckpointRecord]:
    """Yield the checkpoints that led to the head (or to one before a number), newest first."""
    if before is None:
        return ancestors(hf.store, head_of(hf.store, hf.store.run(run)))
    return itertools.islice(ancestors(hf.store, hf.store.checkpoint_at(run, before)), 1, None)


def _differs(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is not other
    return (one.kind, one.ref, one.mode, one.target) != (other.kind, other.ref, other.mode, other.target)


def _version(record: CheckpointRecord, entry: Entry | None, before: Entry | None) -> answers.FileVersionAnswer:
    envelope = record.envelope
    return {
        "id": envelope.id,
        "run": envelope.run,
        "seq": envelope.seq,
        "parent": envelope.parent,
        "at": envelope.created_at.isoformat(),
        "trigger": envelope.trigger,
        "reason": envelope.reason,
        "phase": envelope.summary.phase,
        "status": "deleted" if entry is None else "created" if before is None else "modified",
        "size": entry.size if entry is not None else 0,
        "mode": entry.mode if entry is not None else 0,
    }
