"""Paths as a person types them: from the folder where they stand, as with git."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WHOLE = "."


def inside(path: str, root: Path) -> str:
    """Return a path as checkpoints name it: from the workspace's top; `.` is all of it."""
    root = root.resolve()
    whole = os.path.normpath(Path.cwd().resolve() / path)
    if whole != str(root) and not whole.startswith(f"{str(root).rstrip(os.sep)}{os.sep}"):
        raise UsageError(f"{path!r} is not in the workspace {str(root)!r}")
    return os.path.relpath(whole, root)


def fits(path: str, wanted: Sequence[str]) -> bool:
    """Tell whether a path is one of these, below one, or fits a pattern; nothing wanted is everything."""
    return not wanted or any(
        name in (WHOLE, path) or path.startswith(f"{name}/") or fnmatch.fnmatchcase(path, name) for name in wanted
    )


def check_fits(wanted: Iterable[str], there: Sequence[str]) -> None:
    """Raise NotFound for what is neither a path of these, nor above one, nor a pattern of some."""
    from holdfast.workspace.tree import near_paths  # noqa: PLC0415 - loaded with the workspace

    for name in wanted:
        if name != WHOLE and not any(fits(path, [name]) for path in there):
            raise NotFound("captured file", name, near_paths(name, there))
