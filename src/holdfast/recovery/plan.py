"""The plan of a recovery: a frozen value that is shown, saved and then carried out exactly as it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import msgspec
from blake3 import blake3

from holdfast.encode.documents import Bounds, parse_json
from holdfast.errors import DocumentInvalid, InvalidId, RestoreRefused, UsageError
from holdfast.model.checkpoint import NO_RECOVERY_POINT
from holdfast.model.ids import check_checkpoint_id, check_run_id, check_section_name
from holdfast.model.sections import Subject
from holdfast.recovery.analyse import analyse
from holdfast.recovery.find import Damage
from holdfast.recovery.outcomes import (
    Treatment,
    UnknownStep,
    decided_steps,
    open_calls,
    repeated,
    repeated_effects,
    settled,
    unknown_steps,
)
from holdfast.recovery.prerequisites import Prerequisite, all_met, prerequisites_of
from holdfast.recovery.sections import Restoring, check_state, restored
from holdfast.recovery.suggest import suggestions
from holdfast.workspace.decide import Decisions, Interrupted
from holdfast.workspace.plan import RestorePlan
from holdfast.workspace.plan import check as check_files

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from holdfast.model.checkpoint import CheckpointRecord, Envelope
    from holdfast.model.recovery import RecoveryInfo
    from holdfast.model.verdicts import Verdict as FreshnessVerdict
    from holdfast.recovery.freshness import FreshnessFacts
    from holdfast.recovery.subject import SubjectProvider
    from holdfast.recovery.verdict import Freshness
    from holdfast.workspace.options import WorkspaceOptions

_FORMAT = 1
_BOUNDS = Bounds(size_bytes=256 << 20, nodes=10_000_000)  # its files are those of a whole tree
_MOST_SHOWN = 20
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
Verdict = Literal["resume", "warn", "ask", "fresh", "blocked"]
Kind = Literal["recover", "undo"]


class PlanFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something outside the run that is not as it was: what it is, in words, and what follows from it."""

    kind: str
    verdict: Verdict
    detail: str


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked for: enough to look again whether the plan still holds."""

    skip_failed: bool = False
    retry_failed: bool = False
    reset_to: str | None = None
    files: bool = False
    paths: tuple[str, ...] = ()
    git: bool = False
    decisions: Decisions | None = None
    interrupted: Interrupted = "ask"
    """What becomes of files that an interrupted call had changed; undecided they are kept, and warned about."""
    is_interrupted_asked: bool = False
    """Whether that was asked for: otherwise the calls that were interrupted may say it."""
    unknown: dict[str, Treatment] = {}
    workspace: str | None = None
    into: str | None = None
    allow_outside_links: bool = False
    clone: bool = False


class PlanOptions(TypedDict, total=False):
    """What `hf.plan` and `hf.recover` can be asked for, beside the checkpoint."""

    skip_failed: bool
    """Continue without the agents that failed."""
    retry_failed: bool
    """Let the agents that failed try again."""
    reset_to: str | None
    """Set the workflow back to this state; what failed since is forgotten."""
    files: Literal["auto"] | bool | list[str] | tuple[str, ...]
    """Whether files are put back, or which paths; by default where a workspace is known."""
    git: bool
    """Put branch, commit and index back, too; a repository comes into an empty directory by itself."""
    decisions: Decisions | None
    """What is done with files that a person changed."""
    interrupted: Interrupted | None
    """What becomes of files that an interrupted call had changed; None is as the settings say."""
    unknown: Mapping[str, Treatment] | None
    """What is done with steps of unknown outcome, by name."""
    workspace: str | os.PathLike[str] | None
    workspace_options: WorkspaceOptions | None
    into: str | os.PathLike[str] | None
    """Put the files into this directory instead of the run's own."""
    allow_outside_links: bool
    clone: bool
    """Let a repository that is put back fetch from its remote what the checkpoint does not hold."""
    subject: SubjectProvider | str | None
    """What the run works on: who knows it, a file, NUMBER or OWNER/NAME#NUMBER."""
    verdicts: Mapping[str, FreshnessVerdict] | None
    """What follows from each kind of change outside the run, where it is not the default."""
    freshness: Freshness | Literal[False] | None
    """How to look at what moved outside the run; False does not look."""
    now: datetime | None


