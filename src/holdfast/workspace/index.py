"""Git's index as bytes: versions 2 to 4 are read, version 2 is written, or 3 where an entry needs it."""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.lazy import pattern
from holdfast.workspace.gitdir import GitFailed

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_PATHS = 500_000
MAX_PATHS_BYTES = 64 * 1024 * 1024
"""Of all paths together: shared beginnings make many long ones of few bytes, here as in trees."""
DIRECTORY = 0o040000
GITLINK = 0o160000
_MAX_PATH = 4096
_MAX_LEVELS = 300  # a capture takes 256
_ODD = pattern(rb"(?:\A|/)(?:\.{0,2}|\.git)(?:/|\Z)|\0", re.IGNORECASE)  # leads out, or into a .git
_VERSIONS = (2, 3, 4)
_STAMP = struct.Struct(">9I")
_SECOND = 1_000_000_000
_ASSUMED = 0x8000
_EXTENDED = 0x4000
_SKIPPED = 0x4000
_INTENT = 0x2000
_LONG = 0xFFF


NO_STAMP = bytes(36)
"""What git notes of a file when it knows that it has the entry's content: times, device, inode, owners, size."""


class Indexed(NamedTuple):
    """One entry: a path at a stage (0 unless unmerged)."""

    path: bytes
    stage: int
    mode: int
    object: str
    stamp: bytes = NO_STAMP
    is_assumed: bool = False  # git is not to look at the file: assume-unchanged or skip-worktree
    is_intended: bool = False  # `git add -N`: the path is known, nothing of it is staged
    is_skipped: bool = False  # skip-worktree, as a sparse checkout has it; assumed as well


@dataclass(slots=True)
class GitIndex:
    """The entries in order; for directories whose staged tree is known its name; when it was written."""

    entries: list[Indexed] = field(default_factory=list)
    trees: dict[bytes, str] = field(default_factory=dict)
    written_ns: int = 0
    _paths: list[bytes] | None = None

    def at(self, path: bytes) -> list[Indexed]:
        """Return the entries of a path and of everything below it."""
        if self._paths is None:
            self._paths = [entry.path for entry in self.entries]
        found: list[Indexed] = []
        for start, is_wanted in ((path, path.__eq__), (path + b"/", lambda one: one.startswith(path + b"/"))):
            position = bisect_left(self._paths, start)
            while position < len(self._paths) and is_wanted(self._paths[position]):
                found.append(self.entries[position])
                position += 1
        return found


def parse(data: bytes, width: int) -> GitIndex:
    """Return an index from its bytes; GitFailed unless it is whole and of a known form."""
    if len(data) < 12 + width or data[:4] != b"DIRC":
        raise GitFailed("its index is damaged")
    version, count = struct.unpack_from(">II", data, 4)
    check_paths("its index", count, 0)
    if version not in _VERSIONS:
        raise GitFailed(f"its index has version {version}, which is not read")
    told = data[-width:]
    digest = hashlib.sha256 if width == 32 else hashlib.sha1  # noqa: PLR2004
    if any(told) and digest(memoryview(data)[:-width]).digest() != told:
        raise GitFailed("its index is damaged")
    found = GitIndex()
    try:
        position = _entries(data, count, version, width, found.entries)
        _extensions(data[position:-width], width, found)
    except (struct.error, IndexError, ValueError) as error:
        raise GitFailed("its index is damaged") from error
    return found


def _entries(data: bytes, count: int, version: int, width: int, entries: list[Indexed]) -> int:
    position, path, end, total = 12, b"", len(data) - width, 0
    unpack = struct.Struct(f">24sI12s{width}sH").unpack_from
    fixed = 42 + width
    for _ in range(count):
        start = position
        times, mode, rest, name, flags = unpack(data, position)
        position += fixed
        more = 0
        if flags & _EXTENDED and version > 2:  # noqa: PLR2004
            more = data[position] << 8 | data[position + 1]
            position += 2
        if version == 4:  # noqa: PLR2004
            dropped, position = _dropped(data, position)
            stop = data.index(b"\0", position, end)
            if dropped > len(path) or stop - position + len(path) - dropped > _MAX_PATH:
                raise ValueError("a path is damaged")
            path = path[: len(path) - dropped] + data[position:stop]
            position = stop + 1
        else:
            stop = position + (flags & _LONG) if flags & _LONG < _LONG else data.index(b"\0", position, end)
            path = data[position:stop]
            position = start + ((stop - start + 8) & ~7)
        total += len(path)
        if total > MAX_PATHS_BYTES:
            check_paths("its index", count, total)
        shown = path[:-1] if mode == DIRECTORY else path  # the directory of a sparse index ends with a slash
        assumed = flags & _ASSUMED or more & _SKIPPED
        stage, intended = flags >> 12 & 3, more & _INTENT
        entries.append(
            Indexed(shown, stage, mode, name.hex(), times + rest, bool(assumed), bool(intended), bool(more & _SKIPPED))
        )
    if position > end:
        raise ValueError("the entries are cut off")
    if any(is_odd(entry.path) for entry in entries):
        raise ValueError("a path leads elsewhere")
    return position


