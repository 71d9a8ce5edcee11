"""Applies the plan of a restore: stage, journal, swap in, verify; killed anywhere, it is finished or undone later."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat as modes
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdfast.errors import RestoreConflict, RestoreFailed, RestoreRefused
from holdfast.lazy import lazily
from holdfast.workspace import journal, paths
from holdfast.workspace.checkout import finish_checkout
from holdfast.workspace.descriptors import OPEN_DIRECTORY, open_below, open_parent
from holdfast.workspace.ops import FileOps
from holdfast.workspace.plan import check
from holdfast.workspace.state import on_disk

with lazily():  # every run looks for a restore that was interrupted; few find one
    from holdfast.workspace import stage
    from holdfast.workspace import swap as swaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.plan import PlanItem, RestorePlan
    from holdfast.workspace.swap import Swap

HOME = b".holdfast"
_READ_AGAIN = 1_000
_LOCK = b"restore.lock"
_PREFIX = b"restore-"
_WAIT_S = 2.0
_PAUSE_S = 0.02
_SYNCED_SINGLY = 256
_OWN = re.compile(rb"restore-[0-9a-f]+")
Outcome = Literal["finished", "undone", "discarded", "rescued"]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did; `left` lists directories that stayed because they hold what is not captured.

    `rescued` has the paths of replaced files into which somebody still wrote, each with where it is kept now.
    """

    written: int
    replaced: int
    deleted: int
    kept: int
    left: tuple[str, ...]
    mismatches: tuple[str, ...]
    rescued: tuple[tuple[str, str], ...] = ()

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
    if safety is not None and plan.overwrites:
        safety()
    with _translated(plan.target):
        if not plan.changes:
            return _report(plan, (), ())
        with _Place(plan.target, ops or FileOps()) as place:
            if any(place.interrupted()):
                raise RestoreRefused(
                    "an earlier restore was interrupted; recover_interrupted() finishes or undoes it first"
                )
            left, rescued = place.restore(plan, reader, durable=durable, progress=progress)
        return _report(plan, left, rescued)


def recover_interrupted(target: str | os.PathLike[str], *, ops: FileOps | None = None) -> list[Outcome]:
    """Finish each interrupted restore in this directory, or undo it where files were changed since; then that of git.

    To be called at every start before the directory is used; cheap when there is nothing to do. Safe to be killed and
    called again.
    """
    root = os.path.realpath(os.fspath(target))
    with _translated(root):
        found, outcomes = _left_behind(root), []
        if found == "lock":  # killed before it did anything: the lock is removed unless somebody has it by now
            with suppress(RestoreRefused), _Place(root, ops or FileOps()):
                pass
        elif found == "restore":
            with _Place(root, ops or FileOps(), wait_s=_WAIT_S) as place:
                outcomes = [place.recover(name) for name in place.interrupted()]
        finish_checkout(root)
    return outcomes


@contextmanager
def _translated(target: str) -> Iterator[None]:
    """Give what the file system says as a typed error."""
    try:
        yield
    except OSError as error:
        raise RestoreFailed(
            target, f"{_said(error)}. Put that right; the next start finishes or undoes what was begun"
        ) from error


def _left_behind(root: str) -> Literal["restore", "lock", "nothing"]:
    """Return whether a restore in this directory was not brought to an end, or left its lock; nothing is locked."""
    try:
        handle, name = open_parent(root, HOME)
    except OSError:
        return "nothing"
    try:
        home = os.open(name, OPEN_DIRECTORY, dir_fd=handle)
    except OSError:
        return "nothing"
    finally:
        os.close(handle)
    try:
        return "restore" if any(_interrupted(home)) else "lock" if _holds_only_lock(home) else "nothing"
    finally:
        os.close(home)


def _holds_only_lock(home: int) -> bool:
    return os.listdir(home) == [os.fsdecode(_LOCK)]


def _interrupted(home: int) -> Iterator[bytes]:
    with os.scandir(home) as items:
        found = [os.fsencode(item.name) for item in items if item.is_dir(follow_symlinks=False)]
    yield from (name for name in sorted(found) if _OWN.fullmatch(name))


