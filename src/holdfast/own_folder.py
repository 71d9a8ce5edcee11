"""Folder `.holdfast`: what is written into it goes through no link, also one that appears while a run is open.

A repository, a set-up command or an agent may put a link there. From `.holdfast` on each folder is opened by its
descriptor, name by name. Of a path without that name (a store's own folder) only the last folder may be no link.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

FOLDER = ".holdfast"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_whole(file: str | os.PathLike[str], data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file whole, or make it and its folders, for this user alone unless told; OSError at a link."""
    place, name = os.path.split(os.fspath(file))
    beside = f"{name}.{os.getpid()}"
    folder = open_folder(place)
    try:
        if _is_there(beside, folder):  # of a process that was killed, or put there: neither is written through
            os.unlink(beside, dir_fd=folder)
        with os.fdopen(os.open(beside, _NEW, 0o600, dir_fd=folder), "wb") as opened:
            if mode != 0o600:  # noqa: PLR2004 - as it was made
                os.fchmod(opened.fileno(), mode)
            opened.write(data)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def touch(file: str | os.PathLike[str]) -> bool:
    """Set a file's time of change to now; False if it is not there, OSError at a link before it."""
    place, name = os.path.split(os.fspath(file))
    folder = open_folder(place)
    try:
        os.utime(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def remove(file: str | os.PathLike[str]) -> None:
    """Remove a file, if it is there; OSError at a link before it."""
    place, name = os.path.split(os.fspath(file))
    with suppress(FileNotFoundError):
        folder = open_folder(place, make=False)
        try:
            os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)


def remove_old(place: str, before: float) -> None:
    """Remove the files of a folder that nobody has changed since a time; OSError at a link on the way to it."""
    folder = open_folder(place, make=False)
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - a descriptor
            if os.lstat(name, dir_fd=folder).st_mtime < before:
                os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def names_in(place: str | os.PathLike[str]) -> list[str]:
    """Return the sorted names in a folder, none where it is missing; OSError at a link."""
    try:
        folder = open_folder(os.fspath(place), make=False)
    except FileNotFoundError:
        return []
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    finally:
        os.close(folder)


def open_folder(place: str, *, make: bool = True) -> int:
    """Open a folder and return its descriptor; `.holdfast` and what is below it is made where it is missing."""
    above, name = os.path.split(place)
    is_below = FOLDER in above.split("/")
    outer = open_folder(above, make=make) if is_below and name != FOLDER else os.open(above or ".", _DIRECTORY)
    try:
        if make and (is_below or name == FOLDER) and not _is_there(name, outer):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=outer)
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=outer)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(place):  # noqa: PTH114
            raise OSError(errno.ELOOP, "is a link, which is not followed: delete it", place) from None
        raise
    finally:
        os.close(outer)


def _is_there(name: str, folder: int) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
