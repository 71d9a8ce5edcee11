"""One task of a flow: asked about, carried out once, checked by its gates, its artifacts and summary kept."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.capture.redact import text_redactor
from holdfast.encode.outcome import Outcome
from holdfast.errors import HoldfastError
from holdfast.flow.actions import Place, may_retry, with_summary, without_summary
from holdfast.flow.digests import question_digest
from holdfast.flow.position import place_name
from holdfast.flow.template import fill
from holdfast.journal.outcomes import summary_of
from holdfast.model.runtime_sections import Wait
from holdfast.model.sections import GatedTask as GatedState
from holdfast.model.sections import GateResult
from holdfast.runtime.agents import call_name
from holdfast.runtime.attempt import Retry, attempt
from holdfast.runtime.checks import Gate as Check
from holdfast.runtime.gates import FAILED, GatedTask, Response
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.output import cut
from holdfast.runtime.steps import prepared, step_options
from holdfast.runtime.stopwatch import Stopwatch
from holdfast.runtime.waits import Question as Asked
from holdfast.settings.apply import redaction_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from holdfast.flow.actions import Actions
    from holdfast.flow.digests import FlowDigests
    from holdfast.flow.facts import Facts
    from holdfast.flow.model import Flow, Gate, Task
    from holdfast.flow.position import Kept
    from holdfast.model.runtime_sections import Reply
    from holdfast.run import Run
    from holdfast.runtime.checks import GateFailure

_OUTPUT_BYTES = 64 << 10
_FAILURE_BYTES = 16 << 10


class Rejected(HoldfastError):
    """A person said no."""

    place: str
    by: str

    def sentence(self) -> str:
        """Say who."""
        return f"{self.place} was rejected" + (f" by {self.by}" if self.by else "")


class TaskFailed(HoldfastError):
    """A task did not come to its end."""

    task: str
    detail: str
    template = "task {task}: {detail}"


class ArtifactMissing(HoldfastError):
    """A task ended well, and what it was to make is not there."""

    task: str
    pattern: str
    template = "{task} was to make {pattern!r}, and there is no such file"


class Tasks:
    """Carries out the tasks of one flow in one run."""

    def __init__(
        self,
        run: Run,
        flow: Flow,
        position: Kept,
        *,
        actions: Actions,
        root: Path,
        digests: FlowDigests,
        emit: Callable[..., None],
    ) -> None:
        self._run = run
        self._flow = flow
        self._position = position
        self._actions = actions
        self._digests = digests
        self.budget = run.budget
        self._root = root
        self._emit = emit
        self.asker = Asker(run, emit)
        self._looked_at: set[str] = set()
        self._written_at = _last_write(run)
        self.done = 0
        """How many tasks were carried out in this process."""
        self.rejected: Rejected | None = None
        """A no that ends the run."""

    def step_name(self, phase: str, task: str) -> str:
        """Return the name of a task's step in the present round."""
        return place_name(phase, self._position.value.rounds.get(phase, 1), task)

    def seen(self, phase: str, task: str | None = None) -> dict[str, str]:
        """Return the versions of what a task, or a phase, builds on: its needs and all before it.

        What comes before on other ways than in order is known by its definition, which is part of the digests.
        """
        paths = (
            [self.step_name(phase, need) for need in self._flow.phases[phase].work(phase)[task].needs] if task else []
        )
        for before in self._flow.phases if self._flow.in_order else ():
            if before == phase:
                break
            paths += [self.step_name(before, one) for one in self._flow.phases[before].work(before)]
        return {path: kept.version for path in paths if (kept := self._run.calls.kept(path)) is not None}

    def carry_out(self, phase: str, task: str, definition: Task, facts: Facts) -> dict[str, Any]:
        """Do a task, or return what came of it in an earlier process of the run."""
        place = Place(phase, task, self.step_name(phase, task))
        if self.is_settled(phase, task):
            return self._keep(place, definition, facts)
        if (
            definition.approve is not None
            and self._flow.phases[phase].tasks
            and not self._is_wanted(place, definition, facts)
        ):
            with self._run.lock:
                self._position.change(left_out={**self._position.value.left_out, place.name: "rejected"})
            self._emit("task_skipped", phase=phase, task=task, text="rejected")
            return {"result": None, "summary": ""}
        self.budget.check()
        watch = Stopwatch(self._run.host.monotonic)
        guard = self._run.destructive(definition.destructive, place.name) if definition.destructive else nullcontext()
        try:
            with guard:
                done = self._step(place, definition, facts)
        except Exception as error:
            if is_interruption(error):
                raise
            self._actions.forget_answers(place)
            self._emit("task_failed", phase=phase, task=task, text=str(error), data={"duration_s": watch.took_s})
            raise
        if (self._run.calls.record(place.name) or {}).get("event") == "skipped":
            self._emit("task_skipped", phase=phase, task=task, text="it may have happened already")
            return done
        with self._run.lock:
            self.done += 1
        took = {"duration_s": watch.took_s}
        self._emit("task_done", phase=phase, task=task, text=done.get("summary", ""), data=took)
        self._actions.conversation.hand_on(facts, place)
        self.budget.check()
        return done

    def is_settled(self, phase: str, task: str) -> bool:
        """Tell whether what a task came to is kept and valid, with what it builds on as that is now."""
        digest = self._digests.phases[phase].tasks[task]
        path = self.step_name(phase, task)
        return self._run.calls.is_valid("step", path, inputs=digest, after=self.seen(phase, task))

    def tell_begun(self, place: Place, definition: Task, *, has_happened: bool) -> None:
        """Say that a task begins, and that its effect has happened before."""
        told = {"agent": definition.agent} if definition.agent else {}
        text = f"this has happened, and happens again: {definition.effect}" if has_happened else ""
        self._emit("task_started", phase=place.phase, task=place.task, text=text, data=told)

    def _has_ended(self, place: Place) -> bool:
        """Tell whether a task came to its end before, whether or not that still counts."""
        return (self._run.calls.record(place.name) or {}).get("event") in ("done", "voided")

    def _keep(self, place: Place, definition: Task, facts: Facts) -> dict[str, Any]:
        done = self._step(place, definition, facts)
        self._emit("task_kept", phase=place.phase, task=place.task, text=done.get("summary", ""))
        return done

    def _step(self, place: Place, definition: Task, facts: Facts) -> dict[str, Any]:
        gated = bool(definition.gates)

        def retried(error: Exception) -> bool:
            again = may_retry(error)
            if again:
                self._actions.forget_answers(place)
                self._emit("task_retry", phase=place.phase, task=place.task, text=str(error))
            return again

        has_happened = definition.effect is not None and self._has_ended(place)
        work = _Work(self, place, definition, facts, has_happened=has_happened)
        has_key = definition.effect is not None
        step = prepared(self._run.host, place.name, work.gated if gated else work.plain, (), {}, has_key=has_key)
        options = step_options(
            retries=0 if gated else definition.retries,
            backoff=definition.backoff,
            retry_on=retried,
            effect=definition.effect,
            on_unknown=definition.on_unknown,
            on_interrupt=definition.on_interrupt,
            wrote_files=definition.writes and self._run.host.has_workspace,
            phase=self._run.host.current_phase,
            is_container=True,
            store=work.stored,
            version=work.version,
        )
        digest = self._digests.phases[place.phase].tasks[place.task]
        identity = {**step.identity, "inputs": digest, "after": self.seen(place.phase, place.task)}
        done: Any = self._run.calls.call("step", place.name, step.work, options, **identity)
        # Of a skipped one, it is what the person gave.
        return with_summary(done) if isinstance(done, dict) else {"result": done}

    def result_of(self, phase: str, task: str, done: dict[str, Any]) -> dict[str, Any]:
        """Return what the graph shows of a task that is done: its step, and its summary from there."""
        step, summary = self.step_name(phase, task), done.get("summary", "")
        outcome = self._run.calls.outcome(step, value=summary)
        if isinstance(outcome, Outcome):
            is_told = summary == summary_of(done.get("result"))
            summary = outcome._replace(keys=("result" if is_told else "summary",), is_summary=is_told)
        return {"step": step, "summary": summary}

    def stored(self, done: Any, inner: tuple[str, str] | None) -> Any:
        """Return what is kept of a task: what a call inside it has is referred to."""
        if not isinstance(done, dict):
            return done
        calls, made = self._run.calls, without_summary(done)
        found = calls.kept(inner[0]) if inner is not None else None
        if inner is None or found is None:
            return made
        path, key = inner
        known = calls.result(found)
        known = known.get(key) if isinstance(known, dict) else None
        there: dict[str, Any] = known if isinstance(known, dict) else {}
        for name in ("result", "output", "stderr"):
            if isinstance(made.get(name), (str, dict, list)) and there.get(name) == made[name]:
                made[name] = Outcome(path, found.version, (key, name))
        return made

    def _is_wanted(self, place: Place, definition: Task, facts: Facts) -> bool:
        """Ask a person; False if the task is to be left out, Rejected if the run is to end here."""
        approve = definition.approve
        assert approve is not None
        text = fill(approve.question, facts)
        about = self.asker.about(approve.question, facts, self._digests.phases[place.phase].tasks[place.task])
        seen = self.seen(place.phase, place.task)
        question = Question(f"approve:{place.name}", text, place.phase, place.task, about=about, after=seen)
        try:
            self.asker.ask(question)
        except Rejected as rejected:
            if approve.on_reject == "skip":
                return False
            self.rejected = rejected
            self.asker.again(question)
            raise
        return True

    def plain(self, place: Place, definition: Task, facts: Facts) -> tuple[dict[str, Any], str | None]:
        """Carry out a task without gates; one that had gates before, and its work done, is done.

        The version of what is there already is returned with it.
        """
        calls, work = self._run.calls, f"{place.name}/work"
        action, seen = self._digests.phases[place.phase].actions[place.task], self.seen(place.phase, place.task)
        with calls.outside():
            found = calls.kept(work) if calls.is_valid("task", work, inputs=action, after=seen) else None
        said = calls.result(found)["response"] if found is not None else None
        if found is None or not isinstance(said, dict):
            return self.finished(self._actions.perform(definition, place, facts), definition, facts, place), None
        before = calls.kept(place.name) or found  # with the fixes that its gates asked for
        return self.finished(with_summary(said), definition, facts, place), before.version

    def agent_call(self, agent: str, place: Place) -> str:
        """Return the path of an agent's call for a task, made here."""
        return self._run.calls.path_of(call_name(agent, place.name))

    def gated(self, place: Place, definition: Task, facts: Facts) -> tuple[dict[str, Any], str]:
        """Carry out a task and its gates, from where an earlier process left them; the version of its work with it."""
        name = place.name
        inner = _Gated(
            self._run,
            self._actions,
            place,
            definition,
            facts=facts,
            emit=self._emit,
            made=lambda: self._artifacts(definition, place),
            refer=self.stored,
        )
        task: GatedTask = self._run.gates.task(
            name,
            inner.work,
            [
                Check(inner.check(number, gate), gate.title, gate.level or number)
                for number, gate in enumerate(definition.gates, 1)
            ],
            fix=inner.fix if definition.fix is not None else None,
            max_fixes=definition.max_fixes,
            files=definition.writes and self._run.host.has_workspace,
            fingerprint=self._fingerprint(name),
            inputs=self._digests.phases[place.phase].actions[place.task],
            after=self.seen(place.phase, place.task),
            store=inner.stored,
        )
        if name in self._run.gates.snapshot().tasks and task.state.stage == FAILED:
            task.retry()
        with self._run.calls.outside():  # its work is the same when only its gates changed
            if task.is_worked:
                inner.kept(task)
            outcome = task.run()
            version = task.version if outcome.success else ""
        if not outcome.success:
            raise TaskFailed(place.name, outcome.error.message if outcome.error else outcome.stage)
        done = with_summary(outcome.response if isinstance(outcome.response, dict) else {"result": outcome.response})
        gates = [{"level": one.level, "gate": one.description, "success": one.success} for one in outcome.gates]
        done = {**done, "gates": gates, "fixes": outcome.fix_attempts}
        return self.finished(done, definition, facts, place), version

    def _fingerprint(self, name: str) -> Callable[[], str] | None:
        """Return what tells a gated task whether files changed between its last stage and this process of the run.

        Within a process nobody but the task itself is expected to write, so only the beginning is looked at. After a
        failed gate it is the fix that writes, and may have been interrupted: it is done again, and all gates with it.
        """
        if not self._run.host.has_workspace:
            return None
        state = self._run.gates.snapshot().tasks.get(name)
        token = int(state.fingerprint) if state is not None and state.fingerprint else 0
        if state is not None and state.updated_at is not None and name not in self._looked_at:
            passed = all(result.success for result in state.gate_results)
            token += passed and self._written_at > state.updated_at.timestamp()
        self._looked_at.add(name)
        return lambda: str(token)

    def finished(self, done: dict[str, Any], definition: Task, facts: Facts, place: Place) -> dict[str, Any]:
        """Return what came of a task with its artifacts and its summary."""
        made = self._artifacts(definition, place)
        done = {**done, **({"artifacts": made} if made else {})}
        if definition.summary or definition.knowledge:
            known = facts.having(
                result=done.get("result"),
                output=done.get("output", done.get("result")),
                tasks={**facts("tasks"), place.task: {**done, "status": "completed"}},
            )
            self._actions.conversation.learn(definition.knowledge, place, known)
            if definition.summary:
                done["summary"] = fill(definition.summary, known)
        return done

    def _artifacts(self, definition: Task, place: Place) -> list[str]:
        made: list[str] = []
        for pattern in definition.artifacts:
            found = sorted(path for path in self._root.glob(pattern) if path.is_file())
            if not found:
                raise ArtifactMissing(place.name, pattern)
            made += [path.relative_to(self._root).as_posix() for path in found]
        return list(dict.fromkeys(made))