class _Place:
    """The directory `.holdfast` in a restore's target, locked: one restore at a time."""

    def __init__(self, target: str, ops: FileOps, *, wait_s: float = 0) -> None:
        self._target = target
        self._wait_s = wait_s
        self._ops = ops
        self._handles: list[int] = []

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
        """Return the names of restores that were not brought to an end."""
        return _interrupted(self._home)

    def restore(
        self,
        plan: RestorePlan,
        reader: ChunkReader,
        *,
        durable: bool,
        progress: Callable[[int, int], None] | None,
    ) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Stage, swap and clean up; on any trouble undo. Return the directories that stayed, and what was rescued."""
        name = _PREFIX + secrets.token_hex(8).encode()
        try:
            self._ops.mkdir(self._home, name, 0o700)
            work = self._open(name, self._home)
            new, old = self._make(work, b"new"), self._make(work, b"old")
            moves = stage.Stage(plan, reader, new, self._ops, durable=durable, progress=progress).write()
            log = journal.Journal(plan.digest, moves)
            if durable:  # the names on the way to the journal, before it says that it can be relied upon
                for handle in (old, work, self._home, self._root):
                    self._ops.sync(handle)
            journal.write(work, name, log, self._ops)
        except swaps.MovedPath as moved:
            self._discard(name)
            raise RestoreConflict((moved.path,), f"a file {moved.why}") from moved
        except OSError as error:
            self._discard(name)
            raise RestoreFailed(plan.target, f"{_said(error)} while staging; nothing was touched") from error
        except BaseException:
            self._discard(name)
            raise
        swap = swaps.Swap(self._root, new, old, self._ops)
        rescued = self._forward(name, work, log, swap, durable=durable)
        return tuple(swap.left), rescued

    def recover(self, name: bytes) -> Outcome:
        """Bring one interrupted restore to an end."""
        work = self._open(name, self._home)
        done = journal.read(work, name, journal.DONE)
        if done is not None:
            self._finish(name, work, done, None)
            return "finished"
        if journal.read(work, name, journal.UNDONE) is not None:
            self._discard(name)
            return "undone"
        log = journal.read(work, name)
        if log is None:
            return self._without_journal(name, work)
        swap = swaps.Swap(
            self._root,
            self._staging(name, work, b"new"),
            self._staging(name, work, b"old"),
            self._ops,
            is_resumed=True,
        )
        try:
            self._forward(name, work, log, swap, durable=True)
        except (RestoreConflict, RestoreFailed):
            if journal.read(work, name, journal.UNDONE) is None and journal.read(work, name) is not None:
                raise  # it could not even be undone: the reason is told, and the next call tries again
            return "undone"
        return "finished"

    def _without_journal(self, name: bytes, work: int) -> Outcome:
        """End a restore that wrote no journal: it touched nothing, so nothing can be set aside; what is, is kept."""
        try:
            old = self._open(b"old", work)
            is_empty = not os.listdir(old)  # noqa: PTH208 - a descriptor
        except FileNotFoundError:
            is_empty = True
        if is_empty:
            self._discard(name)
            return "discarded"
        self._keep(name)
        return "rescued"

    def _staging(self, name: bytes, work: int, folder: bytes) -> int:
        try:
            return self._open(folder, work)
        except OSError as error:
            place = os.fsdecode(HOME + b"/" + name)
            raise RestoreFailed(
                f"{place}/{folder.decode()}",
                f"{_said(error)}: without this folder an interrupted restore can be neither finished nor undone. "
                f"Copy what you need from {place}/old, then delete {place} and restore again",
            ) from error

    def _forward(
        self, name: bytes, work: int, log: journal.Journal, swap: Swap, *, durable: bool
    ) -> tuple[tuple[str, str], ...]:
        """Carry out every move; if one cannot be, undo them all. Return what was rescued."""
        path = ""
        barriers = _barriers(log.moves) if durable else {}
        try:
            for number, move in enumerate(log.moves):
                path = move.path
                if number in barriers:
                    self._sync(barriers[number], work)
                swap.do(move)
            if durable:
                self._sync(log.moves, work)
        except swaps.MovedPath as moved:
            self._backward(name, work, log, swap)
            raise RestoreConflict((moved.path,), f"a file {moved.why}") from moved
        except OSError as error:
            self._backward(name, work, log, swap)
            raise RestoreFailed(path, f"{_said(error)}. What had been changed was put back") from error
        try:
            self._mark(work, journal.DONE)
        except OSError as error:
            raise RestoreFailed(path, f"{_said(error)} at the very end. recover_interrupted() closes it") from error
        return self._finish(name, work, log, swap)

    def _mark(self, work: int, mark: bytes) -> None:
        """Give the journal a second name that says how the restore ended; a rename might lose both to a power cut."""
        self._ops.place(work, journal.NAME, work, mark)
        self._ops.sync(work)

    def _sync(self, moves: Sequence[journal.Move], work: int, folders: Sequence[bytes] = (b"old", b"new")) -> None:
        """Make every name durable that the moves changed: theirs, those set aside, those taken out of the staging."""
        changed = {move.path.rpartition("/")[0] for move in moves}
        changed |= {move.path for move in moves if move.do in ("mkdir", "tree", "chmod")}
        if len(changed) > _SYNCED_SINGLY:
            self._ops.sync_all()
            return
        for path in sorted({*changed, ""}) if changed else ():
            self._sync_below(self._root, paths.raw(path))
        for folder in folders:
            self._sync_below(work, folder)

    def _sync_below(self, directory: int, path: bytes) -> None:
        try:
            handle = open_below(directory, path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return  # removed by a move, or replaced by somebody: the directory above it is synced as well
            raise
        try:
            self._ops.sync(handle)
        finally:
            os.close(handle)

    def _finish(self, name: bytes, work: int, log: journal.Journal, swap: Swap | None) -> tuple[tuple[str, str], ...]:
        """Delete what a finished restore set aside, each file looked at once more; keep what somebody wrote into."""
        held: list[journal.Move] = []
        place = ""
        try:
            if swap is None and _exists(work, b"old"):
                old = self._open(b"old", work)
                swap = swaps.Swap(self._root, old, old, self._ops)
            if swap is not None:
                held = [move for move in log.moves if move.do == "take" and not swap.drop(move)]
            place = self._keep(name) if held else ""
        except OSError:
            return ()  # it is marked as done: the next start does the rest
        if not held:
            self._discard(name)
        return tuple((move.path, f"{place}/old/{move.slot}") for move in held)

    def _keep(self, name: bytes) -> str:
        """Give a restore's directory a name under which it stays for a person; return where it is now."""
        kept = b"rescued-" + name[len(_PREFIX) :]
        self._ops.rename(self._home, name, self._home, kept)
        self._ops.sync(self._home)
        return os.fsdecode(HOME + b"/" + kept)

    def _backward(self, name: bytes, work: int, log: journal.Journal, swap: Swap) -> None:
        """Undo every move, the last first; what cannot go back stays in a directory named rescued-*."""
        path = ""
        swap.left.clear()  # of the way forward: directories that stayed
        try:
            self._sync((), work, (b"old",))
            for move in reversed(log.moves):
                path = move.path
                swap.undo(move)
            self._sync(log.moves, work)
            for move in log.moves:
                swap.let_go(move)
            if swap.left:  # named before it is marked: a marked one is thrown away
                self._keep(name)
            self._mark(work, journal.UNDONE)
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
        """Remove the directory again if nothing but the lock is in it, also where a restore that was killed made it."""
        if _holds_only_lock(self._home):
            try:
                self._ops.unlink(self._home, _LOCK)
                self._ops.rmdir(self._root, HOME)
            except OSError:
                return  # a store or a rescued file lies there by now

    def _close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def _barriers(moves: Sequence[journal.Move]) -> dict[int, list[journal.Move]]:
    """Return at which moves to sync first, each with the moves whose names are made durable there.

    Nothing says that a power cut keeps a name that was added if it keeps the removal of the one before: a moved file
    may have neither. What was put is still in the staging, so a lost file that was to go is no harm: the restore is
    finished. A moved tree is not, and if it is lost the restore is undone: by then all that was set aside is durable,
    and nothing more is set aside before the trees are.
    """
    trees = [number for number, move in enumerate(moves) if move.do == "tree"]
    if not trees:
        return {}
    takes = [number for number, move in enumerate(moves) if move.do == "take"]
    later = next((number for number in takes if number > trees[-1]), None)
    barriers: dict[int, list[journal.Move]] = {trees[0]: []} if takes and takes[0] < trees[0] else {}
    if later is not None:
        barriers[later] = [move for move in moves[:later] if move.do in ("tree", "mkdir")]
    return barriers


