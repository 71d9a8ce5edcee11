"""Carrying a recovery out: an undo point, then files, then one commit; killed anywhere, it is finished or undone.

The undo point holds the plan that is being carried out. Files change all at once or not at all, and only after it; so
whoever finds an undo point at the head knows from the files which side of the change the kill was on.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode.appended import Appended
from holdfast.encode.chunks import ChunkReader
from holdfast.errors import (
    CaptureFailed,
    HoldfastError,
    IntegrityError,
    LeaseHeld,
    NotFound,
    PlanOutdated,
    RecoveryError,
    RestoreConflict,
    RestoreFailed,
    RestoreRefused,
    StoreError,
    UsageError,
)
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger
from holdfast.recover.locate import mark_corrupted
from holdfast.recover.outcomes import decided_records, decided_steps
from holdfast.recover.plan import Request
from holdfast.recover.record import INTENT, SECTION, RecoveryRecord, intent_value, is_undo_point, read_record
from holdfast.recover.result import RecoveryResult
from holdfast.recover.sections import restored
from holdfast.recovery.gather import (
    are_files_changed,
    file_capture,
    gather,
    intent_of,
    log_of,
    plan_recovery,
    present,
    way_to_end,
    world_moved,
)
from holdfast.runtime.log import segment_names
from holdfast.verify.check import faults_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.recover.plan import RecoveryPlan
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
    workspace_options: WorkspaceOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> RecoveryResult:
    """Carry out exactly this plan, or a plan of this checkpoint; a result without success touched nothing.

    PlanOutdated if the run, the checkpoint or a file is not as the plan saw it. Doing it twice is the same as once.
    """
    if isinstance(plan, str):
        spec = plan

        def planned() -> RecoveryPlan:
            return plan_recovery(hf, spec, workspace_options=workspace_options, **options)

        try:
            ended = end_interrupted(hf, planned(), planned, options=workspace_options)
        except (NotFound, IntegrityError) as error:
            return RecoveryResult(success=False, run=run.id if run is not None else "", errors=(str(error),))
        if isinstance(ended, RecoveryResult):
            return ended
        plan = ended
    elif options:
        raise UsageError(f"{next(iter(options))}= belongs into the plan: hf.plan(..., {next(iter(options))}=...)")
    if run is not None and run.id != plan.run:
        raise UsageError(f"the plan is for run {plan.run!r}, the open run is {run.id!r}")
    if not hf.enabled:
        raise UsageError("checkpointing is disabled, so a recovery could not be undone: enable it")
    try:
        record = _checked(hf, plan)
    except (NotFound, IntegrityError, RecoveryError) as error:
        return _refused(plan, str(error))
    if plan.blockers:
        return _refused(plan, *plan.blockers)
    with _handle(hf, plan, run, workspace_options) as handle, handle.lock:
        return _Recovery(hf, handle, plan, record, workspace_options, progress).carry_out()


def undo(
    hf: Holdfast,
    run: str | Run,
    *,
    workspace_options: WorkspaceOptions | None = None,
    workspace: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RecoveryResult:
    """Go back to before the last recovery, files too; doing it once more goes forward again."""
    opened = run if not isinstance(run, str) else None
    name = run if isinstance(run, str) else run.id
    end_undone(hf, name, workspace, options=workspace_options)
    plan = plan_undo(hf, name, workspace=workspace, workspace_options=workspace_options)
    return recover(hf, plan, run=opened, workspace_options=workspace_options, progress=progress)


def plan_undo(
    hf: Holdfast,
    run: str,
    *,
    workspace: str | os.PathLike[str] | None = None,
    workspace_options: WorkspaceOptions | None = None,
    now: datetime | None = None,
) -> RecoveryPlan:
    """Return what going back to before the last recovery would do; UsageError if there was none."""
    from holdfast.workspace.decide import Decisions  # noqa: PLC0415 - only a recovery pays for it

    head = hf.latest(run)
    done = read_record(head.section(SECTION)) if SECTION in head.sections else None
    if done is None or done.undo is None:
        if is_undo_point(head.record):
            plan = intent_of(hf, head.record)
            way = way_to_end(run, plan.request.workspace if plan is not None else None)
            raise UsageError(f"a recovery of run {run!r} was interrupted: {way} finishes it, and then it can be undone")
        raise UsageError(f"run {run!r} was not recovered, so there is nothing to undo")
    try:
        target = hf.store.checkpoint(done.undo)
    except NotFound:
        raise UsageError(f"run {run!r}: checkpoint {done.undo}, which an undo goes back to, was deleted") from None
    opened = hf.open_run(run)
    place = os.path.realpath(workspace) if workspace is not None else None
    if place is None and opened is not None and opened.has_workspace:
        place = str(opened.workspace.path)
    elif place is None and done.workspace:
        place = done.workspace
        if not os.path.isdir(place):  # noqa: PTH112
            raise UsageError(f"the recovery changed files in {place!r}, which is gone: name their place, workspace=...")
    has_files = any(section.name == WORKSPACE for section in target.envelope.sections)
    is_without_files = done.kind in ("recover", "undo") and not done.workspace  # what it left alone is left alone
    with_files = has_files and place is not None and not is_without_files
    request = Request(
        files=with_files,
        git=with_files and done.git,
        workspace=place,
        decisions=Decisions(edits="take", conflicts="take"),
        allow_outside_links=True,
    )
    plan = gather(hf, target, request, kind="undo", options=workspace_options, now=now)
    if request.git and plan.blockers:  # a git that has to stay keeps neither state nor files from going back
        stays, request = plan.blockers, msgspec.structs.replace(request, git=False)
        without = gather(hf, target, request, kind="undo", warnings=stays, options=workspace_options, now=now)
        return plan if without.blockers else without
    return plan


def finish_interrupted(hf: Holdfast, run: Run) -> RecoveryResult | None:
    """Bring a recovery to an end that was killed between its files and its commit; called when a run is opened."""
    head = run.head_record
    plan = intent_of(hf, head) if head is not None else None
    if plan is None or head is None:
        return None
    if not are_files_changed(plan):
        return None  # nothing was touched: all is as it was before
    try:
        record = _checked(hf, plan)
    except (NotFound, IntegrityError, PlanOutdated) as error:
        _log.warning("run %s: a recovery was interrupted and cannot be finished: %s", run.id, error)
        return None
    try:
        with run.held(), run.lock:
            if run.head_record is None or run.head_record.envelope.id != head.envelope.id:
                return None
            _log.warning("run %s: a recovery from %s was interrupted and is finished now", run.id, plan.checkpoint)
            return _Recovery(hf, run, plan, record, None, None).finish(head)
    except LeaseHeld:
        return None  # its process is at it


def end_interrupted(
    hf: Holdfast,
    plan: RecoveryPlan,
    again: Callable[[], RecoveryPlan],
    *,
    options: WorkspaceOptions | None = None,
) -> RecoveryPlan | RecoveryResult:
    """Bring to an end what a kill left in the directory of a plan that is carried out at once, and plan `again`.

    Where that was this very recovery, its result is returned: there is nothing more to do.
    """
    place = plan.request.workspace if plan.request.files and plan.request.into is None else None
    if place is None or not (_is_left(place) or _intent_at_head(hf, plan.run) is not None):
        return plan
    ended = _ended(hf, plan.run, place, options)
    plan = again()
    if ended is None or (ended[0].checkpoint, ended[0].request) != (plan.checkpoint, plan.request):
        return plan
    return ended[1]


def end_undone(
    hf: Holdfast,
    run: str,
    workspace: str | os.PathLike[str] | None = None,
    *,
    options: WorkspaceOptions | None = None,
) -> None:
    """Bring a recovery to an end that was killed, so that it can be undone."""
    place = workspace if workspace is not None else recorded_workspace(hf, run)
    if place is not None and (_intent_at_head(hf, run) is not None or _is_left(os.fspath(place))):
        _ended(hf, run, place, options)


def recorded_workspace(hf: Holdfast, run: str) -> str | None:
    """Return the directory of a run's last recovery, killed or at its end; None if it left files alone."""
    plan = _intent_at_head(hf, run)
    if plan is not None:
        return plan.request.workspace
    head = hf.latest(run)
    done = read_record(head.section(SECTION)) if SECTION in head.sections else None
    return done.workspace or None if done is not None else None