def checked_options(options: PlanOptions) -> PlanOptions:
    """Return the options; UsageError with the nearest name for one that there is not."""
    unknown = [name for name in options if name not in PlanOptions.__annotations__]
    if unknown:
        import difflib  # noqa: PLC0415 - only for those who mistyped something

        near = difflib.get_close_matches(unknown[0], PlanOptions.__annotations__, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"there are {', '.join(PlanOptions.__annotations__)}"
        raise UsageError(f"a plan has no option {unknown[0]!r}: {hint}")
    return options


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What a recovery would do: nothing was touched to make it, and equal plans have equal digests.

    `head` is where the run stood. `blockers` keep it from being carried out; what takes each away is in `suggestions`.
    """

    run: str
    checkpoint: str
    checksum: str
    seq: int
    head: str | None
    place: str | None = None
    """The journal position, where records after the checkpoint are kept and later ones are not."""
    number: int
    """The journal number up to which what happened is kept."""
    end: int
    """The journal number at which the run stood when the plan was made."""
    created_at: datetime
    made_at: datetime
    sections: tuple[str, ...]
    request: Request = Request()
    kind: Kind = "recover"
    pending_agents: tuple[str, ...] = ()
    skipped_agents: tuple[str, ...] = ()
    state: str | None = None
    phase: str | None = None
    batch: int | None = None
    task: str | None = None
    agent: str | None = None
    steps_done: int = 0
    rerun: tuple[str, ...] = ()
    unknown: tuple[UnknownStep, ...] = ()
    closed: tuple[str, ...] = ()
    """Calls that are open where it goes back to: their end is recorded there, and they are done again."""
    files: RestorePlan | None = None
    git: tuple[str, ...] = ()
    findings: tuple[PlanFinding, ...] = ()
    prerequisites: tuple[Prerequisite, ...] = ()
    """The branch, the subject, the files and what the run waits for, each with whether it is there."""
    subject: Subject | None = None
    """What the run works on as it is now, where that was asked for: it is taken over."""
    warnings: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    damage: tuple[Damage, ...] = ()
    verdict: Verdict = "resume"
    format: int = _FORMAT

    @property
    def diff(self) -> str:
        """What others changed in the files since, as unified diffs; not stored with a plan, so empty in a saved one."""
        return str(self.__dict__.get("diff_text", ""))

    def with_diff(self, text: str) -> RecoveryPlan:
        """Return the plan with the diff of what others changed, which is not compared or stored."""
        self.__dict__["diff_text"] = text
        return self

    @property
    def digest(self) -> str:
        """Return the name of this very plan, whenever it was made."""
        return blake3(to_json(msgspec.structs.replace(self, made_at=_NEVER))).hexdigest()

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """Return what whoever carries it out should know: its warnings, and what moved outside the run."""
        return (*self.warnings, *(one.detail for one in self.findings if one.verdict != "resume"))

    @property
    def prerequisites_met(self) -> bool | None:
        """Return whether all that the run needs is there; None where nobody looked at a part of it."""
        return all_met(self.prerequisites)

    @property
    def can_resume(self) -> bool:
        """Return whether it may be carried out at all."""
        return not self.blockers

    def to_json(self) -> bytes:
        """Return it as JSON."""
        return to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> RecoveryPlan:
        """Return a plan from its JSON; UsageError if it is none."""
        return from_json(data)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        verb = "undo the last recovery: go" if self.kind == "undo" else "go"
        source = f"checkpoint {self.seq} ({self.checkpoint}) of {_time(self.created_at)}"
        source = source if self.checkpoint else "its journal, for it has no checkpoint"
        told = [f"run {self.run}: {verb} back to {source}"]
        if self.place is not None:
            told = [f"run {self.run}: {verb} back to {self.place}"]
            told += [f"  state, files and registered objects are those of {source}"] if self.checkpoint else []
        elif (self.head or "") == self.checkpoint:
            told = [f"run {self.run}: continue from {source}"]
        told += [f"  damaged: {_shown(each)}" for each in self.damage]
        where = {"state": self.state, "phase": self.phase, "batch": self.batch, "task": self.task, "agent": self.agent}
        if any(value is not None for value in where.values()):
            told.append(
                "  continues at " + ", ".join(f"{n} {value}" for n, value in where.items() if value is not None)
            )
        told += _listed("restores", self.sections)
        told += _listed("starts again", tuple(f"agent {agent}" for agent in self.pending_agents))
        told += _listed("skips", tuple(f"agent {agent}" for agent in self.skipped_agents))
        if self.request.reset_to is not None:
            told.append(f"  resets the workflow to {self.request.reset_to}")
        if self.steps_done:
            steps = "step that is" if self.steps_done == 1 else "steps that are"
            told.append(f"  keeps {self.steps_done:,} {steps} done")
        told += _listed("runs again", tuple(f"step {step}" for step in self.rerun))
        told += [_outcome(each) for each in self.unknown]
        told += _listed("were open there, and are done again", self.closed)
        told += self._file_lines()
        told += [f"  git: {line}" for line in self.git]
        told += [f"  {_finding(each)}" for each in self.findings]
        told += [f"  warning: {warning}" for warning in self.warnings]
        told += [f"  cannot continue: {blocker}" for blocker in self.blockers]
        told += [f"  try: {suggestion}" for suggestion in self.suggestions]
        return told

    def _file_lines(self) -> list[str]:
        plan = self.files
        if plan is None:
            return []
        if not plan.items:
            return [f"  files in {plan.target}: as they are"]
        return [f"  files in {plan.target}:", *(f"    {line}" for line in plan.lines(most=_MOST_SHOWN))]


def to_json(plan: RecoveryPlan) -> bytes:
    """Return a plan as JSON; names of files that are not UTF-8 are escaped as lone surrogates."""
    return json.dumps(msgspec.to_builtins(plan), sort_keys=True, separators=(",", ":")).encode("ascii")


def from_json(data: bytes | str) -> RecoveryPlan:
    """Return a plan from its JSON; UsageError unless every name and path in it may be used."""
    try:
        plain = parse_json(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data, "it", _BOUNDS)
        plan = msgspec.convert(plain, RecoveryPlan)
    except (DocumentInvalid, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"this is not a plan of a recovery ({error}): make one with hf.plan(...)") from error
    if plan.format > _FORMAT:
        raise UsageError(f"this plan has format {plan.format}, and this program knows {_FORMAT}: make a new one")
    try:
        check_run_id(plan.run)
        for checkpoint in (plan.checkpoint, plan.head):
            if checkpoint is not None:
                check_checkpoint_id(checkpoint)
        for section in plan.sections:
            check_section_name(section)
        if plan.files is not None:
            check_files(plan.files)
    except (InvalidId, RestoreRefused) as error:
        raise UsageError(f"this is not a plan of a recovery ({error}): make one with hf.plan(...)") from error
    return plan


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _listed(verb: str, things: tuple[str, ...]) -> list[str]:
    if not things:
        return []
    more = f" and {len(things) - _MOST_SHOWN:,} more" if len(things) > _MOST_SHOWN else ""
    return [f"  {verb}: {', '.join(things[:_MOST_SHOWN])}{more}"]


def _outcome(each: UnknownStep) -> str:
    what = f" ({each.effect})" if each.effect else ""
    how = {"retry": "it is done again", "skip": "it is skipped", "ask": "you are asked when the run gets there"}
    return f"  unknown: step {each.step}{what} began and has no recorded end; {how[each.treated]}"


def _shown(damage: Damage) -> str:
    return f"checkpoint {damage.seq}: {damage.detail}" + (f"; {damage.lost}" if damage.lost else "")


def _finding(finding: PlanFinding) -> str:
    return f"{finding.verdict}: {finding.detail}"


_ORDER: tuple[Verdict, ...] = ("resume", "warn", "ask", "fresh", "blocked")
_MOST_NAMED = 3


class Moved(NamedTuple):
    """What is known of the world outside the run, then and now; nothing where nobody looked."""

    findings: tuple[PlanFinding, ...] = ()
    then: FreshnessFacts | None = None
    now: FreshnessFacts | None = None
    has_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a plan is made of: all that had to be read."""

    record: CheckpointRecord
    head: str | None
    number: int = 0
    end: int = 0
    damage: tuple[Damage, ...] = ()
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Those that tell where the run stands, as `analyse` takes them."""
    steps: Sequence[Any] = ()
    steps_now: Sequence[Any] | None = ()
    """The head's; None if they cannot be read."""
    files: RestorePlan | None = None
    git: tuple[str, ...] = ()
    moved: Moved = field(default_factory=Moved)
    warnings: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


def make_plan(facts: Gathered, request: Request, *, now: datetime, kind: Kind = "recover") -> RecoveryPlan:
    """Return what a recovery would do; UsageError if what was asked for does not fit the checkpoint."""
    envelope, moved = facts.record.envelope, facts.moved
    unknown = unknown_steps(facts.steps, request.unknown) if kind == "recover" else ()
    closed = open_calls(facts.steps, request.unknown) if kind == "recover" and facts.number < facts.end else {}
    unknown = tuple(each for each in unknown if each.step not in closed)
    before = facts.sections
    after = dict(before)
    if kind == "recover":
        decided = (*decided_steps(unknown), *closed)
        check_state(before.get("workflow"), request.reset_to)
        after |= restored(before, Restoring.of(request, decided), at=now)
    blockers = (*(_blockers(facts, before, after) if kind == "recover" else ()), *facts.blockers)
    blockers += _file_blockers(facts.files)
    info = analyse(after)
    done = len(settled(facts.steps))
    is_head = facts.head == envelope.id and facts.number == facts.end
    place = f"{envelope.run}#{facts.number}" if facts.record.number < facts.number < facts.end else None
    warnings = (*facts.warnings, *(info.warnings if kind == "recover" else ()))
    warnings += tuple(f"it needs {each}" for each in info.prerequisites) if kind == "recover" else ()
    warnings += repeated_effects(facts.steps, facts.steps_now or (), closed)
    if facts.steps_now is None:
        warnings += ("which steps run again cannot be told: the newest checkpoint's record of them is damaged",)
    return RecoveryPlan(
        run=envelope.run,
        checkpoint=envelope.id,
        checksum=facts.record.checksum.hex(),
        seq=envelope.seq,
        head=facts.head,
        number=facts.number,
        end=facts.end,
        created_at=envelope.created_at,
        made_at=now,
        sections=tuple(section.name for section in envelope.sections),
        request=request,
        kind=kind,
        pending_agents=_became(before, after, "pending"),
        skipped_agents=_became(before, after, "skipped"),
        state=info.resume_state,
        phase=info.resume_phase or envelope.summary.phase,
        batch=info.resume_batch,
        task=info.resume_task,
        agent=analyse(before).resume_agent,
        steps_done=done,
        rerun=repeated(facts.steps, facts.steps_now or ()),
        unknown=unknown,
        closed=tuple(closed),
        place=place,
        files=facts.files,
        git=facts.git,
        findings=moved.findings,
        prerequisites=prerequisites_of(info, moved.then, moved.now, moved.findings, has_files=moved.has_files),
        subject=moved.now.subject if moved.now is not None else None,
        warnings=tuple(dict.fromkeys(warnings)),
        blockers=tuple(dict.fromkeys(blockers)),
        suggestions=(*_suggested(info, envelope, place, is_head=is_head), *facts.suggestions),
        damage=facts.damage,
        verdict=_verdict(moved.findings, has_warnings=bool(warnings or facts.damage), is_blocked=bool(blockers)),
    )


def _suggested(info: RecoveryInfo, envelope: Envelope, place: str | None, *, is_head: bool) -> tuple[str, ...]:
    spec = envelope.run if is_head else place or f"{envelope.run}@{envelope.seq}"
    return tuple(str(each) for each in suggestions(info, spec=spec, checkpoint=envelope.id))


def _blockers(facts: Gathered, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what still keeps the run from continuing when all that was asked for is done."""
    at_capture = set(facts.record.envelope.recovery.blockers)
    known = set(analyse(before).blockers)
    status, name = facts.record.marks.status, facts.record.envelope.id
    marked = (f"it is {status}: `holdfast mark {name} valid` makes it a recovery point again",)
    return (
        *(marked if status in NO_RECOVERY_POINT else ()),
        *analyse(after).blockers,
        *sorted(at_capture - known),
    )


def _file_blockers(files: RestorePlan | None) -> tuple[str, ...]:
    conflicts = files.conflicts if files is not None else ()
    if not conflicts:
        return ()
    named = ", ".join(f"{item.path!r} ({item.reason})" for item in conflicts[:_MOST_NAMED])
    more = f" and {len(conflicts) - _MOST_NAMED:,} more" if len(conflicts) > _MOST_NAMED else ""
    what = "one file waits" if len(conflicts) == 1 else f"{len(conflicts):,} files wait"
    return (f"{what} for a decision: {named}{more}",)


def _became(before: Mapping[str, Any], after: Mapping[str, Any], status: str) -> tuple[str, ...]:
    was = {agent.id: agent.status for agent in before.get("agents") or ()}
    return tuple(
        agent.id for agent in after.get("agents") or () if agent.status == status and was.get(agent.id) != status
    )


def _verdict(findings: Sequence[PlanFinding], *, has_warnings: bool, is_blocked: bool) -> Verdict:
    if is_blocked:
        return "blocked"
    least: Verdict = "warn" if has_warnings else "resume"
    return max([least, *(finding.verdict for finding in findings)], key=_ORDER.index)
