"""What a part needs of the run that it belongs to; `Alone` stands in where there is no run."""

from __future__ import annotations

import secrets
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.capture.lock import RunLock
from holdfast.encode.values import Packer
from holdfast.errors import UsageError
from holdfast.runtime.recorded import kept

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from holdfast.model.runtime_sections import Reply, Wait
    from holdfast.model.triggers import Trigger
    from holdfast.runtime.amounts import Amount
    from holdfast.runtime.calls import Calls
    from holdfast.runtime.ledger import Hold

_PACKER = Packer()


class Host(Protocol):
    """The run, as its parts see it."""

    id: str
    has_journal: bool
    """Whether records of calls are stored: then sections refer to results instead of holding them."""

    @property
    def calls(self) -> Calls:
        """The calls of the run: what is done through them is done once."""

    def pack(self, value: Any, what: str) -> bytes:
        """Return a value as the journal keeps it, without secrets; ValueRefused if it cannot be stored."""

    def unpack(self, data: bytes, what: str) -> Any:
        """Return a packed value."""

    def add_record(self, kind: str, path: str, body: bytes) -> int:
        """Let the journal get a record with the next commit; return how many there are with it."""

    @property
    def records_stored(self) -> int:
        """How many of the added records are stored."""

    def find_record(self, path: str) -> tuple[str, bytes] | None:
        """Return kind and body of the newest record of a path, stored or added."""

    @property
    def lock(self) -> RunLock:
        """Held while a checkpoint is taken; a part holds it while it changes in several steps."""

    def now(self) -> datetime:
        """Return the time, in UTC."""

    def monotonic(self) -> float:
        """Return seconds by a clock that never jumps."""

    def sleep(self, seconds: float) -> None:
        """Wait; a pause, a cancellation or the end of the run ends it early."""

    def save(
        self,
        trigger: Trigger,
        reason: str = "",
        *,
        phase: str | None = None,
        files: bool | None = None,
        required: bool = False,
    ) -> bool:
        """Take a checkpoint of everything that is registered, and let a pause or cancellation from outside in.

        False if it could not be stored and the run continues all the same; RunStopped where something rests on it.
        """

    def offer(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, **details: Any) -> None:
        """Take a checkpoint if switches and strategy find it due."""

    def record(self, reason: str, *, required: bool = True) -> None:
        """Make durable what changed, without a checkpoint; what cannot be stored is raised if it is required."""

    def grouped(self) -> AbstractContextManager[None]:
        """Let what is saved in this block go into few commits: before work begins, before a wait, and at the end."""

    def ungrouped(self) -> AbstractContextManager[None]:
        """Commit what is grouped, and let what is saved in this block be durable at once: work begins."""

    def flush(self) -> None:
        """Make durable what was saved in a group; if that fails, do as the settings say."""

    def begin_call(self, who: str, most: Mapping[str, Amount] | None) -> Hold:
        """Reserve an agent's call, and what it may cost, before it begins; stop while a budget is used up."""

    def end_call(self, who: str, held: Hold, spent: Mapping[str, Amount], *, is_known: bool) -> None:
        """Give back what was reserved for a call that is over, or charge it where its cost is not known."""

    def begin_retry(self) -> None:
        """Reserve one retry in the run's budgets before it begins."""

    def charge(self, **amounts: Any) -> None:
        """Count what a call cost, in the run's budgets; stored with what came of it."""

    def note(self, kind: str, what: str = "", **details: Any) -> None:
        """Add a line to the run's journal; it is stored with the next checkpoint."""

    def wait_for(self, wait: Wait) -> Reply:
        """Wait for a person, a signal or a time; one that was answered in an earlier process returns at once."""

    def is_waiting_for(self, wait: str) -> bool:
        """Tell whether something is waited for, in this process or since an earlier one."""

    def resolve(self, wait: str, value: Any) -> None:
        """Answer a wait from inside the run: another thread of it may be waiting."""

    def keep(self, value: Any, what: str) -> Any:
        """Return a copy that its owner cannot change; ValueRefused, with `what` and where, if it cannot be stored.

        Asked before a part takes a value in: one that cannot be stored would let every checkpoint after it fail.
        """

    def check_open(self, lost: str) -> None:
        """Raise RunClosed if the run is closed; a part asks before it makes a call whose result would be lost."""

    def watched(self) -> AbstractContextManager[threading.Event | None]:
        """Watch while a command runs: the event is set when the run is cancelled; None if nobody can cancel it."""

    def raise_cancelled(self) -> None:
        """Raise RunCancelled, after a command was ended for it."""


