"""From what a person asked for to the plan of a recovery: reads all that it takes, touches nothing."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.tree import Ref
from holdfast.errors import IntegrityError, NotFound, RestoreRefused, UsageError
from holdfast.model.checkpoint import nothing_of
from holdfast.model.sections import WORKSPACE
from holdfast.model.verdicts import OF_POSITION
from holdfast.recovery.analyse import TELLING, analyse
from holdfast.recovery.find import locate
from holdfast.recovery.plan import (
    Gathered,
    Moved,
    PlanFinding,
    PlanOptions,
    RecoveryPlan,
    Request,
    checked_options,
    from_json,
    make_plan,
)
from holdfast.recovery.record import INTENT, SECTION, is_undo_point, read_intent, read_record
from holdfast.recovery.verdict import Freshness, freshness_of
from holdfast.store.ranges import cut
from holdfast.verify.check import are_sound, faults_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from holdfast.capture.files import FileCapture
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.model.recovery import RecoveryInfo
    from holdfast.recovery.find import Damage, Located
    from holdfast.recovery.outcomes import Treatment
    from holdfast.recovery.plan import Kind
    from holdfast.workspace.decide import Interrupted
    from holdfast.workspace.heartbeat import SignOfLife
    from holdfast.workspace.options import WorkspaceOptions
    from holdfast.workspace.ownership import Owner
    from holdfast.workspace.plan import PlanItem, RestorePlan
    from holdfast.workspace.position import GitPosition
    from holdfast.workspace.snapshot import Snapshot

Files = Literal["auto"] | bool | list[str] | tuple[str, ...]
_TELLING = ("workflow", "agents", "graph", "status", "budget", "phases", "waits")
_OF_WAITS = ("status", "budget")  # they say what a waiting run needs
_TREATMENTS = ("retry", "skip", "ask")
_POLICIES = ("ask", "keep", "roll_back")
_MOST_NAMED = 5


def plan_recovery(
    hf: Holdfast, spec: str, options: PlanOptions, *, run: str | None = None, found: Located | None = None
) -> RecoveryPlan:
    """Return what going back to a checkpoint would do; NotFound or IntegrityError if there is none to go back to.

    `found` is what a spec led to, where that was looked up already without its files.
    """
    asked = checked_options(options)
    files, into, git = asked.get("files", "auto"), asked.get("into"), asked.get("git", False)
    request = Request(
        skip_failed=asked.get("skip_failed", False),
        retry_failed=asked.get("retry_failed", False),
        reset_to=_checked_state(asked.get("reset_to")),
        paths=tuple(files) if isinstance(files, (list, tuple)) else (),
        git=git,
        decisions=asked.get("decisions"),
        interrupted=_checked_policy(asked.get("interrupted")) or hf.settings.recovery.interrupted,
        is_interrupted_asked=asked.get("interrupted") is not None,
        unknown=_checked_unknown(asked.get("unknown")),
        into=os.path.abspath(os.fspath(into)) if into is not None else None,  # noqa: PTH100 - not there yet
        allow_outside_links=asked.get("allow_outside_links", False),
        clone=asked.get("clone", False) or hf.settings.workspace.clone,
    )
    freshness = asked.get("freshness")
    fresh = (
        None
        if freshness is False
        else freshness_of(hf, freshness or Freshness(), asked.get("subject"), asked.get("verdicts"))
    )

    def planned(without: frozenset[str]) -> RecoveryPlan | None:
        """Return the plan, None if a section that was left out has to be looked at first."""
        located = found if without else None
        located = located or locate(hf.store, spec, run=run, sound=True, without=without, left=False)
        number = located.position.number if located.position is not None else None
        record, interrupted = located.record, False
        directory = _place(hf, record.envelope.run, asked.get("workspace"))
        if number is None:
            head = located.run.head if located.run is not None else hf.store.run(record.envelope.run).head
            record, interrupted, number = _intended(hf, located.record, spec, directory, head)
        wants = _wants_files(record, files, directory, into, git=git)
        has_files = _section(record, WORKSPACE) is not None
        if without and has_files and not wants:
            return None
        warnings = []
        if interrupted:
            warnings.append(f"a recovery from {record.envelope.id} was interrupted: this plan resumes it")
        if files == "auto" and has_files and not wants:
            warnings.append("its files are not put back: no workspace was named")
        plan = gather(
            hf,
            record,
            msgspec.structs.replace(request, files=wants, workspace=directory),
            damage=located.skipped,
            to_end=located.is_end and not interrupted and not (located.skipped and has_files),
            number=number,
            stands=located.run,
            warnings=warnings,
            freshness=fresh,
            options=asked.get("workspace_options"),
            now=asked.get("now"),
        )
        return plan if not (without and wants) or _are_contents_sound(hf, plan) else None

    # Of the files only what would be written is read: what stands on disk as in the checkpoint needs no copy.
    plan = planned(frozenset({WORKSPACE})) or planned(frozenset())
    assert plan is not None
    return plan


def _are_contents_sound(hf: Holdfast, plan: RecoveryPlan) -> bool:
    """Tell whether all that a plan would write can be read; one that could not even be made is not."""
    if plan.files is None:
        return False
    wanted = (item.checkpoint.ref() for item in plan.files.items if item.action != "keep")
    return are_sound(hf.store, [ref for ref in wanted if ref is not None])


def gather(
    hf: Holdfast,
    record: CheckpointRecord,
    request: Request,
    *,
    damage: Sequence[Damage] = (),
    to_end: bool = False,
    number: int | None = None,
    stands: RunRecord | None = None,
    warnings: Sequence[str] = (),
    freshness: Freshness | None = None,
    options: WorkspaceOptions | None = None,
    kind: Kind = "recover",
    now: datetime | None = None,
) -> RecoveryPlan:
    """Read what a plan is made of, and make it.

    `to_end` keeps what the journal has after the checkpoint, `number` what it has up to there.
    """
    run = record.envelope.run
    at = now or present(hf, run)
    stands = stands or hf.store.run(run)
    head = stands.head
    checkpoint = hf.internals.reached(record, None if to_end else number or record.number)
    sections = {name: checkpoint.section(name) for name in _TELLING if name in checkpoint.sections}
    if to_end and is_answered(hf, checkpoint):
        sections = {name: value for name, value in sections.items() if name not in _OF_WAITS}
    if request.reset_to is not None and "workflow" not in sections:
        raise UsageError(f"reset_to={request.reset_to!r}: checkpoint {record.envelope.id} has no workflow to reset")
    steps = steps_of(checkpoint)
    look = look_at_files(hf, record, head, request, options)
    if kind == "undo" and look.plan is not None and (edited := look.plan.kept("person", "unknown", deleted=False)):
        warnings = (*warnings, f"you changed {_names(edited)} since the recovery: kept")
    moved = _moved(hf, checkpoint, look, request, freshness, head=head, at=at) if freshness is not None else Moved()
    facts = Gathered(
        record=record,
        head=head,
        number=checkpoint.number,
        end=stands.number,
        damage=tuple(damage),
        sections=sections,
        steps=steps,
        steps_now=steps if to_end else _head_steps(hf, head),
        files=look.plan,
        git=look.git,
        moved=moved,
        warnings=(*warnings, *look.warnings),
        blockers=look.blockers,
        suggestions=look.suggestions,
    )
    return make_plan(facts, request, now=at, kind=kind).with_diff(look.diff)


def is_answered(hf: Holdfast, head: Checkpoint) -> bool:
    """Tell whether all that a run stopped for is answered since, so that it only has to be started again."""
    return head.summary.status in ("waiting", "paused") and not hf.control.waiting(head.run)


def info_of(hf: Holdfast, checkpoint: Checkpoint) -> RecoveryInfo:
    """Return how a checkpoint stands toward a recovery, of a run's newest with what was answered since."""
    if hf.store.run(checkpoint.run).head != checkpoint.id or not is_answered(hf, checkpoint):
        return checkpoint.recovery
    names = [name for name in TELLING if name in checkpoint.sections and name not in _OF_WAITS]
    return analyse({name: checkpoint.section(name) for name in names})


