"""A run's workspace in its commits: what the last checkpoint knew of it, and a cache for the next process."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.encode.chunks import ChunkWriter
from holdfast.encode.documents import read_regular
from holdfast.encode.tree import Ref
from holdfast.errors import DocumentInvalid, IntegrityError
from holdfast.model.checkpoint import SectionRecord
from holdfast.model.sections import WORKSPACE
from holdfast.own_folder import write_whole
from holdfast.workspace import snapshot as snapshots
from holdfast.workspace.spill import SpillingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.compress import Compressor
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.workspace.snapshot import Snapshot
    from holdfast.workspace.stamps import Stamp
    from holdfast.workspace.workspace import Workspace

_log = logging.getLogger("holdfast")
_MAX_CACHE_BYTES = 256 * 1024 * 1024


class FileCapture:
    """Captures one workspace for one writer, at the cost of what changed since the head."""

    def __init__(
        self,
        workspace: Workspace,
        reader: ChunkReader,
        cache: Path,
        *,
        lock: Callable[[bytes], bytes] = bytes,
        unlock: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self.workspace = workspace
        self.progress: Callable[[int, int, str], None] | None = None
        self.reader = reader
        self._cache = cache
        self._lock = lock
        self._unlock = unlock
        self._known: Snapshot | None = None  # the last one that this process captured or has a cache for
        self._cached: bytes = b""
        self._only: tuple[bytes, frozenset[bytes]] | None = None  # since which snapshot, in which directories
        self._told: dict[str, str] = {}
        self._is_tracked_told = False
        self.before_entry: CheckpointRecord | None = None
        self.planned: dict[str, Snapshot] = {}  # by digest, of whole restores: their repositories follow the files

    def writer(self, head: CheckpointRecord | None, compressor: Compressor) -> ChunkWriter | SpillingWriter:
        """Return a writer for the next commit: one with bounded memory if everything has to be read."""
        return ChunkWriter(compressor) if self._previous(head) else SpillingWriter(compressor.quick())

    def capture(self, head: CheckpointRecord | None, writer: ChunkWriter | SpillingWriter) -> SectionRecord:
        """Put what changed since the head into the writer, and return the section."""
        previous = self._previous(head)
        only = self._only[1] if self._only is not None and previous and self._only[0] == previous.digest else None
        snapshot = self.workspace.capture(writer, previous, progress=self.progress, only=only)
        self._tell_of_git(snapshot)
        root = snapshots.store(writer, snapshot)
        self._known = snapshot  # if the commit fails the head has another one, and is loaded again
        return SectionRecord(WORKSPACE, root.kind, root.id, root.size)

    def _tell_of_git(self, snapshot: Snapshot) -> None:
        """Warn of what could not be captured of repositories: once, until it is something else."""
        problems = {one.path: one.problem for one in snapshot.positions if one.problem}
        for path, problem in problems.items():
            if self._told.get(path) != problem:
                _log.warning(
                    "git in %s is not captured, or not all of it: %s", repr(path) if path else "the workspace", problem
                )
        self._told = problems
        if self.workspace.tracked_store is not None and not self._is_tracked_told:
            self._is_tracked_told = True
            _log.warning(
                "git tracks the store (%s): a push publishes it, and `git reset --hard` or a checkout rolls the run "
                "back. `git rm -r -q --cached %s` takes it out of the next commit",
                self.workspace.tracked_store,
                self.workspace.tracked_store.rpartition("/")[0] or self.workspace.tracked_store,
            )

    def last(self, head: CheckpointRecord | None) -> Snapshot | None:
        """Return the head's snapshot, None if it has none."""
        record = _record(head)
        if record is None:
            return None
        if self._known is None or self._known.digest != record.root:
            return snapshots.load(self.reader, Ref(record.kind, record.size, record.root))
        return self._known

    def looked(self, head: CheckpointRecord | None) -> frozenset[bytes] | None:
        """Return the directories that the newest look found otherwise than the head has them; None if none looked."""
        known = self._previous(head)
        return self.workspace.changed_since(known) if known is not None else None

    @contextmanager
    def only_in(self, directories: frozenset[bytes] | None) -> Iterator[None]:
        """Let captures in this block go through these directories alone; the rest was looked at just now."""
        known = self._known
        self._only = (known.digest, directories) if known is not None and directories is not None else None
        try:
            yield
        finally:
            self._only = None

    def learn(self, other: FileCapture) -> None:
        """Take over what another capture of the same directory knows."""
        self.workspace, self._known, self._cached = other.workspace, other._known, other._cached

    def is_as(self, head: CheckpointRecord | None) -> bool:
        """Tell whether the directory is as the head has it."""
        known = self._previous(head)
        return known is not None and self.workspace.is_as(known)

    def stamps(self, head: CheckpointRecord | None) -> list[Stamp] | None:
        """Return what `stat` says while the directory is as the head has it; None if that is not known."""
        known = self._previous(head)
        return None if known is None else self.workspace.stamps(known)

    def is_at(self, record: CheckpointRecord) -> bool:
        """Tell whether a checkpoint has the files that this process captured last."""
        section = _record(record)
        return section is not None and self._known is not None and self._known.digest == section.root

    def missing(self) -> tuple[str, list[bytes]]:
        """Return which tree this process captured last, and what of it is not there any more."""
        known = self._known
        return (known.digest.hex(), self.workspace.missing(known)) if known is not None else ("", [])

    def remember(self, head: CheckpointRecord | None) -> None:
        """Learn from the cache what the head's snapshot was made from, so that a look reads only what changed."""
        self._previous(head)

    def save_cache(self) -> None:
        """Leave what this process knows to the next one; a cache that cannot be written is only missed."""
        blob = self.workspace.dump_cache(self._known) if self._known is not None else b""
        if not blob or self._known is None or self._known.digest == self._cached:
            return
        with suppress(OSError):
            write_whole(self._cache, self._lock(blob))
            self._cached = self._known.digest

    def _previous(self, head: CheckpointRecord | None) -> Snapshot | None:
        """Return the head's snapshot if this process, or the cache, knows what it was made from."""
        record = _record(head)
        if record is None:
            return None
        if self._known is None or self._known.digest != record.root:
            try:
                self._known = self._from_cache(self.last(head))
            except IntegrityError:
                self._known = None  # damaged: everything is read and stored again, which fixes it
        return self._known

    def _from_cache(self, snapshot: Snapshot | None) -> Snapshot | None:
        if snapshot is not None and self.workspace.is_known(snapshot):
            return snapshot
        try:
            blob = self._unlock(read_regular(self._cache, limit=_MAX_CACHE_BYTES))
        except (OSError, ValueError, DocumentInvalid):
            return None  # it is missing, too large, not a file, or not locked with this store's key
        if snapshot is None or not self.workspace.load_cache(blob, snapshot):
            return None
        self._cached = snapshot.digest
        return snapshot


def _record(head: CheckpointRecord | None) -> SectionRecord | None:
    sections = head.envelope.sections if head is not None else ()
    return next((record for record in sections if record.name == WORKSPACE), None)
