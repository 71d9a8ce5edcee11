"""Home of this user: where what is ours lies there, and folders of ours that nobody else may write to."""

from __future__ import annotations

import os
from pathlib import Path


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

    `mkdir(mode=, parents=True)` gives the mode to the last one only.
    """
    for place in (folder.parent, folder):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