def _moved(
    hf: Holdfast,
    checkpoint: Checkpoint,
    look: Look,
    request: Request,
    freshness: Freshness,
    *,
    head: str | None,
    at: datetime,
) -> Moved:
    """Return what moved outside the run since the checkpoint was taken.

    Where no directory is named the repository is looked at in the one that the run worked in last.
    """
    from holdfast.recovery.freshness import facts_now, facts_then, findings, without_accepted  # noqa: PLC0415

    changed = None
    if look.plan is not None and request.into is None:
        from holdfast.recovery.files import is_changed_by_others  # noqa: PLC0415

        changed = [one.path for one in look.plan.items if is_changed_by_others(one)]
    then = facts_then(checkpoint, flow=freshness.flow_then)
    directory, worked_until_ns = request.workspace, look.worked_until_ns
    if directory is None and request.into is None and then.head is not None:
        directory, worked_until_ns = _worked_in(hf, checkpoint.run)
    now = facts_now(
        then,
        directory,
        at=at,
        changed_paths=changed,
        provider=freshness.subject,
        flow=freshness.flow,
        worked_until_ns=worked_until_ns,
    )
    found = findings(then, now, verdicts=freshness.verdicts, older_than=freshness.older_than)
    if found and head is not None:
        found = without_accepted(found, _opened(hf, head), checkpoint.record)
    if request.git or look.creates_git:  # it is put back with the files
        found = tuple(one for one in found if one.kind not in OF_POSITION)
    told = tuple(PlanFinding(kind=one.kind, verdict=one.verdict, detail=one.detail) for one in found)
    return Moved(told, then, now, has_files=WORKSPACE in checkpoint.sections)


