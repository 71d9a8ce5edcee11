"""Carrying a recovery out: an undo point, then files, then one commit; killed anywhere, it is finished or undone.

The undo point holds the plan that is being carried out. Files change all at once or not at all, and only after it; so
whoever finds an undo point at the head knows from the files which side of the change the kill was on.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.writer import RecordDraft
from holdfast.encode.chunks import ChunkReader
from holdfast.errors import (
    CaptureFailed,
    ChunkCorrupt,
    HoldfastError,
    IntegrityError,
    NotFound,
    PlanOutdated,
    RecoveryError,
    RestoreConflict,
    RestoreFailed,
    RestoreRefused,
    StoreError,
    UsageError,
)
from holdfast.journal.call_record import call_of_line
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger
from holdfast.model.verdicts import OF_POSITION
from holdfast.recovery.find import mark_corrupted
from holdfast.recovery.gather import (
    file_capture,
    plan_recovery,
    present,
    record_of,
    steps_of,
    stored_intent,
    world_moved,
)
from holdfast.recovery.outcomes import closing_records, decided_records, decided_steps
from holdfast.recovery.plan import checked_options
from holdfast.recovery.record import INTENT, SECTION, RecoveryRecord, accepted_name, intent_value, read_record
from holdfast.recovery.result import RecoveryResult
from holdfast.recovery.sections import Restoring, restored
from holdfast.recovery.verdict import enforce
from holdfast.runtime.phases import following_label
from holdfast.verify.check import faults_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.recovery.plan import PlanOptions, RecoveryPlan
    from holdfast.run import Run
    from holdfast.workspace.options import WorkspaceOptions
    from holdfast.workspace.restore import RestoreReport

_log = logging.getLogger("holdfast")
_CHANGING = ("agents", "graph", "workflow", "waits", "status")
_HALFWAY = (RestoreRefused, RestoreConflict, RestoreFailed, CaptureFailed, IntegrityError, StoreError, OSError)
Progress = "Callable[[int, int], None]"


def recover(
    hf: Holdfast,
    plan: RecoveryPlan | str,
    *,
    run: Run | None = None,
    confirmed: bool = False,
    dry_run: bool = False,
    replay: bool = False,
    progress: Callable[[int, int], None] | None = None,
    options: PlanOptions | None = None,
) -> RecoveryResult:
    """Carry out exactly this plan, or a plan of this checkpoint; a result without success touched nothing.

    PlanOutdated if the run, the checkpoint or a file is not as the plan saw it. Doing it twice is the same as once.
    Unless it is `confirmed`, RunWaiting where the verdict is to ask, CannotResume where it is to start fresh.
    """
    asked = checked_options(options or {})
    belongs = [name for name in asked if name != "workspace_options"]
    if not isinstance(plan, str) and belongs:
        raise UsageError(f"{belongs[0]}= belongs into the plan: hf.plan(..., {belongs[0]}=...)")
    workspace_options = asked.get("workspace_options")
    try:
        ready = _ready(hf, plan, asked, is_shown_only=dry_run or replay)
    except (NotFound, IntegrityError) as error:
        _mark_damaged(hf, error)
        return RecoveryResult(success=False, run=run.id if run is not None else "", errors=(str(error),))
    if isinstance(ready, RecoveryResult):
        return ready
    plan = ready
    if dry_run or replay:
        return _shown(hf, plan, replay=replay)
    if run is not None and run.id != plan.run:
        raise UsageError(f"the plan is for run {plan.run!r}, the open run is {run.id!r}")
    if not hf.settings.enabled:
        raise UsageError("checkpointing is disabled, so a recovery could not be undone: enable it")
    try:
        record = checked(hf, plan)
    except (NotFound, IntegrityError, RecoveryError) as error:
        _mark_damaged(hf, error)
        return _refused(plan, str(error))
    if plan.blockers:
        return _refused(plan, *plan.blockers)
    if not confirmed:
        enforce(plan.run, plan.checkpoint, plan.findings)
    with handle_for(hf, plan, run, workspace_options) as handle, handle.lock:
        try:
            return PlanApplication(hf, handle, plan, record, workspace_options, progress).carry_out()
        finally:
            hf.internals.last_look = None  # what it saw is no longer so


def _mark_damaged(hf: Holdfast, error: HoldfastError) -> None:
    """Let lists show that a checkpoint is damaged; a store that cannot be written stays as it is."""
    checkpoint = getattr(error, "checkpoint", None)
    if isinstance(error, IntegrityError) and isinstance(checkpoint, str):
        with suppress(HoldfastError):
            hf.mark(checkpoint, status="corrupted")


def _ready(
    hf: Holdfast,
    plan: RecoveryPlan | str,
    options: PlanOptions,
    *,
    is_shown_only: bool,
) -> RecoveryPlan | RecoveryResult:
    """Return the plan to carry out; for a spec, what a kill left is ended first, and if that was it, its result."""
    if not isinstance(plan, str):
        return plan

    def planned() -> RecoveryPlan:
        return plan_recovery(hf, plan, options)

    from holdfast.recovery.finish import end_interrupted  # noqa: PLC0415 - it carries recoveries out by this module

    if is_shown_only:
        return planned()
    return end_interrupted(hf, planned(), planned, options=options.get("workspace_options"))


@contextmanager
def handle_for(hf: Holdfast, plan: RecoveryPlan, run: Run | None, options: WorkspaceOptions | None) -> Iterator[Run]:
    """Give the run's open handle, or one for this recovery only; its lease is held meanwhile."""
    opened = run or hf.internals.open_run(plan.run)
    place = plan.request.workspace if plan.request.into is None else None
    if run is not None and place is not None and not run.host.has_workspace:
        raise UsageError(f"the plan puts files back: open the run with workspace={place!r}")
    if opened is not None and (place is None or opened.host.has_workspace):
        with opened.held():
            yield opened
        return
    handle = hf.run(plan.run, workspace=place, workspace_options=options, rewinding=True)
    look = hf.internals.last_look
    if look is not None and look.capture is not None and look.plan is not None and look.plan == plan.files:
        handle.workspace.capture.learn(look.capture)
    try:
        with handle.held():
            yield handle
    finally:
        handle.close()
        if opened is not None:
            opened.recorder.reload()


