"""Put a run back so that it can continue: from its newest sound checkpoint, or from the one that is named.

What was found is shown first, then what changed since, then the plan; nothing is touched before you agree. Then a flow
continues in the run's own directory, with the file, parameters, modules and agent that it was started with. A run that
is moved by a program of its own is only put back: exit code 14 says that its program is to be started. With --json, the
first of a flow's lines is of kind `resumed`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.cli.commands.restore import CHOICES, add_clone, add_links, decisions
from holdfast.cli.errors import START_PROGRAM, Declined
from holdfast.cli.output import Paint
from holdfast.cli.people import me
from holdfast.cli.recovering import (
    agree,
    carry_out,
    check_can_resume,
    result_document,
    show_plan,
    tell_found,
    tell_result,
)
from holdfast.documents import is_moving, plain
from holdfast.errors import CannotResume, FlowInvalid, IntegrityError, NotFound, RecoveryIncomplete, UsageError
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.find import locate, opened
from holdfast.recovery.finish import end_interrupted
from holdfast.recovery.gather import plan_recovery
from holdfast.recovery.result import RecoveryResult

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.checkpoint import Checkpoint
    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session
    from holdfast.flow.position import FlowRecord
    from holdfast.model.runtime_sections import Wait
    from holdfast.recovery.find import Located
    from holdfast.recovery.plan import PlanOptions, RecoveryPlan
    from holdfast.recovery.verdict import Freshness
    from holdfast.workspace.decide import Decisions

_OVER = ("completed", "cancelled")
_FLOW = "flow"  # the section of a run that follows a declared flow


def configure(parser: CommandParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "checkpoint",
        metavar="RUN|CHECKPOINT",
        nargs="?",
        help="a run, a checkpoint of it, or a position (RUN#812); otherwise the run that moved last",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="show the plan and do nothing")
    parser.add_argument("--fresh", action="store_true", help="set the run aside, and start from the beginning")
    parser.add_argument("--skip-failed", action="store_true", help="continue without the agents that failed")
    parser.add_argument("--retry-failed", action="store_true", help="let the agents that failed try again")
    parser.add_argument("--reset-to", metavar="STATE", help="set the workflow back to this state")
    parser.add_argument(
        "--retry", metavar="STEP", action="append", default=[], help="do a step of unknown outcome again"
    )
    parser.add_argument(
        "--skip", metavar="STEP", action="append", default=[], help="take a step of unknown outcome as done"
    )
    parser.add_argument(
        "--issue",
        metavar="FILE|NUMBER|OWNER/NAME#NUMBER",
        help="what the run works on, to see what changed in it",
    )
    parser.add_argument("--workspace", metavar="DIR", help="the run's directory (the project's folder)")
    parser.add_argument("--no-files", action="store_true", help="leave the files as they are")
    parser.add_argument("--git", action="store_true", help="put branch, commit and index back, too")
    parser.add_argument("--no-run", action="store_true", help="put the run back, and do not continue its flow")
    add_clone(parser)
    add_links(parser)
    half = parser.add_mutually_exclusive_group()
    half.add_argument(
        "--roll-back", action="store_true", help="put back the files that an interrupted call had changed"
    )
    half.add_argument("--keep-changes", action="store_true", help="keep them as they are, without a question")
    chosen = parser.add_mutually_exclusive_group()
    for name, text in CHOICES[1:]:
        chosen.add_argument(f"--{name}", dest="choice", action="store_const", const=name, help=text)
    chosen.add_argument("--decisions", metavar="FILE", help="what was decided for each file, as the page hands it out")


def execute(arguments: Namespace, session: Session) -> int:
    """Find, look, plan, ask, recover."""
    hf, out = session.hf, session.out
    # Looked up once, without its files: of those the plan reads what it would write.
    located = locate(
        hf.store,
        arguments.checkpoint or session.place.project.run or _last_run(session),
        without={WORKSPACE},
        left=False,
    )
    checkpoint = opened(hf, located)
    if arguments.fresh and arguments.dry_run:
        out.line(f"{checkpoint.run} would be set aside, and start from the beginning.")
        out.document({"recovered": False, "fresh": False, "run": checkpoint.run})
        return 0
    if arguments.fresh:
        if not session.ask.agreed(f"Set {checkpoint.run} aside, and start from the beginning?"):
            raise Declined
        return _start_fresh(checkpoint.run, session)
    is_run = checkpoint.run == (arguments.checkpoint or checkpoint.run)
    settled = _settled(checkpoint, arguments, session) if is_run else None
    if settled is not None:
        return settled
    tell_found(checkpoint, session)
    plan = _plan(checkpoint, arguments, session, {}, located)
    if arguments.dry_run:
        show_plan(plan, session)
        out.document({"recovered": False, "plan": plain(plan), "digest": plan.digest})
        return CannotResume.exit_code if plan.blockers else 0
    ended = end_interrupted(hf, plan, lambda: _plan(checkpoint, arguments, session, {}))
    if isinstance(ended, RecoveryResult):
        return _end(ended, None, checkpoint, arguments, session)
    plan = ended
    show_plan(plan, session)
    if plan.files is None or not plan.files.conflicts or not session.ask.can_ask:
        check_can_resume(plan)
    agreed = agree(
        plan,
        session,
        again=lambda more: _plan(checkpoint, arguments, session, more),
        look=lambda: _look(checkpoint, arguments, session),
    )
    if agreed is None:
        return _start_fresh(checkpoint.run, session)
    result = carry_out(agreed, session)
    return _end(result, agreed, checkpoint, arguments, session)


def _end(
    result: RecoveryResult, plan: RecoveryPlan | None, checkpoint: Checkpoint, arguments: Namespace, session: Session
) -> int:
    """Say what was done, then continue the flow, unless something could not be done."""
    planned = {"plan": plain(plan), "digest": plan.digest} if plan is not None else {}
    document = {"recovered": result.is_recovered, **planned, "result": result_document(result)}
    if not result.success:
        session.out.document(document)
        tell_result(result, session, plan=plan)
        return RecoveryIncomplete.exit_code
    _document(document, checkpoint, arguments, session)
    tell_result(result, session, plan=plan)
    return _continue(checkpoint, arguments, session)


def _document(value: dict[str, Any], checkpoint: Checkpoint, arguments: Namespace, session: Session) -> None:
    """Write the document of --json; where a flow continues it is the first of the lines that follow."""
    if session.out.json and _flow_of(checkpoint) is not None and not arguments.no_run:
        session.out.stdout.write(json.dumps({"kind": "resumed", **value}) + "\n")
    else:
        session.out.document(value)


def _continue(checkpoint: Checkpoint, arguments: Namespace, session: Session) -> int:
    """Continue the flow that a run follows, and return how it ended; say what to start where it follows none."""
    from argparse import Namespace  # noqa: PLC0415 - loaded already

    record = _flow_of(checkpoint)
    if record is None:
        session.out.note(f"Start the program of {checkpoint.run} again: it continues from here.")
        return 0 if arguments.no_run else START_PROGRAM
    assert record.file is not None
    typed = ["holdfast", "run", record.file, "--run-id", checkpoint.run]
    typed += [word for module in record.imports for word in ("--import", module)]
    typed += ["--agent", record.agent] if record.agent else []
    file = session.root / record.file
    if not file.is_file() and record.project is not None and (Path(record.project) / record.file).is_file():
        store = ["--store", session.options.store] if session.options.store else []
        typed = ["holdfast", "-C", record.project, *store, "resume", checkpoint.run]
    if arguments.no_run or not file.is_file() or not _is_own(record, session):
        missing = "" if arguments.no_run or file.is_file() else f"{record.file} is not in {session.root}. "
        foreign = "" if missing or arguments.no_run else "You did not start it in this folder, so it is not run. "
        session.out.note(f"{missing}{foreign}`{shlex.join(typed)}` continues it.")
        return 0 if arguments.no_run else START_PROGRAM
    from holdfast.cli.commands import run as run_command  # noqa: PLC0415 - only to continue a flow

    has_files = WORKSPACE in checkpoint.sections
    session.out.note(f"Continuing: {shlex.join(typed)}")
    return run_command.execute(
        Namespace(
            flow=str(file),
            run_id=checkpoint.run,
            param=[],  # those that are stored with the run
            workspace=arguments.workspace if has_files else None,
            no_files=not has_files,
            modules=record.imports,
            agent=record.agent,
            wait=False,
            no_wait=False,
            dry_run=False,
            from_phase=None,
            redo=[],
            resume=True,
            fresh=False,
        ),
        session,
    )


def _is_own(record: FlowRecord, session: Session) -> bool:
    """Tell whether this user started the flow so, in this folder: a store from elsewhere must not name what is run."""
    from holdfast.flow.position import is_started_here  # noqa: PLC0415 - only to continue a flow

    store = session.hf.store.folder
    folders = {str(session.root.resolve()), str(store.resolve().parent) if store is not None else ""}  # a fork's store
    return record.project in folders and is_started_here(record)


def _flow_of(checkpoint: Checkpoint) -> FlowRecord | None:
    """Return what a run's flow was started with, None if it follows none or one that a program made."""
    import msgspec  # noqa: PLC0415 - only for runs that follow a flow

    from holdfast.flow.position import FlowRecord  # noqa: PLC0415

    if _FLOW not in checkpoint.sections:
        return None
    try:
        record = msgspec.convert(checkpoint.section(_FLOW), FlowRecord)
    except msgspec.ValidationError:
        return None
    return record if record.file else None


