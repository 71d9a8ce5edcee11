"""Puts a repository back where it was: branch, commit and index, when asked; files are the restore's business.

Refuses whenever commits could be lost, a work in progress would be cut off, or the position cannot be put back whole.
Git is not run: what is written goes through descriptors, under the lock files that git itself uses.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from holdfast.errors import RestoreFailed, RestoreRefused
from holdfast.lazy import pattern
from holdfast.workspace import index as indexes
from holdfast.workspace import position, status
from holdfast.workspace.gitdir import GitDirectory, GitFailed, is_ref
from holdfast.workspace.history import reaches
from holdfast.workspace.index import Indexed
from holdfast.workspace.objects import Objects
from holdfast.workspace.paths import raw
from holdfast.workspace.position import GitPosition
from holdfast.workspace.sink import Sink
from holdfast.workspace.snapshot import position_in, position_out
from holdfast.workspace.tree import Scratch, pieces
from holdfast.workspace.user_key import is_user_mark, user_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.encode.chunks import ChunkReader

_log = logging.getLogger("holdfast")
_NOTE = b"holdfast-checkout"
_MAX_NOTE_BYTES = 256 * 1024 * 1024
_WAIT_S = 5.0
_BRANCHES = b"refs/heads/"
_HEX = pattern("[0-9a-f]+")
_MODES = (0o100644, 0o100755, 0o120000, 0o160000)


class Flags(NamedTuple):
    """Marks of the index that a new one gets: skip-worktree, assume-unchanged, and paths of `git add -N`."""

    skipped: frozenset[bytes] = frozenset()
    assumed: frozenset[bytes] = frozenset()
    intended: tuple[tuple[bytes, int], ...] = ()

    def on(self, entries: list[Indexed], objects: Objects) -> list[Indexed]:
        """Return these entries with the marks."""
        if not any(self):
            return entries
        empty = objects.put_blob(b"") if self.intended else ""
        for path, mode in self.intended:
            if mode not in _MODES or indexes.is_odd(path):
                raise GitFailed("its index had an entry that git would not have made")
        marked = [
            entry._replace(is_assumed=True, is_skipped=entry.path in self.skipped)
            if entry.path in self.skipped or entry.path in self.assumed
            else entry
            for entry in entries
        ]
        return sorted([*marked, *(Indexed(path, 0, mode, empty, is_intended=True) for path, mode in self.intended)])


NO_FLAGS = Flags()


def plan_checkout(
    worktree: str,
    wanted: GitPosition,
    *,
    safe: GitPosition | Literal["saved first"] | None = None,
    keep_commits: bool = False,
) -> list[str]:
    """Return what `checkout` would do, in words; RestoreRefused if it must not be done.

    `safe` is the position in the checkpoint taken just before: what it holds of the index cannot be lost. With
    `keep_commits`, those that no branch would reach get one of their own instead of being a reason to refuse.
    """
    with _repository(worktree) as (directory, objects):
        return _plan(directory, objects, wanted, _now(directory), safe, keep_commits=keep_commits)


def checkout(
    worktree: str,
    wanted: GitPosition,
    reader: ChunkReader,
    *,
    safe: GitPosition | None = None,
    keep_commits: bool = False,
) -> None:
    """Put branch, commit, index and what was in progress back; files are not touched. Refuses as `plan_checkout` does.

    The index is locked all the while, and what is to be is noted in the git directory before the first of them moves:
    killed in the middle, `finish_checkout` brings it to its end.
    """
    with _repository(worktree) as (directory, objects), _told(worktree), directory.locked(b"index") as put:
        before = _now(directory)
        if not _plan(directory, objects, wanted, before, safe, keep_commits=keep_commits):
            return
        _put_blobs(objects, wanted, reader)
        for tip in _lost_commits(directory, objects, wanted) if keep_commits else ():
            directory.write(_kept_branch(tip), tip.encode() + b"\n", shared=True, old="")
        put(_note(before, wanted), _NOTE)
        _put_all(directory, objects, wanted, NO_FLAGS, put)
        directory.remove(_NOTE)


def finish_checkout(worktree: str) -> None:
    """Bring a checkout to its end that was killed; cheap when there is none.

    Where somebody moved HEAD or staged something since, git stays as it is now, and that is logged.
    """
    try:
        directory = GitDirectory.open(worktree)
    except GitFailed:
        return
    with directory, _told(worktree):
        if not directory.is_left():
            return
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                with directory.locked(b"index") as put:
                    _finish(directory, put, worktree)
                    return
            except GitFailed:  # held by a process at work, which may be about to end this very checkout
                if directory.stat(_NOTE) is None:
                    return
                if time.monotonic() > until:
                    raise
            time.sleep(_WAIT_S / 100)


def _finish(directory: GitDirectory, put: Callable[..., None], worktree: str) -> None:
    noted = _noted_positions(directory)
    if noted is None:
        return
    before, wanted = noted
    with Objects(directory) as objects:
        now = _now(directory)
        if _stands(now) not in (_stands(before), _stands(wanted)):
            reason: str | None = "HEAD was moved since"
        else:  # what is in progress may be half written: by that very checkout
            now = replace(now, operation=wanted.operation)
            reason = _reason(directory, objects, wanted, now, before, keep_commits=False)
            if reason is None and _lost_commits(directory, objects, wanted):
                reason = "commits were made since that would be on no branch"
        if reason is None:
            _put_all(directory, objects, wanted, NO_FLAGS, put)
        else:
            _log.warning("%s: a restore of git was interrupted and is not finished: %s", worktree, reason)
    directory.remove(_NOTE)


def _now(directory: GitDirectory) -> GitPosition:
    return position.read(directory, "", Sink(Scratch()))


def _stands(at: GitPosition) -> tuple[str, str | None, str | None]:
    return at.head, at.branch, at.commit


def _note(before: GitPosition, wanted: GitPosition) -> bytes:
    """Return what is noted of a checkout, under a mark of this user: one that came with a repository is not obeyed."""
    # What staged contents could not be kept was no reason to refuse then, so it is none when this is finished.
    plain = [position_out(replace(one, blobs=(), history=None, problem=None)) for one in (before, wanted)]
    data = msgspec.msgpack.encode(plain)
    return user_mark("checkout", data.hex()).encode() + b"\n" + data


def _noted_positions(directory: GitDirectory) -> tuple[GitPosition, GitPosition] | None:
    """Return where a killed checkout began and where it was going; None if there is none of this user."""
    mark, _, data = (directory.read_whole(_NOTE, _MAX_NOTE_BYTES) or b"").partition(b"\n")
    if not data or not is_user_mark(mark.decode("ascii", "replace"), "checkout", data.hex()):
        return None
    try:
        before, wanted = map(position_in, msgspec.msgpack.decode(data))
    except (ValueError, msgspec.DecodeError) as error:
        raise GitFailed("what is noted of an interrupted restore of git cannot be read") from error
    return before, wanted


@contextmanager
def _told(worktree: str) -> Iterator[None]:
    """Give what stops a checkout as a typed error; what is noted by then is finished later."""
    try:
        yield
    except GitFailed as error:
        raise RestoreFailed(worktree, f"git is not put back: {error}. Do it again when that is settled") from error
    except OSError as error:
        raise RestoreFailed(worktree, f"{os.strerror(error.errno or 0)} in its .git. Do it again") from error


@contextmanager
def _repository(worktree: str) -> Iterator[tuple[GitDirectory, Objects]]:
    try:
        directory = GitDirectory.open(worktree)
    except GitFailed as error:
        raise RestoreRefused(f"git stays where it is: {error}") from error
    with directory, Objects(directory) as objects:
        yield directory, objects


def _plan(
    directory: GitDirectory,
    objects: Objects,
    wanted: GitPosition,
    now: GitPosition,
    safe: GitPosition | Literal["saved first"] | None,
    *,
    keep_commits: bool,
) -> list[str]:
    try:
        reason = _reason(directory, objects, wanted, now, safe, keep_commits=keep_commits)
        lost = _lost_commits(directory, objects, wanted) if reason is None else []
        branch = _branch(wanted)
        tip = directory.resolve(branch) if wanted.head == "branch" else wanted.commit
    except (GitFailed, OSError) as error:
        raise RestoreRefused(f"git stays where it is: {position.unknown('', error).problem}") from error
    if reason is None and lost and not keep_commits:
        reason = f"commits since then would be on no branch: keep them first with git branch <name> {lost[0][:12]}"
    if reason is not None:
        raise RestoreRefused(f"git stays where it is: {reason}")
    steps = [f"commits since then are kept as branch {_kept_branch(tip)[len(_BRANCHES) :].decode()}" for tip in lost]
    if wanted.head == "branch" and now.branch != wanted.branch:
        steps.append(f"HEAD moves to branch {wanted.branch}")
    if wanted.head == "detached" and (now.head != "detached" or now.commit != wanted.commit):
        steps.append(f"HEAD moves to commit {wanted.commit}")
    if tip != wanted.commit:
        steps.append(f"branch {wanted.branch} moves from {tip or 'nothing'} to {wanted.commit}")
    if now.index != wanted.index or now.commit != wanted.commit:
        steps.append("the index is set as it was")
    if wanted.operation and (now.operation, now.state_files) != (wanted.operation, wanted.state_files):
        steps.append(f"the {wanted.operation} that was in progress is in progress again")
    return steps


def _branch(wanted: GitPosition) -> bytes:
    """Return the ref that HEAD named; nothing that a checkpoint says is taken for a ref unless git could make it."""
    name = raw(wanted.branch or "")
    return name if name.startswith(b"refs/") else _BRANCHES + name


def _kept_branch(tip: str) -> bytes:
    """Return the branch that keeps commits when the branch that held them goes back."""
    return _BRANCHES + b"kept/" + tip[:12].encode()


def _reason(
    directory: GitDirectory,
    objects: Objects,
    wanted: GitPosition,
    now: GitPosition,
    safe: GitPosition | Literal["saved first"] | None,
    *,
    keep_commits: bool,
) -> str | None:
    """Return why a position must not be put back, or None."""
    if wanted.head in ("none", "unknown", "unborn") or wanted.commit is None:
        return "the checkpoint has no commit to go back to"
    if wanted.head == "branch" and not is_ref(_branch(wanted)):
        return f"{wanted.branch!r} is not a name of a branch"
    if now.head == "unknown":
        return f"its present position cannot be read ({now.problem})"
    if wanted.operation is not None and not wanted.state_files:
        return f"a {wanted.operation} was in progress, of which nothing was kept"
    is_ended = keep_commits and now.operation not in ("rebase", "bisect")  # those are more than a few files
    if now.operation is not None and now.operation != wanted.operation and not is_ended:
        return f"a {now.operation} is in progress: finish or abort it first"
    if objects.commit(wanted.commit) is None:
        return f"commit {wanted.commit} is not in this repository"
    kept = {name for name, _ in wanted.blobs}
    missing = next((one.path for one in wanted.index if one.mode and not _is_kept(objects, one, kept)), None)
    if missing is not None:
        return f"the staged content of {missing!r} was not kept"
    if now.index and not _is_index_kept(objects, wanted, now, safe):
        return "what is staged now would be lost: commit it or checkpoint first"
    if wanted.head == "branch" and now.branch != wanted.branch and _branch(wanted) in directory.other_heads():
        return f"branch {wanted.branch} is checked out in another work tree"
    return None


def _is_index_kept(
    objects: Objects, wanted: GitPosition, now: GitPosition, safe: GitPosition | Literal["saved first"] | None
) -> bool:
    """Tell whether all that is staged is in what is put back, or in the checkpoint taken before.

    Whole indexes are compared, since a killed checkout may have moved HEAD and not the index: what is staged over HEAD
    is then something else, while nothing was staged.
    """
    if safe == "saved first":
        return True
    kept = [wanted] if safe is None or safe.problem else [wanted, safe]
    if any((one.commit, one.index) == (now.commit, now.index) for one in kept):
        return True
    staged = _listed(objects, now)
    return any(_listed(objects, one) == staged for one in kept)


def _listed(objects: Objects, at: GitPosition) -> list[Indexed]:
    """Return the whole index of a position: its commit's tree with what was staged over it."""
    found = objects.commit(at.commit) if at.commit is not None else None
    committed = status.flat(found.tree, objects) if found is not None else {}
    for entry in at.index:
        committed.pop(raw(entry.path), None)
    entries = [Indexed(path, 0, mode, name) for path, (mode, name) in committed.items()]
    entries += [Indexed(raw(entry.path), entry.stage, entry.mode, entry.object) for entry in at.index if entry.mode]
    return sorted(entries)


