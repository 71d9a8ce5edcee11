"""Files in a recovery: planning their restore, finding out how far a killed one came, and putting them back."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import IntegrityError
from holdfast.workspace import paths
from holdfast.workspace.decide import Decisions
from holdfast.workspace.descriptors import OPEN_FILE, open_parent, read_open
from holdfast.workspace.diff import MAX_DIFF_BYTES, is_binary, unified
from holdfast.workspace.planning import plan_restore
from holdfast.workspace.restore import apply
from holdfast.workspace.state import ABSENT, State, on_disk
from holdfast.workspace.tree import check_named, pieces
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.encode.chunks import ChunkReader
    from holdfast.recovery.plan import Request
    from holdfast.workspace.ownership import Ownership
    from holdfast.workspace.plan import PlanItem, RestorePlan
    from holdfast.workspace.snapshot import Snapshot

Progress = Literal["done", "untouched"]
_WRITING = ("write", "replace", "merge", "both")


def plan_files(
    reader: ChunkReader,
    workspace: Workspace | None,
    checkpoint: Snapshot,
    last: Snapshot | None,
    request: Request,
    *,
    ownership: Ownership,
) -> RestorePlan:
    """Return what restoring a checkpoint's files would do; `last` is what the run last knew of the directory.

    Without `last` (its record is damaged) nobody can tell the run's changes from others': the checkpoint's files are
    taken, since the present ones are kept in the undo point.
    """
    decisions = request.decisions
    said = ownership.life.policy if ownership.life is not None and not request.is_interrupted_asked else None
    interrupted = said or request.interrupted
    if decisions is not None and decisions.interrupted == "ask":
        decisions = msgspec.structs.replace(decisions, interrupted=interrupted)
    place = request.into if request.into is not None else workspace.root if workspace is not None else ""
    check_named(reader, checkpoint.root, request.paths, place, last=last.root if last is not None else None)
    if request.into is not None:
        return _plan_into(reader, workspace, checkpoint, request, decisions or Decisions(edits="take"))
    assert workspace is not None
    if last is not None and is_empty(workspace.root):
        return _plan_again(reader, workspace, checkpoint, request, decisions or Decisions())
    if decisions is None:
        edits: Literal["keep", "take"] = "take" if request.paths or last is None else "keep"
        decisions = Decisions(edits=edits, interrupted=interrupted)
    return plan_restore(
        reader,
        workspace,
        checkpoint,
        last=last if last is not None else checkpoint,
        only=request.paths,
        decisions=decisions,
        ownership=ownership,
        allow_outside_links=request.allow_outside_links,
    )


def _plan_again(
    reader: ChunkReader, workspace: Workspace, checkpoint: Snapshot, request: Request, decisions: Decisions
) -> RestorePlan:
    """Plan for a directory that is as good as new, as on another machine: nobody deleted anything in it."""
    return plan_restore(
        reader,
        workspace,
        checkpoint,
        only=request.paths,
        decisions=decisions,
        allow_outside_links=request.allow_outside_links,
    )


def is_empty(root: str) -> bool:
    """Tell whether a directory holds nothing but a repository and what is ours."""
    with os.scandir(root) as entries:
        return all(entry.name in (".holdfast", ".git") for entry in entries)


def _plan_into(
    reader: ChunkReader, workspace: Workspace | None, checkpoint: Snapshot, request: Request, decisions: Decisions
) -> RestorePlan:
    assert request.into is not None
    with TemporaryDirectory() as empty:  # stands in for a directory that is not there yet
        place = request.into if os.path.lexists(request.into) else empty
        return plan_restore(
            reader,
            Workspace(place, workspace.options if workspace is not None else None),
            checkpoint,
            only=request.paths,
            decisions=decisions,
            in_place=False,
            allow_outside_links=request.allow_outside_links,
            target=os.path.realpath(request.into),
        )


def is_interrupted(root: str) -> bool:
    """Tell whether a restore in this directory was killed and waits to be brought to an end."""
    try:
        names = os.listdir(os.path.join(root, ".holdfast"))  # noqa: PTH118, PTH208 - cheap, and done at every plan
    except OSError:
        return False
    return any(name.startswith("restore-") for name in names)


def progress_of(plan: RestorePlan) -> Progress:
    """Tell whether a plan was carried out: it is all or nothing, so one path that is as promised says it of all."""
    for item in plan.changes:
        now = _seen(plan.target, item)
        if item.action == "both" or now == item.disk:
            continue
        if now == item.checkpoint or (item.action == "merge" and now.kind == "file"):
            return "done"
    beside = [item for item in plan.changes if item.action == "both"]
    if any(_exists(plan.target, item.beside) for item in beside):
        return "done"
    return "untouched" if plan.changes else "done"


def is_carried_out_in(place: str, plan: RestorePlan) -> bool:
    """Tell whether another directory than the plan's is the one in which it was carried out, moved or copied since.

    What the plan deleted is missing in many directories: that alone says it only if the plan's own is gone.
    """
    there = msgspec.structs.replace(plan, target=place)
    put = msgspec.structs.replace(there, items=tuple(item for item in plan.items if item.checkpoint.kind != "absent"))
    if put.changes:
        return progress_of(put) == "done"
    return not os.path.lexists(plan.target) and not is_empty(place) and progress_of(there) == "done"


def check_contents(reader: ChunkReader, plan: RestorePlan) -> None:
    """Read every content that a plan would write; IntegrityError if one is damaged, before anything is touched."""
    for item in plan.changes:
        ref = item.checkpoint.ref() if item.action in _WRITING else None
        for _ in pieces(reader, ref) if ref is not None else ():
            pass


def put_back(reader: ChunkReader, workspace: Workspace, before: Snapshot, plan: RestorePlan) -> None:
    """Undo a plan that was carried out: every path that it changed is again as the undo point has it."""
    changed = [path for item in plan.changes for path in (item.path, item.beside) if path]
    again = plan_restore(reader, workspace, before, last=before, only=changed, decisions=_undoing(changed))
    apply(again, reader)


def _undoing(changed: list[str]) -> Decisions:
    return Decisions(edits="take", conflicts="take", paths=dict.fromkeys(changed, "take"))


def is_changed_by_others(item: PlanItem) -> bool:
    """Tell whether a person, or nobody knows who, changed a path since the run last knew it."""
    return item.owner in ("person", "unknown") and item.last not in (None, item.disk)


def diff_of_others(plan: RestorePlan, reader: ChunkReader) -> str:
    """Return what others changed since the run last knew its files, as unified diffs of a bounded size."""
    told: list[str] = []
    left = MAX_DIFF_BYTES
    theirs = [item for item in plan.items if is_changed_by_others(item)]
    for number, item in enumerate(theirs):
        if left <= 0:
            told.append(f"and {len(theirs) - number:,} more\n")
            break
        text = _diff_of(plan.target, item, reader)
        left -= len(text)
        told.append(text)
    return "".join(told)


def _diff_of(target: str, item: PlanItem, reader: ChunkReader) -> str:
    assert item.last is not None
    name = paths.in_a_line(item.path)
    names = "/dev/null" if item.last == ABSENT else f"a/{name}", "/dev/null" if item.disk == ABSENT else f"b/{name}"
    sides = item.last, item.disk
    if any(side.kind not in ("file", "absent") or side.size > MAX_DIFF_BYTES for side in sides):
        return f"{item.path!r} differs: {item.last.kind} -> {item.disk.kind}\n"
    try:
        before = b"".join(pieces(reader, item.last.ref()))
        now = b"" if item.disk == ABSENT else _disk_content(target, item)
    except (OSError, IntegrityError):
        return f"{item.path!r} differs, and cannot be read\n"
    if is_binary(before) or is_binary(now):
        return f"{item.path!r} differs (binary)\n"
    return unified(before, now, *names) or f"{item.path!r}: mode {item.last.mode:04o} -> {item.disk.mode:04o}\n"


def _disk_content(target: str, item: PlanItem) -> bytes:
    parent, name = open_parent(target, paths.raw(item.path))
    try:
        handle = os.open(name, OPEN_FILE, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        return read_open(handle, MAX_DIFF_BYTES) or b""
    finally:
        os.close(handle)


def moved_paths(plan: RestorePlan) -> list[str]:
    """Return the paths of a plan that are not as it saw them."""
    return [item.path for item in plan.items if item.disk.kind != "other" and _seen(plan.target, item) != item.disk]


def _seen(target: str, item: PlanItem) -> State:
    """Return what is at an item's path now."""
    try:
        handle, name = open_parent(target, paths.raw(item.path))
    except OSError:
        return ABSENT
    try:
        return on_disk(handle, name)
    finally:
        os.close(handle)


def _exists(target: str, path: str) -> bool:
    return os.path.lexists(os.path.join(os.fsencode(target), paths.raw(path)))  # noqa: PTH118
