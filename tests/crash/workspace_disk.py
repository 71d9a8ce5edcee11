"""A restore's file operations as a log, and what a disk may hold after a power cut anywhere in it.

Two models. `posix`: nothing holds that was not synced; each name in a directory, each file's bytes and each mode is,
for itself, as it was at its last sync or after any change since. `journaled`: names and modes are kept in their order
up to some moment after the last sync of anything, bytes that were not synced may be lost or torn.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.workspace.ops import FileOps

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

Model = Literal["posix", "journaled"]


class Event(NamedTuple):
    """One change or sync; `node` and `other` are files or directories, numbered as they came to be."""

    do: Literal["add", "remove", "write", "mode", "sync", "sync all"]
    node: int = 0
    name: bytes = b""
    other: int = 0
    data: bytes = b""
    mode: int = 0


@dataclass
class _Node:
    kind: Literal["file", "directory", "link"]
    target: bytes = b""
    modes: list[int] = field(default_factory=list)  # the first is durable
    names: dict[bytes, list[int | None]] = field(default_factory=dict)
    synced: bytes = b""
    pending: list[bytes] = field(default_factory=list)

    def sync(self) -> None:
        del self.modes[:-1]
        for states in self.names.values():
            del states[:-1]
        self.synced += b"".join(self.pending)
        self.pending.clear()


class RecordingOps(FileOps):
    """Carries out the operations of a restore below one directory, and keeps what they changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log: list[tuple[Event, ...]] = []
        self.kinds: list[tuple[Any, bytes]] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._first: list[Event] = []
        self._scan(root)

    def _scan(self, path: Path) -> int:
        status = path.lstat()
        known = self._numbers.get((status.st_dev, status.st_ino))
        if known is not None:
            return known  # a second name
        number = self._new(status, os.readlink(path).encode() if path.is_symlink() else b"")  # noqa: PTH115 - a text
        self._first.append(Event("mode", number, mode=stat.S_IMODE(status.st_mode)))
        if stat.S_ISDIR(status.st_mode):
            for child in sorted(path.iterdir()):
                self._first.append(Event("add", number, os.fsencode(child.name), self._scan(child)))
        elif stat.S_ISREG(status.st_mode):
            self._first.append(Event("write", number, data=path.read_bytes()))
        return number

    def _new(self, status: os.stat_result, target: bytes = b"") -> int:
        kind = "directory" if stat.S_ISDIR(status.st_mode) else "link" if stat.S_ISLNK(status.st_mode) else "file"
        self.kinds.append((kind, target))
        self._numbers[status.st_dev, status.st_ino] = len(self.kinds) - 1
        return len(self.kinds) - 1

    def _at(self, directory: int, name: bytes) -> int:
        status = os.lstat(name, dir_fd=directory)
        return self._numbers[status.st_dev, status.st_ino]

    def _of(self, handle: int) -> int:
        status = os.fstat(handle)
        return self._numbers[status.st_dev, status.st_ino]

    def create(self, directory: int, name: bytes) -> int:
        handle = super().create(directory, name)
        number = self._new(os.fstat(handle))
        self.log.append((Event("mode", number, mode=0o600), Event("add", self._of(directory), name, number)))
        return handle

    def write(self, handle: int, data: bytes) -> None:
        super().write(handle, data)
        self.log.append((Event("write", self._of(handle), data=bytes(data)),))

    def finish(self, handle: int, mode: int, mtime_ns: int | None) -> None:
        super().finish(handle, mode, mtime_ns)
        self.log.append((Event("mode", self._of(handle), mode=stat.S_IMODE(os.fstat(handle).st_mode)),))

    def sync(self, handle: int) -> None:
        super().sync(handle)
        self.log.append((Event("sync", self._of(handle)),))

    def sync_all(self) -> None:
        self.log.append((Event("sync all"),))

    def symlink(self, directory: int, name: bytes, target: bytes) -> None:
        super().symlink(directory, name, target)
        number = self._new(os.lstat(name, dir_fd=directory), target)
        self.log.append((Event("add", self._of(directory), name, number),))

    def mkdir(self, directory: int, name: bytes, mode: int) -> None:
        super().mkdir(directory, name, mode)
        number = self._new(os.lstat(name, dir_fd=directory))
        self.log.append((Event("mode", number, mode=mode), Event("add", self._of(directory), name, number)))

    def rmdir(self, directory: int, name: bytes) -> None:
        super().rmdir(directory, name)
        self.log.append((Event("remove", self._of(directory), name),))

    def unlink(self, directory: int, name: bytes) -> None:
        super().unlink(directory, name)
        self.log.append((Event("remove", self._of(directory), name),))

    def chmod_directory(self, directory: int, name: bytes, mode: int) -> None:
        super().chmod_directory(directory, name, mode)
        self.log.append((Event("mode", self._at(directory, name), mode=mode),))

    def rename(self, source: int, old: bytes, target: int, new: bytes) -> None:
        number = self._at(source, old)
        super().rename(source, old, target, new)
        self.log.append(
            (Event("add", self._of(target), new, number), Event("remove", self._of(source), old)),
        )

    def place(self, source: int, old: bytes, target: int, new: bytes) -> None:
        number = self._at(source, old)
        super().place(source, old, target, new)
        self.log.append((Event("add", self._of(target), new, number),))

    def leave(self, point: int, model: Model, chance: Random, target: Path) -> None:
        """Build in `target` one state in which a power cut after this many operations may leave the directory."""
        if model == "journaled":
            synced = [at for at, events in enumerate(self.log[:point]) if events[0].do in ("sync", "sync all")]
            kept = chance.randint(synced[-1] + 1 if synced else 0, point)
        else:
            kept = point
        nodes = [_Node(kind, link) for kind, link in self.kinds]
        for event in self._first:
            _carry_out(nodes, event)
        for node in nodes:
            node.sync()
        for events in self.log[:kept]:
            for event in events:
                _carry_out(nodes, event)
        _Image(nodes, chance, lost=chance.choice((0.0, 0.1, 0.5, 0.9, 1.0)), in_order=model == "journaled").build(
            target
        )


