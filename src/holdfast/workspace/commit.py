"""A patch as a git commit: on the present branch, the files in the work tree untouched."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from holdfast.errors import RestoreRefused
from holdfast.workspace.git import GitFailed
from holdfast.workspace.worktree import plain_git

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "holdfast"), ("EMAIL", "holdfast@localhost"))
}


def commit_patch(root: str, patch: bytes, paths: Sequence[str], message: str) -> str:
    """Add a commit with exactly this patch to the present branch; return its id. RestoreRefused if that cannot be.

    The files stay as they are, and so does what is staged of other paths. Killed in between, nothing has happened, or
    only the index is behind: `git status` then shows the paths as staged for their old content.
    """
    place = Path(root)
    try:
        place = Path(plain_git(place, "rev-parse", "--show-toplevel"))
        prefix = os.path.relpath(os.path.realpath(root), os.path.realpath(place))
        inside = [] if prefix == "." else [f"--directory={prefix}"]
        head = plain_git(place, "rev-parse", "--verify", "HEAD^{commit}")
        named = [path if prefix == "." else f"{prefix}/{path}" for path in paths]
        staged = plain_git(place, "diff", "--cached", "--name-only", "--", *named)
        if staged:
            raise RestoreRefused(f"no commit is made: {staged.splitlines()[0]!r} has staged changes: commit them first")
        with TemporaryDirectory(prefix="holdfast-git-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            plain_git(place, "read-tree", head, variables=index)
            plain_git(place, "apply", "--cached", "--whitespace=nowarn", *inside, "-", given=patch, variables=index)
            tree = plain_git(place, "write-tree", variables=index)
        commit = _commit(place, tree, head, message)
        plain_git(place, "update-ref", "-m", "holdfast patch", "HEAD", commit, head)
        plain_git(place, "reset", "--quiet", "--", *named)
    except GitFailed as error:
        raise RestoreRefused(
            f"no commit is made: the patch does not fit where the branch stands now ({error})"
        ) from error
    return commit


def _commit(place: Path, tree: str, parent: str, message: str) -> str:
    """Make the commit, in the name of the person if git knows one."""
    line = ("commit-tree", tree, "-p", parent, "-F", "-")
    own = {"GIT_CONFIG_GLOBAL": os.path.expanduser("~/.gitconfig")}  # noqa: PTH111 - of the user, not the repository
    try:
        return plain_git(place, *line, given=message.encode(), variables=own)
    except GitFailed:
        return plain_git(place, *line, given=message.encode(), variables=_NOBODY)
