"""The state machine of a workflow: declared states, allowed transitions, guards, and a history with times.

COMPLETE, ERROR and ABORTED are final and need no declaration; ERROR and ABORTED can be reached from anywhere.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import IllegalTransition, UsageError
from holdfast.model.sections import StateVisit, Workflow
from holdfast.model.triggers import Trigger
from holdfast.runtime.host import Alone
from holdfast.runtime.recorded import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.runtime.host import Host

    Guard = Callable[[], bool | str]

COMPLETE, ERROR, ABORTED = "COMPLETE", "ERROR", "ABORTED"
FINAL = frozenset({COMPLETE, ERROR, ABORTED})
EMERGENCY = (ERROR, ABORTED)
KEEP_HISTORY = 1000


class StateMachine:
    """Where a workflow stands, and the only ways on from there; every transition is saved."""

    gives_typed = True

    def __init__(
        self,
        host: Host | None = None,
        *,
        states: Iterable[str],
        transitions: Mapping[str, Iterable[str]] | None = None,
        initial: str | None = None,
        guards: Mapping[tuple[str, str], Guard] | None = None,
        keep_history: int = KEEP_HISTORY,
    ) -> None:
        """Declare the machine; without transitions the states follow one another, the last one by COMPLETE.

        A guard returns True, or False or the reason why not; it is asked while nobody else can change the run, so it
        is quick. The first state is the initial one unless another is named. Of its history the machine keeps the last
        stays, so that a loop of thousands costs no more than one of ten. UsageError names all that is wrong.
        """
        names = list(dict.fromkeys(states))
        ways = _in_order(names) if transitions is None else {name: _listed(to) for name, to in transitions.items()}
        self._host: Host = host or Alone()
        self._guards = dict(guards or {})
        self._initial = initial if initial is not None else next(iter(names), "")
        problems = _problems(names, ways, self._initial, self._guards)
        if problems:
            raise UsageError(f"this state machine cannot work: {'; '.join(problems)}")
        self._states = (*names, *sorted(FINAL.difference(names)))
        self._ways = {name: tuple(dict.fromkeys([*ways.get(name, ()), *EMERGENCY])) for name in names}
        if keep_history < 1:
            raise UsageError(f"keep_history={keep_history!r}: keep at least the present state")
        self._keep_history = keep_history
        self._earlier_visits = 0
        self.changes = 0
        self._current = self._initial
        self._previous: str | None = None
        self._pending: dict[str, str] = {}
        self._history = [StateVisit(state=self._initial, entered_at=self._host.now(), trigger="")]

    @property
    def states(self) -> tuple[str, ...]:
        """All states, the final ones last."""
        return self._states

    @property
    def current(self) -> str:
        """The state that it is in."""
        return self._current

    @property
    def previous(self) -> str | None:
        """The state that it was in before, None in the first."""
        return self._previous

    @property
    def history(self) -> tuple[StateVisit, ...]:
        """The last stays in a state, oldest first; the last one has not ended."""
        return tuple(self._history)

    @property
    def pending(self) -> tuple[str, ...]:
        """The states that were asked for and wait for their guard."""
        return tuple(self._pending)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The states that can follow the present one, guards aside."""
        return self._allowed(self.current)

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow."""
        return self.current in FINAL

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end well; the run is complete with it."""
        return self.current == COMPLETE

    def to(self, state: str, trigger: str = "") -> None:
        """Continue to a state and save; IllegalTransition lists the legal ones, or says why the guard refuses."""
        with self._host.lock:
            self._check_declared(state)
            refused = self._refusal(state)
            if refused is not None:
                raise IllegalTransition(f"its guard refuses: {refused}", self.current, state, self.allowed)
            came_from = self._enter(state, trigger)
        self._saved(came_from, trigger)

    def request(self, state: str, trigger: str = "") -> bool:
        """Continue to a state if its guard holds, or let it wait as pending; tell whether it was taken at once."""
        with self._host.lock:
            self._check_declared(state)
            refused = self._refusal(state)
            if refused is None:
                came_from = self._enter(state, trigger)
            elif self._pending.get(state) != trigger:
                self._pending[state] = trigger
                self.changes += 1
        if refused is None:
            self._saved(came_from, trigger)
            return True
        self._host.offer(Trigger.STATE_TRANSITION, reason_of(f"{self.current} waits to become {state}: {refused}"))
        return False

    def withdraw(self, state: str) -> bool:
        """No longer ask for a pending state; tell whether it was pending."""
        with self._host.lock:
            if self._pending.pop(state, None) is None:
                return False
            self.changes += 1
            return True

    def advance(self) -> list[str]:
        """Take every pending transition whose guard holds now, the first asked for first; return those taken."""
        taken: list[str] = []
        while True:
            with self._host.lock:
                ready = next((state for state in self._pending if self._refusal(state) is None), None)
                if ready is None:
                    return taken
                trigger = self._pending[ready]
                came_from = self._enter(ready, trigger)
            taken.append(ready)
            self._saved(came_from, trigger)

    def reset(self, state: str | None = None, trigger: str = "reset") -> None:
        """Stand in a declared state whatever the present one, by default the initial one: for recovery; not saved."""
        wanted = self._initial if state is None else state
        if wanted not in self._states:
            raise self._undeclared(wanted)
        with self._host.lock:
            self._pending.clear()
            came_from = self._enter(wanted, trigger)
        self._host.note("reset", f"{came_from} -> {wanted}")

    def snapshot(self) -> Workflow:
        """Return its position as a section."""
        return Workflow(
            current_state=self.current,
            previous_state=self._previous,
            history=list(self._history),
            pending_transitions=list(self._pending),
            pending_triggers={state: trigger for state, trigger in self._pending.items() if trigger},
            earlier_visits=self._earlier_visits,
            states=list(self._states),
        )

    def restore(self, value: Any) -> None:
        """Take a position back; UsageError if a state in it is no longer declared."""
        section: Workflow = typed("workflow", value)
        for state in (section.current_state, *section.pending_transitions):
            if state not in self._states:
                raise self._undeclared(state)
        with self._host.lock:
            self._current, self._previous = section.current_state, section.previous_state
            self._history = list(section.history)
            self._earlier_visits = section.earlier_visits
            self._pending = {state: section.pending_triggers.get(state, "") for state in section.pending_transitions}
            self.changes += 1

    def _allowed(self, state: str) -> tuple[str, ...]:
        return self._ways.get(state, ())

    def _check_declared(self, state: str) -> None:
        if self.is_final:
            raise IllegalTransition(f"{self.current} ends the workflow", self.current, state, ())
        if state not in self._states:
            raise IllegalTransition("there is no such state", self.current, state, self.allowed)
        if state not in self.allowed:
            raise IllegalTransition("no such transition is declared", self.current, state, self.allowed)

    def _refusal(self, state: str) -> str | None:
        """Return why the guard of a transition refuses, None if it does not."""
        guard = self._guards.get((self.current, state))
        verdict = True if guard is None else guard()
        if inspect.isawaitable(verdict):
            if inspect.iscoroutine(verdict):
                verdict.close()
            raise UsageError(
                f"the guard of {self.current!r} to {state!r} is asynchronous, and it is asked inside the run's lock: "
                "give a plain function"
            )
        if isinstance(verdict, str):
            return verdict or "it gives no reason"
        return None if verdict else "it does not hold"

    def _enter(self, state: str, trigger: str) -> str:
        """Leave the present state, which is returned; what cannot follow the new one is no longer pending."""
        now = self._host.now()
        if self._history and self._history[-1].exited_at is None:
            self._history[-1] = msgspec.structs.replace(self._history[-1], exited_at=now)
        self._history.append(StateVisit(state=state, entered_at=now, trigger=trigger))
        excess = len(self._history) - self._keep_history
        if excess > 0:
            del self._history[:excess]
            self._earlier_visits += excess
        self._previous, self._current = self._current, state
        self._pending.pop(state, None)
        reachable = self._allowed(state)
        self._pending = {wanted: by for wanted, by in self._pending.items() if wanted in reachable}
        self.changes += 1
        return self._previous

    def _saved(self, came_from: str, trigger: str) -> None:
        reason = f"{came_from} -> {self.current}" + (f" ({trigger})" if trigger else "")
        self._host.save(Trigger.STATE_TRANSITION, reason_of(reason))

    def _undeclared(self, state: str) -> UsageError:
        return UsageError(
            f"this state machine declares no state {state!r} (it has {', '.join(self._states)}): declare it, or go "
            "back to a checkpoint in a state that is declared"
        )


