"""AsyncHoldfast: the same store for asyncio code, one thread hop a call.

SQLite, disk, hashing and compression have no asynchronous form, so every call runs on a thread, and coroutine functions
that it is given run on the caller's loop; only the step runner has a body of its own here. A cancelled caller does not
stop what was begun: a record is stored whole, or not at all.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from holdfast import engine
from holdfast.errors import StepTimeout, UsageError
from holdfast.runtime.calls import Call, Kept
from holdfast.runtime.coroutines import call_home
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.steps import bare, prepared, step_options
from holdfast.runtime.wait_limit import watch_for
from holdfast.runtime.waits import Pause, approval, signal_wait, time_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from holdfast.aio_methods import HoldfastMethods, RunMethods
    from holdfast.engine import Holdfast
    from holdfast.model.runtime_sections import Reply
    from holdfast.run import Run
    from holdfast.runtime.calls import Calls
    from holdfast.runtime.waits import Question, Steps
else:
    HoldfastMethods = RunMethods = object

T = TypeVar("T")

_IDLE_S = 1.0


class _Threads:
    """Threads for calls that block: as many as there are calls, for one may wait for another; idle ones end.

    Not the loop's own, which are few.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, call: Callable[[], T]) -> futures.Future[T]:
        future: futures.Future[T] = futures.Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - handed to who awaits it
                    future.set_exception(error)

        with self._lock:
            is_taken = self._idle > 0
            self._idle -= is_taken
            if is_taken:
                self._work.put(work)
        if not is_taken:
            threading.Thread(target=self._run, args=(work,), name="holdfast-aio", daemon=True).start()
        return future

    def _run(self, work: Callable[[], object] | None) -> None:
        while work is not None:
            work()
            work = None  # what it holds must not outlive it
            with self._lock:
                self._idle += 1
            work = self._next()

    def _next(self) -> Callable[[], object] | None:
        try:
            return self._work.get(timeout=_IDLE_S)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    return None
        return self._work.get()  # somebody counted on this thread meanwhile


_THREADS = _Threads()
_HELD = frozenset({"settings", "store", "internals"})
_RUN_VALUES = frozenset({"id", "lock", "head", "protection", "triggers"})
_RUN_PARTS = frozenset(
    {"status", "calls", "phases", "agents", "context", "knowledge", "mailbox", "team", "subject", "budget",
     "gates"}
)  # fmt: skip
_RUN_MAKES = frozenset({"phase", "declare_phases", "graph", "machine", "destructive"})  # each returns a part or block
_PARTS = (
    "holdfast.runtime.",
    "holdfast.control",
    "holdfast.recovery.facade",
    "holdfast.transfer.facade",
    "holdfast.engine",
)
AWAITED: dict[str, frozenset[str]] = {
    "Agents": frozenset({"call", "skip"}),
    "Control": frozenset({"waiting", "answer", "signal", "pause", "unpause", "cancel", "raise_budget", "set_limits"}),
    "Recovery": frozenset({"status", "points", "recover_all", "start_fresh", "lineage", "savings"}),
    "RunHistory": frozenset({"history", "blame", "bisect", "patch"}),
    "Transfer": frozenset({"copy_to", "export", "import_from"}),
    "Keys": frozenset({"ids", "add", "remove"}),
    "Phases": frozenset({"begin", "complete", "fail", "skip", "retry", "replan", "add_artifact"}),
    "Phase": frozenset({"call", "add_artifact"}),
    "StateMachine": frozenset({"to", "request", "advance", "reset"}),
    "TaskGraph": frozenset({"run"}),
    "Gates": frozenset(),
    "GatedTask": frozenset({"run"}),
    "Budget": frozenset({"spend", "reserve", "check"}),
    "Mailbox": frozenset({"ack", "answer", "await_answer"}),
    "Conflicts": frozenset({"start"}),
    "Conflict": frozenset({"position", "resolve", "debate"}),
    "Knowledge": frozenset({"flush"}),
    "Context": frozenset({"add_artifact", "check"}),
}
"""The methods of each part that store, wait, read files or call functions they were given."""


async def settled(call: Callable[..., T], /, *args: Any, **named: Any) -> T:
    """Return what a call returns, made on a thread; if the caller is cancelled, the call is let to finish first."""
    context, gone = contextvars.copy_context(), threading.Event()
    loop = asyncio.get_running_loop()
    context.run(watch_for, gone)
    context.run(call_home, loop)
    task = asyncio.wrap_future(_THREADS.submit(partial(context.run, call, *args, **named)), loop=loop)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        gone.set()  # what waits for a person or a time ends; what stores a record does not look
        while not task.done():
            try:
                await asyncio.shield(asyncio.wait([task]))
            except asyncio.CancelledError:
                continue  # cancelled once more: the record still comes first
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what the caller hears of
        raise


