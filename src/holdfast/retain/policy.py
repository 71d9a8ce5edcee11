"""Which checkpoints stay, are archived or go, each with the reason; pure, so that it can be shown first."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.model.checkpoint import CheckpointRecord

Action = Literal["keep", "archive", "delete"]
ALL = -1


class Row(msgspec.Struct, frozen=True, gc=False):
    """What retention looks at of one checkpoint."""

    id: str
    seq: int
    trigger: str
    phase: str | None
    created_at: datetime
    stored_bytes: int
    is_archived: bool
    is_pinned: bool
    is_sound: bool
    """Whether nobody marked it corrupted."""
    can_resume: bool
    parent: str | None = None


class TriggerRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many checkpoints of one trigger stay: the last ones, of each phase or of all; -1 is all."""

    keep: int = ALL
    per_phase: bool = False


DEFAULT_RULES: dict[str, TriggerRule] = {
    "phase_transition": TriggerRule(ALL),
    "batch_complete": TriggerRule(3, per_phase=True),
    "agent_complete": TriggerRule(1, per_phase=True),
    "conflict_resolved": TriggerRule(ALL),
    "user_interrupt": TriggerRule(1),
    "manual": TriggerRule(ALL),
}


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept; what is None has no limit."""

    triggers: dict[str, TriggerRule] = msgspec.field(default_factory=lambda: dict(DEFAULT_RULES))
    live: int | None = 50
    """Checkpoints in the daily list; the oldest beyond it are archived."""
    age_days: float | None = 30
    total_bytes: int | None = None
    last: int | None = None
    """Checkpoints in all; the oldest beyond it go."""

    @classmethod
    def for_task(cls, last: int = 5) -> RetentionPolicy:
        """Return what suits a task of a person or an agent: its last few checkpoints, whatever their trigger or age."""
        return cls(triggers={}, live=None, age_days=None, last=last)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What happens to one checkpoint, and why."""

    id: str
    seq: int
    action: Action
    reason: str


def row_of(record: CheckpointRecord) -> Row:
    """Return what retention looks at of a checkpoint."""
    envelope, marks = record.envelope, record.marks
    return Row(
        envelope.id,
        envelope.seq,
        envelope.trigger,
        envelope.summary.phase or envelope.summary.state,
        envelope.created_at,
        envelope.stored_bytes,
        marks.status == "archived",
        marks.pinned,
        marks.status != "corrupted",
        envelope.recovery.can_resume,
        envelope.parent,
    )


def check_policy(policy: RetentionPolicy) -> RetentionPolicy:
    """Return the policy, or raise UsageError if it makes no sense or would delete everything."""
    for name, rule in policy.triggers.items():
        if rule.keep < ALL:
            raise UsageError(f"retention of {name}: keep={rule.keep}; give a number from 0 up, or -1 for all")
    fallback = policy.triggers.get("*", TriggerRule())
    if fallback.keep == 0 and all(rule.keep == 0 for rule in policy.triggers.values()):
        raise UsageError("retention would delete everything: keep at least 1 of one trigger")
    for name, value, least in (
        ("live", policy.live, 1),
        ("last", policy.last, 1),
        ("age_days", policy.age_days, 0),
        ("total_bytes", policy.total_bytes, 1),
    ):
        if value is not None and (value < least or value != value or (name == "age_days" and value == 0)):  # noqa: PLR0124 - NaN
            raise UsageError(
                f"retention {name}={value} would delete everything: give more, or leave it out for no limit"
            )
    return policy


def decide(
    rows: Iterable[Row],
    policy: RetentionPolicy,
    *,
    now: datetime,
    head: str | None,
    needed: Mapping[str, str] | None = None,
) -> list[Decision]:
    """Return what happens to each checkpoint, newest first; `needed` are ids that stay, with the reason.

    By number, never by the clock: what was taken last is newest, and a clock that was set back ages nothing wrongly.
    """
    newest_first = sorted(rows, key=attrgetter("seq"), reverse=True)
    protected = _protected(newest_first, head, needed or {})
    dooms = _dooms(newest_first, policy, _age_limit(policy, now))
    limits = _Limits(policy) if policy.last is not None or policy.total_bytes is not None else None
    within, archived, beyond = "within every limit", "archived already", f"beyond the {policy.live} live ones"
    live_left = len(newest_first) if policy.live is None else policy.live
    decisions: list[Decision] = []
    for row, doom in zip(newest_first, dooms, strict=True):
        reason = protected.get(row.id)
        if reason is None:
            why = doom if doom is not None or limits is None else limits.passed(row)
            if why is not None:
                decisions.append(Decision(row.id, row.seq, "delete", why))
                continue
        if limits is not None:
            limits.count(row)
        if not row.is_archived and (live_left > 0 or reason is not None):
            live_left -= 1
            decisions.append(Decision(row.id, row.seq, "keep", reason or within))
        elif row.is_archived:
            decisions.append(Decision(row.id, row.seq, "keep", reason or archived))
        else:
            decisions.append(Decision(row.id, row.seq, "archive", beyond))
    return decisions