def _start_fresh(run: str, session: Session) -> int:
    """Set a run's line aside and begin a new one; what was there can be gone back to."""
    first = session.hf.recovery.start_fresh(run)
    session.out.document({"recovered": False, "fresh": True, "run": run, "checkpoint": first.id})
    session.out.line(f"{run} starts from the beginning; `holdfast log {run} -a` shows what was there.")
    session.out.note(f"`holdfast undo {run}` goes back to before.")
    return 0


def _look(checkpoint: Checkpoint, arguments: Namespace, session: Session) -> None:
    """Show how the files now differ from those of the checkpoint."""
    from holdfast.cli.commands.diff import show_files  # noqa: PLC0415 - only if a person wants to see it

    if WORKSPACE not in checkpoint.sections:
        session.out.line("The checkpoint holds no files.")
        return
    run = session.hf.run(checkpoint.run, workspace=session.directory_of(checkpoint.run, arguments.workspace))
    with session.out.paged():
        show_files(run.workspace.diff(checkpoint), session)


def _last_run(session: Session) -> str:
    """Return the run that moved last and can still continue."""
    runs = sorted(session.hf.runs(limit=200), key=lambda run: run.updated_at, reverse=True)
    for run in runs:
        if run.head is None and run.last_seq:
            continue
        status = session.hf.find(run.id).summary.status
        if status not in _OVER:
            session.out.note(f"The run that moved last is {run.id}.")
            return run.id
    raise NotFound("run to resume", "", "all are complete; `holdfast ls` lists them" if runs else "the store is empty")