def _listed(states: Iterable[str]) -> list[str]:
    return [states] if isinstance(states, str) else list(states)


def _in_order(names: list[str]) -> dict[str, list[str]]:
    ways = [name for name in names if name not in FINAL]
    return {name: [following] for name, following in zip(ways, [*ways[1:], COMPLETE], strict=False)}


def _problems(
    names: list[str], ways: Mapping[str, list[str]], initial: str, guards: Mapping[tuple[str, str], Guard]
) -> list[str]:
    """Return all that is wrong with a declaration."""
    if not names:
        return ["it has no states"]
    found: list[str] = []
    known = FINAL.union(names)
    if initial not in names or initial in FINAL:
        found.append(f"it cannot begin in {initial!r}, which is {'final' if initial in FINAL else 'no state of it'}")
    for name, following in ways.items():
        if name not in known:
            found.append(f"a transition leads from {name!r}, which is not a state of it")
        elif name in FINAL and following:
            found.append(f"a transition leads from {name}, which is final")
        found += [f"{name} leads to {state!r}, which is not a state of it" for state in following if state not in known]
    for source, target in guards:
        if target in EMERGENCY:
            found.append(f"a guard stands before {target}, which must be reachable from anywhere")
        elif target not in ways.get(source, ()):
            found.append(f"a guard is for {source} -> {target}, which is not a transition of it")
    if not found:
        lost = [name for name in names if name not in _reached(initial, ways)]
        found += [f"no way leads from {initial} to {name}" for name in lost]
    return found


def _reached(initial: str, ways: Mapping[str, list[str]]) -> set[str]:
    reached, todo = {*EMERGENCY, COMPLETE}, [initial]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += ways.get(name, ())
    return reached
