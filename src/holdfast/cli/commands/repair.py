"""Repair a store: damaged checkpoints are marked, and a run whose head is damaged steps back to a sound one.

A run whose own record, holds or lease are damaged has them rebuilt from its sound checkpoints. Nothing is deleted. What
is lost is said, and asked about, first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import Declined, told_text
from holdfast.cli.output import Paint
from holdfast.cli.times import number
from holdfast.documents import plain
from holdfast.errors import HoldfastError, IntegrityError, NotFound

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.recovery.find import Damage
    from holdfast.recovery.plan import RecoveryPlan
    from holdfast.store.store import Store
    from holdfast.verify.check import Fault, Report


def configure(parser: CommandParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would be done and do nothing")


def execute(arguments: Namespace, session: Session) -> int:
    """Check, show, ask, fix."""
    out = session.out
    rebuilt, rebuilt_records = _rebuild(session, dry_run=arguments.dry_run)
    if rebuilt and arguments.dry_run:
        out.note("What else can be fixed shows when that is done.")
        nothing: dict[str, Any] = {"rebuilt_records": {}, "marked": [], "set_back": [], "left": []}
        out.document({"sound": False, "rebuilt": rebuilt, **nothing, "done": False})
        return IntegrityError.exit_code
    report = _verify(session)
    damages = _damaged(report, session)
    steps = _steps_back(session)
    for one in damages:
        out.line(Paint("mark    ", "yellow"), f"{one.run}@{one.seq} as corrupted: {told_text(one.detail)}")
    for plan in steps:
        lost = "; ".join(dict.fromkeys(one.lost for one in plan.damage if one.lost))
        out.line(Paint("go back ", "red"), f"{plan.run} to checkpoint {plan.seq}", f" (lost: {lost})" if lost else "")
    marked = {one.checkpoint for one in damages}
    others = [one for one in report.faults if one.checkpoint not in marked and not _is_marked(one, session)]
    for fault in others:
        out.line(Paint("left    ", "dim"), f"{fault.kind}: {told_text(fault.detail)}")
    is_done = bool(damages or steps) and not arguments.dry_run
    if is_done and not session.ask.agreed(
        f"Mark {number(len(damages), 'checkpoint')} and set {number(len(steps), 'run')} back?"
    ):
        raise Declined
    document: dict[str, Any] = {
        "sound": report.sound,
        "rebuilt": rebuilt,
        "rebuilt_records": rebuilt_records,
        "marked": [plain(one) for one in damages],
        "set_back": [{"run": plan.run, "to": plan.checkpoint, "seq": plan.seq} for plan in steps],
        "left": [plain(one) for one in others],
        "done": is_done or bool(rebuilt),
    }
    if is_done:
        _repair(damages, steps, session)
    out.document(document)
    is_settled = not (damages or steps or others)
    is_dry = arguments.dry_run
    _tell(
        report,
        session,
        is_done=is_done,
        is_settled=is_settled,
        rebuilt=rebuilt,
        rebuilt_records=rebuilt_records,
        dry_run=is_dry,
    )
    for run, last in rebuilt_records.items():
        out.note(f"Whether {run} had later checkpoints than {last}, nobody can tell: its record was rebuilt.")
    return 0 if report.sound or is_done or is_settled else IntegrityError.exit_code


def _tell(
    report: Report,
    session: Session,
    *,
    is_done: bool,
    is_settled: bool,
    rebuilt: list[str],
    rebuilt_records: dict[str, int],
    dry_run: bool,
) -> None:
    """Say how the store stands now."""
    out = session.out
    if report.sound:
        told = "all that is there is as it should be." if rebuilt_records else "all is as it should be again."
        out.line(Paint("Sound: ", "green"), told if rebuilt else "nothing to repair.")
    elif is_done:
        out.note("Done. What is marked is passed over from now on; `holdfast verify` still names it.")
        out.note("What was lost can be restored from a copy or an export; `holdfast delete` gives the space back.")
    elif is_settled:
        out.line("Nothing more to repair: what is damaged is marked already, and passed over.")
        out.note("`holdfast verify` names it. A copy or an export may have it; `holdfast delete` gives the space back.")
    else:
        out.line(
            "Nothing is repaired"
            + (" by a dry run." if dry_run else ": what is left above cannot be repaired from here.")
        )
        out.note("A copy or an export may have it; `holdfast delete RUN` gives the space back.")


def _rebuild(session: Session, *, dry_run: bool) -> tuple[list[str], dict[str, int]]:
    """Give runs whose record, holds or lease are damaged new ones, before anything else is looked at.

    Return them, and the last number of each whose record was rebuilt.
    """
    from holdfast.store.repair import Repair  # noqa: PLC0415

    store = session.hf.store
    return _rebuilt(session, store, Repair(store).damaged_runs(), dry_run=dry_run)


def _rebuilt(session: Session, store: Store, runs: list[str], *, dry_run: bool) -> tuple[list[str], dict[str, int]]:
    from holdfast.store.repair import Repair  # noqa: PLC0415
    from holdfast.verify.rebuild import rebuild  # noqa: PLC0415

    out = session.out
    for run in runs:
        out.line(Paint("rebuild ", "yellow"), f"{run}: what the store keeps about it, from its sound checkpoints")
    if dry_run or not runs:
        return runs, {}
    if not session.ask.agreed(f"Rebuild the record of {number(len(runs), 'run')}?"):
        raise Declined
    has_damaged_record: dict[str, bool] = {}
    for run in runs:
        has_damaged_record[run] = _is_record_damaged(store, run)
        rebuild(store, run)
    for run in Repair(store).damaged_runs():
        if run in runs:  # a checkpoint that stood under another's name was restored after its record was made
            rebuild(store, run)
    ends: dict[str, int] = {}
    for run in runs:
        try:
            record = store.run(run)
        except (NotFound, IntegrityError):
            continue
        out.note(f"{run} has {number(record.checkpoints, 'checkpoint')} up to {record.last_seq}.")
        if has_damaged_record[run]:
            ends[run] = record.last_seq
    return runs, ends


def _is_record_damaged(store: Store, run: str) -> bool:
    try:
        store.run(run)
    except NotFound:
        return False
    except IntegrityError:
        return True
    return False


def _verify(session: Session) -> Report:
    with session.progress("Verifying") as progress:
        return session.hf.verify(progress=lambda what, count: progress.update(count, None, what))


def _damaged(report: Report, session: Session) -> list[Damage]:
    """Return the damaged checkpoints that can be marked and are not yet."""
    from holdfast.recovery.find import Damage  # noqa: PLC0415

    found: dict[str, Damage] = {}
    for fault in report.faults:
        if fault.checkpoint is None or fault.kind not in ("chunk", "checkpoint") or fault.checkpoint in found:
            continue
        try:
            record = session.hf.store.checkpoint(fault.checkpoint)
        except HoldfastError:
            continue  # its record itself is gone: there is nothing to mark, and lists pass over it
        if record.marks.status != "corrupted":
            envelope = record.envelope
            found[envelope.id] = Damage(run=envelope.run, seq=envelope.seq, checkpoint=envelope.id, detail=fault.detail)
    return list(found.values())


def _is_marked(fault: Fault, session: Session) -> bool:
    """Tell whether an earlier repair marked the checkpoint already."""
    if fault.checkpoint is None:
        return False
    try:
        return session.hf.store.checkpoint(fault.checkpoint).marks.status == "corrupted"
    except HoldfastError:
        return False


def _steps_back(session: Session) -> list[RecoveryPlan]:
    """Return how each run whose head is damaged would go back to its newest sound checkpoint."""
    plans: list[RecoveryPlan] = []
    for run in session.hf.runs():
        if run.head is None:
            continue
        try:
            plan = session.hf.plan("latest", run=run.id, files=False)
        except IntegrityError as error:
            session.out.warn(str(error))
            continue
        if plan.damage and plan.checkpoint != run.head:
            plans.append(plan)
    return plans


def _repair(damages: list[Damage], steps: list[RecoveryPlan], session: Session) -> None:
    from holdfast.recovery.find import mark_corrupted  # noqa: PLC0415

    for plan in steps:
        result = session.hf.recover(plan, confirmed=True)
        if not result.success:
            session.out.warn(f"{plan.run}: {'; '.join(result.errors)}")
    mark_corrupted(session.hf.store, damages)
