"""Finishing a recovery that was killed: the undo point at the head says what was under way, the files how far."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import IntegrityError, LeaseHeld, NotFound, PlanOutdated
from holdfast.recovery.apply import PlanApplication, checked, handle_for
from holdfast.recovery.gather import are_files_changed, intent_of
from holdfast.recovery.record import SECTION, read_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import Holdfast
    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.recovery.record import RecoveryRecord
    from holdfast.recovery.result import RecoveryResult
    from holdfast.run import Run
    from holdfast.workspace.options import WorkspaceOptions

_log = logging.getLogger("holdfast")


def finish_interrupted(hf: Holdfast, run: Run) -> RecoveryResult | None:
    """Bring a recovery to an end that was killed between its files and its commit; called when a run is opened."""
    head = run.recorder.head_record
    place = run.workspace.path if run.host.has_workspace else None
    plan = intent_of(hf, head, place) if head is not None else None
    if plan is None or head is None:
        return None
    plan = _in_place(plan, str(run.workspace.path) if run.host.has_workspace else None)
    if not are_files_changed(hf, plan):
        _warn_if_gone(plan)
        return None  # nothing was touched: all is as it was before
    try:
        record = checked(hf, plan)
    except (NotFound, IntegrityError, PlanOutdated) as error:
        _log.warning("run %s: a recovery was interrupted and cannot be finished: %s", run.id, error)
        return None
    try:
        with run.held(), run.lock:
            if run.recorder.head_record is None or run.recorder.head_record.envelope.id != head.envelope.id:
                return None
            _log.warning("run %s: a recovery from %s was interrupted and is finished now", run.id, plan.checkpoint)
            for warning in plan.warnings:
                _log.warning("run %s: %s", run.id, warning)
            return PlanApplication(hf, run, plan, record, None, None).finish(head)
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
    if place is None or not (_is_left(place) or _intent_at(hf, plan.head, place) is not None):
        return plan
    ended = _ended(hf, plan.run, place, options)
    plan = again()
    if ended is None or _aim(ended[0]) != _aim(plan):
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
    if place is not None and (_intent_at_head(hf, run, place) is not None or _is_left(os.fspath(place))):
        _ended(hf, run, place, options)


def recorded_workspace(hf: Holdfast, run: str) -> str | None:
    """Return the directory of a run's last recovery by this user, killed or at its end; None if it left files alone."""
    plan = _intent_at_head(hf, run)
    if plan is not None:
        return plan.request.workspace
    head = hf.latest(run, required=True)
    done = read_record(head.section(SECTION)) if SECTION in head.sections else None
    return done.workspace or None if done is not None and is_own_recovery(hf, run, done) else None


def is_own_recovery(hf: Holdfast, run: str, done: RecoveryRecord) -> bool:
    """Tell whether this user made a recovery that a store tells of."""
    try:
        return done.is_own(run, hf.store.checkpoint(done.undo) if done.undo is not None else None)
    except (NotFound, IntegrityError):
        return False


def unfinished_runs(
    hf: Holdfast, *, place: str | os.PathLike[str] | None = None, limit: int | None = None
) -> dict[str, str | None]:
    """Return the runs with a recovery that has come to its files and not to its end, each with its directory.

    Those of other users are looked for only in `place`.
    """
    return {
        run.id: plan.request.workspace
        for run in hf.store.runs(limit=limit)
        if (plan := _intent_at_head(hf, run.id, place)) is not None
        and plan.files is not None
        and (_is_left(plan.files.target) or are_files_changed(hf, plan))
    }


def _in_place(plan: RecoveryPlan, place: str | os.PathLike[str] | None) -> RecoveryPlan:
    """Return a plan that was interrupted for the directory that is given now: it may have been moved or copied since.

    It counts as the plan's if what the plan puts back is there, or if the plan's own is gone and it only deletes.
    """
    if plan.files is None or place is None or plan.request.into is not None:
        return plan
    here = os.path.realpath(os.fspath(place))
    if here == plan.files.target:
        return plan
    from holdfast.recovery.files import is_carried_out_in  # noqa: PLC0415

    if not is_carried_out_in(here, plan.files):
        return plan
    request = msgspec.structs.replace(plan.request, workspace=here)
    return msgspec.structs.replace(plan, files=msgspec.structs.replace(plan.files, target=here), request=request)


def _warn_if_gone(plan: RecoveryPlan) -> None:
    if plan.files is not None and plan.request.into is None and not os.path.lexists(plan.files.target):
        _log.warning(
            "run %s: a recovery from %s was interrupted in %s, which is not there any more. The run's state is the one "
            "before; the files may be those of the checkpoint. Open the run with the directory where it is now, which "
            "finishes it, or recover again",
            plan.run,
            plan.checkpoint,
            plan.files.target,
        )


def _is_left(place: str) -> bool:
    from holdfast.recovery.files import is_interrupted  # noqa: PLC0415

    return is_interrupted(place)


def _aim(plan: RecoveryPlan) -> tuple[object, ...]:
    """Return where a plan goes, and how."""
    return plan.checkpoint, plan.place, plan.request


def _intent_at_head(hf: Holdfast, run: str, place: str | os.PathLike[str] | None = None) -> RecoveryPlan | None:
    """Return the plan that was being carried out when the run was last moved, None if it came to its end."""
    try:
        return _intent_at(hf, hf.store.run(run).head, place)
    except (NotFound, IntegrityError):
        return None


def _intent_at(hf: Holdfast, head: str | None, place: str | os.PathLike[str] | None) -> RecoveryPlan | None:
    try:
        return intent_of(hf, hf.store.checkpoint(head), place) if head is not None else None
    except (NotFound, IntegrityError):
        return None


def _ended(
    hf: Holdfast, run: str, place: str | os.PathLike[str], options: WorkspaceOptions | None
) -> tuple[RecoveryPlan, RecoveryResult] | None:
    """End a killed restore in a directory, then the run's recovery, wherever it was at work; return it if finished."""
    from holdfast.workspace.restore import recover_interrupted  # noqa: PLC0415

    recover_interrupted(place)
    plan = _intent_at_head(hf, run, place)
    if plan is not None and plan.files is not None:
        recover_interrupted(plan.files.target)
        plan = _in_place(plan, place)
    if plan is None or not are_files_changed(hf, plan):
        return None
    with handle_for(hf, plan, None, options) as handle:
        result = finish_interrupted(hf, handle)
    return None if result is None else (plan, result)
