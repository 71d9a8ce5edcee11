"""A stored checkpoint, open for reading; the head of a run with what its journal has since."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.delta import applied
from holdfast.capture.sections import typed
from holdfast.encode.section import decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, IntegrityError, NotFound, SectionInvalid, UsageError
from holdfast.journal.call_record import call_lines, decode_call, is_call, result_of, stored_path
from holdfast.journal.entry import body_of, changes_of, entries_of, notes_of
from holdfast.journal.outcomes import SHOWING, resolved
from holdfast.journal.run_log import LogItems, is_log_item
from holdfast.model.checkpoint import name_of
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.analyse import TELLING, analyse, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from holdfast.capture.delta import Delta
    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import CheckpointRecord, SectionRecord, Status, Summary
    from holdfast.model.recovery import RecoveryInfo
    from holdfast.model.redaction import Redaction
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow, Record
    from holdfast.workspace.captured import CapturedFiles
    from holdfast.workspace.compare import Change
    from holdfast.workspace.diff import FileDiff
    from holdfast.workspace.position import GitPosition
    from holdfast.workspace.skips import Skips
    from holdfast.workspace.snapshot import Snapshot
    from holdfast.workspace.tree import FileRecord

CALLS, NOTES = "steps", "journal"
"""The views of the run's calls and of what it noted, as sections."""


