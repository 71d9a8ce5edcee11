"""Repositories put back where there is none: made from the history that a checkpoint kept, then swapped in whole.

A repository is built under `.holdfast/repository-<id>`, with packs that git indexes there, settings that we write, and
HEAD, refs and index as they were; one rename makes it the work tree's `.git`. Nothing of the repository that was
captured is obeyed on the way. From a remote that a checkpoint names nothing is fetched unless that is asked for.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.errors import IntegrityError, RestoreFailed, RestoreRefused
from holdfast.workspace import git
from holdfast.workspace.checkout import Flags, checkout, plan_checkout, put_position
from holdfast.workspace.descriptors import OPEN_DIRECTORY, open_below, stat_below
from holdfast.workspace.git_history import is_address, read_details
from holdfast.workspace.gitdir import GitDirectory, GitFacts, GitFailed
from holdfast.workspace.objects import Objects
from holdfast.workspace.ops import FileOps
from holdfast.workspace.paths import raw
from holdfast.workspace.tree import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.git_history import Details
    from holdfast.workspace.position import GitPosition
    from holdfast.workspace.snapshot import Snapshot

_HOME = b".holdfast"
_PREFIX = "repository-"
_PENDING = b"repositories.pending"
_TIMEOUT_S = 1800
_OURS = (".holdfast",)


class GitPlan(NamedTuple):
    """What putting git back would do, in words; what is not put back, and why."""

    words: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    moves: bool = False
    """Whether the position of the directory's own repository is moved."""
    creates: bool = False
    """Whether that repository is created."""


class Asked(NamedTuple):
    """What somebody asked for: that git is put back, that its remotes are asked, that lost commits get a branch."""

    git: bool = False
    clone: bool = False
    keep_commits: bool = False


NOT_ASKED = Asked()


def plan_git(
    target: str,
    snapshot: Snapshot,
    asked: Asked = NOT_ASKED,
    *,
    safe: GitPosition | Literal["saved first"] | None = None,
) -> GitPlan:
    """Return what `put_git` would do; RestoreRefused if what was `asked` for must not be done.

    Repositories are made where there is none, in a directory that is empty or if it is asked for; the position of one
    that is there is moved only if it is asked for.
    """
    words: list[str] = []
    problems: list[str] = []
    creates = False
    is_new = asked.git or is_unfilled(target)
    for position in snapshot.positions:
        if not is_new or position.head == "none" or has_repository(target, position.path):
            continue
        where = position.path or "."
        problem = _problem(position, clone=asked.clone)
        if problem is not None:
            problems.append(f"no repository is created in {where!r}: {problem}")
            continue
        stood = f"at {(position.commit or '')[:12]}" if position.commit else "without a commit"
        name = f"branch {position.branch}" if position.branch else "detached HEAD"
        creates = creates or not position.path
        words.append(f"a repository is created in {where!r}: {name} {stood}")
    if not asked.git or creates:
        return GitPlan(tuple(words), tuple(problems), creates=creates)
    if problems and not has_repository(target):
        raise RestoreRefused(problems[0])
    moves = plan_checkout(target, snapshot.git, safe=safe, keep_commits=asked.keep_commits)
    return GitPlan((*moves, *words), tuple(problems), bool(moves))


def put_git(
    target: str,
    snapshot: Snapshot,
    reader: ChunkReader,
    asked: Asked = NOT_ASKED,
    *,
    safe: GitPosition | None = None,
) -> GitPlan:
    """Do what `plan_git` says, after the files were put there; killed in the middle, doing it again completes it."""
    plan = plan_git(target, snapshot, asked, safe=safe)
    ops = FileOps()
    if plan.moves:
        checkout(target, snapshot.git, reader, safe=safe, keep_commits=asked.keep_commits)
    if plan.words:
        for position in snapshot.positions:
            if (
                position.head != "none"
                and not has_repository(target, position.path)
                and _problem(position, clone=asked.clone) is None
            ):
                _create(target, position, reader, ops, clone=asked.clone)
    _set_pending(target, ops, is_pending=False)
    return plan


def announce(target: str, snapshot: Snapshot) -> None:
    """Note in an empty directory that repositories are to follow the files, so that a kill between is made good."""
    if is_unfilled(target) and any(position.history is not None for position in snapshot.positions):
        _set_pending(target, FileOps(), is_pending=True)


def hide_own_folder(target: str, *, ops: FileOps | None = None) -> None:
    """Make our own folder in a directory, with a file that keeps git from listing or adding it."""
    ops = ops or FileOps()
    with _home(target, ops, make=True) as home:
        if home is not None and stat_below(home, b".gitignore") is None:
            name = f".gitignore-{secrets.token_hex(8)}".encode()  # an empty one, left by a kill, would hide nothing
            _write(home, name, b"*\n", ops)
            ops.rename(home, name, home, b".gitignore")


