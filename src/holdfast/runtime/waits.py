"""What a run waits for, and the answers: a person, a signal, a time.

Each is a call of kind question or timer: that it was asked, about which work, and its answer are records under its
path. The process may end meanwhile: what is open is shown by a section, and an answer that comes from another process
lies in the run's inbox until the run takes it in, in one commit with the end of the call that it is for.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from blake3 import blake3

from holdfast.errors import RunCancelled, RunWaiting, UsageError
from holdfast.model.runtime_sections import Reply, Wait, WaitsValue
from holdfast.model.triggers import Trigger
from holdfast.runtime.calls import CallOptions, Kept
from holdfast.runtime.stopwatch import waiting
from holdfast.runtime.wait_limit import at_most_s, is_given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.runtime.calls import Call
    from holdfast.runtime.host import Host
    from holdfast.runtime.inbox import Item
    from holdfast.runtime.status import RunStatus
    from holdfast.store.wakeups import Wakeup

R = TypeVar("R")
Waiting = Literal["block", "decide", "leave"]
"""Where it must wait: block; leave what a person has to decide, and wait for times and the end of a pause; leave."""
_LONGEST_SLEEP_S = 60.0  # so that a lost wake-up, or a clock that was set, is noticed
_LONGEST_NAME = 200
_TIMERS = ("time", "cooldown")
_WORTH_LEAVING_S = 60.0  # a run that leaves where it waits sits a shorter cool-down out
_TRIGGERS = {"budget": Trigger.BUDGET_WARNING}


class Pause(NamedTuple):
    """How long to sleep before a wait looks again, and what ends the sleep early."""

    wakeup: Wakeup
    seconds: float


class Question(NamedTuple):
    """What is waited for, and what it is about: asked about other work, it is another question."""

    wait: Wait
    inputs: str = ""
    """A digest of what is asked."""
    after: Mapping[str, str] = {}
    """The versions of the calls whose work it is about."""
    is_numbered: bool = False
    """Whether it is one of a program's own: below the call that it is asked in, and another one each time."""
    phase: str | None = None


Steps: TypeAlias = "Generator[Pause, None, Reply]"


