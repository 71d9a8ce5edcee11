"""Retention decisions: which checkpoints of a run stay, are archived or go, each with its reason; pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.model.checkpoint import FINISHED, Status
from holdfast.model.rules import ALL, RULES, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord

Action = Literal["keep", "archive", "delete", "expire", "revive"]
EXPIRED_FOR = timedelta(days=1)
"""How long an automatic sweep leaves a checkpoint marked as expired before a later one deletes it."""


class RetentionRow(msgspec.Struct, frozen=True, gc=False):
    """What retention looks at of one checkpoint."""

    id: str
    seq: int
    trigger: str
    phase: str | None
    created_at: datetime
    stored_bytes: int
    status: Status
    is_pinned: bool
    can_resume: bool
    parent: str | None = None
    expired_at: datetime | None = None


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept: the rules' counts, and limits over all of a run; what is None has no limit."""

    rules: Rules = RULES
    live: int | None = None
    """Checkpoints in the daily list; the oldest beyond it are archived."""
    age_days: float | None = None
    """Older ones go, but for those that a rule keeps all of; so does a whole run that finished longer ago."""
    total_bytes: int | None = None
    """What the checkpoints of a run take in the store; the oldest beyond it go, whatever the rules say."""
    last: int | None = None
    """Checkpoints in all; the oldest beyond it go, but for those that a rule keeps all of."""
    expires_runs: bool = True
    """Whether a run that finished longer ago than the age goes as a whole."""
    spares_fallback: bool = True
    """Whether the second newest one to recover from stays, in case the newest turns out to be damaged."""


class RetentionDecision(msgspec.Struct, frozen=True, gc=False):
    """What happens to one checkpoint, and why."""

    id: str
    seq: int
    action: Action
    reason: str
    is_by_age: bool = False
    """Whether the clock alone says so."""


def row_of(record: CheckpointRecord, beside: int = 0) -> RetentionRow:
    """Return what retention looks at of a checkpoint; `beside` are the bytes that it takes beside its chunks."""
    envelope, marks = record.envelope, record.marks
    return RetentionRow(
        envelope.id,
        envelope.seq,
        envelope.trigger,
        envelope.summary.phase or envelope.summary.state,
        envelope.created_at,
        envelope.stored_bytes + beside,
        marks.status,
        marks.pinned,
        envelope.recovery.can_resume,
        envelope.parent,
        marks.expired_at,
    )


def check_policy(policy: RetentionPolicy) -> RetentionPolicy:
    """Return the policy, or raise UsageError if it makes no sense or would delete everything."""
    if all(rule.keep.count == 0 for rule in policy.rules.rows.values()):
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


def by_age_alone(policy: RetentionPolicy) -> RetentionPolicy:
    """Return a policy without its counts and sizes, which are for those who write the run; "all" stays all."""
    kept = {trigger.value: rule.keep.count for trigger, rule in policy.rules.rows.items()}
    uncounted = policy.rules.keeping({trigger: ALL if count == ALL else None for trigger, count in kept.items()})
    return msgspec.structs.replace(policy, rules=uncounted, live=None, total_bytes=None, last=None)


def policy_by_hand(keep: int | None, older_than: timedelta | None) -> RetentionPolicy:
    """Return the policy of who asks for the newest so many, or for what is young enough, and for nothing else."""
    if keep is not None and keep < 1:
        raise UsageError(f"keep={keep} would delete everything: keep at least 1, or use hf.delete_run(...)")
    return RetentionPolicy(
        rules=RULES.keeping({"*": None}),
        last=keep,
        age_days=None if older_than is None else older_than / timedelta(days=1),
        spares_fallback=False,
    )


def decide(
    rows: Iterable[RetentionRow],
    policy: RetentionPolicy,
    *,
    now: datetime,
    run: RunRecord,
    needed: Mapping[str, str] | None = None,
) -> list[RetentionDecision]:
    """Return what happens to each checkpoint, newest first; `needed` are ids that stay, with the reason.

    By number, never by the clock: what was taken last is newest, and a clock that was set back ages nothing wrongly.
    What is decided about one depends on newer ones alone, so the newest of a run can be decided without the rest.
    """
    newest_first = sorted(rows, key=attrgetter("seq"), reverse=True)
    before = age_limit(policy, now)
    if is_expired(run, policy, now):
        why = f"the run finished more than {policy.age_days:g} days ago"
        kept = {**(needed or {}), **{row.id: "pinned" for row in newest_first if _is_pinned_by_hand(row)}}
        return [
            RetentionDecision(row.id, row.seq, "keep", kept[row.id])
            if row.id in kept
            else RetentionDecision(row.id, row.seq, "delete", why, is_by_age=True)
            for row in newest_first
        ]
    protected = _protected(newest_first, run.head, needed or {}, falls_back=policy.spares_fallback)
    limits = _Limits(policy, before)
    within, archived, beyond = "within every limit", "archived already", f"beyond the {policy.live} live ones"
    live_left = len(newest_first) if policy.live is None else policy.live
    decisions: list[RetentionDecision] = []
    for row in newest_first:
        reason = protected.get(row.id)
        passed, is_by_age = limits.passed(row)
        if reason is None and passed is not None:
            decisions.append(RetentionDecision(row.id, row.seq, "delete", passed, is_by_age))
            continue
        limits.count(row)
        if row.status == "archived":
            decisions.append(RetentionDecision(row.id, row.seq, "keep", reason or archived))
        elif live_left > 0 or reason is not None:
            live_left -= 1
            decisions.append(RetentionDecision(row.id, row.seq, "keep", reason or within))
        else:
            decisions.append(RetentionDecision(row.id, row.seq, "archive", beyond))
    return decisions


