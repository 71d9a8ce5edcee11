"""Holdfast: the one door; joins capture, store, verification and retention."""

from __future__ import annotations

import logging
import os
import time
import warnings
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Unpack, overload
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from holdfast.capture.markers import register_markers
from holdfast.capture.marks import checked_marks
from holdfast.checkpoint import Checkpoint
from holdfast.control import Control
from holdfast.encode.chunks import ChunkReader
from holdfast.encode.compress import CodecName, Compressor
from holdfast.encode.footprint import check_footprint
from holdfast.encode.types import TypeRegistry
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
from holdfast.model.checkpoint import FORMAT_VERSION, NO_RECOVERY_POINT, CheckpointRecord, Envelope, Marks, Summary
from holdfast.model.ids import check_checkpoint_id, check_run_id, checkpoint_of_name, is_reserved
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.facade import RecoveryFacade
from holdfast.recovery.record import is_undo_point
from holdfast.retain.policy import check_policy, policy_by_hand
from holdfast.run_recorder import Services
from holdfast.settings.environment import config_folder
from holdfast.settings.file import check_settings, find_settings, load_settings, located, project_settings
from holdfast.settings.outside import read_key, refill
from holdfast.settings.values import Settings, merged
from holdfast.store.api import Listing
from holdfast.store.captures import captures_of, sweep_captures
from holdfast.store.epoch_memory import EpochMemory
from holdfast.store.keys import keys_of, seal_store
from holdfast.store.lineage import head_of
from holdfast.store.open import open_store
from holdfast.store.queries import (
    CheckpointFilters,
    RunFilters,
    check_attributes,
    check_key,
    checked_filters,
    cleaned_attributes,
)
from holdfast.store.ranges import upto
from holdfast.store.tables import MAIN

with lazily():
    from holdfast import run as run_module
    from holdfast import run_files
    from holdfast.capture import redact, timer, tools, watch
    from holdfast.capture import writer as writer_module
    from holdfast.journal import feed
    from holdfast.recovery import enter, finish, verdict
    from holdfast.retain import compact as compact_module
    from holdfast.retain import prune, reader
    from holdfast.retain import sweep as sweep_module
    from holdfast.retain import worker as worker_module
    from holdfast.runtime import audit, cost, lease
    from holdfast.settings import apply
    from holdfast.store import mirror, owner
    from holdfast.transfer import bundle, copy
    from holdfast.verify import check
    from holdfast.worker import wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from holdfast.capture.protection import OnFailure
    from holdfast.capture.redact import RedactionRules
    from holdfast.capture.strategy import Condition
    from holdfast.capture.timer import Timers
    from holdfast.capture.tools import Tools
    from holdfast.capture.watch import Watch, WatchOptions
    from holdfast.errors import LeaseLost
    from holdfast.journal.feed import Feed
    from holdfast.model.checkpoint import RunRecord, Status
    from holdfast.model.verdicts import Verdict
    from holdfast.recovery.enter import OpenRun
    from holdfast.recovery.subject import SubjectProvider
    from holdfast.recovery.verdict import Freshness
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.retain.prune import Pruned
    from holdfast.retain.worker import RetentionWorker
    from holdfast.run import Run
    from holdfast.runtime.audit import Event, Savings
    from holdfast.runtime.cost import RunCost
    from holdfast.runtime.lease import LeaseKeeper, LeaseRenewer
    from holdfast.runtime.waits import Waiting
    from holdfast.store.api import StoreStats
    from holdfast.store.keys import StoreKeys
    from holdfast.store.mirror import Mirror
    from holdfast.store.store import Store
    from holdfast.store.tables import Record
    from holdfast.transfer.copy import Copied
    from holdfast.verify.check import Report
    from holdfast.workspace.options import WorkspaceOptions

_log = logging.getLogger("holdfast")
_PAGE = 100
_MARK_TRIES = 20


class DamageWarning(UserWarning):
    """A list is shorter than it should be, because some of its records are damaged."""


