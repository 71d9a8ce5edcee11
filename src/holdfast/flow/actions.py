"""Carrying out one action of a flow: a command, a function or a scripted answer, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import CommandFailed, HoldfastError, UsageError, ValueRefused
from holdfast.flow.position import raised
from holdfast.flow.printing import Printed, printing
from holdfast.flow.template import fill, fill_shell, fill_value
from holdfast.model.sections import TokenUsage
from holdfast.runtime.agents import AgentOutput
from holdfast.runtime.attempt import within
from holdfast.runtime.command import Command
from holdfast.runtime.leaving import is_leaving
from holdfast.runtime.output import cut
from holdfast.runtime.steps import current_step
from holdfast.runtime.usage import report_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from holdfast.flow.events import Kind
    from holdfast.flow.facts import Facts
    from holdfast.flow.model import Action, Flow
    from holdfast.flow.position import Kept
    from holdfast.run import Run
    from holdfast.runtime.command import CommandResult

KEEP_BYTES = 1 << 20  # of what a command prints, read for its result
STORE_BYTES = 64 << 10  # of what is printed, stored
_STDERR_BYTES = 8 << 10
_NOT_STARTED = (126, 127)
_LONGEST_SUMMARY = 300
_LONGEST_PAUSE_S = 31 * 86_400.0


class TaskCall(NamedTuple):
    """What a Python function of a flow is called with."""

    run: str
    phase: str
    task: str
    input: Any
    params: dict[str, Any]
    facts: Callable[[str], Any]
    """The value of any name that a template could use: `call.facts("phases.research.summary")`."""
    workspace: Path | None
    attempt: int
    key: str
    """The same in every try: hand it to services that take an idempotency key."""
    print: Callable[[str], None]
    """Says a line while the work goes on; all of them are the task's `output`."""


class Place(NamedTuple):
    """Where an action stands."""

    phase: str
    task: str
    name: str
    """Of its step: what is recorded about it is found under this name."""


class Spent(NamedTuple):
    """What an action cost, as far as it says so."""

    tokens: int = 0
    tool_calls: int = 0
    money: float = 0.0


