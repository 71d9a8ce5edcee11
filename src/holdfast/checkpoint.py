"""A stored checkpoint, open for reading."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.capture.sections import typed
from holdfast.encode.section import decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, IntegrityError, NotFound, SectionInvalid, UsageError
from holdfast.model.sections import WORKSPACE
from holdfast.runtime.log import segment_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import CheckpointRecord, SectionRecord, Status, Summary
    from holdfast.model.recovery import RecoveryInfo
    from holdfast.model.redaction import Redaction
    from holdfast.workspace.captured import CapturedFiles
    from holdfast.workspace.compare import Change
    from holdfast.workspace.diff import FileDiff
    from holdfast.workspace.position import GitPosition
    from holdfast.workspace.skips import Skips
    from holdfast.workspace.snapshot import Snapshot
    from holdfast.workspace.tree import FileRecord


class Checkpoint:
    """One checkpoint: its record at hand, its sections decoded when asked for, every byte verified."""

    saved = True

    def __init__(
        self,
        record: CheckpointRecord,
        packer: Packer,
        reader: ChunkReader,
        *,
        max_section_bytes: int,
        get: Callable[[str], Checkpoint],
        skipped: Sequence[IntegrityError] = (),
    ) -> None:
        self.record = record
        self._get = get
        self._packer = packer
        self._reader = reader
        self._max_section_bytes = max_section_bytes
        self.skipped = tuple(skipped)
        """Damage that was passed over to find this one, newest first."""

    def section(self, name: str) -> Any:
        """Return one section as a value of its own; ChunkCorrupt names checkpoint and section if it is damaged."""
        if name == WORKSPACE:
            return self.workspace
        record = self._section_record(name)
        root = Ref(record.kind, record.size, record.root)
        try:
            with self._named(name):
                value = decode_section(
                    f"section {name}", root, self._packer, self._reader, max_bytes=self._max_section_bytes
                )
        except ChunkCorrupt:
            raise
        except IntegrityError as error:
            raise CheckpointCorrupt(error.detail, self.id) from error
        try:
            return typed(name, value)
        except SectionInvalid as error:
            raise CheckpointCorrupt(f"{error}, as this program knows it", self.id) from error

    def log(self, name: str) -> list[Any]:
        """Return all records of a log, which may lie in several sections; none if it has none."""
        return [record for section in segment_names(name, self.sections) for record in self.section(section)]

    def section_size(self, name: str) -> int:
        """Return the plain size of one section in bytes."""
        return self._section_record(name).size

    @property
    def workspace(self) -> Snapshot:
        """The captured directory: counts, git positions, and what was not captured and why."""
        return self._files.snapshot

    @property
    def git(self) -> GitPosition:
        """Where the workspace's repository stood; its head is "none" without one."""
        return self._files.snapshot.git

    @property
    def not_captured(self) -> Skips:
        """What is not in this checkpoint of the workspace, and why."""
        return self._files.snapshot.skips

    def files(self) -> list[FileRecord]:
        """Return every captured path, with size, mode and hash."""
        with self._named(WORKSPACE):
            return self._files.records()

    def read(self, path: str) -> bytes:
        """Return the bytes of one captured file."""
        with self._named(WORKSPACE):
            return self._files.read(path)

    def changes(self, since: Checkpoint | None = None) -> list[Change]:
        """Return what became of the files since another checkpoint, by default the parent."""
        with self._named(WORKSPACE):
            return self._files.changes(self._before(since))

    def diff(self, since: Checkpoint | None = None) -> list[FileDiff]:
        """Return the same as unified diffs; `holdfast.workspace.diff.summary` makes a summary of them."""
        with self._named(WORKSPACE):
            return self._files.diff(self._before(since))

    @property
    def _files(self) -> CapturedFiles:
        from holdfast.workspace.captured import CapturedFiles  # noqa: PLC0415 - only runs with files pay for loading it

        record = self._section_record(WORKSPACE)
        with self._named(WORKSPACE):
            return CapturedFiles.load(self._reader, Ref(record.kind, record.size, record.root))

    def _before(self, since: Checkpoint | None) -> Snapshot | None:
        if since is None and self.parent is not None:
            since = self._get(self.parent)
        return since.workspace if since is not None and WORKSPACE in since.sections else None

    @contextmanager
    def _named(self, section: str) -> Iterator[None]:
        """Add to damage which checkpoint and section it is in."""
        try:
            yield
        except ChunkCorrupt as error:
            raise ChunkCorrupt(error.detail, error.chunk, self.id, section) from error

    def _section_record(self, name: str) -> SectionRecord:
        for record in self.record.envelope.sections:
            if record.name == name:
                return record
        raise NotFound(f"section in checkpoint {self.id} named", name)

    @property
    def id(self) -> str:
        """The id, unique over all stores."""
        return self.record.envelope.id

    @property
    def run(self) -> str:
        """The run that it is of."""
        return self.record.envelope.run

    @property
    def seq(self) -> int:
        """The number within its run: this, not the time, is the order."""
        return self.record.envelope.seq

    @property
    def parent(self) -> str | None:
        """The checkpoint that it was taken on."""
        return self.record.envelope.parent

    @property
    def trigger(self) -> str:
        """What caused it."""
        return self.record.envelope.trigger

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.record.envelope.reason

    @property
    def created_at(self) -> datetime:
        """When, in UTC."""
        return self.record.envelope.created_at

    @property
    def status(self) -> Status:
        """How it stands now."""
        return self.record.marks.status

    @property
    def label(self) -> str | None:
        """A name that a person gave it."""
        return self.record.marks.label

    @property
    def pinned(self) -> bool:
        """Whether it is kept whatever the retention says."""
        return self.record.marks.pinned

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of its sections."""
        return tuple(record.name for record in self.record.envelope.sections)

    @property
    def recovery(self) -> RecoveryInfo:
        """Whether and where the run can go on from it."""
        return self.record.envelope.recovery

    @property
    def summary(self) -> Summary:
        """What a list shows of it."""
        return self.record.envelope.summary

    @property
    def redacted(self) -> tuple[Redaction, ...]:
        """What was kept out, by path and rule; of each section the first hundred."""
        return tuple(one for record in self.record.envelope.sections for one in record.redacted)

    @property
    def redacted_count(self) -> int:
        """How many values were kept out."""
        return sum(record.redacted_count for record in self.record.envelope.sections)

    @property
    def size_bytes(self) -> int:
        """The plain size of all its sections."""
        return self.record.envelope.size_bytes

    @property
    def stored_bytes(self) -> int:
        """What it added to the store."""
        return self.record.envelope.stored_bytes

    @property
    def checksum(self) -> str:
        """The seal over its record and, through its parent's, over all before it."""
        return self.record.checksum.hex()

    def __repr__(self) -> str:
        return f"<Checkpoint {self.run}@{self.seq} {self.id} {self.trigger}>"


class NotSaved(Checkpoint):
    """What a disabled Holdfast returns instead of a checkpoint: `saved` is False, and reading anything says why."""

    saved = False

    def __init__(self) -> None:
        """Hold nothing."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError(f"there is no {name}: checkpointing is disabled, so nothing was saved")

    def __repr__(self) -> str:
        return "<NotSaved: checkpointing is disabled>"