class Holdfast(RecoveryFacade):
    """A store of runs and their checkpoints."""

    def __init__(
        self,
        store: Store,
        *,
        types: Iterable[type] | TypeRegistry = (),
        compression: CodecName | None = None,
        enabled: bool | None = None,
        max_section_bytes: int | None = None,
        settings: Settings | None = None,
        strategy: Condition | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Callable[[int], bytes] = os.urandom,
        root: Path | None = None,
        reveal: bool = True,
    ) -> None:
        """Open a store for use; `root` is the project's directory, for what the settings place below it.

        With `reveal=False` nothing that redaction took out is filled in or unlocked again, whatever the settings say.
        """
        self.settings = merged(settings or Settings(), compression=compression, enabled=enabled)
        self._root = root
        if self.settings.mirror.form != "off" and store.codec.mode == "encrypt":
            raise UsageError(
                "a mirror would write in plain text what this store encrypts: set mirror.form to off, or use a store "
                "without encryption"
            )
        if self.settings.redaction.reversible and store.codec.mode != "encrypt":
            raise UsageError(
                "redaction.reversible keeps secrets under the store's key, and this store is not encrypted: begin one "
                "with encryption.key_file, or set redaction.reversible to false"
            )
        if self.settings.mirror.form != "off":
            self._mirror  # noqa: B018 - a location that cannot be used is refused now, not after a checkpoint is stored
        self.store = store
        if self.settings.encryption.key_file is not None:
            store.secret_paths = (Path(self.settings.encryption.key_file),)
        self.types = types if isinstance(types, TypeRegistry) else TypeRegistry(types)
        self.enabled = self.settings.enabled
        self._strategy = strategy
        self._monotonic = monotonic
        self._max_section_bytes = max_section_bytes or self.settings.max_section_bytes
        self._packer = Packer(self.types, bound=self._check_size)
        self._is_reversible = self.settings.redaction.reversible
        register_markers(
            self.types,
            refill(self.settings.redaction) if reveal else None,
            self._unlocked if reveal and self._is_reversible else None,
        )
        self._compressor = Compressor(self.settings.compression)
        self._reader = ChunkReader(store.fetch)
        self._clock = clock
        self._entropy = entropy
        self._open_runs: WeakSet[Run] = WeakSet()
        self._retention: WeakSet[RetentionWorker] = WeakSet()
        self._freshness: WeakKeyDictionary[Run, Freshness] = WeakKeyDictionary()
        self.control = Control(store, self._packer, self._present_of, self.journal_packer, self._wake_queue)
        """Answers, signals, pause and cancel for runs that other processes move."""
        self.waiting = self.control.waiting
        self.answer = self.control.answer
        self.signal = self.control.signal
        self.pause = self.control.pause
        self.unpause = self.control.unpause
        self.cancel = self.control.cancel
        self.raise_budget = self.control.raise_budget

    def run(
        self,
        run: str,
        *,
        workspace: str | os.PathLike[str] | None = None,
        workspace_options: WorkspaceOptions | None = None,
        subject: SubjectProvider | str | None = None,
        verdicts: Mapping[str, Verdict] | None = None,
        waiting: Waiting = "block",
        rewinding: bool = False,
        key: str | None = None,
        attributes: Mapping[str, str | int | float | bool | None] | None = None,
    ) -> Run:
        """Open a run at its head; a new one begins with its first checkpoint.

        When it is entered, what moved outside it since (branch, program, the `subject`: an issue's file, its number, or
        who knows it) is looked at as by a recovery: it is warned about, a person is asked, or CannotResume is raised;
        `verdicts` and the settings say which.

        With a workspace, every checkpoint holds that directory's files and git position. A restore that was killed in
        it is finished or undone first. Where the run has to wait for a person or a time it blocks, or with
        `waiting="leave"` saves and raises RunWaiting, with `"decide"` only where a person has to decide. A damaged
        head is refused, unless it is opened for `rewinding`.

        `hf.runs(key=..., attributes=...)` finds it by the `key` and `attributes` that it is given; they are stored with
        its next commit, beside those that it has.
        """
        check_run_id(run)
        about = self._about(run, check_key(key), check_attributes(attributes or {}))
        files = None
        if workspace is not None:
            options = workspace_options or run_files.options_of(self.settings.workspace)
            files = run_files.open_files(self.store, self._reader, workspace, options)
        writer = writer_module.Writer(
            run,
            self.store,
            self._packer,
            self._compressor,
            max_section_bytes=self._max_section_bytes,
            clock=self._clock,
            entropy=self._entropy,
            redactor=redact.RedactingPacker(self.types, self._rules) if self._rules is not None else None,
            files=files,
            rewinding=rewinding,
        )
        writer.about = about
        opened = run_module.Run(self, run, writer, waiting=waiting)
        self._open_runs.add(opened)
        if subject is not None or verdicts is not None:
            self._freshness[opened] = verdict.freshness_of(self, verdict.Freshness(), subject, verdicts)
        head = writer.head
        if head is not None and not rewinding and is_undo_point(head):
            finish.finish_interrupted(self, opened)
        return opened

    def _about(self, run: str, key: str | None, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run's row gets of a caller's key and attributes; those that it has stay."""
        about: dict[str, Any] = {} if key is None else {"key": self._clean(key)}
        if attributes:
            try:
                known = self.store.row_of(run).attributes
            except NotFound:
                known = {}
            about["attributes"] = {**known, **cleaned_attributes(attributes, self._clean)}
        return about

    def open_run(self, run: str) -> Run | None:
        """Return this run's open handle, None if there is none or more than one."""
        opened = [one for one in self._open_runs if one.id == run and not one.host.is_closed]
        return opened[0] if len(opened) == 1 else None

    def watch(self, run: Run) -> Watch:
        """Return what watches over a run while it is open."""
        worker, name = None, run.id
        if self.settings.retention.enabled and self.settings.automatic and self.enabled:
            worker = worker_module.RetentionWorker(
                self.store,
                name,
                self.settings.policy,
                clock=self._clock,
                monotonic=self._monotonic,
                open_reader=lambda: reader.second_way_in(self.store),
                after=lambda: self._tidy_mirror(name),
            )
            self._retention.add(worker)
        return watch.Watch(
            run.recorder,
            self._watch_options,
            clock=self._clock,
            monotonic=self._monotonic,
            timers=self._timers,
            housekeeper=worker,
            entry_check=lambda: self._entered(run),
            has_workspace=run.has_workspace,
            stored=lambda record: self._stamp(run, record),
        )

    def _stamp(self, run: Run, record: CheckpointRecord) -> None:
        """Note in which directory a run works, and the files of which checkpoint it has."""
        if run.has_workspace and run.workspace.capture.is_at(record):
            run_files.stamp(self.store, record, str(run.workspace.path))

    def _entered(self, run: Run) -> OpenRun:
        freshness = self._freshness.get(run) or verdict.freshness_of(self, verdict.Freshness())
        return enter.OpenRun(self, run, freshness=freshness, calls=run.host.calls_under_way)

    def services(self, run: str) -> Services:
        """Return what the parts of a run need of the engine."""
        return Services(
            clock=self._clock,
            monotonic=self._monotonic,
            entropy=self._entropy,
            pack=self._packer.pack,
            unpack=self._packer.unpack,
            read_inbox=self.control.reader(run),
            listen=lambda: self.store.listen(run),
            wake=lambda: self.store.wake(run),
            max_section_bytes=self._max_section_bytes,
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

    def _tidy_mirror(self, run: str) -> None:
        """Remove the documents of checkpoints that are deleted; they are plain text."""
        if self._mirror is None:
            return
        try:
            kept = [one.envelope.id for one in self.store.checkpoints(run)]
        except NotFound:
            kept = []
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

    def _clean(self, text: str) -> str:
        """Return a text without secrets, where these are taken out."""
        return redact.text_redactor(self.types, self._rules)(text)

    def _wake_queue(self, run: str, number: int) -> None:
        """Wake a run that was submitted to workers; only a store that they share has such runs."""
        if self.store.url.startswith("postgresql:"):
            wake.wake_queue(self.store, run, number, temporal=self.settings.workers.temporal)

    def journal_packer(self) -> Packer:
        """Return what packs a run's journal: without secrets, where these are taken out."""
        if self._rules is None:
            return self._packer
        return redact.RedactingPacker(self.types, self._rules, bound=self._check_size)

    def _check_size(self, where: str, data: bytes) -> None:
        """Raise LimitExceeded for a value of the journal that takes more memory than a section may."""
        check_footprint(where, data, max_bytes=self._max_section_bytes, stored_bytes=0)

    def present(self, run: str, head: CheckpointRecord | None) -> Checkpoint:
        """Return a run's head with what its journal has since; a run without a checkpoint has an empty one below."""
        line = self.store.line(run)
        if line is None:
            return self.opened(_nothing_of(run))
        since = records_since(self.store, line, head.number if head is not None else 0)
        return self.opened(head or _nothing_of(run), since=since, ranges=line.ranges)

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

    def _present_of(self, run: str) -> Checkpoint:
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

    def lease_keeper(self, run: str, lost: Callable[[LeaseLost], object]) -> LeaseKeeper:
        """Return what holds a run's lease for one handle of this process; `lost` hears that it is lost."""
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        return lease.LeaseKeeper(
            self.store,
            run,
            owner=owner.owner_name(now, self._entropy),
            renewer=self._renewer,
            ttl_s=self.settings.lease_s,
            lost=lost,
        )

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
            self.types, self._rules, self._compressor, self._reader, self._clock, self._entropy,
            self._max_section_bytes,
        )  # fmt: skip

    @cached_property
    def _rules(self) -> RedactionRules | None:
        rules = apply.redaction_rules(self.settings.redaction)
        return rules._replace(lock=self.store.codec.lock_value) if rules and self._is_reversible else rules

    def _unlocked(self, locked: bytes) -> Any:
        """Return a value that redaction took out; None if this store's key does not open it."""
        packed = self.store.codec.unlock_value(locked)
        return None if packed is None else self._packer.unpack(packed, "a redacted value")

    @cached_property
    def _watch_options(self) -> WatchOptions:
        return apply.watch_options(self.settings, self._strategy)

    def runs(
        self, *, limit: int | None = None, after: str | None = None, **filters: Unpack[RunFilters]
    ) -> Listing[RunRecord]:
        """Return the runs, the last moved first; damaged ones are in its `damaged`, and warned about.

        By status, key, prefix, text, attributes, since and until, as `RunFilters` says; no payload is read. With a
        limit the page's `after` continues it: `hf.runs(limit=20, after=page.after)`.
        """
        where = checked_filters(filters, RunFilters)
        if where or after is not None or _checked_limit(limit) is not None:
            return _warned(self.store.queries.runs(where, limit=limit, after=after))
        listing = self.store.runs()  # the whole list looks for runs whose own row is lost, too
        shown = [record for record in listing if not is_reserved(record.id)]
        return _warned(Listing(sorted(shown, key=lambda one: one.updated_at, reverse=True), listing.damaged))

    def has(self, run: str) -> bool:
        """Tell whether a run has a checkpoint."""
        try:
            return self.store.run(check_run_id(run)).head is not None
        except NotFound:
            return False

    def checkpoints(
        self,
        run: str,
        *,
        limit: int | None = None,
        before_seq: int | None = None,
        archived: bool = False,
        line: str = MAIN,
        **filters: Unpack[CheckpointFilters],
    ) -> Listing[Checkpoint]:
        """Return a run's checkpoints, newest first, without reading a payload; damaged ones are in its `damaged`.

        By trigger, phase, status, key, prefix, text, attributes, since and until, as `CheckpointFilters` says. Archived
        ones are left out unless asked for. A run that there is not has none.
        """
        where = checked_filters(filters, CheckpointFilters)
        self._finish_retention(check_run_id(run))
        if not self._is_stored(run):
            return Listing([], [])
        wanted = _checked_limit(limit)
        if where or line != MAIN:
            where = where if archived or "status" in where else {**where, "archived": False}
            chosen = self.store.queries.checkpoints(run, where, limit=limit, before_seq=before_seq, line=line)
            return _warned(Listing([self.opened(record) for record in chosen], chosen.damaged))
        found: list[CheckpointRecord] = []
        damaged: list[IntegrityError] = []
        if before_seq is None:
            found += [one.record for one in captures_of(self.store, run)]
        while True:
            listing = self.store.checkpoints(run, limit=wanted, before_seq=before_seq)
            if wanted is not None and listing.damaged and not listing:
                wanted = None  # a page of nothing but damage has no number to continue from: all the rest is read
                continue
            found += [record for record in listing if archived or record.marks.status != "archived"]
            damaged += listing.damaged
            seen = len(listing) + len(listing.damaged)
            if wanted is None or limit is None or len(found) >= limit or seen < wanted:
                break
            before_seq, wanted = listing[-1].envelope.seq, max(limit, _PAGE)
        return _warned(Listing([self.opened(record) for record in found[:limit]], damaged))

    def get(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint by its id, or a position of a run's journal: RUN#812."""
        if isinstance(checkpoint, str) and "#" in checkpoint:
            return self.find(checkpoint, sound=False)
        if isinstance(checkpoint, str) and checkpoint_of_name(checkpoint) is not None:
            return self.find(checkpoint)
        return self.opened(self.store.checkpoint(check_checkpoint_id(checkpoint)))

    @overload
    def latest(self, run: str, *, required: Literal[True], sound: bool = False) -> Checkpoint: ...

    @overload
    def latest(self, run: str, *, required: bool = False, sound: bool = False) -> Checkpoint | None: ...

    def latest(self, run: str, *, required: bool = False, sound: bool = False) -> Checkpoint | None:
        """Return a run's newest checkpoint, None if there is none; with `required`, raise NotFound instead.

        With `sound` it is the newest that is whole, with what it `skipped`. One that is marked as corrupted or expired
        is passed over.
        """
        try:
            return self._latest(run, sound=sound)
        except NotFound:
            if required:
                raise
            return None

    def _latest(self, run: str, *, sound: bool) -> Checkpoint:
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

    def events(self, run: str) -> list[Event]:
        """Return what happened in a run, oldest first: what, when, by whom, how long."""
        present = self._present_of(run)
        return audit.events(present.log("journal"), present.log("steps"))

    def savings(self, run: str) -> Savings:
        """Return what resuming a run saved: work that was neither done nor paid for again."""
        head = self._present_of(run)
        agents = head.section("agents") if "agents" in head.sections else ()
        phases = head.section("phases").phases.values() if "phases" in head.sections else ()
        return audit.savings(head.log("journal"), head.log("steps"), agents, phases)

    def cost(self, run: str) -> RunCost:
        """Return what a run cost, by call, agent and phase: on its present path, and in all that it ever did."""
        head = self._present_of(run)
        budget = head.section("budget") if "budget" in head.sections else None
        return cost.run_cost(head.run, head.all_calls(), budget.spending if budget is not None else None)

    def mark(
        self,
        checkpoint: str,
        *,
        status: Status | None = None,
        pinned: bool | None = None,
        label: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Checkpoint:
        """Change what may change about a checkpoint; what is not given stays, and `label=None` takes a label away.

        Marks that somebody else sets at the same moment are kept: it is tried again on top of them.
        """
        given: dict[str, Any] = {"status": status, "pinned": pinned}
        changes = {name: value for name, value in given.items() if value is not None}
        if label is not msgspec.UNSET:
            changes["label"] = self._clean(label) if isinstance(label, str) else label
        for tries_left in range(_MARK_TRIES, 0, -1):
            record = self.store.checkpoint(check_checkpoint_id(checkpoint))
            marks = checked_marks(msgspec.structs.replace(record.marks, **changes))
            try:
                self.store.mark(checkpoint, marks, expected=record.marks)
                break
            except Conflict:
                if tries_left == 1:
                    raise
        return self.get(checkpoint)

    def delete(self, *checkpoints: str, missing_ok: bool = False) -> None:
        """Delete checkpoints and give their space back; a run whose head goes stands at the newest one left.

        Nothing is deleted and NotFound raised if one of them does not exist, unless `missing_ok`.
        """
        by_run: dict[str, list[str]] = {}
        for checkpoint in dict.fromkeys(checkpoints):
            with suppress(*([NotFound] if missing_ok else [])):
                by_run.setdefault(self._run_of(check_checkpoint_id(checkpoint)), []).append(checkpoint)
        for run, doomed in by_run.items():
            self.store.delete(run, doomed)
            self._reload(run)
            self._tidy_mirror(run)
            try:
                sweep_module.sweep(self.store, run)
            except IntegrityError as error:
                warnings.warn(f"deleted, but no space is given back: {error}", DamageWarning, stacklevel=2)
        self.store.reclaim()

    def _is_stored(self, run: str) -> bool:
        """Tell whether there is anything of a run, damaged or not."""
        try:
            self.store.run(run)
        except NotFound:
            return False
        except RunCorrupt:
            return True
        return True

    def _run_of(self, checkpoint: str) -> str:
        """Return the run of a checkpoint, also of one whose record is damaged."""
        try:
            return self.store.checkpoint(checkpoint).envelope.run
        except CheckpointCorrupt:
            for run in self.store.runs():
                damaged = self.store.checkpoints(run.id).damaged
                if run.head == checkpoint or any(getattr(error, "checkpoint", None) == checkpoint for error in damaged):
                    return run.id
            raise

    def delete_run(self, run: str) -> None:
        """Delete a run, all its checkpoints and every chunk that no other run holds; an unknown one is not an error."""
        if not self._is_stored(check_run_id(run)):
            return
        self.store.delete_run(run)
        sweep_captures(self.store, run, datetime.max.replace(tzinfo=UTC))
        self._reload(run)
        self._tidy_mirror(run)

    def prune(
        self,
        run: str | None = None,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        policy: RetentionPolicy | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete and archive by the settings' retention, or by `policy`; return what and why. None is every run.

        With `keep` or `older_than`, delete all but the newest so many, and those older, instead. The head, pinned ones
        and all that a recovery needs stay. Over every run, one that finished before that goes as a whole, but for pins.
        """
        by_hand = keep is not None or older_than is not None
        chosen = policy_by_hand(keep, older_than) if by_hand else check_policy(policy or self.settings.policy)
        chosen = msgspec.structs.replace(chosen, expires_runs=run is None)
        now = datetime.fromtimestamp(self._clock(), UTC)
        for opened in {one.run for one in self._retention} if run is None else {check_run_id(run)}:
            self._finish_retention(opened)
        if run is not None and not self._is_stored(run):
            return prune.Pruned(())
        runs = self.runs() if run is None else [self.store.run(run)]
        pruned = prune.Pruned(prune.plan_all(self.store, chosen, now, runs))
        for one in () if dry_run else pruned.plans:
            if not one.is_whole and not by_hand:
                compact_module.compact(self.store, one.run.id, chosen, now)
            if self.store.leases.running(one.run.id) is None:
                sweep_captures(self.store, one.run.id, now)
            if one.is_whole or one.changes:
                prune.carry_out(self.store, one, now=now)
                if any(gone.id == one.run.head for gone in one.changes):
                    self._reload(one.run.id)
                self._tidy_mirror(one.run.id)
        return pruned

    def _finish_retention(self, run: str) -> None:
        """Let retention do what is due after commits of this process, so that what is read is as it will be."""
        for worker in list(self._retention):
            if worker.run == run:
                worker.flush()

    def verify(
        self,
        checkpoint: Checkpoint | str | None = None,
        *,
        progress: Callable[[str, int], None] | None = None,
        remembered: Mapping[str, str | tuple[int, str]] | None = None,
    ) -> Report:
        """Check every row, journal, link, head and chunk, and name each fault; changes nothing.

        With a checkpoint or its id, that one alone is checked, down to its last byte; one that does not exist is a
        fault, too.

        With `remembered` heads, kept outside the store (run to checkpoint id, or to its number and id), history that
        was cut off, rolled back or went another way is a fault, too.
        """
        if checkpoint is not None:
            name = checkpoint if isinstance(checkpoint, str) else checkpoint.id
            return check.verify_checkpoint(self.store, check_checkpoint_id(name))
        return check.verify(self.store, progress=progress, remembered=remembered)

    def copy_to(
        self,
        target: Holdfast | Store | str | Path,
        *runs: str,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Copied]:
        """Copy runs (all, unless some are named) to another store; verified, resumable, ids and lineage kept."""
        if isinstance(target, Holdfast):
            return copy.copy_runs(self.store, target.store, runs or None, progress=progress)
        if not isinstance(target, (str, os.PathLike)):
            return copy.copy_runs(self.store, target, runs or None, progress=progress)
        opened = open_store(target)
        try:
            return copy.copy_runs(self.store, opened, runs or None, progress=progress)
        finally:
            opened.close()

    def export(
        self, path: str | Path, *runs: str, progress: Callable[[str, int, int], None] | None = None
    ) -> list[Copied]:
        """Write runs with their checkpoints and files into one file that can be imported elsewhere."""
        return bundle.export_runs(self.store, runs, path, progress=progress)

    def import_from(
        self,
        path: str | Path,
        *runs: str,
        key: str | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Copied]:
        """Take over the runs of an exported file (all, unless some are named); everything is verified on the way.

        Runs of an encrypted store stay encrypted: give its key, and import into an empty store, or one with a key.
        """
        return bundle.import_runs(path, self.store, runs or None, key=key, progress=progress)

    def follow(
        self, runs: str | Iterable[str] | None = None, after: str | None = None, *, wait_s: float | None = None
    ) -> Feed:
        """Return committed records and checkpoints of any process, as they come: all runs, or some.

        `after` is the `cursor` of an earlier feed, `"end"` for what comes from now on, None for all that is there.
        It waits for more without an end, or ends when nothing came for `wait_s` (0: with what is there).
        """
        return feed.Feed(self.store, [runs] if isinstance(runs, str) else runs, after, wait_s=wait_s)

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:
        """Bring the store's schema up to date and return the versions applied; opening it does so, too."""
        return self.store.migrate(progress=progress)

    def add_key(self, key: str) -> None:
        """Let one more key open this encrypted or signed store; those in use stay, so keys change without downtime."""
        self._keys().add(key)

    def remove_key(self, key: str) -> None:
        """Retire a key (its text or its id): it opens nothing that is written from now on; the last one stays."""
        self._keys().remove(key)

    def key_ids(self) -> list[str]:
        """Return the names of all keys that open this store; none if it is neither encrypted nor signed."""
        keys = keys_of(self.store)
        return keys.ids() if keys is not None else []

    def _keys(self) -> StoreKeys:
        keys = keys_of(self.store)
        if keys is None:
            raise UsageError("this store has no key: a new one gets it with holdfast.open(place, key_file=...)")
        return keys

    def stats(self) -> StoreStats:
        """Count what is stored, and say what stores it; inboxes are not runs of their own."""
        stats = self.store.stats()
        hidden = sum(is_reserved(record.id) for record in self.store.runs())
        return msgspec.structs.replace(stats, runs=stats.runs - hidden)

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
            self._packer,
            self._reader,
            self.store,
            max_section_bytes=self._max_section_bytes,
            get=self.get,
            skipped=tuple(skipped),
            since=since,
            ranges=ranges,
            is_left=is_left,
        )

    def close(self) -> None:
        """Close open runs and the store; closing twice is fine."""
        for run in list(self._open_runs):
            run.close()
        for worker in list(self._retention):
            worker.stop()
        self.store.close()

    def _reload(self, run: str) -> None:
        for opened in list(self._open_runs):
            if opened.id == run:
                opened.recorder.reload()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(  # noqa: A001 - holdfast.open() reads well, and nothing here opens files
    place: str | Path | None = None,
    *,
    settings: Settings | str | Path | None = None,
    types: Iterable[type] | TypeRegistry = (),
    compression: CodecName | None = None,
    enabled: bool | None = None,
    max_section_bytes: int | None = None,
    strategy: Condition | None = None,
    destructive: Iterable[str] = (),
    interval_s: float | msgspec.UnsetType | None = msgspec.UNSET,
    on_checkpoint_failure: OnFailure | None = None,
    key: str | None = None,
    key_file: str | None = None,
    key_env: str | None = None,
    sign: bool | None = None,
    reveal: bool = True,
    **store_options: Any,
) -> Holdfast:
    """Open a store: None is `.holdfast/` in this directory; or a path, `sqlite:///path`, `memory:`.

    Settings come from `holdfast.yaml` or `[tool.holdfast]` in pyproject.toml of this directory, over the user's own
    file, unless given as a path or a value; what is given here wins. What a file of this directory may not say without
    `holdfast trust` raises SettingsUntrusted. A key (its text, file or environment variable) switches encryption on.
    `reveal=False` is for programs that only show: nothing that redaction took out is filled in or unlocked for them.
    SQLite takes `durability="process"` (faster, and a power cut may lose the last commits) and `read_only=True`.
    """
    file: Path | None = None
    if not isinstance(settings, Settings):
        file = find_settings(Path.cwd()) if settings is None else Path(settings)
        if settings is None:
            settings = project_settings(file, is_located=place is not None)
        else:
            settings = load_settings(Path(settings))
    settings = merged(
        settings,
        compression=compression,
        enabled=enabled,
        on_checkpoint_failure=on_checkpoint_failure,
        destructive=merged(settings.destructive, operations=[*settings.destructive.operations, *destructive]),
        encryption=merged(settings.encryption, key_file=key_file, key_env=key_env, sign=sign),
    )
    if interval_s is not msgspec.UNSET:  # None is given: it switches the timer off
        settings = msgspec.structs.replace(settings, interval_s=interval_s)
    settings = check_settings(settings)
    place = located(settings, file) if place is None else place
    user_key = key or read_key(settings)
    store = open_store(place, **store_options)
    try:
        store = seal_store(store, user_key, sign=settings.encryption.sign, memory=EpochMemory.of_user(config_folder()))
    except BaseException:
        store.close()
        raise
    return Holdfast(
        store,
        types=types,
        max_section_bytes=max_section_bytes,
        settings=settings,
        strategy=strategy,
        root=Path(file).absolute().parent if file is not None else Path.cwd(),
        reveal=reveal,
    )


def _nothing_of(run: str) -> CheckpointRecord:
    """Return what stands below the journal of a run that has no checkpoint yet."""
    envelope = Envelope(
        format_version=FORMAT_VERSION, id="", run=run, seq=0, parent=None, parent_checksum=None, trigger="", reason="",
        created_at=datetime.fromtimestamp(0, UTC), program_version="", sections=(), stored_bytes=0, codec="none",
        recovery=RecoveryInfo(), summary=Summary(),
    )  # fmt: skip
    return CheckpointRecord(envelope, b"", Marks())


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


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise UsageError(f"limit={limit!r}: give a number from 0 up, or None for all")
    return limit


def _warned(listing: Listing[Any]) -> Listing[Any]:
    if listing.damaged:
        warnings.warn(f"{len(listing.damaged)} damaged: {listing.damaged[0]}", DamageWarning, stacklevel=3)
    return listing