def _carry_out(nodes: list[_Node], event: Event) -> None:
    node = nodes[event.node]
    match event.do:
        case "add":
            node.names.setdefault(event.name, [None]).append(event.other)
        case "remove":
            node.names.setdefault(event.name, [None]).append(None)
        case "write":
            node.pending.append(event.data)
        case "mode":
            node.modes.append(event.mode)
        case "sync":
            node.sync()
        case "sync all":
            for each in nodes:
                each.sync()


class _Image:
    def __init__(self, nodes: list[_Node], chance: Random, *, lost: float, in_order: bool) -> None:
        self._nodes = nodes
        self._chance = chance
        self._lost = lost
        self._in_order = in_order
        self._places: dict[int, Path] = {}

    def build(self, path: Path, number: int = 0) -> None:
        node, there = self._nodes[number], self._places.get(number)
        if there is not None:
            if node.kind != "directory":  # a directory has one name: which of two, the check of the file system decides
                os.link(there, path, follow_symlinks=False)
            return
        self._places[number] = path
        match node.kind:
            case "link":
                path.symlink_to(os.fsdecode(node.target))
            case "file":
                path.write_bytes(self._content(node))
                path.chmod(self._one_of(node.modes))
            case "directory":
                path.mkdir()
                names = list(node.names.items())
                self._chance.shuffle(names)
                for name, states in names:
                    below = self._one_of(states)
                    if below is not None:
                        self.build(path / os.fsdecode(name), below)
                path.chmod(self._one_of(node.modes))

    def _one_of(self, states: list[Any]) -> Any:
        if self._in_order:
            return states[-1]
        return self._chance.choice(states) if self._chance.random() < 0.5 else states[0 if self._lost > 0.5 else -1]

    def _content(self, node: _Node) -> bytes:
        found = node.synced
        for data in node.pending:
            if self._chance.random() < self._lost:
                found += bytes(len(data)) if self._chance.random() < 0.5 else b""
            else:
                found += data
        return found
