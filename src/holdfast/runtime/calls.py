"""One durable call: a piece of work whose outcome is kept, so that it is neither done nor paid for twice.

Steps, agents, gates, fixes, tasks, questions, timers and replans are all calls; what holds for one of them is enforced
here, for all, and nowhere else. A call has a path; the newest record of that path in the journal says how it stands.

Order of work: `begin` finds the record and decides (kept, of unknown outcome, due); where something rests on the start
(an effect, a policy other than doing it again), that is stored before the work; retries, timeouts and budgets surround
the work; `finish` or `fail` stores how it ended, in one commit with all that the call changed about the run. A kept
result is valid while the identity (definition, inputs, the call around it) and the versions of everything that the call
depends on are the same.
"""

from __future__ import annotations

import inspect
import threading
import time
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec
from blake3 import blake3

from holdfast.encode.outcome import Outcome
from holdfast.errors import EffectUncertain, UsageError, ValueRefused
from holdfast.journal.call_record import CallRecord, call_line, decode_call, encode_call, stored_path
from holdfast.journal.outcomes import refers_to_results, resolved
from holdfast.model.failure import failure_of
from holdfast.model.runtime_sections import Wait
from holdfast.model.triggers import Trigger
from holdfast.runtime.amounts import add, stored, subtract
from holdfast.runtime.attempt import Retry, attempt, check_retry
from holdfast.runtime.coroutines import result_of
from holdfast.runtime.interruption import is_cut_off, is_interruption
from holdfast.runtime.recorded import reason_of
from holdfast.runtime.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from holdfast.runtime.amounts import Amount
    from holdfast.runtime.host import Host
    from holdfast.runtime.ledger import Hold

T = TypeVar("T")
OnUnknown = Literal["retry", "skip", "ask"]
OnInterrupt = Literal["keep", "roll_back", "ask"]

_LONGEST_NAME = 200
_SETTLED = frozenset({"done", "skipped"})
_NO_END = frozenset({"started", "progress", "failed", "withdrawn"})
_ASKED = frozenset({"question", "timer"})
"""Kinds that are named by what is asked."""
_running: ContextVar[_Frame | None] = ContextVar("holdfast_call", default=None)
_charged: ContextVar[dict[str, Amount] | None] = ContextVar("holdfast_charged", default=None)


class StepContext(NamedTuple):
    """What a function may know of the call that it is."""

    name: str
    key: str
    """The same in every attempt: hand it to services that take an idempotency key."""
    attempt: int
    progress: Any = None
    """What an attempt that was interrupted yielded last."""


def _nothing(*_given: Any) -> None:
    """Show nothing."""


class CallView(NamedTuple):
    """How a section shows a call: told of each change under the run's lock, and stored in one commit with it."""

    begun: Callable[[Call], object] = _nothing
    attempted: Callable[[int], object] = _nothing
    done: Callable[[Any, Any], object] = _nothing
    """Hears what is kept of the result, and what refers to it."""
    failed: Callable[[BaseException], object] = _nothing
    skipped: Callable[[Any], object] = _nothing
    """Hears what refers to the result that stands for it."""


class CallOptions(NamedTuple):
    """How a call is attended; none of it decides whether a kept result is valid."""

    retry: Retry = Retry()
    timeout_s: float | None = None
    effect: str | None = None
    on_unknown: OnUnknown | None = None
    on_interrupt: OnInterrupt | None = None
    """What becomes of files that it has half written when its process is killed; by default the settings decide."""
    wrote_files: bool | None = False
    store: Callable[[Any], Any] | None = None
    """Makes of a result what is kept of it."""
    version: Callable[[], str | None] | None = None
    """Returns the version of a result that other calls own, by theirs: it stays where none of them was done again."""
    phase: str | None = None
    is_container: bool = False
    """Whether its work is other calls, and nothing besides: what is saved in it then goes with theirs."""
    charged_to: str = ""
    """The agent whose call each attempt is, where budgets count it as one."""
    most: Mapping[str, Amount] | None = None
    """The most that one attempt may cost, where that is declared."""
    trigger: Trigger = Trigger.STEP_COMPLETE
    failure: Trigger = Trigger.STEP_COMPLETE
    view: CallView = CallView()
    reasons: Mapping[str, str] = MappingProxyType({})
    """What checkpoints say of its end, by event, where its path does not say it best."""


