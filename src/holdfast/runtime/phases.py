"""The phases of a plan: each runs until it is complete, is then kept with result, artifacts and summary, and skipped.

That one begins, is complete, fails or is left out is a record of a call of kind phase; the section shows where each
stands, and is stored in one commit with the record.

Each ends in a checkpoint. A phase that fails is recorded with its error; entering it again is its next attempt. One
that the process died or left in is resumed in the same attempt.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.encode.outcome import Outcome
from holdfast.errors import UsageError
from holdfast.journal.call_record import container_path
from holdfast.model.failure import failure_of
from holdfast.model.sections import Phases as PhasesSection
from holdfast.model.sections import PhaseState
from holdfast.model.triggers import Trigger
from holdfast.runtime.artifacts import artifact_of
from holdfast.runtime.host import Alone
from holdfast.runtime.phase import Phase
from holdfast.runtime.recorded import check_name, kept, reason_of
from holdfast.runtime.replans import LIMIT, Replans

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from holdfast.model.sections import Artifact, Replan
    from holdfast.runtime.host import Host


class PhasesStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plan stands, for people."""

    plan: str | None
    current: str | None
    next: str | None
    completed: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: tuple[str, ...]
    pending: tuple[str, ...]
    replans: dict[str, int]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.pending or self.failed or self.current)