def _worked_in(hf: Holdfast, run: str) -> tuple[str | None, int]:
    """Return the directory that a run worked in last, None if it is gone or not known, and until when it did."""
    from holdfast.run_files import directory_of, ownership_of  # noqa: PLC0415 - only for runs with a repository

    place = directory_of(hf.store, run)
    if place is None or not os.path.isdir(place):  # noqa: PTH112
        return None, 0
    life = ownership_of(hf.store, run, place, None).life
    return place, life.last_ns if life is not None else 0


def _opened(hf: Holdfast, head: str) -> Checkpoint | None:
    """Return a head, None if it is damaged."""
    try:
        return hf.internals.opened(hf.store.checkpoint(head))
    except (IntegrityError, NotFound):
        return None


class Look(NamedTuple):
    """What a recovery would do to a directory, or why it cannot."""

    plan: RestorePlan | None = None
    git: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    worked_until_ns: int = 0
    creates_git: bool = False
    capture: FileCapture | None = None
    """Which looked: what it knows of the directory spares who carries the plan out another look."""
    diff: str = ""
    """What others changed since the run last knew its files."""
    safe_git: GitPosition | None = None
    """The position that a checkpoint has."""

    @property
    def target(self) -> str:
        """The directory."""
        return self.plan.target if self.plan is not None else ""


