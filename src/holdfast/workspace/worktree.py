"""Worktree of a fork: a git worktree beside the run's own, made without running anything that a repository ships.

Nothing is checked out by git: no hook and no content filter runs. The files are written by a restore afterwards.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from holdfast.workspace.git import GitFailed, environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIMEOUT_S = 60
_PLAIN = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")


def add_worktree(repository: Path, target: Path, commit: str, branch: str) -> str | None:
    """Add a worktree at a commit, on a new branch if that name is free; return the branch, None if it has none."""
    is_free = not plain_git(repository, "branch", "--list", branch)
    on = ["-b", branch] if is_free else ["--detach"]
    plain_git(repository, "worktree", "add", "--quiet", "--no-checkout", *on, str(target), commit)
    plain_git(target, "read-tree", commit)
    return branch if is_free else None


def remove_worktree(repository: Path, target: Path, branch: str | None) -> None:
    """Take back a worktree that was added, with what is in it."""
    plain_git(repository, "worktree", "remove", "--force", str(target))
    if branch is not None:
        plain_git(repository, "branch", "--quiet", "-D", branch)


def plain_git(
    directory: Path, *arguments: str, given: bytes | None = None, variables: Mapping[str, str] | None = None
) -> str:
    """Return what git prints in a directory, its hooks and monitors left out; GitFailed says what went wrong."""
    line = ["git", *_PLAIN, "-C", str(directory), *arguments]
    settings = {name: value for name, value in environment().items() if name != "GIT_DIR"} | dict(variables or {})
    try:
        done = subprocess.run(  # noqa: S603 - no shell; paths come after a command word
            line, env=settings, input=given or b"", capture_output=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git could not be run: {error}") from error
    if done.returncode:
        raise GitFailed(os.fsdecode(done.stderr).strip() or f"git {arguments[0]} ended with {done.returncode}")
    return os.fsdecode(done.stdout).strip()