def unfinished_runs(hf: Holdfast, *, limit: int | None = None) -> dict[str, str | None]:
    """Return the runs with a recovery that has come to its files and not to its end, each with its directory."""
    return {
        run.id: plan.request.workspace
        for run in hf.store.runs(limit=limit)
        if (plan := _intent_at_head(hf, run.id)) is not None
        and plan.files is not None
        and (_is_left(plan.files.target) or are_files_changed(plan))
    }


def _is_left(place: str) -> bool:
    from holdfast.recover.files import is_interrupted  # noqa: PLC0415

    return is_interrupted(place)


def _intent_at_head(hf: Holdfast, run: str) -> RecoveryPlan | None:
    """Return the plan that was being carried out when the run was last moved, None if it came to its end."""
    try:
        head = hf.store.run(run).head
        return intent_of(hf, hf.store.checkpoint(head)) if head is not None else None
    except (NotFound, IntegrityError):
        return None


def _ended(
    hf: Holdfast, run: str, place: str | os.PathLike[str], options: WorkspaceOptions | None
) -> tuple[RecoveryPlan, RecoveryResult] | None:
    """End a killed restore in a directory, then the run's recovery, wherever it was at work; return it if finished."""
    from holdfast.workspace.restore import recover_interrupted  # noqa: PLC0415

    recover_interrupted(place)
    plan = _intent_at_head(hf, run)
    if plan is not None and plan.files is not None:
        recover_interrupted(plan.files.target)
    if plan is None or not are_files_changed(plan):
        return None
    with _handle(hf, plan, None, options) as handle:
        result = finish_interrupted(hf, handle)
    return None if result is None else (plan, result)


