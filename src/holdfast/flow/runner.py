"""Resuming a flow: until it ends, waits or fails. The same call begins it and resumes it."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.capture.redact import text_redactor
from holdfast.encode.types import TypeRegistry
from holdfast.errors import (
    BudgetExhausted,
    EffectUncertain,
    FlowInvalid,
    HeadMoved,
    IntegrityError,
    LeaseLost,
    NotFound,
    RunCancelled,
    RunWaiting,
    SessionOver,
    SubjectUnavailable,
    UsageError,
)
from holdfast.flow.actions import Actions, Place
from holdfast.flow.digests import FlowChanges, FlowDigests, compare_flows, flow_digests
from holdfast.flow.facts import Facts
from holdfast.flow.functions import resolve_functions
from holdfast.flow.hooks import HookSender
from holdfast.flow.load import bind_params, check_flow
from holdfast.flow.markdown import renamed
from holdfast.flow.model import Action, Hooks, Plan
from holdfast.flow.names import find
from holdfast.flow.phase_tasks import PhaseTasks
from holdfast.flow.position import (
    DEFINITION,
    POSITION,
    FlowRecord,
    Kept,
    Position,
    digests_of,
    place_name,
    rows_of,
    start_mark,
)
from holdfast.flow.preview import is_edited_since, lost_reasons, preview_changes, with_reasons, with_runs_again
from holdfast.flow.reporter import Reporter
from holdfast.flow.result import FlowResult
from holdfast.flow.resume import lost_artifacts, run_again, take_changes
from holdfast.flow.states import States
from holdfast.flow.task_output import OutputFiles
from holdfast.flow.tasks import Tasks
from holdfast.flow.template import fill
from holdfast.flow.walk import FlowStopped, Walk, limits_of
from holdfast.model import sections
from holdfast.model.ids import check_run_id
from holdfast.model.nearest import hint
from holdfast.model.redaction import Redacted
from holdfast.model.sections import WORKSPACE
from holdfast.recovery import freshness
from holdfast.recovery.enter import ask_or_refuse
from holdfast.recovery.fork import BEGINNING
from holdfast.run_files import options_of
from holdfast.settings.apply import redaction_rules
from holdfast.settings.values import RedactionSettings

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.flow.events import Observer
    from holdfast.flow.model import Budget as Limits
    from holdfast.flow.model import Flow
    from holdfast.flow.result import Ending
    from holdfast.run import Run
    from holdfast.runtime.budget import BudgetWarning
    from holdfast.runtime.waits import Waiting
    from holdfast.workspace.options import WorkspaceOptions


def run_flow(
    hf: Holdfast,
    flow: Flow,
    *,
    run_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    params: dict[str, Any] | None = None,
    observer: Observer | None = None,
    waiting: Waiting = "block",
    functions: Mapping[str, Callable[..., Any]] | None = None,
    file: str | None = None,
    trusted: bool = True,
    from_phase: str | None = None,
    redo: Sequence[str] = (),
    project: str | None = None,
    stop: threading.Event | None = None,
    lost: threading.Event | None = None,
    imports: Sequence[str] = (),
    agent: str | None = None,
    lease_s: float | None = None,
    prepare: Callable[[Run], object] = lambda _run: None,
) -> FlowResult:
    """Begin a flow, or resume it from where its run stands, until it ends, waits or fails; return how it ended.

    The same call resumes it. A run that waits for a person blocks, or with `waiting="leave"` returns `waiting`.
    Functions that the flow names are taken from `functions`, or if it is `trusted` from modules that are imported.
    What is kept is valid while definitions, parameters, declared input files and everything before it are the same;
    `from_phase` and `redo` (`PHASE` or `PHASE/TASK`) let phases and tasks run again all the same, with what follows.
    `prepare` is called when the run's files are there, before anything else.
    """
    flow, name, known, values = _met(hf, flow, run_id, params, file)
    again = _wanted_again(flow, from_phase, redo)
    root = Path(workspace) if workspace is not None else Path.cwd()
    over = _over(hf, name, flow, values, known, root=root) if not again else None
    if over is not None:
        return over
    calls = resolve_functions(flow, functions, trusted=trusted)
    _check_variables(flow)
    run = hf.run(name, workspace=workspace, workspace_options=_options(hf, flow), waiting=waiting)
    run.host.lease_s = lease_s
    outputs = OutputFiles.of(hf, name)
    hooks = HookSender(run, flow, Path(workspace or ".")) if flow.hooks != Hooks() else None
    report = Reporter(run, observer, outputs.take if outputs else None, hooks.take if hooks else None)
    run.host.on_flush = report.deliver
    run.host.on_wait = report.tell_wait  # before it is entered: one that is paused waits there
    run.host.leave_when(stop)
    runner: Runner | None = None
    try:
        with run.host.stopped_when(lost), run:
            prepare(run)
            start = FlowStart(file, project, tuple(imports), agent)
            runner = Runner(run, flow, values, functions=calls, report=report, start=start, again=again)
            runner.carry_on()
    except RunWaiting as wait:
        times = [one.until for one in run.host.waits.open if one.until is not None]
        return _ended(
            run, flow, runner, "waiting", wait.question, waits_for=wait.wait, until=min(times) if times else None
        )
    except SessionOver as over:
        if stop is None or not stop.is_set():
            raise
        return _ended(run, flow, runner, "left", str(over))
    except RunCancelled as cancelled:
        return _ended(run, flow, runner, "cancelled", str(cancelled))
    except (FlowStopped, BudgetExhausted, EffectUncertain) as stopped:
        return _ended(run, flow, runner, "failed", str(stopped))
    except (LeaseLost, HeadMoved) as taken:
        return _ended(run, flow, runner, "elsewhere", str(taken))
    finally:
        report.close()
        if outputs is not None:
            outputs.close()
        for failure in hooks.close() if hooks is not None else ():
            report("hook_failed", text=failure)
    return _ended(run, flow, runner, "completed", "")


def store_flow(
    hf: Holdfast,
    flow: Flow,
    *,
    run_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    params: dict[str, Any] | None = None,
    file: str | None = None,
    project: str | None = None,
) -> str:
    """Store a run of a flow with its files and do nothing of it: `advance` begins it, here or elsewhere.

    A run that is there already is left as it is; FlowInvalid or UsageError if it could not be followed.
    """
    flow, name, known, values = _met(hf, flow, run_id, params, file)
    if known is not None:
        return name
    run = hf.run(name, workspace=workspace)
    try:
        with run.held():  # not entered: it has not begun, and does not end here
            Runner(run, flow, values, functions={}, report=Reporter(run, None), start=FlowStart(file, project))
            run.checkpoint(reason="submitted")
    finally:
        run.close()
    return name


def run_name(flow: Flow, params: dict[str, Any] | None) -> str:
    """Return the run of a flow that names none: its `run_id`, filled in, or its name; other parameters, another run."""
    defaults = {key: one.default for key, one in flow.params.items() if one.default is not msgspec.UNSET}
    values = defaults | (params or {})
    if flow.run_id is not None:
        filled = fill(flow.run_id, lambda name: find({"params": values, "flow": {"name": flow.name}}, name))
        return check_run_id(filled)
    given = {key: value for key, value in values.items() if value != defaults.get(key) and not _is_secret(key, value)}
    if not given:
        return flow.name
    packed = msgspec.json.encode(given, order="deterministic", enc_hook=repr)
    return f"{flow.name}-{hashlib.sha256(packed).hexdigest()[:8]}"


def _is_secret(key: str, value: Any) -> bool:
    """Tell whether a parameter would be kept out of the store: then no name may be made of it."""
    text = msgspec.json.encode({key: value}, enc_hook=repr).decode()
    return text_redactor(TypeRegistry(), redaction_rules(RedactionSettings()))(text) != text


def _wanted_again(flow: Flow, from_phase: str | None, redo: Sequence[str]) -> list[tuple[str, str]]:
    """Return the tasks that are to run again; UsageError for a phase or task that the flow does not have."""
    if isinstance(redo, str):
        raise UsageError(f"redo={redo!r} is one text: give a list, redo=[{redo!r}]")
    found: list[tuple[str, str]] = []
    for name in (*([from_phase] if from_phase is not None else ()), *redo):
        phase, _, task = name.partition("/")
        if isinstance(flow, Plan):
            phase = renamed([phase], flow.phases).get(phase, phase)
        if phase not in flow.phases:
            raise UsageError(f"there is no phase {phase!r} in flow {flow.name!r}: {hint(phase, flow.phases)}")
        tasks = list(flow.phases[phase].work(phase))
        if task and task not in tasks:
            raise UsageError(f"phase {phase!r} has no task {task!r}: {hint(task, tasks)}")
        found += [(phase, one) for one in ([task] if task else tasks)] or [(phase, phase)]
    return found


def preview(
    hf: Holdfast | None,
    flow: Flow,
    *,
    run_id: str | None = None,
    params: dict[str, Any] | None = None,
    root: Path | None = None,
    from_phase: str | None = None,
    redo: Sequence[str] = (),
) -> FlowChanges:
    """Return what became of a flow since its run was last resumed, and what resuming it will do."""
    flow, name, known, values = _met(hf, flow, run_id, params)
    wanted = dict.fromkeys(_wanted_again(flow, from_phase, redo), _ASKED_FOR)
    new = flow_digests(flow, values, root)
    head = standing(hf, name) if hf is not None and known is not None else None
    if hf is None or known is None or head is None:
        return preview_changes(None, flow, FlowDigests(), new)
    changes = preview_changes(head, flow, digests_of(known.digests), new)
    changes = with_reasons(changes, known, flow, values, head=head, root=root or Path.cwd())
    position = Kept(msgspec.convert(head.section(POSITION), Position))
    folder = root or Path.cwd()
    is_over = head.summary.status == "completed" and changes.is_same  # what somebody did to its files since is theirs
    lost = lost_artifacts(
        hf.run(name), flow, position, folder, new,
        is_edited=lambda path: not is_over and is_edited_since(head, folder, path),
    )  # fmt: skip
    return with_runs_again(changes, wanted | lost_reasons(lost, folder))


class KeptBefore(NamedTuple):
    """What earlier lives of a run did, and this one does not have to."""

    tasks: int = 0
    took_s: float = 0.0
    tokens: int = 0


def _kept_before(run: Run, flow: Flow, position: Position, digests: FlowDigests, tasks: Tasks) -> KeptBefore:
    """Count what the tasks of this definition came to, in all their rounds; what runs again is not kept."""
    records = [
        record
        for phase in flow.phases
        for number in range(1, position.rounds.get(phase, 1) + 1)
        for task, digest in digests.phases[phase].tasks.items()
        if (record := run.calls.record(place_name(phase, number, task)))
        and record["event"] == "done"
        and record["input"] == digest
        and (number < position.rounds.get(phase, 1) or tasks.is_settled(phase, task))
    ]
    results = [record["result"] for record in records if isinstance(record.get("result"), dict)]
    return KeptBefore(
        tasks=len(records),
        took_s=sum(record.get("duration_s", 0.0) for record in records),
        tokens=sum(result.get("tokens", 0) for result in results),
    )


class FlowStart(NamedTuple):
    """What a flow was started with, so that it can be continued: its file and folder, modules, a plan's agent."""

    file: str | None = None
    project: str | None = None
    imports: tuple[str, ...] = ()
    agent: str | None = None