def _last_write(run: Run) -> float:
    """Return when somebody last wrote to what gates looked at in an earlier process: 0 if nobody did.

    Asked before this process saves anything, because a checkpoint takes the files in as they are.
    """
    if run.head is None or "gates" not in run.head.sections or not run.host.has_workspace:
        return 0.0
    last = 0.0
    for change in run.workspace.changes(run.workspace.before_entry):
        try:
            last = max(last, (run.workspace.path / change.path).lstat().st_mtime)
        except OSError:
            return float("inf")  # it was taken away, nobody knows when
    return last


class _Work:
    """The two forms of a task as functions of one name each, so that a step knows them again in the next process."""

    def __init__(self, tasks: Tasks, place: Place, definition: Task, facts: Facts, *, has_happened: bool) -> None:
        self._tasks = tasks
        self._given = (place, definition, facts)
        self._has_happened = has_happened
        self._is_begun = False
        self._inner: tuple[str, str] | None = None
        self._version: str | None = None

    def plain(self) -> dict[str, Any]:
        self._begin()
        place, definition, _facts = self._given
        if definition.agent:
            self._inner = self._tasks.agent_call(definition.agent, place), "output"
        done, self._version = self._tasks.plain(*self._given)
        return done

    def version(self) -> str | None:
        """Return the version of the work, where the task itself did none of it."""
        return self._version

    def gated(self) -> dict[str, Any]:
        self._begin()
        self._inner = f"{self._given[0].name}/work", "response"
        done, self._version = self._tasks.gated(*self._given)
        return done

    def stored(self, done: Any) -> Any:
        """Return what is kept of the task."""
        return self._tasks.stored(done, self._inner)

    def _begin(self) -> None:
        """Say that the task begins, at its first try: one that is kept or skipped does not come here."""
        place, definition, _ = self._given
        if not self._is_begun:
            self._is_begun = True
            self._tasks.tell_begun(place, definition, has_happened=self._has_happened)