@contextmanager
def _handle(hf: Holdfast, plan: RecoveryPlan, run: Run | None, options: WorkspaceOptions | None) -> Iterator[Run]:
    """Give the run's open handle, or one for this recovery only; its lease is held meanwhile."""
    opened = run or hf.open_run(plan.run)
    place = plan.request.workspace if plan.request.into is None else None
    if run is not None and place is not None and not run.has_workspace:
        raise UsageError(f"the plan puts files back: open the run with workspace={place!r}")
    if opened is not None and (place is None or opened.has_workspace):
        with opened.held():
            yield opened
        return
    handle = hf.run(plan.run, workspace=place, workspace_options=options, rewinding=True)
    try:
        with handle.held():
            yield handle
    finally:
        handle.close()
        if opened is not None:
            opened.reload()


def _checked(hf: Holdfast, plan: RecoveryPlan) -> CheckpointRecord:
    """Return the plan's checkpoint, whole and the one that it was; file contents are checked when they are staged."""
    record = hf.store.checkpoint(plan.checkpoint)
    if record.checksum.hex() != plan.checksum or record.envelope.run != plan.run:
        raise PlanOutdated(plan.run, (f"checkpoint {plan.checkpoint} is another one",))
    values = tuple(section for section in record.envelope.sections if section.name != WORKSPACE)
    envelope = msgspec.structs.replace(record.envelope, sections=values)
    faults = faults_in(hf.store, msgspec.structs.replace(record, envelope=envelope))
    if faults:
        raise IntegrityError(
            f"checkpoint {plan.checkpoint} is damaged: section {faults[0].section}, {faults[0].detail}"
        )
    return record