def check_paths(where: str, count: int, size: int) -> None:
    """Refuse more paths, or longer ones, than are held in memory."""
    if count > MAX_PATHS or size > MAX_PATHS_BYTES:
        raise GitFailed(f"{where} has more than {MAX_PATHS:,} paths, or {MAX_PATHS_BYTES >> 20} MB of them")


def is_odd(path: bytes) -> bool:
    """Return whether git would not have made an entry with this path."""
    return len(path) > _MAX_PATH or path.count(b"/") > _MAX_LEVELS or _ODD.search(path) is not None


def _extensions(data: bytes, width: int, found: GitIndex) -> None:
    position = 0
    while position + 8 <= len(data):
        name, size = data[position : position + 4], int.from_bytes(data[position + 4 : position + 8], "big")
        body = data[position + 8 : position + 8 + size]
        position += 8 + size
        if name == b"TREE":
            found.trees = _trees(body, width)
        elif name == b"link":
            raise GitFailed("its index is split, which is not read: git update-index --no-split-index joins it")
        elif name[:1].islower() and name != b"sdir":
            raise GitFailed(f"its index has a part {name!r}, which is not read")


def _trees(data: bytes, width: int) -> dict[bytes, str]:
    """Return the trees that git noted for directories of the index that have not changed since."""
    found: dict[bytes, str] = {}
    open_below: list[tuple[bytes, int]] = []
    position = total = 0
    while position < len(data):
        name_end, line_end = data.index(b"\0", position), data.index(b"\n", position)
        name = data[position:name_end]
        count, below = (int(part) for part in data[name_end + 1 : line_end].split(b" "))
        position = line_end + 1
        path = name
        if open_below:
            above, left = open_below.pop()
            path = above + b"/" + name if above else name
            if left > 1:
                open_below.append((above, left - 1))
        if len(path) > _MAX_PATH:
            raise ValueError("a path is too long")
        total += len(path)
        check_paths("its index", len(found), total)
        if count >= 0:
            found[path] = data[position : position + width].hex()
            position += width
        if below > 0:
            open_below.append((path, below))
    return found


def dump(entries: Iterable[Indexed], width: int) -> bytes:
    """Return an index of these entries as bytes."""
    listed = sorted(entries, key=lambda entry: (entry.path, entry.stage))
    version = 3 if any(entry.is_skipped or entry.is_intended for entry in listed) else 2
    parts = [struct.pack(">4sII", b"DIRC", version, len(listed))]
    for entry in listed:
        fixed = entry.stamp[:24] + entry.mode.to_bytes(4, "big") + entry.stamp[24:]
        flags = (_ASSUMED if entry.is_assumed and not entry.is_skipped else 0) | entry.stage << 12
        more = (_SKIPPED if entry.is_skipped else 0) | (_INTENT if entry.is_intended else 0)
        flags |= min(len(entry.path), _LONG) | (_EXTENDED if more else 0)
        marks = flags.to_bytes(2, "big") + (more.to_bytes(2, "big") if more else b"")
        line = fixed + bytes.fromhex(entry.object) + marks + entry.path
        parts.append(line + b"\0" * (8 - len(line) % 8))
    data = b"".join(parts)
    return data + (hashlib.sha256 if width == 32 else hashlib.sha1)(data).digest()  # noqa: PLR2004


def stamp_of(status: os.stat_result) -> bytes:
    """Return what git would note of a file."""
    times = (*divmod(status.st_ctime_ns, _SECOND), *divmod(status.st_mtime_ns, _SECOND))
    numbers = (*times, status.st_dev, status.st_ino, status.st_uid, status.st_gid, status.st_size)
    return _STAMP.pack(*(number & 0xFFFFFFFF for number in numbers))


def size_of(stamp: bytes) -> int:
    """Return the size that git noted, 0 if it noted nothing."""
    return int.from_bytes(stamp[32:], "big")


def fits(stamp: bytes, status: os.stat_result) -> bool:
    """Return whether a file is the one that git looked at; some programs note whole seconds only."""
    ctime_s, ctime_ns, mtime_s, mtime_ns, _, _, _, _, size = _STAMP.unpack(stamp)
    mtime, ctime = divmod(status.st_mtime_ns, _SECOND), divmod(status.st_ctime_ns, _SECOND)
    return (
        size == status.st_size & 0xFFFFFFFF
        and mtime_s == mtime[0] & 0xFFFFFFFF
        and ctime_s == ctime[0] & 0xFFFFFFFF
        and mtime_ns in (0, mtime[1])
        and ctime_ns in (0, ctime[1])
    )


def _dropped(data: bytes, position: int) -> tuple[int, int]:
    """Return how many bytes of the path before are dropped in version 4."""
    byte = data[position]
    value = byte & 127
    while byte & 128:
        position += 1
        byte = data[position]
        value = (value + 1) << 7 | byte & 127
        if value > 1 << 32:
            raise ValueError("a path is damaged")
    return value, position + 1
