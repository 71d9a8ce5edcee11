"""What a log of steps says of continuing: which are done, which are of unknown outcome, which run again; pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.call_record import is_inside

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from datetime import datetime

Treatment = Literal["retry", "skip", "ask"]
_SETTLED = frozenset({"done", "skipped"})
_OPEN = frozenset({"started", "progress"})
_KEPT = frozenset({"step", "input", "code", "idempotency", "effect", "phase"})


class UnknownStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step that began and has no recorded end, and what is done about it; `decided` by a person, not by itself."""

    step: str
    treated: Treatment
    effect: str | None = None
    key: str | None = None
    decided: bool = False


def last_records(steps: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the record that counts for each step, its last, in the order in which the steps first appear."""
    last: dict[str, Mapping[str, Any]] = {}
    for record in steps:
        if isinstance(record, dict) and isinstance(record.get("step"), str):
            last[record["step"]] = record
    return last


def settled(steps: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the calls that are done or skipped, with their last records; what was called inside one goes with it."""
    last = {name: record for name, record in last_records(steps).items() if record.get("kind") != "phase"}
    done = {name: record for name, record in last.items() if record.get("event") in _SETTLED}
    return {name: record for name, record in done.items() if not is_inside(name, done)}


def unknown_steps(steps: Iterable[Any], decided: Mapping[str, Treatment]) -> tuple[UnknownStep, ...]:
    """Return the steps of unknown outcome with how each is treated: as decided, as declared, or asked for an effect."""
    found: list[UnknownStep] = []
    for name, record in last_records(steps).items():
        if record.get("event") != "started" or record.get("kind") == "phase":
            continue
        effect = record.get("effect")
        declared: Treatment = "ask" if effect is not None else "retry"
        if record.get("on_unknown") in ("retry", "skip", "ask"):
            declared = record["on_unknown"]
        found.append(
            UnknownStep(
                step=name,
                treated=decided.get(name, declared),
                effect=str(effect) if effect is not None else None,
                key=str(record["idempotency"]) if record.get("idempotency") is not None else None,
                decided=name in decided,
            )
        )
    missing = sorted(set(decided) - {each.step for each in found})
    if missing:
        known = f"those that are: {', '.join(each.step for each in found)}" if found else "no step is"
        raise UsageError(f"unknown={{{missing[0]!r}: ...}}: that step is not of unknown outcome here; {known}")
    return tuple(found)


def open_calls(steps: Iterable[Any], decided: Container[str] = ()) -> dict[str, Mapping[str, Any]]:
    """Return the calls that began and have no end here, with their last records, but those that somebody decided on.

    Where a run goes back to, such a call is not of unknown outcome: it is closed there, and done again.
    """
    return {
        name: record
        for name, record in last_records(steps).items()
        if record.get("event") in _OPEN and record.get("kind") != "phase" and name not in decided
    }


def closing_records(steps: Iterable[Any], names: Container[str], at: datetime) -> list[dict[str, Any]]:
    """Return what closes calls that are open where a run goes back to, or is forked: they are done again."""
    return [
        {name: value for name, value in record.items() if name in _KEPT or name == "kind"}
        | {"at": at, "event": "withdrawn"}
        for step, record in open_calls(steps).items()
        if step in names
    ]


def repeated(kept: Iterable[Any], now: Iterable[Any]) -> tuple[str, ...]:
    """Return the steps that are done by now and will not be after going back: they run again."""
    stays = settled(kept)
    return tuple(name for name in settled(now) if name not in stays)


def repeated_effects(
    kept: Iterable[Any], now: Iterable[Any], closed: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> tuple[str, ...]:
    """Return, in words, the outside effects that have happened, or were under way, and will happen again."""
    stays = settled(kept)
    done = {name: record for name, record in settled(now).items() if name not in stays and record.get("effect")}
    began = {name: record for name, record in closed.items() if name not in done and record.get("effect")}
    return (
        *(f"step {name} ({record['effect']}) has happened, and will happen again" for name, record in done.items()),
        *(f"step {name} ({record['effect']}) had begun, and will happen again" for name, record in began.items()),
    )


def decided_steps(unknown: Iterable[UnknownStep]) -> tuple[str, ...]:
    """Return the steps of unknown outcome that somebody decided on, so that nobody has to be asked."""
    return tuple(each.step for each in unknown if each.decided and each.treated != "ask")


def decided_records(unknown: Iterable[UnknownStep], steps: Iterable[Any], at: datetime) -> list[dict[str, Any]]:
    """Return what decisions add to the log: a step that is skipped, or that failed and may be tried again."""
    last = last_records(steps)
    added: list[dict[str, Any]] = []
    for each in unknown:
        if not each.decided or each.treated == "ask" or each.step not in last:
            continue
        record = {name: value for name, value in last[each.step].items() if name in _KEPT} | {"at": at}
        if each.treated == "skip":
            record["event"] = "skipped"
        else:
            message = "its outcome was unknown, and it was decided to try it again"
            record |= {"event": "failed", "error": {"message": message, "code": "outcome_unknown"}}
        added.append(record)
    return added
