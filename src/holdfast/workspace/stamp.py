"""Stamp of a directory: which run it belongs to, and the tree that it stands at.

It lies beside the caches, never in the captured tree, and names the directory by its inode: one that came with a
copy of the directory is not believed. Which directory is a run's, or which store a directory's, is believed only under
this user's mark: anybody may have written the file. It is never synced: an older one only means that the directory is
compared with an older tree first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from holdfast.encode.documents import read_own
from holdfast.errors import DocumentInvalid
from holdfast.own_folder import write_whole
from holdfast.workspace.user_key import is_user_mark, user_mark

if TYPE_CHECKING:
    from collections.abc import Callable

_SUFFIX = ".at"
_LINK = "store.link"
_MAX_BYTES = 64 * 1024


class OwnerStamp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a run's directory."""

    run: str
    directory: str
    inode: tuple[int, int]
    checkpoint: str
    """The checkpoint whose files it has, but for what was changed since."""
    mark: str = ""
    """Under this user's own key: that this user let the run work there."""


def write_stamp(
    folder: Path, run: str, directory: str, checkpoint: str, *, lock: Callable[[bytes], bytes] = bytes
) -> None:
    """Note that a directory is a run's, and stands at a checkpoint; one that cannot be written is only missed.

    Beside an encrypted store it is locked with that store's key.
    """
    with suppress(OSError):
        inode = _inode(directory)
        mark = user_mark("stamp", run, directory, inode)
        stamp = OwnerStamp(run=run, directory=directory, inode=inode, checkpoint=checkpoint, mark=mark)
        write_whole(_file(folder, run, directory), lock(msgspec.json.encode(stamp)))


def read_stamp(
    folder: Path, run: str, directory: str, *, unlock: Callable[[bytes], bytes] = bytes
) -> OwnerStamp | None:
    """Return the stamp of a run's directory, None if it is not this run's or was not written here."""
    stamp = _read(_file(folder, run, directory), unlock)
    return stamp if stamp is not None and (stamp.run, stamp.directory) == (run, directory) else None


def last_directory(folder: Path, run: str, *, project: Path, unlock: Callable[[bytes], bytes] = bytes) -> str | None:
    """Return the directory that this user let a run work in last, also one that is gone; None if it is not known.

    A gone one that is the project's folder under its new name was moved, and is that folder.
    """
    with suppress(OSError):
        found = [(file, stamp) for file in folder.glob(f"*{_SUFFIX}") if (stamp := _decoded(file, unlock))]
        ours = [
            (file.lstat().st_mtime_ns, stamp.directory, stamp.inode) for file, stamp in found if _is_own(stamp, run)
        ]
        _, directory, inode = max(ours, default=(0, None, None))
        is_moved = directory is not None and not Path(directory).exists() and inode == _inode(str(project))
        return str(project) if is_moved else directory
    return None


def _is_own(stamp: OwnerStamp, run: str) -> bool:
    return stamp.run == run and is_user_mark(stamp.mark, "stamp", stamp.run, stamp.directory, stamp.inode)


class _Link(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fork's directory and the folder of its store, each naming the other."""

    run: str
    place: str
    inode: tuple[int, int]
    mark: str = ""
    """Under this user's own key."""


def link_directory(folder: Path, run: str, directory: str) -> None:
    """Let a fork's directory name the folder of its store, and that folder the directory in return."""
    own = Path(directory) / ".holdfast"
    links = ((_link_file(folder, directory), directory), (own / _LINK, str(folder)))
    with suppress(OSError):
        for file, place in links:
            inode = _inode(place)
            mark = user_mark("fork", str(file), run, place, inode)
            write_whole(file, msgspec.json.encode(_Link(run=run, place=place, inode=inode, mark=mark)))


def linked_store(directory: Path) -> tuple[Path, str] | None:
    """Return the store's folder and the run of a fork's directory; None unless both name each other.

    A folder that is gone is returned as well: another one must not take its place. A file that came with a repository
    or with a copy is not believed: it lacks this user's mark.
    """
    there = _read_link(directory / ".holdfast" / _LINK)
    if there is None:
        return None
    if not os.path.lexists(there.place):
        return Path(there.place), there.run
    back = _read_link(_link_file(Path(there.place), str(directory)))
    is_ours = back is not None and (back.place, back.run) == (str(directory), there.run)
    return (Path(there.place), there.run) if is_ours else None


def _read_link(file: Path) -> _Link | None:
    try:
        link = msgspec.json.decode(read_own(file, limit=_MAX_BYTES).data, type=_Link)
        is_another = os.path.lexists(link.place) and link.inode != _inode(link.place)
    except (OSError, ValueError, DocumentInvalid):
        return None
    is_own = is_user_mark(link.mark, "fork", str(file), link.run, link.place, link.inode)
    return link if is_own and not is_another else None


def _link_file(folder: Path, directory: str) -> Path:
    return folder / f"fork-{blake3(os.fsencode(directory)).hexdigest()[:16]}.link"


def _read(file: Path, unlock: Callable[[bytes], bytes]) -> OwnerStamp | None:
    """Return a stamp if the directory is still the one that it was written for."""
    stamp = _decoded(file, unlock)
    try:
        return stamp if stamp is not None and stamp.inode == _inode(stamp.directory) else None
    except OSError:
        return None


def _decoded(file: Path, unlock: Callable[[bytes], bytes]) -> OwnerStamp | None:
    try:
        return msgspec.json.decode(unlock(read_own(file, limit=_MAX_BYTES).data), type=OwnerStamp)
    except (OSError, ValueError, DocumentInvalid):
        return None


def _file(folder: Path, run: str, directory: str) -> Path:
    name = blake3(os.fsencode(directory) + b"\0" + run.encode()).hexdigest()[:16]
    return folder / f"workspace-{name}{_SUFFIX}"


def _inode(directory: str) -> tuple[int, int]:
    status = os.stat(directory)  # noqa: PTH116
    return status.st_dev, status.st_ino