class Checkpoint:
    """One checkpoint: its record at hand, its sections decoded when asked for, every byte verified."""

    saved = True

    def __init__(
        self,
        record: CheckpointRecord,
        packer: Packer,
        reader: ChunkReader,
        store: Store,
        *,
        max_section_bytes: int,
        get: Callable[[str], Checkpoint],
        skipped: Sequence[IntegrityError] = (),
        since: Sequence[Record] = (),
        ranges: tuple[tuple[int, int], ...] | None = None,
        is_left: bool = False,
    ) -> None:
        """Hold a record; `since` are the journal's records after it, up to the end of `ranges`."""
        self.record = record
        self.is_left = is_left
        """Whether it is a position on a segment of the journal that the run went back from."""
        self.records_since = len(since)
        """How many records of the journal lead from the stored checkpoint to here."""
        self._entries = entries_of(since, store)
        self._calls_since = sum(map(is_call, since))
        self.ranges = record.ranges if ranges is None else ranges
        """The journal numbers that led here."""
        self._get = get
        self._packer = packer
        self._reader = reader
        self._store = store
        self._max_section_bytes = max_section_bytes
        self._results: dict[str, tuple[str, Any] | None] = {}
        self.skipped = tuple(skipped)
        """Damage that was passed over to find this one, newest first."""

    def section(self, name: str) -> Any:
        """Return one section as a value of its own; ChunkCorrupt names checkpoint and section if it is damaged."""
        if name == WORKSPACE:
            return self.workspace
        return self._typed(name, self.plain_section(name))

    def live_section(self, name: str) -> Any:
        """Return one section for the part of a run that it is of, which looks results up itself."""
        return self._typed(name, self.raw_section(name))

    def _typed(self, name: str, value: Any) -> Any:
        try:
            return typed(name, value)
        except SectionInvalid as error:
            raise CheckpointCorrupt(f"{error}, as this program knows it", self.id) from error

    @property
    def is_whole(self) -> bool:
        """Whether the journal tells all that happened after the stored checkpoint."""
        return all(entry.is_whole for entry in self._entries)

    @property
    def number(self) -> int:
        """The journal number that it stands at."""
        return self.ranges[-1][1] if self.ranges else 0

    @property
    def place(self) -> str:
        """What names it: RUN@7, or RUN#812 where records of the journal lead further than the checkpoint."""
        return f"{self.run}#{self.number}" if self.records_since else f"{self.run}@{self.seq}"

    @property
    def capture_note(self) -> str | None:
        """Where state, files and registered objects are from, in words; None at a checkpoint itself."""
        if not self.records_since and not self.is_left:
            return None
        records = "1 record" if self.records_since == 1 else f"{self.records_since:,} records"
        left = f"; {self.run} went back from there: it is on a segment that was left" if self.is_left else ""
        if not self.id:
            return f"{records} of the journal, and no checkpoint: without state, files and registered objects{left}"
        return f"state, files and registered objects are those of {self.run}@{self.seq}, {records} before{left}"

    @cached_property
    def _journaled(self) -> dict[str, Delta]:
        """What the journal changed about sections."""
        names = {change.section for entry in self._entries for change in entry.parts}
        return {name: changes_of(self._entries, name, self._packer) for name in names}

    def journaled_sections(self) -> dict[str, Any]:
        """Return the sections that the journal changed since the checkpoint was stored, as they are here."""
        return {name: self.raw_section(name) for name in self._journaled}

    def plain_section(self, name: str) -> Any:
        """Return one section as plain data, without its type; results of calls come from their records."""
        value = self.raw_section(name)
        return resolved(value, self._result) if name in SHOWING else value

    def _result(self, path: str, version: str) -> Any:
        """Return the result of a call as it was here."""
        if path not in self._results:
            line = self._line
            record = None if line is None else self._store.journal.newest(line, stored_path(path))
            self._results[path] = None
            if record is not None:
                call = decode_call(body_of(record, self._store), path)
                self._results[path] = call.version, result_of(call, path, self._packer, self._result)
        found = self._results[path]
        return found[1] if found is not None and found[0] == version else None

    def raw_section(self, name: str) -> Any:
        """Return one section as plain data as it is stored: what shows the result of a call is an Outcome."""
        if name == CALLS and self.summary.steps:
            return self.calls
        if name == NOTES:
            return self.notes
        changes = self._journaled.get(name)
        if not changes:
            return self._stored_section(name)
        is_stored = any(record.name == name for record in self.record.envelope.sections)
        before: Any = self._stored_section(name) if is_stored else None
        try:
            return applied(before, changes)
        except IntegrityError as error:
            raise CheckpointCorrupt(error.detail, self.id) from error

    def _stored_section(self, name: str) -> Any:
        record = self._section_record(name)
        root = Ref(record.kind, record.size, record.root)
        try:
            with self._named(name):
                return decode_section(
                    f"section {name}", root, self._packer, self._reader, max_bytes=self._max_section_bytes
                )
        except ChunkCorrupt:
            raise
        except IntegrityError as error:
            raise CheckpointCorrupt(error.detail, self.id) from error

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """Every record of a call up to here, oldest first: started, done, failed or skipped, with its result."""
        return call_lines(self._records(), self._store, self._packer, self._result)

    def all_calls(self) -> list[tuple[dict[str, Any], bool]]:
        """Return every record of a call that the run has, also where it went back, each with whether it counts here."""
        line = self._store.line(self.run) if self.ranges else None
        calls = [one for one in self._store.journal.records(line) if is_call(one)] if line is not None else []
        here = [any(low <= one.number <= high for low, high in self.ranges) for one in calls]
        return list(zip(call_lines(calls, self._store, self._packer), here, strict=True))

    @cached_property
    def notes(self) -> list[dict[str, Any]]:
        """What the run noted of itself up to here, oldest first: when, what kind, what."""
        return notes_of(entries_of(self._records(), self._store), self._packer)

    @cached_property
    def call_numbers(self) -> list[int]:
        """The journal numbers of the records of calls up to here."""
        return [record.number for record in self._records() if is_call(record)]

    def call_records(self) -> list[tuple[str, str, bytes]]:
        """Return the records of all calls up to here: kind, path and body."""
        return [(one.kind, one.path, body_of(one, self._store)) for one in self._records() if is_call(one)]

    def _records(self, after: int = 0) -> list[Record]:
        """Return every record of the journal up to here, from behind a number on."""
        line = self._line
        if line is None:
            return []
        ranges = [(max(low, after + 1), high) for low, high in self.ranges if high > after]
        return [one for low, high in ranges for one in self._store.journal.records(line, low=low, high=high)]

    def view_after(self, name: str, number: int) -> list[dict[str, Any]]:
        """Return what the view of calls, or of notes, has after a journal number, oldest first."""
        records = self._records(number)
        if name == CALLS:
            return call_lines(records, self._store, self._packer)
        return notes_of(entries_of(records, self._store), self._packer)

    def content_keys(self) -> dict[str, object]:
        """Return each section's name with what is equal only where its content is: its root, or the place of both."""
        here = (self.run, self.line, self.ranges)
        roots = {one.name: (one.kind, one.root, one.size) for one in self.record.envelope.sections}
        return {**roots, **{name: (here, roots.get(name)) for name in self._journaled}}

    def log(self, name: str) -> list[Any]:
        """Return all items of a log (`run.log(name)`) as they were here; of a run's own log, its records."""
        if name == CALLS:
            return self.calls if self.summary.steps else []
        if name == NOTES:
            return self.notes
        if self._line is None:
            return []
        return list(LogItems(self._store, self._packer, name, lambda: self._line))

    def log_records(self) -> list[tuple[str, str, bytes]]:
        """Return the records of all logs up to here: kind, path and body."""
        return [(one.kind, one.path, body_of(one, self._store)) for one in self._records() if is_log_item(one)]

    @property
    def _line(self) -> LineRow | None:
        """The line as it was here, None if it has no journal."""
        line = self._store.line(self.run, line=self.record.line) if self.ranges else None
        return None if line is None else msgspec.structs.replace(line, ranges=self.ranges, number=self.number)

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
        return self._files.snapshot.not_captured

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
    def readable_id(self) -> str:
        """A name for people: phase or trigger, time and short digits; hf.get, hf.find and every command take it."""
        return name_of(self.record.envelope) if self.id else self.place

    @property
    def run(self) -> str:
        """The run that it is of."""
        return self.record.envelope.run

    @property
    def line(self) -> str:
        """The line of the run that it is on: `main`, or one of a sub-agent, a namespace or a branch."""
        return self.record.line

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
    def key(self) -> str | None:
        """The key that its caller gave it."""
        return self.record.key

    @property
    def attributes(self) -> dict[str, str | int | float | bool | None]:
        """The attributes that its caller gave it."""
        return dict(self.record.attributes)

    @property
    def pinned(self) -> bool:
        """Whether it is kept whatever the retention says."""
        return self.record.marks.pinned

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of its sections."""
        stored = tuple(record.name for record in self.record.envelope.sections)
        views = (CALLS,) if self.summary.steps else ()
        return (*stored, *sorted(self._journaled.keys() - set(stored)), *views)

    @property
    def recovery(self) -> RecoveryInfo:
        """Whether and where the run can continue from it."""
        return analyse(self._telling) if self._entries else self.record.envelope.recovery

    @property
    def summary(self) -> Summary:
        """What a list shows of it."""
        stored = self.record.envelope.summary
        if self._entries:
            phase = next((entry.phase for entry in reversed(self._entries) if entry.phase is not None), stored.phase)
            now = summarise(self._telling)
            stored = msgspec.structs.replace(now, phase=now.phase or phase, steps=stored.steps)
        return msgspec.structs.replace(stored, steps=stored.steps + self._calls_since) if self._calls_since else stored

    @cached_property
    def _telling(self) -> dict[str, Any]:
        there = {*(record.name for record in self.record.envelope.sections), *self._journaled}
        return {name: self.section(name) for name in TELLING if name in there}

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
        return f"<Checkpoint {self.place} {self.id} {self.trigger}>"


class NotSaved(Checkpoint):
    """What a disabled Holdfast returns instead of a checkpoint: false, with an empty id and no sections."""

    saved = False
    id = ""
    run = ""
    trigger = ""
    reason = ""
    seq = 0
    sections = ()

    def __init__(self, run: str, trigger: str, reason: str) -> None:
        """Hold what it would have been taken for."""
        self.run, self.trigger, self.reason = run, trigger, reason

    def __bool__(self) -> bool:
        return False

    def section(self, name: str) -> Any:
        """Raise UsageError: nothing was saved."""
        return getattr(self, f"section {name}")

    def __getattr__(self, name: str) -> Any:
        raise UsageError(f"there is no {name}: checkpointing is disabled, so nothing was saved")

    def __repr__(self) -> str:
        return "<NotSaved: checkpointing is disabled>"
