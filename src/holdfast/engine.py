"""Holdfast: the one door; joins capture, store, verification and retention."""

from __future__ import annotations

import os
import time
import warnings
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import msgspec

from holdfast.capture.markers import register_markers
from holdfast.capture.marks import checked_marks
from holdfast.checkpoint import Checkpoint
from holdfast.control import Control
from holdfast.encode.chunks import ChunkReader
from holdfast.encode.compress import CodecName, Compressor
from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Packer
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, Conflict, IntegrityError, NotFound, UsageError
from holdfast.model.ids import check_checkpoint_id, check_run_id, is_reserved
from holdfast.recover.record import is_undo_point
from holdfast.recovery.door import RecoveryDoor
from holdfast.retain.policy import Decision, check_policy, decide_simply
from holdfast.runtime.parts import Services, Waiting
from holdfast.settings.file import check_settings, find_settings, load_settings, located
from holdfast.settings.outside import read_key, refill
from holdfast.settings.values import Settings, merged
from holdfast.store.api import Listing
from holdfast.store.lineage import head_of
from holdfast.store.open import open_store
from holdfast.store.sealed import SealedStore, seal_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from holdfast.capture.protection import OnFailure
    from holdfast.capture.redact import RedactionRules
    from holdfast.capture.strategy import Condition
    from holdfast.capture.watch import Watch, WatchOptions
    from holdfast.model.checkpoint import CheckpointRecord, RunRecord, Status
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.retain.prune import Pruned
    from holdfast.run import Run
    from holdfast.runtime.audit import Event, Savings
    from holdfast.runtime.lease import LeaseKeeper
    from holdfast.store.api import Store, StoreStats
    from holdfast.transfer.copy import Copied
    from holdfast.verify.check import Fault, Report
    from holdfast.workspace.options import WorkspaceOptions

MAX_SECTION_BYTES = 64 * 1024 * 1024
_PAGE = 100
_MARK_TRIES = 20


class DamageWarning(UserWarning):
    """A list is shorter than it should be, because some of its records are damaged."""