def _clear(directory: int, name: bytes, ops: FileOps) -> None:
    """Remove a directory of ours with everything in it: the journal, what it speaks of, and last the mark of its end.

    A power cut brings none of them back without those that say what it is. Directories are moved up before they are
    emptied: however deep they lie, one is open at a time.
    """
    top = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    try:
        waiting, files = _listed(top)
        marks = [file for file in files if file in (journal.DONE, journal.UNDONE)]
        for file in files:
            if file not in marks:
                ops.unlink(top, file)
        if files and not marks:
            ops.sync(top)
        number = 0
        while waiting:
            child = waiting.pop()
            handle = os.open(child, OPEN_DIRECTORY, dir_fd=top)
            try:
                os.fchmod(handle, 0o700)
                below, others = _listed(handle)
                for other in others:
                    ops.unlink(handle, other)
                for deeper in below:
                    number += 1
                    lifted = b"%d.%s" % (number, secrets.token_hex(4).encode())
                    ops.rename(handle, deeper, top, lifted)
                    waiting.append(lifted)
            finally:
                os.close(handle)
            ops.rmdir(top, child)
        if marks:
            ops.sync(top)
        for file in marks:
            ops.unlink(top, file)
    finally:
        os.close(top)
    ops.rmdir(directory, name)


def _listed(directory: int) -> tuple[list[bytes], list[bytes]]:
    """Return the names of the directories in a directory, and all others."""
    with os.scandir(directory) as items:
        found = [(os.fsencode(item.name), item.is_dir(follow_symlinks=False)) for item in items]
    return [name for name, is_directory in found if is_directory], [
        name for name, is_directory in found if not is_directory
    ]


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


def _report(plan: RestorePlan, left: tuple[str, ...], rescued: tuple[tuple[str, str], ...]) -> RestoreReport:
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
    return RestoreReport(written, replaced, counts.get("delete", 0), counts.get("keep", 0), left, tuple(wrong), rescued)


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
