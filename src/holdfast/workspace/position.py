"""Where a repository stands: HEAD, branch, what is staged and not, and what is in progress. Read, never written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.lazy import lazily, pattern
from holdfast.workspace.paths import raw, text

with lazily():  # a stored position is shown without reading a repository
    from holdfast.workspace import contents, gitdir, status
    from holdfast.workspace import index as index_module
    from holdfast.workspace import objects as objects_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.encode.tree import Ref
    from holdfast.workspace.gitdir import GitDirectory
    from holdfast.workspace.index import GitIndex
    from holdfast.workspace.objects import Objects
    from holdfast.workspace.sink import Sink

    LeftOut = Callable[[bytes], bool]

Head = Literal["none", "unknown", "unborn", "branch", "detached"]
Base = Literal["nothing", "remote"]
MAX_PACKS = 24  # of a history; then one pack is made of all
MAX_STAGED_BYTES = 64 * 1024 * 1024
_MAX_STATE_BYTES = 256 * 1024
_OPERATIONS = (
    ("rebase", b"rebase-merge"),
    ("rebase", b"rebase-apply"),
    ("merge", b"MERGE_HEAD"),
    ("cherry-pick", b"CHERRY_PICK_HEAD"),
    ("revert", b"REVERT_HEAD"),
    ("bisect", b"BISECT_LOG"),
)
STATE_FILES = (
    *("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"),
    *("ORIG_HEAD", "BISECT_LOG", "BISECT_START", "BISECT_TERMS", "BISECT_EXPECTED_REV"),
)
STATE_DIRECTORIES = ("rebase-merge", "rebase-apply", "sequencer")
_STATE_FILE = pattern(f"(?:{'|'.join(STATE_FILES)})|(?:{'|'.join(STATE_DIRECTORIES)})/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_RUNS = pattern(rb"^\s*(?:exec|x)\s", re.MULTILINE)
_COMMIT = pattern(rb"\A([0-9a-f]{40}(?:[0-9a-f]{24})?)\s*\Z")
_MAX_STATE_FILES = 400
_ENTRY_BYTES = 64
_WATCHED = (b"HEAD", b"index", *map(str.encode, STATE_FILES), b"rebase-merge", b"rebase-apply")


class GitChange(NamedTuple):
    """One path that differs, with git's letter: M, A, D, T or U."""

    path: str
    status: str


class IndexEntry(NamedTuple):
    """One staged entry that HEAD does not have; mode 0 says that it was removed."""

    path: str
    stage: int
    mode: int
    object: str


@dataclass(frozen=True, slots=True)
class GitHistory:
    """What a checkpoint keeps of a repository's history; without packs `problem` says why, if there is any history.

    `base` is what else is needed: nothing, or the commits that the remotes had.
    """

    base: Base = "nothing"
    tips: tuple[str, ...] = ()
    packs: tuple[Ref, ...] = ()
    details: Ref | None = None
    size_bytes: int = 0
    problem: str | None = None

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Everything that hangs below it."""
        return self.packs if self.details is None else (self.details, *self.packs)


@dataclass(frozen=True, slots=True)
class GitPosition:
    """The position of the repository at `path` ("" is the workspace itself)."""

    path: str = ""
    head: Head = "none"
    branch: str | None = None
    commit: str | None = None
    staged: tuple[GitChange, ...] = ()
    unstaged: tuple[GitChange, ...] = ()
    operation: str | None = None
    state_files: tuple[tuple[str, bytes], ...] = ()
    index: tuple[IndexEntry, ...] = ()
    blobs: tuple[tuple[str, Ref], ...] = ()
    problem: str | None = None
    history: GitHistory | None = None
    """What is kept of its history; None where none was looked for."""

    @property
    def dirty(self) -> bool:
        """Return whether anything tracked differs from the commit."""
        return bool(self.staged or self.unstaged)


NO_REPOSITORY = GitPosition()
Watch = tuple[tuple[int, ...] | None, ...]


def watch(directory: GitDirectory) -> Watch:
    """Return the keys of the files that move when a repository's position does."""
    return directory.keys(_WATCHED)


def read(
    directory: GitDirectory,
    path: str,
    sink: Sink,
    *,
    left_out: LeftOut = lambda _: False,
    max_file_bytes: int = MAX_STAGED_BYTES,
    index: GitIndex | None = None,
) -> GitPosition:
    """Return the position of a repository; problems are told, not raised.

    Contents that only the index has are kept, but for those of paths that are `left_out` or that are too large.
    """
    try:
        with objects_module.Objects(directory) as objects:
            target, commit = directory.head_target(), directory.resolve(b"HEAD")
            index = index or status.load_index(directory, objects)
            changed = status.staged(index, _tree(commit, objects), objects)
            unmerged = [entry for entry in index.entries if entry.stage]
            listed = [
                *(IndexEntry(text(entry.path), 0, entry.mode, entry.object) for entry in changed),
                *(IndexEntry(text(entry.path), entry.stage, entry.mode, entry.object) for entry in unmerged),
            ]
            unstaged = status.unstaged(directory, index, index.entries, objects)
            operation, files = _operation(directory)
            blobs, problem = _staged_blobs(objects, listed, sink, left_out, max_file_bytes)
    except (gitdir.GitFailed, OSError) as error:
        return unknown(path, error)
    head: Head = "detached" if target is None else "unborn" if commit is None else "branch"
    return GitPosition(
        path,
        head,
        None if target is None else text(target.removeprefix(b"refs/heads/")),
        commit,
        tuple(GitChange(text(entry.path), entry.letter) for entry in changed),
        _changes(unstaged),
        operation,
        files,
        tuple(listed),
        blobs,
        problem,
    )


