"""Compiled patterns, kept between processes in the user's cache: compiling takes 0.15 s of CPU, loading 0.1 ms.

A compiled database is trusted by the library that runs it, so only a file is loaded that this user alone can have
written. What is missing, damaged, foreign or unwritable is compiled again and never an error.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from blake3 import blake3

from holdfast.home import in_base

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEPT = 16  # files; two for each set of rules in use
_MAX_BYTES = 16 << 20
_DIGEST_BYTES = 32
_SUFFIX = ".patterns"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def name_of(parts: Sequence[bytes]) -> str:
    """Return the file's name for what a database depends on: its patterns, their version, the library's."""
    return blake3(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:32] + _SUFFIX


def load(name: str) -> bytes | None:
    """Return what was kept under a name, None if there is nothing, or it is not this user's, or not sound."""
    with suppress(OSError), _folder() as folder:
        return _sound(_read(folder, name), name)
    return None


def keep(name: str, data: bytes) -> None:
    """Keep a compiled database, if there is a place for it; a reader sees the whole file or none."""
    with suppress(OSError):
        place = _place()
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
    with suppress(OSError), _folder() as folder:
        new = f".{name}.{os.getpid()}"
        try:
            with open(os.open(new, _CREATE, 0o600, dir_fd=folder), "wb") as file:  # noqa: PTH123 - below a directory
                file.write(_digest(name, data) + data)
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise
        _remove_old(folder)


def _place() -> Path:
    """Return the cache's folder; OSError where the user has no home, or the system no owners of files."""
    place = in_base(os.environ.get("XDG_CACHE_HOME", ""), ".cache")
    if place is None or not hasattr(os, "geteuid"):
        raise FileNotFoundError("no place for a cache")
    return place


@contextmanager
def _folder() -> Iterator[int]:
    """Open the cache's folder; OSError if anybody but this user could have put something there."""
    descriptor = os.open(_place(), _READ | getattr(os, "O_DIRECTORY", 0))
    try:
        _check_owner(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _read(folder: int, name: str) -> bytes:
    with open(os.open(name, _READ, dir_fd=folder), "rb") as file:  # noqa: PTH123
        found = os.fstat(file.fileno())
        _check_owner(found)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
            return b""
        return file.read(_MAX_BYTES)


def _check_owner(found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError("not this user's alone")


def _sound(content: bytes, name: str) -> bytes | None:
    data = content[_DIGEST_BYTES:]
    return data if data and content[:_DIGEST_BYTES] == _digest(name, data) else None


def _digest(name: str, data: bytes) -> bytes:
    return blake3(name.encode() + data).digest()


def _remove_old(folder: int) -> None:
    names = [name for name in os.listdir(folder) if name.endswith(_SUFFIX) or name.startswith(".")]
    times = sorted((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns, name) for name in names)
    for _time, name in times[:-KEPT]:
        os.unlink(name, dir_fd=folder)
