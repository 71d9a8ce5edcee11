"""The steps of a restore, each of which can be done, done again after a kill, and undone."""

from __future__ import annotations

import errno
import os
import stat as modes
from typing import TYPE_CHECKING

from holdfast.workspace import paths
from holdfast.workspace.contents import KEY
from holdfast.workspace.descriptors import OPEN_DIRECTORY, open_below, open_parent_below
from holdfast.workspace.state import OTHER, State, on_disk, tree_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.workspace.journal import Move
    from holdfast.workspace.ops import FileOps

_LED_ASTRAY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EEXIST)


class MovedPath(Exception):
    """A path is not what the plan saw."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why


class Swap:
    """Carries out moves in the directory `root`, with what is new and what was old in two directories beside."""

    def __init__(self, root: int, new: int, old: int, ops: FileOps, *, is_resumed: bool = False) -> None:
        self._root = root
        self._new = new
        self._old = old
        self._ops = ops
        self._is_resumed = is_resumed  # another process began it: what it staged is looked at before it is placed
        self._taken: dict[int, tuple[int, ...]] = {}
        self.left: list[str] = []

    def do(self, move: Move) -> None:
        """Carry out one move, or what is left of it; Moved if the path is not as the plan saw it."""
        try:
            parent, name = open_parent_below(self._root, paths.raw(move.path))
        except OSError as error:
            if error.errno in _LED_ASTRAY:
                if move.do in ("take", "rmdir") and self._is_done_without_parent(move):
                    return
                raise MovedPath(move.path, "its directory is gone or was replaced") from error
            raise
        try:
            getattr(self, f"_{move.do}")(move, parent, name)
        finally:
            os.close(parent)

    def undo(self, move: Move) -> None:
        """Take one move back, if it was carried out; what others have put there since is left alone."""
        try:
            parent, name = open_parent_below(self._root, paths.raw(move.path))
        except OSError as error:
            if error.errno in _LED_ASTRAY:
                self._rescue(move) if move.do == "take" else self._settle(move)
                return
            raise
        try:
            getattr(self, f"_undo_{move.do}")(move, parent, name)
        finally:
            os.close(parent)

    def _is_done_without_parent(self, move: Move) -> bool:
        return self._is_resumed or move.do == "rmdir" or _lstat(self._old, _slot(move)) is not None

    def _take(self, move: Move, parent: int, name: bytes) -> None:
        slot = _slot(move)
        status = _lstat(self._old, slot)
        if status is None:
            if self._is_resumed and _same(_lstat(self._new, slot), _lstat(parent, name)):
                return  # what takes its place is there already: a power cut took the name that was set aside
            try:
                self._ops.rename(parent, name, self._old, slot)
            except FileNotFoundError as error:
                if self._is_resumed:
                    return  # a power cut may have taken both its names
                raise MovedPath(move.path, "is gone") from error
        elif self._is_back(move, status, parent, name):
            self._ops.unlink(parent, name)  # both names are there after an undo or a power cut: a rename does nothing
        key = _key(self._old, slot)
        if on_disk(self._old, slot) != move.expect:
            raise MovedPath(move.path, "was changed since the plan was made")
        if key is not None:
            self._taken[move.slot] = key

    def _is_back(self, move: Move, taken: os.stat_result, parent: int, name: bytes) -> bool:
        """Tell whether what was taken is at its path as well; in a copied directory that is another file."""
        if _same(taken, _lstat(parent, name)):
            return True
        return self._is_resumed and on_disk(parent, name) == move.expect == on_disk(self._old, _slot(move))

    def drop(self, move: Move) -> bool:
        """Delete what a take set aside; False if somebody wrote into it since, and it is kept.

        An editor that had the file open continues writing into it, wherever it lies by now.
        """
        slot = _slot(move)
        key = _key(self._old, slot)
        if key is None:
            return True
        if key != self._taken.get(move.slot) and on_disk(self._old, slot) != move.expect:
            return False
        self._ops.unlink(self._old, slot)
        return True

    def _undo_take(self, move: Move, parent: int, name: bytes) -> None:
        slot = _slot(move)
        status = _lstat(self._old, slot)
        if status is None:
            return
        try:
            if modes.S_ISDIR(status.st_mode):
                if _lstat(parent, name) is not None:
                    self._rescue(move)
                    return
                self._ops.rename(self._old, slot, parent, name)
            elif not _same(_lstat(parent, name), status):
                self._ops.place(self._old, slot, parent, name)
        except FileExistsError:
            self._rescue(move)

    def let_go(self, move: Move) -> None:
        """Take back the second name of a file that an undo put in its place, once that is durable."""
        status = _lstat(self._old, _slot(move)) if move.do == "take" else None
        if status is None:
            return
        try:
            parent, name = open_parent_below(self._root, paths.raw(move.path))
        except OSError as error:
            if error.errno in _LED_ASTRAY:
                return
            raise
        try:
            if _same(status, _lstat(parent, name)):
                self._ops.unlink(self._old, _slot(move))
        finally:
            os.close(parent)

    def _rescue(self, move: Move) -> None:
        """Keep an old file that cannot go back to its place: the directory of the restore is then not removed."""
        if _lstat(self._old, _slot(move)) is not None:
            self.left.append(move.path)

    def _put(self, move: Move, parent: int, name: bytes) -> None:
        status = _lstat(self._new, _slot(move))
        if self._is_placed(move, status, parent, name):
            return
        if status is None:
            raise MovedPath(move.path, "is gone")
        self._check(move)
        try:
            self._ops.place(self._new, _slot(move), parent, name)
        except FileExistsError as error:
            raise MovedPath(move.path, "was created since the plan was made") from error

    def _undo_put(self, move: Move, parent: int, name: bytes) -> None:
        if self._is_placed(move, _lstat(self._new, _slot(move)), parent, name):
            self._set_aside(move, parent, name)
        self._settle(move)

    def _is_placed(self, move: Move, staged: os.stat_result | None, parent: int, name: bytes) -> bool:
        """Tell whether what is at a put's path is what was staged; in a copied directory it is another file."""
        there = _lstat(parent, name)
        if there is None or staged is None or _same(there, staged):
            return there is not None
        return self._is_resumed and on_disk(parent, name) == move.expect

    def _set_aside(self, move: Move, parent: int, name: bytes) -> None:
        """Move what we placed to a name of its own in `old/`, where nobody changes it while it is looked at."""
        number = 0
        while (there := _lstat(self._old, _aside(move, number))) is not None:
            if _same(there, _lstat(parent, name)):
                self._ops.unlink(parent, name)  # a second name of the same file: a rename would do nothing
                return
            number += 1
        self._ops.rename(parent, name, self._old, _aside(move, number))

    def _settle(self, move: Move) -> None:
        """Drop what was set aside if it is what we placed; what others made of it since is kept and rescued."""
        number = 0
        while _lstat(self._old, _aside(move, number)) is not None:
            number += 1
        for aside in (_aside(move, index) for index in reversed(range(number))):
            if _content(self._old, aside) != move.expect:
                self.left.append(move.path)
            elif _lstat(self._new, _slot(move)) is None:
                self._ops.rename(self._old, aside, self._new, _slot(move))
            else:
                self._ops.unlink(self._old, aside)

    def _tree(self, move: Move, parent: int, name: bytes) -> None:
        status, there = _lstat(self._new, _slot(move)), _lstat(parent, name)
        if status is None and there is not None:
            return
        if there is not None or status is None:
            raise MovedPath(move.path, "was created since the plan was made" if there else "is gone")
        self._check(move)
        self._ops.rename(self._new, _slot(move), parent, name)

    def _check(self, move: Move) -> None:
        """Refuse what another process staged if it is not what the journal says."""
        if self._is_resumed and _content(self._new, _slot(move)) != move.expect:
            raise MovedPath(move.path, "was changed while it was staged")

    def _undo_tree(self, move: Move, parent: int, name: bytes) -> None:
        there = _lstat(parent, name)
        if there is not None and modes.S_ISDIR(there.st_mode) and _lstat(self._new, _slot(move)) is None:
            self._set_aside(move, parent, name)
        self._settle(move)

    def _mkdir(self, move: Move, parent: int, name: bytes) -> None:
        try:
            self._ops.mkdir(parent, name, 0o700)
        except FileExistsError as error:
            status = _lstat(parent, name)
            if status is None or not modes.S_ISDIR(status.st_mode):
                raise MovedPath(move.path, "was created since the plan was made") from error

    def _undo_mkdir(self, move: Move, parent: int, name: bytes) -> None:
        del move
        _try(lambda: self._ops.rmdir(parent, name))

    def _rmdir(self, move: Move, parent: int, name: bytes) -> None:
        try:
            self._ops.rmdir(parent, name)
        except (FileNotFoundError, NotADirectoryError):
            return  # done before a kill; a file that takes its place may be there already
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.left.append(move.path)  # it holds what is not captured

    def _undo_rmdir(self, move: Move, parent: int, name: bytes) -> None:
        if _lstat(parent, name) is None:
            self._ops.mkdir(parent, name, 0o700)
            self._ops.chmod_directory(parent, name, move.was)

    def _chmod(self, move: Move, parent: int, name: bytes) -> None:
        try:
            self._ops.chmod_directory(parent, name, move.mode)
        except OSError as error:
            if error.errno in _LED_ASTRAY:
                raise MovedPath(move.path, "is not a directory any more") from error
            raise

    def _undo_chmod(self, move: Move, parent: int, name: bytes) -> None:
        _try(lambda: self._ops.chmod_directory(parent, name, move.was))