class _Held(NamedTuple):
    """What is reserved for an attempt, and what the call was charged before it."""

    hold: Hold
    before: dict[str, Amount]


class Call(NamedTuple):
    """A call, named and identified; `due` until it has ended."""

    kind: str
    name: str
    path: str
    identity: str
    input: str
    code: str
    options: CallOptions
    seen: Mapping[str, str]
    base: str
    """The path without its number."""
    counts: dict[str, int]
    """Where calls of this base that have ended are counted."""
    number: int = 1
    key: str = ""
    progress: Any = None
    before: CallRecord | None = None
    """The end that an earlier attempt had, of whatever identity."""
    spent: dict[str, Amount] = {}  # noqa: RUF012 - each call is given one of its own
    """What its attempts were charged so far, without the calls inside it."""
    held: list[_Held] = []  # noqa: RUF012 - as above
    """What is reserved in the budgets for its attempt that is under way."""
    again: str = ""
    """What made it due again, if something did."""
    is_unknown: bool = False
    """Whether it began in an earlier process and has no end."""

    @property
    def context(self) -> str:
        """What goes into the identity of the calls inside it: what it is, has seen, and was made due again by."""
        if not self.seen and not self.again:
            return self.identity
        return _identity(
            self.identity, "\0".join(f"{path}\0{self.seen[path]}" for path in sorted(self.seen)), self.again
        )


class Kept(NamedTuple):
    """A call that needs no work, with its result."""

    result: Any
    call: Call


class _Frame:
    """A call under way: what is called inside it has its path and identity in front of its own."""

    def __init__(self, call: Call, number: int) -> None:
        self.call = call
        self.number = number
        self.counts: dict[str, int] = {}


def current_step() -> StepContext | None:
    """Return the call that this code runs in, None outside of one."""
    frame = _running.get()
    if frame is None:
        return None
    return StepContext(frame.call.path, frame.call.key, frame.number, frame.call.progress)


def charge_call(amounts: Mapping[str, Amount]) -> None:
    """Note amounts as spent by the call that this code runs in; the budgets have them, too."""
    spent = _charged.get()
    if spent is not None:
        for name, amount in amounts.items():
            spent[name] = add(spent.get(name, 0), amount)