def look_at_files(
    hf: Holdfast, record: CheckpointRecord, head: str | None, request: Request, options: WorkspaceOptions | None
) -> Look:
    """Compare the directory with a checkpoint; what refuses the restore is a blocker, not an error."""
    if not request.files:
        return Look()
    from holdfast.recovery.files import diff_of_others, is_interrupted, plan_files  # noqa: PLC0415 - only for files
    from holdfast.run_files import ownership_of  # noqa: PLC0415
    from holdfast.workspace.git_create import Asked, GitPlan, plan_git  # noqa: PLC0415
    from holdfast.workspace.ownership import Ownership  # noqa: PLC0415

    capture = file_capture(hf, record.envelope.run, request.workspace, options)
    root = capture.workspace.root if capture is not None else ""
    if capture is not None and request.into is None and is_interrupted(root):
        advice = f"{way_to_end(record.envelope.run, root)} finishes or undoes it"
        return Look(blockers=(f"an earlier restore in {root!r} was interrupted",), suggestions=(advice,))
    reader = ChunkReader(hf.store.fetch)
    warnings: tuple[str, ...] = ()
    try:
        wanted = hf.internals.opened(record).workspace
        known, is_damaged = _last_known(hf, head)
        last = _snapshot_of(hf, known)
        if capture is not None and last is not None:
            capture.remember(known)
        if last is None and request.into is None and head != record.envelope.id:
            has_files = is_damaged or (known is not None and _section(known, WORKSPACE) is not None)
            why = "is damaged" if has_files else "is in no checkpoint"
            warnings = (f"what the run last knew of its files {why}: those that differ are taken from the checkpoint",)
        ownership = Ownership()
        if capture is not None:
            then = hf.internals.opened(known) if known is not None else None
            ownership = ownership_of(hf.store, record.envelope.run, root, then)
        planned = plan_files(reader, capture.workspace if capture else None, wanted, last, request, ownership=ownership)
        git = GitPlan()
        if request.git or not request.paths:
            place, safe = planned.target, last.git if last else None
            git = plan_git(place, wanted, Asked(request.git, request.clone), safe=safe)
    except (RestoreRefused, IntegrityError) as error:
        return Look(blockers=(str(error),), warnings=warnings)
    ways = 'decisions=Decisions(conflicts="keep"), or "take", "both", "merge"; paths={"path": "take"} for some'
    beside = captured_beside(hf, known, ownership.life)
    warnings += (*_of_kept(planned, request), *beside, *git.problems)
    until = ownership.life.last_ns if ownership.life is not None else 0
    hf.internals.last_look = look = Look(
        planned,
        git.words,
        warnings,
        suggestions=(ways,) if planned.conflicts else (),
        worked_until_ns=until,
        creates_git=git.creates,
        capture=capture,
        diff=diff_of_others(planned, reader) if request.into is None else "",
        safe_git=last.git if last is not None else None,
    )
    return look


def _of_kept(planned: RestorePlan, request: Request) -> tuple[str, ...]:
    """Say what a plan leaves in the directory that somebody may not expect there."""
    told: list[str] = []
    owner: Owner
    half = planned.kept("interrupted")
    policy = request.interrupted if request.decisions is None else request.decisions.interrupted
    if half and policy != "keep":
        told.append(f"{planned.interrupted} was interrupted and had changed {_names(half)}: kept as they are")
    for owner, verb in (("person", "you deleted"), ("unknown", "since the last checkpoint somebody deleted")):
        gone = planned.kept(owner, deleted=True)
        if gone:
            told.append(f"{verb} {_names(gone)}: kept deleted")
    return tuple(told)


def captured_beside(
    hf: Holdfast, head: CheckpointRecord | None, life: SignOfLife | None, restored: Collection[str] = ()
) -> tuple[str, ...]:
    """Say what was captured, for another call, while one was at work that was interrupted later: it passes for done."""
    if head is None or life is None or life.has_ended or life.is_mine or not life.calls:
        return ()
    from holdfast.workspace.compare import differing  # noqa: PLC0415 - only after a kill
    from holdfast.workspace.heartbeat import BEAT_S  # noqa: PLC0415
    from holdfast.workspace.paths import text  # noqa: PLC0415
    from holdfast.workspace.tree import StoredTree  # noqa: PLC0415

    if head.envelope.created_at.timestamp() > life.last_ns / 1e9 + BEAT_S:
        return ()  # somebody captured what was left since: that was when to say so
    leaves = life.innermost
    began, run = min(leaves.values()) / 1e9, head.envelope.run
    if head.envelope.created_at.timestamp() <= began:
        return ()
    told = f"{run}@{head.envelope.seq} was captured while {', '.join(leaves)} worked, which was interrupted: "
    try:
        record = _newest_until(hf, head, datetime.fromtimestamp(began, UTC))
        before, after = _snapshot_of(hf, record), _snapshot_of(hf, head)
        if after is None:
            return ()
        if record is None or before is None:
            return (
                f"{told}what it holds may be half written, and counts as done; no checkpoint from before it is left",
            )
        reader = ChunkReader(hf.store.fetch)
        pairs = differing(StoredTree(reader, before.root), StoredTree(reader, after.root))
        changed = [name for path, _, _ in pairs if (name := text(path)) not in restored]
    except (IntegrityError, NotFound):
        return ()
    return (told + half_written(changed, run, record.envelope.seq),) if changed else ()