def _slot(move: Move) -> bytes:
    return b"%d" % move.slot


def _aside(move: Move, number: int) -> bytes:
    return b"%d.placed-%d" % (move.slot, number)


def _lstat(directory: int, name: bytes) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return None


def _key(directory: int, name: bytes) -> tuple[int, ...] | None:
    status = _lstat(directory, name)
    return None if status is None else KEY(status)


def _same(one: os.stat_result | None, two: os.stat_result | None) -> bool:
    return one is not None and two is not None and (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


def _content(directory: int, name: bytes) -> State:
    """Return what is at a name; of a directory its mode does not count, but everything below it does."""
    state = on_disk(directory, name)
    if state.kind != "directory":
        return state
    try:
        return tree_state(_below(directory, name))
    except OSError:
        return OTHER  # not to be read, so not to be taken for ours


def _below(directory: int, name: bytes) -> Iterator[tuple[bytes, State]]:
    """Yield the paths and states of everything below a directory."""
    top = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    try:
        waiting = [b""]
        while waiting:
            path = waiting.pop()
            handle = open_below(top, path)
            try:
                for child in map(os.fsencode, os.listdir(handle)):  # noqa: PTH208 - a descriptor
                    state = on_disk(handle, child)
                    yield paths.join(path, child), state
                    if state.kind == "directory":
                        waiting.append(paths.join(path, child))
            finally:
                os.close(handle)
    finally:
        os.close(top)


def _try(action: Callable[[], None]) -> None:
    try:
        action()
    except OSError:
        return  # another's hand was there first: it stays as it is
