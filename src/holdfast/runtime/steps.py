"""Steps: pieces of work whose results are kept, so that none is done, or paid for, twice.

A step with an outside effect is recorded before it begins; should its end be missing after a crash, its outcome is
unknown, and it is retried, skipped or asked about as it declares.
"""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from holdfast.errors import Divergence, EffectUncertain, UsageError, ValueRefused
from holdfast.model.runtime_sections import Wait
from holdfast.model.triggers import Trigger
from holdfast.runtime.attempt import Retry, attempt, check_retry, failure_of
from holdfast.runtime.awaited import result_of
from holdfast.runtime.keep import kept
from holdfast.runtime.leaving import is_leaving
from holdfast.runtime.log import Log
from holdfast.runtime.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.runtime.host import Host

T = TypeVar("T")
OnUnknown = Literal["retry", "skip", "ask"]

_LONGEST_NAME = 200
_running: ContextVar[StepContext | None] = ContextVar("holdfast_step", default=None)


class StepContext(NamedTuple):
    """What a function may know of the step that it is."""

    name: str
    key: str
    """The same in every try of this step: hand it to services that take an idempotency key."""
    attempt: int


def current_step() -> StepContext | None:
    """Return the step that this code runs in, None outside of one."""
    return _running.get()


class StepOptions(NamedTuple):
    """How a step is carried out."""

    retry: Retry = Retry()
    timeout_s: float | None = None
    effect: str | None = None
    on_unknown: OnUnknown | None = None
    wrote_files: bool = False
    store: Callable[[Any], Any] | None = None
    """Makes of a result what is stored, and what a later life of the run gets."""
    phase: str | None = None


class Kept(NamedTuple):
    """A step that is done already, with its result."""

    result: Any


class Due(NamedTuple):
    """A step that is to be done now."""

    name: str
    input: str
    code: str
    key: str
    options: StepOptions