def _is_kept(objects: Objects, entry: position.IndexEntry, kept: set[str]) -> bool:
    if entry.mode not in _MODES or entry.stage not in range(4) or indexes.is_odd(raw(entry.path)):
        return False
    if len(entry.object) != 2 * objects.width or not _HEX.fullmatch(entry.object):
        return False
    return entry.mode == indexes.GITLINK or entry.object in kept or objects.has(entry.object)


def _lost_commits(directory: GitDirectory, objects: Objects, wanted: GitPosition) -> list[str]:
    """Return the commits at the end of what no branch or tag would reach any more."""
    branch, refs = _branch(wanted), directory.refs()
    staying = [value for name, value in refs.items() if name != branch or wanted.head != "branch"]
    tips = [*staying, wanted.commit or ""]
    lost: list[str] = []
    for tip in (directory.resolve(branch) if wanted.head == "branch" else None, directory.resolve(b"HEAD")):
        if tip and not reaches(objects, [*tips, *lost], tip):
            lost.append(tip)
    return lost


def put_position(
    directory: GitDirectory,
    objects: Objects,
    wanted: GitPosition,
    reader: ChunkReader,
    *,
    flags: Flags = NO_FLAGS,
) -> None:
    """Put the position of a repository that is not in its place yet."""
    _put_blobs(objects, wanted, reader)
    with directory.locked(b"index") as put:
        _put_all(directory, objects, wanted, flags, put)


