"""Undo of the last recovery: going back to the undo point that was taken before it, files too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import NotFound, UsageError
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.apply import recover
from holdfast.recovery.finish import end_undone, is_own_recovery
from holdfast.recovery.gather import gather, intent_of, way_to_end
from holdfast.recovery.plan import Request
from holdfast.recovery.record import SECTION, is_undo_point, read_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.engine import Holdfast
    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.recovery.result import RecoveryResult
    from holdfast.run import Run
    from holdfast.workspace.options import WorkspaceOptions


def undo(
    hf: Holdfast,
    run: str | Run,
    *,
    workspace_options: WorkspaceOptions | None = None,
    workspace: str | os.PathLike[str] | None = None,
    take: bool = False,
    allow_outside_links: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RecoveryResult:
    """Go back to before the last recovery, files too; doing it once more goes forward again.

    What a person changed since the recovery is kept, and named in the warnings; with `take` it is not. A recovery that
    another user made is undone only in the given `workspace`, and links that lead out of it are only restored with
    `allow_outside_links`.
    """
    opened = run if not isinstance(run, str) else None
    name = run if isinstance(run, str) else run.id
    end_undone(hf, name, workspace, options=workspace_options)
    plan = plan_undo(
        hf,
        name,
        workspace=workspace,
        workspace_options=workspace_options,
        take=take,
        allow_outside_links=allow_outside_links,
    )
    return recover(hf, plan, run=opened, progress=progress, options={"workspace_options": workspace_options})


def plan_undo(
    hf: Holdfast,
    run: str,
    *,
    workspace: str | os.PathLike[str] | None = None,
    workspace_options: WorkspaceOptions | None = None,
    take: bool = False,
    allow_outside_links: bool = False,
    now: datetime | None = None,
) -> RecoveryPlan:
    """Return what going back to before the last recovery would do; UsageError if there was none."""
    from holdfast.workspace.decide import Decisions  # noqa: PLC0415 - only a recovery pays for it

    head = hf.latest(run, required=True)
    done = read_record(head.section(SECTION)) if SECTION in head.sections else None
    if done is None or done.undo is None:
        if is_undo_point(head.record):
            plan = intent_of(hf, head.record, workspace)
            way = way_to_end(run, plan.request.workspace if plan is not None else None)
            raise UsageError(f"a recovery of run {run!r} was interrupted: {way} finishes it, and then it can be undone")
        raise UsageError(f"run {run!r} was not recovered, so there is nothing to undo")
    try:
        target = hf.store.checkpoint(done.undo)
    except NotFound:
        raise UsageError(f"run {run!r}: checkpoint {done.undo}, which an undo goes back to, was deleted") from None
    is_own = is_own_recovery(hf, run, done)
    opened = hf.internals.open_run(run)
    place = os.path.realpath(workspace) if workspace is not None else None
    if place is None and opened is not None and opened.host.has_workspace:
        place = str(opened.workspace.path)
    elif place is None and done.workspace:
        place = done.workspace
        if not is_own:
            raise UsageError(
                f"the recovery changed files in {place!r}, and nothing shows that you made it: name their place, "
                "workspace=..."
            )
        if not os.path.isdir(place):  # noqa: PTH112
            raise UsageError(f"the recovery changed files in {place!r}, which is gone: name their place, workspace=...")
    has_files = any(section.name == WORKSPACE for section in target.envelope.sections)
    is_without_files = done.kind in ("recover", "undo") and not done.workspace  # what it left alone is left alone
    with_files = has_files and place is not None and not is_without_files
    request = Request(
        files=with_files,
        git=with_files and done.git,
        workspace=place,
        decisions=Decisions(edits="take", conflicts="take") if take else Decisions(conflicts="keep"),
        interrupted="roll_back",  # what the run did since the recovery goes back, whether it came to its end or not
        allow_outside_links=allow_outside_links or is_own,  # those were the user's, and are restored
    )
    plan = gather(hf, target, request, kind="undo", options=workspace_options, now=now)
    if request.git and plan.blockers:  # a git that has to stay keeps neither state nor files from going back
        stays, request = plan.blockers, msgspec.structs.replace(request, git=False)
        without = gather(hf, target, request, kind="undo", warnings=stays, options=workspace_options, now=now)
        return plan if without.blockers else without
    return plan
