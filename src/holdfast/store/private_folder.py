"""Folder of a store: refused where somebody else could put files into it, or where a link stands for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

PROJECT_FOLDER = ".holdfast"


def check_own_folders(folder: Path, store: str, *, names: Iterable[str], with_below: Iterable[str]) -> None:
    """Raise StoreUnavailable if a folder inside a store is a link, or anybody else could put files into it.

    A store can come with a repository: through such a link files elsewhere would be replaced and deleted.
    """
    for name in names:
        one = folder / name
        if os.path.lexists(one):
            _check_inside(one, one.lstat(), store)
    for name in with_below:
        if (folder / name).is_dir():
            with os.scandir(folder / name) as entries:
                for entry in entries:
                    if entry.is_symlink() or entry.is_dir(follow_symlinks=False):
                        _check_inside(Path(entry.path), entry.stat(follow_symlinks=False), store)


def _check_inside(one: Path, status: os.stat_result, store: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise StoreUnavailable(
            store, f"{one} is a link, which is not followed: somebody made this store write elsewhere. Delete the link"
        )
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise StoreUnavailable(store, f"{one} belongs to somebody else, or everybody can write to it")


def check_not_linked(folder: Path, store: str) -> None:
    """Raise StoreUnavailable if `.holdfast`, in which a store's folder lies, is a link; asked before any is made.

    It may come with a repository, or a task may put it there: it could lead anywhere.
    """
    for place in (folder, *folder.parents):
        if place.name == PROJECT_FOLDER and place.is_symlink():
            raise StoreUnavailable(store, f"{place} is a link, which is not followed; name its target instead")


def check_private_folder(folder: Path, store: str) -> None:
    """Raise StoreUnavailable unless a store's folder is this user's, or root's, and not writable by everybody."""
    check_not_linked(folder, store)
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise StoreUnavailable(store, f"its folder belongs to user {status.st_uid}; copy it to a place of your own")
    if status.st_mode & stat.S_IWOTH:
        raise StoreUnavailable(
            store, f"its folder {folder} can be written by everybody; run `chmod o-w` on it, or choose another"
        )
