"""The port to an engine: what it delivers, and what a worker answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE, ENGINE = "queue", "engine"
"""The attributes of a run that name the queue which delivers it, and the kind of its engine."""
EngineKind = Literal["absurd", "temporal"]
LONGEST_WAIT_S = 600.0
"""A wait that nobody ends is looked at this often, so that a lost wake-up is made up for."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One run, claimed for this worker; `lost` is set when the claim is."""

    run: str
    attempt: int
    lost: threading.Event = field(default_factory=threading.Event)


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do."""

    status: str


class Later(msgspec.Struct, frozen=True):
    """The run waits for a time."""

    at: datetime


class Until(msgspec.Struct, frozen=True):
    """The run waits for an entry of its inbox with this number, and is looked at again after so many seconds."""

    mark: int
    at_most_s: float = LONGEST_WAIT_S


class Again(msgspec.Struct, frozen=True):
    """The delivery could not be carried out here and now."""

    after_s: float
    why: str


Outcome = Done | Later | Until | Again


class Entry(msgspec.Struct, frozen=True, kw_only=True):
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

    def submit(self, run: str, *, queue: str, at: datetime | None = None) -> None:
        """Let a run be delivered, now or at a time; the same run twice is one."""

    def wake(self, run: str, *, queue: str, mark: int) -> None:
        """Deliver a run that waits for this inbox number, or will; idempotent, never lost."""

    def cancel(self, run: str, *, queue: str) -> None:
        """Deliver a run no more."""

    def serve(
        self,
        handle: Callable[[Delivery], Outcome],
        *,
        queue: str,
        slots: int,
        lease_s: float,
        stop: threading.Event,
        drain: bool = False,
    ) -> None:
        """Claim runs and hand them to `handle`, up to `slots` at once, until `stop`; with `drain` until none is due."""

    def entries(self, queue: str, *, limit: int) -> list[Entry]:
        """Return the runs of a queue, the last submitted first."""

    def close(self) -> None:
        """Let connections go."""