class Actions:
    """Carries out the actions of one flow in one run."""

    def __init__(
        self,
        run: Run,
        flow: Flow,
        position: Kept,
        *,
        params: dict[str, Any],
        functions: Mapping[str, Callable[..., Any]],
        root: Path,
        emit: Callable[..., None],
    ) -> None:
        self._run = run
        self._flow = flow
        self._position = position
        self.budget = run.budget
        self._params = params
        self._functions = functions
        self._root = root
        self._emit = emit
        self._working: dict[tuple[str, str], Callable[[], AgentOutput]] = {}
        self._taken: set[tuple[str, str]] = set()  # answers of agents that a task got in this life
        self._dispatches: dict[str, _Dispatch] = {}
        for name, agent in flow.agents.items():
            run.agents.register(name, self._dispatch(name), role=agent.role)

    def perform(self, action: Action, place: Place, facts: Facts, *, stream: Kind = "task_output") -> dict[str, Any]:
        """Carry out an action and return what came of it as plain data; what it cost is counted."""
        given = fill_value(action.input, facts)
        known = facts.having(input=given) if action.input is not None else facts
        if action.agent is None:
            done, spent, _tokens = self._do(action, place, known, given, stream)
            self._count(spent)
            return {**done, "tokens": spent.tokens} if spent.tokens else done
        return self._by_agent(action, place, known, given, stream)

    def _by_agent(self, action: Action, place: Place, facts: Facts, given: Any, stream: Kind) -> dict[str, Any]:
        agent = str(action.agent)
        agents = self._run.agents
        name = place.name
        step = current_step()
        record = self._run.steps.record(step.name) if step else None
        has_failed = record is not None and record["event"] == "failed"
        answers: list[tuple[str, dict[str, Any]]] = []
        while (answer := self._answered(agent, name)) is not None:
            answers.append((name, answer))
            name += " again"  # what came after it failed, so it is asked once more
        if answers and not has_failed and (agent, answers[-1][0]) not in self._taken:
            name, answer = answers[-1]
            self._taken.add((agent, name))
            return answer  # the process died between this and the end of the step
        if agent not in self._flow.agents:
            agents.register(agent, self._dispatch(agent))

        def work() -> AgentOutput:
            done, spent, tokens = self._do(action, place, facts, given, stream)
            self._count(spent)
            done = {**done, "tokens": spent.tokens} if spent.tokens else done
            return AgentOutput(output=done, summary=done.get("summary", ""), tokens=tokens)

        self.budget.reserve(subcalls=1)
        self._working[agent, name] = work
        shown = given if given is not None else {"run": action.run} if action.run else {"call": action.call}
        try:
            given = agents.call(agent, {"task": name, "input": shown}, task=name)
        finally:
            self._working.pop((agent, name), None)
        self._taken.add((agent, name))
        return given if isinstance(given, dict) else {"result": given}

    def _answered(self, agent: str, name: str) -> dict[str, Any] | None:
        """Return what an agent answered for a task in an earlier life, None if it did not."""
        known = next((one for one in self._run.agents.agents if one.id == agent), None)
        task = known.tasks.get(name) if known else None
        done = task.output if task is not None and task.status == "completed" else None
        return dict(done) if isinstance(done, dict) else None

    def _dispatch(self, agent: str) -> _Dispatch:
        return self._dispatches.setdefault(agent, _Dispatch(self._working, agent))

    def _do(
        self, action: Action, place: Place, facts: Facts, given: Any, stream: Kind
    ) -> tuple[dict[str, Any], Spent, TokenUsage]:
        agent = self._flow.agents.get(action.agent) if action.agent else None
        own = action.run is not None or action.call is not None
        command = action.run if own or agent is None else agent.run
        call = action.call if own or agent is None else agent.call
        if command is not None:
            return self._command(action, command, place, facts, stream)
        if call is not None:
            return self._call(action, call, place, facts, given=given, stream=stream)
        assert agent is not None
        assert agent.script is not None
        return self._script(str(action.agent), agent.script, place, stream)

    def _command(
        self, action: Action, command: str, place: Place, facts: Facts, stream: Kind
    ) -> tuple[dict[str, Any], Spent, TokenUsage]:
        result = self.shell(fill_shell(command, facts), action, place, facts, stream)
        said = result.json()
        agent = self._flow.agents.get(action.agent or "")
        wanted = action.output or (agent.output if agent else None)
        try:
            _check(result, said, wanted)
        except HoldfastError:
            self._count(_spent(said, result.tokens))  # what failed was paid for all the same
            raise
        value = result.stdout if wanted == "text" else said if wanted == "json" else result.output
        value = cut(value.rstrip("\n"), STORE_BYTES) if isinstance(value, str) else value
        done: dict[str, Any] = {"result": value, "exit_code": result.exit_code}
        if not isinstance(value, str) and result.stdout.strip():
            done["output"] = cut(result.stdout, STORE_BYTES)
        if result.stderr.strip():
            done["stderr"] = cut(result.stderr, _STDERR_BYTES)
        done["summary"] = summary_of(value)
        return done, _spent(said, result.tokens), result.tokens

    def shell(
        self, text: str, action: Any, place: Place, facts: Facts, stream: Kind, *, gate: str | None = None
    ) -> CommandResult:
        """Run a command in the run's directory, its output handed to the observer as it comes."""
        agent = self._flow.agents.get(getattr(action, "agent", None) or "")
        env = {**self._flow.env, **(agent.env if agent else {}), **action.env}
        values = {name: fill(value, facts) for name, value in env.items()}
        step = current_step()
        told = {
            "HOLDFAST_RUN": self._run.id,
            "HOLDFAST_PHASE": place.phase,
            "HOLDFAST_TASK": place.task,
            "HOLDFAST_ATTEMPT": str(step.attempt if step else 1),
            "HOLDFAST_KEY": step.key if step else "",
        }
        folder = self._root / action.cwd if action.cwd else self._root
        if not folder.is_dir():
            raise UsageError(f"{place.name}: there is no folder {str(action.cwd or folder)!r} to run in")
        timeout_s = action.timeout or (agent.timeout if agent else None) or self._flow.timeout
        made = Command(text, cwd=folder, env={**told, **values}, timeout_s=timeout_s, keep_bytes=KEEP_BYTES)
        return made.run(
            host=self._run,
            on_output=lambda source, said: self._emit(
                stream, phase=place.phase, task=place.task, gate=gate, text=said, data={"stream": source}
            ),
        )

    def _call(
        self, action: Action, name: str, place: Place, facts: Facts, *, given: Any, stream: Kind
    ) -> tuple[dict[str, Any], Spent, TokenUsage]:
        step = current_step()
        printed = Printed(
            lambda source, text: self._emit(
                stream, phase=place.phase, task=place.task, text=text, data={"stream": source}
            ),
            STORE_BYTES,
        )
        asked = TaskCall(
            run=self._run.id,
            phase=place.phase,
            task=place.task,
            input=given,
            params=dict(self._params),
            facts=facts,
            workspace=self._root if self._run.has_workspace else None,
            attempt=step.attempt if step else 1,
            key=step.key if step else "",
            print=lambda text: printed.write("stdout", f"{text}\n"),
        )
        function = self._functions[name]
        agent = self._flow.agents.get(action.agent or "")
        timeout_s = action.timeout or (agent.timeout if agent else None) or self._flow.timeout

        def work() -> Any:
            try:
                with printing(printed):
                    returned = function(asked)
                    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned
            except SystemExit as error:
                if type(error) is not SystemExit:
                    raise  # a signal that ends this process
                raise _exited(name, error.code) from error

        try:
            value = work() if timeout_s is None else within(work, timeout_s, place.name)
        finally:
            output = printed.close()
        tokens = TokenUsage()
        if isinstance(value, AgentOutput):
            value, tokens = value.output, value.tokens
        else:
            tokens = usage_of(value)
        self._check_storable(value, name)
        done: dict[str, Any] = {"result": value, "summary": summary_of(value)}
        if output:
            done["output"] = output
        return done, _spent(value, tokens), tokens

    def _check_storable(self, value: Any, name: str) -> None:
        try:
            self._run.keep(value, "its result")
        except ValueRefused as error:
            raise UsageError(
                f"{name} returned what cannot be stored, at {error.path}: {error.detail}. Return plain data: a "
                "mapping, a list, text, numbers, true, false or nothing; large data as the path of a file"
            ) from error

    def _script(
        self, agent: str, script: list[Any], place: Place, stream: Kind
    ) -> tuple[dict[str, Any], Spent, TokenUsage]:
        """Give the next scripted answer; that it was given is stored with what becomes of it."""
        with self._run.lock:
            number = self._position.value.scripted.get(agent, 0)
            self._position.change(scripted=raised(self._position.value.scripted, agent))
        if number >= len(script):
            raise UsageError(f"agent {agent!r} has {len(script)} scripted answers, and is asked for one more")
        answer = script[number]
        if not isinstance(answer, dict):
            answer = {"output": answer}
        if "fail" in answer:
            raise CommandFailed(f"scripted answer {number + 1} of {agent}", 1, str(answer["fail"]))
        for path, text in answer.get("files", {}).items():
            target = (self._root / path).resolve()
            if not target.is_relative_to(self._root.resolve()):
                raise UsageError(f"agent {agent!r}: {path!r} leads out of the workspace")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(str(text))
        value = answer.get("output")
        if isinstance(value, str):
            self._emit(stream, phase=place.phase, task=place.task, text=value)
        tokens = usage_of(answer)
        return {"result": value, "summary": summary_of(value)}, _spent(answer, tokens), tokens

    def _count(self, spent: Spent) -> None:
        """Count what was spent, without stopping for it: the result is stored first."""
        amounts = {name: amount for name, amount in spent._asdict().items() if amount}
        if amounts:
            self.budget.count(**amounts)


