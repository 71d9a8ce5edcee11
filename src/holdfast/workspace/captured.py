"""The files of one checkpoint, open for reading and comparing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import NotFound
from holdfast.lazy import lazily
from holdfast.workspace import snapshot as snapshots

with lazily():  # what was captured is told without a look at one file
    from holdfast.workspace import compare, directory, tree
    from holdfast.workspace import diff as diffs

if TYPE_CHECKING:
    from typing import Self

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.tree import Ref
    from holdfast.workspace.compare import Change
    from holdfast.workspace.diff import FileDiff
    from holdfast.workspace.snapshot import Snapshot
    from holdfast.workspace.tree import FileRecord, StoredTree


class CapturedFiles:
    """A snapshot with the reader that its tree is read by."""

    def __init__(self, reader: ChunkReader, snapshot: Snapshot) -> None:
        self._reader = reader
        self.snapshot = snapshot

    @classmethod
    def load(cls, reader: ChunkReader, ref: Ref) -> Self:
        """Open a stored snapshot."""
        return cls(reader, snapshots.load(reader, ref))

    def records(self) -> list[FileRecord]:
        """Return every captured path."""
        return tree.files(self._reader, self.snapshot)

    def read(self, path: str) -> bytes:
        """Return the bytes of one file; NotFound if there is none."""
        entry = tree.find(self._reader, self.snapshot.root, path)
        if entry.kind != directory.FILE:
            raise NotFound("captured file", path)
        return b"".join(tree.pieces(self._reader, entry.ref))

    def changes(self, since: Snapshot | None) -> list[Change]:
        """Return what became of the files since an earlier snapshot; since None everything is new."""
        return compare.changes(*self._trees(since))

    def diff(self, since: Snapshot | None) -> list[FileDiff]:
        """Return the same as unified diffs."""
        old, new = self._trees(since)
        return [diffs.diff(change, old, new) for change in compare.changes(old, new)]

    def _trees(self, since: Snapshot | None) -> tuple[StoredTree, StoredTree]:
        old = since.root if since is not None else None
        return tree.StoredTree(self._reader, old), tree.StoredTree(self._reader, self.snapshot.root)