def _newest_until(hf: Holdfast, head: CheckpointRecord, until: datetime) -> CheckpointRecord | None:
    """Return the newest checkpoint that is left of those that a head comes from, up to a time."""
    below = head.envelope.seq
    while found := hf.store.queries.checkpoints(
        head.envelope.run, {"until": until}, limit=1, before_seq=below, line=head.line
    ):
        if found[0].ranges == cut(head.ranges, found[0].number):
            return found[0]
        below = found[0].envelope.seq  # on a part of the run that was gone back from
    return None


def half_written(paths: Sequence[str], run: str, before: int) -> str:
    """Say of files that pass for done how they are restored from a checkpoint before that."""
    way = f"`holdfast restore {shlex.quote(f'{run}@{before}')} PATH` restores one"
    return f"{_named(paths)} may be half written, and count{'s' * (len(paths) == 1)} as done; {way}"


def _names(items: Sequence[PlanItem]) -> str:
    return _named([item.path for item in items])


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(map(repr, paths[:_MOST_NAMED])) + more


def way_to_end(run: str, place: str | None) -> str:
    """Return what brings a killed recovery to its end, as a command and as a call; both name its directory."""
    where = f" --workspace {shlex.quote(place)}" if place else ""
    return f"`holdfast resume {run}{where}`, or hf.run({run!r}, workspace={repr(place) if place else '...'}),"


def file_capture(hf: Holdfast, run: str, root: str | None, options: WorkspaceOptions | None) -> FileCapture | None:
    """Return the capture of a directory: that of the run's open handle, or one that has touched nothing yet."""
    if root is None:
        return None
    from holdfast.run_files import capture_of, options_of  # noqa: PLC0415

    opened = hf.internals.open_run(run)
    if opened is not None and opened.host.has_workspace and str(opened.workspace.path) == os.path.realpath(root):
        return opened.workspace.capture
    chosen = options or options_of(hf.settings.workspace)
    return capture_of(hf.store, ChunkReader(hf.store.fetch), root, chosen)


def _snapshot_of(hf: Holdfast, record: CheckpointRecord | None) -> Snapshot | None:
    """Return a checkpoint's snapshot of the workspace, None if it has none or it cannot be read."""
    from holdfast.workspace import snapshot as snapshots  # noqa: PLC0415

    section = _section(record, WORKSPACE) if record is not None else None
    if section is None:
        return None
    try:
        return snapshots.load(ChunkReader(hf.store.fetch), Ref(section.kind, section.size, section.root))
    except (IntegrityError, NotFound):
        return None


def _last_known(hf: Holdfast, head: str | None) -> tuple[CheckpointRecord | None, bool]:
    """Return the checkpoint of what the run last knew of its files, and whether it is damaged instead.

    Not the undo point of a killed recovery: that one holds what others made since, too, and a restore would take it for
    the run's own. A run that starts fresh leaves its files as the line before it knew them.
    """
    from holdfast.workspace.ownership import EDITS  # noqa: PLC0415 - only for files

    seen: set[str] = set()
    record: CheckpointRecord | None = None
    while head is not None and head not in seen:
        seen.add(head)
        try:
            record = hf.store.checkpoint(head)
            plan = intent_of(hf, record)
            head = plan.head if plan is not None else _set_aside(hf, record)
            if head is None and _section(record, EDITS) is not None:
                hf.internals.opened(record).section(EDITS)  # what people left is a part of what it knew
        except (IntegrityError, NotFound):
            return None, True
    return record, False


def _set_aside(hf: Holdfast, record: CheckpointRecord) -> str | None:
    """Return the end of the line that was set aside when a run started fresh with this checkpoint, None otherwise."""
    if _section(record, SECTION) is None or _section(record, WORKSPACE) is not None:
        return None
    told = read_record(hf.internals.opened(record).section(SECTION))
    return told.undo if told is not None and told.kind == "fresh" else None


def steps_of(checkpoint: Checkpoint) -> list[Any]:
    """Return the records of all calls, oldest first: the one place where a recovery reads them."""
    return list(checkpoint.log("steps"))