class Phases:
    """All phases of a run, as a live section."""

    gives_typed = True

    def __init__(
        self,
        host: Host | None = None,
        order: Iterable[str] = (),
        *,
        plan: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        replan_limit: int = LIMIT,
        replan_limits: Mapping[str, int] | None = None,
    ) -> None:
        """Declare the phases in their order, or none and let each join when it is first entered.

        `root` is what artifact paths are relative to; `plan` the file that the phases come from.
        """
        self._host: Host = host or Alone()
        self._order = list(dict.fromkeys(order))
        self._declared = tuple(self._order)
        self._root = None if root is None else Path(root)
        self._plan = None if plan is None else str(plan)
        self._current: str | None = None
        self._states: dict[str, PhaseState] = {}
        self._under_way: list[str] = []  # in this process; what a checkpoint says is under way may have died
        self._metadata: dict[str, Any] = {}
        self.changes = 0
        self.replans = Replans(
            self._host, limit=replan_limit, limits=replan_limits, changed=self._changed, again=self._again
        )

    @property
    def plan(self) -> str | None:
        """The plan's path."""
        return self._plan

    @property
    def order(self) -> tuple[str, ...]:
        """The phases in their order."""
        return tuple(self._order)

    @property
    def current(self) -> str | None:
        """The phase that is under way, or was when the process died."""
        return self._current

    @property
    def completed(self) -> tuple[str, ...]:
        """The phases that are complete, in their order."""
        return self._with("completed")

    @property
    def next(self) -> str | None:
        """The first phase that is still to be done, None if there is none."""
        return next((name for name in self._order if self.state(name).status not in ("completed", "skipped")), None)

    @property
    def metadata(self) -> dict[str, Any]:
        """Whatever else was noted, as a copy."""
        copied: dict[str, Any] = kept(self._metadata)
        return copied

    def note(self, **metadata: Any) -> None:
        """Note anything else under names of your own."""
        with self._host.lock:
            self._metadata = {**self._metadata, **self._host.keep(metadata, "phases metadata")}
            self.changes += 1

    def state(self, name: str) -> PhaseState:
        """Return where a phase stands; one that was never entered is pending."""
        state = self._stored(name)
        if isinstance(state.result, Outcome):
            return msgspec.structs.replace(state, result=self._host.calls.shown(state.result))
        return state

    def _stored(self, name: str) -> PhaseState:
        self._check(name)
        return self._states.get(name, PhaseState())

    def status(self) -> PhasesStatus:
        """Return where the whole plan stands."""
        return PhasesStatus(
            plan=self._plan,
            current=self._current,
            next=self.next,
            completed=self.completed,
            skipped=self._with("skipped"),
            failed=self._with("failed"),
            pending=self._with("pending"),
            replans=self.replans.counts(),
        )

    def phase(self, name: str, *, label: str | None = None) -> Phase:
        """Return a phase, to be entered with `with`; a complete one may be entered again and costs nothing."""
        self._check(name)
        return Phase(self, name, clock=self._host.monotonic, label=label)

    def begin(self, name: str, *, label: str | None = None) -> PhaseState:
        """Start the next attempt of a phase, or continue with one that a process died or left in, and save.

        It is under way until it is completed, has failed, or is left.
        """
        with self._host.lock:
            state = self.state(name)
            if name in self._under_way:
                raise UsageError(f"phase {name!r} is under way already: it cannot be entered inside itself")
            continues = state.status == "running"
            state = self.change(
                name,
                status="running",
                label=state.label if label is None else label,
                attempt=state.attempt if continues else state.attempt + 1,
                resumes=state.resumes + 1 if continues else state.resumes,
                started_at=state.started_at if continues else self._host.now(),
                completed_at=None,
                error=None,
                reason="",
            )
            if not continues:
                self._mark("started", name)
            self._under_way.append(name)
            self._current = name
        did = "continues" if continues else "begins"
        try:
            self._save(Trigger.PHASE_TRANSITION, name, f"{did} (attempt {state.attempt})")
        except BaseException:
            self.leave(name)
            raise
        return state

    def complete(self, name: str, *, took_s: float = 0.0) -> None:
        """End a phase well and save."""
        with self._host.lock:
            spent_s = self.state(name).duration_s + took_s
            result = self.state(name).result
            self.change(name, status="completed", completed_at=self._host.now(), duration_s=spent_s)
            self._mark("done", name, result=result)
            if result is not None:
                self.change(name, result=self._host.calls.outcome(container_path(name), value=result))
            self._ended(name)
        self._save(Trigger.PHASE_COMPLETE, name, "is complete")

    def fail(self, name: str, error: BaseException, *, took_s: float = 0.0) -> None:
        """End an attempt of a phase with its error and save; the phase stays due."""
        with self._host.lock:
            spent_s = self.state(name).duration_s + took_s
            self.change(name, status="failed", error=failure_of(error), duration_s=spent_s)
            self._mark("failed", name, error=error)
            self._ended(name)
        self._save(Trigger.ERROR_OCCURRED, name, "failed", str(error))

    def leave(self, name: str) -> None:
        """Let go of a phase that is under way, to be resumed in a later process of the run."""
        with self._host.lock:
            if name in self._under_way:
                self._under_way.remove(name)

    def add_artifact(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        type: str = "file",  # noqa: A002 - the field's name
        id: str | None = None,  # noqa: A002 - the field's name
    ) -> Artifact:
        """Keep a file's path and checksum of now with a phase; one of the same id is replaced."""
        artifact = artifact_of(path, type=type, id=id, root=self._root)
        with self._host.lock:
            known = {one.id: one for one in self.state(name).artifacts}
            self.change(name, artifacts=list({**known, artifact.id: artifact}.values()))
        return artifact

    def keep(self, name: str, result: Any) -> None:
        """Keep a result with a phase; one that cannot be stored is refused, with its path."""
        self.change(name, result=self._host.keep(result, f"the result of phase {name!r}"))

    def skip(self, name: str, reason: str = "") -> None:
        """Leave a phase out: it counts as settled and is not due; a complete one stays complete."""
        with self._host.lock:
            state = self.state(name)
            if state.status in ("completed", "skipped"):
                return
            self.change(name, status="skipped", reason=reason, completed_at=self._host.now())
            self._mark("skipped", name)
            self._ended(name)
        self._save(Trigger.PHASE_TRANSITION, name, "skipped", reason)

    def retry(self, name: str, reason: str = "") -> None:
        """Make a phase due again, whatever came of it; its next attempt counts."""
        with self._host.lock:
            if not self._again(name, reason):
                return
        self._save(Trigger.PHASE_TRANSITION, name, "is due again", reason)

    def replan(self, name: str, reason: str) -> Replan:
        """Count that a phase is replanned, within its limit, and make it due again."""
        self._check(name)
        return self.replans.add(name, reason)

    def change(self, name: str, **fields: Any) -> PhaseState:
        """Keep a phase with other fields, a summary for example, and return it; saved with the next checkpoint."""
        with self._host.lock:
            state = msgspec.structs.replace(self._stored(name), **fields)
            self._states[name] = state
            if name not in self._order and not self._declared:
                self._order.append(name)
            self.changes += 1
            return state

    def snapshot(self) -> PhasesSection:
        """Return all of it as a section."""
        return PhasesSection(
            plan=self._plan,
            current=self._current,
            order=list(self._order),
            phases=dict(self._states),
            replans=list(self.replans.history()),
            limits=self.replans.limits,
            metadata=self._metadata,
        )

    def restore(self, value: Any) -> None:
        """Take a section back; where the program declares an order, that one stays."""
        section: PhasesSection = typed("phases", value)
        with self._host.lock:
            self._order = list(self._declared or section.order)
            self._plan = section.plan if self._plan is None else self._plan
            self._current = section.current
            self._states = dict(section.phases)
            self._metadata = kept(section.metadata)
            self.replans.restore(section.replans, section.limits)
            self.changes += 1

    def _with(self, status: str) -> tuple[str, ...]:
        names = [*self._order, *(name for name in self._states if name not in self._order)]
        return tuple(name for name in names if self._states.get(name, PhaseState()).status == status)

    def _check(self, name: str) -> None:
        check_name("a phase", name)
        if self._declared and name not in self._declared and name not in self._states:
            raise UsageError(f"there is no phase {name!r}: declared are {', '.join(self._declared)}")

    def _ended(self, name: str) -> None:
        """Note that a phase is no longer under way; what is round it is the current one again."""
        self.leave(name)
        if self._current == name or self._under_way:
            self._current = self._under_way[-1] if self._under_way else None

    def _save(self, trigger: Trigger, name: str, what: str, why: str = "") -> None:
        self._host.save(trigger, reason_of(f"{name} {what}" + (f": {why}" if why else "")), phase=name)

    def _again(self, name: str, reason: str) -> bool:
        """Make a settled phase pending; tell whether it was settled."""
        if self.state(name).status in ("pending", "running"):
            return False
        self.change(name, status="pending", reason=reason, result=None, completed_at=None)
        self._host.calls.void(container_path(name))
        return True

    def _mark(self, event: str, name: str, **given: Any) -> None:
        """Record how a phase stands, as the call that it is."""
        state = self.state(name)
        self._host.calls.mark(
            event,
            "phase",
            container_path(name),
            phase=name,
            attempts=state.attempt,
            duration_s=state.duration_s,
            **given,
        )

    def _changed(self) -> None:
        self.changes += 1


