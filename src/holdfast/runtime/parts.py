"""The running side of a run: its parts, each made and restored from the head when it is first used.

`Run` adds the checkpoints; toward its parts it is their `Host`.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar

from holdfast.errors import RunCancelled, RunClosed, RunWaiting, SessionOver, StoreError, UsageError
from holdfast.model.triggers import Trigger
from holdfast.runtime.cancel_watch import CancelWatch
from holdfast.runtime.keep import ATOMS
from holdfast.runtime.patience import at_most_s, is_given_up

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from holdfast.capture.live import Live
    from holdfast.capture.lock import RunLock
    from holdfast.errors import LeaseLost
    from holdfast.model.runtime_sections import Reply, Wait
    from holdfast.model.sections import Replan
    from holdfast.runtime.agents import Agents
    from holdfast.runtime.budget import Budget
    from holdfast.runtime.calls import CallOptions, Calls, OnUnknown
    from holdfast.runtime.context import Context
    from holdfast.runtime.gates import Gates
    from holdfast.runtime.graph import TaskGraph
    from holdfast.runtime.inbox import Item
    from holdfast.runtime.knowledge import Knowledge
    from holdfast.runtime.machine import StateMachine
    from holdfast.runtime.mailbox import Mailbox
    from holdfast.runtime.phase import Phase
    from holdfast.runtime.phases import Phases
    from holdfast.runtime.status import RunStatus
    from holdfast.runtime.subject import Subject
    from holdfast.runtime.team import Team
    from holdfast.runtime.waits import Waits
    from holdfast.store.bell import Bell

T = TypeVar("T")
L = TypeVar("L", bound="Live")
Waiting = Literal["block", "decide", "leave"]
"""Where it must wait: block; leave what a person has to decide, and wait for times and the end of a pause; leave."""

_LOOK_EVERY_S = 0.25  # at boundaries, so that a run of many small steps does not read its inbox at each of them
_LONG_PAUSE_S = 5.0  # a pause of this length is a wait that outlives the process
_LONGEST_NOTE = 2_000
_UNNOTED = frozenset(  # these are noted by who asks for them
    {Trigger.STEP_COMPLETE, Trigger.USER_APPROVAL, Trigger.TIME_INTERVAL, Trigger.BUDGET_WARNING}
)
_QUIET = frozenset({"status", "waits"})  # they save by themselves what must not be lost


class Services(NamedTuple):
    """What the parts of a run get from the engine."""

    clock: Callable[[], float]
    monotonic: Callable[[], float]
    entropy: Callable[[int], bytes]
    pack: Callable[[Any, str], bytes]
    unpack: Callable[[bytes, str], Any]
    read_inbox: Callable[[int], Sequence[Item]]
    listen: Callable[[], Bell]
    wake: Callable[[], None]
    max_section_bytes: int


class RunParts:
    """What a run is made of beside its checkpoints."""

    def __init__(self, run: str, services: Services, *, waiting: Waiting) -> None:
        self.id = run
        self._services = services
        self._waiting = waiting
        self._parts: dict[str, Any] = {}
        self._notes: list[dict[str, Any]] = []
        self._calls: Calls | None = None
        self._looked_at = float("-inf")
        self._is_closed = False
        self._lost: LeaseLost | None = None
        self._cancel_watch = CancelWatch(self._is_cancelled)
        self.on_wait: Callable[[Wait, Reply | None], object] | None = None
        """Hears of each wait that is stored and has no answer yet, and of its answer."""

    @property
    def lock(self) -> RunLock:
        """Held while a checkpoint is taken; hold it yourself while registered state is changed in several steps."""
        raise NotImplementedError

    @property
    def head(self) -> Any:
        """The checkpoint that the next one will be taken on."""
        raise NotImplementedError

    @property
    def _present(self) -> Any:
        """How the run stood when this handle last read it: its head and what the journal has since."""
        raise NotImplementedError

    def register(self, section: str, live: Live, *, quiet: bool = False) -> None:
        """Capture an object as a section of every checkpoint from now on."""
        raise NotImplementedError

    def unregister(self, section: str) -> None:
        """Leave a registered object out from now on."""
        raise NotImplementedError

    @property
    def _root(self) -> Path | None:
        """The run's directory, if it has one."""
        raise NotImplementedError

    @property
    def current_phase(self) -> str | None:
        """The phase that is under way."""
        phases = self._parts.get("phases")
        return phases.current if phases is not None else None

    def _save(
        self, trigger: Trigger, reason: str, *, phase: str | None, files: bool | None, details: Mapping[str, Any]
    ) -> bool:
        """Make durable what changed, with a checkpoint if one is due, or do as the settings say when that fails."""
        raise NotImplementedError

    def _append(self, *, trigger: Trigger, reason: str, phase: str | None = None) -> bool:
        """Make durable what changed, without a checkpoint."""
        raise NotImplementedError

    def _append_if_possible(self, *, trigger: Trigger, reason: str, phase: str | None = None) -> bool:
        """Make durable what changed, without a checkpoint, or do as the settings say when that fails."""
        raise NotImplementedError

    def _ended(self) -> None:
        """Note that the run's end is stored."""
        raise NotImplementedError

    records_stored: int

    def pack(self, value: Any, what: str) -> bytes:
        """Return a value as the journal keeps it, without secrets."""
        raise NotImplementedError

    def unpack(self, data: bytes, what: str) -> Any:
        """Return a packed value."""
        raise NotImplementedError

    def add_record(self, kind: str, path: str, body: bytes) -> int:
        """Let the journal get a record with the next commit."""
        raise NotImplementedError

    def find_record(self, path: str) -> tuple[str, bytes] | None:
        """Return kind and body of the newest record of a path."""
        raise NotImplementedError

    def _stored_notes(self) -> list[dict[str, Any]]:
        """Return the lines of the journal that are stored."""
        raise NotImplementedError

    def _journal(self, section: str, value: Any) -> None:
        """Let a part's changes go into the journal; `value` is what that has of it."""
        raise NotImplementedError

    # The host of the parts

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(self._services.clock(), UTC)

    def monotonic(self) -> float:
        """Return seconds by a clock that never jumps."""
        return self._services.monotonic()

    def save(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, files: bool | None = None) -> bool:
        """Make durable what changed, with a checkpoint if one is due, and let a pause or cancellation in.

        False if it could not be stored and the settings say to continue all the same.
        """
        self.check_open(f"{reason or trigger} was not saved")
        if self._is_over and trigger is not Trigger.SHUTDOWN:
            self.status.set("running", "after it was completed")
        if trigger not in _UNNOTED:
            self.note(trigger.value, reason, phase=phase or self.current_phase)
        is_saved = self._save(trigger, reason, phase=phase or self.current_phase, files=files, details={})
        self._boundary()
        return is_saved

    def record(self, reason: str, *, required: bool = True) -> None:
        """Make durable what changed, without a checkpoint.

        Where something that is about to begin rests on it (`required`), what cannot be stored is raised; else the
        settings say what happens then, as with a checkpoint.
        """
        self.check_open(f"{reason} was not recorded")
        append = self._append if required else self._append_if_possible
        append(trigger=Trigger.STEP_COMPLETE, reason=reason, phase=self.current_phase)

    def offer(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, **details: Any) -> None:
        """Make durable what changed, with a checkpoint if one is due; `details` are for the strategy."""
        self.check_open(f"{reason or trigger} was not saved")
        self._save(trigger, reason, phase=phase or self.current_phase, files=None, details=details)
        self._boundary()

    def note(self, kind: str, what: str = "", **details: Any) -> None:
        """Add a line to the run's journal; it is stored with the next commit."""
        known = {name: value for name, value in details.items() if value not in (None, "")}
        record = {"at": self.now(), "kind": kind, "what": what[:_LONGEST_NOTE], **known}
        packed = self._services.pack(record, f"note {kind}")
        self._notes.append(self._services.unpack(packed, "journal"))

    def begin_call(self) -> None:
        """Reserve one call in the run's budgets, durably, before it begins; stop while one of them is used up."""
        if "budget" in self._parts or self._has("budget"):
            self.budget.check()
            self.budget.reserve(subcalls=1)

    def begin_retry(self) -> None:
        """Reserve one retry in the run's budgets, durably, before it begins."""
        if "budget" in self._parts or self._has("budget"):
            self.budget.reserve(retries=1)

    def charge(self, **amounts: Any) -> None:
        """Count what a call cost, in the run's budgets; stored with what came of it."""
        spent = {name: amount for name, amount in amounts.items() if amount}
        if spent:
            self.budget.count(**spent)

    def journal(self) -> list[dict[str, Any]]:
        """Return every line of the journal, oldest first."""
        with self.lock:
            return [*self._stored_notes(), *self._notes]

    def sleep(self, seconds: float) -> None:
        """Wait; a pause or cancellation from outside is let in. A long one is a wait that outlives the process."""
        until = self.now() + timedelta(seconds=seconds)
        if seconds >= _LONG_PAUSE_S:
            self.sleep_until(until, name=f"cooldown:{until:%Y%m%dT%H%M%S}", kind="cooldown")
            return
        deadline = self.monotonic() + seconds
        with self._services.listen() as bell:
            while (left := deadline - self.monotonic()) > 0:
                bell.wait(at_most_s(min(left, 1.0)))
                self._boundary()
                if is_given_up():
                    return

    def wait_for(self, wait: Wait) -> Reply:
        """Wait for a person, a signal or a time; one that was answered in an earlier life returns at once."""
        self.check_open(f"{wait.question or wait.id!r} cannot be waited for")
        return self.waits.wait_for(wait)

    def is_waiting_for(self, wait: str) -> bool:
        """Tell whether something is waited for, in this life or since an earlier one."""
        return ("waits" in self._parts or self._has("waits")) and any(one.id == wait for one in self.waits.open)

    def _idle(self) -> AbstractContextManager[None]:
        """Let the clock of the running time stand still: to wait is not to work."""
        budget: Budget | None = self._parts.get("budget")
        return budget.stopped() if budget is not None else nullcontext()

    def resolve(self, wait: str, value: Any) -> None:
        """Answer a wait from inside the run: another thread of it may be waiting."""
        if "waits" in self._parts and self.waits.resolve(wait, value):
            self._services.wake()

    def keep(self, value: Any, what: str) -> Any:
        """Return a copy of a value, as it will come back from the store; ValueRefused if it cannot be stored."""
        return value if isinstance(value, ATOMS) else self._services.unpack(self._services.pack(value, what), what)

    def check_open(self, lost: str) -> None:
        """Raise RunClosed if the run is closed."""
        if self._is_closed:
            raise RunClosed(lost, self.id)

    def watched(self) -> AbstractContextManager[threading.Event]:
        """Watch while a command runs: the event is set when somebody cancels the run; RunCancelled if it is so now."""
        if self._cancel_watch.is_cancelled:
            self.raise_cancelled()
        return self._cancel_watch.watched()

    def _lease_lost(self, error: LeaseLost) -> None:
        """Stop the commands of this process: another one may move the run from now on."""
        self._lost = error
        self._cancel_watch.stop()

    def _is_cancelled(self) -> bool:
        """Tell whether somebody cancelled the run, without taking anything in; asked from a thread of its own."""
        waits: Waits | None = self._parts.get("waits")
        if waits is not None:
            return waits.is_cancelled
        return any(item.kind == "cancel" for item in self._services.read_inbox(0))

    def raise_cancelled(self) -> NoReturn:
        """Take in the cancellation that a command was ended for, and leave the run."""
        if self._lost is not None:
            raise self._lost
        with suppress(StoreError):  # it stays in the inbox, and the next process meets it there
            self.waits.look()
        raise RunCancelled(self.id, "")

    def _boundary(self) -> None:
        """Let in what came from outside, now and then."""
        now = self.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S or self.lock.is_mine() or self._is_over:
            return
        self._looked_at = now
        if "waits" in self._parts or self._has("waits") or self._services.read_inbox(0):
            self.waits.look()

    @property
    def _is_over(self) -> bool:
        status: RunStatus | None = self._parts.get("status")
        return status is not None and status.status == "completed"

    # The life of the run

    def begin(self) -> None:
        """Begin to move the run: new, or carried on from where it stood."""
        self._cancel_watch = CancelWatch(self._is_cancelled)  # what was noticed in another life is of that one
        before = self.status.status
        if before == "cancelled":
            raise RunCancelled(self.id, "", self.status.detail)
        if before == "completed":
            return  # its program is run once more: nothing is left to do, unless it does something new
        self.status.set("running")
        if before is not None:
            head = self.head
            self.note("carried on", f"it was {before}", checkpoint=head.id if head else None)
        if self._has("budget"):
            self.budget  # noqa: B018 - its clock counts from here
        if self._has("waits") or self._services.read_inbox(0):
            self.waits.look()
            self.waits.sit_out()

    def end(self, error: BaseException | None) -> None:
        """Say how this life of the run ended; stored with the last checkpoint."""
        status = self.status
        budget: Budget | None = self._parts.get("budget")
        if budget is not None:
            budget.count_time()
        if status.status in ("completed", "cancelled") or isinstance(error, (RunWaiting, RunCancelled)):
            return
        if isinstance(error, SessionOver):
            status.set("ended", str(error)[:_LONGEST_NOTE])
        elif isinstance(error, Exception):
            told = f"{type(error).__name__}: {error}"[:_LONGEST_NOTE]
            status.set("failed", told.encode(errors="backslashreplace").decode())
        else:
            status.set("ended", "" if error is None else f"interrupted ({type(error).__name__})")

    def complete(self, detail: str = "") -> None:
        """Say that the run has reached its end: nothing is left to resume."""
        self.status.set("completed", detail)
        self.note("completed", detail)
        if self.save(Trigger.SHUTDOWN, "the run is complete"):
            self._ended()

    # Parts

    def attach(self, section: str, live: L, *, journaled: bool = False) -> L:
        """Register an object as a section, with its state from the head if that has one; return it.

        What changes in a `journaled` one is stored with every record, not only with checkpoints.
        """
        with self.lock:
            known = None
            if self._has(section):
                live.restore(self._present.section(section))
                known = live.snapshot()
                resume = getattr(live, "resume", None)
                if callable(resume):
                    resume()
            self.register(section, live, quiet=section in _QUIET)
            if journaled:
                self._journal(section, known)
        return live

    def _forget_parts(self, sections: Sequence[str], registered: Sequence[str]) -> None:
        """Let parts go without one of these sections: they are made again from the head when next used."""
        gone = {name for name in self._parts if name not in sections}
        for name in gone:
            del self._parts[name]
        for name in registered:
            if name in gone:
                self.unregister(name)

    def _has(self, section: str) -> bool:
        return section in self._present.sections

    def _part(self, section: str, make: Callable[[], L]) -> L:
        """Return a part, made and attached when it is first asked for."""
        with self.lock:
            if section not in self._parts:
                self._parts[section] = self.attach(section, make(), journaled=True)
            found: L = self._parts[section]
        return found

    @property
    def status(self) -> RunStatus:
        """How the run stands."""
        from holdfast.runtime.status import RunStatus  # noqa: PLC0415 - a part is loaded by the runs that use it

        return self._part("status", lambda: RunStatus(self))

    @property
    def waits(self) -> Waits:
        """What the run waits for."""
        from holdfast.runtime.waits import Waits  # noqa: PLC0415

        return self._part(
            "waits",
            lambda: Waits(
                self,
                self.status,
                read=self._services.read_inbox,
                listen=self._services.listen,
                tell=lambda wait, reply: self.on_wait(wait, reply) if self.on_wait is not None else None,
                idle=self._idle,
                raise_budget=lambda item: self.budget.raise_labelled(
                    item.value, by=item.by, is_total=item.choice == "limit"
                ),
                blocks=self._waiting,
            ),
        )

    @property
    def calls(self) -> Calls:
        """The calls of the run: its steps, agents, gates and tasks, each done once."""
        with self.lock:
            if self._calls is None:
                from holdfast.runtime.calls import Calls  # noqa: PLC0415

                services = self._services
                self._calls = Calls(
                    self,
                    make_key=lambda: f"hf-{services.entropy(16).hex()}",
                    max_bytes=services.max_section_bytes,
                )
            return self._calls

    def calls_under_way(self) -> dict[str, int]:
        """Return the calls whose work runs at this moment, each with its start."""
        return dict(self._calls.under_way) if self._calls is not None else {}

    @property
    def phases(self) -> Phases:
        """The phases of the run."""
        return self._phases()

    def declare_phases(self, *order: str, plan: str | None = None, replan_limit: int = 2) -> Phases:
        """Name the phases in their order, before any is entered."""
        if "phases" in self._parts:
            raise UsageError("the phases are in use already: declare them before the first run.phase() or run.phases")
        return self._phases(order, plan=plan, replan_limit=replan_limit)

    def _phases(self, order: Sequence[str] = (), **options: Any) -> Phases:
        from holdfast.runtime.phases import Phases  # noqa: PLC0415

        return self._part("phases", lambda: Phases(self, order, root=self._root, **options))

    def phase(self, name: str, *, label: str | None = None) -> Phase:
        """Return a phase: `with run.phase("research"):` does it, `.is_due` tells whether it is still to be done."""
        self.calls.begin_attempt(name)
        return self.phases.phase(name, label=label)

    def replan(self, phase: str, reason: str) -> Replan:
        """Count that a phase is planned anew; ReplanLimit when that was done too often."""
        return self.phases.replan(phase, reason)

    def machine(self, **declared: Any) -> StateMachine:
        """Declare the run's state machine (`states=`, `transitions=`, `guards=`), where it stood."""
        from holdfast.runtime.machine import StateMachine  # noqa: PLC0415

        return self._part("workflow", lambda: StateMachine(self, **declared))

    @property
    def agents(self) -> Agents:
        """The agents of the run, and what became of their calls."""
        from holdfast.runtime.agents import Agents  # noqa: PLC0415

        return self._part("agents", lambda: Agents(self))

    @property
    def context(self) -> Context:
        """What the run is about and has learned."""
        from holdfast.runtime.context import Context  # noqa: PLC0415

        return self._part("context", lambda: Context(self, root=self._root))

    @property
    def knowledge(self) -> Knowledge:
        """What was injected into the run, and what it found out."""
        from holdfast.runtime.knowledge import Knowledge  # noqa: PLC0415

        return self._part("knowledge", lambda: Knowledge(self))

    @property
    def mailbox(self) -> Mailbox:
        """Messages between the agents, and their conflicts."""
        from holdfast.runtime.mailbox import Mailbox  # noqa: PLC0415

        return self._part("messages", lambda: Mailbox(self))

    @property
    def team(self) -> Team:
        """Who works on the run."""
        from holdfast.runtime.team import Team  # noqa: PLC0415

        return self._part("team", lambda: Team(self))

    @property
    def subject(self) -> Subject:
        """What the run works on."""
        from holdfast.runtime.subject import Subject  # noqa: PLC0415

        return self._part("subject", lambda: Subject(self))

    @property
    def budget(self) -> Budget:
        """What the run may spend, and has spent."""
        from holdfast.runtime.budget import Budget  # noqa: PLC0415

        return self._part("budget", lambda: Budget(self))

    def graph(self, name: str = "graph") -> TaskGraph:
        """Return a task graph of the run: new, or where it stood."""
        from holdfast.runtime.graphs import Graphs  # noqa: PLC0415

        return self._part("graph", lambda: Graphs(self)).graph(name)

    @property
    def gates(self) -> Gates:
        """Tasks that must pass their gates."""
        from holdfast.runtime.gates import Gates  # noqa: PLC0415

        return self._part("gates", lambda: Gates(self))

    # Steps and waiting

    def step(
        self,
        name: str,
        call: Callable[..., T],
        /,
        *args: Any,
        retries: int = 0,
        backoff: float = 1.0,
        retry_on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] | None = None,
        timeout_s: float | None = None,
        effect: str | bool | None = None,
        on_unknown: OnUnknown | None = None,
        wrote_files: bool = False,
        store: Callable[[T], Any] | None = None,
        version: str = "",
        after: Sequence[str] = (),
        **named: Any,
    ) -> T:
        """Do a piece of work once: its result is stored, and returned without doing it whenever it is called again.

        The result holds while the arguments, the declared `version` and the results of the steps named in `after` are
        the same; else the work is done again. Transient errors (or those of `retry_on`) are retried. A step with an
        `effect` outside is recorded before it begins; if its end is missing after a crash, `on_unknown` decides: retry,
        skip or ask (the default). `store` makes of the result what is kept of it. A generator's yields are progress.
        """
        from holdfast.runtime.steps import prepared  # noqa: PLC0415

        self.check_open(f"step {name!r} was not done")
        options = step_options(
            retries=retries,
            backoff=backoff,
            retry_on=retry_on,
            timeout_s=timeout_s,
            effect=effect,
            on_unknown=on_unknown,
            wrote_files=wrote_files,
            store=store,
            phase=self.current_phase,
        )
        has_key = options.effect is not None
        step = prepared(self, name, call, args, named, version=version, after=after, has_key=has_key)
        return self.calls.call("step", name, step.work, options, **step.identity)  # type: ignore[no-any-return]

    def parallel(self, calls: Mapping[str, Callable[[], T]], *, limit: int = 8, **options: Any) -> dict[str, T]:
        """Do several steps at once, each kept as it settles; return their results by name.

        All are let to settle before a failure is raised: alone, or as an ExceptionGroup.
        """
        from holdfast.runtime.parallel import run_parallel  # noqa: PLC0415

        self.check_open("no step was done")
        return run_parallel(
            {name: partial(self.step, name, call, **options) for name, call in calls.items()}, limit=limit
        )

    def approve(
        self,
        question: str,
        *,
        options: Sequence[str] = ("approve", "reject"),
        name: str | None = None,
        until: datetime | None = None,
        **details: Any,
    ) -> Reply:
        """Wait for a person's decision, over restarts; a rejection is an answer like any other."""
        from holdfast.model.runtime_sections import Wait  # noqa: PLC0415

        if not question or not options:
            raise UsageError("approve() needs a question and at least one option")
        wait = Wait(
            id=name or f"approve:{question}"[:_LONGEST_NOTE],
            kind="approval",
            question=question,
            options=tuple(options),
            until=until,
            details=details,
        )
        return self.wait_for(wait)

    def wait_signal(self, name: str, *, until: datetime | None = None) -> Reply:
        """Wait for a named signal; `hf.signal(run, name, value)` sends it, also before it is waited for."""
        from holdfast.model.runtime_sections import Wait  # noqa: PLC0415

        details = {"signal": name}
        return self.wait_for(
            Wait(id=f"signal:{name}", kind="signal", question=f"signal {name}", until=until, details=details)
        )

    def sleep_until(
        self, when: datetime, *, name: str | None = None, kind: Literal["time", "cooldown"] = "time"
    ) -> Reply:
        """Wait for a time, over restarts; under the same name the time that was set first counts."""
        from holdfast.model.runtime_sections import Wait  # noqa: PLC0415

        if when.tzinfo is None:
            raise UsageError(f"when={when!r}: give a time with its zone, such as datetime.now(UTC) + timedelta(...)")
        name = name or f"time:{when.isoformat()}"
        return self.wait_for(Wait(id=name, kind=kind, question=f"until {when}", until=when))


def step_options(
    *,
    retries: int = 0,
    backoff: float = 1.0,
    retry_on: type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool] | None = None,
    effect: str | bool | None = None,
    **others: Any,
) -> CallOptions:
    """Return the options of a step as one value."""
    from holdfast.runtime.attempt import Retry, is_transient  # noqa: PLC0415
    from holdfast.runtime.calls import CallOptions  # noqa: PLC0415

    if isinstance(retry_on, (type, tuple)):
        kinds = retry_on
        retry_on = lambda error: isinstance(error, kinds)  # noqa: E731
    transient: Callable[[Exception], bool] = retry_on or is_transient
    what = "an outside effect" if effect is True else effect or None
    return CallOptions(retry=Retry(retries, backoff, transient=transient), effect=what, **others)
