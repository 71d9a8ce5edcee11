"""Puts a repository back where it was: branch, commit and index, when asked; files are the restore's business.

Refuses whenever commits could be lost, a work in progress would be cut off, or the position cannot be put back whole.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import RestoreFailed, RestoreRefused
from holdfast.workspace import git, position
from holdfast.workspace.paths import raw
from holdfast.workspace.sink import Sink
from holdfast.workspace.tree import Scratch, pieces

if TYPE_CHECKING:
    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.position import GitPosition

_ZERO = "0" * 40


def plan_checkout(worktree: str, wanted: GitPosition, *, safe: GitPosition | None = None) -> list[str]:
    """Return what `checkout` would do, in words; RestoreRefused if it must not be done.

    `safe` is the position in the checkpoint taken just before: what it holds of the index cannot be lost.
    """
    now = position.read(worktree, wanted.path, Sink(Scratch()))
    reason = _reason(worktree, wanted, now, safe)
    if reason is not None:
        raise RestoreRefused(f"git stays where it is: {reason}")
    steps: list[str] = []
    if wanted.head == "branch" and now.branch != wanted.branch:
        steps.append(f"HEAD moves to branch {wanted.branch}")
    if wanted.head == "detached" and (now.head != "detached" or now.commit != wanted.commit):
        steps.append(f"HEAD moves to commit {wanted.commit}")
    tip = _resolve(worktree, f"refs/heads/{wanted.branch}") if wanted.head == "branch" else wanted.commit
    if tip != wanted.commit:
        steps.append(f"branch {wanted.branch} moves from {tip or 'nothing'} to {wanted.commit}")
    if now.index != wanted.index or now.commit != wanted.commit:
        steps.append("the index is set as it was")
    if wanted.operation:
        steps.append(f"the {wanted.operation} that was in progress is in progress again")
    return steps


def checkout(worktree: str, wanted: GitPosition, reader: ChunkReader, *, safe: GitPosition | None = None) -> None:
    """Put branch, commit and index back; the files are not touched. Refuses as `plan_checkout` does.

    Not one atomic step: killed in the middle, HEAD may have moved while the index is still the old one; doing it again
    completes it.
    """
    if not plan_checkout(worktree, wanted, safe=safe):
        return
    found = position.git_directories(worktree)
    if found is None:
        raise RestoreRefused("git stays where it is: its .git cannot be read")
    lock = os.path.join(found[0], "index.lock")  # noqa: PTH118
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise RestoreRefused("git stays where it is: another git is at work (index.lock)") from error
    try:
        _move(worktree, found[0], wanted, reader)
    except git.GitFailed as error:
        raise RestoreFailed(worktree, f"git said: {error}") from error
    finally:
        os.unlink(lock)  # noqa: PTH108


def _reason(worktree: str, wanted: GitPosition, now: GitPosition, safe: GitPosition | None) -> str | None:
    """Return why a position must not be put back, or None."""
    if wanted.head in ("none", "unknown", "unborn") or wanted.commit is None:
        return "the checkpoint has no commit to go back to"
    if now.head == "unknown":
        return f"its present position cannot be read ({now.problem})"
    if wanted.operation in ("rebase", "bisect"):
        return f"a {wanted.operation} was in progress, which cannot be put back"
    if now.operation is not None and now.operation != wanted.operation:
        return f"a {now.operation} is in progress: finish or abort it first"
    if _resolve(worktree, f"{wanted.commit}^{{commit}}") is None:
        return f"commit {wanted.commit} is not in this repository"
    kept = {name for name, _ in wanted.blobs}
    missing = [
        entry.path
        for entry in wanted.index
        if entry.mode and entry.object not in kept and not _has(worktree, entry.object)
    ]
    if missing:
        return f"the staged content of {missing[0]!r} was not kept"
    if now.index and now.index != wanted.index and (safe is None or safe.index != now.index or safe.problem):
        return "what is staged now would be lost: commit it or checkpoint first"
    return _lost_commits(worktree, wanted, now)


def _lost_commits(worktree: str, wanted: GitPosition, now: GitPosition) -> str | None:
    """Return which commits no branch or tag would reach any more."""
    moved: str | None = None
    if wanted.head == "branch":
        if now.branch != wanted.branch and f"refs/heads/{wanted.branch}" in _checked_out_elsewhere(worktree):
            return f"branch {wanted.branch} is checked out in another work tree"
        tip = _resolve(worktree, f"refs/heads/{wanted.branch}")
        if tip is not None and tip != wanted.commit:
            moved = tip
    if moved is not None and not _reached(worktree, moved, wanted.commit, f"refs/heads/{wanted.branch}"):
        return f"branch {wanted.branch} has commits since then: keep them first with git branch <name> {moved[:12]}"
    if now.head == "detached" and now.commit and not _reached(worktree, now.commit, wanted.commit, None):
        return f"HEAD is at commit {now.commit[:12]}, which no branch holds: keep it with git branch <name>"
    return None


def _reached(worktree: str, commit: str, wanted: str | None, except_ref: str | None) -> bool:
    """Return whether a commit stays reachable from some ref, or from where HEAD goes."""
    listed = git.run(worktree, "for-each-ref", "--contains", commit, "--format=%(refname)").decode("utf-8", "replace")
    if any(name != except_ref for name in listed.splitlines()):
        return True
    try:
        git.run(worktree, "merge-base", "--is-ancestor", commit, wanted or commit)
    except git.GitFailed:
        return False
    return True


def _checked_out_elsewhere(worktree: str) -> set[str]:
    listed = git.run(worktree, "worktree", "list", "--porcelain").decode("utf-8", "replace")
    return {line[7:] for line in listed.splitlines() if line.startswith("branch ")}


def _resolve(worktree: str, name: str) -> str | None:
    try:
        return git.run(worktree, "rev-parse", "--verify", "--quiet", "--end-of-options", name).decode().strip()
    except git.GitFailed:
        return None


def _has(worktree: str, name: str) -> bool:
    try:
        git.run(worktree, "cat-file", "-e", name)
    except git.GitFailed:
        return False
    return True


def _move(worktree: str, directory: str, wanted: GitPosition, reader: ChunkReader) -> None:
    """Write objects, then refs, then HEAD, then the index: each step leaves a repository that git can read."""
    for name, ref in wanted.blobs:
        if not _has(worktree, name):
            content = b"".join(pieces(reader, ref))
            written = git.run(worktree, "hash-object", "-w", "--no-filters", "--stdin", data=content).decode().strip()
            if written != name:
                raise git.GitFailed(f"staged content {name} came out as {written}")
    commit = wanted.commit or ""
    if wanted.head == "branch":
        branch = f"refs/heads/{wanted.branch}"
        tip = _resolve(worktree, branch)
        if tip != commit:
            git.run(worktree, "update-ref", "-m", "holdfast: restore", branch, commit, tip or _ZERO[: len(commit)])
        git.run(worktree, "symbolic-ref", "-m", "holdfast: restore", "HEAD", branch)
    else:
        git.run(worktree, "update-ref", "--no-deref", "-m", "holdfast: restore", "HEAD", commit)
    _write_index(worktree, directory, wanted)
    for name in position.STATE_FILES:
        place = os.path.join(directory, name)  # noqa: PTH118
        kept = dict(wanted.state_files).get(name)
        if kept is not None and wanted.operation:
            with open(place, "wb") as file:  # noqa: PTH123
                file.write(kept)
        elif os.path.lexists(place):
            os.unlink(place)  # noqa: PTH108


def _write_index(worktree: str, directory: str, wanted: GitPosition) -> None:
    """Build the index beside and rename it over the old one."""
    beside = os.path.join(directory, "index.holdfast")  # noqa: PTH118
    environment = {"GIT_INDEX_FILE": beside}
    settings = git.without_filters(worktree)
    nothing = b"0 " + b"0" * len(wanted.commit or _ZERO) + b"\t"
    lines = [nothing + raw(entry.path) + b"\0" for entry in wanted.index]
    for entry in wanted.index:
        if entry.mode:
            fields = f"{entry.mode:o} {entry.object} {entry.stage}\t".encode()
            lines.append(fields + raw(entry.path) + b"\0")
    try:
        git.run(worktree, "read-tree", wanted.commit or "", environment=environment)
        git.run(worktree, "update-index", "-z", "--index-info", data=b"".join(lines), environment=environment)
        with suppress(git.GitFailed):  # it says only that some files differ from the index
            git.run(worktree, "update-index", "-q", "--refresh", environment=environment, settings=settings)
        os.rename(beside, os.path.join(directory, "index"))  # noqa: PTH104, PTH118
    finally:
        for leftover in (beside, beside + ".lock"):
            if os.path.lexists(leftover):
                os.unlink(leftover)  # noqa: PTH108