def sit_out(steps: Generator[Pause, None, R], monotonic: Callable[[], float]) -> R:
    """Do what a wait does, and sleep in its pauses."""
    with waiting(monotonic):
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
        self._untold: dict[str, Wait] = {}
        """What was answered before its program asked for it in this process."""
        self._followers: set[int] = set()
        self._told: set[str] = set()
        self._wanted: Item | None = None
        self._resumed: Reply | None = None
        self._cancel: Item | None = None
        self.taken_in = 0
        """The number of the last inbox entry that was taken in here; what was before that the store knows."""
        self.changes = 0
        self.restore(WaitsValue())

    def snapshot(self) -> Any:
        """Return what is open."""
        value = WaitsValue(open=self._open, signals=self._signals)
        return msgspec.to_builtins(value, builtin_types=(datetime,))

    def restore(self, value: Any) -> None:
        """Take it back."""
        taken = value if isinstance(value, WaitsValue) else msgspec.convert(value, WaitsValue)
        self._open = dict(taken.open)
        self._signals = {name: list(replies) for name, replies in taken.signals.items()}
        self._untold, self._cancel = {}, None
        self.changes += 1

    @property
    def open(self) -> list[Wait]:
        """What is waited for now."""
        return list(self._open.values())

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody cancelled the run, also if that lies in the inbox still."""
        return self._cancel is not None or any(item.kind == "cancel" for item in self._read(self.taken_in))

    def wait_for(self, question: Question) -> Reply:
        """Wait; an answer from an earlier process of the run is returned at once."""
        return sit_out(self.steps(question), self._host.monotonic)

    def steps(self, question: Question, begun_as: Callable[[Call], object] = lambda _call: None) -> Steps:
        """Wait as a generator: between two of its pauses it works, and whoever drives it sleeps for them.

        `begun_as` hears of the call: who is cancelled before it has heard the answer releases it.
        """
        calls, wait = self._host.calls, question.wait
        begun = calls.begin(
            "timer" if wait.kind in _TIMERS else "question",
            wait.id,
            CallOptions(phase=question.phase),
            inputs=question.inputs,
            after=question.after,
            is_numbered=question.is_numbered,
            is_shared=not question.is_numbered,
        )
        begun_as(begun.call if isinstance(begun, Kept) else begun)
        if isinstance(begun, Kept):
            reply = Reply(**begun.result)
            told = self._untold.pop(begun.call.path, None)
            if told is not None:
                self._end(told, reply)
            return reply
        try:
            with self._idle():
                reply = yield from self._waited(begun, wait)
        except BaseException:
            calls.release(begun)
            raise
        calls.leave(begun)
        return reply

    def _waited(self, call: Call, wait: Wait) -> Steps:
        with self._host.lock:
            wait = self._ask(call, wait)
        self._host.save(_trigger(wait), f"waits: {wait.question or wait.id}")
        self._host.flush()  # what is waited for can be answered, and takes long
        reply = yield from self._answer(call.path, wait)
        self._untold.pop(call.path, None)
        self._end(wait, reply)
        return reply

    def _end(self, wait: Wait, reply: Reply) -> None:
        """Save what was answered, with a checkpoint if one is due, and tell of it."""
        self._host.save(_trigger(wait), f"{wait.id}: {reply.choice}" + (f" by {reply.by}" if reply.by else ""))
        self._host.flush()
        self._tell(wait, reply)

    def _ask(self, call: Call, wait: Wait) -> Wait:
        """Record what is asked and show it as open, in one commit; the time that was set first counts."""
        known = self._open.get(call.path)
        number = self._host.calls.ask(call, {"question": wait.question, "options": list(wait.options)})
        wait = msgspec.structs.replace(wait, id=call.path if number == 1 else f"{call.path}:{number}")
        if known is not None and known.id == wait.id and known.until is not None:
            wait = known
        return self._opened(call.path, wait)

    def _opened(self, path: str, wait: Wait) -> Wait:
        if self._open.get(path) != wait:
            self._open[path] = wait
            self.changes += 1
            self._host.note("waits", wait.question, wait=wait.kind, id=wait.id)
        if self._cancel is None:
            self._status.set("paused" if wait.kind == "pause" else "waiting", wait.question)
        return wait

    def _answered(self, path: str, reply: Reply) -> None:
        """End a question: its answer, and the place in the inbox that it was read from, are one commit."""
        wait = self._open.pop(path)
        if wait.kind == "pause":
            self._resumed = reply
        else:
            self._host.calls.answer(path, {name: getattr(reply, name) for name in Reply.__struct_fields__})
            self._untold[path] = wait
        self.changes += 1
        if self._cancel is None:
            self._status.set("running")
        self._host.note("answered", wait.question or wait.id, choice=reply.choice, by=reply.by, note=reply.note)

    def _answer(self, path: str, wait: Wait) -> Steps:
        """Return the answer when it is there; RunWaiting in a run that does not block."""
        with self._listen() as wakeup:
            while True:
                self._take_all()
                if wait.kind != "pause" or self._cancel is not None:
                    yield from self._follow()
                with self._host.lock:
                    reply = self._reply(path, wait)
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

    def _reply(self, path: str, wait: Wait) -> Reply | None:
        """Return the answer if the question has one, as its record has it."""
        if path in self._open and wait.kind == "signal":
            signals = self._signals.get(wait.details.get("signal", wait.id))
            if signals:  # taken and answered at once: no commit sees it in neither place
                self._answered(path, signals.pop(0))
        if path in self._open and wait.until is not None and self._host.now() >= wait.until:
            self._answered(path, Reply(choice="time", at=self._host.now()))
        if path in self._open:
            return None
        if wait.kind == "pause":
            return self._resumed
        found = self._host.calls.kept(path)
        return Reply(**self._host.calls.result(found)) if found is not None else None

    def look(self) -> None:
        """Let in what came from outside: a pause is waited out here, a cancellation ends the run."""
        me = threading.get_ident()
        if me in self._followers:
            return
        self._followers.add(me)
        try:
            self._take_all()
            sit_out(self._follow(), self._host.monotonic)
            for wait in list(self._open.values()):
                if wait.kind == "pause":  # of an earlier process, or of another thread
                    sit_out(self._pause(wait), self._host.monotonic)
        finally:
            self._followers.discard(me)

    def resolve(self, path: str, value: Any) -> bool:
        """Answer a wait from inside the run; False if nothing waits for it."""
        with self._host.lock:
            if path not in self._open:
                return False
            self._answered(path, Reply(choice="answer", at=self._host.now(), value=value))
        return True

    def withdraw(self) -> None:
        """No longer wait for anything but the end of a pause: what is still to be asked is asked when it comes up."""
        with self._host.lock:
            self._open = {path: wait for path, wait in self._open.items() if wait.kind == "pause"}
            self.changes += 1

    def sit_out(self) -> None:
        """Wait for the end of cool-downs that an earlier process left open: nobody is asked before that."""
        for path, wait in list(self._open.items()):
            if wait.kind == "cooldown":
                sit_out(self._continued(path, wait), self._host.monotonic)

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
            path = next((path for path, wait in self._open.items() if item.target in ("", wait.id)), None)
            wait = None if path is None else self._open[path]
            if path is None or wait is None or (wait.options and item.choice not in wait.options):
                self._host.note(
                    "answer not used", item.target, choice=item.choice, by=item.by, why="not asked any more"
                )
                return
            self._answered(path, reply)
        elif item.kind == "signal":
            self._signals.setdefault(item.target, []).append(reply)
        elif item.kind == "resume":
            self._wanted = None
            for path in [path for path, wait in self._open.items() if wait.kind == "pause"]:
                self._answered(path, reply)
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
        for path in [path for path, wait in self._open.items() if is_raised(wait, item)]:
            self._answered(path, Reply(choice="raised", at=item.at, by=item.by, note=item.note))

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
        yield from self._pause(Wait(id=f"pause:{item.number}", kind="pause", question=question))

    def _continued(self, path: str, wait: Wait) -> Generator[Pause, None, None]:
        """Wait for the end of something that is open, with any other thread that does."""
        with self._idle():
            reply = yield from self._answer(path, wait)
        self._untold.pop(path, None)
        self._end(wait, reply)

    def _pause(self, wait: Wait) -> Generator[Pause, None, None]:
        """Wait for the end of a pause; it is not a call, for the program did not ask for it."""
        with self._host.lock:
            self._opened(wait.id, wait)
        self._host.save(_trigger(wait), f"waits: {wait.question}")
        self._host.flush()
        yield from self._continued(wait.id, wait)


def approval(
    host: Host,
    question: str,
    *,
    options: Sequence[str],
    name: str | None,
    until: datetime | None,
    after: Sequence[str],
    phase: str | None,
    **details: Any,
) -> Question:
    """Return the question for a person's decision: another text, other options, details or work are another one."""
    if not question or not options:
        raise UsageError("approve() needs a question and at least one option")
    if isinstance(after, str):
        raise UsageError(f"approve(): after={after!r} is one text: give a list, after=[{after!r}]")
    wait = Wait(
        id=_name(name or f"approve:{question}"),
        kind="approval",
        question=question,
        options=tuple(options),
        until=until,
        details=details,
    )
    about = blake3(host.pack([question, list(options), details], "a question")).hexdigest(16)
    seen = {path: host.calls.version(path) for path in after}
    return Question(wait, about, seen, is_numbered=True, phase=phase)