def _settled(checkpoint: Checkpoint, arguments: Namespace, session: Session) -> int | None:
    """Say so, and do what little there is to do, if the run is complete, under way, or paused; None if it is not."""
    hf, out, run = session.hf, session.out, checkpoint.run
    document: dict[str, Any] = {"recovered": False, "run": run, "status": checkpoint.summary.status}
    if checkpoint.summary.status == "completed":
        out.line(Paint("Complete: ", "green"), f"{run} has reached its end, so there is nothing to resume.")
        out.document(document)
        return 0
    paused = [wait for wait in _waits(session, run) if wait.kind == "pause"]
    lease = hf.store.leases.running(run)
    if paused and arguments.dry_run:
        out.line(f"{run} was {paused[0].question}; without --dry-run it may continue.")
        out.document({**document, "unpaused": False})
        return 0
    if paused:
        hf.control.unpause(run, by=me(out.environment))
        out.line(
            f"{run} was {paused[0].question}; it may continue now" + (f": {lease.owner} moves it." if lease else ".")
        )
        unpaused = {**document, "unpaused": True}
        out.document(unpaused) if lease is not None else _document(unpaused, checkpoint, arguments, session)
        return 0 if lease is not None else _continue(checkpoint, arguments, session)
    if lease is not None and is_moving(hf.store, run):
        out.line(f"{run} is under way: {lease.owner} moves it.")
        out.document({**document, "owner": lease.owner})
        return 0
    return None


