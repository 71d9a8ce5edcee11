"""A task with gates: a worker, then gates in order; a failed gate is mended and all gates are tried again.

Every stage is saved, so after a crash no finished call and no passed gate is repeated, unless files changed since: then
the journal says so and the gates run again. After a fix all gates run from the first, because mending one thing may
break what an earlier gate found sound.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.capture.sections import typed
from holdfast.errors import UsageError
from holdfast.model import sections
from holdfast.model.sections import CoderResult, Failure, Fix, GateResult
from holdfast.model.triggers import Trigger
from holdfast.runtime.attempt import Retry, attempt, check_retry, failure_of
from holdfast.runtime.checks import Gate, GateFailure, as_gate, as_work, bound, run_gate
from holdfast.runtime.command import CommandResult
from holdfast.runtime.host import Alone
from holdfast.runtime.leaving import is_leaving
from holdfast.runtime.nearest import hint
from holdfast.runtime.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.model.sections import CoderStatus
    from holdfast.runtime.checks import Work
    from holdfast.runtime.host import Host

BEFORE, RESPONDED, COMPLETE, FAILED = "before_execution", "coder_response", "complete", "failed"
_LONGEST_MESSAGE = 2000


class Response(NamedTuple):
    """What a worker may return to say more than "done": with an issue or an error the gates are not tried."""

    response: Any
    status: CoderStatus = "success"
    message: str = ""


class GatedOutcome(NamedTuple):
    """How a task with gates ended."""

    name: str
    success: bool
    stage: str
    response: Any
    coder_result: CoderResult | None
    gates: tuple[GateResult, ...]
    fix_attempts: int
    error: Failure | None


class Gates:
    """All tasks with gates of a run, by name."""

    gives_typed = True

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or Alone()
        self._states: dict[str, sections.GatedTask] = {}
        self.changes = 0

    def task(self, name: str, worker: Work | str, gates: Sequence[Gate | Work | str], **options: Any) -> GatedTask:
        """Return a task, new or where it stood; the options are those of `GatedTask`."""
        return GatedTask(self._host, name, worker, gates, book=self, **options)

    def snapshot(self) -> sections.Gates:
        """Return where every task stands."""
        with self._host.lock:
            return sections.Gates(tasks=dict(self._states))

    def restore(self, value: sections.Gates | dict[str, Any]) -> None:
        """Take every task's position back."""
        section: sections.Gates = typed("gates", value)
        with self._host.lock:
            self._states = dict(section.tasks)
            self.changes += 1

    def state(self, name: str) -> sections.GatedTask:
        """Return where a task stands."""
        with self._host.lock:
            if name not in self._states:
                raise UsageError(f"there is no task {name!r} with gates: {hint(name, self._states)}")
            return self._states[name]

    def begin(self, name: str, plan_path: str | None) -> None:
        """Take a task in, unless it is there."""
        with self._host.lock:
            if name not in self._states:
                now = self._host.now()
                state = sections.GatedTask(stage=BEFORE, plan_path=plan_path, started_at=now, updated_at=now)
                self._put(name, state)

    def change(self, name: str, **fields: Any) -> None:
        """Change a task's position."""
        with self._host.lock:
            state = msgspec.structs.replace(self.state(name), updated_at=self._host.now(), **fields)
            self._put(name, state)

    def _put(self, name: str, state: sections.GatedTask) -> None:
        self._states[name] = state
        self.changes += 1