def _put_blobs(objects: Objects, wanted: GitPosition, reader: ChunkReader) -> None:
    for name, ref in wanted.blobs:
        if not objects.has(name):
            content = b"".join(pieces(reader, ref))
            if objects.name("blob", content) != name:
                raise GitFailed(f"the kept content of staged object {name} is another")
            objects.put_blob(content)


def _put_all(
    directory: GitDirectory, objects: Objects, wanted: GitPosition, flags: Flags, put: Callable[..., None]
) -> None:
    """Write refs, then HEAD, then the index, then what was in progress; done again after a kill, it ends the same."""
    entries = _wanted_index(directory, objects, wanted, flags)
    _put_head(directory, wanted)
    put(indexes.dump(entries, objects.width))
    kept = dict(wanted.state_files) if wanted.operation else {}
    below = [
        f"{folder}/{os.fsdecode(name)}"
        for folder in position.STATE_DIRECTORIES
        for name in directory.names(folder.encode())
    ]
    for name in dict.fromkeys((*position.STATE_FILES, *below, *kept)):
        if name in kept and position.is_state_file(name):
            directory.write(name.encode(), position.inert_state(name, kept[name]))
        elif position.is_state_file(name):
            directory.remove(name.encode())


def put_commit(directory: GitDirectory, objects: Objects, now: GitPosition, commit: str) -> None:
    """Add a commit to the present branch, or to a detached HEAD; what is staged over the present one stays staged.

    The index is locked before the branch moves: if another git holds it, nothing has happened.
    """
    wanted = replace(now, commit=commit)
    with directory.locked(b"index") as put:
        entries = _wanted_index(directory, objects, wanted, NO_FLAGS)
        target = directory.head_target()
        directory.write(target or b"HEAD", commit.encode() + b"\n", shared=target is not None, old=now.commit or "")
        for log in (b"HEAD", target or b""):
            directory.append(b"logs/" + log, _log_line(now.commit, commit, "patch"), shared=log != b"HEAD")
        put(indexes.dump(entries, objects.width))


