"""Makes the plan of a restore from three trees: the checkpoint's, the one we last knew, and the directory now."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.encode.tree import leaf_id
from holdfast.errors import NoRoom, NotFound, RestoreRefused
from holdfast.workspace import paths
from holdfast.workspace.compare import differing
from holdfast.workspace.decide import Decisions, decide
from holdfast.workspace.descriptors import open_parent
from holdfast.workspace.directory import DIRECTORY, FILE, LINK, Entry
from holdfast.workspace.links import PlannedTree
from holdfast.workspace.merge import MAX_MERGE_BYTES, Merged, merge
from holdfast.workspace.ownership import Ownership
from holdfast.workspace.plan import PlanItem, RestorePlan
from holdfast.workspace.state import ABSENT, OTHER, State
from holdfast.workspace.tree import DiskTree, StoredTree, pieces, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.ownership import Owner
    from holdfast.workspace.snapshot import Snapshot
    from holdfast.workspace.workspace import Workspace

_NO_DECISIONS = Decisions()
_WRITING = ("write", "replace", "merge", "both")
_STAYING = ("keep", "conflict", "merge", "both")


def plan_restore(
    reader: ChunkReader,
    workspace: Workspace,
    checkpoint: Snapshot,
    *,
    last: Snapshot | None = None,
    only: Sequence[str] = (),
    decisions: Decisions = _NO_DECISIONS,
    ownership: Ownership | None = None,
    in_place: bool = True,
    allow_outside_links: bool = False,
    target: str | None = None,
) -> RestorePlan:
    """Return what a restore of `checkpoint` into the workspace would do; nothing is written.

    `last` is the newest snapshot of this directory that the run took, None for a directory that it never saw;
    `ownership` tells who changed what since. `only` limits the restore to these paths and what is below them.
    Everything in the stored tree that is not on disk already, byte for byte, is checked here: RestoreRefused or
    IntegrityError if anything in it is hostile, whether it would be written or not. `target` is the directory to
    restore into, if that is not there yet and the workspace stands for it.
    """
    for path in only:
        try:
            paths.split(path)
        except ValueError as error:
            raise RestoreRefused(f"{error}") from error
    with _readable(workspace.root):
        disk, _ = workspace.look(reader, last)
        draft = _Draft(reader, workspace.root, disk, decisions, ownership or Ownership())
        draft.compare(StoredTree(reader, checkpoint.root), last, tuple(paths.raw(path) for path in only))
        draft.refuse_store(tuple(paths.raw(path) for path in workspace.options.store_paths))
        for secret in workspace.options.secret_paths:  # captured before the settings named it: it stays as it is
            draft.found.pop(paths.raw(secret), None)
        draft.decide()
        draft.merge()
        draft.settle()
        if not allow_outside_links:
            draft.refuse_outside_links()
        target = target or workspace.root
        draft.check_room(target)
        interrupted = draft.ownership.interrupted if draft.has_interrupted else ""
        return RestorePlan(target, checkpoint.digest.hex(), in_place, draft.items(), interrupted)


@contextmanager
def _readable(root: str) -> Iterator[None]:
    """Give what the file system says as a typed error."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise RestoreRefused(f"{root!r} cannot be read: {reason}; put that right and plan again") from error


@dataclass(slots=True)
class _Path:
    """One differing path while the plan is made."""

    checkpoint: Entry | None
    disk: Entry | None
    last: Entry | None
    states: tuple[State, State | None, State] = (ABSENT, None, ABSENT)  # of the checkpoint, the last known, the disk
    obstacle: bool = False
    owner: Owner = "unknown"
    action: str = ""
    reason: str = ""
    merged: Merged | None = None
    beside: str = ""


