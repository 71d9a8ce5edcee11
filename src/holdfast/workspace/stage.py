"""Puts everything a restore will need beside the workspace, before anything in it is touched."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.encode.tree import leaf_id
from holdfast.workspace import paths
from holdfast.workspace.descriptors import OPEN_DIRECTORY, OPEN_FILE, open_parent
from holdfast.workspace.journal import Move
from holdfast.workspace.merge import merge
from holdfast.workspace.read_ahead import ReadAhead
from holdfast.workspace.state import ABSENT, State, on_disk, tree_state
from holdfast.workspace.swap import MovedPath
from holdfast.workspace.tree import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.ops import FileOps
    from holdfast.workspace.plan import PlanItem, RestorePlan

_SYNCED_SINGLY = 256


@dataclass(slots=True)
class _Group:
    """A directory that is not there yet, with everything of the plan below it."""

    top: PlanItem
    below: list[PlanItem] = field(default_factory=list)


class Stage:
    """Writes new files to numbered slots and returns the moves that will bring them in."""

    def __init__(
        self,
        plan: RestorePlan,
        reader: ChunkReader,
        new: int,
        ops: FileOps,
        *,
        durable: bool,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._plan = plan
        self._reader = reader
        self._new = new
        self._ops = ops
        self._progress = progress
        changes = plan.changes
        self._total = len(changes)
        self._done = 0
        self._slots = 0
        self._sync_each = durable and self._total <= _SYNCED_SINGLY
        self._sync_all = durable and not self._sync_each
        self._groups, self._single = _grouped(changes)
        self._ahead = ReadAhead(reader, _contents(self._groups, self._single))
        self._modes: dict[bytes, int] = {}

    def write(self) -> tuple[Move, ...]:
        """Stage every file and return the moves in an order that never needs what is not there yet."""
        with self._ahead:
            return self._write()

    def _write(self) -> tuple[Move, ...]:
        deletes: list[Move] = []
        rmdirs: list[Move] = []
        makes: list[Move] = []
        puts: list[Move] = []
        chmods: list[Move] = []
        for item in self._single:
            self._alone(item, deletes, rmdirs, makes, puts, chmods)
        for group in self._groups:
            makes.append(self._group(group))
            chmods.append(Move("chmod", group.top.path, mode=group.top.checkpoint.mode, was=0o700))
        if self._sync_all:
            self._ops.sync_all()
        elif self._sync_each:
            self._ops.sync(self._new)
        rmdirs.sort(key=lambda move: paths.raw(move.path), reverse=True)
        makes.sort(key=lambda move: paths.raw(move.path))
        chmods.sort(key=lambda move: paths.raw(move.path), reverse=True)
        return (*deletes, *rmdirs, *makes, *puts, *chmods)

    def _alone(  # noqa: PLR0917
        self,
        item: PlanItem,
        deletes: list[Move],
        rmdirs: list[Move],
        makes: list[Move],
        puts: list[Move],
        chmods: list[Move],
    ) -> None:
        """Stage one path that lies in a directory that is there."""
        slot = self._slot()
        disk, wanted = item.disk, item.checkpoint
        if item.action == "mode":
            chmods.append(Move("chmod", item.path, mode=wanted.mode, was=disk.mode))
            return
        if item.action == "both":
            self._file(self._new, b"%d" % slot, item)
            puts.append(Move("put", item.beside, slot, expect=wanted))
            return
        if disk.kind == "directory":
            rmdirs.append(Move("rmdir", item.path, was=disk.mode))
        elif disk.kind != "absent":
            taken = Move("take", item.path, slot, expect=disk)
            (puts if wanted.kind in ("file", "link") else deletes).append(taken)
        if wanted.kind == "directory":
            makes.append(Move("mkdir", item.path))
            chmods.append(Move("chmod", item.path, mode=wanted.mode, was=0o700))
        elif wanted.kind != "absent":
            self._file(self._new, b"%d" % slot, item)
            placed = on_disk(self._new, b"%d" % slot) if item.action == "merge" else wanted
            puts.append(Move("put", item.path, slot, expect=placed))

    def _group(self, group: _Group) -> Move:
        """Stage a whole directory, to be moved in at once."""
        slot = self._slot()
        name = b"%d" % slot
        self._ops.mkdir(self._new, name, 0o700)
        top = os.open(name, OPEN_DIRECTORY, dir_fd=self._new)
        start = len(paths.raw(group.top.path)) + 1
        handles: dict[bytes, int] = {b"": top}
        current: list[bytes] = []
        below = [(paths.raw(item.path)[start:], item) for item in group.below]
        try:
            for path, item in below:
                parent, _, leaf = path.rpartition(b"/")
                while current and not (parent == current[-1] or parent.startswith(current[-1] + b"/")):
                    self._leave(current, handles)
                if item.checkpoint.kind == "directory":
                    self._ops.mkdir(handles[parent], leaf, 0o700)
                    handles[path] = os.open(leaf, OPEN_DIRECTORY, dir_fd=handles[parent])
                    current.append(path)
                    self._modes[path] = item.checkpoint.mode
                    self._step()
                else:
                    self._file(handles[parent], leaf, item)
            while current:
                self._leave(current, handles)
            if self._sync_each:
                self._ops.sync(top)
        finally:
            for handle in handles.values():
                os.close(handle)
        placed = tree_state((path, item.checkpoint) for path, item in below)
        return Move("tree", group.top.path, slot, expect=placed)

    def _leave(self, current: list[bytes], handles: dict[bytes, int]) -> None:
        """Give a staged directory its mode: only now, because it may forbid writing into it."""
        path = current.pop()
        handle = handles.pop(path)
        try:
            self._ops.finish(handle, self._modes.pop(path), None)
            if self._sync_each:
                self._ops.sync(handle)
        finally:
            os.close(handle)

    def _file(self, directory: int, name: bytes, item: PlanItem) -> None:
        """Write one staged file or link."""
        wanted = item.checkpoint
        if wanted.kind == "link":
            self._ops.symlink(directory, name, paths.raw(wanted.target))
            self._step()
            return
        handle = self._ops.create(directory, name)
        try:
            if item.action == "merge":
                self._ops.write(handle, self._merged(item))
            else:
                for data in self._ahead.content(wanted):
                    self._ops.write(handle, data)
            self._ops.finish(handle, wanted.mode, None if self._plan.in_place else item.mtime_ns)
            if self._sync_each:
                self._ops.sync(handle)
        finally:
            os.close(handle)
        self._step()

    def _merged(self, item: PlanItem) -> bytes:
        """Merge again what the plan merged; Moved if the outcome is not the one that was shown."""
        try:
            parent, name = open_parent(self._plan.target, paths.raw(item.path))
            try:
                handle = os.open(name, OPEN_FILE, dir_fd=parent)
            finally:
                os.close(parent)
        except OSError as error:
            raise MovedPath(item.path, "is gone") from error
        with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor
            mine = file.read()
        last = item.last or ABSENT
        merged = merge(self._content(last), mine, self._content(item.checkpoint))
        if merged is None or leaf_id(merged.data).hex() != item.merged:
            raise MovedPath(item.path, "was changed since the plan was made")
        return merged.data

    def _content(self, state: State) -> bytes:
        return b"".join(pieces(self._reader, state.ref()))

    def _slot(self) -> int:
        self._slots += 1
        return self._slots

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def _contents(groups: Iterable[_Group], single: Iterable[PlanItem]) -> Iterator[State]:
    """Yield what will be written, in that order."""
    for item in single:
        if item.action != "merge" and item.checkpoint.kind == "file":
            yield item.checkpoint
    for group in groups:
        yield from (item.checkpoint for item in group.below)


def _grouped(items: Iterable[PlanItem]) -> tuple[list[_Group], list[PlanItem]]:
    """Split a plan into directories that are not there yet, each with all below it, and single paths."""
    groups: list[_Group] = []
    single: list[PlanItem] = []
    prefix = None
    for item in sorted(items, key=lambda item: paths.raw(item.path) + b"/"):
        if prefix is not None and item.path.startswith(prefix):
            groups[-1].below.append(item)
        elif item.action == "write" and item.checkpoint.kind == "directory" and item.disk.kind == "absent":
            groups.append(_Group(item))
            prefix = item.path + "/"
        else:
            single.append(item)
    return groups, single
