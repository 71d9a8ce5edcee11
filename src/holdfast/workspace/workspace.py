"""Workspace: captures one directory again and again, remembering enough to read only what changed."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.workspace import cache
from holdfast.workspace.contents import NotCaptured
from holdfast.workspace.descriptors import OPEN_DIRECTORY
from holdfast.workspace.known_directory import changed_directories, missing, stored_part
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.repositories import Remembered, Repositories
from holdfast.workspace.rules import IgnoreRules
from holdfast.workspace.scan import Scan
from holdfast.workspace.sink import Sink
from holdfast.workspace.snapshot import Snapshot
from holdfast.workspace.stamps import stamps_of
from holdfast.workspace.tree import DiskTree, Scratch, ScratchReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.encode.chunks import ChunkReader
    from holdfast.workspace.known_directory import Known
    from holdfast.workspace.sink import SinkWriter
    from holdfast.workspace.skips import Skips
    from holdfast.workspace.stamps import Stamp

_KEPT = 4  # captures remembered: the last ones, so that a commit that failed does not cost a full read


@dataclass(frozen=True, slots=True)
class _Memory:
    known: Known
    repositories: Remembered


class Workspace:
    """One directory to capture; refuses `/`, a home directory and another user's tree."""

    def __init__(self, root: str | os.PathLike[str], options: WorkspaceOptions | None = None) -> None:
        self.options = options or WorkspaceOptions()
        self.root = checked_root(root, self.options)
        self._memory: dict[bytes, _Memory] = {}
        self._looked: tuple[bytes, frozenset[bytes]] | None = None
        self.tracked_store: str | None = None
        """A file of our own store that git tracks, once a capture has seen it."""

    def capture(
        self,
        writer: SinkWriter,
        previous: Snapshot | None = None,
        *,
        progress: Callable[[int, int, str], None] | None = None,
        only: frozenset[bytes] | None = None,
    ) -> Snapshot:
        """Put what changed since `previous` into the writer and return the snapshot.

        `previous` must be in the store that the writer's commit goes to: what it holds is referred to, not written
        again. Without it, or when this object did not make or load it, everything is read. With `only`, the caller
        knows that nothing changed but in these directories, each with those above it: no other is looked at.
        """
        memory = self._memory.get(previous.digest) if previous is not None else None
        sink = Sink(writer)
        remembered = memory.repositories if memory else Remembered()
        stored = previous.positions if previous is not None else ()
        repositories = Repositories(self.root, self.options, remembered, stored)
        handle = open_root(self.root)
        try:
            known, scan, top = self._scan(
                handle,
                sink,
                repositories,
                memory.known if memory else None,
                progress=progress,
                only=only if memory else None,
            )
        finally:
            os.close(handle)
        positions = repositories.positions(scan.repositories, top, scan.touched, sink)
        snapshot = Snapshot(known.ref, known.files, known.directories, known.size_bytes, known.skips, tuple(positions))
        self._remember(snapshot, _Memory(known, repositories.now))
        self.tracked_store = self.tracked_store or repositories.tracked_store
        return snapshot

    def look(self, reader: ChunkReader, last: Snapshot | None = None) -> tuple[DiskTree, Skips]:
        """Return the directory as it is now, to compare with stored trees; nothing is written anywhere.

        `last` is the newest snapshot in the store: what it holds is not read again.
        """
        memory = self._memory.get(last.digest) if last is not None else None
        scratch = Scratch()
        repositories = Repositories(self.root, self.options, memory.repositories if memory else Remembered())
        handle = open_root(self.root)
        try:
            known, _, _ = self._scan(handle, Sink(scratch), repositories, memory.known if memory else None)
        finally:
            os.close(handle)
        if last is not None:
            if memory is None:
                part, changed = stored_part(known, last.root, reader)
                self._remember(last, _Memory(part, Remembered()))
            else:
                changed = list(changed_directories(memory.known, known))
            self._looked = last.digest, frozenset(changed)
        return DiskTree(self.root, ScratchReader(scratch, reader), known.ref), known.skips

    def changed_since(self, last: Snapshot) -> frozenset[bytes] | None:
        """Return the directories that the newest look found otherwise than `last` has them; None if it looked not."""
        return self._looked[1] if self._looked is not None and self._looked[0] == last.digest else None

    def missing(self, snapshot: Snapshot) -> list[bytes]:
        """Return what of a snapshot is not there any more, a directory without what was in it; nothing is read."""
        memory = self._memory.get(snapshot.digest)
        return list(missing(memory.known, os.fsencode(self.root))) if memory is not None else []

    def is_known(self, snapshot: Snapshot) -> bool:
        """Tell whether this object knows what a snapshot was made from."""
        return snapshot.digest in self._memory

    def dump_cache(self, snapshot: Snapshot) -> bytes:
        """Return what a new process needs to capture after `snapshot` as fast as this one; empty if it is not known."""
        memory = self._memory.get(snapshot.digest)
        return cache.dump(memory.known, snapshot.digest) if memory else b""

    def is_as(self, snapshot: Snapshot) -> bool:
        """Tell whether files and repositories are as a snapshot has them; nothing is written anywhere."""
        return self.capture(Scratch(), snapshot).digest == snapshot.digest

    def stamps(self, snapshot: Snapshot) -> list[Stamp] | None:
        """Return what `stat` says while the files are as in a snapshot; None if it is not known, or does not tell."""
        memory = self._memory.get(snapshot.digest)
        return stamps_of(memory.known) if memory is not None else None

    def load_cache(self, blob: bytes, snapshot: Snapshot) -> bool:
        """Take over a blob of `dump_cache` for this snapshot; False, and nothing taken, unless it is sound and fits."""
        loaded = cache.load(blob)
        if loaded is None or loaded[1] != snapshot.digest or loaded[0].ref != snapshot.root:
            return False
        self._remember(snapshot, _Memory(loaded[0], Remembered()))
        return True

    def _remember(self, snapshot: Snapshot, memory: _Memory) -> None:
        digest = snapshot.digest
        self._memory.pop(digest, None)
        self._memory[digest] = memory
        while len(self._memory) > _KEPT:
            del self._memory[next(iter(self._memory))]

    def _scan(
        self,
        handle: int,
        sink: Sink,
        repositories: Repositories,
        known: Known | None,
        *,
        progress: Callable[[int, int, str], None] | None = None,
        only: frozenset[bytes] | None = None,
    ) -> tuple[Known, Scan, str | None]:
        touched: list[bytes] = []
        while True:
            rules, top = IgnoreRules.of(self.options), None
            if self.options.use_git or self.options.use_gitignore:
                rules, top = repositories.start(rules)
            scan = Scan(sink, self.options, enter_repository=repositories.enter, progress=progress, only=only)
            try:
                known = scan.directory(handle, b"", known, rules)
            except NotCaptured as reason:
                raise UsageError(f"workspace {self.root!r} {reason}: try again when it is at rest") from reason
            except OSError as error:
                said = os.strerror(error.errno or 0)
                raise UsageError(f"workspace {self.root!r} cannot be read: {said}; put that right") from error
            scan.touched[:0] = touched
            if not repositories.stale(scan.ignore_digest):
                return known, scan, top
            touched = scan.touched