def checked(hf: Holdfast, plan: RecoveryPlan) -> CheckpointRecord:
    """Return the plan's checkpoint, whole and the one that it was; file contents are checked when they are staged."""
    record = record_of(hf, plan)
    if record.checksum.hex() != plan.checksum or record.envelope.run != plan.run:
        raise PlanOutdated(plan.run, (f"checkpoint {plan.checkpoint} is another one",))
    values = tuple(section for section in record.envelope.sections if section.name != WORKSPACE)
    envelope = msgspec.structs.replace(record.envelope, sections=values)
    faults = faults_in(hf.store, msgspec.structs.replace(record, envelope=envelope))
    if faults:
        raise ChunkCorrupt(faults[0].detail, faults[0].chunk or "", plan.checkpoint, faults[0].section)
    return record


def _shown(hf: Holdfast, plan: RecoveryPlan, *, replay: bool) -> RecoveryResult:
    """Return what a plan would come to; nothing is touched."""
    from holdfast.recovery.replay import replay as open_replay  # noqa: PLC0415 - only who asks pays for it

    return RecoveryResult(
        success=not plan.blockers,
        run=plan.run,
        restored_from=plan.checkpoint,
        skipped_agents=plan.skipped_agents,
        warnings=plan.all_warnings,
        errors=plan.blockers,
        plan=plan,
        replay=open_replay(hf, plan.place or plan.checkpoint) if replay else None,
        is_dry=True,
    )


def _refused(plan: RecoveryPlan, *errors: str) -> RecoveryResult:
    return RecoveryResult(
        success=False, run=plan.run, restored_from=plan.checkpoint, warnings=plan.all_warnings, errors=errors
    )


