"""What differs between a repository's commit, its index and its work tree, found without git.

A file counts as unchanged if its times and size are those that git noted, or if its content has the entry's name. No
content filter is applied, because filters are commands: a file that git would pass through one (Git LFS, for instance)
and that was touched since git last looked at it counts as changed. Line ends that git converted are seen through.
"""

from __future__ import annotations

import os
import stat as modes
from typing import TYPE_CHECKING, NamedTuple

from holdfast.workspace import index as indexes
from holdfast.workspace.contents import SMALL_BYTES
from holdfast.workspace.descriptors import OPEN_DIRECTORY, OPEN_FILE, read_open
from holdfast.workspace.gitdir import GitDirectory, GitFailed
from holdfast.workspace.index import DIRECTORY, GITLINK, MAX_INDEX_BYTES, GitIndex, Indexed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from holdfast.workspace.objects import Objects

_MAX_LEVELS = 300
_KIND = 0o170000
_REGULAR = 0o100000
_LINK = 0o120000
_EXECUTABLE = 0o100
_LINE_END = b"\r\n"


class Staged(NamedTuple):
    """A path whose index entry is not the commit's; mode 0 says that it was removed."""

    path: bytes
    letter: str
    mode: int
    object: str


def load_index(directory: GitDirectory, objects: Objects) -> GitIndex:
    """Return the index of a work tree, an empty one if there is none."""
    status = directory.stat(b"index")
    if status is None:
        return GitIndex()
    data = directory.read_whole(b"index", MAX_INDEX_BYTES)
    if data is None:
        raise GitFailed("its index cannot be read")
    found = indexes.parse(data, objects.width)
    found.written_ns = status.st_mtime_ns
    if any(entry.mode == DIRECTORY for entry in found.entries):
        found.entries = _expanded(found.entries, objects)
    return found


def staged(index: GitIndex, tree: str | None, objects: Objects) -> list[Staged]:
    """Return what the index has otherwise than the commit's tree; unmerged paths are not among it."""
    if tree is not None and index.trees.get(b"") == tree:
        return []
    committed, same = _committed(index, tree, objects)
    found: list[Staged] = []
    inside: dict[bytes, bool] = {}
    for entry in index.entries:
        if _is_inside(entry.path.rpartition(b"/")[0], same, inside):
            continue
        mode, name = committed.pop(entry.path, (0, ""))
        if entry.stage or entry.is_intended:
            continue
        if not mode:
            found.append(Staged(entry.path, "A", entry.mode, entry.object))
        elif (mode, name) != (entry.mode, entry.object):
            letter = "M" if mode & _KIND == entry.mode & _KIND else "T"
            found.append(Staged(entry.path, letter, entry.mode, entry.object))
    found += [Staged(path, "D", 0, "0" * 2 * objects.width) for path in committed]
    return sorted(found)


def flat(tree: str, objects: Objects, prefix: bytes = b"") -> dict[bytes, tuple[int, str]]:
    """Return every path of a tree with its mode and object."""
    return _flat(tree, objects, prefix, {}, set())


def _committed(index: GitIndex, tree: str | None, objects: Objects) -> tuple[dict[bytes, tuple[int, str]], set[bytes]]:
    """Return a tree's paths, but for directories of which the index says that they are the same: these are the rest."""
    same: set[bytes] = set()
    return (_flat(tree, objects, b"", index.trees, same) if tree is not None else {}), same


def _flat(
    tree: str, objects: Objects, prefix: bytes, known: dict[bytes, str], same: set[bytes]
) -> dict[bytes, tuple[int, str]]:
    found: dict[bytes, tuple[int, str]] = {}
    level = [(prefix, tree)]
    count = size = 0
    for _ in range(_MAX_LEVELS):
        below: list[tuple[bytes, str]] = []
        for path, name in level:
            entries = objects.tree(name)
            count += len(entries) + 1
            size += len(path) * len(entries) + sum(len(entry.name) + 1 for entry in entries)
            indexes.check_paths("its commit", count, size)
            for entry in entries:
                full = path + b"/" + entry.name if path else entry.name
                if entry.mode != DIRECTORY:
                    found[full] = (_canonical(entry.mode), entry.object)
                elif known.get(full) == entry.object:
                    same.add(full)
                else:
                    below.append((full, entry.object))
        if not below:
            return found
        level = below
    raise GitFailed(f"its commit has more than {_MAX_LEVELS} directories in one another")


def _canonical(mode: int) -> int:
    """Return a mode as the index has it: of a file's bits only the executable one counts."""
    if mode & _KIND == _REGULAR:
        return _REGULAR | (0o755 if mode & _EXECUTABLE else 0o644)
    return mode


def _is_inside(directory: bytes, same: set[bytes], known: dict[bytes, bool]) -> bool:
    """Return whether a directory is one of these or lies in one."""
    if not directory or not same:
        return False
    if directory not in known:
        known[directory] = directory in same or _is_inside(directory.rpartition(b"/")[0], same, known)
    return known[directory]