def _longer(source: Checkpoint, log: str, added: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a log's last section with more records."""
    *full, last = segment_names(log, source.sections) or [log]
    kept = list(source.section(last)) if last in source.sections else []
    return {last: Appended([*kept, *added], before=sum(len(source.section(name)) for name in full))}


def _refused(plan: RecoveryPlan, *errors: str) -> RecoveryResult:
    return RecoveryResult(
        success=False, run=plan.run, restored_from=plan.checkpoint, warnings=plan.warnings, errors=errors
    )


@dataclass(slots=True)
class _Recovery:
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

    def carry_out(self) -> RecoveryResult:
        """Do it, or leave everything as it was and say why."""
        head = self.hf.store.run(self.plan.run).head
        done = self._is_done(head)
        if done is not None:
            self.run.go_back_to(done)
            return self._result(done, undo=self._record_of(done).undo)
        begun = self._is_begun(head)
        if not begun:
            try:
                self._check_world(head)
            except IntegrityError as error:
                return _refused(self.plan, str(error))
            if self._changes_nothing(head):
                self.run.go_back_to(self.hf.opened(self.record))
                return self._result(self.hf.opened(self.record), undo=None)
        undo: CheckpointRecord | None = None
        try:
            undo = self.run.head_record if begun else self._undo_point()
            if self._needs_files(begun=begun):
                self.run.go_back_to(self.hf.opened(self.record))  # what cannot be put back says so before files change
                self._restore_files()
            return self.commit(undo)
        except _HALFWAY as error:
            return self._settle(undo, error)
        except BaseException:
            self._settle(undo, None)
            raise

    def finish(self, undo: CheckpointRecord) -> RecoveryResult:
        """Do what was left when a kill came after the files: git, then the commit; a git that has to stay is told."""
        if self.plan.git:
            try:
                self._restore_files()
            except _HALFWAY as error:
                _log.warning("run %s: the git position of that recovery is not put back: %s", self.plan.run, error)
        return self.commit(undo)

    def commit(self, undo: CheckpointRecord | None) -> RecoveryResult:
        """Make the checkpoint's state the head, in one commit, and give it to what is registered."""
        plan, source = self.plan, self.hf.opened(self.record)
        self.hf.control.drop_read(plan.run)
        self.run.go_back_to(source)
        at = present(self.hf, plan.run)
        warnings = (*plan.warnings, *self._left_alone(source))
        told = RecoveryRecord(
            source=plan.checkpoint,
            undo=undo.envelope.id if undo is not None else None,
            at=at,
            plan=plan.digest,
            kind=plan.kind,
            warnings=warnings,
            skipped_agents=plan.skipped_agents,
            workspace=plan.files.target if plan.files is not None and plan.request.into is None else "",
            git=plan.request.git,
        )
        sections = self._sections(source, at)
        line = {
            "at": at,
            "kind": "recovered" if plan.kind == "recover" else "undone",
            "what": f"from {plan.checkpoint}",
        }
        sections |= _longer(source, "journal", [line]) if segment_names("journal", source.sections) else {}
        dropped = [INTENT] if INTENT in source.sections else []
        if plan.request.reset_to is not None and "error" in source.sections:
            dropped.append("error")
        self.is_committing = True
        made = self.run.checkpoint(
            trigger=Trigger.RECOVERY,
            reason=f"{'undone: back to' if plan.kind == 'undo' else 'recovered from'} checkpoint {plan.seq}",
            sections={**sections, SECTION: told.value()},
            drop=dropped,
            files=self.run.has_workspace and plan.request.into is None,
            phase=self.record.envelope.summary.phase,
            onto=source,
        )
        self.is_committing = False
        with suppress(HoldfastError):  # a mark is for lists; the damage itself is found again
            mark_corrupted(self.hf.store, plan.damage)
        self.run.go_back_to(made)
        return self._result(made, undo=told.undo, warnings=warnings)

    def _sections(self, source: Checkpoint, at: datetime) -> dict[str, Any]:
        """Return the sections that come back otherwise than they were stored."""
        plan = self.plan
        if plan.kind == "undo":
            return {}
        values = {name: source.section(name) for name in _CHANGING if name in source.sections}
        request = plan.request
        decided = decided_steps(plan.unknown)
        changed = restored(values, skip_failed=request.skip_failed, reset_to=request.reset_to, decided=decided, at=at)
        added = decided_records(plan.unknown, log_of(source, "steps"), at) if plan.unknown else []
        if added:
            changed |= _longer(source, "steps", added)
        return changed

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
            plan = intent_of(self.hf, self.hf.store.checkpoint(head))
        except (NotFound, IntegrityError):
            return False
        return plan is not None and plan.digest == self.plan.digest

    def _check_world(self, head: str | None) -> None:
        moved = [] if head == self.plan.head else [f"the head was {self.plan.head}, and is {head}"]
        moved += world_moved(self.hf, self.plan, self.options) if not moved else []
        if moved:
            raise PlanOutdated(self.plan.run, tuple(moved))
        if self.plan.files is not None:
            from holdfast.recover.files import check_contents  # noqa: PLC0415

            check_contents(ChunkReader(self.hf.store.fetch), self.plan.files)

    def _changes_nothing(self, head: str | None) -> bool:
        """Tell whether the run stands there already, so that nothing is to be written."""
        plan = self.plan
        asked = plan.request.skip_failed or plan.request.reset_to or any(each.decided for each in plan.unknown)
        files = plan.files is not None and plan.files.changes
        agents = plan.pending_agents or plan.skipped_agents
        if head != plan.checkpoint or asked or files or agents or plan.git or self.run.registered:
            return False
        return not self._sections(self.hf.opened(self.record), plan.made_at)

    def _undo_point(self) -> CheckpointRecord | None:
        """Keep the present with what is about to be done to it; the head is enough if nothing else could be lost."""
        plan, run = self.plan, self.run
        here = plan.request.into is None
        changes_files = plan.files is not None and bool(plan.files.changes or plan.git) and here
        if not changes_files and not run.registered and not (run.has_workspace and run.workspace.changes()):
            return run.head_record
        is_head_lost = run.head_record is None or any(each.checkpoint == plan.head for each in plan.damage)
        taken = run.checkpoint(
            trigger=Trigger.RECOVERY,
            reason=f"before going back to checkpoint {plan.seq}",
            sections={INTENT: intent_value(plan.to_json())},
            files=run.has_workspace and here,
            onto=self.hf.opened(self.record) if is_head_lost else None,
        )
        return taken.record

    def _needs_files(self, *, begun: bool) -> bool:
        files = self.plan.files
        if files is None or not (files.changes or self.plan.git):
            return False
        if not begun:
            return True
        from holdfast.recover.files import progress_of  # noqa: PLC0415

        return progress_of(files) == "untouched" or bool(self.plan.git)

    def _restore_files(self) -> None:
        from holdfast.recover.files import progress_of  # noqa: PLC0415
        from holdfast.workspace.checkout import checkout  # noqa: PLC0415
        from holdfast.workspace.restore import apply, recover_interrupted  # noqa: PLC0415

        plan = self.plan
        assert plan.files is not None
        if plan.request.into is not None:
            from pathlib import Path  # noqa: PLC0415

            Path(plan.files.target).mkdir(mode=0o700, parents=True, exist_ok=True)
        recover_interrupted(plan.files.target)
        if plan.files.changes and progress_of(plan.files) == "untouched":
            self.report = apply(plan.files, ChunkReader(self.hf.store.fetch), progress=self.progress)
            self.has_changed_files = plan.request.into is None
        if plan.git:
            wanted = self.hf.opened(self.record).git
            safe = self.run.head.git if self.run.head is not None else None
            self.has_moved_git = True
            checkout(plan.files.target, wanted, ChunkReader(self.hf.store.fetch), safe=safe)

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
                self.run.reload()
                self.run.go_back_to(done)
                return self._result(done, undo=self._record_of(done).undo)
        if self.plan.files is not None and self._is_restore_open():
            return _refused(self.plan, *told, "the restore of files is still open; opening the run again ends it")
        return self._put_back(undo, told)

    def _is_restore_open(self) -> bool:
        from holdfast.recover.files import is_interrupted  # noqa: PLC0415

        return self.plan.files is not None and is_interrupted(self.plan.files.target)

    def _put_back(self, undo: CheckpointRecord | None, told: list[str]) -> RecoveryResult:
        """Undo what was done so far; where even that fails, say where the present is kept."""
        try:
            if undo is not None and self.has_changed_files:
                self._put_files_back(undo)
            if undo is not None and self.has_moved_git:
                self._put_git_back(undo)
            if undo is not None:
                self.run.go_back_to(self.hf.opened(undo))
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
        from holdfast.recover.files import put_back  # noqa: PLC0415

        assert self.plan.files is not None
        capture = file_capture(self.hf, self.plan.run, self.plan.files.target, self.options)
        assert capture is not None
        before = self.hf.opened(undo).workspace
        put_back(ChunkReader(self.hf.store.fetch), capture.workspace, before, self.plan.files)

    def _put_git_back(self, undo: CheckpointRecord) -> None:
        from holdfast.workspace.checkout import checkout  # noqa: PLC0415

        assert self.plan.files is not None
        before, now = self.hf.opened(undo).git, self.hf.opened(self.record).git
        checkout(self.plan.files.target, before, ChunkReader(self.hf.store.fetch), safe=now)

    def _left_alone(self, source: Checkpoint) -> list[str]:
        missing = [name for name in self.run.registered if name not in source.sections]
        return [f"section {name} is not in the checkpoint and stays as it is" for name in missing]

    def _result(
        self, checkpoint: Checkpoint, *, undo: str | None, warnings: tuple[str, ...] | None = None
    ) -> RecoveryResult:
        return RecoveryResult(
            success=True,
            run=self.plan.run,
            checkpoint=checkpoint,
            restored_from=self.plan.checkpoint,
            restored_sections=tuple(name for name in checkpoint.sections if name not in (SECTION, INTENT)),
            skipped_agents=self.plan.skipped_agents,
            warnings=self.plan.warnings if warnings is None else warnings,
            undo=undo,
            files=self.report,
        )