def _waits(session: Session, run: str) -> list[Wait]:
    try:
        return session.hf.control.waiting(run)
    except IntegrityError:
        return []  # the head is damaged: the plan says so


def _plan(
    checkpoint: Checkpoint,
    arguments: Namespace,
    session: Session,
    more: dict[str, Any],
    located: Located | None = None,
) -> RecoveryPlan:
    """Plan with what is on the line and what was answered; `located` while nothing can have moved since."""
    unknown = {**dict.fromkeys(arguments.retry, "retry"), **dict.fromkeys(arguments.skip, "skip")}
    both = set(arguments.retry) & set(arguments.skip)
    if both:
        raise UsageError(f"step {next(iter(both))!r}: either --retry or --skip")
    with_files = WORKSPACE in checkpoint.sections and not arguments.no_files
    options: dict[str, Any] = {
        "skip_failed": arguments.skip_failed,
        "retry_failed": arguments.retry_failed,
        "reset_to": arguments.reset_to,
        "git": arguments.git,
        "clone": arguments.clone,
        "files": "auto" if with_files else False,
        "workspace": session.directory_of(checkpoint.run, arguments.workspace) if with_files else None,
        "decisions": _saved(arguments.decisions) or decisions(arguments.choice, paths=False),
        "interrupted": "roll_back" if arguments.roll_back else "keep" if arguments.keep_changes else None,
        "allow_outside_links": arguments.allow_outside_links,
        "subject": arguments.issue,
        "unknown": {**unknown, **more.get("unknown", {})},
    }
    options |= {name: more[name] for name in ("decisions", "interrupted") if name in more}
    if _FLOW in checkpoint.sections:
        root = session.directory_of(checkpoint.run, arguments.workspace, reads_only=True)
        options["freshness"] = _flow_freshness(checkpoint, session, root)
    spec = arguments.checkpoint or checkpoint.run
    return plan_recovery(session.hf, spec, cast("PlanOptions", options), found=located)


def _saved(name: str | None) -> Decisions | None:
    """Return the decisions in a file, None without one."""
    if name is None:
        return None
    from holdfast.workspace import decide  # noqa: PLC0415 - loaded with the workspace

    try:
        return msgspec.json.decode(Path(name).read_bytes(), type=decide.Decisions)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"--decisions {name}: {error}") from None


def _flow_freshness(checkpoint: Checkpoint, session: Session, root: Path) -> Freshness:
    """Return whether the flow's file, and its inputs below `root`, are as when the checkpoint was taken.

    A file that is gone says nothing.
    """
    import msgspec  # noqa: PLC0415 - only for runs that follow a flow

    from holdfast.flow.digests import flow_digests  # noqa: PLC0415
    from holdfast.flow.load import load_flow  # noqa: PLC0415
    from holdfast.flow.position import FlowRecord, rows_of  # noqa: PLC0415
    from holdfast.recovery.verdict import Freshness  # noqa: PLC0415

    try:
        record = msgspec.convert(checkpoint.section(_FLOW), FlowRecord)
        file = session.root / (record.file or "")
        is_inside = file.resolve().is_relative_to(session.root.resolve())  # a store may name any file
        if file.suffix not in (".yaml", ".yml", ".json") or not is_inside or not file.is_file():
            return Freshness()
        now = rows_of(flow_digests(load_flow(file), record.params, root))
    except (FlowInvalid, msgspec.ValidationError):
        return Freshness(flow="a file that cannot be followed", flow_then="one that could")
    then, seen = (msgspec.json.encode(rows).decode() for rows in (record.digests, now))
    return Freshness(flow=seen, flow_then=then)