class GatedTask:
    """Work that must pass gates: `run` it, as often as needed, in any life of the run.

    `fingerprint` names the content of the files that the gates look at; `files=True` takes them into the checkpoints
    that follow the worker and the fixes.
    """

    def __init__(
        self,
        host: Host | None,
        name: str,
        worker: Work | str,
        gates: Sequence[Gate | Work | str],
        *,
        fix: Work | str | None = None,
        max_fixes: int = 3,
        plan_path: str | None = None,
        fingerprint: Callable[[], str] | None = None,
        retries: int = 0,
        backoff_s: float = 1.0,
        timeout_s: float | None = None,
        files: bool | None = None,
        book: Gates | None = None,
    ) -> None:
        if isinstance(gates, str):
            raise UsageError(f"gates={gates!r} is one text: give a list, gates=[{gates!r}]")
        if not isinstance(max_fixes, int) or max_fixes < 0:
            raise UsageError(f"max_fixes={max_fixes!r}: give a number from 0 up")
        self._retry, self._timeout_s = Retry(retries, backoff_s), timeout_s
        check_retry(self._retry, timeout_s)
        self._host = host or Alone()
        self.name = name
        self._worker = as_work(worker, f"the worker of {name}")
        self._fix = None if fix is None else as_work(fix, f"the fix of {name}")
        self._max_fixes = max_fixes
        self._gates = [as_gate(gate, level) for level, gate in enumerate(gates, 1)]
        self._plan_path = plan_path
        self._fingerprint = fingerprint
        self._files = files
        self.book = book or Gates(self._host)

    @property
    def state(self) -> sections.GatedTask:
        """Where the task stands."""
        return self.book.state(self.name)

    def run(self) -> GatedOutcome:
        """Go on until the task is complete or has failed, and say how it ended."""
        self.book.begin(self.name, self._plan_path)
        self._look_for_changes()
        while (step := self._next()) is not None:
            step()
        return self.outcome

    @property
    def outcome(self) -> GatedOutcome:
        """How far the task is."""
        state = self.state
        return GatedOutcome(
            self.name,
            state.stage == COMPLETE,
            state.stage,
            state.coder_response,
            state.coder_result,
            tuple(state.gate_results),
            state.fix_attempt,
            state.error,
        )

    def retry(self) -> None:
        """Let a failed task be run again: from the worker if that failed, else from the first gate."""
        state = self.state
        if state.stage == FAILED:
            is_done = state.coder_result is not None and state.coder_result.status == "success"
            stage = RESPONDED if is_done else BEFORE
            self.book.change(self.name, stage=stage, gate_results=[], fix_attempt=0, error=None)

    def _next(self) -> Callable[[], None] | None:
        """Decide by what is recorded alone what comes next; nothing if the task has ended."""
        state = self.state
        if state.stage in (COMPLETE, FAILED):
            return None
        if state.stage == BEFORE:
            return self._work
        failed = next((result for result in state.gate_results if not result.success), None)
        if failed is not None:
            may_fix = self._fix is not None and state.fix_attempt < self._max_fixes
            return partial(self._mend, failed) if may_fix else partial(self._give_up, failed)
        if len(state.gate_results) < len(self._gates):
            return partial(self._check, self._gates[len(state.gate_results)])
        return partial(self._reach, COMPLETE, Trigger.STAGE_COMPLETE)

    def _look_for_changes(self) -> None:
        """Let gates run again if the files, or the gates themselves, are not what they were."""
        state = self.state
        if state.stage in (BEFORE, COMPLETE, FAILED):
            return
        begun = RESPONDED if not state.fix_attempt else f"fix_{state.fix_attempt}"
        now = self._fingerprint() if self._fingerprint is not None else None
        if now is not None and state.fingerprint is not None and now != state.fingerprint:
            what = f"{self.name}: files changed since {state.stage}, so all gates run again"
            self._host.note("files changed", what, passed=sum(result.success for result in state.gate_results))
            self.book.change(self.name, stage=begun, gate_results=[], fingerprint=now)
            return
        for result, gate in zip(state.gate_results, [*self._gates, *[None] * len(state.gate_results)], strict=False):
            if gate is None or not gate.gave(result):
                self._host.note("gates changed", f"{self.name}: {result.description} is not what stands here now")
                self.book.change(self.name, stage=begun, gate_results=[])
                return

    def _work(self) -> None:
        """Call the worker; what it returns is saved before anything is made of it."""
        state = self.state
        if state.attempts and state.coder_result is None:
            self._host.note("unknown outcome", f"{self.name}: its worker was under way and is called again")
        self.book.change(self.name, attempts=state.attempts + 1)
        self._host.save(Trigger.STAGE_COMPLETE, f"{self.name}: {BEFORE}")
        watch = Stopwatch(self._host.monotonic)
        try:
            response = _response(self._attempt(bound(self._worker, self._host)))
            said = self._host.keep(response.response, f"the response of the worker of {self.name!r}")
        except Exception as error:
            if is_leaving(error):
                raise
            result = CoderResult(status="error", message=str(error))
            self._fail(failure_of(error), coder_result=result, duration_s=watch.took_s)
            return
        result = CoderResult(status=response.status, message=response.message)
        done = {"coder_response": said, "coder_result": result, "duration_s": watch.took_s}
        if response.status != "success":
            self._fail(Failure(message=response.message or response.status, code=response.status), **done)
        else:
            self._reach(RESPONDED, Trigger.STAGE_COMPLETE, files=self._files, **done)

    def _check(self, gate: Gate) -> None:
        result = run_gate(gate, self._host)
        results = [*self.state.gate_results, result]
        self._reach(f"gate_{result.level}", Trigger.GATE_COMPLETE, gate_results=results)

    def _mend(self, failed: GateResult) -> None:
        """Call the fix with what failed; its end is saved, so it is not paid for twice."""
        fix = self._fix
        assert fix is not None
        state = self.state
        number = state.fix_attempt + 1
        failure = GateFailure(self.name, failed, number, self._max_fixes)
        try:
            response = _response(self._attempt(bound(fix, self._host, failure)))
            said = self._host.keep(response.response, f"the response of fix {number} of {self.name!r}")
        except Exception as error:
            if is_leaving(error):
                raise
            self._fail(failure_of(error))
            return
        if response.status != "success":
            self._fail(Failure(message=f"fix {number}: {response.message}", code=response.status))
            return
        done = Fix(
            attempt=number,
            failure=failed,
            response=said,
            completed_at=self._host.now(),
        )
        self._reach(
            f"fix_{number}",
            Trigger.STAGE_COMPLETE,
            files=self._files,
            fix_attempt=number,
            fixes=[*state.fixes, done],
            gate_results=[],
        )

    def _give_up(self, failed: GateResult) -> None:
        tried = f" after {self.state.fix_attempt} fixes" if self.state.fix_attempt else ""
        said = (failed.stderr or failed.stdout).strip()[-_LONGEST_MESSAGE:]
        message = f"gate {failed.level} ({failed.description}) failed{tried}" + (f": {said}" if said else "")
        self._fail(Failure(message=message, code="GateFailed"))

    def _fail(self, error: Failure, **fields: Any) -> None:
        self._reach(FAILED, Trigger.STAGE_COMPLETE, error=error, **fields)

    def _reach(self, stage: str, trigger: Trigger, *, files: bool | None = None, **fields: Any) -> None:
        """Record a stage and what came of it, and save."""
        fingerprint = self._fingerprint() if self._fingerprint is not None else None
        self.book.change(self.name, stage=stage, fingerprint=fingerprint, **fields)
        self._host.save(trigger, f"{self.name}: {stage}", files=files)

    def _attempt(self, call: Callable[[], Any]) -> Any:
        return attempt(call, self._retry, self._host, timeout_s=self._timeout_s, name=self.name)


def _response(returned: Any) -> Response:
    """Return what a worker gave back as a response; a command that exits with an error is one."""
    if isinstance(returned, Response):
        return returned
    if isinstance(returned, CoderResult):
        return Response(None, returned.status, returned.message)
    if not isinstance(returned, CommandResult):
        return Response(returned)
    if returned.succeeded:
        return Response(returned.output)
    return Response(returned.stdout, "error", f"exit code {returned.exit_code}: {returned.problem}")