def signal_wait(name: str, *, until: datetime | None, phase: str | None) -> Question:
    """Return the wait for a named signal."""
    wait = Wait(
        id=_name(f"signal:{name}"), kind="signal", question=f"signal {name}", until=until, details={"signal": name}
    )
    return Question(wait, is_numbered=True, phase=phase)


def time_wait(when: datetime, *, name: str | None, kind: Literal["time", "cooldown"], phase: str | None) -> Question:
    """Return the wait for a time."""
    if when.tzinfo is None:
        raise UsageError(f"when={when!r}: give a time with its zone, such as datetime.now(UTC) + timedelta(...)")
    wait = Wait(
        id=_name(name or f"time:{when.isoformat()}"),
        kind=kind,
        question=f"until {when:%Y-%m-%d %H:%M:%S %Z}",
        until=when,
    )
    return Question(wait, is_numbered=True, phase=phase)


def _name(text: str) -> str:
    """Return a text as a name that an index can hold: a long one is cut, and told apart by a digest."""
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 17]}~{blake3(text.encode()).hexdigest(8)}"


def _trigger(wait: Wait) -> Trigger:
    return _TRIGGERS.get(wait.kind, Trigger.USER_APPROVAL)


def is_raised(wait: Wait, item: Item) -> bool:
    """Tell whether what is waited for is a budget that somebody raised with this item."""
    from holdfast.runtime.ledger import label_of  # noqa: PLC0415 - most runs have no budget

    if wait.kind != "budget" or item.kind != "budget":
        return False
    return label_of(wait.details["part"], wait.details["budget"]) in item.value