class Calls:
    """The calls of one run."""

    def __init__(self, host: Host, *, make_key: Callable[[], str], max_bytes: int) -> None:
        self._host = host
        self._make_key = make_key
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._turn = threading.RLock()
        self._counts: dict[str, int] = {}
        self._phase_of: dict[str, str | None] = {}
        self._active: set[str] = set()
        self._unstored: dict[str, tuple[Any, dict[str, Amount]]] = {}
        self.under_way: dict[str, int] = {}
        """The calls whose work runs at this moment, each with its start in nanoseconds."""
        self.policies: dict[str, OnInterrupt] = {}
        """What is to become of half-written files of those that say so."""
        self.told_policy: Callable[[], object] = _nothing
        """Called when one of them begins: a process that is killed the next moment has said it."""
        self.is_after_death = False
        """Whether an earlier process died in the run and no call has ended since: the next one may be what killed it,
        so starts are stored, and counted, whatever rests on them."""

    def record(self, path: str) -> dict[str, Any] | None:
        """Return the newest record of a call as plain data, None if it was never begun."""
        found = self._newest(path)
        return None if found is None else call_line(found[0], path, found[1], self._host, self._look_up)

    def version(self, path: str) -> str:
        """Return the version of a call's result; UsageError if it has none."""
        found = self._newest(path)
        if found is None or found[0] not in _SETTLED:
            raise UsageError(f"{path!r} has no result that another call could depend on: call it first")
        return found[1].version

    def last_end(self, path: str) -> str:
        """Return what tells the last result of a call from others, whatever failed since; empty if it has none."""
        found = self._newest(path)
        if found is None:
            return ""
        event, record = found
        return record.last_end if event in _NO_END else f"{record.version}@{record.at}"

    def kept(self, path: str) -> CallRecord | None:
        """Return the newest record of a call if that is an end with a result."""
        found = self._newest(path)
        return found[1] if found is not None and found[0] in _SETTLED else None

    def is_valid(self, kind: str, name: str, *, inputs: str, after: Mapping[str, str] | None = None) -> bool:
        """Tell whether a call that is made here would return what is kept of it."""
        frame, path = _running.get(), self.path_of(name)
        identity = _identity(kind, inputs, frame.call.context if frame is not None else "")
        found = self.kept(path)
        return found is not None and _why_outdated(found, identity, after or {}) is None

    def result(self, record: CallRecord) -> Any:
        """Return the result that a record keeps."""
        return self._result("", record)

    def outcome(self, path: str, *keys: str, value: Any = None) -> Any:
        """Return what refers to the newest result of a call, or to a part of it; the value where nothing is stored."""
        found = self.kept(path)
        return Outcome(path, found.version, keys) if found is not None and self._host.has_journal else value

    def shown(self, value: Any) -> Any:
        """Return a value with the results in place of what refers to them."""
        return resolved(value, self._look_up)

    def _look_up(self, path: str, version: str) -> Any:
        found = self._newest(path)
        return self._result(path, found[1]) if found is not None and found[1].version == version else None

    def path_of(self, name: str) -> str:
        """Return the path that a call of this name has, made here."""
        frame = _running.get()
        return f"{frame.call.path}/{name}" if frame is not None else name

    def unstored(self, path: str) -> Any:
        """Return a result that could not be stored; it is here until the run ends."""
        try:
            return self._unstored[path][0]
        except KeyError:
            raise UsageError(f"call {path!r} has no result that waits to be stored") from None

    def begin_attempt(self, phase: str) -> None:
        """Count the names of a phase from the first again: what comes next is a new attempt of the same work."""
        with self._lock:
            for name, owner in list(self._phase_of.items()):
                if owner == phase:
                    del self._phase_of[name]
                    self._counts.pop(name, None)

    def void(self, path: str) -> None:
        """Make a call due again with all that it calls, whatever came of it; stored with the next commit."""
        found = self._newest(path)
        if found is not None and found[0] != "voided":
            self._add("voided", path, msgspec.structs.replace(found[1], again=self._make_key()))

    def call(
        self,
        kind: str,
        name: str,
        work: Callable[[], T],
        options: CallOptions,
        *,
        inputs: str = "",
        code: str = "",
        after: Mapping[str, str] | None = None,
        is_numbered: bool = True,
    ) -> T:
        """Return the result of a call, kept or by doing it."""
        begun = self.begin(kind, name, options, inputs=inputs, code=code, after=after, is_numbered=is_numbered)
        if isinstance(begun, Kept):
            return begun.result  # type: ignore[no-any-return]
        watch = Stopwatch(self._host.monotonic)
        attempts = _Attempts(self, begun)
        try:
            result = attempt(
                partial(attempts.once, work),
                options.retry,
                self._host,
                timeout_s=options.timeout_s,
                name=begun.path,
                failed=attempts.failed,
            )
        except BaseException as error:
            self.fail(begun, error, attempts=attempts.number, duration_s=watch.took_s)
            raise
        return self.finish(begun, result, attempts=attempts.number, duration_s=watch.took_s)  # type: ignore[no-any-return]

    def begin(
        self,
        kind: str,
        name: str,
        options: CallOptions,
        *,
        inputs: str = "",
        code: str = "",
        after: Mapping[str, str] | None = None,
        is_numbered: bool = True,
        is_shared: bool = False,
    ) -> Kept | Call:
        """Decide whether a call is to be done; where something rests on its start, that is stored on return.

        A shared one stands by itself, wherever it is made, and several threads may wait for its end at once.
        """
        if kind not in _ASKED:
            check_name(kind, name)
        check_options(options)
        frame = None if is_shared else _running.get()
        base = f"{frame.call.path}/{name}" if frame is not None else name
        counts = frame.counts if frame is not None else self._counts
        identity = _identity(kind, inputs, frame.call.context if frame is not None else "")
        call = Call(kind, name, base, identity, inputs, code, options, after or {}, base, counts, spent={}, held=[])
        if not is_shared:
            call = self._enter(call, is_numbered=is_numbered)
        if frame is None:
            self._phase_of.setdefault(base, options.phase)
        try:
            return self._decide(call)
        except BaseException:
            self.release(call)
            raise

    def _enter(self, call: Call, *, is_numbered: bool) -> Call:
        """Return a call with its path; the same name once more in the same place is another call, by its number."""
        with self._lock:
            number = call.counts.get(call.base, 0) + 1 if is_numbered else 1
            path = call.base if number == 1 else f"{call.base}#{number}"
            if path in self._active:
                raise UsageError(
                    f"{call.kind} {path!r} is under way already: give calls that run at the same time names of their "
                    f"own, for example f'{call.name}-{{i}}'"
                )
            self._active.add(path)
        return call._replace(path=path, number=number)

    def _decide(self, call: Call) -> Kept | Call:
        found = self._newest(call.path)
        if call.path in self._unstored:
            result, spent = self._unstored[call.path]
            return Kept(self.finish(call._replace(spent=spent), result, attempts=1, duration_s=0.0), call)
        if found is not None:
            event, last = found
            call = call._replace(key=last.key, before=last, again=last.again)
            if event in ("started", "progress"):
                settled = self._settle_unknown(call, event, last)
                if isinstance(settled, Kept):
                    return settled
                call = settled._replace(is_unknown=True)
            elif event in _SETTLED:
                why = _why_outdated(last, call.identity, call.seen)
                if why is None:
                    self.leave(call)
                    return Kept(self._result(call.path, last), call)
                self._host.note("call outdated", call.path, why=why)
        self._host.check_open(f"{call.kind} {call.path!r} was not done")
        return self._start(call)

    def _start(self, call: Call) -> Call:
        """Show that it begins; store that first where something rests on it."""
        options = call.options
        is_needed = options.effect is not None or options.on_unknown in ("ask", "skip")
        if is_needed and not call.key:
            call = call._replace(key=self._make_key())
        with self._host.lock:
            options.view.begun(call)
            # That a question was asked is its start: another record would make it another question, of another id.
            if not is_needed and (not self.is_after_death or call.kind in _ASKED):
                return call
            attempts = call.before.attempts + 1 if call.is_unknown and call.before is not None else 1
            last_end = self.last_end(call.path)
            started = self._made(call, version=self._make_key(), attempts=attempts, last_end=last_end)
            ticket = self._add("started", call.path, started)
        try:
            self._store(call, "started", ticket, Trigger.STEP_COMPLETE, files=False, required=is_needed)
        except BaseException:
            self.withdraw(call)
            raise
        return call

    def withdraw(self, call: Call) -> None:
        """Take back that a call began, because it did not; stored with the next commit."""
        self.release(call)
        found = self._newest(call.path)
        if found is not None and found[0] == "started":
            self._add("withdrawn", call.path, found[1])

    def release(self, call: Call) -> None:
        """Let a call be made again under its path: its caller did not hear how it ended."""
        with self._lock:
            self._active.discard(call.path)
            call.counts[call.base] = call.number - 1

    def ask(self, call: Call, told: Any) -> int:
        """Record what is asked, unless this very question is open; return how often its path was asked about so far.

        What was asked about other work is another question: no answer to that one holds for this.
        """
        found = self._newest(call.path)
        if found is not None and found[0] == "asked" and _why_outdated(found[1], call.identity, call.seen) is None:
            return found[1].attempts
        number = found[1].attempts + 1 if found is not None else 1
        made = self._made(call, version=self._make_key(), attempts=number, result=self._packed(call, told))
        self._add("asked", call.path, made)
        return number

    def answer(self, path: str, reply: Any) -> None:
        """End an open question: the reply holds for the work that it was asked about, whatever that is by now."""
        found = self._newest(path)
        if found is None or found[0] != "asked":
            return
        asked, at = found[1], self._host.now().timestamp()
        packed = self._host.pack(reply, f"{asked.kind} {path}")
        took_s = max(0.0, at - asked.at)
        done = msgspec.structs.replace(asked, at=at, result=packed, version=self._make_key(), duration_s=took_s)
        self._add("done", path, done)

    def leave(self, call: Call) -> None:
        """Note that a call has ended well: the same name is the next one from now on."""
        with self._lock:
            self._active.discard(call.path)
            call.counts[call.base] = call.number

    def progress(self, call: Call, value: Any) -> None:
        """Keep what a long call has come to so far; its end takes the place of it."""
        made = self._made(call, result=self._packed(call, value), last_end=self.last_end(call.path))
        ticket = self._add("progress", call.path, made)
        self._store(call, "progress", ticket, Trigger.STEP_COMPLETE, files=False)

    def begin_retry(self, call: Call, number: int, error: Exception, pause_s: float) -> None:
        """Reserve another attempt in the run's budgets, after this one failed."""
        self._host.begin_retry()
        told = f"{type(error).__name__}: {error}"
        self._host.note("retry", call.path, attempt=number, error=told, pause_s=pause_s)

    def finish(self, call: Call, result: Any, *, attempts: int, duration_s: float) -> Any:
        """Keep a call's result; what is returned is the result itself, not what is stored of it."""
        options = call.options
        try:
            kept = options.store(result) if options.store is not None else result
            packed = self._packed(call, kept)
            refers = options.store is not None and refers_to_results(kept)
        except Exception as error:
            self._unstored[call.path] = result, call.spent  # the work is done: the next call only stores it
            self.release(call)
            with self._host.lock:
                self._settle(call)
                options.view.failed(error)
            if options.view.failed is not _nothing:
                self._host.save(options.failure, reason_of(f"{call.path} cannot be stored: {error}"))
            if not isinstance(error, ValueRefused):
                raise
            raise ValueRefused(
                f"{error.detail}. The work is done and its result is kept in memory until the run ends: call it again "
                "with store=..., a function that makes plain data of it",
                error.path,
            ) from error
        version = (options.version() if options.version is not None else None) or self._next_version(call, packed)
        with self._host.lock:
            if options.view.done is not _nothing:
                said = self._unpacked(call.path, packed, refers=refers)  # nobody else can change it
                with _charging(call):
                    options.view.done(said, Outcome(call.path, version) if self._host.has_journal else said)
            self._settle(call)
            made = self._made(
                call, result=packed, version=version, attempts=attempts, duration_s=duration_s, refers=refers
            )
            ticket = self._add("done", call.path, made)
        self.is_after_death = False
        self._unstored.pop(call.path, None)
        try:
            self._store(call, "done", ticket, options.trigger, files=options.wrote_files)
        finally:
            self.leave(call)
        return result

    def fail(self, call: Call, error: BaseException, *, attempts: int, duration_s: float) -> None:
        """Record that a call failed: it is done again when next called. What ends this process is not a failure."""
        self.release(call)
        if is_interruption(error):
            self._settle(call, error)
            return
        options = call.options
        self.is_after_death = False
        told = self._told(error, call.path)
        last_end = self.last_end(call.path)  # this is none
        made = self._made(call, error=told, last_end=last_end, attempts=attempts, duration_s=duration_s)
        with self._host.lock:
            options.view.failed(error)
            self._settle(call, error)
            ticket = self._add("failed", call.path, made)
        why = failure_of(error).message
        self._store(call, "failed", ticket, options.failure, files=options.wrote_files, why=why)

    def skip(self, call: Call, result: Any) -> Kept:
        """Record that a call is left out, with this result."""
        made = self._made(call, result=self._packed(call, result), version=self._make_key())
        with self._host.lock:
            call.options.view.skipped(Outcome(call.path, made.version) if self._host.has_journal else result)
            ticket = self._add("skipped", call.path, made)
        self._store(call, "skipped", ticket, Trigger.STEP_COMPLETE, files=False)
        self.leave(call)
        return Kept(result, call)

    def mark(
        self,
        event: str,
        kind: str,
        path: str,
        *,
        phase: str | None = None,
        attempts: int = 1,
        duration_s: float = 0.0,
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Record how a container stands, or that something was decided; stored with the next commit.

        A container is entered whatever came of it, and what is called in it is kept by itself.
        """
        found = self._newest(path)
        made = CallRecord(
            kind=kind,
            at=self._host.now().timestamp(),
            identity=_identity(kind, "", ""),
            version=self._make_key(),
            phase=phase,
            attempts=attempts,
            duration_s=duration_s,
            result=self._host.pack(result, f"{kind} {path}") if event == "done" else None,
            error=None if error is None else self._told(error, path),
            again=found[1].again if found is not None else "",
        )
        self._add(event, path, made)

    def _told(self, error: BaseException, path: str) -> bytes:
        failure = failure_of(error)
        told = {"message": failure.message, "code": failure.code, "stack": failure.stack}
        return self._host.pack(told, f"call {path}")

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let what is called in here stand by itself: not inside the call that this code runs in."""
        token = _running.set(None)
        try:
            yield
        finally:
            _running.reset(token)

    def adopt(self, kind: str, path: str, result: Any, *, inputs: str, of: CallRecord) -> None:
        """Record as done what was done under another path; stored with the next commit."""
        packed = self._host.pack(result, f"{kind} {path}")
        identity, at = _identity(kind, inputs, ""), self._host.now().timestamp()
        self._add(
            "done",
            path,
            msgspec.structs.replace(of, kind=kind, at=at, identity=identity, input=inputs, result=packed, refers=False),
        )

    def inside(self, call: Call, number: int) -> AbstractContextManager[None]:
        """Let the code of a call know what it is."""
        return _Inside(self, call, number)

    def _settle(self, call: Call, error: BaseException | None = None) -> None:
        """Give back what was reserved for an attempt that is over; one that was cut off is charged with it."""
        while call.held:
            held = call.held.pop()
            spent = {name: subtract(amount, held.before.get(name, 0)) for name, amount in call.spent.items()}
            is_known = error is None or not is_cut_off(error)
            self._host.end_call(call.options.charged_to, held.hold, spent, is_known=is_known)

    def _settle_unknown(self, call: Call, event: str, last: CallRecord) -> Kept | Call:
        """Decide on a call that began and has no end, whatever its inputs are now."""
        choice: str = call.options.on_unknown or last.on_unknown or ("ask" if last.effect else "retry")
        if event == "progress":
            call = call._replace(progress=self._result(call.path, last))
        effect = call.options.effect or last.effect or call.path
        reply = None
        if choice == "ask":
            reply = self._host.wait_for(
                Wait(
                    id=f"{call.kind}:{call.path}:{last.version or last.at}",  # another start is another question
                    kind="uncertain",
                    question=f"{call.kind} {call.path} began and has no recorded end: did it happen ({effect})?",
                    options=("retry", "skip", "stop"),
                )
            )
            choice = reply.choice
        self._host.note("unknown outcome", call.path, choice=choice, by=reply.by if reply else "")
        if choice == "stop":
            call = call._replace(key=last.key)
            version = self._make_key()
            again = self._made(call, on_unknown="ask", effect=last.effect, version=version, last_end=last.last_end)
            self._store(call, "started", self._add("started", call.path, again), Trigger.STEP_COMPLETE, files=False)
            raise EffectUncertain(self._host.id, call.path, effect)
        if choice == "skip":
            return self.skip(call._replace(key=last.key), reply.value if reply else None)
        return call

    def _packed(self, call: Call, value: Any) -> bytes:
        packed: bytes = self._host.pack(value, f"{call.kind} {call.path}")
        if len(packed) > self._max_bytes:
            raise ValueRefused(
                f"{len(packed):,} bytes are over max_section_bytes={self._max_bytes:,}", f"{call.kind} {call.path}"
            )
        return packed

    def _result(self, path: str, record: CallRecord) -> Any:
        return self._unpacked(path, record.result, refers=record.refers)

    def _unpacked(self, path: str, packed: bytes | None, *, refers: bool) -> Any:
        if packed is None:
            return None
        result = self._host.unpack(packed, f"call {path}")
        return self.shown(result) if refers else result

    def _next_version(self, call: Call, packed: bytes) -> str:
        """Return the version that stays where the same result came of it and no files can differ, else a new one."""
        before = call.before
        is_same = before is not None and before.version and before.result == packed
        return before.version if is_same and call.options.wrote_files is False else self._make_key()  # type: ignore[union-attr]

    def _made(self, call: Call, **fields: Any) -> CallRecord:
        options = call.options
        fields.setdefault("effect", options.effect)
        fields.setdefault("on_unknown", options.on_unknown)
        return CallRecord(
            kind=call.kind, at=self._host.now().timestamp(), identity=call.identity, input=call.input, code=call.code,
            seen=dict(call.seen), key=call.key, phase=options.phase, again=call.again,
            spent={name: stored(amount) for name, amount in call.spent.items()} if call.spent else {}, **fields,
        )  # fmt: skip

    def _newest(self, path: str) -> tuple[str, CallRecord] | None:
        found = self._host.find_record(stored_path(path))
        return None if found is None else (found[0], decode_call(found[1], path))

    def _add(self, event: str, path: str, record: CallRecord) -> int:
        return self._host.add_record(event, stored_path(path), encode_call(record))

    def _store(
        self,
        call: Call,
        event: str,
        ticket: int,
        trigger: Trigger,
        *,
        files: bool | None,
        why: str = "",
        required: bool = False,
    ) -> None:
        """Return when a record is stored; records of other threads go with the same commit."""
        what = call.path if ":" in call.name else f"{call.kind} {call.path}"
        said = call.options.reasons.get(event) or f"{what} {event}"
        reason = reason_of(said + (f": {why}" if why else ""))
        host, phase = self._host, call.options.phase
        if host.lock.is_mine():  # to wait for one's turn inside the run's lock would be for ever
            host.save(trigger, reason, phase=phase, files=files, required=required)
            return
        with self._turn:
            if host.records_stored < ticket or files or trigger is not Trigger.STEP_COMPLETE:
                host.save(trigger, reason, phase=phase, files=files, required=required)


class _Inside:
    """A call's work under way; a class, since a generator costs three times as much in every call."""

    __slots__ = ("_call", "_calls", "_charge", "_frame", "_number")

    def __init__(self, calls: Calls, call: Call, number: int) -> None:
        self._calls, self._call, self._number = calls, call, number

    def __enter__(self) -> None:
        calls, call = self._calls, self._call
        self._frame = _running.set(_Frame(call, self._number))
        self._charge = _charged.set(call.spent)
        calls.under_way[call.path] = time.time_ns()
        if call.options.on_interrupt is not None:
            calls.policies[call.path] = call.options.on_interrupt
            calls.told_policy()

    def __exit__(self, *_error: object) -> None:
        path = self._call.path
        self._calls.under_way.pop(path, None)
        self._calls.policies.pop(path, None)
        _charged.reset(self._charge)
        _running.reset(self._frame)


class _Attempts:
    """Counts the attempts of one call."""

    def __init__(self, calls: Calls, call: Call) -> None:
        self._calls = calls
        self._call = call
        self.number = 0

    def once(self, work: Callable[[], T]) -> T:
        calls, call = self._calls, self._call
        host, options = calls._host, call.options  # noqa: SLF001 - one thing in two classes
        if options.charged_to:
            call.held.append(_Held(host.begin_call(options.charged_to, options.most), dict(call.spent)))
        self.number += 1
        if options.view.attempted is not _nothing:
            with host.lock:
                options.view.attempted(self.number)
        with nullcontext() if options.is_container else host.ungrouped(), calls.inside(call, self.number):
            returned = work()
            if inspect.isgenerator(returned):
                return self._drained(returned)  # type: ignore[no-any-return]
            return result_of(returned, f"{call.kind} {call.path!r}")  # type: ignore[no-any-return]

    def _drained(self, generator: Any) -> Any:
        """Return what a generator returns; each value that it yields is progress."""
        while True:
            try:
                value = next(generator)
            except StopIteration as end:
                return end.value
            self._calls.progress(self._call, value)

    def failed(self, number: int, error: Exception, pause_s: float | None) -> None:
        if pause_s is not None:
            self._calls._settle(self._call, error)  # noqa: SLF001 - one thing in two classes
            self._calls.begin_retry(self._call, number, error, pause_s)


@contextmanager
def _charging(call: Call) -> Iterator[None]:
    """Let what is spent in here be this call's."""
    token = _charged.set(call.spent)
    try:
        yield
    finally:
        _charged.reset(token)


def _why_outdated(kept: CallRecord, identity: str, seen: Mapping[str, str]) -> str | None:
    """Return why a kept result is not valid, None if it is."""
    if kept.identity and kept.identity != identity:
        return "its inputs changed"
    for path, version in seen.items():
        if kept.seen.get(path) != version:
            return "files changed" if path == "files" else f"{path} has another result"
    return None


def _identity(kind: str, inputs: str, outer: str) -> str:
    return blake3(f"{kind}\0{inputs}\0{outer}".encode()).hexdigest(16)


def check_name(kind: str, name: object) -> None:
    """Raise UsageError unless a call may be named so."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        article = "an" if kind[:1] in "aeiou" else "a"
        raise UsageError(
            f"{name!r:.80} is not a valid name for {article} {kind}: use 1 to {_LONGEST_NAME} printable characters"
        )


def check_options(options: CallOptions) -> None:
    """Raise UsageError unless these can be followed."""
    if options.on_unknown not in (None, "retry", "skip", "ask"):
        raise UsageError(f"on_unknown={options.on_unknown!r}: use 'retry', 'skip' or 'ask'")
    if options.on_interrupt not in (None, "keep", "roll_back", "ask"):
        raise UsageError(f"on_interrupt={options.on_interrupt!r}: use 'keep', 'roll_back' or 'ask'")
    check_retry(options.retry, options.timeout_s)