class Alone:
    """A host without a run: nothing is saved, and nobody can be waited for."""

    has_journal = False

    def __init__(self, id: str = "alone") -> None:  # noqa: A002 - the same name as a run's
        self.id = id
        self.lock = RunLock()
        self.records_stored = 0
        self._records: dict[str, tuple[str, bytes]] = {}

    @cached_property
    def calls(self) -> Calls:
        """Calls that are kept for as long as this is."""
        from holdfast.runtime.calls import Calls  # noqa: PLC0415 - it imports what imports this

        return Calls(self, make_key=lambda: secrets.token_hex(16), max_bytes=1 << 30)

    def pack(self, value: Any, what: str) -> bytes:
        """Return a value as bytes."""
        return _PACKER.pack(value, what)

    def unpack(self, data: bytes, what: str) -> Any:
        """Return a packed value."""
        return _PACKER.unpack(data, what)

    def add_record(self, kind: str, path: str, body: bytes) -> int:
        """Keep a record in memory."""
        self._records[path] = (kind, body)
        self.records_stored += 1
        return self.records_stored

    def find_record(self, path: str) -> tuple[str, bytes] | None:
        """Return the newest record of a path."""
        return self._records.get(path)

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds by a clock that never jumps."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def save(self, *_given: object, **_named: object) -> bool:
        """Do nothing: there is no run."""
        return True

    def offer(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, **details: Any) -> None:
        """Do nothing: there is no run."""

    def record(self, reason: str, *, required: bool = True) -> None:
        """Do nothing: there is no run."""

    def grouped(self) -> AbstractContextManager[None]:
        """Do nothing: there is no run."""
        return nullcontext()

    def ungrouped(self) -> AbstractContextManager[None]:
        """Do nothing: there is no run."""
        return nullcontext()

    def flush(self) -> None:
        """Do nothing: there is no run."""

    def begin_call(self, who: str, most: Mapping[str, Amount] | None) -> Hold:  # noqa: ARG002 - nothing is reserved
        """Reserve nothing: there is no run that could have a budget."""
        return ()

    def end_call(self, who: str, held: Hold, spent: Mapping[str, Amount], *, is_known: bool) -> None:
        """Do nothing: there is no run that could have a budget."""

    def begin_retry(self) -> None:
        """Do nothing: there is no run that could have a budget."""

    def charge(self, **amounts: Any) -> None:
        """Do nothing: there is no run that could have a budget."""

    def note(self, kind: str, what: str = "", **details: Any) -> None:
        """Do nothing: there is no run."""

    def wait_for(self, wait: Wait) -> Reply:
        """Refuse: nobody can answer."""
        raise UsageError(f"{wait.question!r} waits for an answer, and there is no run that could get one: use hf.run()")

    def is_waiting_for(self, wait: str) -> bool:  # noqa: ARG002 - nothing is
        """Say no: nobody can wait."""
        return False

    def resolve(self, wait: str, value: Any) -> None:
        """Do nothing: nobody can wait."""

    def keep(self, value: Any, what: str) -> Any:  # noqa: ARG002 - nothing is refused
        """Return a copy that its owner cannot change."""
        return kept(value)

    def check_open(self, lost: str) -> None:
        """Do nothing: there is no run that could be closed."""

    def watched(self) -> AbstractContextManager[threading.Event | None]:
        """Watch for nothing: there is no run that could be cancelled."""
        return nullcontext()

    def raise_cancelled(self) -> None:
        """Do nothing: there is no run that could be cancelled."""