def record_of(hf: Holdfast, plan: RecoveryPlan) -> CheckpointRecord:
    """Return the checkpoint that a plan goes to; what a run without any stands on is nothing."""
    return hf.store.checkpoint(plan.checkpoint) if plan.checkpoint else nothing_of(plan.run, plan.created_at)


def present(hf: Holdfast, run: str) -> datetime:
    """Return the time."""
    return datetime.fromtimestamp(hf.internals.services(run).clock(), UTC)


def stored_intent(hf: Holdfast, record: CheckpointRecord) -> tuple[RecoveryPlan, bool] | None:
    """Return the plan that an undo point says was being carried out, and whether by this user; None if it is none.

    Only to compare it with a plan of one's own: where it works is not to be believed, see `intent_of`.
    """
    if not is_undo_point(record):
        return None
    try:
        intent = read_intent(hf.internals.opened(record).section(INTENT))
        plan = from_json(intent.plan) if intent is not None else None
    except (IntegrityError, UsageError):
        return None
    if intent is None or plan is None or plan.run != record.envelope.run:
        return None
    return plan, intent.is_own


def intent_of(
    hf: Holdfast, record: CheckpointRecord, place: str | os.PathLike[str] | None = None
) -> RecoveryPlan | None:
    """Return the plan that was being carried out when this undo point was taken, None if it is none.

    A plan that this user did not begin says nothing of places: it has files only if they are in the directory that the
    user gave, `place`, and moves no git.
    """
    found = stored_intent(hf, record)
    if found is None or found[1]:
        return None if found is None else found[0]
    plan, request = found[0], msgspec.structs.replace(found[0].request, git=False, clone=False)
    if plan.git:
        told = f"git is not put back, since another user or home began this recovery: {'; '.join(plan.git)}"
        plan = msgspec.structs.replace(plan, warnings=(*plan.warnings, told))
    given = os.path.realpath(place) if place is not None else None
    if plan.files is None or request.into is not None or not (given == plan.files.target == request.workspace):
        request = msgspec.structs.replace(request, files=False, workspace=None, into=None)
        return msgspec.structs.replace(plan, files=None, git=(), request=request)
    return msgspec.structs.replace(plan, git=(), request=request)


def are_files_changed(hf: Holdfast, plan: RecoveryPlan) -> bool:
    """Tell whether a plan that was being carried out had come as far as its files, or git where it changes no file."""
    if plan.files is None or not (plan.files.changes or plan.git) or plan.request.into is not None:
        return False
    from holdfast.recovery.files import is_interrupted, progress_of  # noqa: PLC0415

    is_there = os.path.isdir(plan.files.target)  # noqa: PTH112 - one that is gone would pass for one that was emptied
    if not is_there or is_interrupted(plan.files.target):
        return False
    return progress_of(plan.files) == "done" if plan.files.changes else not _git_now(hf, plan, plan.files.target)


def _intended(
    hf: Holdfast, record: CheckpointRecord, spec: str, place: str | None, head: str | None
) -> tuple[CheckpointRecord, bool, int | None]:
    """Return where a recovery that was killed was going, or stood if it had not begun, for the undo point it left.

    With it, whether it had begun, and if so the journal number it was going to.
    """
    is_passed = head != record.envelope.id  # what it led to is there, and damaged
    found, is_begun, number = record, False, None
    while spec != record.envelope.id:
        plan = intent_of(hf, record, place)
        if plan is None:
            break
        is_begun = is_passed or are_files_changed(hf, plan)
        target = plan.checkpoint if is_begun else record.envelope.parent
        try:
            if target is None or target == record.envelope.id:
                break
            record, is_passed = hf.store.checkpoint(target), False
        except (NotFound, IntegrityError):
            break
        if is_begun:
            number = plan.number
            break
    is_sound = record is found or not faults_in(hf.store, record)
    return (record, is_begun and record is not found, number) if is_sound else (found, False, None)


def _head_steps(hf: Holdfast, head: str | None) -> list[Any] | None:
    if head is None:
        return []
    try:
        return steps_of(hf.internals.reached(hf.store.checkpoint(head), None))
    except (IntegrityError, NotFound):
        return None