def _expanded(entries: list[Indexed], objects: Objects) -> list[Indexed]:
    """Return the files of directories that a sparse index holds as one entry: none of them is in the work tree."""
    found: list[Indexed] = []
    size = 0
    for entry in entries:
        if entry.mode != DIRECTORY:
            found.append(entry)
            continue
        inside = sorted(flat(entry.object, objects, entry.path).items())
        found += [Indexed(path, 0, mode, name, is_assumed=True, is_skipped=True) for path, (mode, name) in inside]
        size += sum(len(path) for path, _ in inside)
        indexes.check_paths("its index", len(found), size)
    return found


def unstaged(
    directory: GitDirectory, index: GitIndex, entries: Iterable[Indexed], objects: Objects
) -> dict[bytes, str]:
    """Return git's letter for each of these entries that the work tree has otherwise."""
    found: dict[bytes, str] = {}
    with WorkTree(directory.worktree) as tree:
        for entry in entries:
            if entry.stage:
                found[entry.path] = "U"
            elif entry.is_intended:
                found[entry.path] = "A"
            elif not entry.is_assumed:
                letter, _ = look(tree, directory, index, entry, objects)
                if letter:
                    found[entry.path] = letter
    return found


def look(
    tree: WorkTree, directory: GitDirectory, index: GitIndex, entry: Indexed, objects: Objects
) -> tuple[str, os.stat_result | None]:
    """Return git's letter for an entry's file, empty if it is unchanged, and the file's status."""
    parent = tree.parent(entry.path)
    if parent is None:
        return "D", None
    name = entry.path.rpartition(b"/")[2]
    try:
        status = os.lstat(name, dir_fd=parent)
    except OSError:
        return "D", None
    if entry.mode == GITLINK:
        return _look_at_submodule(parent, name, status, entry), status
    if modes.S_ISDIR(status.st_mode):
        return "D", None
    letter = _look_at_kind(status, entry, directory)
    if not letter and not (indexes.fits(entry.stamp, status) and status.st_mtime_ns < index.written_ns):
        is_other_size = indexes.size_of(entry.stamp) not in (0, status.st_size & 0xFFFFFFFF)
        letter = "M" if is_other_size or not _has_content(parent, name, status, entry, objects) else ""
    return letter, status


def _look_at_submodule(parent: int, name: bytes, status: os.stat_result, entry: Indexed) -> str:
    if not modes.S_ISDIR(status.st_mode):
        return "T"
    return "M" if _head_below(parent, name) not in (None, entry.object) else ""


def _look_at_kind(status: os.stat_result, entry: Indexed, directory: GitDirectory) -> str:
    kind = modes.S_IFMT(status.st_mode)
    if kind != entry.mode & _KIND:
        return "T" if kind in (modes.S_IFREG, modes.S_IFLNK) else "M"
    if kind != modes.S_IFREG or not directory.facts.modes_count:
        return ""
    return "M" if (status.st_mode ^ entry.mode) & _EXECUTABLE else ""


def _has_content(parent: int, name: bytes, status: os.stat_result, entry: Indexed, objects: Objects) -> bool:
    """Return whether a file or link holds an entry's content."""
    try:
        if modes.S_ISLNK(status.st_mode):
            return objects.name("blob", os.fsencode(os.readlink(name, dir_fd=parent))) == entry.object
        handle = os.open(name, OPEN_FILE, dir_fd=parent)
    except OSError:
        return False
    try:
        if status.st_size <= SMALL_BYTES:
            data = read_open(handle, SMALL_BYTES + 1)
            if data is None:
                return False
            if objects.name("blob", data) == entry.object:
                return True
            # Git notes the size on disk: as long as it is the same, other line ends than staged are git's own doing.
            return (
                indexes.size_of(entry.stamp) > 0
                and _LINE_END in data
                and objects.name("blob", data.replace(_LINE_END, b"\n")) == entry.object
            )
        digest = objects.blob_digest(status.st_size)
        while data := os.read(handle, SMALL_BYTES):
            digest.update(data)
        return digest.hexdigest() == entry.object
    except OSError:
        return False
    finally:
        os.close(handle)


def _head_below(parent: int, name: bytes) -> str | None:
    """Return the commit that a submodule stands at, None if it is not to be told."""
    try:
        with GitDirectory.open_in(parent, name) as directory:
            return directory.resolve(b"HEAD")
    except GitFailed:
        return None


class WorkTree:
    """Opens directories of a work tree, those on the way to the last one kept open."""

    def __init__(self, root: int) -> None:
        self._handles: list[tuple[bytes, int]] = [(b"", os.dup(root))]
        self._missing: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _path, handle in self._handles:
            os.close(handle)

    def parent(self, path: bytes) -> int | None:
        """Return the directory that holds a path, None if there is none; it stays open until the next call."""
        above = path.rpartition(b"/")[0]
        if self._missing is not None and (above + b"/").startswith(self._missing + b"/"):
            return None
        while self._handles[-1][0] and not (above + b"/").startswith(self._handles[-1][0] + b"/"):
            os.close(self._handles.pop()[1])
        done = self._handles[-1][0]
        for part in above[len(done) + 1 if done else 0 :].split(b"/") if above != done else ():
            here, handle = self._handles[-1]
            below = here + b"/" + part if here else part
            try:
                self._handles.append((below, os.open(part, OPEN_DIRECTORY, dir_fd=handle)))
            except OSError:
                self._missing = below
                return None
        return self._handles[-1][1]
