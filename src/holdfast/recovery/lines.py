"""Lines of checkpoints: a fork into a new run, and a run that starts afresh beside its old line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.encode.appended import Appended
from holdfast.errors import IntegrityError, NotFound, UsageError
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger
from holdfast.recover.afresh import archive_before, archive_name, keep_tip, tip_of
from holdfast.recover.fork import chunks_below
from holdfast.recover.locate import locate
from holdfast.recover.record import INTENT, SECTION, RecoveryRecord, read_record
from holdfast.recovery.gather import present
from holdfast.runtime.log import segment_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord


_LOGS = ("steps", "journal")  # each is several sections when it is long


def fork(
    hf: Holdfast,
    spec: str,
    new_run: str,
    *,
    sections: Mapping[str, Any] | None = None,
    drop: Iterable[str] = (),
    label: str | None = None,
) -> Checkpoint:
    """Begin a new run from a checkpoint, with edited sections if some are given; return its first checkpoint.

    The new run holds every chunk itself: it stays whole when the other run is deleted. Its first checkpoint is pinned,
    since it says where the run came from.
    """
    check_run_id(new_run)
    if not hf.enabled:
        raise UsageError("checkpointing is disabled, so no run can begin: enable it")
    if hf.has(new_run):
        raise UsageError(f"there is a run {new_run!r} already: give the fork a name of its own")
    if WORKSPACE in (sections or {}):
        raise UsageError(f"section {WORKSPACE!r} holds files: open the fork with a workspace and change them there")
    origin = hf.opened(locate(hf.store, spec).record)
    told = RecoveryRecord(source=origin.id, undo=None, at=present(hf, new_run), kind="fork", run=origin.run)
    values = {**(sections or {}), SECTION: told.value()}
    if "status" in origin.sections:  # nobody moves it yet: it must not look like a run whose process died
        values.setdefault("status", {"status": "ended", "since": told.at, "detail": "forked, and not begun"})
    dropped = {*_there(drop, origin), *({INTENT} & set(origin.sections))}
    for log in _LOGS:
        segments = segment_names(log, origin.sections)
        if log in values:  # an edited log is one section, whatever it was
            if not isinstance(values[log], (list, tuple)):
                raise UsageError(f"section {log!r} is a list of records: give a list")
            values[log] = Appended(list(values[log]))
            dropped.update(name for name in segments if name != log)
        elif log in dropped:
            dropped.update(segments)
    handle = hf.run(new_run)
    try:
        return handle.begin_from(
            origin,
            bring=lambda carried: chunks_below(hf.store, origin.id, carried),
            sections=values,
            drop=sorted(dropped),
            reason=f"forked from {origin.run}@{origin.seq}",
            label=label,
        )
    finally:
        handle.close()


def _there(drop: Iterable[str], origin: Checkpoint) -> list[str]:
    """Return the sections to leave out; NotFound for one that is not there."""
    names = list(drop)
    for name in names:
        if name not in origin.sections and not (name in _LOGS and segment_names(name, origin.sections)):
            raise NotFound("section", name, f"{origin.run}@{origin.seq} has {', '.join(origin.sections) or 'none'}")
    return names


def start_afresh(hf: Holdfast, run: str) -> Checkpoint:
    """Set a run's line aside and begin a new one in it; return its first checkpoint, which holds nothing.

    The old line is archived, its end pinned and labelled with the time: `hf.checkpoints(run, archived=True)` shows it,
    and hf.undo(run) goes back to it. Killed in the middle, it is finished by doing it again.
    """
    opened = hf.open_run(check_run_id(run))
    handle = opened or hf.run(run, rewinding=True)
    try:
        with handle.held():
            root = _begun_afresh(hf, run)
            if root is None:
                root = _begin(hf, handle, run)
            archive_before(hf.store, run, root.seq)
            handle.go_back_to(root)
    finally:
        if opened is None:
            handle.close()
    return root


def _begun_afresh(hf: Holdfast, run: str) -> Checkpoint | None:
    """Return the head if it is the empty beginning of a new line already."""
    try:
        tip = tip_of(hf.store, run)
        head = hf.opened(tip) if tip is not None else None
        told = read_record(head.section(SECTION)) if head is not None and head.sections == (SECTION,) else None
    except IntegrityError:
        return None
    return head if told is not None and told.kind == "afresh" else None


def _tip(hf: Holdfast, run: str) -> CheckpointRecord | None:
    """Return what an undo can go back to: the newest sound checkpoint, the end of the line where none is."""
    try:
        return locate(hf.store, "latest", run=run).record
    except (IntegrityError, NotFound):
        pass
    try:
        return tip_of(hf.store, run)
    except IntegrityError:
        return None


def _begin(hf: Holdfast, handle: Any, run: str) -> Checkpoint:
    at = present(hf, run)
    tip = _tip(hf, run)
    hf.control.forget(run)  # what was said to the line before is not for the new one
    label = keep_tip(hf.store, tip, at) if tip is not None else archive_name(at)
    told = RecoveryRecord(source=None, undo=tip.envelope.id if tip is not None else None, at=at, kind="afresh")
    made: Checkpoint = handle.checkpoint(
        trigger=Trigger.RECOVERY,
        reason=f"started afresh; the line before is kept as {label}",
        sections={SECTION: told.value()},
        drop=[name for name in handle.registered if name != SECTION],
        files=False,
        onto="nothing",
    )
    return made