def _dooms(newest_first: Sequence[Row], policy: RetentionPolicy, before: datetime | None) -> list[str | None]:
    """Return for each checkpoint why its trigger's rule or its age lets it go, None if they do not."""
    triggers, fallback = policy.triggers, policy.triggers.get("*", TriggerRule())
    too_old = f"older than {policy.age_days or 0:g} days"
    counts: dict[tuple[str, str | None], int] = {}
    sentences: dict[tuple[str, str | None], str] = {}
    dooms: list[str | None] = []
    for row in newest_first:
        rule = triggers.get(row.trigger, fallback)
        doom = too_old if before is not None and row.created_at < before else None
        if rule.keep != ALL:
            group = (row.trigger, row.phase if rule.per_phase else None)
            count = counts[group] = counts.get(group, 0) + 1
            if count > rule.keep:
                doom = sentences.get(group) or sentences.setdefault(group, _spent(group, rule))
        dooms.append(doom)
    return dooms


class _Limits:
    """Counts what stays from the newest on, against the limits over all."""

    def __init__(self, policy: RetentionPolicy) -> None:
        self._last = policy.last
        self._total_bytes = policy.total_bytes
        self._kept = 0
        self._bytes = 0

    def passed(self, row: Row) -> str | None:
        """Return which limit this one would pass, None if none."""
        if self._last is not None and self._kept >= self._last:
            return f"beyond the last {self._last}"
        if self._total_bytes is not None and self._bytes + row.stored_bytes > self._total_bytes:
            return f"beyond {self._total_bytes:,} bytes in all"
        return None

    def count(self, row: Row) -> None:
        """Count one that stays."""
        self._kept += 1
        self._bytes += row.stored_bytes


def _spent(group: tuple[str, str | None], rule: TriggerRule) -> str:
    where = f" of phase {group[1]}" if group[1] else ""
    return f"{group[0]} keeps the last {rule.keep}{where}"


def _protected(
    newest_first: Sequence[Row], head: str | None, needed: Mapping[str, str], *, falls_back: bool = True
) -> dict[str, str]:
    """Return the ids that always stay, each with the reason."""
    protected = dict(needed)
    protected.update({row.id: "pinned" for row in newest_first if row.is_pinned})
    parents = [row.parent for row in newest_first if row.parent is not None]
    if len(set(parents)) < len(parents):
        protected.update({parent: "a fork point" for parent, count in Counter(parents).items() if count > 1})
    resumable = next((row for row in newest_first if row.is_sound and row.can_resume), None)
    if resumable is not None:
        protected[resumable.id] = "the newest sound one to resume from"
        # Damage may be found only when it is read: then recovery goes to the next one before it.
        earlier = next(
            (row for row in newest_first if row.seq < resumable.seq and row.is_sound and row.can_resume), None
        )
        if earlier is not None and falls_back:
            protected.setdefault(earlier.id, "recovery falls back to it")
    undo = next((row for row in newest_first if row.trigger == "before_destructive" and row.is_sound), None)
    if undo is not None:
        protected.setdefault(undo.id, "it stands before the last destructive operation")
    if head is not None:
        protected[head] = "the head"
    return protected


def _age_limit(policy: RetentionPolicy, now: datetime) -> datetime | None:
    if policy.age_days is None:
        return None
    try:
        return now - timedelta(days=policy.age_days)
    except OverflowError:
        return None


def decide_simply(
    records: Sequence[CheckpointRecord],
    *,
    head: str | None,
    keep: int | None,
    before: datetime | None,
    needed: Mapping[str, str] | None = None,
) -> list[Decision]:
    """Decide to delete what is beyond the newest `keep` or older than `before`, newest first, each with its reason.

    What a policy never deletes stays here, too. Only the second one to recover from does not: who asks for the newest
    one alone means it.
    """
    if keep is None and before is None:
        raise UsageError("prune needs keep= or older_than=: without either everything stays")
    if keep is not None and keep < 1:
        raise UsageError(f"keep={keep} would delete everything: keep at least 1, or use hf.delete_run(...)")
    newest_first = sorted(map(row_of, records), key=attrgetter("seq"), reverse=True)
    protected = _protected(newest_first, head, needed or {}, falls_back=False)
    decisions: list[Decision] = []
    for index, row in enumerate(newest_first):
        dooms = [f"beyond the newest {keep}"] if keep is not None and index >= keep else []
        if before is not None and row.created_at < before:
            dooms.append(f"from before {before:%Y-%m-%d %H:%M:%S} UTC")
        reason = protected.get(row.id, "" if dooms else "new enough")
        decisions.append(Decision(row.id, row.seq, "keep" if reason else "delete", reason or " and ".join(dooms)))
    return decisions
