"""Where a repository stands: HEAD, branch, what is staged and not, and what is in progress. Read, never written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.workspace import git
from holdfast.workspace.contents import KEY, SMALL_BYTES
from holdfast.workspace.paths import raw, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.encode.tree import Ref
    from holdfast.workspace.sink import Sink

    LeftOut = Callable[[bytes], bool]

Head = Literal["none", "unknown", "unborn", "branch", "detached"]
MAX_STAGED_BYTES = 64 * 1024 * 1024
_MAX_STATE_BYTES = 256 * 1024
_OPERATIONS = (
    ("rebase", "rebase-merge"),
    ("rebase", "rebase-apply"),
    ("merge", "MERGE_HEAD"),
    ("cherry-pick", "CHERRY_PICK_HEAD"),
    ("revert", "REVERT_HEAD"),
    ("bisect", "BISECT_LOG"),
)
STATE_FILES = ("MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_WATCHED = ("HEAD", "index", *STATE_FILES, "rebase-merge", "rebase-apply", "BISECT_LOG")


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

    @property
    def dirty(self) -> bool:
        """Return whether anything tracked differs from the commit."""
        return bool(self.staged or self.unstaged)

    @property
    def detached(self) -> bool:
        """Return whether HEAD names a commit and no branch."""
        return self.head == "detached"


NO_REPOSITORY = GitPosition()
Watch = tuple[tuple[int, ...] | None, ...]


def git_directories(worktree: str) -> tuple[str, str] | None:
    """Return the git directory of a work tree and the one it shares with others; None if there is none."""
    place = os.path.join(worktree, ".git")  # noqa: PTH118
    if os.path.isfile(place):  # noqa: PTH113
        with open(place, "rb") as file:  # noqa: PTH123
            line = file.read(4096)
        if not line.startswith(b"gitdir: "):
            return None
        place = os.path.join(worktree, os.fsdecode(line[8:].rstrip(b"\n")))  # noqa: PTH118
    if not os.path.isdir(place):  # noqa: PTH112
        return None
    try:
        with open(os.path.join(place, "commondir"), "rb") as file:  # noqa: PTH118, PTH123
            common = os.path.join(place, os.fsdecode(file.read(4096).rstrip(b"\n")))  # noqa: PTH118
    except OSError:
        common = place
    return place, common


def watch(worktree: str) -> Watch | None:
    """Return the keys of the files that move when a repository's position does."""
    found = git_directories(worktree)
    if found is None:
        return None
    own, common = found
    places = [os.path.join(own, name) for name in _WATCHED]  # noqa: PTH118
    places += [os.path.join(common, name) for name in ("packed-refs", "reftable/tables.list", "info/exclude")]  # noqa: PTH118
    head = _read(own, "HEAD")
    if head is not None and head.startswith(b"ref: "):
        places.append(os.path.join(common, os.fsdecode(head[5:].strip())))  # noqa: PTH118
    return tuple(_key(place) for place in places)


def read(
    worktree: str,
    path: str,
    sink: Sink,
    *,
    left_out: LeftOut = lambda _: False,
    max_file_bytes: int = MAX_STAGED_BYTES,
) -> GitPosition:
    """Return the position of the repository whose work tree this is; problems are told, not raised.

    Contents that only the index has are kept, but for those of paths that are `left_out` or that are too large.
    """
    try:
        output = git.run(worktree, *_STATUS, settings=git.without_filters(worktree))
        position = _parsed(output, path)
        found = git_directories(worktree)
        if found is None:
            return position
        operation, files = _operation(found[0])
        blobs, problem = _staged_blobs(worktree, position.index, sink, left_out, max_file_bytes)
    except (git.GitFailed, OSError, ValueError) as error:
        return GitPosition(path=path, head="unknown", problem=str(error))
    return _with(position, operation=operation, state_files=files, blobs=blobs, problem=problem)


def refresh(worktree: str, old: GitPosition, touched: Sequence[bytes]) -> GitPosition:
    """Return a position whose repository did not move, after these paths in its work tree changed."""
    try:
        names = [os.fsdecode(path) for path in touched]
        output = git.run(worktree, *_STATUS, "--", *names, settings=git.without_filters(worktree))
        now = _parsed(output, old.path).unstaged
    except (git.GitFailed, ValueError) as error:
        return GitPosition(path=old.path, head="unknown", problem=str(error))
    below = tuple(text(path) + "/" for path in touched)
    exactly = {text(path) for path in touched}
    kept = [change for change in old.unstaged if change.path not in exactly and not change.path.startswith(below)]
    return _with(old, unstaged=tuple(sorted({*kept, *now})))


