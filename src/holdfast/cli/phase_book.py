"""The phases of a run that a shell script moves: each change a pure step from one section value to the next.

A script starts a phase in one process and ends it in another, so what happened between stands in the section alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import UsageError
from holdfast.model.sections import Failure, Phases, PhaseState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.model.sections import Artifact

SETTLED = ("completed", "skipped")
_ENTERED = "entered_at"  # when this process of each running phase began, so that a break does not count as work


def started(book: Phases, name: str, now: datetime) -> Phases:
    """Begin a phase, or resume one that a script died in; a failed one is its next attempt."""
    state = book.phases.get(name, PhaseState())
    continues = state.status == "running"
    state = msgspec.structs.replace(
        state,
        status="running",
        attempt=state.attempt if continues else state.attempt + 1,
        resumes=state.resumes + 1 if continues else state.resumes,
        started_at=state.started_at if continues else now,
        completed_at=None,
        error=None,
        reason="",
    )
    return _put(book, name, state, current=name, entered=now)


def completed(
    book: Phases, name: str, now: datetime, *, summary: str | None = None, artifacts: Sequence[Artifact] = ()
) -> Phases:
    """End a phase well; one that was never started counts as begun now."""
    state = book.phases.get(name, PhaseState())
    known = {one.id: one for one in (*state.artifacts, *artifacts)}
    state = msgspec.structs.replace(
        state,
        status="completed",
        attempt=max(state.attempt, 1),
        started_at=state.started_at or now,
        completed_at=now,
        duration_s=state.duration_s + _worked(book, name, now),
        summary=state.summary if summary is None else summary,
        artifacts=list(known.values()),
        error=None,
    )
    return _put(book, name, state, current=None)


def failed(book: Phases, name: str, now: datetime, error: str, *, code: str | None = None) -> Phases:
    """End a phase badly; it stays due."""
    state = book.phases.get(name, PhaseState())
    if state.status == "completed":
        raise UsageError(f"phase {name!r} is complete; `holdfast phase retry {name}` makes it due again")
    state = msgspec.structs.replace(
        state,
        status="failed",
        attempt=max(state.attempt, 1),
        duration_s=state.duration_s + _worked(book, name, now),
        error=Failure(message=error, code=code),
    )
    return _put(book, name, state, current=None)


def left(book: Phases) -> list[str]:
    """Return the phases that are still to be done, in their order."""
    return [name for name in book.order if book.phases.get(name, PhaseState()).status not in SETTLED]


def renamed(book: Phases, names: Mapping[str, str]) -> Phases:
    """Give phases other names: what they did, their replans and their limits stay theirs."""
    if not names:
        return book

    def of(one: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(name, name): value for name, value in one.items()}

    return msgspec.structs.replace(
        book,
        current=names.get(book.current, book.current) if book.current is not None else None,
        order=[names.get(name, name) for name in book.order],
        phases=of(book.phases),
        replans=[msgspec.structs.replace(one, phase=names.get(one.phase, one.phase)) for one in book.replans],
        limits=of(book.limits),
        metadata={**book.metadata, _ENTERED: of(book.metadata.get(_ENTERED, {}))},
    )


def number_of(book: Phases, name: str) -> int:
    """Return a phase's number: the one that its heading has, or its place in the plan."""
    digits = name.partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else book.order.index(name) + 1


def due_before(book: Phases, name: str) -> list[str]:
    """Return the phases that come before this one in the plan and are still to be done."""
    place = book.order.index(name) if name in book.order else len(book.order)
    return [one for one in left(book) if one in book.order[:place]]


def saved_s(book: Phases) -> float:
    """Return how long the settled phases took: what continuing does not do again."""
    return sum(state.duration_s for state in book.phases.values() if state.status == "completed")


def _worked(book: Phases, name: str, now: datetime) -> float:
    entered = book.metadata.get(_ENTERED, {}).get(name)
    return max(0.0, (now - entered).total_seconds()) if entered is not None else 0.0


def _put(book: Phases, name: str, state: PhaseState, *, current: str | None, entered: datetime | None = None) -> Phases:
    moments: dict[str, Any] = {one: at for one, at in book.metadata.get(_ENTERED, {}).items() if one != name}
    if entered is not None:
        moments[name] = entered
    return msgspec.structs.replace(
        book,
        order=book.order if name in book.order else [*book.order, name],
        phases={**book.phases, name: state},
        current=current if current is not None or book.current == name else book.current,
        metadata={**book.metadata, _ENTERED: moments},
    )