def checked_root(root: str | os.PathLike[str], options: WorkspaceOptions) -> str:
    """Return the real path of a workspace; UsageError unless it is a directory that is ours to capture."""
    given = os.fspath(root)
    real = os.path.realpath(given)
    if not os.path.isdir(real):  # noqa: PTH112
        what = "is not a directory" if os.path.lexists(given) else "does not exist"
        raise UsageError(f"workspace {given!r} {what}: name the directory that the run works in")
    homes = {os.path.realpath(os.path.expanduser("~")), os.path.realpath(_home())}  # noqa: PTH111
    if not options.allow_home:
        for home in {"/", *homes}:
            if home == real or (home != "/" and home.startswith(real.rstrip("/") + "/")):
                raise UsageError(f"workspace {real!r} is or holds {home!r}: name the project's own directory")
    try:
        owner = os.stat(real).st_uid  # noqa: PTH116
    except OSError as error:
        raise UsageError(f"workspace {given!r} cannot be looked at: {os.strerror(error.errno or 0)}") from error
    if owner != os.geteuid() and not options.allow_foreign_owner:
        raise UsageError(
            f"workspace {real!r} belongs to user {owner}, not to user {os.geteuid()} who runs this: "
            "set allow_foreign_owner to capture it all the same"
        )
    return real


def open_root(root: str) -> int:
    """Open a workspace; UsageError says why it cannot be."""
    try:
        return os.open(root, OPEN_DIRECTORY)
    except OSError as error:
        raise UsageError(f"workspace {root!r} cannot be opened: {os.strerror(error.errno or 0)}") from error


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"
