"""What the packages of Holdfast itself use of an open store; users hold `Holdfast` and `Run`.

It makes what a run needs (writer, watch, lease, services), opens records as checkpoints that can be read, finds the
newest sound one, and keeps the readable mirror. No promise is made about any of its names.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakSet

import msgspec

from holdfast.capture.markers import register_markers
from holdfast.capture.marks import checked_marks
from holdfast.checkpoint import Checkpoint
from holdfast.encode.chunks import ChunkReader
from holdfast.encode.compress import Compressor
from holdfast.encode.footprint import check_footprint
from holdfast.encode.values import Packer
from holdfast.errors import (
    CheckpointCorrupt,
    ChunkCorrupt,
    Conflict,
    HoldfastError,
    IntegrityError,
    NotFound,
    RunCorrupt,
    UsageError,
)
from holdfast.journal.entry import records_since
from holdfast.journal.outcomes import SHOWING
from holdfast.lazy import lazily
from holdfast.model.checkpoint import NO_RECOVERY_POINT, CheckpointRecord, nothing_of
from holdfast.model.ids import check_checkpoint_id, check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.runtime.inbox import read_inbox
from holdfast.settings.outside import refill
from holdfast.store.lineage import head_of
from holdfast.store.ranges import upto

with lazily():
    from holdfast import run_files, run_recorder
    from holdfast.capture import redact, timer, tools, watch
    from holdfast.capture import writer as writer_module
    from holdfast.retain import reader
    from holdfast.retain import worker as worker_module
    from holdfast.runtime import lease
    from holdfast.settings import apply
    from holdfast.store import mirror, owner
    from holdfast.verify import check

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.capture.redact import RedactionRules
    from holdfast.capture.strategy import Condition
    from holdfast.capture.timer import Timers
    from holdfast.capture.tools import Tools
    from holdfast.capture.watch import EntryCheck, Watch, WatchOptions
    from holdfast.capture.writer import Writer
    from holdfast.encode.types import TypeRegistry
    from holdfast.errors import LeaseLost
    from holdfast.model.checkpoint import RunRecord
    from holdfast.recovery.gather import Look
    from holdfast.retain.worker import RetentionWorker
    from holdfast.run import Run
    from holdfast.run_recorder import Recorder, Services
    from holdfast.runtime.lease import LeaseKeeper, LeaseRenewer
    from holdfast.settings.values import Settings
    from holdfast.store.mirror import Mirror
    from holdfast.store.store import Store
    from holdfast.store.tables import Record
    from holdfast.workspace.options import WorkspaceOptions

_log = logging.getLogger("holdfast")
_PAGE = 100
_MARK_TRIES = 20


Happening = Literal["saved", "failed", "lost", "restored", "verified"]


class LocalEvent(NamedTuple):
    """What happened in this process and no commit tells; `took_s` only where it was measured."""

    what: Happening
    run: str | None = None
    took_s: float | None = None
    is_good: bool = True


class Internals:
    """The engine behind a `Holdfast`: its settings, clocks and codecs, and what is made of them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        types: TypeRegistry,
        *,
        max_section_bytes: int | None,
        strategy: Condition | None,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        entropy: Callable[[int], bytes],
        root: Path | None,
        reveal: bool,
    ) -> None:
        self.store = store
        self.settings = settings
        self.types = types
        self.clock = clock
        self.open_runs: WeakSet[Run] = WeakSet()
        self.listeners: list[Callable[[LocalEvent], object]] = []
        """Hear what happens in this process and no commit tells; they neither raise nor wait."""
        self.last_look: Look | None = None
        """What the last plan saw of a directory, so that carrying it out at once does not scan it again."""
        self.retention: WeakSet[RetentionWorker] = WeakSet()
        self.max_section_bytes = max_section_bytes or settings.max_section_bytes
        self._root = root
        self._strategy = strategy
        self._monotonic = monotonic
        self._entropy = entropy
        if settings.mirror.form != "off" and store.codec.mode == "encrypt":
            raise UsageError(
                "a mirror would write in plain text what this store encrypts: set mirror.form to off, or use a store "
                "without encryption"
            )
        self._is_reversible = settings.redaction.reversible
        if self._is_reversible and store.codec.mode != "encrypt":
            raise UsageError(
                "redaction.reversible keeps secrets under the store's key, and this store is not encrypted: begin one "
                "with encryption.key_file, or set redaction.reversible to false"
            )
        if settings.mirror.form != "off":
            self._mirror  # noqa: B018 - a location that cannot be used is refused now, not after a checkpoint is stored
        if settings.encryption.key_file is not None:
            store.secret_paths = (Path(settings.encryption.key_file),)
        self.packer = Packer(types, bound=self._check_size)
        register_markers(
            types,
            refill(settings.redaction) if reveal else None,
            self._unlocked if reveal and self._is_reversible else None,
        )
        self._compressor = Compressor(settings.compression)
        self.reader = ChunkReader(store.fetch)

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(self.clock(), UTC)

    def writer(
        self,
        run: str,
        *,
        workspace: str | os.PathLike[str] | None,
        workspace_options: WorkspaceOptions | None,
        rewinding: bool,
    ) -> Writer:
        """Return what commits for one handle on a run."""
        files = None
        if workspace is not None:
            options = workspace_options or run_files.options_of(self.settings.workspace)
            files = run_files.open_files(self.store, self.reader, workspace, options)
        return writer_module.Writer(
            run,
            self.store,
            self.packer,
            self._compressor,
            max_section_bytes=self.max_section_bytes,
            clock=self.clock,
            entropy=self._entropy,
            redactor=redact.RedactingPacker(self.types, self.rules) if self.rules is not None else None,
            files=files,
            rewinding=rewinding,
        )

    def watch(self, run: Run, recorder: Recorder, entry_check: Callable[[], EntryCheck]) -> Watch:
        """Return what watches over a run while it is open."""
        worker, name = None, run.id
        if self.settings.retention.enabled and self.settings.automatic and self.settings.enabled:
            worker = worker_module.RetentionWorker(
                self.store,
                name,
                self.settings.policy,
                clock=self.clock,
                monotonic=self._monotonic,
                open_reader=lambda: reader.second_way_in(self.store),
                after=self.tidy_mirror,
            )
            self.retention.add(worker)
        return watch.Watch(
            recorder,
            self._watch_options,
            clock=self.clock,
            monotonic=self._monotonic,
            timers=self._timers,
            housekeeper=worker,
            entry_check=entry_check,
            has_workspace=recorder.writer.files is not None,
            stored=lambda record: self._stamp(run, record),
        )

    def _stamp(self, run: Run, record: CheckpointRecord) -> None:
        """Note in which directory a run works, and the files of which checkpoint it has."""
        if run.host.has_workspace and run.workspace.capture.is_at(record):
            run_files.stamp(self.store, record, str(run.workspace.path))

    def services(self, run: str) -> Services:
        """Return what the parts of a run need of the engine."""
        return run_recorder.Services(
            clock=self.clock,
            monotonic=self._monotonic,
            entropy=self._entropy,
            pack=self.packer.pack,
            unpack=self.packer.unpack,
            read_inbox=partial(read_inbox, self.store, self.packer, run),
            listen=lambda: self.store.listen(run),
            wake=lambda: self.store.wake(run),
            max_section_bytes=self.max_section_bytes,
        )

    def mirror(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint's readable document, where the settings ask for one; what goes wrong is warned about."""
        if self._mirror is None:
            return
        record = checkpoint.record
        problem: Exception | None
        try:
            files = _modified(checkpoint, self._first_of(checkpoint)) if WORKSPACE in checkpoint.sections else []
            views = {name: lines for name in ("steps", "journal") if (lines := checkpoint.log(name))}
            views |= {name: checkpoint.section(name) for name in SHOWING if name in checkpoint.sections}
            document = mirror.document_of(
                record, mirror.read_sections(self.store, record) | views, files_modified=files
            )
            problem = self._mirror.write(document, mirror.entry_of(record, self._mirror.options))
        except (HoldfastError, OSError, ValueError, RecursionError, MemoryError) as error:
            problem = error
        if problem is not None:
            told = f"checkpoint {record.envelope.id} is stored, its mirror is not: {problem}"
            try:
                warnings.warn(told, stacklevel=2)
            except Warning:  # warnings are errors here, and this one must not make a stored checkpoint look failed
                _log.warning("%s", told)

    def _first_of(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the first checkpoint of a run, if it is there and has files."""
        record = self.store.checkpoint_at(checkpoint.run, 1)
        first = self.opened(record) if record is not None else None
        return first if first is not None and WORKSPACE in first.sections else None

    def tidy_mirror(self, run: str) -> None:
        """Remove the documents of checkpoints that are deleted; they are plain text."""
        if self._mirror is None:
            return

        def kept() -> list[str]:
            try:
                return [one.envelope.id for one in self.store.checkpoints(run)]
            except NotFound:
                return []

        problem = self._mirror.keep_only(run, kept)
        if problem is not None:
            warnings.warn(f"documents of deleted checkpoints of {run} may be left: {problem}", stacklevel=2)

    @cached_property
    def _mirror(self) -> Mirror | None:
        if self.settings.mirror.form == "off":
            return None
        root = self._root or Path.cwd()
        return mirror.Mirror(
            mirror.MirrorOptions(
                root=root,
                form=self.settings.mirror.form,
                location=self.settings.mirror.location,
                project=root.name,
            )
        )

    def clean(self, text: str) -> str:
        """Return a text without secrets, where these are taken out."""
        return redact.text_redactor(self.types, self.rules)(text)

    def journal_packer(self) -> Packer:
        """Return what packs a run's journal: without secrets, where these are taken out."""
        if self.rules is None:
            return self.packer
        return redact.RedactingPacker(self.types, self.rules, bound=self._check_size)

    def _check_size(self, where: str, data: bytes) -> None:
        """Raise LimitExceeded for a value of the journal that takes more memory than a section may."""
        check_footprint(where, data, max_bytes=self.max_section_bytes, stored_bytes=0)

    def present(self, run: str, head: CheckpointRecord | None) -> Checkpoint:
        """Return a run's head with what its journal has since; a run without a checkpoint has an empty one below."""
        line = self.store.line(run)
        if line is None:
            return self.opened(nothing_of(run, datetime.fromtimestamp(0, UTC)))  # it is not there: no moment
        since = records_since(self.store, line, head.number if head is not None else 0)
        return self.opened(head or nothing_of(run, line.updated_at), since=since, ranges=line.ranges)

    def reached(
        self, record: CheckpointRecord, number: int | None, skipped: Iterable[IntegrityError] = ()
    ) -> Checkpoint:
        """Return a checkpoint with what the journal has after it, up to a number; None is the end of the journal.

        A number that the line no longer leads through gives the checkpoint alone; so does a journal that does not tell
        all that happened since.
        """
        line = self.store.line(record.envelope.run)
        last = line.number if line is not None and number is None else number or 0
        try:
            ranges = upto(line, last) if line is not None and last > record.number else None
            if line is None or ranges is None or upto(line, record.number) != record.ranges:
                return self.opened(record, skipped)
            if any(gap.first <= last and gap.last > record.number for gap in self.store.journal.gaps(line)):
                return self.opened(record, skipped)  # compaction took a part of what came since
        except NotFound:
            return self.opened(record, skipped)
        since = records_since(self.store, msgspec.structs.replace(line, ranges=ranges), record.number)
        found = self.opened(record, skipped, since=since, ranges=ranges)
        # What came in between only a later checkpoint has, where the journal does not tell all of it.
        return found if found.is_whole else self.opened(record, skipped)

    def present_of(self, run: str) -> Checkpoint:
        """Return how a run stands now; NotFound if there is none."""
        record = self.store.run(check_run_id(run))
        return self.present(run, head_of(self.store, record))

    def read_back(self, record: CheckpointRecord, since: CheckpointRecord | None) -> None:
        """Read what a commit stored, as it is stored, and check it; CheckpointCorrupt if it is not what was meant.

        Sections that an earlier checkpoint has are not read again.
        """
        envelope = record.envelope
        stored = self.store.checkpoint(envelope.id)
        if stored.checksum != record.checksum:
            raise CheckpointCorrupt("it was read back as another one than was written", envelope.id)
        faults = check.faults_in(self.store, stored, since=since)
        if faults:
            raise CheckpointCorrupt(f"it was read back damaged: {faults[0].detail}", envelope.id)

    def lease_keeper(self, run: str, lost: Callable[[LeaseLost], object], lease_s: float | None) -> LeaseKeeper:
        """Return what holds a run's lease for one handle of this process; `lost` hears that it is lost."""
        now = self.now().isoformat(timespec="seconds")

        def is_lost(error: LeaseLost) -> None:
            lost(error)
            self.tell("lost", run)

        return lease.LeaseKeeper(
            self.store,
            run,
            owner=owner.owner_name(now, self._entropy),
            renewer=self._renewer,
            ttl_s=lease_s or self.settings.lease_s,
            lost=is_lost,
        )

    def tell(
        self, what: Happening, run: str | None = None, *, since: float | None = None, is_good: bool = True
    ) -> None:
        """Tell whoever listens what happened, and how long it took since a moment of `perf_counter`."""
        if self.listeners:
            took_s = None if since is None else perf_counter() - since
            for listener in tuple(self.listeners):
                listener(LocalEvent(what, run, took_s, is_good))

    @cached_property
    def _timers(self) -> Timers:
        return timer.Timers(self._monotonic)

    @cached_property
    def _renewer(self) -> LeaseRenewer:
        return lease.LeaseRenewer(has_deadlines=self.store.traits.many_machines)

    @cached_property
    def tools(self) -> Tools:
        """What adapters make commits of their own with."""
        return tools.Tools(
            self.types, self.rules, self._compressor, self.reader, self.clock, self._entropy,
            self.max_section_bytes,
        )  # fmt: skip

    @cached_property
    def rules(self) -> RedactionRules | None:
        """What redaction takes out, None if it is switched off."""
        rules = apply.redaction_rules(self.settings.redaction)
        return rules._replace(lock=self.store.codec.lock_value) if rules and self._is_reversible else rules

    def _unlocked(self, locked: bytes) -> Any:
        """Return a value that redaction took out; None if this store's key does not open it."""
        packed = self.store.codec.unlock_value(locked)
        return None if packed is None else self.packer.unpack(packed, "a redacted value")

    @cached_property
    def _watch_options(self) -> WatchOptions:
        return apply.watch_options(self.settings, self._strategy)

    def get(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint by its id."""
        return self.opened(self.store.checkpoint(check_checkpoint_id(checkpoint)))

    def mark(self, checkpoint: str, **changes: Any) -> None:
        """Change marks of a checkpoint; what somebody else sets at the same moment is kept: it is tried again on it."""
        for tries_left in range(_MARK_TRIES, 0, -1):
            record = self.store.checkpoint(check_checkpoint_id(checkpoint))
            marks = checked_marks(msgspec.structs.replace(record.marks, **changes))
            try:
                self.store.mark(checkpoint, marks, expected=record.marks)
                break
            except Conflict:
                if tries_left == 1:
                    raise

    def opened(
        self,
        record: CheckpointRecord,
        skipped: Iterable[IntegrityError] = (),
        *,
        since: Sequence[Record] = (),
        ranges: tuple[tuple[int, int], ...] | None = None,
        is_left: bool = False,
    ) -> Checkpoint:
        """Return a record as a checkpoint that can be read, with the journal's records that came after it."""
        return Checkpoint(
            record,
            self.packer,
            self.reader,
            self.store,
            max_section_bytes=self.max_section_bytes,
            get=self.get,
            skipped=tuple(skipped),
            since=since,
            ranges=ranges,
            is_left=is_left,
        )

    def open_run(self, run: str) -> Run | None:
        """Return this run's open handle, None if there is none or more than one."""
        opened = [one for one in self.open_runs if one.id == run and not one.host.is_closed]
        return opened[0] if len(opened) == 1 else None

    def _newest_sound(self, run: RunRecord) -> Checkpoint:
        skipped: list[IntegrityError] = []
        for seq in range(run.last_seq, 0, -1):
            try:
                record = self.store.checkpoint_at(run.id, seq)
                if record is None or record.marks.status == "expired":
                    continue
                faults = check.faults_in(self.store, record)
            except IntegrityError as error:
                skipped.append(error)
                continue
            if not faults:
                has_files = any(section.name == WORKSPACE for section in record.envelope.sections)
                if skipped and has_files:
                    return self.opened(record, skipped)
                try:
                    return self.reached(record, None, skipped)
                except IntegrityError as error:  # its journal is damaged behind it: the checkpoint itself is whole
                    return self.opened(record, [*skipped, error])
            first = faults[0]
            skipped.append(ChunkCorrupt(first.detail, first.chunk or "", record.envelope.id, first.section))
            with suppress(HoldfastError):  # in a store that is read only it stays as it is
                self.mark(record.envelope.id, status="corrupted")
        raise IntegrityError(f"run {run.id!r} has no sound checkpoint left: all {len(skipped)} are damaged")

    def _newest_sound_stored(self, run: str, damage: RunCorrupt) -> Checkpoint:
        """Return the newest whole checkpoint of a run whose own row or line is damaged."""
        listing = self.store.checkpoints(run)
        skipped: list[IntegrityError] = list(listing.damaged) or [damage]
        for record in listing:
            faults = check.faults_in(self.store, record)
            if not faults:
                return self.opened(record, skipped)
            first = faults[0]
            skipped.append(ChunkCorrupt(first.detail, first.chunk or "", record.envelope.id, first.section))
        raise damage

    def latest(self, run: str, *, sound: bool) -> Checkpoint:
        """Return a run's newest checkpoint that may be gone back to, or the newest whole one; NotFound if none is."""
        try:
            record = self.store.run(check_run_id(run))
        except RunCorrupt as error:
            if not sound:
                raise
            return self._newest_sound_stored(run, error)
        if sound and record.head is not None:
            return self._newest_sound(record)
        head = head_of(self.store, record)
        if head is None:
            raise NotFound("checkpoint of run", run)
        if head.marks.status not in NO_RECOVERY_POINT:
            return self.present(run, head)
        before_seq: int | None = None
        while listing := self.store.checkpoints(run, limit=_PAGE, before_seq=before_seq):
            for one in listing:
                if one.marks.status not in NO_RECOVERY_POINT:
                    return self.reached(one, None)
            before_seq = listing[-1].envelope.seq
        raise NotFound("checkpoint of run", run, "all that it has are expired or damaged; hf.checkpoints(run) has them")

    def finish_retention(self, run: str) -> None:
        """Let retention do what is due after commits of this process, so that what is read is as it will be."""
        for worker in list(self.retention):
            if worker.run == run:
                worker.flush()

    def reload(self, run: str) -> None:
        """Let open handles on a run see what the store has now."""
        for opened in list(self.open_runs):
            if opened.id == run:
                opened.recorder.reload()

    def is_stored(self, run: str) -> bool:
        """Tell whether there is anything of a run, damaged or not."""
        try:
            self.store.run(run)
        except NotFound:
            return False
        except RunCorrupt:
            return True
        return True


class _Modified(NamedTuple):
    """A file that the readable form lists."""

    path: str
    status: str
    staged: bool


def _modified(checkpoint: Checkpoint, first: Checkpoint | None) -> list[_Modified]:
    """Return the files that differ from the commit, or, without a repository, from the checkpoint before.

    Files that git does not know are those that the run made since its first checkpoint, on the same commit.
    """
    position = checkpoint.git
    if position.head == "none":
        return [_Modified(change.path, change.status, staged=False) for change in checkpoint.changes()]
    staged = [_Modified(one.path, one.status, staged=True) for one in position.staged]
    found = [*staged, *(_Modified(one.path, one.status, staged=False) for one in position.unstaged)]
    if first is not None and first.git.commit == position.commit:
        known = {one.path for one in found}
        made = (one for one in checkpoint.changes(first) if one.status == "created" and one.path not in known)
        found += [_Modified(one.path, one.status, staged=False) for one in made]
    return found
