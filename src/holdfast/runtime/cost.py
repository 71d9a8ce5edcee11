"""Cost of a run: tokens, money and time by call, agent and phase, on the present path and over everything it did.

A pure fold of call records. What a call was charged is in the record of its end, a failed one's too; going back leaves
those records in place, so what the world has seen is never forgotten. What the budgets have beyond that was spent
outside of calls, or by one whose end is missing because its process was killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.journal.call_record import is_work
from holdfast.runtime.amounts import add, from_stored, stored, subtract
from holdfast.runtime.ledger import TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.model.sections import Spending

_ENDS = ("done", "failed")
_AGENT = "agent:"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What something cost."""

    tokens: int = 0
    money: int | float = 0
    tool_calls: int = 0
    time_s: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            tokens=self.tokens + other.tokens,
            money=stored(add(from_stored(self.money), from_stored(other.money))),
            tool_calls=self.tool_calls + other.tool_calls,
            time_s=self.time_s + other.time_s,
        )

    def beyond(self, other: Cost) -> Cost:
        """Return how much more this is, nothing less than nothing."""
        return Cost(
            tokens=max(0, self.tokens - other.tokens),
            money=max(0, stored(subtract(from_stored(self.money), from_stored(other.money)))),
            tool_calls=max(0, self.tool_calls - other.tool_calls),
            time_s=max(0.0, self.time_s - other.time_s),
        )


class CallCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one call cost, all its attempts together, without the calls inside it; its time is with them."""

    call: str
    kind: str
    status: str
    """How it ended last: done or failed."""
    attempts: int
    cost: Cost
    agent: str | None = None
    phase: str | None = None
    on_path: bool = True
    """Whether the run still builds on it: not if it went back behind it."""


class RunCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a run cost."""

    run: str
    calls: tuple[CallCost, ...] = ()
    agents: dict[str, Cost] = {}
    phases: dict[str, Cost] = {}
    on_path: Cost = Cost()
    """Of the calls that the run builds on now."""
    in_all: Cost = Cost()
    """Of everything it ever did; limits look at this."""
    outside: Cost = Cost()
    """In all of it, what no call has that ended: spent outside of calls, or by one that was killed."""


def run_cost(
    run: str, ends: Iterable[tuple[Mapping[str, Any], bool]], used: Mapping[str, Spending] | None = None
) -> RunCost:
    """Return the cost of a run from its call records, each with whether it is on the present path, and its budget."""
    calls: dict[tuple[str, bool], CallCost] = {}
    phases_of: dict[str, str | None] = {}
    for line, is_here in ends:
        if line["event"] not in _ENDS or not is_work(line):
            continue
        path = line["step"]
        phases_of[path] = line.get("phase") or phases_of.get(path)
        now = CallCost(
            call=path,
            kind=line.get("kind", "step"),
            status=line["event"],
            attempts=line.get("attempts", 1),
            cost=_cost_of(line),
            agent=_agent_of(path),
            on_path=is_here,
        )
        before = calls.pop((path, is_here), None)
        if before is not None:
            now = msgspec.structs.replace(now, attempts=before.attempts + now.attempts, cost=before.cost + now.cost)
        calls[path, is_here] = now
    found = tuple(msgspec.structs.replace(one, phase=_phase_of(one.call, phases_of)) for one in calls.values())
    outermost = {one.call for one in found if _outer(one.call, phases_of) == one.call}
    agents: dict[str, Cost] = {}
    phases: dict[str, Cost] = {}
    on_path = in_calls = Cost()
    for one in found:
        counted = one.cost if one.call in outermost else msgspec.structs.replace(one.cost, time_s=0.0)
        in_calls += counted
        on_path += counted if one.on_path else Cost()
        if one.agent is not None:
            agents[one.agent] = agents.get(one.agent, Cost()) + one.cost
        if one.phase is not None:
            phases[one.phase] = phases.get(one.phase, Cost()) + counted
    outside = _used(used or {}).beyond(in_calls)
    in_all = in_calls + msgspec.structs.replace(outside, time_s=0.0)
    if used and TIME in used:
        in_all = msgspec.structs.replace(in_all, time_s=max(in_all.time_s, float(used[TIME].used)))
    return RunCost(
        run=run, calls=found, agents=agents, phases=phases, on_path=on_path, in_all=in_all,
        outside=msgspec.structs.replace(outside, time_s=0.0),
    )  # fmt: skip


def _cost_of(line: Mapping[str, Any]) -> Cost:
    spent = line.get("spent", {})
    return Cost(
        tokens=int(spent.get("tokens", 0)),
        money=spent.get("money", 0),
        tool_calls=int(spent.get("tool_calls", 0)),
        time_s=float(line.get("duration_s", 0.0)),
    )


def _used(used: Mapping[str, Spending]) -> Cost:
    amounts = {name: one.used for name, one in used.items()}
    return Cost(
        tokens=int(amounts.get("tokens", 0)),
        money=amounts.get("money", 0),
        tool_calls=int(amounts.get("tool_calls", 0)),
    )


def _agent_of(path: str) -> str | None:
    """Return the agent whose call a path is: `agent:NAME` or `agent:NAME/TASK`, inside another call or not."""
    parts = path.split("/")
    named = next((part for part in reversed(parts) if part.startswith(_AGENT)), None)
    return None if named is None else named.removeprefix(_AGENT).partition("#")[0]


def _outer(path: str, known: Mapping[str, Any]) -> str:
    """Return the outermost call around a path, itself if there is none."""
    for at, sign in enumerate(path):
        if sign == "/" and path[:at] in known:
            return path[:at]
    return path


def _phase_of(path: str, phases: Mapping[str, str | None]) -> str | None:
    own = phases.get(path)
    return own if own is not None else phases.get(_outer(path, phases))
