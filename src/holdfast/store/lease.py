"""The right to move one run: held by one owner for a time, fenced by a counter that never goes back.

A lease that lapsed may be taken over; the old owner's commits are then refused, because they carry the old token.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.errors import LeaseHeld, LeaseLost, UsageError

_LONGEST_OWNER = 200


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it was granted; `token` goes into every commit made under it."""

    run: str
    owner: str
    token: int
    expires_at: datetime


def check_terms(owner: str, ttl_s: float) -> None:
    """Raise UsageError unless these can be a lease's terms."""
    if not isinstance(owner, str) or not owner.isprintable() or not 0 < len(owner) <= _LONGEST_OWNER:
        raise UsageError(f"owner={owner!r:.80}: name the process in 1 to {_LONGEST_OWNER} printable characters")
    if not isinstance(ttl_s, (int, float)) or not 0 < ttl_s < float("inf"):
        raise UsageError(f"ttl_s={ttl_s!r}: give seconds, more than 0")


def check_takeable(lease: Lease | None, owner: str, now: datetime) -> None:
    """Raise LeaseHeld if another owner's lease is still running."""
    if lease is not None and lease.expires_at > now and lease.owner != owner:
        raise LeaseHeld(lease.run, lease.owner, lease.expires_at.isoformat())


def check_current(lease: Lease | None, run: str, token: int) -> Lease:
    """Return the run's lease, LeaseLost if it has another token by now."""
    if lease is None or lease.token != token:
        raise LeaseLost(run, token, lease.owner if lease else None)
    return lease


def check_fence(lease: Lease | None, run: str, fence: int | None, now: datetime) -> None:
    """Raise LeaseLost or LeaseHeld unless a commit with this token (or none) may move the run."""
    if fence is not None:
        check_current(lease, run, fence)
    elif lease is not None and lease.expires_at > now:
        raise LeaseHeld(run, lease.owner, lease.expires_at.isoformat())
