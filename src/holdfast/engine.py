"""`Holdfast`: an open store, as users hold it; joins capture, store, verification and retention."""

from __future__ import annotations

import logging
import os
import time
import warnings
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import msgspec

from holdfast.control import Control
from holdfast.encode.types import TypeRegistry
from holdfast.errors import (
    CheckpointCorrupt,
    IntegrityError,
    NotFound,
    RecoveryIncomplete,
    UsageError,
)
from holdfast.internals import Internals
from holdfast.lazy import lazily
from holdfast.model.ids import check_checkpoint_id, check_run_id, checkpoint_of_name, is_reserved
from holdfast.recovery.facade import Recovery, RunHistory
from holdfast.recovery.record import is_undo_point
from holdfast.retain.policy import check_policy, policy_by_hand
from holdfast.settings.environment import config_folder
from holdfast.settings.file import check_settings, find_settings, load_settings, located, project_settings
from holdfast.settings.outside import read_key
from holdfast.settings.values import Settings, merged
from holdfast.store.api import Listing
from holdfast.store.captures import captures_of, sweep_captures
from holdfast.store.epoch_memory import EpochMemory
from holdfast.store.keys import keys_of, seal_store
from holdfast.store.open import open_store
from holdfast.store.queries import (
    CheckpointFilters,
    RunFilters,
    check_attributes,
    check_key,
    checked_filters,
    cleaned_attributes,
)
from holdfast.store.tables import MAIN
from holdfast.transfer.facade import Transfer

with lazily():
    from holdfast import run as run_module
    from holdfast.journal import feed
    from holdfast.recovery import apply as apply_module
    from holdfast.recovery import compare, enter, finish, gather, verdict
    from holdfast.recovery import find as find_module
    from holdfast.recovery import fork as fork_module
    from holdfast.recovery import replay as replay_module
    from holdfast.recovery import undo as undo_module
    from holdfast.retain import compact as compact_module
    from holdfast.retain import prune
    from holdfast.retain import sweep as sweep_module
    from holdfast.runtime import audit, cost
    from holdfast.verify import check
    from holdfast.worker import submit, wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from holdfast.capture.protection import OnFailure
    from holdfast.capture.strategy import Condition
    from holdfast.capture.watch import EntryCheck
    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.compress import CodecName
    from holdfast.flow.model import Flow
    from holdfast.journal.feed import Feed
    from holdfast.model.checkpoint import CheckpointRecord, RunRecord, Status
    from holdfast.model.verdicts import Verdict
    from holdfast.recovery.compare import CheckpointDiff
    from holdfast.recovery.plan import PlanOptions, RecoveryPlan
    from holdfast.recovery.replay import Replay
    from holdfast.recovery.result import RecoveryResult
    from holdfast.recovery.subject import SubjectProvider
    from holdfast.retain.policy import RetentionPolicy
    from holdfast.retain.prune import Pruned, RunPlan
    from holdfast.run import Run
    from holdfast.runtime.audit import Event
    from holdfast.runtime.cost import RunCost
    from holdfast.runtime.waits import Waiting
    from holdfast.store.api import StoreStats
    from holdfast.store.keys import StoreKeys
    from holdfast.store.store import Store
    from holdfast.verify.check import Report
    from holdfast.worker.submit import Order
    from holdfast.workspace.options import WorkspaceOptions

_log = logging.getLogger("holdfast")
_PAGE = 100
_MARK_TRIES = 20


class DamageWarning(UserWarning):
    """A list is shorter than it should be, because some of its records are damaged."""