def is_expired(run: RunRecord, policy: RetentionPolicy, now: datetime) -> bool:
    """Tell whether a run as a whole is past its age: it finished, and nothing happened in it since."""
    before = age_limit(policy, now)
    return policy.expires_runs and before is not None and run.status in FINISHED and run.updated_at < before


def in_two_sweeps(
    decisions: Iterable[RetentionDecision], rows: Mapping[str, RetentionRow], now: datetime
) -> list[RetentionDecision]:
    """Return decisions as an automatic sweep carries them out: what age alone deletes is marked first.

    Only a sweep that comes a day later deletes it, so a clock that is wrong for an hour deletes nothing; what turns out
    not to be too old is an ordinary checkpoint again.
    """
    found: list[RetentionDecision] = []
    for one in decisions:
        row = rows[one.id]
        action: Action = one.action
        if one.action == "delete" and one.is_by_age:
            is_marked = row.status == "expired" and row.expired_at is not None
            is_due = is_marked and row.expired_at is not None and now - row.expired_at >= EXPIRED_FOR
            action = "delete" if is_due else "keep" if is_marked else "expire"
        elif one.action in ("keep", "archive") and row.status == "expired":
            action = "revive"
        found.append(msgspec.structs.replace(one, action=action))
    return found


class _Limits:
    """Counts what stays from the newest on, against the limits of its trigger and over all."""

    def __init__(self, policy: RetentionPolicy, before: datetime | None) -> None:
        self._policy = policy
        self._before = before
        self._seen: Counter[tuple[str, str | None]] = Counter()
        self._kept = 0
        self._bytes = 0

    def passed(self, row: RetentionRow) -> tuple[str | None, bool]:
        """Return which limit this one passes, and whether that is its age; None if none. Asked once for each."""
        policy = self._policy
        keep = policy.rules.of(row.trigger).keep
        group = (row.trigger, row.phase if keep.per_phase else None)
        self._seen[group] += 1
        if keep.count is not None and keep.count != ALL and self._seen[group] > keep.count:
            return f"{row.trigger} keeps the last {keep.count}" + (f" of phase {group[1]}" if group[1] else ""), False
        if policy.total_bytes is not None and self._bytes + row.stored_bytes > policy.total_bytes:
            return f"beyond {policy.total_bytes:,} bytes in all", False
        if keep.count == ALL:
            return None, False
        if policy.last is not None and self._kept >= policy.last:
            return f"beyond the newest {policy.last}", False
        if self._before is not None and row.created_at < self._before:
            return f"older than {policy.age_days:g} days", True
        return None, False

    def count(self, row: RetentionRow) -> None:
        """Count one that stays."""
        self._kept += 1
        self._bytes += row.stored_bytes


def _protected(
    newest_first: Sequence[RetentionRow], head: str | None, needed: Mapping[str, str], *, falls_back: bool
) -> dict[str, str]:
    """Return the ids that always stay, each with the reason."""
    protected = dict(needed)
    protected.update({row.id: "pinned" for row in newest_first if row.is_pinned})
    parents = [row.parent for row in newest_first if row.parent is not None]
    if len(set(parents)) < len(parents):
        protected.update({parent: "a fork point" for parent, count in Counter(parents).items() if count > 1})
    usable = (row for row in newest_first if row.status != "corrupted" and row.can_resume)
    newest = next(usable, None)
    if newest is not None:
        protected[newest.id] = "the newest sound one to resume from"
        # Damage may be found only when it is read: then recovery goes to the next one before it.
        earlier = next(usable, None)
        if earlier is not None and falls_back:
            protected.setdefault(earlier.id, "recovery falls back to it")
    undo = next(
        (row for row in newest_first if row.trigger == "before_destructive" and row.status != "corrupted"), None
    )
    if undo is not None:
        protected.setdefault(undo.id, "it stands before the last destructive operation")
    if head is not None:
        protected[head] = "the head"
    return protected


def _is_pinned_by_hand(row: RetentionRow) -> bool:
    """Tell whether a person pinned it; the first checkpoint of a fork is pinned by the fork itself."""
    return row.is_pinned and not (row.seq == 1 and row.parent is not None)


def age_limit(policy: RetentionPolicy, now: datetime) -> datetime | None:
    """Return the time before which everything is too old, None if nothing is."""
    if policy.age_days is None:
        return None
    try:
        return now - timedelta(days=policy.age_days)
    except OverflowError:
        return None
