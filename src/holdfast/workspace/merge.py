"""Three-way merges of text by `git merge-file`; what cannot be merged is said, never guessed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from holdfast.workspace import git
from holdfast.workspace.diff import is_binary

MAX_MERGE_BYTES = 4 * 1024 * 1024


class Merged(NamedTuple):
    """The result of a merge; with conflicts the data holds markers."""

    data: bytes
    conflicts: int


def merge(base: bytes, mine: bytes, theirs: bytes) -> Merged | None:
    """Return both sides' changes to `base` in one text; None if it cannot be run or the contents are not text."""
    if any(is_binary(side) or len(side) > MAX_MERGE_BYTES for side in (base, mine, theirs)) or not git.is_installed():
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-merge-") as place:
            for name, side in (("mine", mine), ("base", base), ("theirs", theirs)):
                Path(place, name).write_bytes(side)
            labels = ("-L", "on disk", "-L", "common", "-L", "checkpoint")
            done = git.finish(("merge-file", "-p", *labels, "mine", "base", "theirs"), place, git.environment())
    except (OSError, git.GitFailed):
        return None
    if done.code < 0 or done.code >= 128:  # noqa: PLR2004
        return None
    return Merged(done.out, done.code)
