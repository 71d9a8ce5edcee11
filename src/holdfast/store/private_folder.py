"""Folder of a store: refused where somebody else could put files into it, or where a link stands for it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path

PROJECT_FOLDER = ".holdfast"


def check_private_folder(folder: Path, store: str) -> None:
    """Raise StoreUnavailable unless a store's folder is this user's, or root's, and not writable by everybody.

    `.holdfast` of a project may come with a repository, so there a link is refused, too: it could lead anywhere.
    """
    if folder.name == PROJECT_FOLDER and folder.is_symlink():
        raise StoreUnavailable(store, f"{folder} is a link, which is not followed; name its target instead")
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise StoreUnavailable(store, f"its folder belongs to user {status.st_uid}; copy it to a place of your own")
    if status.st_mode & stat.S_IWOTH:
        raise StoreUnavailable(
            store, f"its folder {folder} can be written by everybody; run `chmod o-w` on it, or choose another"
        )
