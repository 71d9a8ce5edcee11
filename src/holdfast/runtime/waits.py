"""What a run waits for, and the answers: a person, a signal, a time.

The process may end meanwhile: what is waited for and what was answered are a section, and an answer that comes from
another process lies in the run's inbox until the run takes it in with a checkpoint of its own.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast.errors import RunCancelled, RunWaiting, UsageError
from holdfast.model.runtime_sections import Reply, Wait, WaitsValue
from holdfast.model.triggers import Trigger
from holdfast.runtime.stopwatch import waiting
from holdfast.runtime.wait_limit import at_most_s, is_given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.runtime.host import Host
    from holdfast.runtime.inbox import Item
    from holdfast.runtime.status import RunStatus
    from holdfast.store.wakeups import Wakeup

R = TypeVar("R")
Waiting = Literal["block", "decide", "leave"]
"""Where it must wait: block; leave what a person has to decide, and wait for times and the end of a pause; leave."""
_LONGEST_SLEEP_S = 60.0  # so that a lost wake-up, or a clock that was set, is noticed
_LONGEST_ID = 2_000
_WORTH_LEAVING_S = 60.0  # a run that leaves where it waits sits a shorter cool-down out
_TRIGGERS = {"budget": Trigger.BUDGET_WARNING}


class Pause(NamedTuple):
    """How long to sleep before a wait looks again, and what ends the sleep early."""

    wakeup: Wakeup
    seconds: float


Steps: TypeAlias = "Generator[Pause, None, Reply]"


def _sit_out(steps: Generator[Pause, None, R]) -> R:
    """Do what a wait does, and sleep in its pauses."""
    while True:
        try:
            pause = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        pause.wakeup.wait(at_most_s(pause.seconds))


class Waits:
    """What one run waits for."""

    def __init__(
        self,
        host: Host,
        status: RunStatus,
        *,
        read: Callable[[int], Sequence[Item]],
        listen: Callable[[], Wakeup],
        tell: Callable[[Wait, Reply | None], object],
        idle: Callable[[], AbstractContextManager[None]],
        raise_budget: Callable[[Item], object],
        blocks: Waiting = "block",
    ) -> None:
        """Begin without a wait; `tell` hears of each one that has no answer yet, and of its answer.

        Inside `idle` the run waits, and its clock stands still.
        """
        self._host = host
        self._status = status
        self._read = read
        self._listen = listen
        self._tell = tell
        self._idle = idle
        self._raise_budget = raise_budget
        self._blocks = blocks
        self._over: set[str] = set()
        self._followers: set[int] = set()
        self._told: set[str] = set()
        self._wanted: Item | None = None
        self._cancel: Item | None = None
        self.taken_in = 0
        """The number of the last inbox entry that was taken in here; what was before that the store knows."""
        self.changes = 0
        self.restore(WaitsValue())

    def snapshot(self) -> Any:
        """Return what is open and answered."""
        value = WaitsValue(open=self._open, answered=self._answered, signals=self._signals)
        return msgspec.to_builtins(value, builtin_types=(datetime,))

    def restore(self, value: Any) -> None:
        """Take it back."""
        taken = value if isinstance(value, WaitsValue) else msgspec.convert(value, WaitsValue)
        self._open, self._answered = dict(taken.open), dict(taken.answered)
        self._signals = {name: list(replies) for name, replies in taken.signals.items()}
        self._over, self._cancel = set(), None
        self.changes += 1

    @property
    def open(self) -> list[Wait]:
        """What is waited for now."""
        return list(self._open.values())

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody cancelled the run, also if that lies in the inbox still."""
        return self._cancel is not None or any(item.kind == "cancel" for item in self._read(self.taken_in))

    def wait_for(self, wait: Wait) -> Reply:
        """Wait; an answer from an earlier process of the run is returned at once."""
        with waiting(self._host.monotonic):
            return _sit_out(self.steps(wait))

    def steps(self, wait: Wait) -> Steps:
        """Wait as a generator: between two of its pauses it works, and whoever drives it sleeps for them."""
        if wait.id in self._over:
            raise UsageError(f"{wait.id!r} was answered already in this run of the program: give each wait its own id")
        reply = self._answered.get(wait.id)
        if reply is None or wait.id in self._open:
            with self._idle():
                reply = yield from self._waited(wait)
        self._over.add(wait.id)
        return reply

    def _waited(self, wait: Wait) -> Steps:
        trigger = _TRIGGERS.get(wait.kind, Trigger.USER_APPROVAL)
        if wait.id not in self._answered:
            wait = self._begun(wait)
            self._host.save(trigger, f"waits: {wait.question or wait.id}")
        self._host.flush()  # what is waited for can be answered, and takes long
        reply = yield from self._answer(wait)
        with self._host.lock:
            self._open.pop(wait.id, None)
            self._answered[wait.id] = reply
            self.changes += 1
            if self._cancel is None:
                self._status.set("running")
            self._host.note("answered", wait.question or wait.id, choice=reply.choice, by=reply.by, note=reply.note)
        self._host.save(trigger, f"{wait.id}: {reply.choice}" + (f" by {reply.by}" if reply.by else ""))
        self._host.flush()
        self._tell(wait, reply)
        return reply

    def _begun(self, wait: Wait) -> Wait:
        """Note what is waited for; the time that was set first counts."""
        with self._host.lock:
            known = self._open.get(wait.id)
            if known is not None and known.until is not None:
                wait = known
            if known != wait:
                self._open[wait.id] = wait
                self.changes += 1
                self._host.note("waits", wait.question, wait=wait.kind, id=wait.id)
            if self._cancel is None:
                self._status.set("paused" if wait.kind == "pause" else "waiting", wait.question)
        return wait

    def _answer(self, wait: Wait) -> Steps:
        """Return the answer when it is there; RunWaiting in a run that does not block."""
        with self._listen() as wakeup:
            while True:
                self._take_all()
                if wait.kind != "pause" or self._cancel is not None:
                    yield from self._follow()
                with self._host.lock:
                    reply = self._reply(wait)
                if reply is not None:
                    return reply
                if wait.id not in self._told:  # by another thread, it may be
                    self._told.add(wait.id)
                    self._tell(wait, None)
                left = (wait.until - self._host.now()).total_seconds() if wait.until is not None else _LONGEST_SLEEP_S
                is_brief = wait.kind == "cooldown" and left < _WORTH_LEAVING_S
                decides = wait.until is None and wait.kind != "pause"
                leaves = decides if self._blocks == "decide" else self._blocks == "leave"
                if (leaves and not is_brief) or is_given_up():
                    raise RunWaiting(self._host.id, wait.id, wait.kind, wait.question)
                yield Pause(wakeup, min(max(0.0, left), _LONGEST_SLEEP_S))

    def _reply(self, wait: Wait) -> Reply | None:
        if wait.id in self._answered:
            return self._answered[wait.id]
        if wait.kind == "signal":
            name = wait.details.get("signal", wait.id)
            if self._signals.get(name):  # taken and answered at once: no checkpoint sees it in neither place
                self._answered[wait.id] = self._signals[name].pop(0)
                self.changes += 1
                return self._answered[wait.id]
        if wait.until is not None and self._host.now() >= wait.until:
            return Reply(choice="time", at=self._host.now())
        return None

    def look(self) -> None:
        """Let in what came from outside: a pause is waited out here, a cancellation ends the run."""
        me = threading.get_ident()
        if me in self._followers:
            return
        self._followers.add(me)
        try:
            self._take_all()
            with waiting(self._host.monotonic):
                _sit_out(self._follow())
            for wait in list(self._open.values()):
                if wait.kind == "pause":  # of an earlier process, or of another thread
                    self.wait_for(wait)
        finally:
            self._followers.discard(me)

    def resolve(self, wait: str, value: Any) -> bool:
        """Answer a wait from inside the run; False if nothing waits for it."""
        with self._host.lock:
            if wait not in self._open or wait in self._answered:
                return False
            self._answered[wait] = Reply(choice="answer", at=self._host.now(), value=value)
            self.changes += 1
        return True

    def withdraw(self, one: str | None = None) -> None:
        """No longer wait for one thing, or for anything but the end of a pause: what was to be answered is gone."""
        with self._host.lock:
            self._open = {
                name: wait
                for name, wait in self._open.items()
                if (wait.kind == "pause" if one is None else name != one)
            }
            self.changes += 1

    def sit_out(self) -> None:
        """Wait for the end of cool-downs that an earlier process left open: nobody is asked before that."""
        for wait in list(self._open.values()):
            if wait.kind == "cooldown":
                self.wait_for(wait)

    def _take_all(self) -> None:
        """Read the inbox; what is taken in is stored with the next checkpoint."""
        with self._host.lock:
            for item in self._read(self.taken_in):
                self._take_in(item)
                self.taken_in = item.number
                self.changes += 1

    def _take_in(self, item: Item) -> None:
        reply = Reply(choice=item.choice, at=item.at, by=item.by, note=item.note, value=item.value)
        if item.kind == "answer":
            target = item.target or next(iter(self._open), "")
            wait = self._open.get(target)
            if wait is None or (wait.options and item.choice not in wait.options):
                self._host.note("answer not used", target, choice=item.choice, by=item.by)
                return
            self._answered[target] = reply
        elif item.kind == "signal":
            self._signals.setdefault(item.target, []).append(reply)
        elif item.kind == "resume":
            self._wanted = None
            for wait in list(self._open.values()):
                if wait.kind == "pause":
                    self._answered[wait.id] = reply
        elif item.kind == "pause":
            self._wanted = item
        elif item.kind == "budget":
            self._take_raise(item)
        elif self._cancel is None:  # said with what was read, so that no checkpoint has read it and does not say it
            self._cancel = item
            self._status.set("cancelled", item.note)
            self._host.note("cancelled", item.note, by=item.by)

    def _take_raise(self, item: Item) -> None:
        """Let budgets be raised, and end the waits for them: no checkpoint has the one without the other."""
        self._raise_budget(item)
        for wait in [one for one in self._open.values() if is_raised(one, item)]:
            del self._open[wait.id]
            self._answered[wait.id] = Reply(choice="raised", at=item.at, by=item.by, note=item.note)

    def _follow(self) -> Generator[Pause, None, None]:
        """Do what somebody outside wants: pause until it is taken back, or end, in every thread that comes by."""
        if self._cancel is not None:
            by, note = self._cancel.by, self._cancel.note
            self._host.save(Trigger.USER_INTERRUPT, f"cancelled by {by or 'somebody'}")
            raise RunCancelled(self._host.id, by, note)
        item, self._wanted = self._wanted, None
        if item is None:
            return
        question = f"paused by {item.by or 'somebody'}" + (f": {item.note}" if item.note else "")
        yield from self.steps(Wait(id=f"pause:{item.number}", kind="pause", question=question))


