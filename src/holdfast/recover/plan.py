"""The plan of a recovery: a frozen value that is shown, saved and then carried out exactly as it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from blake3 import blake3

from holdfast.errors import InvalidId, RestoreRefused, UsageError
from holdfast.model.ids import check_checkpoint_id, check_run_id, check_section_name
from holdfast.recover.locate import Damage
from holdfast.recover.outcomes import Treatment, UnknownStep
from holdfast.workspace.decide import Decisions
from holdfast.workspace.plan import RestorePlan
from holdfast.workspace.plan import check as check_files

_FORMAT = 1
_MOST_SHOWN = 20
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
Verdict = Literal["resume", "warn", "ask", "afresh", "blocked"]
Kind = Literal["recover", "undo"]


class PlanFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something outside the run that is not as it was: what it is, in words, and what follows from it."""

    kind: str
    verdict: Verdict
    detail: str


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked for: enough to look again whether the plan still holds."""

    skip_failed: bool = False
    reset_to: str | None = None
    files: bool = False
    paths: tuple[str, ...] = ()
    git: bool = False
    decisions: Decisions | None = None
    unknown: dict[str, Treatment] = {}
    workspace: str | None = None
    into: str | None = None
    allow_outside_links: bool = False


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a recovery would do: nothing was touched to make it, and equal plans have equal digests.

    `head` is where the run stood. `blockers` keep it from being carried out; what takes each away is in `suggestions`.
    """

    run: str
    checkpoint: str
    checksum: str
    seq: int
    head: str | None
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
    files: RestorePlan | None = None
    git: tuple[str, ...] = ()
    findings: tuple[PlanFinding, ...] = ()
    warnings: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    damage: tuple[Damage, ...] = ()
    verdict: Verdict = "resume"
    format: int = _FORMAT

    @property
    def digest(self) -> str:
        """Return the name of this very plan, whenever it was made."""
        return blake3(to_json(msgspec.structs.replace(self, made_at=_NEVER))).hexdigest()

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
        told = [f"run {self.run}: {verb} back to checkpoint {self.seq} ({self.checkpoint}) of {_time(self.created_at)}"]
        if self.head == self.checkpoint:
            told = [f"run {self.run}: go on from checkpoint {self.seq} ({self.checkpoint}) of {_time(self.created_at)}"]
        told += [f"  damaged: {_shown(each)}" for each in self.damage]
        where = {"state": self.state, "phase": self.phase, "batch": self.batch, "task": self.task, "agent": self.agent}
        if any(value is not None for value in where.values()):
            told.append("  goes on at " + ", ".join(f"{n} {value}" for n, value in where.items() if value is not None))
        told += _listed("restores", self.sections)
        told += _listed("starts again", tuple(f"agent {agent}" for agent in self.pending_agents))
        told += _listed("skips", tuple(f"agent {agent}" for agent in self.skipped_agents))
        if self.request.reset_to is not None:
            told.append(f"  resets the workflow to {self.request.reset_to}")
        if self.steps_done:
            told.append(f"  keeps {self.steps_done:,} steps that are done")
        told += _listed("runs again", tuple(f"step {step}" for step in self.rerun))
        told += [_outcome(each) for each in self.unknown]
        told += self._file_lines()
        told += [f"  git: {line}" for line in self.git]
        told += [f"  {_finding(each)}" for each in self.findings]
        told += [f"  warning: {warning}" for warning in self.warnings]
        told += [f"  cannot go on: {blocker}" for blocker in self.blockers]
        told += [f"  try: {suggestion}" for suggestion in self.suggestions]
        return told

    def _file_lines(self) -> list[str]:
        plan = self.files
        if plan is None:
            return []
        if not plan.items:
            return [f"  files in {plan.target}: as they are"]
        counts = ", ".join(f"{count:,} {action}" for action, count in sorted(plan.counts().items()))
        told = [f"  files in {plan.target}: {counts}"]
        shown = sorted(plan.items, key=lambda item: item.action != "conflict")[:_MOST_SHOWN]
        told += [f"    {item.action:8} {item.path!r} ({item.reason})" for item in shown]
        if len(plan.items) > len(shown):
            told.append(f"    and {len(plan.items) - len(shown):,} more")
        return told


def to_json(plan: RecoveryPlan) -> bytes:
    """Return a plan as JSON; names of files that are no UTF-8 are escaped as lone surrogates."""
    return json.dumps(msgspec.to_builtins(plan), sort_keys=True, separators=(",", ":")).encode("ascii")


def from_json(data: bytes | str) -> RecoveryPlan:
    """Return a plan from its JSON; UsageError unless every name and path in it may be used."""
    try:
        plain: Any = json.loads(data)
        plan = msgspec.convert(plain, RecoveryPlan)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UsageError(f"this is no plan of a recovery ({error}): make one with hf.plan(...)") from error
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
        raise UsageError(f"this is no plan of a recovery ({error}): make one with hf.plan(...)") from error
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
