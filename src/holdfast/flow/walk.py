"""The way through a flow: which phase comes next, and what becomes of one that fails.

Every decision is made from what is recorded, so a walk that starts over after a crash continues where the record ends.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import HoldfastError, UsageError
from holdfast.flow.actions import Place
from holdfast.flow.condition import parse_condition
from holdfast.flow.facts import Facts
from holdfast.flow.model import END
from holdfast.flow.phase_tasks import PhaseFailed, failure_of_tasks, first_line
from holdfast.flow.position import question_name, raised, without
from holdfast.flow.resume import kept_artifacts
from holdfast.flow.tasks import Question, Rejected
from holdfast.flow.template import fill
from holdfast.model.triggers import Trigger
from holdfast.runtime.calls import CallOptions
from holdfast.runtime.ledger import named
from holdfast.runtime.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from holdfast.flow.actions import Actions
    from holdfast.flow.digests import FlowDigests
    from holdfast.flow.model import Budget as Limits
    from holdfast.flow.model import Flow, Phase, Replan
    from holdfast.flow.phase_tasks import PhaseTasks
    from holdfast.flow.position import Kept
    from holdfast.flow.reporter import Reporter
    from holdfast.flow.states import States
    from holdfast.flow.tasks import Tasks
    from holdfast.model.sections import Failure
    from holdfast.run import Run
    from holdfast.runtime.phase import Phase as EnteredPhase


class FlowStopped(HoldfastError):
    """The flow was given up at a phase; the run can be resumed from there."""

    phase: str
    detail: str

    def sentence(self) -> str:
        """Say where and why."""
        return f"stopped at phase {self.phase}: {first_line(self.detail)}"


class ReplanFailed(PhaseFailed):
    """What was to replan a failed phase failed itself."""


class Walk:
    """One process of a flow, from where its run stands."""

    def __init__(
        self,
        run: Run,
        flow: Flow,
        params: dict[str, Any],
        position: Kept,
        *,
        digests: FlowDigests,
        actions: Actions,
        tasks: Tasks,
        phase_tasks: PhaseTasks,
        states: States,
        report: Reporter,
        root: Path,
    ) -> None:
        self._run = run
        self._flow = flow
        self._params = params
        self._position = position
        self._digests = digests
        self._actions = actions
        self._tasks = tasks
        self._phase_tasks = phase_tasks
        self._states = states
        self._report = report
        self._root = root
        self._gone = self._missing()

    def facts(self, name: str) -> Facts:
        """Return the values behind names, as a phase sees them."""
        return Facts(self._run, self._flow, self._params, self._position, budget=self._run.budget, phase=name)

    def carry_on(self) -> None:
        """Go through the phases until the flow is over."""
        run, position = self._run, self._position
        if position.value.is_done:
            run.complete("it was complete already")
            return
        stopped = position.value.stopped
        if stopped is not None and stopped in self._flow.phases:
            self._take_up(stopped)
        while (name := position.value.current) not in (None, END):
            assert name is not None
            self._pass(name)
            following = self._next(name)
            if self._is_back(name, following):
                run.host.offer(Trigger.LOOP_COMPLETE, f"{name} -> {following}", phase=name)
            with run.lock:
                marks = without(position.value.marks, name)
                position.change(current=following, marks=marks, retries=without(position.value.retries, name))
            self._states.move(name, following)
        with run.lock:
            position.change(is_done=True)
        run.complete(f"flow {self._flow.name} is complete")

    def _take_up(self, name: str) -> None:
        """Resume at the phase at which the run was given up: what it may do so often, it may do as often again."""
        run, position = self._run, self._position
        value, phase = position.value, self._flow.phases[name]
        counts: dict[str, Any] = {"retries": without(value.retries, name)}
        if value.marks.get(name) != "open":
            counts["excused"] = {**value.excused, name: value.visits.get(name, 0)}
        elif phase.repeat is not None and value.repeats.get(name, 1) >= phase.repeat.limit:
            counts["repeats"] = {**value.repeats, name: 0}
        with run.lock:
            position.change(stopped=None, **counts)
        if run.phases.state(name).status == "failed":
            run.phases.retry(name, "resumed")

    def _pass(self, name: str) -> None:
        """Bring a phase to its end, whatever that takes; FlowStopped if the run is given up there."""
        phase = self._flow.phases[name]
        position = self._position
        if position.value.marks.get(name) == "kept":
            self._report("phase_kept", phase=name, text=self._run.phases.state(name).summary)
            return
        self._enter(name, phase)
        if name in position.value.due:
            position.change(due=[one for one in position.value.due if one != name])
            self._run.phases.retry(name, "its definition changed")
        while True:
            state = self._run.phases.state(name)
            if state.status in ("completed", "skipped"):
                if state.status == "completed" and self._repeats(name, phase):
                    continue
                return
            if name in position.value.replanning:
                self._replan(name, phase)
            elif state.status == "failed":
                self._after_failure(name, phase, state.error)
            else:
                self._attempt(name, phase)

    def _enter(self, name: str, phase: Phase) -> None:
        """Begin a new visit, unless one was begun and not left."""
        position = self._position
        if position.value.marks.get(name) == "open":
            return
        visits = position.value.visits.get(name, 0)
        most = phase.max_visits
        if visits - position.value.excused.get(name, 0) >= most:
            raise self._stop(name, f"it was visited {visits} times: run it again for {most} more, or raise max_visits")
        visited = raised(position.value.visits, name)
        self._new_round(name, visits=visited, repeats={**position.value.repeats, name: 1})

    def _new_round(self, name: str, **fields: Any) -> None:
        """Let all tasks of a phase be done again; saved with the phase's beginning."""
        position = self._position
        with self._run.lock:
            position.change(
                rounds=raised(position.value.rounds, name),
                marks={**position.value.marks, name: "open"},
                retries=without(position.value.retries, name),
                **fields,
            )
        if self._run.phases.state(name).status not in ("pending", "running"):
            self._run.phases.retry(name, "once more")

    def _attempt(self, name: str, phase: Phase) -> None:
        """Go through a phase once; what comes of it is recorded."""
        facts = self.facts(name)
        if phase.when is not None and not self._holds(phase.when, name):
            self._skip(name, f"{phase.when} does not hold")
            return
        if phase.approve is not None and not self._is_approved(name, phase, facts):
            self._skip(name, "rejected")
            return
        watch = Stopwatch(self._run.host.monotonic)
        self._report("phase_started", phase=name, data={"visit": self._position.value.rounds.get(name, 1)})
        try:
            label = f"state:{name}" if self._flow.subject is not None else None
            with self._run.phase(name, label=label) as entered, self._budget_of(name, phase):
                done = self._phase_tasks.do(name, phase, facts)
                self._keep_artifacts(name, entered, done)
                entered.summarise(_summary(done))
        except PhaseFailed as error:
            self._report("phase_failed", phase=name, text=error.detail, data={"duration_s": watch.took_s})
            self._report.catch_up()
            if self._tasks.rejected is not None:
                raise self._stop(name, str(self._tasks.rejected)) from error
            return
        self._report("phase_done", phase=name, text=_summary(done), data={"duration_s": watch.took_s})
        self._tell_gone(name)
        self._report.catch_up()

    def _keep_artifacts(self, name: str, entered: EnteredPhase, done: Mapping[str, dict[str, Any]]) -> None:
        """Keep the files that tasks made with their phase; what another task of it moved on is not there."""
        for task, result in done.items():
            for path in result.get("artifacts", ()):
                try:
                    if (self._root / path).exists():
                        entered.add_artifact(path)
                except UsageError as error:
                    raise failure_of_tasks(name, {task: error}) from error

    def _tell_gone(self, name: str) -> None:
        """Say which artifacts of earlier tasks a phase deleted or moved: it may have been by mistake."""
        gone = self._missing()
        for path in sorted(gone.keys() - self._gone.keys()):
            text = f"{path}, which {gone[path]} made, was deleted or moved; `--redo {gone[path]}` makes it again"
            self._report("artifact_gone", phase=name, text=text)
        self._gone = gone

    def _missing(self) -> dict[str, str]:
        """Return the artifacts of kept tasks that are not there, each with its task."""
        made = kept_artifacts(self._run, self._flow, self._position, self._digests)
        return {
            path: "/".join(task) for task, paths in made.items() for path in paths if not (self._root / path).exists()
        }

    def _next(self, name: str) -> str:
        phase = self._flow.phases[name]
        for route in phase.next:
            if route.when is None or self._holds(route.when, name):
                return route.to
        return self._flow.after(name)

    def _holds(self, condition: str, name: str) -> bool:
        """Tell whether a condition of a phase holds; one that does not fit what it meets stops the run there."""
        try:
            return parse_condition(condition).holds(self.facts(name))
        except UsageError as error:
            raise self._stop(name, f"{condition!r}: {error}") from error

    def _is_back(self, name: str, following: str) -> bool:
        order = [*self._flow.phases, END]
        return order.index(following) <= order.index(name)

    def _repeats(self, name: str, phase: Phase) -> bool:
        """Begin another round of a phase that repeats, if its condition does not hold yet."""
        repeat = phase.repeat
        if repeat is None or self._holds(repeat.until, name):
            return False
        number = self._position.value.repeats.get(name, 1)
        if number >= repeat.limit:
            if repeat.on_limit == "continue":
                return False
            tried = f"after {repeat.limit} rounds {repeat.until!r} does not hold"
            raise self._stop(name, f"{tried}: run it again for {repeat.limit} more, or raise the limit of repeat")
        self._run.host.offer(Trigger.LOOP_COMPLETE, f"{name}: round {number}", phase=name)
        self._new_round(name, repeats=raised(self._position.value.repeats, name))
        return True

    def _after_failure(self, name: str, phase: Phase, error: Failure | None) -> None:
        """Decide on a phase that failed: replan it unless that failed, try again, leave it out, or give up."""
        run, position = self._run, self._position
        failure = (error.message if error else "it failed").removeprefix(f"phase {name}: ")
        if phase.replan is not None and (error is None or error.code != ReplanFailed.__name__):
            run.phases.replans.allow(name, phase.replan.limit)
            if run.phases.replans.left(name) > 0:
                with run.lock:
                    position.change(replanning={**position.value.replanning, name: failure})
                run.phases.replan(name, failure[:500])
                return
            head, *below = failure.split("\n")
            failure = "\n".join([f"{head} (replanned {phase.replan.limit} times already)", *below])
        rule = phase.on_failure or self._flow.on_failure
        choice: str = rule.do
        if choice == "retry":
            tries = position.value.retries.get(name, 0)
            choice = rule.then if tries >= rule.limit else "retry"
            if choice == "retry":
                with run.lock:
                    position.change(retries=raised(position.value.retries, name))
        if choice == "ask":
            choice = self._choice(name, failure)
        if choice == "retry":
            run.phases.retry(name, "tried again")
        elif choice == "skip":
            self._skip(name, failure)
        else:
            raise self._stop(name, failure)

    def _choice(self, name: str, failure: str) -> Literal["retry", "skip", "abort"]:
        number = self._run.phases.state(name).attempt
        text = f"Phase {name} failed: {first_line(failure)}"[:1000]
        question = Question(f"failed:{name}:{number}", text, name, options=("retry", "skip", "abort"))
        choice = self._tasks.asker.reply(question).choice
        if choice == "abort":
            self._tasks.asker.again(question)
        return choice  # type: ignore[return-value]

    def _replan(self, name: str, phase: Phase) -> None:
        """Let the replan that was counted be done, then begin the phase again."""
        run, position = self._run, self._position
        reason = position.value.replanning[name]
        number = run.phases.replans.count(name)
        replan = phase.replan
        if replan is not None:
            self._report("replan", phase=name, text=reason, data={"number": number, "limit": replan.limit})
            facts = self.facts(name).having(failure=reason, attempt=number)
            place = Place(name, "replan", f"{name}/replan {number}")
            try:
                _Replan(self._actions, run, place, replan, facts).run()
            except Exception as error:
                told = failure_of_tasks(name, {"replan": error})
                if not isinstance(told, PhaseFailed):
                    raise
                failed = ReplanFailed(name, f"its replan failed: {told.detail}")
                self._report("phase_failed", phase=name, text=failed.detail)
                with run.lock:
                    position.change(replanning=without(position.value.replanning, name))
                    run.phases.fail(name, failed)
                return
        with run.lock:
            position.change(replanning=without(position.value.replanning, name))
        self._new_round(name)

    def _skip(self, name: str, reason: str) -> None:
        self._run.phases.skip(name, reason)
        self._report("phase_skipped", phase=name, text=reason)

    def _stop(self, name: str, reason: str) -> FlowStopped:
        """Record that the run is given up here; the next call begins with this phase."""
        with self._run.lock:
            self._position.change(stopped=name)
        self._run.host.save(Trigger.ERROR_OCCURRED, f"stopped at {name}: {first_line(reason)}"[:500], phase=name)
        self._report("flow_failed", phase=name, text=reason)
        return FlowStopped(name, reason)

    def _is_approved(self, name: str, phase: Phase, facts: Facts) -> bool:
        approve = phase.approve
        assert approve is not None
        number = self._position.value.rounds.get(name, 1)
        try:
            text = fill(approve.question, facts)
        except UsageError as error:
            raise self._stop(name, f"approve: {error}") from error
        about = self._tasks.asker.about(approve.question, facts, self._digests.phases[name].phase)
        question = Question(question_name(name, number), text, name, about=about, after=self._tasks.seen(name))
        try:
            self._tasks.asker.ask(question)
        except Rejected as rejected:
            if approve.on_reject == "skip":
                return False
            self._tasks.asker.again(question)
            raise self._stop(name, str(rejected)) from rejected
        return True

    @contextmanager
    def _budget_of(self, name: str, phase: Phase) -> Iterator[None]:
        """Let a phase that has a budget spend from it; what it spends counts for the whole run, too."""
        if phase.budget is None:
            yield
            return
        limits = phase.budget
        with self._run.budget.child(f"phase:{name}", limits_of(limits), warn_at=limits.warn_at) as budget:
            self._tasks.budget = self._actions.budget = self._run.host.part_budget = budget
            try:
                yield
            finally:
                self._tasks.budget = self._actions.budget = self._run.budget
                self._run.host.part_budget = None


class _Replan:
    """A replan as a step."""

    def __init__(self, actions: Actions, run: Run, place: Place, replan: Replan, facts: Facts) -> None:
        self._actions = actions
        self._run = run
        self._place = place
        self._replan = replan
        self._facts = facts

    def run(self) -> None:
        """Do it, unless it is done."""
        options = CallOptions(wrote_files=self._run.host.has_workspace, phase=self._place.phase, is_container=True)
        self._run.calls.call("replan", self._place.name, self.work, options, is_numbered=False)

    def work(self) -> dict[str, Any]:
        """Replan."""
        return self._actions.perform(self._replan, self._place, self._facts)


def limits_of(limits: Limits | None) -> dict[str, Any]:
    """Return limits under the names that budgets have."""
    known = limits.limits if limits else {}
    return {named(name): value for name, value in known.items()}


def _summary(done: Mapping[str, dict[str, Any]]) -> str:
    said = {task: str(result.get("summary", "")) for task, result in done.items()}
    if len(said) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{task}: {text}" for task, text in said.items() if text)