def is_unfilled(target: str) -> bool:
    """Tell whether a directory holds nothing yet, or files without the repositories that belong to them."""
    try:
        names = os.listdir(target)  # noqa: PTH208 - cheap, and done at every plan
    except FileNotFoundError:
        return True
    if not set(names) - set(_OURS):
        return True
    return os.path.lexists(os.path.join(os.fsencode(target), _HOME, _PENDING))  # noqa: PTH118


def has_repository(target: str, path: str = "") -> bool:
    """Tell whether there is a `.git` at a path of a directory."""
    return os.path.lexists(os.path.join(os.fsencode(target), raw(path), b".git"))  # noqa: PTH118


def _problem(position: GitPosition, *, clone: bool) -> str | None:
    """Return why a repository cannot be made, None if it can."""
    history = position.history
    if position.head == "unknown":
        return position.problem or "it could not be read"
    if history is None:
        return "its history was not kept"
    if history.problem or history.details is None:
        return history.problem or "its history was not kept"
    if history.base == "remote" and not clone:
        return (
            "only what its remotes did not have was kept (workspace.git_history_mb); "
            "--clone (clone=True, workspace.clone) fetches the rest from them"
        )
    return None if git.is_installed() else "git is not installed"


def _set_pending(target: str, ops: FileOps, *, is_pending: bool) -> None:
    with _home(target, ops, make=is_pending) as home:
        if home is None:
            return
        is_there = stat_below(home, _PENDING) is not None
        if is_pending and not is_there:
            os.close(ops.create(home, _PENDING))
            ops.sync(home)
        elif is_there and not is_pending:
            ops.unlink(home, _PENDING)
            ops.sync(home)


class _home:  # noqa: N801 - a context manager, used as a function
    """Open our own folder in a directory, made if it is to be."""

    def __init__(self, target: str, ops: FileOps, *, make: bool) -> None:
        self._target, self._ops, self._make = target, ops, make
        self._handle: int | None = None

    def __enter__(self) -> int | None:
        root = os.open(self._target, OPEN_DIRECTORY)
        try:
            if self._make:
                with suppress(FileExistsError):
                    self._ops.mkdir(root, _HOME, 0o700)
                    self._ops.sync(root)
            with suppress(FileNotFoundError):
                self._handle = os.open(_HOME, OPEN_DIRECTORY, dir_fd=root)
        finally:
            os.close(root)
        return self._handle

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)


def _create(target: str, position: GitPosition, reader: ChunkReader, ops: FileOps, *, clone: bool) -> None:
    """Make one repository and put it in its place; all of it or nothing."""
    assert position.history is not None
    assert position.history.details is not None
    try:
        hide_own_folder(target, ops=ops)
        with _home(target, ops, make=True) as home:
            assert home is not None
            _clean(home)
            name = f"{_PREFIX}{secrets.token_hex(8)}"
            ops.mkdir(home, name.encode(), 0o700)
            place = os.path.join(target, os.fsdecode(_HOME), name)  # noqa: PTH118
            try:
                details = read_details(b"".join(pieces(reader, position.history.details)))
                _fill(_Place(home, name, place, target), position, details, reader, ops, clone=clone)
                _swap_in(home, name, target, position, ops)
            finally:
                shutil.rmtree(name, ignore_errors=True, dir_fd=home)  # unless it is in its place by now
    except (GitFailed, IntegrityError) as error:
        raise RestoreFailed(target, f"no repository was created in {position.path or '.'!r}: {error}") from error
    except OSError as error:
        raise RestoreFailed(target, f"{os.strerror(error.errno or 0)} while a repository was created") from error


def _clean(home: int) -> None:
    """Remove what a kill left half made."""
    for name in os.listdir(home):
        if name.startswith(_PREFIX):
            shutil.rmtree(name, dir_fd=home, ignore_errors=True)


class _Place(NamedTuple):
    """Where a repository is made: in our folder, under a name, at a path; and the work tree that it is for."""

    home: int
    name: str
    path: str
    target: str


def _fill(
    at: _Place, position: GitPosition, details: Details, reader: ChunkReader, ops: FileOps, *, clone: bool
) -> None:
    """Fill a new git directory: settings, objects, refs, then where the repository stood."""
    own = open_below(at.home, at.name.encode())
    try:
        if not os.path.samestat(os.lstat(at.path), os.fstat(own)):
            raise GitFailed("its folder was replaced while it was made")
        for folder in (b"objects", b"objects/pack", b"objects/info", b"refs", b"refs/heads", b"refs/tags", b"info"):
            ops.mkdir(own, folder, 0o777)
        _write(own, b"config", _config(details), ops)
        _write(own, b"HEAD", b"ref: refs/heads/main\n", ops)
        for file, content in details.info.items():
            _write(own, file, content, ops)
        if details.shallow:
            _write(own, b"shallow", details.shallow, ops)
        if position.history is not None and position.history.base == "remote" and clone:
            _fetch(at.path, details)
        for pack in position.history.packs if position.history is not None else ():
            _index_pack(at.path, pieces(reader, pack))
        worktree = os.open(os.path.join(os.fsencode(at.target), raw(position.path)), OPEN_DIRECTORY)  # noqa: PTH118
        try:
            directory = GitDirectory(worktree, own, own)
            directory.facts = GitFacts(sha256=details.sha256, modes_count=_counts_modes(details))
            with Objects(directory) as objects:
                _put_refs(own, details, objects, position.commit, ops)
                skipped, assumed = frozenset(details.skipped), frozenset(details.assumed)
                flags = Flags(skipped, assumed, tuple(details.intended))
                put_position(directory, objects, position, reader, flags=flags)
        finally:
            os.close(worktree)
        _sync_below(own, ops)
    finally:
        os.close(own)