@dataclass(slots=True)
class _Draft:
    reader: ChunkReader
    root: str
    disk: DiskTree
    decisions: Decisions
    ownership: Ownership
    seen: bool = False
    owners: dict[bytes, Owner] = field(default_factory=dict)
    found: dict[bytes, _Path] = field(default_factory=dict)

    def compare(self, checkpoint: StoredTree, last: Snapshot | None, only: tuple[bytes, ...]) -> None:
        """Find the paths that differ from the checkpoint, and what we last knew of each."""
        for path, stored, now in differing(checkpoint, self.disk):
            if _selected(path, only) or (_leads_to(path, only) and not (_is_directory(stored) and _is_directory(now))):
                self.found[path] = _Path(stored, now, stored)
        self.seen = last is not None
        if last is not None:
            before = StoredTree(self.reader, last.root)
            for path, _, known in differing(checkpoint, before):
                if path in self.found:
                    self.found[path].last = known
            changed = [path for path, _, _ in differing(before, self.disk)]
            self.owners = self.ownership.of_changes(self.root, changed)
        for path in _obstacles(self.root, [path for path, item in self.found.items() if item.disk is None]):
            self.found[path].obstacle = True

    def refuse_store(self, store: tuple[bytes, ...]) -> None:
        """Refuse a tree that reaches into our own store."""
        for path, item in self.found.items():
            if item.checkpoint is not None and any(path == own or path.startswith(own + b"/") for own in store):
                raise RestoreRefused(f"the checkpoint would write to {paths.text(path)!r}, where the store lies")

    def decide(self) -> None:
        """Decide on each path by itself."""
        for path, item in self.found.items():
            disk = OTHER if item.obstacle else State.of(item.disk)
            item.states = State.of(item.checkpoint), State.of(item.last) if self.seen else None, disk
            if self.seen:
                item.owner = self._owner(path, item)
            item.action, item.reason = decide(paths.text(path), *item.states, self.decisions, owner=item.owner)

    def _owner(self, path: bytes, item: _Path) -> Owner:
        _, last, disk = item.states
        if disk == last:
            return self.ownership.of_captured(paths.text(path), disk)
        return self.owners.get(path, "unknown")

    @property
    def has_interrupted(self) -> bool:
        """Whether an interrupted call changed anything here."""
        return any(item.owner == "interrupted" for item in self.found.values())

    def merge(self) -> None:
        """Merge three ways what both sides changed."""
        for path, item in self.found.items():
            if item.action == "conflict" and self.decisions.merge_clean and self.seen and not item.obstacle:
                merged = self._merged(path, item)
                if merged is not None and not merged.conflicts:
                    item.action, item.reason, item.merged = (
                        "merge",
                        "changed by the run, and by you in another place: merged",
                        merged,
                    )
            elif item.action == "merge":
                item.merged = self._merged(path, item)
                if item.merged is None:
                    item.action, item.reason = "conflict", f"{item.reason}, but it cannot be merged"
            elif item.action == "both" and (item.checkpoint is None or item.checkpoint.kind == DIRECTORY):
                item.action, item.reason = "keep", "the checkpoint has no file to put beside it"
            elif item.action == "both":
                item.beside = self._beside(path)

    def _merged(self, path: bytes, item: _Path) -> Merged | None:
        sides = (item.last, item.disk, item.checkpoint)
        if any(side is None or side.kind != FILE or side.size > MAX_MERGE_BYTES for side in sides):
            return None
        assert item.disk is not None
        assert item.last is not None
        assert item.checkpoint is not None
        try:
            mine = self.disk.content(path, item.disk, MAX_MERGE_BYTES)
        except NotFound:
            return None
        if mine is None:
            return None
        base, theirs = (b"".join(pieces(self.reader, side.ref)) for side in (item.last, item.checkpoint))
        return merge(base, mine, theirs)

    def _beside(self, path: bytes) -> str:
        number = 0
        while True:
            beside = path + b".checkpoint" + (b"-%d" % number if number else b"")
            if beside not in self.found and not any(_obstacles(self.root, [beside])):
                return paths.text(beside)
            number += 1

    def settle(self) -> None:
        """Make single decisions fit together: directories above what is written, nothing kept below what goes."""
        for above in _all_above(path for path, item in self.found.items() if item.action in _WRITING):
            item = self.found.get(above)
            if item is not None and item.action == "keep" and _is_directory(item.checkpoint):
                item.action = "write" if item.disk is None else "conflict"
                item.reason = "holds what is restored"
        kept = _all_above(
            path for path, item in self.found.items() if item.disk is not None and item.action in _STAYING
        )
        for path in kept:
            item = self.found.get(path)
            if item is not None and _is_directory(item.disk) and not _is_directory(item.checkpoint):
                item.action = "keep" if item.checkpoint is None else "conflict"
                item.reason = "holds files that are kept"
        blocked = {path for path, item in self.found.items() if _blocks(item)}
        for path, item in self.found.items() if blocked else ():
            if item.action in ("write", "replace") and any(above in blocked for above in _above(path)):
                item.action, item.reason = "conflict", "a file that is kept is where its directory would be"

    def refuse_outside_links(self) -> None:
        """Refuse the whole restore if a link would lead out of the workspace, by itself or over links that it makes."""
        planned = {path: _planned(item) for path, item in self.found.items()}
        made = {path for path, item in self.found.items() if item.action in _WRITING and _is_link(item.checkpoint)}
        beside = {path: paths.raw(item.beside) for path, item in self.found.items() if item.beside}
        planned |= {place: self.found[path].checkpoint for path, place in beside.items()}
        links = [(beside.get(path, path), self.found[path].checkpoint) for path in made]
        if made:
            present = walk(self.disk.reader, self.disk.root)
            links += [
                (path, entry) for path, entry in present if entry.kind == LINK and planned.get(path, entry) == entry
            ]
        written = {path for path, _ in links[: len(made)]}
        tree = PlannedTree(self.root, planned)
        try:
            for path, entry in links:
                over = tree.leads_out(path, entry.target) if entry is not None else None
                if entry is not None and over is not None and (path in written or over & written):
                    raise RestoreRefused(
                        f"the link {paths.text(path)!r} leads out of the workspace to {paths.text(entry.target)!r}; "
                        "pass allow_outside_links to create it all the same"
                    )
        finally:
            tree.close()

    def check_room(self, target: str) -> None:
        """Refuse a restore that would fill the disk."""
        needed = sum(
            item.checkpoint.size
            for item in self.found.values()
            if item.checkpoint is not None and item.action in _WRITING
        )
        while not os.path.isdir(target):  # noqa: PTH112
            target = os.path.dirname(target)  # noqa: PTH120
        room = os.statvfs(target)
        if needed > room.f_bavail * room.f_frsize:
            raise NoRoom(f"it needs {needed:,} bytes and {room.f_bavail * room.f_frsize:,} are free")

    def items(self) -> tuple[PlanItem, ...]:
        """Return the plan's items in the order of their paths."""
        return tuple(_item(path, item) for path, item in sorted(self.found.items()))


