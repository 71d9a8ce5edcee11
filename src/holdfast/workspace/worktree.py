"""Worktree of a fork: a git worktree beside the run's own, made as git makes one, but without running git.

Nothing is checked out: no hook and no content filter runs. The files are written by a restore afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.workspace.checkout import put_index
from holdfast.workspace.descriptors import open_parent_below, stat_below
from holdfast.workspace.gitdir import GitDirectory, GitFailed
from holdfast.workspace.objects import Objects

if TYPE_CHECKING:
    from collections.abc import Iterator

_BRANCHES = b"refs/heads/"


def add_worktree(repository: Path, target: Path, commit: str, branch: str) -> str | None:
    """Add a worktree at a commit, on a new branch if that name is free; return the branch, None if it has none."""
    with _told(), GitDirectory.open(str(repository)) as directory, Objects(directory) as objects:
        if objects.commit(commit) is None:
            raise GitFailed(f"commit {commit} is not in this repository")
        ref = _BRANCHES + os.fsencode(branch)
        is_free = directory.can_make(ref)
        name = _free_name(directory, target.name)
        place = Path(target).resolve()
        place.mkdir(parents=True, exist_ok=True)
        if is_free:
            directory.write(ref, commit.encode() + b"\n", shared=True, old="")
        try:
            own = b"worktrees/" + name
            directory.write(own + b"/commondir", b"../..\n", shared=True)
            directory.write(own + b"/gitdir", os.fsencode(place / ".git") + b"\n", shared=True)
            directory.write(own + b"/HEAD", b"ref: " + ref + b"\n" if is_free else commit.encode() + b"\n", shared=True)
            with (place / ".git").open("xb") as file:
                file.write(b"gitdir: " + os.fsencode(Path(directory.place).resolve()) + b"/" + own + b"\n")
            with GitDirectory.open(str(place)) as made:
                put_index(made, objects, commit)
        except BaseException:
            _remove(directory, place, name, branch if is_free else None)
            raise
        return branch if is_free else None


def remove_worktree(repository: Path, target: Path, branch: str | None) -> None:
    """Take back a worktree that was added, with what is in it."""
    with _told(), GitDirectory.open(str(repository)) as directory:
        line = (target / ".git").read_bytes()
        _remove(directory, target, os.path.basename(line.rstrip(b"\n")), branch)  # noqa: PTH119


def _remove(directory: GitDirectory, target: Path, name: bytes, branch: str | None) -> None:
    shutil.rmtree(target, ignore_errors=True)
    with suppress(OSError):  # not behind a link: it would be somebody else's folder of that name
        parent, leaf = open_parent_below(directory.common, b"worktrees/" + name)
        try:
            shutil.rmtree(leaf, ignore_errors=True, dir_fd=parent)
        finally:
            os.close(parent)
    if branch is not None:
        with suppress(OSError):
            parent, leaf = open_parent_below(directory.common, _BRANCHES + os.fsencode(branch))
            try:
                os.unlink(leaf, dir_fd=parent)
            finally:
                os.close(parent)


def _free_name(directory: GitDirectory, wanted: str) -> bytes:
    """Return a name for a new worktree, as git would choose it."""
    plain = re.sub(rb"[^A-Za-z0-9_-]+", b"-", os.fsencode(wanted)).strip(b"-") or b"fork"
    names = (plain if number == 0 else b"%s%d" % (plain, number) for number in range(10_000))
    return next(name for name in names if stat_below(directory.common, b"worktrees/" + name) is None)


@contextmanager
def _told() -> Iterator[None]:
    """Give what the file system says as GitFailed."""
    try:
        yield
    except OSError as error:
        raise GitFailed(f"its .git cannot be written: {os.strerror(error.errno or 0)}") from error