class _Dispatch:
    """An agent as its run knows it: one function, whatever the task gives it to do."""

    def __init__(self, working: dict[tuple[str, str], Callable[[], AgentOutput]], agent: str) -> None:
        self._working = working
        self._agent = agent

    def __call__(self, given: dict[str, Any]) -> AgentOutput:
        return self._working[self._agent, given["task"]]()


def _check(result: CommandResult, said: Any, wanted: str | None) -> None:
    """Raise what a command failed by: its exit code, its own word, or output that is not what it was to be."""
    result.check()
    report = report_of(said)
    if isinstance(report, dict) and report.get("is_error") is True:
        pause: Any = report.get("retry_after")  # of a service that limits its rate
        asked = float(pause) if type(pause) in (int, float) and 0 <= pause < _LONGEST_PAUSE_S else None
        raise CommandFailed(result.command, result.exit_code, str(report.get("result", "it reports an error")), asked)
    if wanted == "json" and said is None:
        raise CommandFailed(result.command, result.exit_code, "it was to print JSON, or a JSON object on its last line")


def _exited(name: str, code: Any) -> CommandFailed:
    status = code if isinstance(code, int) else 0 if code is None else 1
    said = f" ({code})" if isinstance(code, str) else ""
    return CommandFailed(name, status, f"it called sys.exit{said}: a function returns its result, or raises")


async def _awaited(returned: Any) -> Any:
    return await returned


def may_retry(error: Exception) -> bool:
    """Tell whether a task that failed is worth another try: not if its program is missing, or the run is to be left."""
    if is_leaving(error) or isinstance(error, UsageError):
        return False
    return not (isinstance(error, CommandFailed) and error.status in _NOT_STARTED)


def summary_of(value: Any) -> str:
    """Return what was done in short: a summary that is given, or the last line that says something."""
    if isinstance(value, dict):
        for name in ("summary", "result", "message"):
            if isinstance(value.get(name), str):
                return summary_of(value[name])
        return ""
    if value is None:
        return ""
    if not isinstance(value, str):
        value = msgspec.json.encode(value, enc_hook=str).decode()
    line = next((line.strip() for line in reversed(value.splitlines()) if line.strip()), "")
    return line if len(line) <= _LONGEST_SUMMARY else line[: _LONGEST_SUMMARY - 3] + "..."


def _spent(said: Any, tokens: TokenUsage) -> Spent:
    """Return what an agent says that it spent; numbers that make no sense count as nothing."""
    said = report_of(said)
    if not isinstance(said, dict):
        return Spent(tokens=tokens.input + tokens.output)
    usage = said.get("usage")
    calls = usage.get("tool_calls", said.get("tool_calls")) if isinstance(usage, dict) else said.get("tool_calls")
    money = 0.0
    with contextlib.suppress(TypeError, ValueError):
        money = max(0.0, float(said.get("total_cost_usd", said.get("cost", 0)) or 0))
    return Spent(
        tokens=tokens.input + tokens.output,
        tool_calls=calls if type(calls) is int and calls > 0 else 0,
        money=money if money < float("inf") else 0.0,
    )
