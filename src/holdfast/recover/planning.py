"""Makes the plan of a recovery from what was gathered: the checkpoint, the head, the files; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.recover.analyse import analyse
from holdfast.recover.outcomes import decided_steps, repeated, settled, unknown_steps
from holdfast.recover.plan import RecoveryPlan, Request, Verdict
from holdfast.recover.sections import restored
from holdfast.recover.suggest import suggestions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.model.checkpoint import CheckpointRecord, Envelope
    from holdfast.model.recovery import RecoveryInfo
    from holdfast.recover.locate import Damage
    from holdfast.recover.plan import Kind, PlanFinding
    from holdfast.workspace.plan import RestorePlan

_ORDER: tuple[Verdict, ...] = ("resume", "warn", "ask", "afresh", "blocked")
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a plan is made of: all that had to be read."""

    record: CheckpointRecord
    head: str | None
    damage: tuple[Damage, ...] = ()
    sections: Mapping[str, Any] = field(default_factory=dict)
    """Those that tell where the run stands, as `analyse` takes them."""
    steps: Sequence[Any] = ()
    steps_now: Sequence[Any] | None = ()
    """The head's; None if they cannot be read."""
    files: RestorePlan | None = None
    git: tuple[str, ...] = ()
    findings: tuple[PlanFinding, ...] = ()
    warnings: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


def make_plan(facts: Facts, request: Request, *, now: datetime, kind: Kind = "recover") -> RecoveryPlan:
    """Return what a recovery would do; UsageError if what was asked for does not fit the checkpoint."""
    envelope = facts.record.envelope
    unknown = unknown_steps(facts.steps, request.unknown) if kind == "recover" else ()
    before = facts.sections
    after = dict(before)
    if kind == "recover":
        decided = decided_steps(unknown)
        after |= restored(before, skip_failed=request.skip_failed, reset_to=request.reset_to, decided=decided, at=now)
    blockers = (*(_blockers(facts, before, after) if kind == "recover" else ()), *facts.blockers)
    blockers += _file_blockers(facts.files)
    info = analyse(after)
    done = len(settled(facts.steps))
    warnings = (*facts.warnings, *(info.warnings if kind == "recover" else ()))
    warnings += tuple(f"it needs {each}" for each in info.prerequisites) if kind == "recover" else ()
    if facts.steps_now is None:
        warnings += ("which steps run again cannot be told: the newest checkpoint's record of them is damaged",)
    return RecoveryPlan(
        run=envelope.run,
        checkpoint=envelope.id,
        checksum=facts.record.checksum.hex(),
        seq=envelope.seq,
        head=facts.head,
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
        files=facts.files,
        git=facts.git,
        findings=facts.findings,
        warnings=tuple(dict.fromkeys(warnings)),
        blockers=tuple(dict.fromkeys(blockers)),
        suggestions=(*_suggested(info, envelope), *facts.suggestions),
        damage=facts.damage,
        verdict=_verdict(facts.findings, has_warnings=bool(warnings or facts.damage), is_blocked=bool(blockers)),
    )


def _suggested(info: RecoveryInfo, envelope: Envelope) -> tuple[str, ...]:
    return tuple(str(each) for each in suggestions(info, run=envelope.run, checkpoint=envelope.id))


def _blockers(facts: Facts, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what still keeps the run from going on when all that was asked for is done."""
    at_capture = set(facts.record.envelope.recovery.blockers)
    known = set(analyse(before).blockers)
    return (*analyse(after).blockers, *sorted(at_capture - known))


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