_STATUS = (
    "status",
    "--porcelain=v2",
    "-z",
    "--branch",
    "--untracked-files=no",
    "--no-renames",
    "--ignore-submodules=dirty",
)


def _with(position: GitPosition, **changes: object) -> GitPosition:
    values = {name: getattr(position, name) for name in GitPosition.__slots__} | changes
    return GitPosition(**values)


def _parsed(output: bytes, path: str) -> GitPosition:
    """Return a position from `git status --porcelain=v2 -z --branch`."""
    commit = branch = None
    staged: list[GitChange] = []
    unstaged: list[GitChange] = []
    index: list[IndexEntry] = []
    for line in output.split(b"\0"):
        if line.startswith(b"# branch.oid "):
            commit = line[13:].decode()
        elif line.startswith(b"# branch.head "):
            branch = text(line[14:])
        elif line.startswith(b"1 "):
            _, letters, _, _, mode, _, _, name, file = line.split(b" ", 8)
            shown = text(file)
            if letters[:1] != b".":
                staged.append(GitChange(shown, letters[:1].decode()))
                index.append(IndexEntry(shown, 0, int(mode, 8), name.decode()))
            if letters[1:] != b".":
                unstaged.append(GitChange(shown, letters[1:].decode()))
        elif line.startswith(b"u "):
            _, _, _, *fields, file = line.split(b" ", 10)
            unstaged.append(GitChange(text(file), "U"))
            index += _unmerged(text(file), fields)
    head: Head = "branch"
    if branch == "(detached)":
        head, branch = "detached", None
    if commit == "(initial)":
        head, commit = "unborn", None
    return GitPosition(path, head, branch, commit, tuple(staged), tuple(unstaged), index=tuple(index))


def _unmerged(path: str, fields: list[bytes]) -> list[IndexEntry]:
    """Return the stages of an unmerged path from the three modes and, after the work tree's, the three names."""
    stages = [(stage, int(fields[stage - 1], 8), fields[stage + 3].decode()) for stage in (1, 2, 3)]
    return [IndexEntry(path, stage, mode, name) for stage, mode, name in stages if mode]


def _operation(directory: str) -> tuple[str | None, tuple[tuple[str, bytes], ...]]:
    """Return what is in progress, and the small files that hold its state."""
    for name, marker in _OPERATIONS:
        if os.path.lexists(os.path.join(directory, marker)):  # noqa: PTH118
            files = [(file, _read(directory, file)) for file in STATE_FILES]
            return name, tuple((file, content) for file, content in files if content is not None)
    return None, ()


def _staged_blobs(
    worktree: str, index: Sequence[IndexEntry], sink: Sink, left_out: LeftOut, max_file_bytes: int
) -> tuple[tuple[tuple[str, Ref], ...], str | None]:
    """Put the contents that only the index has; the second value says which had to be left out."""
    files = [entry for entry in index if entry.mode and entry.mode != 0o160000]  # noqa: PLR2004
    kept = [entry for entry in files if not left_out(raw(entry.path))]
    problems = [f"{len(files) - len(kept)} staged contents are ignored by .holdfastignore"] if kept != files else []
    wanted = sorted({entry.object for entry in kept})
    if not wanted:
        return (), "; ".join(problems) or None
    limit = min(SMALL_BYTES * 4, max_file_bytes)
    request = "".join(f"{name}\n" for name in wanted).encode()
    checked = git.run(worktree, "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", data=request)
    total, fetch = 0, []
    for line in checked.decode().splitlines():
        fields = line.split(" ")
        if len(fields) == 3 and fields[1] == "blob" and int(fields[2]) <= limit:  # noqa: PLR2004
            total += int(fields[2])
            if total <= MAX_STAGED_BYTES:
                fetch.append(fields[0])
    output = git.run(worktree, "cat-file", "--batch", data="".join(f"{name}\n" for name in fetch).encode())
    blobs: list[tuple[str, Ref]] = []
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        name, _, size = output[position:end].split(b" ")
        position = end + 1 + int(size)
        content = output[end + 1 : position]
        position += 1
        if content:
            blobs.append((name.decode(), sink.leaf(content)))
    left = len(wanted) - len(fetch)
    if left:
        problems.append(f"{left} staged contents are too large to keep")
    return tuple(blobs), "; ".join(problems) or None


def _read(directory: str, name: str) -> bytes | None:
    try:
        with open(os.path.join(directory, name), "rb") as file:  # noqa: PTH118, PTH123
            return file.read(_MAX_STATE_BYTES)
    except OSError:
        return None


def _key(place: str) -> tuple[int, ...] | None:
    try:
        return KEY(os.lstat(place))
    except OSError:
        return None
