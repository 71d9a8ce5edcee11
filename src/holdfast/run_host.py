"""The run as its parts see it (`Host`): they save, wait and spend through it; and how a run begins and ends."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.capture.protection import UnprotectedWarning, reason_of
from holdfast.errors import (
    Conflict,
    LeaseLost,
    RunCancelled,
    RunClosed,
    RunWaiting,
    SessionOver,
    StoreError,
    Unprotected,
)
from holdfast.lazy import lazily
from holdfast.model.runtime_sections import Wait
from holdfast.model.triggers import Trigger
from holdfast.run_recorder import CommitFacts, grouping
from holdfast.runtime.cancel_watch import CancelWatch
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.recorded import ATOMS
from holdfast.runtime.wait_limit import at_most_s, is_given_up

with lazily():
    from holdfast.runtime import budget as budget_module
    from holdfast.runtime import calls
    from holdfast.runtime import status as status_module
    from holdfast.runtime import waits as waits_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from holdfast.capture.live import Live
    from holdfast.capture.lock import RunLock
    from holdfast.capture.watch import Watch
    from holdfast.checkpoint import Checkpoint
    from holdfast.model.runtime_sections import Reply
    from holdfast.run_recorder import Recorder, Services
    from holdfast.runtime.amounts import Amount
    from holdfast.runtime.budget import Budget
    from holdfast.runtime.calls import Call, Calls, OnInterrupt
    from holdfast.runtime.ledger import Hold
    from holdfast.runtime.status import RunStatus
    from holdfast.runtime.waits import Question, Steps, Waiting, Waits

L = TypeVar("L", bound="Live")
_BY_ITS_MACHINE = "its state machine is complete"
_LOOK_EVERY_S = 0.25  # at boundaries, so that a run of many small steps does not read its inbox at each of them
_LONG_PAUSE_S = 5.0  # a pause of this length is a wait that outlives the process
_LONGEST_NOTE = 2_000
_UNNOTED = frozenset(  # these are noted by who asks for them
    {Trigger.STEP_COMPLETE, Trigger.USER_APPROVAL, Trigger.TIME_INTERVAL, Trigger.BUDGET_WARNING}
)
_log = logging.getLogger("holdfast")
_QUIET = frozenset({"status", "waits"})  # they save by themselves what must not be lost


class RunHost:
    """The host of a run's parts, each made and restored from the head when it is first used."""

    has_journal = True

    def __init__(
        self, recorder: Recorder, watch: Watch, services: Services, *, root: Path | None, waiting: Waiting
    ) -> None:
        self.id = recorder.id
        self.lock: RunLock = recorder.lock
        self.pack, self.unpack = recorder.pack, services.unpack
        self.add_record, self.find_record = recorder.add_record, recorder.find_record
        self._recorder = recorder
        self._watch = watch
        self._services = services
        self.root = root
        """The run's directory, if it has one."""
        self.lease_s: float | None = None
        """How long another process waits for this one, should it die, if not as the settings say."""
        self.part_budget: Budget | None = None
        """The budget of the part that is under way, if it has one: calls count in it, and in all above it."""
        self._waiting = waiting
        self._parts: dict[str, Any] = {}
        self._calls: Calls | None = None
        self._looked_at = float("-inf")
        self.is_closed = False
        self._lost: LeaseLost | None = None
        self._stop: threading.Event | None = None
        self._cancel_watch = CancelWatch(self._is_cancelled)
        self.on_wait: Callable[[Wait, Reply | None], object] | None = None
        """Hears of each wait that is stored and has no answer yet, and of its answer."""
        self.on_flush: Callable[[], object] | None = None
        """Hears that all that was saved is durable."""
        recorder.facts = self._commit_facts

    def _commit_facts(self) -> CommitFacts:
        status, waits = self._parts.get("status"), self._parts.get("waits")
        return CommitFacts(
            consumed=None if waits is None else waits.taken_in,
            run_changes={} if status is None or status.status is None else {"status": status.status},
        )

    @property
    def records_stored(self) -> int:
        """How many of the added records are stored."""
        return self._recorder.records_stored

    @property
    def has_workspace(self) -> bool:
        """Whether the run's checkpoints hold a directory, too."""
        return self._recorder.writer.files is not None

    @property
    def current_phase(self) -> str | None:
        """The phase that is under way."""
        phases = self._parts.get("phases")
        return phases.current if phases is not None else None

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(self._services.clock(), UTC)

    def monotonic(self) -> float:
        """Return seconds by a clock that never jumps."""
        return self._services.monotonic()

    def new_session(self) -> str:
        """Return a name that no other session has."""
        return f"session-{self._services.entropy(8).hex()}"

    def save(
        self,
        trigger: Trigger,
        reason: str = "",
        *,
        phase: str | None = None,
        files: bool | None = None,
        required: bool = False,
    ) -> bool:
        """Make durable what changed, with a checkpoint if one is due, and let a pause or cancellation in.

        False if it could not be stored and the settings say to continue all the same, which they do not decide where
        something rests on it (`required`): that is RunStopped.
        """
        self.check_open(f"{reason or trigger} was not saved")
        is_complete = getattr(self._parts.get("workflow"), "is_complete", False)
        is_under_way = self.status.status in (None, "running")
        if is_complete and is_under_way:  # in the same commit: killed right after, the run is complete
            self.status.set("completed", _BY_ITS_MACHINE)
        elif self._is_over and not is_complete and trigger is not Trigger.SHUTDOWN:
            self.status.set("running", "after it was completed")
        if trigger not in _UNNOTED:
            self.note(trigger.value, reason, phase=phase or self.current_phase)
        with self.ungrouped() if required else nullcontext():
            is_saved = self._watch.record(
                trigger,
                reason,
                phase=phase or self.current_phase,
                files=files,
                on_failure="stop" if required else None,
            )
        self._boundary()
        return is_saved

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """Let what is saved in this block go into few commits: before work begins, before a wait, and at the end.

        Only for code that tells nobody of what it saved before `flush`.
        """
        is_inner = self._recorder.is_grouped
        token = grouping.set(self._recorder)
        try:
            yield
        except BaseException:
            grouping.reset(token)
            if not is_inner:
                self._flush_after_error()
            raise
        grouping.reset(token)
        if not is_inner:
            self.flush()

    def ungrouped(self, *, flush: bool = True) -> AbstractContextManager[None]:
        """Commit what is grouped, and let what is saved in this block be durable at once: work begins.

        Who calls `flush` before the work does may leave it out here.
        """
        return _Ungrouped(self.flush if flush else lambda: None)

    def flush(self) -> None:
        """Make durable what was saved in a group; if that fails, do as the settings say."""
        self._watch.flush()
        if self.on_flush is not None:
            self.on_flush()

    def _flush_after_error(self) -> None:
        """Commit what is grouped; the error that ended the block is the one to be seen."""
        try:
            self.flush()
        except (Unprotected, Conflict, UnprotectedWarning):
            _log.exception("run %s: what was saved last could not be stored", self.id)

    @property
    def is_behind(self) -> bool:
        """Whether something was saved in a group and is not durable yet."""
        return self._recorder.is_staged

    def record(self, reason: str, *, required: bool = True) -> None:
        """Make durable what changed, without a checkpoint.

        Where something that is about to begin rests on it (`required`), what cannot be stored is raised; else the
        settings say what happens then, as with a checkpoint.
        """
        self.check_open(f"{reason} was not recorded")
        append = self._recorder.append if required else self._watch.append
        append(trigger=Trigger.STEP_COMPLETE, reason=reason, phase=self.current_phase)
        if required:
            self._recorder.flush()

    def offer(self, trigger: Trigger, reason: str = "", *, phase: str | None = None, **details: Any) -> None:
        """Make durable what changed, with a checkpoint if one is due; `details` are for the strategy."""
        self.check_open(f"{reason or trigger} was not saved")
        self._watch.record(trigger, reason, phase=phase or self.current_phase, details=details)
        self._boundary()

    def note(self, kind: str, what: str = "", **details: Any) -> None:
        """Add a line to the run's journal; it is stored with the next commit."""
        known = {name: value for name, value in details.items() if value not in (None, "")}
        record = {"at": self.now(), "kind": kind, "what": what[:_LONGEST_NOTE], **known}
        packed = self._services.pack(record, f"note {kind}")
        self._recorder.notes.append(self._services.unpack(packed, "journal"))

    def begin_call(self, who: str, most: Mapping[str, Amount] | None) -> Hold:
        """Reserve an agent's call and what it may cost, durably, before it begins; stop while a budget is used up."""
        if "budget" in self._parts or self._has("budget"):
            return budget_module.begin_call(self.part_budget or self.budget, who, most)
        return ()

    def end_call(self, who: str, held: Hold, spent: Mapping[str, Amount], *, is_known: bool) -> None:
        """Give back what was reserved for a call that is over, or charge it where its cost is not known."""
        if "budget" in self._parts:
            budget_module.end_call(self.budget, who, held, spent, is_known=is_known)

    def begin_retry(self) -> None:
        """Reserve one retry in the run's budgets, durably, before it begins."""
        if "budget" in self._parts or self._has("budget"):
            (self.part_budget or self.budget).reserve(retries=1)

    def charge(self, **amounts: Any) -> None:
        """Count what a call cost, in the run's budgets; stored with what came of it."""
        spent = {name: amount for name, amount in amounts.items() if amount}
        if spent:
            (self.part_budget or self.budget).count(**spent)

    def sleep(self, seconds: float) -> None:
        """Wait; a pause or cancellation from outside is let in. A long one is a wait that outlives the process."""
        self.flush()
        until = self.now() + timedelta(seconds=seconds)
        if seconds >= _LONG_PAUSE_S:
            name = f"cooldown:{until:%Y%m%dT%H%M%S}"
            self.wait_for(Wait(id=name, kind="cooldown", question=f"until {until:%Y-%m-%d %H:%M:%S %Z}", until=until))
            return
        deadline = self.monotonic() + seconds
        with self._services.listen() as wakeup:
            while (left := deadline - self.monotonic()) > 0:
                wakeup.wait(at_most_s(min(left, 1.0)))
                self._boundary()
                if is_given_up():
                    return

    def _tell_wait(self, wait: Wait, reply: Reply | None) -> None:
        """Tell who watches what is waited for; a program that nobody watches says it, or it would seem to hang."""
        if self.on_wait is not None:
            self.on_wait(wait, reply)
        elif reply is None and self._waiting != "leave":
            _log.warning("run %s waits (%s %r): %s", self.id, wait.kind, wait.id, wait.question)

    def wait_for(self, wait: Wait) -> Reply:
        """Wait for a person, a signal or a time; one that was answered in an earlier process returns at once."""
        self.check_open(f"{wait.question or wait.id!r} cannot be waited for")
        return self.waits.wait_for(waits_module.Question(wait))

    def ask(self, question: Question) -> Reply:
        """Wait for what a program asks for; what was answered about the same work returns at once."""
        return waits_module.sit_out(self.wait_steps(question), self.monotonic)

    def wait_steps(self, question: Question, begun_as: Callable[[Call], object] = lambda _call: None) -> Steps:
        """Return the same wait as a generator, for who does not want a thread to wait; `begun_as` hears of its call."""
        self.check_open(f"{question.wait.question or question.wait.id!r} cannot be waited for")
        return self.waits.steps(question, begun_as)

    def is_waiting_for(self, wait: str) -> bool:
        """Tell whether something is waited for, in this process or since an earlier one."""
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
        """Return a copy of a value, as it will be restored from the store; ValueRefused if it cannot be stored."""
        return value if isinstance(value, ATOMS) else self._services.unpack(self._services.pack(value, what), what)

    def check_open(self, lost: str) -> None:
        """Raise RunClosed if the run is closed."""
        if self.is_closed:
            raise RunClosed(lost, self.id)

    def watched(self) -> AbstractContextManager[threading.Event]:
        """Watch while a command runs: the event is set when somebody cancels the run; RunCancelled if it is so now."""
        if self._cancel_watch.is_cancelled:
            self.raise_cancelled()
        return self._cancel_watch.watched()

    def lease_lost(self, error: LeaseLost) -> None:
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

    def leave_when(self, stop: threading.Event | None) -> None:
        """Leave the run at the first boundary after an event: SessionOver; its position is saved."""
        self._stop = stop

    @contextmanager
    def stopped_when(self, lost: threading.Event | None) -> Iterator[None]:
        """End the commands of this process when an event is set: another one may move the run by then."""
        if lost is None:
            yield
            return
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                if lost.wait(_LOOK_EVERY_S):
                    self.lease_lost(LeaseLost(self.id, 0))
                    return

        thread = threading.Thread(target=watch, name=f"holdfast-claim-{self.id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _boundary(self) -> None:
        """Let in what came from outside, now and then."""
        is_over = self._is_over and self.status.detail != _BY_ITS_MACHINE  # then its program may still be at work
        if self._stop is not None and self._stop.is_set() and not self.lock.is_mine() and not is_over:
            raise SessionOver(self.id, "it was asked to leave")
        now = self.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S or self.lock.is_mine() or is_over:
            return
        self._looked_at = now
        if "waits" in self._parts or self._has("waits") or self._services.read_inbox(0):
            self.waits.look()

    @property
    def _is_over(self) -> bool:
        status: RunStatus | None = self._parts.get("status")
        return status is not None and status.status == "completed"

    def begin(self) -> None:
        """Begin to move the run: new, or resumed from where it stood."""
        self._cancel_watch = CancelWatch(self._is_cancelled)  # what was noticed in another process is of that one
        before = self.status.status
        if before == "cancelled":
            raise RunCancelled(self.id, "", self.status.detail)
        if before == "completed":
            return  # its program is run once more: nothing is left to do, unless it does something new
        self.status.set("running")
        if before is not None:
            head = self._recorder.writer.head
            self.note("resumed", f"it was {before}", checkpoint=head.envelope.id if head else None)
            self.calls.is_after_death = before == "running"
        if self._has("budget"):
            budget_module.charge_lost(self.budget)  # one that was looked at before follows a process that died since
        if self._has("waits") or self._services.read_inbox(0):
            self.waits.look()
            self.waits.sit_out()

    def end(self, error: BaseException | None) -> None:
        """Say how this process of the run ended; stored with the last checkpoint."""
        status = self.status
        budget: Budget | None = self._parts.get("budget")
        if budget is not None:
            budget.count_time()
        failed_late = status.detail == _BY_ITS_MACHINE and isinstance(error, Exception) and not is_interruption(error)
        if (status.status in ("completed", "cancelled") and not failed_late) or isinstance(
            error, (RunWaiting, RunCancelled)
        ):
            return
        if isinstance(error, SessionOver):
            status.set("ended", str(error)[:_LONGEST_NOTE])
        elif isinstance(error, Exception):
            told = reason_of(error)[:_LONGEST_NOTE]
            status.set("failed", told.encode(errors="backslashreplace").decode())
        else:
            status.set("ended", "" if error is None else f"interrupted ({type(error).__name__})")

    def complete(self, detail: str = "") -> None:
        """Say that the run has reached its end: nothing is left to resume. RunStopped if that cannot be stored."""
        self.status.set("completed", detail)
        self.note("completed", detail)
        self.save(Trigger.SHUTDOWN, "the run is complete", required=True)
        self._recorder.is_ended = True

    def attach(self, section: str, live: L, *, quiet: bool = False, journaled: bool = False) -> L:
        """Register an object as a section, with its state from the head if that has one; return it.

        What changes in a `journaled` one is stored with every record, not only with checkpoints.
        """
        with self.lock:
            known = None
            if self._has(section):
                self.flush()  # it may be in a checkpoint that is not stored yet
                live.restore(self._recorder.present.live_section(section))
                known = live.snapshot()
                resume = getattr(live, "resume", None)
                if callable(resume):
                    resume()
            self._recorder.live.register(section, live, quiet=quiet or section in _QUIET)
            if journaled:
                self._recorder.live.journal(section, known)
        return live

    def go_back_to(self, checkpoint: Checkpoint) -> None:
        """Be as a checkpoint is: objects get its state, parts that it does not have are made again when next used."""
        with self.lock:
            self._leave_behind(checkpoint)
            self._recorder.restore_registered(checkpoint)
            self._recorder.live.rebase()

    def follow(self) -> None:
        """Go to where another process left the run; objects of the caller's own stay as they are."""
        with self.lock:
            present = self._recorder.present
            self._leave_behind(present)
            self._recorder.live.restore({name: present.live_section(name) for name in self._parts})
            self._recorder.live.rebase()

    def _leave_behind(self, checkpoint: Checkpoint) -> None:
        """Forget calls, and parts that a checkpoint does not have."""
        self._recorder.stand_at(checkpoint)
        self._calls = None
        for name in [one for one in self._parts if one not in checkpoint.sections]:
            del self._parts[name]
            self._recorder.live.unregister(name)

    def ignore_inbox(self) -> None:
        """Take in nothing that others have said so far; stored with the next checkpoint."""
        unread = self._services.read_inbox(0)
        if unread:
            self.waits.taken_in = unread[-1].number

    def _has(self, section: str) -> bool:
        return section in self._recorder.present.sections

    def part(self, section: str, make: Callable[[], L]) -> L:
        """Return a part, made and attached when it is first asked for."""
        with self.lock:
            if section not in self._parts:
                self._parts[section] = self.attach(section, make(), journaled=True)
            found: L = self._parts[section]
        return found

    @property
    def status(self) -> RunStatus:
        """How the run stands."""
        return self.part("status", lambda: status_module.RunStatus(self))

    @property
    def waits(self) -> Waits:
        """What the run waits for."""
        return self.part(
            "waits",
            lambda: waits_module.Waits(
                self,
                self.status,
                read=self._services.read_inbox,
                listen=self._services.listen,
                tell=self._tell_wait,
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
                services = self._services
                self._calls = calls.Calls(
                    self,
                    make_key=lambda: f"hf-{services.entropy(16).hex()}",
                    max_bytes=services.max_section_bytes,
                )
            return self._calls

    def has_part(self, section: str) -> bool:
        """Tell whether a part was made in this process."""
        return section in self._parts

    def calls_under_way(self) -> dict[str, int]:
        """Return the calls whose work runs at this moment, each with its start."""
        return dict(self._calls.under_way) if self._calls is not None else {}

    def policies_under_way(self) -> dict[str, OnInterrupt]:
        """Return what is to become of half-written files, of the calls under way that say so."""
        return dict(self._calls.policies) if self._calls is not None else {}

    @property
    def budget(self) -> Budget:
        """What the run may spend, and has spent."""
        if "budget" not in self._parts:
            with self.lock:
                if "budget" not in self._parts:
                    budget_module.charge_lost(self.part("budget", lambda: budget_module.Budget(self)))
        found: Budget = self._parts["budget"]
        return found


class _Ungrouped:
    """A block in which nothing waits for the next commit; a class, as every call is in one."""

    __slots__ = ("_flush", "_token")

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush

    def __enter__(self) -> None:
        self._flush()
        self._token = grouping.set(None)

    def __exit__(self, *_error: object) -> None:
        grouping.reset(self._token)
