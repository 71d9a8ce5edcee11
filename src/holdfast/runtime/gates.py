"""A task with gates: a worker, then gates in order; a failed gate is fixed and all gates are tried again.

Worker, gates and fixes are calls: after a crash none that is done is repeated, unless files, gates or the work changed
since. After a fix all gates run from the first, because fixing one thing may break what an earlier gate found sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from blake3 import blake3

from holdfast.capture.sections import typed
from holdfast.encode.outcome import Outcome
from holdfast.errors import UsageError
from holdfast.model import sections
from holdfast.model.failure import failure_of
from holdfast.model.nearest import hint
from holdfast.model.sections import CoderResult, Failure, Fix, GateResult
from holdfast.model.triggers import Trigger
from holdfast.runtime.attempt import Retry
from holdfast.runtime.calls import CallOptions, CallView, check_options
from holdfast.runtime.checks import Gate, GateFailure, as_gate, as_work, bound, run_gate
from holdfast.runtime.command import CommandResult
from holdfast.runtime.host import Alone
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.model.sections import CoderStatus
    from holdfast.runtime.calls import OnUnknown
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
        """Return where a task stands; what its worker and its fixes said comes from the records of their calls."""
        state, shown = self.stored(name), self._host.calls.shown
        fixes = [msgspec.structs.replace(one, response=shown(one.response)) for one in state.fixes]
        return msgspec.structs.replace(state, coder_response=shown(state.coder_response), fixes=fixes)

    def stored(self, name: str) -> sections.GatedTask:
        """Return where a task stands, as it is stored."""
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
            state = msgspec.structs.replace(self.stored(name), updated_at=self._host.now(), **fields)
            self._put(name, state)

    def _put(self, name: str, state: sections.GatedTask) -> None:
        self._states[name] = state
        self.changes += 1


class GatedTask:
    """Work that must pass gates: `run` it, as often as needed, whenever the program runs.

    `fingerprint` names the content of the files that the gates look at: if it changed since a gate passed, the gate
    runs again. `inputs` is a digest of what the worker works on, `after` the versions of the calls that it builds on:
    with others it works again. `files=True` takes the files into the checkpoints that follow the worker and the fixes.
    `store` makes of what the worker said what is kept of it.
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
        on_unknown: OnUnknown | None = None,
        files: bool | None = None,
        inputs: str = "",
        after: Mapping[str, str] | None = None,
        store: Callable[[Any], Any] | None = None,
        book: Gates | None = None,
    ) -> None:
        if isinstance(gates, str):
            raise UsageError(f"gates={gates!r} is one text: give a list, gates=[{gates!r}]")
        if not isinstance(max_fixes, int) or max_fixes < 0:
            raise UsageError(f"max_fixes={max_fixes!r}: give a number from 0 up")
        self._host = host or Alone()
        self.name = name
        self._worker = as_work(worker, f"the worker of {name}")
        self._fix = None if fix is None else as_work(fix, f"the fix of {name}")
        self._max_fixes = max_fixes
        self._gates = [as_gate(gate, level) for level, gate in enumerate(gates, 1)]
        self._plan_path = plan_path
        self._fingerprint = fingerprint
        self._inputs = inputs
        self._after = after or {}
        self._store = store
        self._files = files
        self._options = CallOptions(
            retry=Retry(retries, backoff_s),
            timeout_s=timeout_s,
            on_unknown=on_unknown,
            wrote_files=files,
            trigger=Trigger.STAGE_COMPLETE,
            failure=Trigger.STAGE_COMPLETE,
        )
        check_options(self._options)
        self._is_settled = False
        self.book = book or Gates(self._host)

    @property
    def state(self) -> sections.GatedTask:
        """Where the task stands."""
        return self.book.stored(self.name)

    def run(self) -> GatedOutcome:
        """Continue until the task is complete or has failed, and say how it ended.

        Worker, gates and fixes are calls, so what is kept of them and still valid is not done again.
        """
        with self._host.grouped():
            return self._run()

    def _run(self) -> GatedOutcome:
        self.book.begin(self.name, self._plan_path)
        self._is_settled = self.state.stage == COMPLETE
        try:
            self._work()
            number = self._fixes_kept()
            while (failed := self._check_all(number)) is not None:
                if self._fix is None or number >= self._max_fixes:
                    self._give_up(failed, number)
                    return self.outcome
                number += 1
                self._apply_fix(failed, number)
        except _FailedError:
            return self.outcome
        if self.state.stage != COMPLETE:
            self._reach(COMPLETE, error=None)
            self._host.save(Trigger.STAGE_COMPLETE, f"{self.name}: {COMPLETE}")
        return self.outcome

    @property
    def outcome(self) -> GatedOutcome:
        """How far the task is."""
        state = self.state
        return GatedOutcome(
            self.name,
            state.stage == COMPLETE,
            state.stage,
            self._host.calls.shown(state.coder_response),
            state.coder_result,
            tuple(state.gate_results),
            state.fix_attempt,
            state.error,
        )

    @property
    def is_worked(self) -> bool:
        """Whether what its worker did is kept, whatever its gates said."""
        return self._host.calls.is_valid("task", self._path("work"), inputs=self._inputs, after=self._after)

    @property
    def version(self) -> str:
        """The version of its work: of the worker's, and of every fix since; its gates change nothing about that."""
        versions = list(self._version("work").values())
        for number in range(self._fixes_kept()):
            versions += self._version(f"fix:{number + 1}").values()
        return versions[0] if len(versions) == 1 else blake3("\0".join(versions).encode()).hexdigest(16)

    def retry(self) -> None:
        """Let a task that failed at its gates begin again: with the gates if its worker is done, without fixes."""
        if self.state.stage == FAILED:
            self.book.change(
                self.name, stage=RESPONDED, gate_results=[], fix_attempt=0, error=None, tries=self.state.tries + 1
            )

    def _path(self, what: str) -> str:
        """Return the name of a call of this task; after `retry` gates and fixes are others."""
        tries = 1 if what == "work" else self.state.tries
        return f"{self.name}/{what}" if tries == 1 else f"{self.name}/{what}~try{tries}"

    def _version(self, what: str) -> dict[str, str]:
        path = self._host.calls.path_of(self._path(what))
        return {path: self._host.calls.version(path)}

    def _call(self, kind: str, what: str, work: Callable[[], Any], *, view: CallView, **given: Any) -> Any:
        options = self._options._replace(view=view, **given.pop("options", {}))
        return self._host.calls.call(kind, self._path(what), work, options, is_numbered=False, **given)

    def _work(self) -> None:
        """Call the worker, unless what it did is kept."""
        state = self.state
        if not self.is_worked:
            self._before(state)

        def done(said: Any, outcome: Any) -> None:
            self._reach(
                RESPONDED,
                coder_response=_response_of(outcome, said),
                coder_result=CoderResult(status="success", message=said["message"]),
                gate_results=[],
                fix_attempt=0,
                error=None,
            )

        watch = Stopwatch(self._host.monotonic)
        view = CallView(done=done, failed=self._failed_work)
        reasons = {"done": f"{self.name}: {RESPONDED}", "failed": f"{self.name}: {FAILED}"}
        work = lambda: self._answered(bound(self._worker, self._host)())  # noqa: E731
        try:
            given = {"reasons": reasons, "store": self._store}
            said = self._call("task", "work", work, view=view, inputs=self._inputs, after=self._after, options=given)
        except Exception as error:
            if is_interruption(error):
                raise
            raise _FailedError from error
        said = said if isinstance(said, dict) else {"response": said, "message": "it may have happened already"}
        if self.state.coder_result is None:  # the work was done before it had gates, or is left out
            done(said, self._host.calls.outcome(self._host.calls.path_of(self._path("work")), value=said))
        if self.state.coder_result is not state.coder_result:
            self.book.change(self.name, duration_s=watch.took_s)

    def _before(self, state: sections.GatedTask) -> None:
        """Reach the first stage, and save it."""
        if state.attempts and state.stage == BEFORE:
            self._host.note("unknown outcome", f"{self.name}: its worker was under way and is called again")
        self._reach(BEFORE, attempts=state.attempts + 1)
        self._host.save(Trigger.STAGE_COMPLETE, f"{self.name}: {BEFORE}")

    def _answered(self, returned: Any) -> dict[str, Any]:
        """Return what a worker or a fix said; Refused if it says itself that it did not succeed."""
        response = _response(returned)
        if response.status != "success":
            raise Refused(response)
        return {"response": response.response, "message": response.message}

    def _failed_work(self, error: BaseException) -> None:
        if isinstance(error, Refused):
            said = {"coder_response": error.response.response}
            result = CoderResult(status=error.response.status, message=error.response.message)
        else:
            said, result = {}, CoderResult(status="error", message=str(error))
        self._reach(FAILED, coder_result=result, error=_failure(error), **said)

    def _fixes_kept(self) -> int:
        """Return how many fixes of the present work are kept."""
        calls, work = self._host.calls, self._version("work")
        number = 0
        while number < self._max_fixes:
            done = calls.kept(calls.path_of(self._path(f"fix:{number + 1}")))
            if done is None or not work.items() <= done.seen.items():
                break
            number += 1
        return number

    def _check_all(self, number: int) -> GateResult | None:
        """Go through the gates after so many fixes; return the first that failed."""
        results: list[GateResult] = []
        for gate in self._gates:
            results.append(self._check(gate, number, results))
            if not results[-1].success:
                break
        if self.state.gate_results != results:
            self.book.change(self.name, gate_results=results)
        return results[-1] if results and not results[-1].success else None

    def _check(self, gate: Gate, number: int, before: list[GateResult]) -> GateResult:
        """Run a gate, unless its verdict on these files and this work is kept."""
        calls = self._host.calls
        what = f"gate:{gate.level}" if not number else f"gate:{gate.level}~{number + 1}"
        seen = self._version("work") | (self._version(f"fix:{number}") if number else {})
        if self._fingerprint is not None:
            seen["files"] = self._fingerprint()
        known = calls.kept(calls.path_of(self._path(what)))
        if (
            known is not None
            and "files" in seen
            and (self._is_settled or not _verdict(gate, calls.result(known)).success)
        ):
            # Work that follows a complete task writes, and so does the fix after a failure, which was interrupted.
            seen["files"] = known.seen.get("files", "")
        results = list(before)

        def done(said: dict[str, Any], _outcome: Any) -> None:
            passed = [*results, _verdict(gate, said)]
            self._reach(f"gate_{gate.level}", gate_results=passed, fingerprint=seen.get("files"))

        said = self._call(
            "gate",
            what,
            lambda: msgspec.to_builtins(run_gate(gate, self._host)),
            view=CallView(done=done),
            inputs=f"{gate.level}\0{gate.description}\0{gate.command}",
            after=seen,
            options={
                "trigger": Trigger.GATE_COMPLETE,
                "wrote_files": False,
                "retry": Retry(),
                "timeout_s": None,
                "reasons": {"done": f"{self.name}: gate_{gate.level}"},
            },
        )
        return _verdict(gate, said)

    def _apply_fix(self, failed: GateResult, number: int) -> None:
        """Call the fix with what failed, unless it is kept."""
        fix = self._fix
        assert fix is not None
        failure = GateFailure(self.name, failed, number, self._max_fixes)

        def done(said: dict[str, Any], outcome: Any) -> None:
            response = _response_of(outcome, said)
            made = Fix(attempt=number, failure=failed, response=response, completed_at=self._host.now())
            fixes = [one for one in self.state.fixes if one.attempt != number]
            self._reach(f"fix_{number}", fix_attempt=number, fixes=[*fixes, made], gate_results=[])

        view = CallView(done=done, failed=lambda error: self._reach(FAILED, error=_failure(error, f"fix {number}: ")))
        try:
            self._call(
                "fix",
                f"fix:{number}",
                lambda: self._answered(bound(fix, self._host, failure)()),
                view=view,
                after=self._version("work"),
                options={"reasons": {"done": f"{self.name}: fix_{number}", "failed": f"{self.name}: {FAILED}"}},
            )
        except Exception as error:
            if is_interruption(error):
                raise
            raise _FailedError from error

    def _give_up(self, failed: GateResult, number: int) -> None:
        tried = f" after {number} fixes" if number else ""
        said = (failed.stderr or failed.stdout).strip()[-_LONGEST_MESSAGE:]
        message = f"gate {failed.level} ({failed.description}) failed{tried}" + (f": {said}" if said else "")
        error = Failure(message=message, code="GateFailed")
        if self.state.stage != FAILED or self.state.error != error:
            self._reach(FAILED, error=error, fix_attempt=number)
            self._host.save(Trigger.STAGE_COMPLETE, f"{self.name}: {FAILED}")

    def _reach(self, stage: str, **fields: Any) -> None:
        self.book.change(self.name, stage=stage, **fields)