def _put_refs(own: int, details: Details, objects: Objects, commit: str | None, ops: FileOps) -> None:
    """Write the refs whose objects are there; GitFailed if the commit of HEAD is not."""
    if commit is not None and objects.commit(commit) is None:
        raise GitFailed(f"commit {commit} is not in what was kept or fetched")
    lines = [value.encode() + b" " + name + b"\n" for name, value in sorted(details.refs.items()) if objects.has(value)]
    _write(own, b"packed-refs", b"# pack-refs with: sorted \n" + b"".join(lines), ops)
    ops.mkdir(own, b"logs", 0o777)
    ops.mkdir(own, b"logs/refs", 0o777)
    _write(own, b"logs/HEAD", b"", ops)
    if details.stashes:
        _write(own, b"logs/refs/stash", details.stashes, ops)


def _config(details: Details) -> bytes:
    """Return settings as text: each value is one that `git_history` let through."""
    version = 1 if details.sha256 else 0
    lines = [f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n\tlogallrefupdates = true\n".encode()]
    if details.sha256:
        lines.append(b"[extensions]\n\tobjectformat = sha256\n")
    for name, value in details.settings:
        section, _, key = name.rpartition(b".")
        first, dot, below = section.partition(b".")
        head = b"[" + first + (b' "' + below + b'"' if dot else b"") + b"]"
        lines.append(head + b"\n\t" + key + b' = "' + value + b'"\n')
    return b"".join(lines)


def _counts_modes(details: Details) -> bool:
    value = dict(details.settings).get(b"core.filemode", b"true")
    return value.lower() not in (b"false", b"no", b"off", b"0")


def _index_pack(place: str, data: Iterator[bytes]) -> None:
    """Let git index a pack that it writes into our new directory."""
    child = git.start(
        ("index-pack", "--stdin"),
        place,
        git.environment(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with child:
        assert child.stdin is not None
        assert child.stderr is not None
        try:
            for piece in data:
                child.stdin.write(piece)
            child.stdin.close()
        except BrokenPipeError:
            pass
        except BaseException:
            child.kill()
            raise
        said = child.stderr.read().decode("utf-8", "replace").strip().partition("\n")[0]
    if child.returncode:
        raise GitFailed(f"a pack of its history cannot be indexed ({said})")


def _fetch(place: str, details: Details) -> None:
    """Fetch branches and tags from the remotes that the details name: the first that answers is enough."""
    told: list[str] = []
    for url in details.remotes():
        if not is_address(url):
            continue
        settings = git.users_environment() | {"GIT_DIR": place, "GIT_ALLOW_PROTOCOL": "https:http:ssh:file"}
        refs = ["+refs/heads/*:refs/base/heads/*", "+refs/tags/*:refs/base/tags/*"]
        line = ["-c", "core.logAllRefUpdates=false", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules"]
        line += ["--no-write-fetch-head", "--", os.fsdecode(url), *refs]
        done = git.finish(line, place, settings, timeout_s=_TIMEOUT_S)
        if not done.code:
            shutil.rmtree(os.path.join(place, "refs/base"), ignore_errors=True)  # noqa: PTH118
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(place, "packed-refs"))  # noqa: PTH108, PTH118
            return
        told.append(done.said)
    raise GitFailed(f"its remote could not be fetched from ({'; '.join(told) or 'it has none that may be asked'})")


def _swap_in(home: int, name: str, target: str, position: GitPosition, ops: FileOps) -> None:
    root = os.open(target, OPEN_DIRECTORY)
    try:
        parent = open_below(root, raw(position.path))
    finally:
        os.close(root)
    try:
        ops.rename(home, name.encode(), parent, b".git")
        ops.sync(parent)
    finally:
        os.close(parent)


def _write(directory: int, name: bytes, content: bytes, ops: FileOps) -> None:
    handle = ops.create(directory, name)
    try:
        ops.write(handle, content)
        ops.finish(handle, 0o644, None)
        ops.sync(handle)
    finally:
        os.close(handle)


def _sync_below(own: int, ops: FileOps) -> None:
    folders: Sequence[bytes] = (b"objects/pack", b"objects", b"refs/heads", b"refs", b"logs", b"info")
    for folder in folders:
        handle = open_below(own, folder)
        try:
            ops.sync(handle)
        finally:
            os.close(handle)
    ops.sync(own)