class Steps:
    """The steps of one run."""

    def __init__(
        self,
        host: Host,
        *,
        pack: Callable[[Any, str], bytes],
        unpack: Callable[[bytes, str], Any],
        make_key: Callable[[], str],
        max_bytes: int,
    ) -> None:
        self._host = host
        self._pack = pack
        self._unpack = unpack
        self._make_key = make_key
        self._max_bytes = max_bytes
        self.log = Log("steps")
        self._last: dict[str, dict[str, Any]] = {}
        self._used: dict[str, str | None] = {}  # in this life of the run, with the phase
        self._unstored: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._turn = threading.RLock()
        self._saved = 0

    def load(self) -> None:
        """Learn from the log what is done."""
        self._last = {record["step"]: record for record in self.log.records()}
        self._saved = len(self.log)

    def names(self) -> list[str]:
        """Return every step that was begun, in the order of their last records."""
        return list(self._last)

    def record(self, name: str) -> Mapping[str, Any] | None:
        """Return the last record of a step, None if it was never begun."""
        return self._last.get(name)

    def unstored(self, name: str) -> Any:
        """Return a result that could not be stored; it is here until the run ends."""
        try:
            return self._unstored[name]
        except KeyError:
            raise UsageError(f"step {name!r} has no result that waits to be stored") from None

    def begin_attempt(self, phase: str) -> None:
        """Let the names of a phase be used again: what comes next is a new try of the same work."""
        with self._lock:
            self._used = {name: of for name, of in self._used.items() if of != phase}

    def run(self, name: str, call: Callable[..., T], *args: Any, options: StepOptions, **named: Any) -> T:
        """Return the result of a step, from the record or by doing it."""
        begun = self.begin(name, call, args, named, options)
        if isinstance(begun, Kept):
            return begun.result  # type: ignore[no-any-return]
        work = partial(call, *args, **named)
        watch = Stopwatch(self._host.monotonic)
        tries = _Tries(self, begun)
        try:
            result = attempt(
                partial(tries.call, call, work),
                options.retry,
                self._host,
                timeout_s=options.timeout_s,
                name=name,
                failed=tries.failed,
            )
        except BaseException as error:
            self.fail(begun, error, attempts=tries.number, duration_s=watch.took_s)
            raise
        return self.finish(begun, result, attempts=tries.number, duration_s=watch.took_s)  # type: ignore[no-any-return]

    def begin(
        self, name: str, call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], options: StepOptions
    ) -> Kept | Due:
        """Find out whether a step is to be done; if it has an effect, that it begins is stored before this returns."""
        _check(name, call, options)
        if isinstance(call, partial):
            args, named, call = (*call.args, *args), {**call.keywords, **named}, call.func
        given, code = self._digest(name, args, named), _code_of(call)
        with self._lock:
            if name in self._used:
                raise UsageError(
                    f"step {name!r} was done in this run of the program already: give each step its own name, for "
                    f"example f'{name}-{{i}}'"
                )
            self._used[name] = options.phase
            last = self._last.get(name)
        if name in self._unstored:
            due = Due(name, given, code, "", options)
            return Kept(self.finish(due, self._unstored[name], attempts=1, duration_s=0.0))
        key = last.get("idempotency", "") if last else ""
        if last is not None:
            self._check_same(name, last, given, code)
            if last["event"] in ("done", "skipped"):
                return Kept(kept(last.get("result")))  # the caller may change it, the record must not
            if last["event"] == "started":
                settled = self._settle_unknown(name, last, options)
                if settled is not None:
                    return settled
        if options.effect is None and options.on_unknown is None:
            return Due(name, given, code, key, options)
        due = Due(name, given, code, key or self._make_key(), options)
        on_unknown = options.on_unknown or "ask"
        try:
            self._settle(due, {"event": "started", "on_unknown": on_unknown})
        except BaseException:
            self.withdraw(due)
            raise
        return due

    def withdraw(self, due: Due) -> None:
        """Take back that a step began, because it did not; stored with the next checkpoint."""
        self.release(due.name)
        with self._lock:
            is_begun = self._last.get(due.name, {}).get("event") == "started"
        if is_begun:
            self._add(due, {"event": "withdrawn"})

    def release(self, name: str) -> None:
        """Let a name be used again in this life: its caller did not hear how it ended."""
        with self._lock:
            self._used.pop(name, None)

    def finish(self, due: Due, result: Any, *, attempts: int, duration_s: float) -> Any:
        """Keep a step's result; what is returned is the result itself, not what is stored of it."""
        try:
            stored = due.options.store(result) if due.options.store is not None else result
        except Exception:
            self._unstored[due.name] = result  # the work is done: the next call only stores it
            self.release(due.name)
            raise
        try:
            self._settle(due, {"event": "done", "result": stored, "attempts": attempts, "duration_s": duration_s})
        except ValueRefused as error:
            self._unstored[due.name] = result
            self.release(due.name)
            raise ValueRefused(
                f"{error.detail}. The step's work is done and its result is kept in memory until the run ends: call "
                "the step again with store=..., a function that makes plain data of it",
                error.path,
            ) from error
        self._unstored.pop(due.name, None)
        return result

    def fail(self, due: Due, error: BaseException, *, attempts: int, duration_s: float) -> None:
        """Record that a step failed; a later life of the run does it again. What ends this life is no failure."""
        with self._lock:
            self._used.pop(due.name, None)
        if is_leaving(error):
            return
        failure = failure_of(error)
        told = {"message": failure.message, "code": failure.code, "stack": failure.stack}
        self._settle(due, {"event": "failed", "error": told, "attempts": attempts, "duration_s": duration_s})

    @contextmanager
    def inside(self, due: Due, number: int) -> Iterator[None]:
        """Let the code of a step know what it is."""
        token = _running.set(StepContext(due.name, due.key, number))
        try:
            yield
        finally:
            _running.reset(token)

    def _settle(self, due: Due, outcome: dict[str, Any]) -> None:
        """Add a record and return when it is stored; records of other threads go with the same checkpoint."""
        number = self._add(due, outcome)
        if self._host.lock.is_mine():
            self._save(due, outcome["event"])  # to wait for one's turn inside the run's lock would be for ever
            return
        with self._turn:
            if self._saved < number:
                self._save(due, outcome["event"])

    def _add(self, due: Due, outcome: dict[str, Any]) -> int:
        """Add a record to the log and return how many there are."""
        options = due.options
        details = {"idempotency": due.key, "effect": options.effect, "phase": options.phase}
        record = {
            "step": due.name,
            "at": self._host.now(),
            "input": due.input,
            "code": due.code,
            **{name: value for name, value in details.items() if value},
            **outcome,
        }
        packed = self._pack(record, f"step {due.name}")  # finds what cannot be stored before it is in the log
        if len(packed) > self._max_bytes:
            raise ValueRefused(
                f"{len(packed):,} bytes are over max_section_bytes={self._max_bytes:,}", f"step {due.name}"
            )
        record = self._unpack(packed, "steps")  # the caller may change its result, the record must not
        number = self.log.add(record, len(packed))
        with self._lock:
            self._last[due.name] = record
        return number

    def _save(self, due: Due, event: str) -> None:
        length = len(self.log)
        options = due.options
        is_saved = self._host.save(
            Trigger.STEP_COMPLETE,
            f"step {due.name} {event}",
            phase=options.phase,
            files=options.wrote_files and event != "started",
        )
        if is_saved:
            self._saved = max(self._saved, length)

    def _check_same(self, name: str, last: Mapping[str, Any], given: str, code: str) -> None:
        if last["code"] != code:
            raise Divergence(self._host.id, name, f"a step by {last['code']}", code)
        if last["input"] != given:
            raise Divergence(self._host.id, name, "a step with other arguments", f"{code} with new ones")

    def _settle_unknown(self, name: str, last: Mapping[str, Any], options: StepOptions) -> Kept | None:
        """Decide on a step that began and has no end; None is to do it again."""
        choice = options.on_unknown or last.get("on_unknown", "ask")
        reply = None
        if choice == "ask":
            effect = options.effect or last.get("effect") or name
            reply = self._host.wait_for(
                Wait(
                    id=f"step:{name}:{last['at'].isoformat()}",  # another start is another question
                    kind="uncertain",
                    question=f"step {name} began and has no recorded end: did it happen ({effect})?",
                    options=("retry", "skip", "stop"),
                )
            )
            choice = reply.choice
        self._host.note("unknown outcome", name, choice=choice, by=reply.by if reply else "")
        if choice == "stop":
            begun = Due(name, last["input"], last["code"], last.get("idempotency", ""), options)
            self._settle(begun, {"event": "started", "on_unknown": "ask"})  # so that the next life asks anew
            raise EffectUncertain(self._host.id, name, options.effect or "its effect")
        if choice == "skip":
            due = Due(name, last["input"], last["code"], last.get("idempotency", ""), options)
            self._settle(due, {"event": "skipped", "result": reply.value if reply else None})
            return Kept(reply.value if reply else None)
        return None

    def _digest(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> str:
        return _digest(self._pack, name, args, named)


def step_identity(
    pack: Callable[[Any, str], bytes], name: str, call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[str, str]:
    """Return what a step's record says of its arguments and its function."""
    if isinstance(call, partial):
        args, named, call = (*call.args, *args), {**call.keywords, **named}, call.func
    return _digest(pack, name, args, named), _code_of(call)


def _digest(pack: Callable[[Any, str], bytes], name: str, args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Return a name of the arguments; one that cannot be stored stands for all of its type."""
    from blake3 import blake3  # noqa: PLC0415 - loaded by the first step, not by the import

    parts = blake3()
    for key, value in (*enumerate(args), *sorted(named.items())):
        try:
            packed = pack(value, name)
        except (ValueRefused, UsageError):
            packed = f"{type(value).__module__}.{type(value).__qualname__}".encode()
        parts.update(f"{key}:{len(packed)}:".encode() + packed)
    return parts.hexdigest(16)


class _Tries:
    """Counts the tries of one step."""

    def __init__(self, steps: Steps, due: Due) -> None:
        self._steps = steps
        self._due = due
        self.number = 0

    def call(self, call: Callable[..., T], work: Callable[[], T]) -> T:
        self.number += 1
        with self._steps.inside(self._due, self.number):
            if self._due.options.effect is not None and takes_key(call):
                work = partial(work, idempotency_key=self._due.key)  # type: ignore[call-arg]
            return result_of(work(), f"step {self._due.name!r}")  # type: ignore[no-any-return]

    def failed(self, number: int, error: Exception, pause_s: float | None) -> None:
        if pause_s is not None:
            self._steps._host.note(  # noqa: SLF001 - one thing in two classes
                "retry", self._due.name, attempt=number, error=f"{type(error).__name__}: {error}", pause_s=pause_s
            )


def takes_key(call: Callable[..., Any]) -> bool:
    """Tell whether a function asks for the step's key by the name `idempotency_key`."""
    try:
        return "idempotency_key" in inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False


def _check(name: str, call: object, options: StepOptions) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise UsageError(f"{name!r:.80} is no name for a step: use 1 to {_LONGEST_NAME} printable characters")
    if not callable(call):
        raise UsageError(f"step {name!r}: {call!r:.80} cannot be called: give a function, and its arguments after it")
    if options.on_unknown not in (None, "retry", "skip", "ask"):
        raise UsageError(f"on_unknown={options.on_unknown!r}: use 'retry', 'skip' or 'ask'")
    check_retry(options.retry, options.timeout_s)


def bare(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside partials."""
    while isinstance(call, partial):
        call = call.func
    return call


def _code_of(call: Callable[..., Any]) -> str:
    """Return which function it is, by name: mending its body, or moving it, does not make it another one."""
    function = bare(call)
    owner = function if hasattr(function, "__qualname__") else type(function)
    name = str(owner.__qualname__).rpartition("<locals>.")[2]
    return "<lambda>" if name.endswith("<lambda>") else name