def _place(hf: Holdfast, run: str, workspace: str | os.PathLike[str] | None) -> str | None:
    if workspace is not None:
        return os.path.realpath(os.fspath(workspace))
    opened = hf.internals.open_run(run)
    return str(opened.workspace.path) if opened is not None and opened.host.has_workspace else None


def _wants_files(
    record: CheckpointRecord, files: Files, place: str | None, into: str | os.PathLike[str] | None, *, git: bool
) -> bool:
    has_files = _section(record, WORKSPACE) is not None
    if git and (files is False or into is not None):
        raise UsageError("git=True puts the repository of the run's own workspace back, with its files: leave files on")
    if files is False:
        return False
    if files == "auto" and not git and (not has_files or (place is None and into is None)):
        return False
    if not isinstance(files, (bool, list, tuple)) and files != "auto":
        raise UsageError(f"files={files!r}: give 'auto', True, False or a list of paths")
    if not has_files:
        raise UsageError(f"checkpoint {record.envelope.id} holds no files: leave files= out")
    if place is None and into is None:
        raise UsageError("to put files back, name their directory: workspace=..., or into=... for another one")
    return True


def _checked_state(state: str | None) -> str | None:
    if state is not None and (not isinstance(state, str) or not state.strip()):
        raise UsageError(f"reset_to={state!r}: name a state of the workflow")
    return state


def _checked_policy(interrupted: Interrupted | None) -> Interrupted | None:
    if interrupted not in (None, *_POLICIES):
        raise UsageError(f"interrupted={interrupted!r}: use {', '.join(map(repr, _POLICIES))}")
    return interrupted


def _checked_unknown(unknown: Mapping[str, Treatment] | None) -> dict[str, Treatment]:
    for step, treatment in (unknown or {}).items():
        if treatment not in _TREATMENTS:
            raise UsageError(f"unknown={{{step!r}: {treatment!r}}}: use 'retry', 'skip' or 'ask'")
    return dict(unknown or {})


def _section(record: CheckpointRecord, name: str) -> Any:
    return next((section for section in record.envelope.sections if section.name == name), None)


def world_moved(hf: Holdfast, plan: RecoveryPlan, options: WorkspaceOptions | None) -> list[str]:
    """Return what is no longer as a plan saw it; empty if it can be carried out as it is.

    The tree is read again only if another process, or another plan since, looked at it: otherwise the paths of the plan
    are enough, since nothing else is written.
    """
    if plan.files is None or not (plan.files.changes or plan.files.conflicts or plan.git):
        return []  # nothing is written, so nothing that changed since could be lost
    look = hf.internals.last_look
    if look is not None and look.plan == plan.files:
        from holdfast.recovery.files import moved_paths  # noqa: PLC0415

        moved = [f"file {path!r} is not as it was" for path in moved_paths(plan.files)]
        is_same_git = not plan.git or _git_now(hf, plan, look.target, look.safe_git) == plan.git
        return moved if is_same_git else [*moved, "the git position is not as it was"]
    look = look_at_files(hf, record_of(hf, plan), plan.head, plan.request, options)
    if look.plan is None:
        return list(look.blockers)
    moved = []
    if look.plan.digest != plan.files.digest:
        before, now = ({item.path: _deed(item) for item in each.items} for each in (plan.files, look.plan))
        moved += [f"file {path!r} is not as it was" for path in {**before, **now} if before.get(path) != now.get(path)]
        moved += [f"{plan.files.target!r} is elsewhere"] if plan.files.target != look.plan.target else []
    if look.git != plan.git:
        moved.append("the git position is not as it was")
    return moved


def _git_now(
    hf: Holdfast, plan: RecoveryPlan, target: str, safe: GitPosition | Literal["saved first"] | None = "saved first"
) -> tuple[str, ...]:
    """Return what putting git back would do now."""
    from holdfast.workspace.git_create import Asked, plan_git  # noqa: PLC0415

    try:
        wanted = hf.internals.opened(record_of(hf, plan)).workspace
        return plan_git(target, wanted, Asked(plan.request.git, plan.request.clone), safe=safe).words
    except RestoreRefused as error:
        return (str(error),)


def _deed(item: PlanItem) -> PlanItem:
    """Return an item without the words for it."""
    return msgspec.structs.replace(item, reason="", owner="run")
