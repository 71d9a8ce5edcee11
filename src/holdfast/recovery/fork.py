"""Lines of checkpoints: a fork into a new run, and a run that starts fresh beside its old line."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.capture.sections import check_runtime
from holdfast.checkpoint import CALLS, NOTES
from holdfast.encode.chunks import ChunkReader, parse_node, verified
from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import ChunkCorrupt, IntegrityError, NotFound, UsageError
from holdfast.journal.call_record import call_of_line
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE, BudgetPart
from holdfast.model.triggers import Trigger
from holdfast.recovery.find import locate, opened
from holdfast.recovery.gather import present, steps_of
from holdfast.recovery.outcomes import closing_records, open_calls, repeated_effects
from holdfast.recovery.record import INTENT, SECTION, RecoveryRecord, read_record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.chunks import Chunk
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord, Marks, SectionRecord
    from holdfast.model.sections import Budget, Spending
    from holdfast.run import Run
    from holdfast.store.store import Store


def fork(
    hf: Holdfast,
    spec: str,
    new_run: str,
    *,
    sections: Mapping[str, Any] | None = None,
    drop: Iterable[str] = (),
    label: str | None = None,
) -> Checkpoint:
    """Begin a new run from a checkpoint or a position, with edited sections if some are given; return its first one.

    The new run holds every chunk itself: it stays whole when the other run is deleted. Its first checkpoint is pinned,
    since it says where the run came from.
    """
    check_run_id(new_run)
    if not hf.settings.enabled:
        raise UsageError("checkpointing is disabled, so no run can begin: enable it")
    if hf.has(new_run):
        raise UsageError(f"there is a run {new_run!r} already: give the fork a name of its own")
    if WORKSPACE in (sections or {}):
        raise UsageError(f"section {WORKSPACE!r} holds files: open the fork with a workspace and change them there")
    origin = opened(hf, locate(hf.store, spec))
    at = present(hf, new_run)
    is_open = open_calls(steps_of(origin))
    again = repeated_effects((), (), is_open)
    told = RecoveryRecord(source=origin.id, undo=None, at=at, kind="fork", run=origin.run, warnings=again)
    values = {**(sections or {}), SECTION: told.value()}
    if "status" in origin.sections:  # nobody moves it yet: it must not look like a run whose process died
        values.setdefault("status", {"status": "forked", "since": told.at, "detail": "it has not begun"})
    left_out = set(drop)
    if BUDGET in origin.sections and BUDGET not in left_out:
        values.setdefault(BUDGET, _without_reserved(origin.section(BUDGET)))
    calls = _edited(CALLS, values, left_out)
    closing = closing_records(steps_of(origin), is_open, at) if calls is None else []
    notes = _edited(NOTES, values, left_out)
    dropped = {*_there(left_out - {CALLS, NOTES}, origin), *({INTENT} & set(origin.sections))}
    handle = hf.run(new_run)
    try:
        return handle.recorder.begin_from(
            origin,
            bring=lambda carried: chunks_below(hf.store, origin.id, carried),
            sections=values,
            drop=sorted(dropped),
            reason=f"forked from {origin.place}",
            label=label,
            closing=[call_of_line(line, hf.internals.journal_packer()) for line in closing],
            calls=None if calls is None else [call_of_line(line, hf.internals.journal_packer()) for line in calls],
            notes=notes,
        )
    finally:
        handle.close()


def _edited(view: str, values: dict[str, Any], drop: set[str]) -> list[Any] | None:
    """Return what was given in place of a view's lines, taken out of `values`; None if they are to be kept."""
    lines = values.pop(view, [] if view in drop else None)
    if lines is None:
        return None
    if not isinstance(lines, (list, tuple)):
        raise UsageError(f"section {view!r} is a list of records: give a list")
    check_runtime(view, list(lines))
    return list(lines)


def fork_warnings(first: Checkpoint) -> tuple[str, ...]:
    """Return what a fork was warned of when it began: outside effects that it will have again."""
    told = read_record(first.section(SECTION)) if SECTION in first.sections else None
    return told.warnings if told is not None else ()


class ForkedFiles(NamedTuple):
    """The directory of a fork."""

    directory: str
    written: int
    branch: str | None = None
    """The branch of its git worktree; None without one."""
    is_worktree: bool = False
    note: str = ""
    """Why it is not a git worktree, where the run's directory is a repository."""