class _FailedError(Exception):
    """The task has failed; its state says how."""


class Refused(Exception):
    """A worker or a fix that says itself that it did not succeed."""

    def __init__(self, response: Response) -> None:
        self.response = response
        super().__init__(response.message or response.status)


def _response_of(outcome: Any, said: dict[str, Any]) -> Any:
    """Return what refers to a response; itself where there is no journal."""
    return outcome._replace(keys=("response",)) if isinstance(outcome, Outcome) else said["response"]


def _failure(error: BaseException, prefix: str = "") -> Failure:
    if isinstance(error, Refused):
        return Failure(message=f"{prefix}{error}", code=error.response.status)
    return failure_of(error)


def _verdict(gate: Gate, said: Any) -> GateResult:
    """Return what a gate said; of one whose outcome is unknown and that was left out, that it was."""
    if said is None:
        level = gate.level or 1
        return GateResult(level=level, description=gate.description, command=gate.command, success=True, skipped=True)
    return msgspec.convert(said, GateResult)


def _response(returned: Any) -> Response:
    """Return what a worker gave back as a response: its type, a report as data or JSON text, or what a command did."""
    if isinstance(returned, Response):
        return returned
    if isinstance(returned, CoderResult):
        return Response(None, returned.status, returned.message)
    if isinstance(returned, CommandResult):
        if not returned.succeeded:
            return Response(returned.stdout, "error", f"exit code {returned.exit_code}: {returned.problem}")
        status = _reported(returned.json())
        return Response(returned.output) if status is None else Response(returned.output, *status)
    status = _reported(returned)
    return Response(returned) if status is None else Response(returned, *status)


def _reported(said: Any) -> tuple[CoderStatus, str] | None:
    """Return the status and message of a report: a mapping, or text that is one as JSON, with a known result."""
    if isinstance(said, str) and said.lstrip()[:1] == "{":
        try:
            said = msgspec.json.decode(said)
        except (msgspec.MsgspecError, RecursionError):
            return None
    if not isinstance(said, dict):
        return None
    for name in ("result", "status"):
        if said.get(name) in ("success", "error", "issue"):
            return said[name], str(said.get("message", ""))
    return None