@dataclass
class PlanApplication:
    """One recovery under way."""

    hf: Holdfast
    run: Run
    plan: RecoveryPlan
    record: CheckpointRecord
    options: WorkspaceOptions | None
    progress: Callable[[int, int], None] | None
    report: RestoreReport | None = None
    has_changed_files: bool = False
    has_moved_git: bool = False
    is_committing: bool = False
    has_captured: bool = False
    """Whether the tree was captured here, so that only what is restored has changed since."""

    @cached_property
    def source(self) -> Checkpoint:
        """The checkpoint to go back to, with what the journal had after it when the plan was made."""
        return self.hf.internals.reached(self.record, self.plan.number)

    def carry_out(self) -> RecoveryResult:
        """Do it, or leave everything as it was and say why."""
        stands = self.hf.store.run(self.plan.run)
        head = stands.head
        done = self._is_done(head)
        if done is not None:
            self.run.host.go_back_to(done)
            return self._result(done, undo=self._record_of(done).undo)
        begun = self._is_begun(head)
        if not begun:
            try:
                self._check_world(stands)
            except IntegrityError as error:
                return _refused(self.plan, str(error))
            if self._changes_nothing(head):
                self.run.host.go_back_to(self.source)
                return self._result(self.source, undo=None)
        undo: CheckpointRecord | None = None
        try:
            undo = self.run.recorder.head_record if begun else self._undo_point()
            if self._needs_files(begun=begun):
                self.run.host.go_back_to(self.source)  # what cannot be put back says so before files change
                self._restore_files()
            return self.commit(undo)
        except _HALFWAY as error:
            return self._settle(undo, error)
        except BaseException:
            self._settle(undo, None)
            raise

    def finish(self, undo: CheckpointRecord) -> RecoveryResult:
        """Do what was left when a kill came after the files: git, then the commit.

        Files that somebody may have edited since are not taken back for a git that has to stay: that is an error of the
        result, and stored with the run.
        """
        errors: tuple[str, ...] = ()
        if self.plan.git:
            try:
                self._restore_files()
            except _HALFWAY as error:
                errors = (f"git is not put back: {error}",)
        return self.commit(undo, errors)

    def commit(self, undo: CheckpointRecord | None, errors: tuple[str, ...] = ()) -> RecoveryResult:
        """Make the checkpoint's state the head, in one commit, and give it to what is registered."""
        plan, source = self.plan, self.source
        present_head = self.run.head
        spent = self._spent(source, present_head)
        self.run.host.go_back_to(source)
        at = present(self.hf, plan.run)
        warnings = (*plan.all_warnings, *self._left_alone(source))
        told = RecoveryRecord(
            source=plan.checkpoint,
            undo=undo.envelope.id if undo is not None else None,
            at=at,
            plan=plan.digest,
            kind=plan.kind,
            warnings=(*warnings, *errors),
            skipped_agents=plan.skipped_agents,
            workspace=plan.files.target if plan.files is not None and plan.request.into is None else "",
            git=plan.request.git,
            accepted=self._accepted(present_head),
        ).marked(plan.run, undo)
        sections = self._sections(source, at)
        self.run.note("recovered" if plan.kind == "recover" else "undone", f"from {plan.place or plan.checkpoint}")
        sections |= self._edits(source, present_head) | self._subject(source, at) | spent
        dropped = [INTENT] if INTENT in source.sections else []
        if plan.request.reset_to is not None and "error" in source.sections:
            dropped.append("error")
        self.is_committing = True
        with self._only_in(self._restored_directories()):
            made = self.run.checkpoint(
                trigger=Trigger.RECOVERY,
                reason=f"{'undone: back to' if plan.kind == 'undo' else 'recovered from'} "
                f"{plan.place or f'checkpoint {plan.seq}'}",
                sections={**sections, SECTION: told.value()},
                drop=dropped,
                files=self.run.host.has_workspace and plan.request.into is None,
                phase=self.record.envelope.summary.phase,
                onto=source,
                calls=self._decided(source, at),
            )
        self.is_committing = False
        with suppress(HoldfastError):  # a mark is for lists; the damage itself is found again
            mark_corrupted(self.hf.store, plan.damage)
        self.run.host.go_back_to(made)
        return self._result(made, undo=told.undo, warnings=warnings, errors=errors)

    def _sections(self, source: Checkpoint, at: datetime) -> dict[str, Any]:
        """Return the sections that are restored otherwise than they were stored."""
        plan = self.plan
        if plan.kind == "undo":
            return {}
        values = {name: source.section(name) for name in _CHANGING if name in source.sections}
        request = plan.request
        decided = (*decided_steps(plan.unknown), *plan.closed)
        return restored(values, Restoring.of(request, decided), at=at)

    def _decided(self, source: Checkpoint, at: datetime) -> list[RecordDraft]:
        """Return what was decided on calls of unknown outcome, and what closes those open there, as records."""
        plan = self.plan
        if plan.kind == "undo" or not (plan.unknown or plan.closed):
            return []
        steps = steps_of(source)
        lines = [*decided_records(plan.unknown, steps, at), *closing_records(steps, plan.closed, at)]
        return [RecordDraft(*call_of_line(line, self.run.host)) for line in lines]

    def _subject(self, source: Checkpoint, at: datetime) -> dict[str, Any]:
        """Return the subject as it is now, in place of what the checkpoint knew of it."""
        now = self.plan.subject
        known = source.section("subject") if "subject" in source.sections else None
        if now is None or known is None:
            return {}
        taken = {name: getattr(now, name) for name in ("title", "body", "labels", "assignees", "branch", "url")}
        told = {"subject": msgspec.structs.replace(known, **taken, seen_at=at)}
        if known.labels == now.labels or "phases" not in source.sections or "flow" in source.sections:
            return told
        moved = following_label(source.section("phases"), now.labels, at, before=known.labels)
        return told if moved is None else {**told, "phases": moved[1]}

    def _spent(self, source: Checkpoint, now: Checkpoint | None) -> dict[str, Any]:
        """Return the budgets as they are now: going back gives back neither what was spent nor what was raised.

        What is counted once by a key is counted again when it is done again.
        """
        try:
            if now is None or "budget" not in now.sections:
                return {}
            budget = now.section("budget")
        except IntegrityError:  # the newest that is sound is where this goes: what it says is all that is known
            return {}
        known = source.section("budget") if "budget" in source.sections else None
        kept = msgspec.structs.replace(budget, counted=known.counted if known is not None else [])
        return {"budget": kept} if kept != known else {}

    def _edits(self, source: Checkpoint, now: Checkpoint | None) -> dict[str, Any]:
        """Return what people left and the plan keeps, so that it stays theirs in the line that begins here.

        Of a present that is damaged that is what the plan saw.
        """
        if self.plan.files is None or self.plan.request.into is not None:
            return {}
        from holdfast.workspace.ownership import EDITS, edits_value, fingerprint, read_edits  # noqa: PLC0415

        before = read_edits(source.section(EDITS)) if EDITS in source.sections else {}
        kept = {item.path: fingerprint(item.disk) for item in self.plan.files.kept("person", "unknown")}
        head = {}
        with suppress(IntegrityError):
            head = read_edits(now.section(EDITS)) if now is not None and EDITS in now.sections else {}
        after = {**before, **head, **kept}
        return {EDITS: edits_value(after)} if after != before else {}

    def _accepted(self, now: Checkpoint | None) -> tuple[str, ...]:
        """Return what a person accepted of a repository that is not captured here, so that nobody is asked again."""
        if self.plan.kind == "undo" or self.plan.request.workspace is not None:
            return ()
        before: tuple[str, ...] = ()
        with suppress(IntegrityError):
            before = self._record_of(now).accepted if now is not None else ()
        moved = [one for one in self.plan.findings if one.kind in OF_POSITION and one.verdict in ("ask", "fresh")]
        return tuple(dict.fromkeys((*before, *(accepted_name(self.record, one.detail) for one in moved))))

    def _is_done(self, head: str | None) -> Checkpoint | None:
        """Return the head if it is what this very plan made."""
        if head is None or head == self.plan.head:
            return None
        try:
            checkpoint = self.hf.get(head)
            told = self._record_of(checkpoint)
        except (NotFound, IntegrityError):
            return None
        is_made = checkpoint.trigger == Trigger.RECOVERY and INTENT not in checkpoint.sections
        return checkpoint if is_made and told.plan == self.plan.digest else None

    def _record_of(self, checkpoint: Checkpoint) -> RecoveryRecord:
        told = read_record(checkpoint.section(SECTION)) if SECTION in checkpoint.sections else None
        return told or RecoveryRecord(source=None, undo=None, at=checkpoint.created_at)

    def _is_begun(self, head: str | None) -> bool:
        """Tell whether the head is the undo point of this very plan: then a kill came between it and the end."""
        if head is None or head == self.plan.head:
            return False
        try:
            intent = stored_intent(self.hf, self.hf.store.checkpoint(head))
        except (NotFound, IntegrityError):
            return False
        return intent is not None and intent[0].digest == self.plan.digest

    def _check_world(self, stands: RunRecord) -> None:
        head, end = stands.head, stands.number
        moved = [] if head == self.plan.head else [f"the head was {self.plan.head}, and is {head}"]
        moved += [] if end == self.plan.end else [f"the journal ended at #{self.plan.end}, and ends at #{end}"]
        moved += world_moved(self.hf, self.plan, self.options) if not moved else []
        if moved:
            raise PlanOutdated(self.plan.run, tuple(moved))
        if self.plan.files is not None:
            from holdfast.recovery.files import check_contents  # noqa: PLC0415

            check_contents(ChunkReader(self.hf.store.fetch), self.plan.files)

    def _changes_nothing(self, head: str | None) -> bool:
        """Tell whether the run stands there already, so that nothing is to be written."""
        plan = self.plan
        asked = (
            plan.subject is not None
            or any(one.verdict in ("ask", "fresh") for one in plan.findings)  # confirmed: the next process must not ask
            or plan.request.skip_failed
            or plan.request.reset_to
            or any(each.decided for each in plan.unknown)
        )
        files = plan.files is not None and plan.files.changes
        agents = plan.pending_agents or plan.skipped_agents
        is_there = (head or "") == plan.checkpoint and plan.number == plan.end
        if not is_there or asked or files or agents or plan.git or self.run.recorder.live.names:
            return False
        return not self._sections(self.source, plan.made_at)

    def _undo_point(self) -> CheckpointRecord | None:
        """Keep the present with what is about to be done to it; the head is enough if nothing else could be lost."""
        plan, run = self.plan, self.run
        here = plan.request.into is None
        changes_files = plan.files is not None and bool(plan.files.changes or plan.git) and here
        head = run.recorder.head_record
        leaves_journal = plan.number < plan.end and (head is None or head.number < plan.end)
        has_more = changes_files or run.recorder.live.names or leaves_journal
        looked = run.workspace.capture.looked(run.recorder.head_record) if run.host.has_workspace else None
        if not has_more and not (run.host.has_workspace and (run.workspace.changes() if looked is None else looked)):
            return run.recorder.head_record
        is_head_lost = (run.recorder.head_record is None and plan.head is not None) or any(
            each.checkpoint == plan.head for each in plan.damage
        )
        with self._only_in(looked):
            taken = run.checkpoint(
                trigger=Trigger.RECOVERY,
                reason=f"before going back to {plan.place or f'checkpoint {plan.seq}'}",
                sections={INTENT: intent_value(plan.to_json())},
                files=run.host.has_workspace and here,
                onto=self.source if is_head_lost else None,
            )
        self.has_captured = run.host.has_workspace and here
        return taken.record

    def _only_in(self, directories: frozenset[bytes] | None) -> AbstractContextManager[None]:
        """Let the next capture go through these directories alone, where all others were looked at just now."""
        return self.run.workspace.capture.only_in(directories) if self.run.host.has_workspace else nullcontext()

    def _restored_directories(self) -> frozenset[bytes] | None:
        """Return the directories in which a restore changed names, None if more may have changed."""
        if not self.has_captured or self.plan.files is None:
            return None
        from holdfast.workspace.planning import directories_of  # noqa: PLC0415

        return directories_of(self.plan.files)

    def _needs_files(self, *, begun: bool) -> bool:
        files = self.plan.files
        if files is None or not (files.changes or self.plan.git):
            return False
        if not begun:
            return True
        from holdfast.recovery.files import progress_of  # noqa: PLC0415

        return progress_of(files) == "untouched" or bool(self.plan.git)

    def _restore_files(self) -> None:
        from holdfast.recovery.files import progress_of  # noqa: PLC0415
        from holdfast.workspace.git_create import Asked, announce, has_repository, put_git  # noqa: PLC0415
        from holdfast.workspace.restore import apply, recover_interrupted  # noqa: PLC0415

        plan, wanted = self.plan, self.hf.internals.opened(self.record).workspace
        reader = ChunkReader(self.hf.store.fetch)
        assert plan.files is not None
        if plan.request.into is not None:
            from pathlib import Path  # noqa: PLC0415

            Path(plan.files.target).mkdir(mode=0o700, parents=True, exist_ok=True)
        recover_interrupted(plan.files.target)
        if plan.files.changes and progress_of(plan.files) == "untouched":
            if plan.git:
                announce(plan.files.target, wanted)
            since, report = perf_counter(), None
            try:
                self.report = report = apply(plan.files, reader, progress=self.progress)
            finally:
                is_whole = report is not None and report.verified
                self.hf.internals.tell("restored", plan.run, since=since, is_good=is_whole)
            self.has_changed_files = plan.request.into is None
        if plan.git:
            safe = self.run.head.git if self.run.head is not None else None
            self.has_moved_git = has_repository(plan.files.target)
            put_git(plan.files.target, wanted, reader, Asked(plan.request.git, plan.request.clone), safe=safe)

    def _settle(self, undo: CheckpointRecord | None, error: Exception | None) -> RecoveryResult:
        """Find out how far a recovery came that an error ended: it is done after all, or put back, or left to be ended.

        Left to be ended is what nobody can tell now: the undo point is the head then, and the next opening sees.
        """
        told = [str(error)] if error is not None else []
        if self.is_committing:
            try:
                done = self._is_done(self.hf.store.run(self.plan.run).head)
            except HoldfastError:
                return _refused(self.plan, *told, "whether it was stored is not known; opening the run again ends it")
            if done is not None:
                self.run.recorder.reload()
                self.run.host.go_back_to(done)
                return self._result(done, undo=self._record_of(done).undo)
        if self.plan.files is not None and self._is_restore_open():
            return _refused(self.plan, *told, "the restore of files is still open; opening the run again ends it")
        return self._put_back(undo, told)

    def _is_restore_open(self) -> bool:
        from holdfast.recovery.files import is_interrupted  # noqa: PLC0415

        return self.plan.files is not None and is_interrupted(self.plan.files.target)

    def _put_back(self, undo: CheckpointRecord | None, told: list[str]) -> RecoveryResult:
        """Undo what was done so far; where even that fails, say where the present is kept."""
        try:
            if undo is not None and self.has_changed_files:
                self._put_files_back(undo)
            if undo is not None and self.has_moved_git:
                self._put_git_back(undo)
            if undo is not None:
                self.run.host.go_back_to(self.hf.internals.opened(undo))
        except (HoldfastError, OSError) as worse:
            _log.warning("run %s: a recovery could not be undone: %s", self.plan.run, worse)
            kept = f"; checkpoint {undo.envelope.id} keeps it" if undo is not None else ""
            told.append(f"what was there before could not be put back ({worse}){kept}")
        else:
            has_changed = self.has_changed_files or self.has_moved_git
            told.append("everything was put back as it was" if has_changed else "nothing was changed")
            if undo is not None and undo.envelope.id != self.plan.head:
                self._give_up()
        return _refused(self.plan, *told)

    def _give_up(self) -> None:
        """Let the run stand again where it stood before the undo point."""
        if self.plan.head is None:
            return
        try:
            self.run.checkpoint(
                trigger=Trigger.RECOVERY,
                reason="a recovery failed and was undone",
                files=False,
                onto=self.hf.get(self.plan.head),
            )
        except HoldfastError as error:
            _log.warning("run %s: what was intended could not be taken back: %s", self.plan.run, error)

    def _put_files_back(self, undo: CheckpointRecord) -> None:
        from holdfast.recovery.files import put_back  # noqa: PLC0415

        assert self.plan.files is not None
        capture = file_capture(self.hf, self.plan.run, self.plan.files.target, self.options)
        assert capture is not None
        before = self.hf.internals.opened(undo).workspace
        put_back(ChunkReader(self.hf.store.fetch), capture.workspace, before, self.plan.files)

    def _put_git_back(self, undo: CheckpointRecord) -> None:
        from holdfast.workspace.checkout import checkout  # noqa: PLC0415

        assert self.plan.files is not None
        before, now = self.hf.internals.opened(undo).git, self.hf.internals.opened(self.record).git
        checkout(self.plan.files.target, before, ChunkReader(self.hf.store.fetch), safe=now)

    def _left_alone(self, source: Checkpoint) -> list[str]:
        missing = [name for name in self.run.recorder.live.names if name not in source.sections]
        return [f"section {name} is not in the checkpoint and stays as it is" for name in missing]

    def _result(
        self,
        checkpoint: Checkpoint,
        *,
        undo: str | None,
        warnings: tuple[str, ...] | None = None,
        errors: tuple[str, ...] = (),
    ) -> RecoveryResult:
        return RecoveryResult(
            success=not errors,
            errors=errors,
            run=self.plan.run,
            checkpoint=checkpoint,
            restored_from=self.plan.checkpoint,
            restored_sections=tuple(name for name in checkpoint.sections if name not in (SECTION, INTENT)),
            skipped_agents=self.plan.skipped_agents,
            warnings=self.plan.all_warnings if warnings is None else warnings,
            undo=undo,
            files=self.report,
        )