def fork_files(
    hf: Holdfast,
    first: Checkpoint,
    target: Path,
    *,
    beside: str | os.PathLike[str] | None,
    allow_outside_links: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ForkedFiles:
    """Give a fork a directory of its own, with the files of its first checkpoint; it must not be there yet, or empty.

    Where the origin's directory is `beside` it a git repository that has the commit, it is a git worktree.
    """
    from holdfast.run_files import capture_of, link_fork, options_of  # noqa: PLC0415 - only forks with files pay for it
    from holdfast.workspace.git import GitFailed  # noqa: PLC0415
    from holdfast.workspace.git_create import Asked, announce, put_git  # noqa: PLC0415
    from holdfast.workspace.planning import plan_restore  # noqa: PLC0415
    from holdfast.workspace.restore import apply  # noqa: PLC0415
    from holdfast.workspace.worktree import add_worktree, remove_worktree  # noqa: PLC0415

    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{str(target)!r} is not empty: name a directory that is not there yet")
    position, made, branch, note = first.git, False, None, ""
    source = Path(beside).resolve() if beside is not None else None
    if source is not None and position.commit and (source / ".git").exists():
        try:
            branch, made = add_worktree(source, target, position.commit, first.run), True
        except GitFailed as error:
            note = f"it is not a git worktree: {error}"
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        reader = ChunkReader(hf.store.fetch)
        capture = capture_of(hf.store, reader, target, options_of(hf.settings.workspace))
        plan = plan_restore(
            reader, capture.workspace, first.workspace, in_place=False, allow_outside_links=allow_outside_links
        )
        announce(capture.workspace.root, first.workspace)
        report = apply(plan, reader, progress=progress)
        put_git(capture.workspace.root, first.workspace, reader, Asked(clone=hf.settings.workspace.clone))
        with closing(hf.run(first.run, workspace=target)) as run:  # from here on it stands where its directory does
            run.checkpoint(trigger=Trigger.RECOVERY, reason="in a directory of its own")
        link_fork(hf.store, first.run, capture.workspace.root)
    except BaseException:
        if made and source is not None:
            with suppress(GitFailed):  # what went wrong first is told
                remove_worktree(source, target, branch)
        raise
    return ForkedFiles(capture.workspace.root, report.written, branch, made, note)


def _there(drop: Iterable[str], origin: Checkpoint) -> list[str]:
    """Return the sections to leave out; NotFound for one that is not there."""
    names = list(drop)
    for name in names:
        if name not in origin.sections:
            raise NotFound("section", name, f"{origin.run}@{origin.seq} has {', '.join(origin.sections) or 'none'}")
    return names


def start_fresh(hf: Holdfast, run: str) -> Checkpoint:
    """Set a run's line aside and begin a new one in it; return its first checkpoint, which holds the budgets alone.

    What was spent stays spent: limits are those of the run. The old line is archived, its end pinned and labelled with
    the time: `hf.checkpoints(run, archived=True)` shows it, and hf.undo(run) goes back to it. Killed in
    the middle, it is finished by doing it again.
    """
    known = hf.internals.open_run(check_run_id(run))
    handle = known or hf.run(run, rewinding=True)
    try:
        with handle.held():
            root = _fresh_start(hf, run)
            if root is None:
                root = _begin(hf, handle, run)
            archive_before(hf.store, run, root.seq)
            handle.host.go_back_to(root)
    finally:
        if known is None:
            handle.close()
    return root


def _fresh_start(hf: Holdfast, run: str) -> Checkpoint | None:
    """Return the head if it is the empty beginning of a new line already."""
    try:
        tip = tip_of(hf.store, run)
        head = hf.internals.opened(tip) if tip is not None else None
        return head if head is not None and is_fresh(head) else None
    except IntegrityError:
        return None


def is_fresh(head: Checkpoint) -> bool:
    """Tell whether a checkpoint is the empty beginning of a line in a run whose line before was set aside."""
    if not {SECTION} <= {*head.sections} <= BEGINNING:
        return False
    told = read_record(head.section(SECTION))
    return told is not None and told.kind == "fresh"


def _tip(hf: Holdfast, run: str) -> CheckpointRecord | None:
    """Return what an undo can go back to: the newest sound checkpoint, the end of the line where none is."""
    with suppress(IntegrityError, NotFound):
        found = locate(hf.store, "latest", run=run).record
        return None if found.is_nothing else found
    try:
        return tip_of(hf.store, run)
    except IntegrityError:
        return None


def _begin(hf: Holdfast, handle: Run, run: str) -> Checkpoint:
    at = present(hf, run)
    tip = _tip(hf, run)
    handle.host.ignore_inbox()  # what was said to the line before is not for the new one
    label = keep_tip(hf.store, tip, at) if tip is not None else archive_name(at)
    told = RecoveryRecord(source=None, undo=tip.envelope.id if tip is not None else None, at=at, kind="fresh").marked(
        run, tip
    )
    sections: dict[str, Any] = {SECTION: told.value()}
    spent = _spent(hf, run, tip)
    if spent is not None:  # work begins again, and what is counted once by a key with it
        sections[BUDGET] = msgspec.structs.replace(spent, counted=[])
    made: Checkpoint = handle.checkpoint(
        trigger=Trigger.RECOVERY,
        reason=f"started fresh; the line before is kept as {label}",
        sections=sections,
        drop=[name for name in handle.recorder.live.names if name not in sections],
        files=False,
        onto="nothing",
    )
    return made


def _without_reserved(budget: Budget) -> Budget:
    """Return budgets in which no call is under way: one that is, is the origin's, and is paid for there."""

    def free(lines: dict[str, Spending]) -> dict[str, Spending]:
        return {name: msgspec.structs.replace(line, reserved=0) for name, line in lines.items()}

    nested = {path: BudgetPart(spending=free(part.spending)) for path, part in budget.nested.items()}
    return msgspec.structs.replace(budget, spending=free(budget.spending), nested=nested)


def _spent(hf: Holdfast, run: str, tip: CheckpointRecord | None) -> Budget | None:
    """Return the budgets of a run as they are now, of a damaged one as the newest that is sound has them."""
    known: list[Callable[[], Checkpoint]] = [partial(hf.internals.present_of, run)]
    if tip is not None:
        known += [partial(hf.internals.present, run, tip), partial(hf.internals.opened, tip)]
    for read in known:
        with suppress(IntegrityError, NotFound):
            now = read()
            return now.section(BUDGET) if BUDGET in now.sections else None
    return None


_TRIES = 20


def archive_name(at: datetime) -> str:
    """Return the label of a line that was set aside at this time."""
    return f"archived-{at:%Y%m%dT%H%M%SZ}"


def keep_tip(store: Store, tip: CheckpointRecord, at: datetime) -> str:
    """Pin and label the end of a line, so that it stays and can be found; return the label, its own if it has one."""
    label = tip.marks.label or archive_name(at)
    marks = msgspec.structs.replace(tip.marks, pinned=True, label=label)
    if marks != tip.marks:
        store.mark(tip.envelope.id, marks, expected=tip.marks)
    return label


def archive_before(store: Store, run: str, seq: int) -> int:
    """Archive every checkpoint below a number, pinned ones too, in one transaction; return how many it were.

    Doing it twice is the same as once; what somebody marks at the same moment is looked at again.
    """
    count = 0
    for _ in range(_TRIES):
        changes: dict[str, tuple[Marks, Marks]] = {}
        for record in store.checkpoints(run, before_seq=seq):
            if record.marks.status == "valid":
                archived = msgspec.structs.replace(record.marks, status="archived")
                changes[record.envelope.id] = (record.marks, archived)
        if not changes:
            break
        left = store.mark_many(run, changes)
        count += len(changes) - len(left)
        if not left:
            break
    return count


def tip_of(store: Store, run: str) -> CheckpointRecord | None:
    """Return the end of a run's line, None if the run has none."""
    head = store.run(run).head
    try:
        return store.checkpoint(head) if head is not None else None
    except NotFound:
        return None


BUDGET = "budget"
BEGINNING = {SECTION, BUDGET}  # the sections of a fresh beginning
_BATCH = 64
_BATCH_BYTES = 4 * 1024 * 1024


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run was forked from; `run` is None when the origin was deleted since."""

    checkpoint: str
    run: str | None = None
    seq: int | None = None


def chunks_below(store: Store, checkpoint: str, sections: Iterable[SectionRecord]) -> Iterator[Chunk]:
    """Yield every chunk of these sections once, verified and as it is stored, a few in memory at a time."""
    seen: set[bytes] = set()
    for section in sections:
        waiting = [Ref(section.kind, section.size, section.root)]
        try:
            while waiting:
                batch = _next(waiting, seen)
                stored = store.fetch([ref.id for ref in batch])
                for ref in batch:
                    plain = verified(ref.kind, ref.id, stored.get(ref.id))
                    yield stored[ref.id]
                    if ref.kind == NODE:
                        waiting += [entry for entry in parse_node(ref, plain) if isinstance(entry, Ref)]
        except ChunkCorrupt as error:
            raise ChunkCorrupt(error.detail, error.chunk, checkpoint, section.name) from error


def _next(waiting: list[Ref], seen: set[bytes]) -> list[Ref]:
    """Take a few references off the end, so many that their chunks are a few megabytes at most."""
    batch: list[Ref] = []
    size = 0
    while waiting and len(batch) < _BATCH and size < _BATCH_BYTES:
        ref = waiting.pop()
        if ref.id not in seen:
            seen.add(ref.id)
            batch.append(ref)
            size += ref.size if ref.kind == LEAF else 0  # a node's size is of all that is below it
    return batch


def origin(store: Store, run: str) -> Origin | None:
    """Return the checkpoint of another run that this one was forked from, None if it began by itself."""
    try:
        first = store.checkpoint_at(run, 1)
    except (NotFound, IntegrityError):
        return None
    if first is None or first.envelope.parent is None:
        return None
    return origin_of(store, first)


def origin_of(store: Store, first: CheckpointRecord) -> Origin | None:
    """Return what a run's first checkpoint says of where it was forked from."""
    parent = first.envelope.parent
    if parent is None:
        return None
    try:
        record = store.checkpoint(parent)
    except (NotFound, IntegrityError):
        return Origin(checkpoint=parent)
    return Origin(checkpoint=parent, run=record.envelope.run, seq=record.envelope.seq)


def lineage(store: Store, run: str) -> list[Origin]:
    """Return the forks that led to a run, the nearest first; it ends where an origin was deleted."""
    found: list[Origin] = []
    seen = {run}
    name: str | None = run
    while name is not None:
        came_from = origin(store, name)
        if came_from is None:
            break
        found.append(came_from)
        name = came_from.run if came_from.run not in seen else None
        if name is not None:
            seen.add(name)
    return found