class AsyncHoldfast(HoldfastMethods):
    """A store of runs; its methods are those of `Holdfast`, awaited."""

    def __init__(self, holdfast: Holdfast) -> None:
        self.sync = holdfast
        """The same store for synchronous code."""

    if not TYPE_CHECKING:  # a type checker reads aio_methods.pyi

        @classmethod
        async def open(cls, *args: Any, **options: Any) -> Self:
            """Open a store as `holdfast.open` does."""
            return cls(await settled(engine.open, *args, **options))

        async def run(self, run: str, **options: Any) -> AsyncRun:
            """Open a run as `Holdfast.run` does."""
            return AsyncRun(await settled(self.sync.run, run, **options))

        def __getattr__(self, name: str) -> Any:
            """Return a method of the synchronous class that is awaited, or one of its values."""
            found = getattr(self.sync, name)
            return _for_asyncio(found) if name in _HELD or not callable(found) else partial(settled, found)

    async def close(self) -> None:
        """Close open runs and the store; closing twice is fine."""
        await settled(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Block:
    """A `with` block for `async with`: entered and left on a thread."""

    sync: Any

    async def __aenter__(self) -> Any:
        entered: list[Any] = []
        try:
            await settled(lambda: entered.append(self.sync.__enter__()))
        except asyncio.CancelledError as error:
            if entered:  # nobody else would leave it
                await settled(self.sync.__exit__, type(error), error, error.__traceback__)
            raise
        return self if entered[0] is self.sync else entered[0]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        is_handled: bool | None = await settled(self.sync.__exit__, kind, error, trace)
        return is_handled


class AsyncPart(_Block):
    """A part of a run for asyncio code: what stores, waits or calls your functions is awaited, the rest is as it is."""

    def __init__(self, part: Any) -> None:
        self.__dict__["sync"] = part

    def __getattr__(self, name: str) -> Any:
        """Return a method, awaited if it is one of those that are, or a value."""
        found = getattr(self.sync, name)
        if name in AWAITED.get(type(self.sync).__name__, ()):
            return partial(_awaited, found)
        return partial(_called, found) if inspect.ismethod(found) else _for_asyncio(found)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.sync, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self.sync[key]

    def __repr__(self) -> str:
        return f"<AsyncPart {self.sync!r}>"


def _for_asyncio(found: Any) -> Any:
    """Return a part or a `with` block in its form for asyncio code, anything else as it is."""
    kind = type(found)
    is_part = kind.__name__ in AWAITED and kind.__module__.startswith(_PARTS)
    return AsyncPart(found) if is_part or isinstance(found, AbstractContextManager) else found


async def _awaited(call: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    return _for_asyncio(await settled(call, *args, **named))


def _called(call: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    return _for_asyncio(call(*args, **named))


class AsyncRun(_Block, RunMethods):
    """A run for asyncio code: `async with await hf.run("r") as run: await run.step("plan", ask, goal)`."""

    def __init__(self, run: Run) -> None:
        self.sync = run
        """The same run for synchronous code."""

    async def step(
        self,
        name: str,
        call: Callable[..., Awaitable[T]] | Callable[..., T],
        /,
        *args: Any,
        retries: int = 0,
        backoff: float = 1.0,
        retry_on: Any = None,
        timeout_s: float | None = None,
        effect: str | bool | None = None,
        on_unknown: Any = None,
        on_interrupt: Any = None,
        wrote_files: bool = False,
        store: Callable[[Any], Any] | None = None,
        version: str = "",
        after: Sequence[str] = (),
        **named: Any,
    ) -> T:
        """Do a piece of work once, as `Run.step` does; a coroutine function is awaited here, another is called aside.

        Cancelled while it works, a step is not done; cancelled while its result is stored, it is.
        """
        run = self.sync
        run.host.check_open(f"step {name!r} was not done")
        options = step_options(
            retries=retries,
            backoff=backoff,
            retry_on=retry_on,
            timeout_s=timeout_s,
            effect=effect,
            on_unknown=on_unknown,
            on_interrupt=on_interrupt,
            wrote_files=wrote_files,
            store=store,
            phase=run.host.current_phase,
        )
        has_key = options.effect is not None
        step = await settled(prepared, run.host, name, call, args, named, version=version, after=after, has_key=has_key)
        begun = await _begun(run.host.calls, "step", name, options, **step.identity)
        if isinstance(begun, Kept):
            return begun.result  # type: ignore[no-any-return]
        done: T = await self._done(begun, step.work)
        return done

    async def approve(
        self,
        question: str,
        *,
        options: Sequence[str] = ("approve", "reject"),
        name: str | None = None,
        until: datetime | None = None,
        after: Sequence[str] = (),
        **details: Any,
    ) -> Reply:
        """Wait for a person's decision, as `Run.approve` does; no thread waits with it."""
        host = self.sync.host
        asked = await settled(
            approval, host, question, options=options, name=name, until=until, after=after, phase=host.current_phase,
            **details,
        )  # fmt: skip
        return await self._waited(asked)

    async def wait_signal(self, name: str, *, until: datetime | None = None) -> Reply:
        """Wait for a named signal, as `Run.wait_signal` does; no thread waits with it."""
        return await self._waited(signal_wait(name, until=until, phase=self.sync.host.current_phase))

    async def sleep_until(
        self, when: datetime, *, name: str | None = None, kind: Literal["time", "cooldown"] = "time"
    ) -> Reply:
        """Wait for a time, as `Run.sleep_until` does; no thread waits with it."""
        return await self._waited(time_wait(when, name=name, kind=kind, phase=self.sync.host.current_phase))

    async def _waited(self, question: Question) -> Reply:
        """Do what a wait does on threads, and sleep in its pauses on the loop, until it is woken there."""
        loop, rung = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(rung.set)

        begun: list[Call] = []
        steps = await settled(self.sync.host.wait_steps, question, begun.append)
        try:
            while True:
                pause = await settled(_next_pause, steps)
                if not isinstance(pause, Pause):
                    return pause
                rung.clear()
                pause.wakeup.call(wake)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause.seconds):
                        await rung.wait()
                pause.wakeup.call(None)
                pause.wakeup.take()
        except asyncio.CancelledError:
            for call in begun:  # it may have its answer: asked for again, that is what is heard
                self.sync.calls.release(call)
            raise
        finally:
            await settled(steps.close)

    async def _done(self, call: Call, work: Callable[[], Any]) -> Any:
        run, calls, options = self.sync, self.sync.calls, call.options
        started = run.host.monotonic()
        number = 0
        try:
            while True:
                number += 1
                try:
                    with calls.inside(call, number):
                        result = await _within(work, options.timeout_s, call.path)
                    break
                except Exception as error:
                    pause = options.retry.pause_s(number, error, run.host.now())
                    if pause is None:
                        raise
                    await settled(calls.begin_retry, call, number, error, pause)
                await settled(run.host.sleep, pause)
        except Exception as error:
            await settled(calls.fail, call, error, attempts=number, duration_s=run.host.monotonic() - started)
            raise
        except BaseException as error:
            calls.fail(call, error, attempts=number, duration_s=run.host.monotonic() - started)
            raise
        with _released(calls, call):
            return await settled(calls.finish, call, result, attempts=number, duration_s=run.host.monotonic() - started)

    async def parallel(
        self, calls: Mapping[str, Callable[[], Any]], *, limit: int = 8, **options: Any
    ) -> dict[str, Any]:
        """Do several steps at once, each kept as it settles; all settle before a failure is raised."""
        if not isinstance(limit, int) or limit < 1:
            raise UsageError(f"limit={limit!r}: give a number from 1 up")
        turns = asyncio.Semaphore(limit)
        leaving: list[BaseException] = []

        async def one(name: str, call: Callable[[], Any]) -> Any:
            async with turns:
                if leaving:
                    return None  # no more are begun: the run is to be left
                try:
                    return await self.step(name, call, **options)
                except BaseException as error:
                    leaving.extend([error] if is_interruption(error) else [])
                    raise

        outcomes = await asyncio.gather(*(one(*item) for item in calls.items()), return_exceptions=True)
        if leaving:
            raise leaving[0]
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"{len(errors)} of {len(calls)} parallel steps failed", errors)
        return dict(zip(calls, outcomes, strict=True))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a method of the synchronous class that is awaited, one that makes a part, or a value or part."""
            found = getattr(self.sync, name)
            if name in _RUN_MAKES:
                return partial(_called, found)
            if name in _RUN_PARTS:
                return _for_asyncio(found)
            return found if name in _RUN_VALUES or not callable(found) else partial(settled, found)


def _next_pause(steps: Steps) -> Pause | Reply:
    """Return the next pause of a wait, or its answer: StopIteration cannot leave a thread."""
    try:
        return next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def _begun(calls: Calls, *given: Any, **named: Any) -> Kept | Call:
    """Begin a call; if its caller is cancelled meanwhile, it did not begin."""
    found: list[Kept | Call] = []
    try:
        await settled(lambda: found.append(calls.begin(*given, **named)))
    except asyncio.CancelledError:
        for one in found:
            if isinstance(one, Call):
                calls.withdraw(one)
            else:
                calls.release(one.call)
        raise
    return found[0]


@contextmanager
def _released(calls: Calls, call: Call) -> Iterator[None]:
    """Let a cancelled caller make the same call again."""
    try:
        yield
    except asyncio.CancelledError:
        calls.release(call)
        raise


async def _within(work: Callable[[], Any], timeout_s: float | None, name: str) -> Any:
    try:
        async with asyncio.timeout(timeout_s) as limit:
            if inspect.iscoroutinefunction(bare(work)):
                return await work()
            result = await asyncio.to_thread(work)
            return await result if inspect.isawaitable(result) else result
    except TimeoutError as error:
        if limit.expired():
            raise StepTimeout(name, timeout_s or 0.0) from error
        raise