def refresh(directory: GitDirectory, old: GitPosition, index: GitIndex, touched: Sequence[bytes]) -> GitPosition:
    """Return a position whose repository did not move, after these paths in its work tree changed."""
    entries = {entry[:2]: entry for path in touched for entry in index.at(path)}
    try:
        with objects_module.Objects(directory) as objects:
            now = status.unstaged(directory, index, entries.values(), objects)
    except (gitdir.GitFailed, OSError) as error:
        return unknown(old.path, error)
    seen = {text(path) for path, _ in entries}
    kept = [change for change in old.unstaged if change.path not in seen]
    return replace(old, unstaged=tuple(sorted({*kept, *_changes(now)})))


def unknown(path: str, error: Exception) -> GitPosition:
    """Return the position of a repository that cannot be read."""
    why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
    return GitPosition(path=path, head="unknown", problem=why)


def listed_bytes(position: GitPosition) -> int:
    """Return about how many bytes a position's lists take when they are stored."""
    lists = (position.staged, position.unstaged, position.index)
    return sum(len(one.path) + _ENTRY_BYTES for listed in lists for one in listed)


def _changes(unstaged: dict[bytes, str]) -> tuple[GitChange, ...]:
    return tuple(sorted(GitChange(text(path), letter) for path, letter in unstaged.items()))


def _tree(commit: str | None, objects: Objects) -> str | None:
    """Return a commit's tree; GitFailed if the commit is not here."""
    if commit is None:
        return None
    found = objects.commit(commit)
    if found is None:
        raise gitdir.GitFailed(
            f"commit {commit} is not among its own objects (those of another repository are not read)"
        )
    return found.tree


def _operation(directory: GitDirectory) -> tuple[str | None, tuple[tuple[str, bytes], ...]]:
    """Return what is in progress, and the small files that hold its state."""
    for name, marker in _OPERATIONS:
        if directory.stat(marker) is not None:
            return name, _state(directory)
    return None, ()


def _state(directory: GitDirectory) -> tuple[tuple[str, bytes], ...]:
    """Return the files of what is in progress; GitFailed if they are more than a person's work would leave."""
    below = [
        f"{folder}/{os.fsdecode(name)}" for folder in STATE_DIRECTORIES for name in directory.names(folder.encode())
    ]
    found: list[tuple[str, bytes]] = []
    for name in (*STATE_FILES, *(name for name in below if is_state_file(name))):
        content = directory.read(name.encode(), _MAX_STATE_BYTES)
        if content is not None:
            found.append((name, content))
    if len(found) > _MAX_STATE_FILES or sum(len(content) for _, content in found) > 4 * _MAX_STATE_BYTES:
        raise gitdir.GitFailed("what is in progress in it takes too many files to keep")
    return tuple(found)


def is_state_file(name: str) -> bool:
    """Tell whether a name in a git directory is one of what may be in progress."""
    return _STATE_FILE.fullmatch(name) is not None


def inert_state(name: str, content: bytes) -> bytes:
    """Return a file of what is in progress without commands that continuing it would run."""
    if name.rpartition("/")[2] in ("git-rebase-todo", "git-rebase-todo.backup", "done", "todo"):
        return _RUNS.sub(rb"# left out: \g<0>", content)
    return content


def state_commits(position: GitPosition) -> list[str]:
    """Return the commits that the files of what is in progress name."""
    found = [_COMMIT.fullmatch(line) for _, content in position.state_files for line in content.split(b"\n")[:2]]
    return sorted({match[1].decode() for match in found if match is not None})


def _staged_blobs(
    objects: Objects, index: Sequence[IndexEntry], sink: Sink, left_out: LeftOut, max_file_bytes: int
) -> tuple[tuple[tuple[str, Ref], ...], str | None]:
    """Put the contents that only the index has; the second value says which had to be left out."""
    gitlink = index_module.GITLINK
    files = [entry for entry in index if entry.mode and entry.mode != gitlink]
    kept = [entry for entry in files if not left_out(raw(entry.path))]
    problems = [f"{len(files) - len(kept)} staged contents are left out by rules or settings"] if kept != files else []
    limit = min(contents.SMALL_BYTES * 4, max_file_bytes)
    blobs: list[tuple[str, Ref]] = []
    total = too_large = 0
    for name in sorted({entry.object for entry in kept}):
        try:
            found = objects.get(name, limit)
        except objects_module.ObjectTooLarge:
            found = None
        content = found[1] if found is not None and found[0] == "blob" else None
        if content is None or total + len(content) > MAX_STAGED_BYTES:
            too_large += 1
            continue
        total += len(content)
        if content:
            blobs.append((name, sink.leaf(content)))
    if too_large:
        problems.append(f"{too_large} staged contents are too large to keep")
    return tuple(blobs), "; ".join(problems) or None