class Holdfast(RecoveryDoor):
    """A store of runs and their checkpoints."""

    def __init__(
        self,
        store: Store,
        *,
        types: Iterable[type] | TypeRegistry = (),
        compression: CodecName = "zstd",
        enabled: bool = True,
        max_section_bytes: int = MAX_SECTION_BYTES,
        settings: Settings | None = None,
        strategy: Condition | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.settings = settings or Settings()
        self.store = store
        self.types = types if isinstance(types, TypeRegistry) else TypeRegistry(types)
        register_markers(self.types, refill(self.settings.redaction))
        self.enabled = enabled
        self._strategy = strategy
        self._monotonic = monotonic
        self._packer = Packer(self.types)
        self._compressor = Compressor(compression)
        self._reader = ChunkReader(store.fetch)
        self._max_section_bytes = max_section_bytes
        self._clock = clock
        self._entropy = entropy
        self._open_runs: WeakSet[Run] = WeakSet()
        self.control = Control(
            store,
            self._packer,
            self._compressor,
            self._reader,
            max_section_bytes=max_section_bytes,
            clock=clock,
            entropy=entropy,
        )
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
        waiting: Waiting = "block",
        rewinding: bool = False,
    ) -> Run:
        """Open a run at its head; a new one begins with its first checkpoint.

        With a workspace, every checkpoint holds that directory's files and git position. A restore that was killed in
        it is finished or undone first. Where the run has to wait for a person or a time it blocks, or with
        `waiting="leave"` saves and raises RunWaiting. A damaged head is refused, unless it is opened for `rewinding`.
        """
        check_run_id(run)
        files = None
        if workspace is not None:
            from holdfast.run_files import open_files, options_of  # noqa: PLC0415 - only runs with files pay for it

            options = workspace_options or options_of(self.settings.workspace)
            files = open_files(self.store, self._reader, workspace, options)
        from holdfast.capture.checkpointer import Checkpointer  # noqa: PLC0415 - loaded when it is used
        from holdfast.capture.redact import RedactingPacker  # noqa: PLC0415
        from holdfast.run import Run  # noqa: PLC0415

        checkpointer = Checkpointer(
            run,
            self.store,
            self._packer,
            self._compressor,
            max_section_bytes=self._max_section_bytes,
            clock=self._clock,
            entropy=self._entropy,
            redactor=RedactingPacker(self.types, self._rules) if self._rules is not None else None,
            files=files,
            rewinding=rewinding,
        )
        opened = Run(self, run, checkpointer, waiting=waiting)
        self._open_runs.add(opened)
        head = checkpointer.head
        if head is not None and not rewinding and is_undo_point(head):
            from holdfast.recovery.carry_out import finish_interrupted  # noqa: PLC0415 - after a recovery only

            finish_interrupted(self, opened)
        return opened

    def open_run(self, run: str) -> Run | None:
        """Return this run's open handle, None if there is none or more than one."""
        opened = [one for one in self._open_runs if one.id == run and not one.is_closed]
        return opened[0] if len(opened) == 1 else None

    def watch(self, run: Run) -> Watch:
        """Return what watches over a run while it is open."""
        from holdfast.capture.redact import RedactingPacker  # noqa: PLC0415 - loaded when it is used
        from holdfast.capture.watch import Watch  # noqa: PLC0415
        from holdfast.retain.reader import second_way_in  # noqa: PLC0415
        from holdfast.retain.worker import RetentionWorker  # noqa: PLC0415

        retention = self.settings.retention
        return Watch(
            run.id,
            self._watch_options,
            take=run.take,
            head=lambda: run.head_record,
            clock=self._clock,
            monotonic=self._monotonic,
            clean=RedactingPacker(self.types, self._rules).text if self._rules is not None else str,
            housekeeper=RetentionWorker(
                self.store,
                run.id,
                self.settings.policy,
                clock=self._clock,
                open_reader=lambda: second_way_in(self.store),
            )
            if retention.enabled and self.enabled
            else None,
            has_workspace=run.has_workspace,
        )

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

    def read_back(self, record: CheckpointRecord) -> None:
        """Read what a commit stored, as it is stored, and check it; CheckpointCorrupt if it is not what was meant.

        Sections that are the parent's are not read again.
        """
        from holdfast.verify.check import faults_in  # noqa: PLC0415 - loaded when it is used

        envelope = record.envelope
        stored = self.store.checkpoint(envelope.id)
        if stored.checksum != record.checksum:
            raise CheckpointCorrupt("it was read back as another one than was written", envelope.id)
        try:
            parent = self.store.checkpoint(envelope.parent) if envelope.parent is not None else None
        except (NotFound, IntegrityError):
            parent = None
        faults = faults_in(self.store, stored, since=parent)
        if faults:
            raise CheckpointCorrupt(f"it was read back damaged: {faults[0].detail}", envelope.id)

    def lease_keeper(self, run: str) -> LeaseKeeper:
        """Return what holds a run's lease for one handle of this process."""
        from holdfast.runtime.lease import LeaseKeeper, owner_name  # noqa: PLC0415 - loaded when it is used

        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        return LeaseKeeper(self.store, run, owner=owner_name(now, self._entropy))

    @cached_property
    def _rules(self) -> RedactionRules | None:
        from holdfast.settings.apply import redaction_rules  # noqa: PLC0415 - loaded when it is used

        return redaction_rules(self.settings.redaction)

    @cached_property
    def _watch_options(self) -> WatchOptions:
        from holdfast.settings.apply import watch_options  # noqa: PLC0415 - loaded when it is used

        return watch_options(self.settings, self._strategy)

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first; damaged ones are in its `damaged`, and warned about."""
        wanted = _checked_limit(limit)
        while True:
            listing = self.store.runs(limit=wanted)
            shown = [record for record in listing if not is_reserved(record.id)]
            if limit is None or wanted is None or len(shown) >= limit or len(listing) < wanted:
                return _warned(Listing(shown[:limit], listing.damaged))
            wanted *= 2

    def has(self, run: str) -> bool:
        """Tell whether a run has a checkpoint."""
        try:
            return self.store.run(check_run_id(run)).head is not None
        except NotFound:
            return False

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None, archived: bool = False
    ) -> Listing[Checkpoint]:
        """Return a run's checkpoints, newest first, without reading a payload; damaged ones are in its `damaged`.

        Archived ones are left out unless asked for.
        """
        check_run_id(run)
        wanted = _checked_limit(limit)
        found: list[CheckpointRecord] = []
        damaged: list[IntegrityError] = []
        while True:
            listing = self.store.checkpoints(run, limit=wanted, before_seq=before_seq)
            if wanted is not None and listing.damaged and not listing:
                wanted = None  # a page of nothing but damage has no number to go on from: all the rest is read
                continue
            found += [record for record in listing if archived or record.marks.status != "archived"]
            damaged += listing.damaged
            seen = len(listing) + len(listing.damaged)
            if wanted is None or limit is None or len(found) >= limit or seen < wanted:
                break
            before_seq, wanted = listing[-1].envelope.seq, max(limit, _PAGE)
        return _warned(Listing([self.opened(record) for record in found[:limit]], damaged))

    def get(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint by its id."""
        return self.opened(self.store.checkpoint(check_checkpoint_id(checkpoint)))

    def latest(self, run: str, *, sound: bool = False) -> Checkpoint:
        """Return a run's newest checkpoint; with `sound`, the newest that is whole, with what it `skipped`."""
        record = self.store.run(check_run_id(run))
        if sound and record.head is not None:
            return self._newest_sound(record)
        head = head_of(self.store, record)
        if head is None:
            raise NotFound("checkpoint of run", run)
        return self.opened(head)

    def _newest_sound(self, run: RunRecord) -> Checkpoint:
        from holdfast.verify.check import faults_in  # noqa: PLC0415 - loaded when it is used

        skipped: list[IntegrityError] = []
        for seq in range(run.last_seq, 0, -1):
            try:
                record = self.store.checkpoint_at(run.id, seq)
                if record is None:
                    continue
                faults = faults_in(self.store, record)
            except IntegrityError as error:
                skipped.append(error)
                continue
            if not faults:
                return self.opened(record, skipped)
            first = faults[0]
            skipped.append(ChunkCorrupt(first.detail, first.chunk or "", record.envelope.id, first.section))
        raise IntegrityError(f"run {run.id!r} has no sound checkpoint left: all {len(skipped)} are damaged")

    def events(self, run: str) -> list[Event]:
        """Return what happened in a run, oldest first: what, when, by whom, how long."""
        from holdfast.runtime.audit import events  # noqa: PLC0415 - only who asks pays for loading it

        head = self.latest(run)
        return events(head.log("journal"), head.log("steps"))

    def savings(self, run: str) -> Savings:
        """Return what resuming a run saved: work that was neither done nor paid for again."""
        from holdfast.runtime.audit import savings  # noqa: PLC0415

        head = self.latest(run)
        agents = head.section("agents") if "agents" in head.sections else ()
        return savings(head.log("journal"), head.log("steps"), agents)

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
            changes["label"] = label
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

    def delete(self, *checkpoints: str) -> None:
        """Delete checkpoints and give their space back; a run whose head goes stands at the newest one left."""
        from holdfast.retain.sweep import sweep  # noqa: PLC0415 - loaded when it is used

        by_run: dict[str, list[str]] = {}
        for checkpoint in dict.fromkeys(checkpoints):
            by_run.setdefault(self._run_of(check_checkpoint_id(checkpoint)), []).append(checkpoint)
        for run, doomed in by_run.items():
            self.store.delete(run, doomed)
            self._reload(run)
            try:
                sweep(self.store, run)
            except IntegrityError as error:
                warnings.warn(f"deleted, but no space is given back: {error}", DamageWarning, stacklevel=2)
        self.store.reclaim()

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
        """Delete a run, all its checkpoints and every chunk that no other run holds."""
        self.store.delete_run(check_run_id(run))
        self.control.forget(run)
        self._reload(run)

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

        With `keep` or `older_than`, delete all but the newest so many, and those older, of one run instead. The head,
        pinned ones and all that a recovery needs stay.
        """
        from holdfast.retain.prune import Pruned, carry_out, plan  # noqa: PLC0415 - loaded when it is used

        if keep is not None or older_than is not None:
            return self._prune_simply(run, keep, older_than, dry_run=dry_run)
        checked = check_policy(policy or self.settings.policy)
        runs = [check_run_id(run)] if run is not None else [record.id for record in self.runs()]
        decisions: list[Decision] = []
        for one in runs:
            decided = plan(self.store, one, checked, self._clock())
            decisions += decided
            if not dry_run:
                carry_out(self.store, one, decided)
        return Pruned(decisions)

    def _prune_simply(
        self, run: str | None, keep: int | None, older_than: timedelta | None, *, dry_run: bool
    ) -> Pruned:
        from holdfast.retain.prune import Pruned, fork_points  # noqa: PLC0415 - loaded when it is used

        before = None if older_than is None else datetime.fromtimestamp(self._clock(), UTC) - older_than
        name = check_run_id(run)
        record = self.store.run(name)
        listing = _warned(self.store.checkpoints(name))
        needed = fork_points(self.store, name)
        decisions = decide_simply(listing, head=record.head, keep=keep, before=before, needed=needed)
        doomed = [one.id for one in decisions if one.action == "delete"]
        if doomed and not dry_run:
            self.delete(*doomed)
        return Pruned(decisions)

    def verify(
        self, *, progress: Callable[[str, int], None] | None = None, remembered: Mapping[str, str] | None = None
    ) -> Report:
        """Check every record, link, head and chunk, and name each fault; changes nothing.

        With `remembered` heads (run to checkpoint id, kept outside the store), history that was cut off or rolled back
        is a fault, too.
        """
        from holdfast.verify.check import verify  # noqa: PLC0415 - loaded when it is used

        report = verify(self.store, progress=progress)
        lost = [fault for run, head in (remembered or {}).items() if (fault := self._rolled_back(run, head))]
        return msgspec.structs.replace(report, faults=(*report.faults, *lost)) if lost else report

    def _rolled_back(self, run: str, remembered: str) -> Fault | None:
        """Return a fault if a checkpoint that was once the head is neither there nor deleted by us."""
        from holdfast.verify.check import Fault  # noqa: PLC0415 - loaded when it is used

        try:
            record = self.store.checkpoint(check_checkpoint_id(remembered))
            if record.envelope.run == run and record.envelope.seq <= self.store.run(run).last_seq:
                return None
        except NotFound:
            try:
                if self.store.tombstone(check_run_id(run), remembered) is not None:
                    return None
            except NotFound:
                pass
        except IntegrityError as error:
            return Fault(kind="head", detail=str(error), run=run, checkpoint=remembered)
        detail = f"the remembered head {remembered} is gone: history was cut off or rolled back"
        return Fault(kind="head", detail=detail, run=run, checkpoint=remembered)

    def copy_to(
        self,
        target: Holdfast | Store | str | Path,
        *runs: str,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Copied]:
        """Copy runs (all, unless some are named) to another store; verified, resumable, ids and lineage kept."""
        from holdfast.transfer.copy import copy_runs  # noqa: PLC0415 - loaded when it is used

        if isinstance(target, Holdfast):
            return copy_runs(self.store, target.store, runs or None, progress=progress)
        if not isinstance(target, (str, os.PathLike)):
            return copy_runs(self.store, target, runs or None, progress=progress)
        opened = open_store(target)
        try:
            return copy_runs(self.store, opened, runs or None, progress=progress)
        finally:
            opened.close()

    def export(
        self, path: str | Path, *runs: str, progress: Callable[[str, int, int], None] | None = None
    ) -> list[Copied]:
        """Write runs with their checkpoints and files into one file that can be imported elsewhere."""
        from holdfast.transfer.bundle import export_runs  # noqa: PLC0415 - loaded when it is used

        return export_runs(self.store, runs, path, progress=progress)

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
        from holdfast.transfer.bundle import import_runs  # noqa: PLC0415 - loaded when it is used

        return import_runs(path, self.store, runs or None, key=key, progress=progress)

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:
        """Bring the store's schema up to date and return the versions applied; opening it does so, too."""
        return self.store.migrate(progress=progress)

    def add_key(self, key: str) -> None:
        """Let one more key open this encrypted store; those in use go on, so keys change without downtime."""
        self._sealed().add_key(key)

    def remove_key(self, key: str) -> None:
        """Let a key (its text or its id) open this store no longer; the last one stays."""
        self._sealed().remove_key(key)

    def key_ids(self) -> list[str]:
        """Return the names of all keys that open this store; none if it is neither encrypted nor signed."""
        return self.store.key_ids() if isinstance(self.store, SealedStore) else []

    def _sealed(self) -> SealedStore:
        if not isinstance(self.store, SealedStore):
            raise UsageError("this store has no key: a new one gets it with holdfast.open(place, key_file=...)")
        return self.store

    def stats(self) -> StoreStats:
        """Count what is stored, and say what stores it; inboxes are no runs of their own."""
        stats = self.store.stats()
        hidden = sum(is_reserved(record.id) for record in self.store.runs())
        return msgspec.structs.replace(stats, runs=stats.runs - hidden)

    def opened(self, record: CheckpointRecord, skipped: Iterable[IntegrityError] = ()) -> Checkpoint:
        """Return a record as a checkpoint that can be read."""
        return Checkpoint(
            record,
            self._packer,
            self._reader,
            max_section_bytes=self._max_section_bytes,
            get=self.get,
            skipped=tuple(skipped),
        )

    def close(self) -> None:
        """Close open runs and the store; closing twice is fine."""
        for run in list(self._open_runs):
            run.close()
        self.store.close()

    def _reload(self, run: str) -> None:
        for opened in list(self._open_runs):
            if opened.id == run:
                opened.reload()

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
    **store_options: Any,
) -> Holdfast:
    """Open a store: None is `.holdfast/` in this directory; or a path, `sqlite:///path`, `memory:`.

    Settings come from `holdfast.yaml` or `[tool.holdfast]` in pyproject.toml of this directory, unless given as a path
    or a value; what is given here wins. A key (its text, a file or an environment variable) switches encryption on.
    SQLite takes `durability="process"` (faster, and a power cut may lose the last commits) and `read_only=True`.
    """
    file: Path | None = None
    if not isinstance(settings, Settings):
        file = find_settings(Path.cwd()) if settings is None else Path(settings)
        settings = load_settings(file) if file is not None else Settings()
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
    store = seal_store(open_store(place, **store_options), key or read_key(settings), sign=settings.encryption.sign)
    return Holdfast(
        store,
        types=types,
        compression=settings.compression,
        enabled=settings.enabled,
        max_section_bytes=int(settings.max_section_mb * 1024 * 1024)
        if max_section_bytes is None
        else max_section_bytes,
        settings=settings,
        strategy=strategy,
    )


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise UsageError(f"limit={limit!r}: give a number from 0 up, or None for all")
    return limit


def _warned(listing: Listing[Any]) -> Listing[Any]:
    if listing.damaged:
        warnings.warn(f"{len(listing.damaged)} damaged: {listing.damaged[0]}", DamageWarning, stacklevel=3)
    return listing
