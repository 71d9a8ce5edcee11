"""Applies the plan of a restore: stage, journal, swap in, verify; killed anywhere, it is finished or undone later."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat as modes
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.errors import RestoreConflict, RestoreFailed, RestoreRefused
from holdfast.workspace import journal, paths
from holdfast.workspace.ops import FileOps
from holdfast.workspace.plan import check
from holdfast.workspace.scan import OPEN_DIRECTORY
from holdfast.workspace.stage import Stage
from holdfast.workspace.state import on_disk
from holdfast.workspace.swap import Moved, Swap
from holdfast.workspace.tree import open_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.plan import PlanItem, RestorePlan

HOME = b".holdfast"
_READ_AGAIN = 1_000
_LOCK = b"restore.lock"
_PREFIX = b"restore-"
_WAIT_S = 2.0
_PAUSE_S = 0.02
Outcome = Literal["finished", "undone", "discarded"]
_MARKS: tuple[tuple[bytes, Outcome], ...] = ((journal.DONE, "finished"), (journal.UNDONE, "undone"))


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did; `left` lists directories that stayed because they hold what is not captured."""

    written: int
    replaced: int
    deleted: int
    kept: int
    left: tuple[str, ...]
    mismatches: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Return whether every path is as the plan promised."""
        return not self.mismatches


def apply(
    plan: RestorePlan,
    reader: ChunkReader,
    *,
    safety: Callable[[], None] | None = None,
    ops: FileOps | None = None,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> RestoreReport:
    """Carry out exactly this plan, all of it or nothing.

    `safety` is called once before anything is touched, if anything on disk would be overwritten: there the caller
    checkpoints the present tree. A path that is not as the plan saw it is a RestoreConflict, and all is as before.
    """
    check(plan)
    if plan.conflicts:
        raise RestoreConflict(tuple(item.path for item in plan.conflicts), "the plan leaves conflicts open")
    if not plan.changes:
        return _report(plan, ())
    if safety is not None and plan.overwrites:
        safety()
    ops = ops or FileOps()
    with _Place(plan.target, ops) as place:
        if any(place.interrupted()):
            raise RestoreRefused(
                "an earlier restore was interrupted; recover_interrupted() finishes or undoes it first"
            )
        left = place.restore(plan, reader, durable=durable, progress=progress)
    return _report(plan, left)


def recover_interrupted(target: str | os.PathLike[str], *, ops: FileOps | None = None) -> list[Outcome]:
    """Finish each interrupted restore in this directory, or undo it where files were changed since.

    To be called at every start before the directory is used; cheap when there is nothing to do. Safe to be killed and
    called again.
    """
    root = os.path.realpath(os.fspath(target))
    try:
        names = os.listdir(os.path.join(root, os.fsdecode(HOME)))  # noqa: PTH118, PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []
    if not any(name.startswith(os.fsdecode(_PREFIX)) for name in names):
        return []
    with _Place(root, ops or FileOps(), wait_s=_WAIT_S) as place:
        return [place.recover(name) for name in place.interrupted()]


class _Place:
    """The directory `.holdfast` in a restore's target, locked: one restore at a time."""

    def __init__(self, target: str, ops: FileOps, *, wait_s: float = 0) -> None:
        self._target = target
        self._wait_s = wait_s
        self._ops = ops
        self._handles: list[int] = []
        self._created = False

    def __enter__(self) -> Self:
        until = time.monotonic() + self._wait_s
        while True:
            try:
                if self._enter():
                    return self
            except BlockingIOError as error:
                self._close()
                if time.monotonic() >= until:
                    raise RestoreRefused(f"another restore is at work in {self._target!r}") from error
            except OSError as error:
                self._close()
                raise RestoreRefused(f"{self._target!r} cannot be opened: {_said(error)}") from error
            self._close()
            time.sleep(_PAUSE_S)

    def _enter(self) -> bool:
        """Open and lock the directory; False if another that had it before has removed it meanwhile."""
        self._root = self._open(self._target, None)
        try:
            self._home = self._open(HOME, self._root)
        except FileNotFoundError:
            try:
                self._ops.mkdir(self._root, HOME, 0o700)
                self._created = True
            except FileExistsError:
                return False
            self._home = self._open(HOME, self._root)
        try:
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._home)
        except FileNotFoundError:
            return False
        self._handles.append(lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _is_at(self._root, HOME, self._home) and _is_at(self._home, _LOCK, lock)

    def __exit__(self, *_: object) -> None:
        try:
            if not any(self.interrupted()):
                self._leave_nothing()
        finally:
            self._close()

    def interrupted(self) -> Iterator[bytes]:
        """Yield the names of restores that were not brought to an end."""
        for name in sorted(os.listdir(self._home)):  # noqa: PTH208 - a descriptor
            if os.fsencode(name).startswith(_PREFIX) and name != os.fsdecode(_LOCK):
                yield os.fsencode(name)

    def restore(
        self,
        plan: RestorePlan,
        reader: ChunkReader,
        *,
        durable: bool,
        progress: Callable[[int, int], None] | None,
    ) -> tuple[str, ...]:
        """Stage, swap and clean up; on any trouble undo."""
        name = _PREFIX + secrets.token_hex(8).encode()
        try:
            self._ops.mkdir(self._home, name, 0o700)
            work = self._open(name, self._home)
            new, old = self._make(work, b"new"), self._make(work, b"old")
            moves = Stage(plan, reader, new, self._ops, durable=durable, progress=progress).write()
            log = journal.Journal(plan.digest, moves)
            journal.write(work, log, self._ops)
        except Moved as moved:
            self._discard(name)
            raise RestoreConflict((moved.path,), f"a file {moved.why}") from moved
        except OSError as error:
            self._discard(name)
            raise RestoreFailed(plan.target, f"{_said(error)} while staging; nothing was touched") from error
        except BaseException:
            self._discard(name)
            raise
        swap = Swap(self._root, new, old, self._ops)
        self._forward(name, work, log, swap)
        return tuple(swap.left)

    def recover(self, name: bytes) -> Outcome:
        """Bring one interrupted restore to an end."""
        work = self._open(name, self._home)
        for mark, outcome in _MARKS:
            if _exists(work, mark):
                self._discard(name)
                return outcome
        log = journal.read(work)
        if log is None:
            self._discard(name)
            return "discarded"
        swap = Swap(self._root, self._open(b"new", work), self._open(b"old", work), self._ops)
        try:
            self._forward(name, work, log, swap)
        except (RestoreConflict, RestoreFailed):
            if journal.read(work) is not None:
                raise  # it could not even be undone: the reason is told, and the next call tries again
            return "undone"
        return "finished"

    def _forward(self, name: bytes, work: int, log: journal.Journal, swap: Swap) -> None:
        """Carry out every move; if one cannot be, undo them all."""
        path = ""
        try:
            for move in log.moves:
                path = move.path
                swap.do(move)
        except Moved as moved:
            self._backward(name, work, log, swap)
            raise RestoreConflict((moved.path,), f"a file {moved.why}") from moved
        except OSError as error:
            self._backward(name, work, log, swap)
            raise RestoreFailed(path, f"{_said(error)}. What had been changed was put back") from error
        try:
            self._ops.sync(self._root)
            self._ops.rename(work, journal.NAME, work, journal.DONE)
        except OSError as error:
            raise RestoreFailed(path, f"{_said(error)} at the very end. recover_interrupted() closes it") from error
        self._discard(name)

    def _backward(self, name: bytes, work: int, log: journal.Journal, swap: Swap) -> None:
        """Undo every move, the last first; what cannot go back stays in a directory named rescued-*."""
        path = ""
        swap.left.clear()  # of the way forward: directories that stayed
        try:
            for move in reversed(log.moves):
                path = move.path
                swap.undo(move)
            if swap.left:  # named before it is marked: a marked one is thrown away
                self._ops.rename(self._home, name, self._home, b"rescued-" + name[len(_PREFIX) :])
            self._ops.rename(work, journal.NAME, work, journal.UNDONE)
            if swap.left:
                return
        except OSError as error:
            raise RestoreFailed(path, f"{_said(error)} while undoing. recover_interrupted() tries again") from error
        self._discard(name)

    def _make(self, directory: int, name: bytes) -> int:
        self._ops.mkdir(directory, name, 0o700)
        return self._open(name, directory)

    def _open(self, name: bytes | str, directory: int | None) -> int:
        handle = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
        self._handles.append(handle)
        return handle

    def _discard(self, name: bytes) -> None:
        """Remove a restore's own directory, in which nothing is needed any more; the next start does what fails."""
        try:
            _clear(self._home, name, self._ops)
        except OSError:
            return

    def _leave_nothing(self) -> None:
        """Remove the directory again if this restore made it and nothing of worth is in it."""
        if self._created:
            try:
                self._ops.unlink(self._home, _LOCK)
                self._ops.rmdir(self._root, HOME)
            except OSError:
                return  # a store or a rescued file lies there by now

    def _close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def _clear(directory: int, name: bytes, ops: FileOps) -> None:
    """Remove a directory of ours with everything in it; `new` and `old` before the marks that say what they are."""
    handle = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    try:
        os.fchmod(handle, 0o700)
        with os.scandir(handle) as items:
            found = [(os.fsencode(item.name), item.is_dir(follow_symlinks=False)) for item in items]
        for child, is_directory in sorted(found, key=lambda item: not item[1]):
            if is_directory:
                _clear(handle, child, ops)
            else:
                ops.unlink(handle, child)
    finally:
        os.close(handle)
    ops.rmdir(directory, name)


def _said(error: OSError) -> str:
    return os.strerror(error.errno or 0)


def _is_at(directory: int, name: bytes, handle: int) -> bool:
    """Return whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.lstat(name, dir_fd=directory), os.fstat(handle))
    except FileNotFoundError:
        return False


def _exists(directory: int, name: bytes) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def _report(plan: RestorePlan, left: tuple[str, ...]) -> RestoreReport:
    """Look at every path of the plan once more; few files are read again, of many only kind, mode and size are seen."""
    counts, changes = plan.counts(), plan.changes
    read = len(changes) <= _READ_AGAIN
    wrong: list[str] = []
    handle, opened = None, None
    try:
        for item in changes:
            path = paths.raw(item.beside or item.path)
            parent, _, name = path.rpartition(b"/")
            if parent != opened:
                if handle is not None:
                    os.close(handle)
                handle, opened = _parent(plan.target, path), parent
            if item.path not in left and not _is_as_promised(handle, name, item, read=read):
                wrong.append(item.path)
    finally:
        if handle is not None:
            os.close(handle)
    written = counts.get("write", 0) + counts.get("both", 0)
    replaced = counts.get("replace", 0) + counts.get("merge", 0) + counts.get("mode", 0)
    return RestoreReport(written, replaced, counts.get("delete", 0), counts.get("keep", 0), left, tuple(wrong))


def _parent(target: str, path: bytes) -> int | None:
    try:
        return open_parent(target, path)[0]
    except OSError:
        return None


def _is_as_promised(parent: int | None, name: bytes, item: PlanItem, *, read: bool) -> bool:
    wanted = item.checkpoint
    if parent is None:
        return wanted.kind == "absent"
    if wanted.kind == "file" and item.action == "write" and not read:
        try:
            status = os.lstat(name, dir_fd=parent)
        except FileNotFoundError:
            return False
        return (status.st_mode, status.st_size) == (modes.S_IFREG | wanted.mode, wanted.size)
    found = on_disk(parent, name)
    if item.action == "merge":
        return found.hash == item.merged or (not found.hash and found.kind == "file")
    return found == wanted