class Keys:
    """The keys that open one store; none if it is neither encrypted nor signed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ids(self) -> list[str]:
        """Return the names of all keys that open the store."""
        keys = keys_of(self._store)
        return keys.ids() if keys is not None else []

    def add(self, key: str) -> None:
        """Let one more key open the store; those in use stay, so keys change without downtime."""
        self._required().add(key)

    def remove(self, key: str) -> None:
        """Retire a key (its text or its id): it opens nothing that is written from now on; the last one stays."""
        self._required().remove(key)

    def _required(self) -> StoreKeys:
        keys = keys_of(self._store)
        if keys is None:
            raise UsageError("this store has no key: a new one gets it with holdfast.open(place, key_file=...)")
        return keys


class Holdfast:
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
        self.store = store
        self.internals = Internals(
            store,
            self.settings,
            types if isinstance(types, TypeRegistry) else TypeRegistry(types),
            max_section_bytes=max_section_bytes,
            strategy=strategy,
            clock=clock,
            monotonic=monotonic,
            entropy=entropy,
            root=root,
            reveal=reveal,
        )
        """What the packages of Holdfast itself use; no promise is made about it."""
        self.control = Control(self.internals, self._wake_queue)
        """Answers, signals, pause, cancel and budgets for runs that other processes move."""
        self.recovery = Recovery(self)
        """Where runs can continue from, and what became of those whose process is gone."""
        self.files = RunHistory(self)
        """Which call, agent or person made what of a run's files."""
        self.transfer = Transfer(store)
        """Runs from one store to another, or into a file."""
        self.keys = Keys(store)
        """The keys that open an encrypted or signed store."""

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
        writer = self.internals.writer(
            run, workspace=workspace, workspace_options=workspace_options, rewinding=rewinding
        )
        writer.about = about
        opened = run_module.Run(self, run, writer, waiting=waiting, entry_check=self._entry_check(subject, verdicts))
        self.internals.open_runs.add(opened)
        head = writer.head
        if head is not None and not rewinding and is_undo_point(head):
            done = finish.finish_interrupted(self, opened)
            if done is not None and not done.success:
                opened.close()
                raise RecoveryIncomplete(run, str(done.restored_from), done.errors)
        return opened

    def _about(self, run: str, key: str | None, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run's row gets of a caller's key and attributes; those that it has stay."""
        about: dict[str, Any] = {} if key is None else {"key": self.internals.clean(key)}
        if attributes:
            try:
                known = self.store.row_of(run).attributes
            except NotFound:
                known = {}
            about["attributes"] = {**known, **cleaned_attributes(attributes, self.internals.clean)}
        return about

    def submit(self, work: Flow | str | os.PathLike[str], **order: Unpack[Order]) -> str:
        """Store a run and hand it to workers, which continue it on any machine; return its id. See docs/SCALE.md.

        `work` is a flow, its file, or `module:function`: a program of the workers' own, called with the run.
        """
        return submit.submit(self, work, **order)

    def _entry_check(
        self, subject: SubjectProvider | str | None, verdicts: Mapping[str, Verdict] | None
    ) -> Callable[[Run], EntryCheck]:
        """Return what looks at a run when it is entered; a subject that cannot be used is refused now."""
        given = None
        if subject is not None or verdicts is not None:
            given = verdict.freshness_of(self, verdict.Freshness(), subject, verdicts)
        return lambda run: enter.OpenRun(
            self,
            run,
            freshness=given or verdict.freshness_of(self, verdict.Freshness()),
            calls=run.host.calls_under_way,
        )

    def _wake_queue(self, run: str, number: int) -> None:
        """Wake a run that was submitted to workers; only a store that they share has such runs."""
        if self.store.url.startswith("postgresql:"):
            wake.wake_queue(self.store, run, number, temporal=self.settings.workers.temporal)

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
        self.internals.finish_retention(check_run_id(run))
        if not self.internals.is_stored(run):
            return Listing([], [])
        wanted = _checked_limit(limit)
        if where or line != MAIN:
            where = where if archived or "status" in where else {**where, "archived": False}
            chosen = self.store.queries.checkpoints(run, where, limit=limit, before_seq=before_seq, line=line)
            return _warned(Listing([self.internals.opened(record) for record in chosen], chosen.damaged))
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
        return _warned(Listing([self.internals.opened(record) for record in found[:limit]], damaged))

    def get(self, checkpoint: str) -> Checkpoint:
        """Return a checkpoint by its id, or a position of a run's journal: RUN#812."""
        if isinstance(checkpoint, str) and "#" in checkpoint:
            return self.find(checkpoint, sound=False)
        if isinstance(checkpoint, str) and checkpoint_of_name(checkpoint) is not None:
            return self.find(checkpoint)
        return self.internals.opened(self.store.checkpoint(check_checkpoint_id(checkpoint)))

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
            return self.internals.latest(run, sound=sound)
        except NotFound:
            if required:
                raise
            return None

    def find(self, spec: str, *, run: str | None = None, sound: bool = True) -> Checkpoint:
        """Return a checkpoint by id, beginning of an id, label, `run`, `run@7`, `latest~3`, `run:before:phase`.

        `run#812` is a position in the run's journal: the newest checkpoint at or before it, and the records up to it.
        Where the spec names a run, damaged checkpoints are passed over unless `sound` is off; they are in `skipped`.
        """
        return find_module.find(self, spec, run=run, sound=sound)

    def plan(self, spec: str, *, run: str | None = None, **options: Unpack[PlanOptions]) -> RecoveryPlan:
        """Return exactly what going back to a checkpoint, or to a position, would do, files too; nothing is touched.

        The options are those of `holdfast.recovery.plan.PlanOptions`. A checkpoint that blocks gives a plan with
        `blockers`; NotFound or IntegrityError if there is none to go to. What moved outside the run since (branch,
        files, program, the `subject` if that is named) is in its `findings`, each with what follows from it.
        """
        return gather.plan_recovery(self, spec, options, run=run)

    def recover(
        self,
        plan: RecoveryPlan | str,
        *,
        run: Run | None = None,
        confirmed: bool = False,
        dry_run: bool = False,
        replay: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **options: Unpack[PlanOptions],
    ) -> RecoveryResult:
        """Carry out a plan, exactly that or nothing; with a spec instead, plan it first with these options.

        `run` is the open run whose registered objects get their state back. A result without success says why, and
        nothing was touched. PlanOutdated if the world moved since. Doing it twice is the same as once. Where what moved
        outside asks for a person, RunWaiting is raised, and where it means to start fresh CannotResume, unless the
        plan is `confirmed`. A dry run gives the plan in its result, `replay` the record to step through with next().
        """
        return apply_module.recover(
            self,
            plan,
            run=run,
            confirmed=confirmed,
            dry_run=dry_run,
            replay=replay,
            progress=progress,
            options=options,
        )

    def undo(
        self,
        run: str | Run,
        *,
        workspace: str | os.PathLike[str] | None = None,
        workspace_options: WorkspaceOptions | None = None,
        take: bool = False,
        allow_outside_links: bool = False,
    ) -> RecoveryResult:
        """Go back to before the last recovery, files too; undoing the undo goes forward again.

        What a person changed since the recovery is kept, and named in the warnings; with `take` it is not. A recovery
        that another user made is undone only in the given `workspace`, and links that lead out of it are restored
        only with `allow_outside_links`.
        """
        return undo_module.undo(
            self,
            run,
            workspace=workspace,
            workspace_options=workspace_options,
            take=take,
            allow_outside_links=allow_outside_links,
        )

    def fork(
        self,
        spec: str,
        new_run: str,
        *,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        label: str | None = None,
    ) -> Checkpoint:
        """Begin a new run from any checkpoint or position, with edited sections if some are given."""
        return fork_module.fork(self, spec, new_run, sections=sections, drop=drop, label=label)

    def replay(self, spec: str) -> Replay:
        """Step through a run by its record: results, state and files at each point, and nothing is called."""
        return replay_module.replay(self, spec)

    def diff(self, old: str | Checkpoint, new: str | Checkpoint, *, run: str | None = None) -> CheckpointDiff:
        """Compare two checkpoints or positions, of one run or of two: state, calls and notes, files by content."""
        return compare.diff(self, old, new, run=run)

    def events(self, run: str) -> list[Event]:
        """Return what happened in a run, oldest first: what, when, by whom, how long."""
        present = self.internals.present_of(run)
        return audit.events(present.log("journal"), present.log("steps"))

    def cost(self, run: str) -> RunCost:
        """Return what a run cost, by call, agent and phase: on its present path, and in all that it ever did."""
        head = self.internals.present_of(run)
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
            changes["label"] = self.internals.clean(label) if isinstance(label, str) else label
        self.internals.mark(checkpoint, **changes)
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
            self.internals.reload(run)
            self.internals.tidy_mirror(run)
            try:
                sweep_module.sweep(self.store, run)
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
        """Delete a run, all its checkpoints and every chunk that no other run holds; an unknown one is not an error."""
        if not self.internals.is_stored(check_run_id(run)):
            return
        self.store.delete_run(run)
        sweep_captures(self.store, run, datetime.max.replace(tzinfo=UTC))
        self.internals.reload(run)
        self.internals.tidy_mirror(run)

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
        now = self.internals.now()
        for opened in {one.run for one in self.internals.retention} if run is None else {check_run_id(run)}:
            self.internals.finish_retention(opened)
        if run is not None and not self.internals.is_stored(run):
            return prune.Pruned(())
        runs = self.runs() if run is None else [self.store.run(run)]
        pruned = prune.Pruned(prune.plan_all(self.store, chosen, now, runs))
        for one in () if dry_run else pruned.plans:
            try:
                self._prune_run(one, chosen, now, compacts=not by_hand)
            except NotFound:
                if self.internals.is_stored(one.run.id):
                    raise  # else somebody deleted the run since it was listed: nothing is left to prune
        return pruned

    def _prune_run(self, plan: RunPlan, policy: RetentionPolicy, now: datetime, *, compacts: bool) -> None:
        """Carry out what retention says of one run."""
        run = plan.run
        if compacts and not plan.is_whole:
            compact_module.compact(self.store, run.id, policy, now)
        if self.store.leases.running(run.id) is None:
            sweep_captures(self.store, run.id, now)
        if plan.is_whole or plan.changes:
            prune.carry_out(self.store, plan, now=now)
            if any(gone.id == run.head for gone in plan.changes):
                self.internals.reload(run.id)
            self.internals.tidy_mirror(run.id)

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
        since, is_sound = perf_counter(), False
        try:
            if checkpoint is not None:
                name = checkpoint if isinstance(checkpoint, str) else checkpoint.id
                report = check.verify_checkpoint(self.store, check_checkpoint_id(name))
            else:
                report = check.verify(self.store, progress=progress, remembered=remembered)
            is_sound = report.sound
        finally:
            self.internals.tell("verified", since=since, is_good=is_sound)
        return report

    def follow(
        self, runs: str | Iterable[str] | None = None, after: str | None = None, *, wait_s: float | None = None
    ) -> Feed:
        """Return committed records and checkpoints of any process, as they come: all runs, or some.

        `after` is the `cursor` of an earlier feed, `"end"` for what comes from now on, None for all that is there.
        It waits for more without an end, or ends when nothing came for `wait_s` (0: with what is there).
        """
        return feed.Feed(self.store, [runs] if isinstance(runs, str) else runs, after, wait_s=wait_s)

    def stats(self) -> StoreStats:
        """Count what is stored, and say what stores it; inboxes are not runs of their own."""
        return self.store.stats()

    def close(self) -> None:
        """Close open runs and the store; closing twice is fine."""
        for run in list(self.internals.open_runs):
            run.close()
        for worker in list(self.internals.retention):
            worker.stop()
        self.store.close()

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


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise UsageError(f"limit={limit!r}: give a number from 0 up, or None for all")
    return limit


def _warned(listing: Listing[Any]) -> Listing[Any]:
    if listing.damaged:
        warnings.warn(f"{len(listing.damaged)} damaged: {listing.damaged[0]}", DamageWarning, stacklevel=3)
    return listing