def following_label(
    section: PhasesSection, labels: Iterable[str], now: datetime, *, before: Iterable[str]
) -> tuple[str, PhasesSection] | None:
    """Return the phase that the new state label of an issue names, and the phases as they stand then; None if none is.

    A phase's label is the one that it was begun with, or `state:NAME`. What comes before it and is not settled is
    skipped; it and what comes after are due again.
    """
    known = set(labels)
    states = {name: section.phases.get(name, PhaseState()) for name in section.order}
    named = [name for name, state in states.items() if (state.label or f"state:{name}") in known]
    if len(named) != 1 or (states[named[0]].label or f"state:{named[0]}") in set(before):
        return None  # a label that was there before says nothing new of the phase
    (name,) = named
    place = section.order.index(name)
    reason = f"the label {states[name].label or f'state:{name}'!r} says {name}"
    for one in section.order[:place]:
        if states[one].status not in ("completed", "skipped"):
            states[one] = msgspec.structs.replace(states[one], status="skipped", reason=reason, completed_at=now)
    for one in section.order[place:]:
        if states[one].status in ("completed", "skipped"):
            states[one] = msgspec.structs.replace(
                states[one], status="pending", reason=reason, result=None, completed_at=None
            )
    changed = {one: state for one, state in states.items() if state != section.phases.get(one, PhaseState())}
    if not changed:
        return None
    current = section.current if section.current not in changed else None
    return name, msgspec.structs.replace(section, current=current, phases={**section.phases, **changed})