class Runner:
    """A run made ready to follow a flow: its parts set up, and a changed flow taken in."""

    def __init__(
        self,
        run: Run,
        flow: Flow,
        params: dict[str, Any],
        *,
        functions: Mapping[str, Callable[..., Any]],
        report: Reporter,
        start: FlowStart,
        again: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._run = run
        self._flow = flow
        self._report = report
        self._root = run.workspace.path if run.host.has_workspace else Path.cwd()
        self._is_new = DEFINITION not in run.recorder.present.sections
        run.declare_phases(*flow.phases, plan=start.file)
        self._position = run.host.attach(POSITION, Kept(Position(current=flow.first)), journaled=True)
        digests = flow_digests(flow, params, self._root)
        self.changes = self._take_in(params, digests, start)
        self._take_redo(again, digests)
        self._set_up_budget(flow.budget)
        self._actions = Actions(
            run, flow, self._position, params=params, functions=functions, root=self._root, emit=self._report
        )
        self.tasks = Tasks(
            run, flow, self._position, actions=self._actions, root=self._root, digests=digests, emit=self._report
        )
        self.kept = _kept_before(run, flow, self._position.value, digests, self.tasks)
        self.walk = Walk(
            run,
            flow,
            params,
            self._position,
            digests=digests,
            actions=self._actions,
            tasks=self.tasks,
            phase_tasks=PhaseTasks(run, self.tasks),
            states=States(run, flow, self._position),
            report=self._report,
            root=self._root,
        )

    def carry_on(self) -> None:
        """Continue until the flow is over."""
        phases = {name: list(phase.work(name)) for name, phase in self._flow.phases.items()}
        states = self._run.phases.snapshot().phases
        over = {name: _OVER[states[name].status] for name in phases if name in states and states[name].status in _OVER}
        data = {"flow": self._flow.name, "run": self._run.id, "phases": phases, **({"over": over} if over else {})}
        self._report("flow_started" if self._is_new else "flow_resumed", data=data)
        if not self.changes.is_same:
            self._report("flow_changed", text="; ".join(self.changes.lines()), data=msgspec.to_builtins(self.changes))
        self._set_up_people()
        with self._run.host.grouped():
            self.walk.carry_on()
        self._report.catch_up()
        kept = self.kept
        done = {"done": self.tasks.done, "kept": kept.tasks, "saved_s": kept.took_s, "saved_tokens": kept.tokens}
        self._report("flow_done", data=done)

    def _take_in(self, params: dict[str, Any], digests: FlowDigests, start: FlowStart) -> FlowChanges:
        """Let the run follow this definition from the next checkpoint on; return what became of the one before."""
        run, flow = self._run, self._flow
        definition = run.host.attach(DEFINITION, Kept(FlowRecord(flow={})), journaled=True)
        changes = FlowChanges()
        if not self._is_new:
            changes = take_changes(run, flow, self._position, digests_of(definition.value.digests), digests)
            head = (run.workspace.before_entry if run.host.has_workspace else None) or run.recorder.present
            if not changes.is_same:
                changes = with_reasons(changes, definition.value, flow, params, head=head, root=self._root)
        given = [name for name, value in params.items() if value != flow.params[name].default]
        record = FlowRecord(
            flow=msgspec.to_builtins(flow),
            params=params,
            given=given,
            digests=rows_of(digests),
            file=start.file,
            project=start.project,
            imports=list(start.imports),
            agent=start.agent,
            mark=start_mark(start.project, start.file, start.imports, start.agent),
        )
        if record != definition.value:
            definition.change(**msgspec.structs.asdict(record))
        return changes

    def _take_redo(self, again: Sequence[tuple[str, str]], digests: FlowDigests) -> None:
        """Let tasks run again that somebody names, and those whose files are lost."""
        run, flow, position = self._run, self._flow, self._position
        if not self._is_new:
            run_again(run, flow, position, again, _ASKED_FOR)
            lost = lost_artifacts(run, flow, position, self._root, digests)
            reasons = lost_reasons(lost, self._root)
            told = "; ".join(f"{phase}/{task} runs again ({reasons[phase, task]})" for phase, task in lost)
            run_again(run, flow, position, lost, told)
            if lost and self.changes.is_same:
                self._report("flow_changed", text=told)
            reasons |= dict.fromkeys(again, _ASKED_FOR)
            self.changes = with_runs_again(self.changes, reasons)

    def _set_up_budget(self, limits: Limits | None) -> None:
        budget = self._run.budget
        budget.limit(**limits_of(limits))
        budget.warn(
            at=limits.warn_at if limits else None,
            on_warning=limits.on_warning if limits else None,
            warned=self._warned,
        )

    def _warned(self, warning: BudgetWarning) -> None:
        text = f"{warning.budget}: {warning.used} of {warning.limit} used"
        self._report("budget_warning", text=text, data={"budget": warning.budget})

    def _set_up_people(self) -> None:
        """Put team and subject into their sections, the subject as it is now."""
        flow, run = self._flow, self._run
        if flow.team is not None:
            run.team.rename(flow.team.id or run.team.id)
            for member, role in flow.team.members.items():
                run.team.add(member, role)
            run.agents.team = run.team
        self._actions.conversation.inform(self.walk.facts(flow.first), Place("", "knowledge", "knowledge"))
        subject = flow.subject
        if subject is None:
            return
        name = str(subject.id if subject.id is not None else subject.issue)
        given = {field: getattr(subject, field) for field in _SUBJECT_FIELDS}
        known = {field: value for field, value in given.items() if value not in (None, [])}
        now = sections.Subject(id=name, **{**known, **self._read_subject(name)})
        if not self._is_new:
            changed = run.subject.differences(now)
            if changed:
                run.host.note("subject changed", f"{name}: {', '.join(changed)}")
                self._report("subject_changed", text=f"{name}: {', '.join(changed)}", data={"fields": changed})
                self._check_subject(now)
        run.subject.update(**{field: getattr(now, field) for field in ("id", *_SUBJECT_FIELDS)})

    def _check_subject(self, now: sections.Subject) -> None:
        """Ask, or refuse, by the verdict on what changed in the subject: the same as on any other way to resume."""
        run = self._run
        verdicts = run.holdfast.settings.recovery.verdicts
        then, seen = freshness.FreshnessFacts(subject=run.subject.value), freshness.FreshnessFacts(subject=now)
        found = freshness.findings(then, seen, verdicts=verdicts)
        ask_or_refuse(run, run.recorder.present, found)

    def _read_subject(self, name: str) -> dict[str, Any]:
        """Return the subject's present form as its command prints it, nothing if it has none."""
        subject = self._flow.subject
        if subject is None or subject.read is None:
            return {}
        facts = self.walk.facts(self._flow.first)
        place = Place("", "subject", "subject")
        result = self._actions.execute(subject.read, _READ, place, facts, "task_output")
        said = result.json() if result.succeeded else None
        if not isinstance(said, dict):
            raise SubjectUnavailable(name, result.problem or "its command did not print a JSON object")
        read = {field: said[field] for field in _SUBJECT_FIELDS if said.get(field) is not None}
        try:
            msgspec.convert({"id": name, **read}, sections.Subject)
        except msgspec.ValidationError as error:
            raise SubjectUnavailable(name, f"its command printed something else ({error})") from None
        return read


_SUBJECT_FIELDS = ("title", "body", "labels", "assignees", "branch")
_READ = Action(run="read")
_ASKED_FOR = "it was asked for"
_OVER = {"completed": "kept", "skipped": "skipped"}  # as whoever watches sees a phase of an earlier process
_BLANK = {*BEGINNING, WORKSPACE, "status", "waits", "journal", "error"}  # what a run has that did nothing yet


class _Met(NamedTuple):
    """A flow as its run knows it, the run's name, what the run follows so far, and the parameters."""

    flow: Flow
    run: str
    known: FlowRecord | None
    values: dict[str, Any]


def _met(
    hf: Holdfast | None, flow: Flow, run_id: str | None, params: dict[str, Any] | None, file: str | None = None
) -> _Met:
    """Check a flow and find its run; the phases of a plan get the names that the run has for their numbers."""
    checked = check_flow(flow, file)
    name = run_id or run_name(checked, params)
    known = _stored(hf, name) if hf is not None else None
    if isinstance(flow, Plan):
        names = renamed(checked.phases, known.flow.get("phases", ()) if known is not None else ())
        phases = {names.get(phase, phase): said for phase, said in checked.phases.items()}
        checked = Plan(**{**msgspec.structs.asdict(checked), "phases": phases})
    return _Met(checked, name, known, _bound(name, checked, known, params))


def standing(hf: Holdfast, name: str) -> Checkpoint | None:
    """Return how a run stands, also one that took no checkpoint; None if there is none."""
    head = hf.latest(name)
    if head is None and not hf.has(name):
        with suppress(NotFound):
            return hf.find("latest", run=name)
    return head


def _stored(hf: Holdfast, name: str) -> FlowRecord | None:
    """Return the definition that a run follows, None if it is new; UsageError if it is not a flow's run."""
    head = standing(hf, name)
    if head is None:
        return None
    if DEFINITION not in head.sections:
        if {section.partition(".")[0] for section in head.sections} <= _BLANK:
            return None  # it was begun, and ended before it followed anything; or what was there is set aside
        raise UsageError(f"run {name!r} is there and was not begun by a flow: choose another run id")
    try:
        return msgspec.convert(head.section(DEFINITION), FlowRecord)
    except msgspec.ValidationError:
        raise UsageError(f"section {DEFINITION!r} of run {name!r} is not a flow: choose another run id") from None


def origin_of(hf: Holdfast, name: str) -> tuple[str | None, str | None] | None:
    """Return the project and the file of the flow that a run follows, None if it follows none."""
    try:
        known = _stored(hf, name)
    except (UsageError, IntegrityError):
        return None
    return (known.project, known.file) if known is not None else None


def _over(
    hf: Holdfast, name: str, flow: Flow, values: dict[str, Any], known: FlowRecord | None, *, root: Path
) -> FlowResult | None:
    """Return how a run ended that has nothing left to do, None if it can be resumed."""
    head = standing(hf, name) if known is not None else None
    if known is None or head is None:
        return None
    status = head.summary.status
    digests = flow_digests(flow, values, root)
    changes = compare_flows(digests_of(known.digests), digests)
    ending: Ending = "cancelled" if status == "cancelled" else "completed"
    if status == "cancelled" or (status == "completed" and changes.is_same):
        run = hf.run(name)
        position = Kept(msgspec.convert(head.section(POSITION), Position))
        if status == "completed" and lost_artifacts(run, flow, position, root, digests):
            return None
        facts = Facts(run, flow, values, position, budget=run.budget, phase=flow.first)
        statuses, results = _came_to(run, flow, facts)
        return FlowResult(
            run=name,
            flow=flow.name,
            status=ending,
            detail="it was over already",
            phases=statuses,
            results=results,
            changes=changes,
        )
    return None


def _came_to(run: Run, flow: Flow, facts: Facts | None) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the status of each phase, and the results of those that are complete."""
    states = run.phases.snapshot().phases
    statuses: dict[str, str] = {name: states[name].status if name in states else "pending" for name in flow.phases}
    done = [name for name, status in statuses.items() if status == "completed"]
    return statuses, {name: facts.phase(name)["result"] for name in done} if facts is not None else {}


def _options(hf: Holdfast, flow: Flow) -> WorkspaceOptions:
    """Return the options of a flow's directory: what it makes is captured, or on another machine it would be lost."""
    tasks = [task for name, phase in flow.phases.items() for task in phase.work(name).values()]
    made = dict.fromkeys(artifact for task in tasks for artifact in task.artifacts)
    return replace(options_of(hf.settings.workspace), made=tuple(made))


def _check_variables(flow: Flow) -> None:
    """Raise FlowInvalid if variables are not set that a flow names: a task would fail of it in the middle."""
    missing = [name for name in flow.env_from if name not in os.environ]
    if missing:
        told = tuple(f"env_from: {name} is not set in the environment here" for name in missing)
        raise FlowInvalid("its variables are not there", flow.name, told)


def _was_taken_out(value: Any) -> bool:
    """Tell whether a parameter, or a part of it, was kept out of the store as a secret."""
    if isinstance(value, dict):
        return any(map(_was_taken_out, value.values()))
    return any(map(_was_taken_out, value)) if isinstance(value, list) else isinstance(value, Redacted)


def _bound(name: str, flow: Flow, known: FlowRecord | None, params: dict[str, Any] | None) -> dict[str, Any]:
    """Return the parameters of a run: those of an earlier process unless others are given; secrets are given again."""
    if known is None:
        return bind_params(flow, params)
    owner = known.flow.get("flow")
    if owner != flow.name:
        raise UsageError(
            f"run {name!r} belongs to flow {owner!r}, not {flow.name!r}: choose another run id, or delete the run"
        )
    values = {key: value for key, value in known.params.items() if key in flow.params} | (params or {})
    kept = {key: value for key, value in values.items() if not _was_taken_out(value)}
    lost = [key for key in values if key not in kept and key in known.given]
    if lost:
        told = (
            f"params.{key}: it is a secret, so it was kept out of the store: give it again (--param {key}=VALUE)"
            for key in lost
        )
        raise FlowInvalid("its parameters are not all there", flow.name, tuple(told))
    return bind_params(flow, kept)


def _ended(
    run: Run,
    flow: Flow,
    runner: Runner | None,
    status: Ending,
    detail: str,
    *,
    waits_for: str | None = None,
    until: datetime | None = None,
) -> FlowResult:
    kept = runner.kept if runner else KeptBefore()
    statuses, results = _came_to(run, flow, runner.walk.facts(flow.first) if runner else None)
    return FlowResult(
        run=run.id,
        flow=flow.name,
        status=status,
        detail=detail,
        phases=statuses,
        results=results,
        waits_for=waits_for,
        until=until,
        changes=runner.changes if runner else FlowChanges(),
        tasks_done=runner.tasks.done if runner else 0,
        tasks_kept=kept.tasks,
        saved_s=kept.took_s,
        saved_tokens=kept.tokens,
    )