class _Gated:
    """Worker, gates and fix of one task."""

    def __init__(
        self,
        run: Run,
        actions: Actions,
        place: Place,
        definition: Task,
        *,
        facts: Facts,
        emit: Callable[..., None],
        made: Callable[[], object],
        refer: Callable[[Any, tuple[str, str] | None], Any],
    ) -> None:
        self._actions = actions
        self._run = run
        self._emit = emit
        self._made = made
        self._place = place
        self._definition = definition
        self._facts = facts
        self._response: dict[str, Any] = {}
        self._refer = refer
        self._inner: tuple[str, str] | None = None

    def kept(self, task: GatedTask) -> None:
        """Learn what is there from an earlier process, and say so."""
        known = self._run.gates.snapshot().tasks.get(task.name)
        if known is None:
            return
        said = self._run.calls.shown(known.coder_response)
        if isinstance(said, dict):
            self._response = with_summary(said)
        for result in known.gate_results:
            if result.success:
                self._say("gate_kept", result.description, level=result.level)

    def work(self) -> Response:
        definition = self._definition
        if definition.agent:
            self._inner = self._run.calls.path_of(call_name(definition.agent, self._place.name)), "output"

        def failed(number: int, error: Exception, pause_s: float | None) -> None:
            self._actions.forget_answers(self._place)
            if pause_s is not None:
                self._actions.budget.reserve(retries=1)
                self._emit(
                    "task_retry",
                    phase=self._place.phase,
                    task=self._place.task,
                    text=str(error),
                    data={"attempt": number},
                )

        def once() -> dict[str, Any]:
            done = self._actions.perform(definition, self._place, self._facts)
            self._made()  # raises if something that it was to make is missing
            return done

        self._response = attempt(
            once,
            Retry(definition.retries, definition.backoff, transient=may_retry),
            self._run.host,
            name=self._place.name,
            failed=failed,
        )
        return Response(self._response)

    def stored(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return what is kept of the worker's answer."""
        return {**said, "response": self._refer(said["response"], self._inner)}

    def check(self, number: int, gate: Gate) -> Callable[[], GateResult]:
        """Return a gate as a function that runs its command and says what came of it."""

        def run() -> GateResult:
            name = gate.title
            level = gate.level or number
            self._say("gate_started", name, level=level)
            facts = self._known()
            result = self._actions.execute(gate.run, gate, self._place, facts, "task_output", gate=name)
            problem = result.problem if result.timed_out or result.exit_code in (126, 127) else ""
            said = GateResult(
                level=level,
                description=name,
                success=result.succeeded,
                command=result.command,
                stdout=cut(result.stdout, _OUTPUT_BYTES),
                stderr="\n".join(filter(None, (cut(result.stderr, _OUTPUT_BYTES), problem))),
                exit_code=result.exit_code,
                duration_s=result.duration_s,
            )
            self._say("gate_done" if said.success else "gate_failed", name, level=level, duration_s=result.duration_s)
            return said

        return run

    def fix(self, failure: GateFailure) -> Response:
        """Fix what a gate found."""
        fix = self._definition.fix
        assert fix is not None
        place = Place(self._place.phase, self._place.task, f"{self._place.name} fix {failure.attempt}")
        self._emit("fix_started", phase=place.phase, task=place.task, data={"attempt": failure.attempt})
        gate = failure.gate
        facts = self._known().having(
            failure=cut(str(failure), _FAILURE_BYTES),
            attempt=failure.attempt,
            gate={
                "command": gate.command,
                "description": gate.description,
                "level": gate.level,
                "exit_code": gate.exit_code,
                "stdout": cut(gate.stdout, _FAILURE_BYTES),
                "stderr": cut(gate.stderr, _FAILURE_BYTES),
            },
        )
        done = self._actions.perform(fix, place, facts)
        self._emit("fix_done", phase=place.phase, task=place.task, text=done.get("summary", ""))
        return Response(done)

    def _known(self) -> Facts:
        """Return the facts with what the task itself came to so far."""
        response = self._response
        own = {**response, "status": "running", "output": response.get("output", response.get("result"))}
        return self._facts.having(
            result=response.get("result"),
            output=own["output"],
            tasks={**self._facts("tasks"), self._place.task: own},
        )

    def _say(self, kind: str, gate: str, **data: Any) -> None:
        self._emit(kind, phase=self._place.phase, task=self._place.task, gate=gate, data=data)


class Question(NamedTuple):
    """A question of a flow to a person; its name is the same in every process of the run."""

    name: str
    text: str
    phase: str
    task: str | None = None
    options: tuple[str, ...] = ("approve", "reject")
    about: str = ""
    """A digest of what is asked, of what work: an answer holds only for that."""
    after: Mapping[str, str] = {}
    """The versions of what was done before."""


class Asker:
    """Asks the questions of a flow; an answer holds for what it was about."""

    def __init__(self, run: Run, emit: Callable[..., None]) -> None:
        self._run = run
        self._emit = emit
        self._told: set[str] = set()

    def ask(self, question: Question) -> None:
        """Wait for a person's yes; Rejected after a no."""
        reply = self.reply(question)
        if not reply.approved:
            raise Rejected(question.text, reply.by)

    def reply(self, question: Question) -> Reply:
        """Wait for a person's choice."""
        place = {"phase": question.phase, "task": question.task}
        details: dict[str, Any] = {name: value for name, value in place.items() if value is not None}
        wait = Wait(
            id=question.name, kind="approval", question=question.text, options=question.options, details=details
        )
        reply = self._run.host.ask(Asked(wait, question.about, question.after, phase=question.phase))
        version = self._run.calls.version(question.name)
        if version not in self._told:
            self._told.add(version)
            self._emit("answered", **place, text=f"{question.text}: {reply.choice}", data={"by": reply.by})
        return reply

    def about(self, template: str, facts: Facts, definition: str = "") -> str:
        """Return what a question is about, without what the store keeps out: it is the same in the next process."""
        owner = self._run.holdfast
        clean = text_redactor(owner.internals.types, redaction_rules(owner.settings.redaction))
        return question_digest(template, facts, definition=definition, clean=clean)

    def again(self, question: Question) -> None:
        """Let a question be asked again the next time it comes up."""
        with self._run.lock:
            self._run.calls.void(question.name)


def is_worked(state: GatedState) -> bool:
    """Tell whether the worker of a gated task is done, whatever its gates said."""
    return state.coder_result is not None and state.coder_result.status == "success"
