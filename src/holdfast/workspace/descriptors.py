"""Opens what lies in a workspace or a git directory: through descriptors, name by name, never through a link."""

from __future__ import annotations

import errno
import os
import stat as modes

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is opened and found out, not waited for


def open_below(directory: int, path: bytes) -> int:
    """Open the directory at a relative path; the empty path is the directory itself."""
    handle = os.open(b".", OPEN_DIRECTORY, dir_fd=directory)
    for part in path.split(b"/") if path else ():
        try:
            if part in (b"", b".", b".."):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            below = os.open(part, OPEN_DIRECTORY, dir_fd=handle)
        finally:
            os.close(handle)
        handle = below
    return handle


def open_parent_below(directory: int, path: bytes) -> tuple[int, bytes]:
    """Open the directory that holds a relative path; return its last name, too."""
    above, _, name = path.rpartition(b"/")
    if name in (b"", b".", b".."):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return open_below(directory, above), name


def open_parent(directory: str, path: bytes) -> tuple[int, bytes]:
    """Open the directory that holds a path below the named one; return its last name, too."""
    handle = os.open(directory, OPEN_DIRECTORY)
    try:
        return open_parent_below(handle, path)
    finally:
        os.close(handle)


def read_below(directory: int, path: bytes, limit: int) -> bytes | None:
    """Return a regular file's bytes, at most `limit` of them; None if it is missing, a link or anything else."""
    try:
        parent, name = open_parent_below(directory, path)
    except OSError:
        return None
    try:
        handle = os.open(name, OPEN_FILE, dir_fd=parent)
    except OSError:
        return None
    finally:
        os.close(parent)
    try:
        return read_open(handle, limit)
    except OSError:
        return None
    finally:
        os.close(handle)


def read_open(handle: int, limit: int) -> bytes | None:
    """Return the bytes of an open regular file, at most `limit` of them; None if it is anything else."""
    status = os.fstat(handle)
    if not modes.S_ISREG(status.st_mode):
        return None
    parts: list[bytes] = []
    while limit > 0 and (data := os.read(handle, min(limit, 1024 * 1024))):
        parts.append(data)
        limit -= len(data)
    return b"".join(parts)


def stat_below(directory: int, path: bytes) -> os.stat_result | None:
    """Return the status of a path, of a link itself; None if there is nothing or a link leads to it."""
    try:
        parent, name = open_parent_below(directory, path)
    except OSError:
        return None
    try:
        return os.lstat(name, dir_fd=parent)
    except OSError:
        return None
    finally:
        os.close(parent)
