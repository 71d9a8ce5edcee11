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
    """Return a path as checkpoints name it: from the workspace's top; `.` is all of it.

    The way to the workspace may lead through links. A link in it is named, never followed: checkpoints hold links.
    """
    top = os.path.realpath(root)
    typed = os.path.normpath(Path.cwd() / path)
    above, name = os.path.split(typed)
    found = next((one for one in (typed, str(Path(os.path.realpath(above), name))) if _is_below(one, top)), None)
    if found is None and os.path.realpath(typed) == top:
        found = top
    if found is None:
        raise UsageError(f"{path!r} is not in the workspace {top!r}")
    return os.path.relpath(found, top)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip(os.sep)}{os.sep}")


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
