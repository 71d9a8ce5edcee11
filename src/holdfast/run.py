"""A run, open for work: the facade over its recorder, its watch and its parts."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from holdfast.errors import UsageError
from holdfast.journal.run_log import RunLog
from holdfast.lazy import lazily
from holdfast.model.runtime_sections import LOG_TYPES
from holdfast.model.triggers import Trigger
from holdfast.run_host import RunHost
from holdfast.run_recorder import Recorder
from holdfast.runtime.steps import prepared, step_options
from holdfast.runtime.waits import approval, signal_wait, time_wait
from holdfast.store.queries import check_attributes, check_key

with lazily():
    from holdfast import run_files
    from holdfast.runtime import (
        agents,
        context,
        gates,
        graphs,
        knowledge,
        machine,
        mailbox,
        parallel,
        phases,
        subject,
        team,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from types import TracebackType

    from holdfast.capture.live import Live
    from holdfast.capture.protection import Protection
    from holdfast.capture.watch import EntryCheck
    from holdfast.capture.writer import RecordDraft, Writer
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.rules import Rules
    from holdfast.model.runtime_sections import Reply
    from holdfast.run_files import RunFiles
    from holdfast.runtime.agents import Agents
    from holdfast.runtime.budget import Budget
    from holdfast.runtime.calls import Calls, OnInterrupt, OnUnknown
    from holdfast.runtime.context import Context
    from holdfast.runtime.gates import Gates
    from holdfast.runtime.graph import TaskGraph
    from holdfast.runtime.knowledge import Knowledge
    from holdfast.runtime.lease import LeaseKeeper
    from holdfast.runtime.machine import StateMachine
    from holdfast.runtime.mailbox import Mailbox
    from holdfast.runtime.phase import Phase
    from holdfast.runtime.phases import Phases
    from holdfast.runtime.status import RunStatus
    from holdfast.runtime.subject import Subject
    from holdfast.runtime.team import Team
    from holdfast.runtime.waits import Waiting

T = TypeVar("T")
L = TypeVar("L", bound="Live")


class Run:
    """One writer's handle on a run; two handles on one run are two writers, and the slower one gets HeadMoved.

    In a `with` block it holds the run's lease: no other process moves the run meanwhile.
    """

    def __init__(
        self,
        holdfast: Holdfast,
        run: str,
        writer: Writer,
        *,
        entry_check: Callable[[Run], EntryCheck],
        waiting: Waiting = "block",
    ) -> None:
        self.id = run
        self.holdfast = holdfast
        """The `Holdfast` that it was opened with."""
        services = holdfast.internals.services(run)
        self.recorder = Recorder(holdfast, run, writer, services)
        self._writer = writer
        self._watch = holdfast.internals.watch(self, self.recorder, lambda: entry_check(self))
        self._lease: LeaseKeeper | None = None
        root = self.workspace.path if writer.files is not None else None
        self.host = RunHost(self.recorder, self._watch, services, root=root, waiting=waiting)
        """The run as its parts see it."""
        self.lock = self.recorder.lock
        """Held while a checkpoint is taken; hold it yourself while registered state is changed in several steps."""

    def checkpoint(
        self,
        *,
        trigger: Trigger | str = Trigger.MANUAL,
        reason: str = "",
        label: str | None = None,
        pinned: bool = False,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        carry_over: bool = True,
        files: bool = True,
        phase: str | None = None,
        onto: Checkpoint | Literal["nothing"] | None = None,
        calls: Sequence[RecordDraft] = (),
        key: str | None = None,
        attributes: Mapping[str, str | int | float | bool | None] | None = None,
        **known_sections: Any,
    ) -> Checkpoint:
        """Store a checkpoint durably and return it.

        Known sections (`state`, `workflow`, `agents`, ...) are keywords, your own go into `sections`; registered
        objects are asked for theirs. What is not given is carried over from the checkpoint before, unless named in
        `drop`; without `carry_over`, nothing but files is. A run with a workspace captures it too, unless `files` is
        False. With `onto` the run goes back: the new checkpoint is taken on that one instead of the head or nothing.
        `hf.checkpoints(run, key=..., attributes=...)` finds it by the `key` and `attributes` that it is given.
        """
        self.host.check_open("no checkpoint was taken")
        made: Checkpoint = self._watch.checkpoint(
            trigger=trigger, reason=reason, label=label, pinned=pinned, sections=sections, drop=drop,
            carry_over=carry_over, files=files, phase=phase, onto=onto, calls=calls,
            key=check_key(key), attributes=check_attributes(attributes or {}), **known_sections,
        )  # fmt: skip
        return made

    def maybe_checkpoint(
        self,
        event: Trigger | str,
        *,
        reason: str = "",
        phase: str | None = None,
        details: Mapping[str, Any] | None = None,
        sections: Mapping[str, Any] | None = None,
        files: bool | None = None,
        **known_sections: Any,
    ) -> Checkpoint | None:
        """Take a checkpoint if this event's switch is on and the strategy finds it due; return it, or None.

        A failure does not stop the work unless the settings say so: it is warned about, and `run.protection` tells.
        """
        taken: Checkpoint | None = self._watch.maybe(
            event, reason=reason, phase=phase, details=details or {}, sections=sections, files=files, **known_sections
        )
        return taken

    def destructive(
        self, operation: str, detail: str = "", **known_sections: Any
    ) -> AbstractContextManager[Checkpoint | None]:
        """Stand before a destructive operation: `with run.destructive("git_push", "origin main"):` saves first."""
        return self._watch.destructive(operation, detail, **known_sections)

    def register(self, section: str, live: L, *, quiet: bool = False) -> L:
        """Capture an object with snapshot() and restore(value) as a section of every checkpoint from now on.

        It is given its state from the head at once, if that has one, and returned. A quiet one is stored with every
        checkpoint, but alone is no reason for the timer to take one.
        """
        return self.host.attach(section, live, quiet=quiet)

    def log(self, name: str) -> RunLog:
        """Return a log of the run: a growing collection whose items are durable as they are appended.

        It is part of every checkpoint, costs what is appended, and goes back with the run.
        """
        if name in LOG_TYPES:
            raise UsageError(f"{name!r} is a log that the run keeps of itself: choose another name")
        recorder = self.recorder
        return RunLog(self.holdfast.store, recorder.packer, name, recorder.line, self._append_items)

    def _append_items(self, kind: str, path: str, items: Sequence[bytes], count: Callable[[], int]) -> None:
        self.host.check_open(f"nothing was added to {path}")
        self.recorder.append_items(kind, path, items, count)

    def note(self, kind: str, what: str = "", **details: Any) -> None:
        """Add a line to the run's journal; `hf.events(run)` shows it, and it is stored with the next commit."""
        self.host.note(kind, what, **details)

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
        on_interrupt: OnInterrupt | None = None,
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
        self.host.check_open(f"step {name!r} was not done")
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
            phase=self.host.current_phase,
        )
        has_key = options.effect is not None
        step = prepared(self.host, name, call, args, named, version=version, after=after, has_key=has_key)
        return self.host.calls.call("step", name, step.work, options, **step.identity)  # type: ignore[no-any-return]

    def parallel(self, calls: Mapping[str, Callable[[], T]], *, limit: int = 8, **options: Any) -> dict[str, T]:
        """Do several steps at once, each kept as it settles; return their results by name.

        All are let to settle before a failure is raised: alone, or as an ExceptionGroup.
        """
        self.host.check_open("no step was done")
        return parallel.run_parallel(
            {name: partial(self.step, name, call, **options) for name, call in calls.items()}, limit=limit
        )

    def approve(
        self,
        question: str,
        *,
        options: Sequence[str] = ("approve", "reject"),
        name: str | None = None,
        until: datetime | None = None,
        after: Sequence[str] = (),
        **details: Any,
    ) -> Reply:
        """Wait for a person's decision, over restarts; a rejection is an answer like any other.

        The answer holds for this question, with these details, about the results of the calls named in `after`: if
        one of them changes, it lapses and is asked for again.
        """
        host = self.host
        asked = approval(
            host, question, options=options, name=name, until=until, after=after, phase=host.current_phase, **details
        )
        return host.ask(asked)

    def wait_signal(self, name: str, *, until: datetime | None = None) -> Reply:
        """Wait for a named signal; `hf.control.signal(run, name, value)` sends it, also before it is waited for."""
        return self.host.ask(signal_wait(name, until=until, phase=self.host.current_phase))

    def sleep_until(
        self, when: datetime, *, name: str | None = None, kind: Literal["time", "cooldown"] = "time"
    ) -> Reply:
        """Wait for a time, over restarts; under the same name the time that was set first counts."""
        return self.host.ask(time_wait(when, name=name, kind=kind, phase=self.host.current_phase))

    @property
    def status(self) -> RunStatus:
        """How the run stands."""
        return self.host.status

    @property
    def budget(self) -> Budget:
        """What the run may spend, and has spent."""
        return self.host.budget

    @property
    def phases(self) -> Phases:
        """The phases of the run."""
        return self._phases()

    def declare_phases(self, *order: str, plan: str | None = None, replan_limit: int = 2) -> Phases:
        """Name the phases in their order, before any is entered."""
        if self.host.has_part("phases"):
            raise UsageError("the phases are in use already: declare them before the first run.phase() or run.phases")
        return self._phases(order, plan=plan, replan_limit=replan_limit)

    def _phases(self, order: Sequence[str] = (), **options: Any) -> Phases:
        return self.host.part("phases", lambda: phases.Phases(self.host, order, root=self.host.root, **options))

    def phase(self, name: str, *, label: str | None = None) -> Phase:
        """Return a phase: `with run.phase("research"):` does it, `.is_due` tells whether it is still to be done."""
        self.host.calls.begin_attempt(name)
        return self.phases.phase(name, label=label)

    def machine(self, **declared: Any) -> StateMachine:
        """Declare the run's state machine (`states=`, `transitions=`, `guards=`), where it stood."""
        return self.host.part("workflow", lambda: machine.StateMachine(self.host, **declared))

    @property
    def agents(self) -> Agents:
        """The agents of the run, and what became of their calls."""
        return self.host.part("agents", lambda: agents.Agents(self.host))

    @property
    def context(self) -> Context:
        """What the run is about and has learned."""
        host = self.host
        return host.part("context", lambda: context.Context(host, root=host.root, session=host.new_session()))

    @property
    def knowledge(self) -> Knowledge:
        """What was injected into the run, and what it found out."""
        return self.host.part("knowledge", lambda: knowledge.Knowledge(self.host))

    @property
    def mailbox(self) -> Mailbox:
        """Messages between the agents, and their conflicts."""
        return self.host.part("messages", lambda: mailbox.Mailbox(self.host))

    @property
    def team(self) -> Team:
        """Who works on the run."""
        return self.host.part("team", lambda: team.Team(self.host))

    @property
    def subject(self) -> Subject:
        """What the run works on."""
        return self.host.part("subject", lambda: subject.Subject(self.host, session=self.context.session))

    def graph(self, name: str = "graph") -> TaskGraph:
        """Return a task graph of the run: new, or where it stood."""
        return self.host.part("graph", lambda: graphs.Graphs(self.host)).graph(name)

    @property
    def gates(self) -> Gates:
        """Tasks that must pass their gates."""
        return self.host.part("gates", lambda: gates.Gates(self.host))

    def complete(self, detail: str = "") -> None:
        """Say that the run has reached its end: nothing is left to resume. RunStopped if that cannot be stored."""
        self.host.complete(detail)

    @property
    def calls(self) -> Calls:
        """The calls of the run: its steps, agents, gates and tasks, each done once."""
        return self.host.calls

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run's lease for a moment, unless this handle has it already: no other process moves it meanwhile."""
        if self._lease is not None:
            yield
            return
        self._lease = self.holdfast.internals.lease_keeper(self.id, self.host.lease_lost, self.host.lease_s)
        try:
            self._writer.fence = self._lease.take()
            self.recorder.reload(rewinding=True)
            yield
        finally:
            self._give_back()

    @property
    def protection(self) -> Protection:
        """Whether the position is saved; `since` when it is not, and why."""
        return self.recorder.protection

    @property
    def triggers(self) -> Rules:
        """What each trigger causes: which take checkpoints, and which capture files."""
        return self._watch.rules

    def switch(self, *, all: bool | None = None, **triggers: bool) -> None:  # noqa: A002 - reads as what it does
        """Switch triggers on and off: all together, or `switch(agent_complete=False)` one by one."""
        rules = self._watch.rules if all is None else self._watch.rules.switched({"*": all})
        self._watch.rules = rules.switched(triggers)

    def __enter__(self) -> Self:
        """Take the run's lease and watch over it until the end of the block: timer, signals, a last checkpoint."""
        try:
            if self.holdfast.settings.enabled:
                self._take_over()
            self._watch.enter()
        except BaseException:
            self._watch.stop()
            self._give_back()
            raise
        return self

    def _take_over(self) -> None:
        """Take the lease, go to where the run stands, and store a run that is new."""
        if self._lease is None:
            self._lease = self.holdfast.internals.lease_keeper(self.id, self.host.lease_lost, self.host.lease_s)
            self._writer.fence = self._lease.take()
        self._catch_up()
        is_new = self._writer.head is None and not self._writer.number
        self.host.begin()
        if is_new:
            self._watch.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.host.end(error)
            self._watch.leave(error)
        finally:
            self.close()

    def _catch_up(self) -> None:
        """Go to what another process did before it gave the lease back; parts that were looked at before follow."""
        known = self._writer.head_id, self._writer.number
        self.recorder.reload()
        if (self._writer.head_id, self._writer.number) != known:
            self.host.follow()

    def _give_back(self) -> None:
        if self._lease is not None:
            self._writer.fence = None
            self._lease.give_back()
            self._lease = None

    @property
    def workspace(self) -> RunFiles:
        """The run's directory: what it would take to restore a checkpoint into it, and doing so."""
        files = self._writer.files
        if files is None:
            raise UsageError(f"run {self.id!r} has no workspace: open it with hf.run({self.id!r}, workspace=directory)")
        return run_files.RunFiles(self, files)

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the next one will be taken on."""
        return self.recorder.head

    def close(self) -> None:
        """Give the lease back, end timer, signals and threads, and leave what is known of the workspace to the next.

        Closing twice is fine.
        """
        self.host.is_closed = True
        self._watch.stop()
        self._give_back()
        if self._writer.files is not None:
            self._writer.files.save_cache()

    def __repr__(self) -> str:
        return f"<Run {self.id}>"
