"""The port to an engine: what it delivers, and what a worker answers."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.store.tables import Scalar

QUEUE, ENGINE, ENTRY, SETUP = "holdfast.queue", "holdfast.engine", "holdfast.entry", "holdfast.setup"
SETTINGS, AT = "holdfast.settings", "holdfast.at"
PARKED, DELIVERED = "holdfast.parked", "holdfast.delivered"
"""Attributes of a submitted run, beside those that its user gives it: its queue, the kind of its engine, its program if
it is not a flow, the command that prepares a directory for it, what the submitter's settings say of it, the time before
which it does not begin, the wait that it is parked with, and how its deliveries ended."""
EngineKind = Literal["absurd", "temporal"]
LONGEST_WAIT_S = 600.0
"""A wait that nobody ends is looked at this often, so that a lost wake-up is made up for."""
LONGEST_SLEEP_S = 86_400.0
"""The same for a wait that a time ends."""
_LAST_TIME = 253_402_300_799.0  # of the year 9999: what is later is no date


_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")  # it becomes part of tables' names, and of queries


def check_queue(name: str) -> str:
    """Return the name of a queue; UsageError if no engine could have it."""
    if not _QUEUE.match(name):
        raise UsageError(f"{name!r:.80} is not a valid name for a queue: use up to 48 letters, digits, _ and -")
    return name


def text_of(attributes: Mapping[str, Scalar], name: str) -> str | None:
    """Return what an attribute of a submitted run says; None if it is not there, or no text."""
    value = attributes.get(name)
    return value if isinstance(value, str) else None


def begins_at(attributes: Mapping[str, Scalar]) -> float:
    """Return the time before which a run does not begin; 0 if there is none."""
    at = attributes.get(AT)
    return min(float(at), _LAST_TIME) if isinstance(at, int | float) and math.isfinite(at) else 0.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One run, claimed for this worker; `lost` is set when the claim is."""

    run: str
    attempt: int
    lost: threading.Event = field(default_factory=threading.Event)


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do."""

    status: str


class Until(msgspec.Struct, frozen=True):
    """The run waits for an entry of its inbox with this number, and is looked at again after so many seconds.

    `of` is the run's incarnation: one that was deleted and submitted again counts its entries from 1 again.
    """

    mark: int
    at_most_s: float = LONGEST_WAIT_S
    of: int = 0


class Again(msgspec.Struct, frozen=True):
    """The delivery could not be carried out here and now."""

    after_s: float
    why: str


Outcome = Done | Until | Again


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its queue has it."""

    run: str
    state: str
    """due, running, asleep, done, cancelled or failed"""
    attempt: int
    worker: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Engine(Protocol):
    """What places runs on workers."""

    kind: EngineKind
    has_priorities: bool

    def submit(self, run: str, *, queue: str, priority: int | None = None) -> None:
        """Let a run be delivered; twice is one, unless its delivery has ended: then it is delivered again."""

    def wake(self, run: str, *, queue: str, mark: int, of: int) -> None:
        """Deliver a run that waits for this inbox number of this incarnation, or will; idempotent, never lost."""

    def cancel(self, run: str, *, queue: str) -> None:
        """Deliver a run no more; it may be submitted again at once."""

    def serve(
        self,
        handle: Callable[[Delivery], Outcome],
        *,
        queue: str,
        slots: int,
        lease_s: float,
        stop: threading.Event,
        drain: bool = False,
        limit: int | None = None,
    ) -> None:
        """Claim runs and hand them to `handle`, up to `slots` at once, until `stop`; with `drain` until none is due.

        Of a queue no more than `limit` runs are claimed at once, over all workers; UsageError where it has no limits.
        """

    def entries(self, queue: str, *, limit: int, run: str | None = None) -> list[QueueEntry]:
        """Return the runs of a queue, the last submitted first; or the one that is named."""

    def close(self) -> None:
        """Let connections go."""
