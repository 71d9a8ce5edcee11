"""Which runs go on by themselves, and what came of each; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from holdfast.recover.plan import RecoveryPlan

Outcome = Literal["resumed", "recovered", "waiting", "left", "failed"]
_UNDER_WAY = frozenset({"running", "waiting"})


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What an automatic recovery did with one run, and why not more.

    resumed: it was put back and `resume` came to its end; recovered: put back only; waiting: it went on until it waits;
    left: not touched; failed: `resume` raised.
    """

    run: str
    outcome: Outcome
    checkpoint: str | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"run {self.run}: {self.outcome}" + (f", {self.reason}" if self.reason else "")


def is_under_way(status: str | None) -> bool:
    """Tell whether a run with this status was being moved, or waited, when its process ended."""
    return status in _UNDER_WAY


def reasons_to_leave(plan: RecoveryPlan) -> tuple[str, ...]:
    """Return why nobody should carry out this plan without asking a person; none if it can go by itself."""
    if plan.blockers:
        return plan.blockers
    asking = [finding.detail for finding in plan.findings if finding.verdict in ("ask", "afresh")]
    if asking:
        return tuple(asking)
    return ("a person has to decide",) if plan.verdict in ("ask", "afresh") else ()