def directories_of(plan: RestorePlan) -> frozenset[bytes]:
    """Return the directories that a plan changes something in, each with those above it."""
    changed = [paths.raw(path) for item in plan.changes for path in (item.path, item.beside) if path]
    return frozenset({b"", *changed, *_all_above(changed)})


def _planned(item: _Path) -> Entry | None:
    """Return what will be at a path."""
    return item.checkpoint if item.action in ("write", "replace", "merge", "delete") else item.disk


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == LINK


def _item(path: bytes, item: _Path) -> PlanItem:
    return PlanItem(
        path=paths.text(path),
        action=item.action,  # type: ignore[arg-type]
        reason=item.reason,
        checkpoint=item.states[0],
        last=item.states[1],
        disk=item.states[2],
        mtime_ns=item.checkpoint.mtime_ns if item.checkpoint is not None else 0,
        merged=leaf_id(item.merged.data).hex() if item.merged is not None else "",
        beside=item.beside,
        owner=item.owner,
    )


def _blocks(item: _Path) -> bool:
    """Return whether a path stays something that no directory can be put in the place of."""
    return item.action in _STAYING and (item.obstacle or (item.disk is not None and item.disk.kind != DIRECTORY))


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == DIRECTORY


def _selected(path: bytes, only: tuple[bytes, ...]) -> bool:
    return not only or any(path == chosen or path.startswith(chosen + b"/") for chosen in only)


def _leads_to(path: bytes, only: tuple[bytes, ...]) -> bool:
    return any(chosen.startswith(path + b"/") for chosen in only)


def _above(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _all_above(below: Iterable[bytes]) -> set[bytes]:
    """Return every directory above some paths; each is looked at once."""
    found: set[bytes] = set()
    for path in below:
        for above in _above(path):
            if above in found:
                break
            found.add(above)
    return found


def _obstacles(root: str, candidates: Sequence[bytes]) -> Iterator[bytes]:
    """Yield those paths, absent from the scan, at which there is something all the same: ignored, special and so on."""
    by_parent: dict[bytes, list[bytes]] = {}
    for path in candidates:
        by_parent.setdefault(path.rpartition(b"/")[0], []).append(path)
    missing: set[bytes] = set()
    for parent in sorted(by_parent):
        if any(above in missing for above in _above(parent)):
            missing.add(parent)
            continue
        try:
            handle, _ = open_parent(root, paths.join(parent, b"x"))
        except OSError:
            missing.add(parent)
            continue
        try:
            names = {os.fsencode(name) for name in os.listdir(handle)}  # noqa: PTH208 - a descriptor
        finally:
            os.close(handle)
        yield from (path for path in by_parent[parent] if path.rpartition(b"/")[2] in names)
