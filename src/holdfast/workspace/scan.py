"""Walks a directory by descriptors into a tree of chunks; what did not change since the last scan costs one `stat`."""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.errors import LimitExceeded
from holdfast.workspace import paths
from holdfast.workspace.contents import KEY, NotCaptured, read_file, stamp
from holdfast.workspace.descriptors import OPEN_DIRECTORY, read_below
from holdfast.workspace.directory import FILE, LINK, Entry, encode
from holdfast.workspace.known_directory import DirectoryDraft, Known, Outcome
from holdfast.workspace.rules import IGNORE_FILES, MAX_IGNORE_BYTES, IgnoreRules
from holdfast.workspace.skips import NO_SKIPS, Skip, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.workspace.options import WorkspaceOptions
    from holdfast.workspace.sink import Sink

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_TRIES = 3


class _ListAgain(Exception):
    """The directory is not what it was when it was listed."""


class Scan:
    """One walk; `touched` lists the paths whose entry differs from the last scan, `repositories` where a .git lies."""

    def __init__(
        self,
        sink: Sink,
        options: WorkspaceOptions,
        *,
        enter_repository: Callable[[bytes, IgnoreRules], IgnoreRules],
        progress: Callable[[int, int, str], None] | None = None,
        only: frozenset[bytes] | None = None,
    ) -> None:
        self.touched: list[bytes] = []
        self.repositories: list[bytes] = []
        self.files = 0
        self.directories = 0
        self.bytes = 0
        self.read_bytes = 0
        self.ignore_digest: list[bytes] = []
        self._sink = sink
        self._options = options
        self._ignore_files = None if options.ignore_files is None else dict(options.ignore_files)
        self._enter_repository = enter_repository
        self._progress = progress
        self._only = only
        self._never = frozenset(paths.raw(path) for path in (*options.store_paths, *options.secret_paths))

    def directory(self, handle: int, path: bytes, known: Known | None, rules: IgnoreRules, depth: int = 0) -> Known:
        """Return what an open directory holds; the very same object when nothing in it changed."""
        mark = self._mark()
        if known is not None and known.is_plain and known.token == rules.token:
            try:
                found = self._as_known(handle, path, known, rules, depth)
            except _ListAgain:
                found = None
            if found is not None:
                return found
            self._back_to(mark)
        for _ in range(_TRIES):
            try:
                return self._capture(handle, path, known, rules, depth)
            except _ListAgain:
                self._back_to(mark)
                known = known.unlisted() if known is not None else None
        raise NotCaptured("changed while it was read")

    def _is_passed_over(self, path: bytes, known: Known, rules: IgnoreRules) -> bool:
        """Tell whether a directory need not be looked at: not one with rules or repositories of its own below."""
        return self._only is not None and path not in self._only and known.is_bare and known.token == rules.token

    def _as_known(self, handle: int, path: bytes, known: Known, rules: IgnoreRules, depth: int) -> Known | None:
        """Return what a directory holds if its own names and files are as they were, else None.

        This is the way of almost every directory in almost every scan, so it does nothing that it need not.
        """
        lstat = os.lstat
        if KEY(os.fstat(handle)) != known.key:
            return None
        try:
            # `stamp` of each file, written out: this line is half the time of a scan.
            stamps = [((s := lstat(name, dir_fd=handle)).st_size << 64) + s.st_ctime_ns for name in known.names]
            if stamps != known.stamps:
                return None
        except OSError:
            return None
        self._count(known.own_files, known.own_bytes, path)
        children: dict[bytes, Known | str] | None = None
        for name, old in known.children.items():
            child = self._child(handle, path, name, old, rules, depth)
            if child is not old:
                children = children or dict(known.children)
                children[name] = child
        if children is None:
            return known
        return self._put(path, replace(DirectoryDraft.of(known), children=children), known)

    def _capture(self, handle: int, path: bytes, known: Known | None, rules: IgnoreRules, depth: int) -> Known:
        """Return what a directory holds: its names listed if need be, its changed files read."""
        began = time.time_ns()
        status = os.fstat(handle)
        key = KEY(status)
        if known is not None and known.key == key and known.token == rules.token:
            draft = DirectoryDraft.of(known)
            inside = self._inside(handle, path, draft, rules)
        else:
            draft, inside = self._list(handle, path, rules)
            draft.key = None if self._is_young(status, began) else key
            draft.mode, draft.token = status.st_mode & 0o777, rules.token
        if draft.has_git:
            self.repositories.append(path)
        draft.stamps, draft.entries, draft.pieces = self._files(handle, path, draft.names, known, began)
        self._count(*draft.own_totals(), path)
        old = known.children if known else {}
        draft.children = {
            name: self._child(handle, path, name, old.get(name), inside, depth) for name in draft.children
        }
        if known is None:
            return self._put(path, draft, known)
        if draft.same(known):
            return known
        gone = {*known.names, *known.children}.difference(draft.names, draft.children)
        self.touched.extend(paths.join(path, name) for name in gone)
        return self._put(path, draft, known)

    def _put(self, path: bytes, draft: DirectoryDraft, known: Known | None) -> Known:
        """Put the directory's node and return it as known."""
        below = [child for child in draft.children.values() if type(child) is Known]
        ref, nodes = encode(draft.captured(), self._sink, known.nodes if known else frozenset())
        own = [Skip(paths.join(path, name), reason) for name, reason in draft.reasons()]
        parts = [child.skips for child in below if child.skips]
        skips = gather(own, parts, self._options.max_listed) if own or parts else NO_SKIPS
        return Known(draft, ref, nodes, skips)

    def _mark(self) -> tuple[int, int, int, int, int]:
        return len(self.touched), len(self.repositories), self.files, self.directories, self.bytes

    def _back_to(self, mark: tuple[int, int, int, int, int]) -> None:
        """Forget what was counted since, because the directory is gone over again."""
        touched, repositories, self.files, self.directories, self.bytes = mark
        del self.touched[touched:], self.repositories[repositories:]

    def _count(self, files: int, size: int, path: bytes) -> None:
        self.directories += 1
        self.files += files
        self.bytes += size
        options = self._options
        if self.files > options.max_files:
            raise LimitExceeded(
                "ignore more of it in .holdfastignore or raise max_files", "files", self.files, options.max_files
            )
        if self.bytes > options.max_total_bytes:
            raise LimitExceeded(
                "ignore more of it in .holdfastignore or raise max_total_bytes",
                "bytes of a workspace",
                self.bytes,
                options.max_total_bytes,
            )
        if self._progress is not None:
            self._progress(self.files, self.bytes, paths.text(path))

    def _list(self, handle: int, path: bytes, rules: IgnoreRules) -> tuple[DirectoryDraft, IgnoreRules]:
        """List a directory and decide on each name."""
        found: list[tuple[bytes, bool, bool]] = []
        with os.scandir(handle) as items:
            for item in items:
                is_directory = item.is_dir(follow_symlinks=False)
                ordinary = is_directory or item.is_file(follow_symlinks=False) or item.is_symlink()
                found.append((os.fsencode(item.name), is_directory, ordinary))
        found.sort()
        present = {name for name, is_directory, _ in found if not is_directory}
        draft = DirectoryDraft(
            ignore_files=tuple(name for name in IGNORE_FILES if name in present),
            has_git=any(name == b".git" for name, _, _ in found),
        )
        inside = self._inside(handle, path, draft, rules)
        if path and b"pyvenv.cfg" in present and self._is_generated(path, inside):
            raise NotCaptured("generated (a virtual environment)")
        for name, is_directory, ordinary in found:
            below = paths.join(path, name)
            if name in paths.RESERVED or below in self._never:
                continue
            reason = inside.verdict(name, below, is_directory=is_directory) or _fault(name, ordinary=ordinary)
            if reason is not None:
                draft.left_out[name] = reason
            elif is_directory:
                draft.children[name] = ""
            else:
                draft.names.append(name)
        return draft, inside

    def _is_generated(self, path: bytes, rules: IgnoreRules) -> bool:
        if not self._options.generated or path in rules.tracked.directories:
            return False
        return not rules.include.verdict(path.rpartition(b"/")[2], path, is_directory=True)

    def _inside(self, handle: int, path: bytes, draft: DirectoryDraft, rules: IgnoreRules) -> IgnoreRules:
        """Return the rules for what is in a directory: its repository's and its own ignore files added."""
        if draft.has_git and path:
            rules = self._enter_repository(path, rules)
        if self._ignore_files is not None:
            contents = {name: self._ignore_files.get(paths.text(paths.join(path, name))) for name in IGNORE_FILES}
        else:
            contents = {name: read_below(handle, name, MAX_IGNORE_BYTES) for name in draft.ignore_files}
        if not any(content is not None for content in contents.values()):
            return rules
        inside = rules.enter(path, contents.get(b".gitignore"), contents.get(b".holdfastignore"))
        self.ignore_digest.append(inside.token)
        return inside

    def _files(
        self, handle: int, path: bytes, names: list[bytes], known: Known | None, began: int
    ) -> tuple[list[int | None], list[Outcome], dict[bytes, tuple[bytes, ...]]]:
        """Read what changed among the files and links of a directory."""
        old: dict[bytes, tuple[int | None, Outcome]] = {}
        if known is not None:
            old = dict(zip(known.names, zip(known.stamps, known.entries, strict=True), strict=True))
        stamps: list[int | None] = []
        entries: list[Outcome] = []
        pieces: dict[bytes, tuple[bytes, ...]] = {}
        for name in names:
            mark, before = old.get(name, (None, None))
            cuts = known.pieces.get(name, ()) if known else ()
            if before is None or mark is None or not _is_same(handle, name, mark, before):
                status, entry, cuts = self._file(handle, name, before, cuts)
                mark = None if status is None or self._is_young(status, began) else stamp(status)
                if entry != before:
                    self.touched.append(paths.join(path, name))
            else:
                entry = before
            if cuts:
                pieces[name] = cuts
            stamps.append(mark)
            entries.append(entry)
        return stamps, entries, pieces

    def _is_young(self, status: os.stat_result, began: int) -> bool:
        """Return whether a change after this moment could leave the same stamp."""
        return max(status.st_ctime_ns, status.st_mtime_ns) >= began - self._options.racy_ns

    def _file(
        self, handle: int, name: bytes, old: Outcome | None, pieces: tuple[bytes, ...]
    ) -> tuple[os.stat_result | None, Outcome, tuple[bytes, ...]]:
        """Capture one file or link."""
        known = frozenset(pieces)
        if type(old) is Entry and old.ref is not None:
            known |= {old.ref.id}
        try:
            ref, status, cuts = read_file(handle, name, self._sink, limit=self._options.max_file_bytes, known=known)
        except NotCaptured as error:
            return _status(handle, name), str(error), ()
        except OSError as error:
            if error.errno == errno.ELOOP:
                return self._link(handle, name)
            if error.errno in _GONE:
                raise _ListAgain from error
            return _status(handle, name), f"unreadable: {os.strerror(error.errno or 0)}", ()
        self.read_bytes += status.st_size
        return status, Entry(name, FILE, status.st_mode & 0o777, ref, b"", status.st_mtime_ns), cuts

    def _link(self, handle: int, name: bytes) -> tuple[os.stat_result, Outcome, tuple[bytes, ...]]:
        try:
            before = os.lstat(name, dir_fd=handle)
            target = os.readlink(name, dir_fd=handle)
            if KEY(os.lstat(name, dir_fd=handle)) != KEY(before) or not modes.S_ISLNK(before.st_mode):
                raise _ListAgain
        except OSError as error:
            raise _ListAgain from error
        return before, Entry(name, LINK, 0, None, target), ()

    def _child(  # noqa: PLR0917
        self, handle: int, path: bytes, name: bytes, old: Known | str | None, rules: IgnoreRules, depth: int
    ) -> Known | str:
        """Capture one directory below; a reason when it cannot be."""
        below = paths.join(path, name)
        if depth >= self._options.max_depth:
            return f"deeper than {self._options.max_depth} directories"
        if rules.tracked.directories or rules.above:
            rules = rules.below(name, below)
        if type(old) is Known and self._is_passed_over(below, old, rules):
            self.directories += old.directories - 1
            self._count(old.files, old.size_bytes, below)
            return old
        try:
            child = os.open(name, OPEN_DIRECTORY, dir_fd=handle)
        except OSError as error:
            if error.errno in _GONE:
                raise _ListAgain from error
            return _kept(old, f"unreadable: {os.strerror(error.errno or 0)}")
        try:
            return self.directory(child, below, old if type(old) is Known else None, rules, depth + 1)
        except NotCaptured as reason:
            return _kept(old, str(reason))
        except OSError as error:
            return _kept(old, f"unreadable: {os.strerror(error.errno or 0)}")
        finally:
            os.close(child)


def _is_same(handle: int, name: bytes, mark: int, before: Outcome) -> bool:
    """Return whether a file is as it was captured."""
    try:
        status = os.lstat(name, dir_fd=handle)
    except OSError as error:
        raise _ListAgain from error
    if stamp(status) != mark:
        return False
    if type(before) is Entry and before.kind == FILE:
        return status.st_mtime_ns == before.mtime_ns and modes.S_IMODE(status.st_mode) & 0o777 == before.mode
    return True


def _status(handle: int, name: bytes) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=handle)
    except OSError:
        return None


def _kept(old: Known | str | None, reason: str) -> str:
    """Return the old reason itself when it is the same, so that an unchanged directory is seen as such."""
    return old if type(old) is str and old == reason else reason


def _fault(name: bytes, *, ordinary: bool) -> str | None:
    if not ordinary:
        return "special file"
    problem = paths.fault(name)
    return f"its name {problem}" if problem else None
