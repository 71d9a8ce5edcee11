"""What differs between two trees: by hash, descending only where they differ; renames found by content."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.errors import LimitExceeded, NotFound
from holdfast.workspace import paths
from holdfast.workspace.directory import DIRECTORY, FILE, Entry, decode
from holdfast.workspace.tree import MAX_ENTRIES, MAX_LEVELS, DiskTree, FileRecord, StoredTree, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.encode.tree import Ref

Tree = StoredTree | DiskTree
Status = Literal["created", "modified", "deleted", "renamed", "mode"]
Pair = tuple[bytes, Entry | None, Entry | None]

_SIMILAR = 0.6
_MAX_CANDIDATES = 100  # created and deleted files that are compared with each other for renames
_MAX_CANDIDATE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs; `before` has the old path of a renamed file."""

    path: str
    status: Status
    before: FileRecord | None
    after: FileRecord | None
    old: Entry | None
    new: Entry | None


def differing(old: Tree, new: Tree) -> Iterator[Pair]:
    """Yield the paths whose kind, mode or content differ, with both entries; of a tree on one side only, every path."""
    level: list[tuple[bytes, Ref | None, Ref | None]] = [(b"", old.root, new.root)] if old.root != new.root else []
    seen = levels = 0
    while level:
        levels += 1
        if levels > MAX_LEVELS:
            raise LimitExceeded("a stored tree is damaged or hostile", "directories in one another", levels, MAX_LEVELS)
        left = iter(decode([ref for _, ref, _ in level if ref is not None], old.reader))
        right = iter(decode([ref for _, _, ref in level if ref is not None], new.reader))
        below: list[tuple[bytes, Ref | None, Ref | None]] = []
        for path, before, after in level:
            entries = {entry.name: entry for entry in next(left)} if before is not None else {}
            others = {entry.name: entry for entry in next(right)} if after is not None else {}
            for name in sorted({*entries, *others}):
                one, two = entries.get(name), others.get(name)
                full = paths.join(path, name)
                if one is None or two is None or not _equal(one, two):
                    yield full, one, two
                seen += 1
                if seen > MAX_ENTRIES:
                    raise LimitExceeded("a stored tree is damaged or hostile", "differing paths", seen, MAX_ENTRIES)
                nodes = _directory(one), _directory(two)
                if nodes[0] != nodes[1]:
                    below.append((full, *nodes))
        level = below


def changes(old: Tree, new: Tree, *, renames: bool = True) -> list[Change]:
    """Return what became of the files between two trees, in the order of their paths."""
    found: list[Change] = []
    for path, before, after in differing(old, new):
        one = record(path, before) if before else None
        two = record(path, after) if after else None
        found.append(Change(paths.text(path), _status(before, after), one, two, before, after))
    if renames:
        found = _with_renames(found, old, new)
    return sorted(found, key=lambda change: paths.raw(change.path))


def _equal(one: Entry, two: Entry) -> bool:
    if one.kind == two.kind == DIRECTORY:
        return one.mode == two.mode
    return one.same(two)


def _directory(entry: Entry | None) -> Ref | None:
    return entry.ref if entry is not None and entry.kind == DIRECTORY else None


def _status(before: Entry | None, after: Entry | None) -> Status:
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    same = before.kind == after.kind and (before.kind == DIRECTORY or before.ref == after.ref)
    return "mode" if same and before.target == after.target else "modified"


def _with_renames(found: list[Change], old: Tree, new: Tree) -> list[Change]:
    """Join deleted and created files that hold the same or nearly the same bytes."""
    gone = [item for item in found if item.status == "deleted" and item.old and item.old.kind == FILE and item.old.ref]
    come = [item for item in found if item.status == "created" and item.new and item.new.kind == FILE and item.new.ref]
    pairs: list[tuple[Change, Change]] = []
    by_content: dict[Ref | None, list[Change]] = {}
    for item in gone:
        by_content.setdefault(item.old.ref if item.old else None, []).append(item)
    for item in come:
        same = by_content.get(item.new.ref if item.new else None)
        if same:
            pairs.append((same.pop(0), item))
    done = {id(item) for pair in pairs for item in pair}
    pairs += _similar(
        [item for item in gone if id(item) not in done], [item for item in come if id(item) not in done], old, new
    )
    done = {id(item) for pair in pairs for item in pair}
    joined = [Change(two.path, "renamed", one.before, two.after, one.old, two.new) for one, two in pairs]
    return [item for item in found if id(item) not in done] + joined


def _similar(gone: Sequence[Change], come: Sequence[Change], old: Tree, new: Tree) -> list[tuple[Change, Change]]:
    """Pair files that share most of their lines; the likest first."""
    if not gone or not come or len(gone) > _MAX_CANDIDATES or len(come) > _MAX_CANDIDATES:
        return []
    left = [(item, _lines(old, item.path, item.old)) for item in gone]
    right = [(item, _lines(new, item.path, item.new)) for item in come]
    scored = [
        (_likeness(lines, others), i, j)
        for i, (_, lines) in enumerate(left)
        for j, (_, others) in enumerate(right)
        if lines and others
    ]
    pairs: list[tuple[Change, Change]] = []
    used: set[tuple[str, int]] = set()
    for score, i, j in sorted(scored, key=lambda item: (-item[0], item[1], item[2])):
        if score < _SIMILAR:
            break
        if ("old", i) not in used and ("new", j) not in used:
            used |= {("old", i), ("new", j)}
            pairs.append((left[i][0], right[j][0]))
    return pairs


def _lines(tree: Tree, path: str, entry: Entry | None) -> Counter[bytes]:
    try:
        content = tree.content(paths.raw(path), entry, _MAX_CANDIDATE_BYTES) if entry else None
    except NotFound:
        return Counter()  # it is gone by now, so it is like nothing
    return Counter((content or b"").splitlines())


def _likeness(one: Counter[bytes], two: Counter[bytes]) -> float:
    shared = (one & two).total()
    return 2 * shared / (one.total() + two.total())
