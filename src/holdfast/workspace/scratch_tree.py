"""Scratch tree: a directory of ours that is brought from one captured tree to the next by what differs.

Nothing in it is anybody's, so nothing is synced, compared or kept. What is outside is: a tree may hold a link where the
next one has a directory, and a command may leave one, so no path is followed over a link.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat as modes
from typing import TYPE_CHECKING

from holdfast.workspace.compare import differing
from holdfast.workspace.descriptors import OPEN_DIRECTORY, open_parent
from holdfast.workspace.directory import DIRECTORY, LINK
from holdfast.workspace.tree import StoredTree, pieces

if TYPE_CHECKING:
    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.directory import Entry
    from holdfast.workspace.snapshot import Snapshot

_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ScratchTree:
    """A directory that holds one captured tree after another."""

    def __init__(self, root: str, reader: ChunkReader) -> None:
        self.root = root
        self._reader = reader
        self._at: StoredTree | None = None
        self._stamps: dict[bytes, tuple[int, int]] = {}
        self.written = 0

    def bring(self, snapshot: Snapshot) -> None:
        """Write what differs from the tree that is there, and what a command changed of it."""
        wanted = StoredTree(self._reader, snapshot.root)
        found = list(differing(self._at or StoredTree(self._reader, None), wanted))
        known = {path for path, _, _ in found}
        spoiled = [path for path, stamp in self._stamps.items() if path not in known and self._stamp(path) != stamp]
        if spoiled:
            present = {path: entry for path, _, entry in differing(StoredTree(self._reader, None), wanted)}
            found += [(path, None, present[path]) for path in spoiled if path in present]
        found.sort(key=lambda item: item[0])
        for path, old, new in reversed(found):
            if new is None or (old is not None and old.kind != new.kind) or new.kind != DIRECTORY:
                self._remove(path)
        for path, _, new in found:
            if new is not None:
                self._write(path, new)
        self._at = wanted

    def _remove(self, path: bytes) -> None:
        self._stamps.pop(path, None)
        try:
            parent, name = open_parent(self.root, path)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
            return  # nothing is there, or a link, which goes by its own name
        try:
            _clear(parent, name)
        finally:
            os.close(parent)

    def _write(self, path: bytes, entry: Entry) -> None:
        handle, name = _make_parent(self.root, path)
        try:
            if entry.kind == DIRECTORY:
                try:
                    os.mkdir(name, 0o700, dir_fd=handle)
                except FileExistsError:
                    return
            elif entry.kind == LINK:
                os.symlink(entry.target, name, dir_fd=handle)
            else:
                with os.fdopen(os.open(name, _NEW, entry.mode & 0o777 | 0o600, dir_fd=handle), "wb") as file:
                    for piece in pieces(self._reader, entry.ref):
                        file.write(piece)
                    self.written += 1
        finally:
            os.close(handle)
        if entry.kind != DIRECTORY:
            self._stamps[path] = self._stamp(path)

    def _stamp(self, path: bytes) -> tuple[int, int]:
        try:
            status = os.lstat(os.path.join(os.fsencode(self.root), path))  # noqa: PTH118 - bytes
        except OSError:
            return (0, 0)
        return status.st_ctime_ns, status.st_ino


def _make_parent(root: str, path: bytes) -> tuple[int, bytes]:
    """Open the directory that holds a path; what a command took away is there again, what it put there is gone."""
    *above, name = path.split(b"/")
    handle = os.open(root, OPEN_DIRECTORY)
    for part in above:
        try:
            below = _open_or_make(handle, part)
        finally:
            os.close(handle)
        handle = below
    return handle, name


def _open_or_make(parent: int, name: bytes) -> int:
    try:
        return os.open(name, OPEN_DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY:
            raise
    _clear(parent, name)
    os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, OPEN_DIRECTORY, dir_fd=parent)


def _clear(parent: int, name: bytes) -> None:
    """Delete a name, with what is below it; a link alone."""
    try:
        if modes.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            shutil.rmtree(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