def put_index(directory: GitDirectory, objects: Objects, commit: str) -> None:
    """Let the index be the tree of a commit."""
    wanted = GitPosition(commit=commit)
    directory.write(b"index", indexes.dump(_wanted_index(directory, objects, wanted, NO_FLAGS), objects.width))


def _put_head(directory: GitDirectory, wanted: GitPosition) -> None:
    """Write the branch that HEAD named, and HEAD."""
    commit, branch = wanted.commit, _branch(wanted)
    before = directory.resolve(b"HEAD")
    if wanted.head == "detached" and commit is not None:
        directory.write(b"HEAD", commit.encode() + b"\n")
    else:
        tip = directory.resolve(branch)
        if commit is not None and tip != commit:
            directory.write(branch, commit.encode() + b"\n", shared=True, old=tip or "")
            directory.append(b"logs/" + branch, _log_line(tip, commit), shared=True)
        else:
            with directory.locked(branch, shared=True):
                pass  # a lock that a kill left on it is removed
        directory.write(b"HEAD", b"ref: " + branch + b"\n")
    if commit is not None:
        directory.append(b"logs/HEAD", _log_line(before, commit))


def _log_line(old: str | None, new: str, why: str = "restore") -> bytes:
    """Return a line of a reflog."""
    return f"{old or '0' * len(new)} {new} holdfast <holdfast> {int(time.time())} +0000\tholdfast: {why}\n".encode()


def _wanted_index(directory: GitDirectory, objects: Objects, wanted: GitPosition, flags: Flags) -> list[Indexed]:
    """Return the commit's tree with what was staged over it; files that are as staged are noted as git would."""
    present = status.load_index(directory, objects)
    known = {entry[:4]: entry for entry in present.entries}
    entries = flags.on([known.get(entry[:4], entry) for entry in _listed(objects, wanted)], objects)
    with status.WorkTree(directory.worktree) as tree:
        return [_noted(tree, directory, present, entry, objects) for entry in entries]


def _noted(
    tree: status.WorkTree, directory: GitDirectory, present: indexes.GitIndex, entry: Indexed, objects: Objects
) -> Indexed:
    if entry.stage or entry.is_assumed or entry.is_intended:
        return entry
    letter, found = status.look(tree, directory, present, entry, objects)
    if letter or found is None:
        return entry._replace(stamp=indexes.NO_STAMP)
    return entry._replace(stamp=indexes.stamp_of(found))
