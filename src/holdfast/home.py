"""Home of this user: where what is ours lies there, and folders of ours that nobody else may write to."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger("holdfast")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def in_home(path: str) -> Path | None:
    """Return a path in this user's home; None without one, where "~" would be a folder that a repository can bring."""
    place = os.path.expanduser(f"~/{path}")  # noqa: PTH111 - never raises
    return Path(place) if os.path.isabs(place) else None  # noqa: PTH117


def in_base(given: str, path: str) -> Path | None:
    """Return the `holdfast` folder in what an XDG variable gives, or else in a folder of this user's home."""
    base = Path(given) if given.startswith("/") else in_home(path)
    return None if base is None else base / "holdfast"


def make_private(folder: Path) -> None:
    """Make a folder and the one that it is in, where they are not there yet, for this user alone whatever the umask.

    `mkdir(mode=, parents=True)` gives the mode to the last one only. Of those that are there, the ones that are ours by
    name are closed to others.
    """
    for place in (folder.parent, folder):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "holdfast" in place.parts[-2:]:
            close_to_others(place)


def close_to_others(folder: Path) -> None:
    """Take the right to write from everybody but this user, if the folder is this user's; and say so.

    Under a umask of 002 a folder that the user made is open to the group; what rests on it would be refused for ever.
    What others put there meanwhile is looked at by its owner and mode, as ever.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or not status.st_mode & _WRITABLE_BY_OTHERS:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~_WRITABLE_BY_OTHERS)
    finally:
        os.close(descriptor)
    _log.warning(
        "%s could be written by others (mode %04o), and is yours alone now", folder, stat.S_IMODE(status.st_mode)
    )
