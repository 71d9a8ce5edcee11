"""A patch as a git commit: on the present branch, the files in the work tree untouched."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.home import in_home
from holdfast.workspace import git, position
from holdfast.workspace.checkout import put_commit
from holdfast.workspace.git import GitFailed
from holdfast.workspace.gitdir import GitDirectory
from holdfast.workspace.objects import Objects
from holdfast.workspace.sink import Sink
from holdfast.workspace.tree import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WHO = ("AUTHOR", "COMMITTER")
_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in _WHO
    for what, value in (("NAME", "holdfast"), ("EMAIL", "holdfast@localhost"))
}


def commit_patch(root: str, patch: bytes, paths: Sequence[str], message: str) -> str:
    """Add a commit with exactly this patch to the present branch; return its id. UsageError if that cannot be.

    The files stay as they are, and so does what is staged of other paths. Killed in between, nothing has happened, or
    only the index is behind: `git status` then shows the paths as staged for their old content. As with git itself,
    `.git/index.lock` may be left then, and is removed by hand.
    """
    real = Path(root).resolve()
    top = next((folder for folder in (real, *real.parents) if os.path.lexists(folder / ".git")), real)
    prefix = real.relative_to(top).as_posix()
    inside = [] if prefix == "." else [f"--directory={prefix}"]
    named = {path if prefix == "." else f"{prefix}/{path}" for path in paths}
    try:
        with GitDirectory.open(str(top)) as directory, Objects(directory) as objects:
            now = position.read(directory, "", Sink(Scratch()))
            if now.commit is None:
                why = now.problem or (
                    "the branch has no commit yet, so make the first one yourself, or leave --commit out and hand the "
                    "patch to `git apply`"
                )
                raise UsageError(f"no commit is made: {why}")
            staged = next((entry.path for entry in now.index if entry.path in named), None)
            if staged is not None:
                raise UsageError(f"no commit is made: {staged!r} has staged changes: commit them first")
            with git.shadow(directory) as ask, TemporaryDirectory(prefix="holdfast-git-") as folder:
                index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
                ask("read-tree", now.commit, variables=index)
                ask("apply", "--cached", "--whitespace=nowarn", *inside, "-", given=patch, variables=index)
                tree = os.fsdecode(ask("write-tree", variables=index)).strip()
                line = ("commit-tree", tree, "-p", now.commit, "-F", "-")
                commit = _commit(ask, line, message.encode(), dict(directory.facts.settings))
            put_commit(directory, objects, now, commit)
    except GitFailed as error:
        raise UsageError(f"no commit is made: the patch does not fit where the branch stands now ({error})") from error
    except OSError as error:
        raise UsageError(f"no commit is made: {os.strerror(error.errno or 0)} in {str(top)!r}") from error
    return commit


def _commit(ask: Callable[..., bytes], line: Sequence[str], message: bytes, settings: dict[bytes, bytes]) -> str:
    """Make the commit, in the name of the person if the repository or their own settings know one."""
    own = {"GIT_CONFIG_GLOBAL": str(in_home(".gitconfig") or os.devnull)}  # of the user, not the repository
    for what in ("name", "email"):
        told = settings.get(f"user.{what}".encode())
        if told is not None and b"\0" not in told:
            own |= {f"GIT_{who}_{what.upper()}": os.fsdecode(told) for who in _WHO}
    try:
        made = ask(*line, given=message, variables=own)
    except GitFailed:
        made = ask(*line, given=message, variables=_NOBODY)
    return os.fsdecode(made).strip()