def approval(
    question: str, *, options: Sequence[str], name: str | None, until: datetime | None, **details: Any
) -> Wait:
    """Return the wait for a person's decision."""
    if not question or not options:
        raise UsageError("approve() needs a question and at least one option")
    named = name or f"approve:{question}"[:_LONGEST_ID]
    return Wait(id=named, kind="approval", question=question, options=tuple(options), until=until, details=details)


def signal_wait(name: str, *, until: datetime | None) -> Wait:
    """Return the wait for a named signal."""
    return Wait(id=f"signal:{name}", kind="signal", question=f"signal {name}", until=until, details={"signal": name})


def time_wait(when: datetime, *, name: str | None, kind: Literal["time", "cooldown"]) -> Wait:
    """Return the wait for a time."""
    if when.tzinfo is None:
        raise UsageError(f"when={when!r}: give a time with its zone, such as datetime.now(UTC) + timedelta(...)")
    return Wait(id=name or f"time:{when.isoformat()}", kind=kind, question=f"until {when}", until=when)


def is_raised(wait: Wait, item: Item) -> bool:
    """Tell whether what is waited for is a budget that somebody raised with this item."""
    from holdfast.runtime.ledger import label_of  # noqa: PLC0415 - most runs have no budget

    if wait.kind != "budget" or item.kind != "budget":
        return False
    return label_of(wait.details["part"], wait.details["budget"]) in item.value
