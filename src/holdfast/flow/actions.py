"""Carrying out one action of a flow: a command, a function or a scripted answer, and what came of it."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import CommandFailed, HoldfastError, UsageError, ValueRefused
from holdfast.flow.conversation import Conversation, Said, message_facts, reported_in
from holdfast.flow.model import Action, Work
from holdfast.flow.names import everywhere, known_names
from holdfast.flow.position import raised
from holdfast.flow.printing import Printed, printing
from holdfast.flow.template import fill, fill_arguments, fill_value, shown
from holdfast.flow.variables import Variables, given_facts
from holdfast.journal.outcomes import summary_of
from holdfast.runtime.agents import AgentOutput, call_name, spent_by
from holdfast.runtime.attempt import within
from holdfast.runtime.calls import current_step
from holdfast.runtime.command import Command
from holdfast.runtime.interruption import is_interruption
from holdfast.runtime.output import cut
from holdfast.runtime.usage import Spent, report_of, spent_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from holdfast.flow.events import Kind
    from holdfast.flow.facts import Facts
    from holdfast.flow.model import CommandLine, Flow
    from holdfast.flow.position import Kept
    from holdfast.model.sections import TokenUsage
    from holdfast.run import Run
    from holdfast.runtime.command import CommandResult

KEEP_BYTES = 1 << 20  # of what a command prints, read for its result
STORE_BYTES = 64 << 10  # of what is printed, stored
_STDERR_BYTES = 8 << 10
_NOT_STARTED = (126, 127)
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
    """Says a line while the work continues; all of them are the task's `output`."""


class Place(NamedTuple):
    """Where an action stands."""

    phase: str
    task: str
    name: str
    """Of its step: what is recorded about it is found under this name."""


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
        self._answers: dict[tuple[str, str], set[str]] = {}  # calls of agents for each task
        self._dispatches: dict[str, _Dispatch] = {}
        self._names = known_names(flow)
        self._variables_of: dict[str, Variables] = {}
        self.conversation = Conversation(run, flow, ask=self._asked, execute=self._executed, emit=emit)
        for name, agent in flow.agents.items():
            run.agents.register(name, self._dispatch(name), role=agent.role, most=agent.most or None)

    def perform(self, action: Action, place: Place, facts: Facts, *, stream: Kind = "task_output") -> dict[str, Any]:
        """Carry out an action and return what came of it as plain data; what it cost is counted."""
        if isinstance(action, Work) and action.message is not None:
            return self.conversation.send(action.message, place, facts)
        if isinstance(action, Work) and action.conflict is not None:
            return self.conversation.settle(action.conflict, place, facts)
        given = fill_value(action.input, facts)
        known = facts.having(input=given) if action.input is not None else facts
        if action.agent is None:
            self.budget.check()
            done, spent, _tokens = self._do(action, place, known, given, stream)
            self._count(spent)
            return {**done, "tokens": spent.tokens} if spent.tokens else done
        said = self._by_agent(action, place, known, given, stream)
        self.conversation.take(action.agent, said.reported, place)
        return said.done

    def _asked(self, agent: str, given: Any, place: Place, facts: Facts) -> Said:
        """Ask an agent something that another one wants to know."""
        return self._by_agent(Action(agent=agent), place, facts.having(input=given), given, "task_output")

    def _executed(self, action: Action, place: Place, facts: Facts) -> CommandResult:
        assert action.run is not None
        return self.execute(action.run, action, place, facts, "task_output")

    def _by_agent(self, action: Action, place: Place, facts: Facts, given: Any, stream: Kind) -> Said:
        agent = str(action.agent)
        agents = self._run.agents
        if agent not in self._flow.agents:
            agents.register(agent, self._dispatch(agent))

        def work() -> AgentOutput:
            unread = self.conversation.unread(agent)
            asked = facts.more.get("message", {}).get("id")
            messages = [message_facts(one) for one in unread if one.id != asked]
            told = facts.having(messages=messages) if messages else facts
            try:
                done, spent, tokens = self._do(action, place, told, given, stream)
            except BaseException:
                self.conversation.put_back(unread)
                raise
            if read := [one.id for one in unread if not one.expects_answer]:  # one that does is read once answered
                done["reported"] = {**done.get("reported", {}), "read": read}
            self._count(spent)  # in the budget of the phase, if it has one
            done = {**done, "tokens": spent.tokens} if spent.tokens else done
            return AgentOutput(
                output=without_summary(done), summary=done.get("summary", ""), tokens=tokens, is_counted=True
            )

        path = self._run.calls.path_of(call_name(agent, place.name))
        self._answers.setdefault((place.phase, place.task), set()).add(path)
        self._working[agent, place.name] = work
        shown = given if given is not None else {"run": action.run} if action.run else {"call": action.call}
        try:
            answer = agents.call(agent, {"task": place.name, "input": shown}, task=place.name)
        finally:
            self._working.pop((agent, place.name), None)
        done = with_summary(dict(answer) if isinstance(answer, dict) else {"result": answer})
        return Said(done, done.pop("reported", {}))

    def forget_answers(self, place: Place) -> None:
        """Ask agents again when a task that failed is next tried: what came after their answers was not accepted."""
        for path in self._answers.pop((place.phase, place.task), ()):
            if self._run.calls.kept(path) is not None:
                self._run.calls.void(path)

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
        with self._run.host.ungrouped():
            if call is not None:
                return self._call(action, call, place, facts, given=given, stream=stream)
            assert agent is not None
            assert agent.script is not None
            return self._script(str(action.agent), agent.script, place, stream)

    def _command(
        self, action: Action, command: CommandLine, place: Place, facts: Facts, stream: Kind
    ) -> tuple[dict[str, Any], Spent, TokenUsage]:
        result = self.execute(command, action, place, facts, stream)
        said = result.json()
        agent = self._flow.agents.get(action.agent or "")
        wanted = action.output or (agent.output if agent else None)
        try:
            _check(result, said, wanted)
        except HoldfastError:
            self._count(spent_of(result.report, result.tokens))  # what failed was paid for all the same
            raise
        value = result.stdout if wanted == "text" else said if wanted == "json" else result.output
        value = cut(value.rstrip("\n"), STORE_BYTES) if isinstance(value, str) else value
        done: dict[str, Any] = {"result": value, "exit_code": result.exit_code}
        if not isinstance(value, str) and result.stdout.strip():
            done["output"] = cut(result.stdout, STORE_BYTES)
        if result.stderr.strip():
            done["stderr"] = cut(result.stderr, _STDERR_BYTES)
        done["summary"] = summary_of(value)
        if agent is not None and (reported := reported_in(report_of(said))):
            done["reported"] = reported
        return done, spent_of(result.report, result.tokens), result.tokens

    def execute(
        self, command: CommandLine, action: Any, place: Place, facts: Facts, stream: Kind, *, gate: str | None = None
    ) -> CommandResult:
        """Run a command in the run's directory, its output handed to the observer as it comes.

        What was saved before is durable when it begins: that is stored while its shell is being loaded.
        """
        agent = self._flow.agents.get(getattr(action, "agent", None) or "")
        env = {**self._flow.env, **(agent.env if agent else {}), **action.env}
        values = {name: fill(value, facts) for name, value in env.items()}
        step = current_step()
        told = {
            "HOLDFAST_RUN": self._run.id,
            "HOLDFAST_PHASE": place.phase,
            "HOLDFAST_TASK": place.task,
            "HOLDFAST_AGENT": getattr(action, "agent", None) or "",
            "HOLDFAST_ATTEMPT": str(facts("attempt")),
            "HOLDFAST_KEY": step.key if step else "",
        }
        folder = self._root / action.cwd if action.cwd else self._root
        if not folder.is_dir():
            raise UsageError(f"{place.name}: there is no folder {str(action.cwd or folder)!r} to run in")
        timeout_s = action.timeout or (agent.timeout if agent else None) or self._flow.timeout
        line = command if isinstance(command, str) else fill_arguments(command, facts)
        always: list[str] = [name for name in ("input", "failure") if name in facts.more]
        always += self.conversation.told(getattr(action, "agent", None), facts)
        with given_facts(command, self._variables(place.phase), facts, always) as given:
            env = {**told, **given, **values}
            made = Command(line, cwd=folder, env=env, timeout_s=timeout_s, keep_bytes=KEEP_BYTES)
            with self._run.host.ungrouped(flush=False):
                result = made.run(
                    host=self._run.host,
                    before=self._run.host.flush,
                    on_output=lambda source, said: self._emit(
                        stream, phase=place.phase, task=place.task, gate=gate, text=said, data={"stream": source}
                    ),
                )
        if result.ended_with_it:
            programs = ", ".join(result.ended_with_it)
            self._emit(
                "background_ended",
                phase=place.phase,
                task=place.task,
                gate=gate,
                text=f"{programs} still ran in the background and was ended: a task's processes end with it",
            )
        return result

    def _variables(self, phase: str) -> Variables:
        known = self._variables_of.get(phase)
        if known is None:
            known = self._variables_of[phase] = Variables(everywhere(self._names, phase))
        return known

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
            workspace=self._root if self._run.host.has_workspace else None,
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
        if isinstance(value, AgentOutput):
            value, tokens, spent = value.output, value.tokens, spent_by(value)
        else:
            tokens = usage_of(value)
            spent = spent_of(value, tokens)
        self._check_storable(value, name)
        done: dict[str, Any] = {"result": value, "summary": summary_of(value)}
        if output:
            done["output"] = output
        return done, spent, tokens

    def _check_storable(self, value: Any, name: str) -> None:
        try:
            self._run.host.keep(value, "its result")
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
        done: dict[str, Any] = {"result": value, "summary": summary_of(value)}
        if reported := reported_in(answer):
            done["reported"] = reported
        return done, spent_of(answer, tokens), tokens

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
    report = report_of(said)
    ended = not (result.timed_out or result.stopped)
    if ended and isinstance(report, dict) and (report.get("is_error") is True or _reports(result, report)):
        pause: Any = report.get("retry_after")  # of a service that limits its rate
        asked = float(pause) if type(pause) in (int, float) and 0 <= pause < _LONGEST_PAUSE_S else None
        told = report.get("result", report.get("error", "it reports an error"))
        raise CommandFailed(result.command, result.exit_code, told if isinstance(told, str) else shown(told), asked)
    result.check()
    if wanted == "json" and said is None:
        raise CommandFailed(result.command, result.exit_code, "it was to print JSON, or a JSON object on its last line")


def _reports(result: CommandResult, report: dict[str, Any]) -> bool:
    """Tell whether a command that failed says by itself what went wrong."""
    return result.exit_code != 0 and ("result" in report or "error" in report or "retry_after" in report)


def _exited(name: str, code: Any) -> CommandFailed:
    status = code if isinstance(code, int) else 0 if code is None else 1
    said = f" ({code})" if isinstance(code, str) else ""
    return CommandFailed(name, status, f"it called sys.exit{said}: a function returns its result, or raises")


async def _awaited(returned: Any) -> Any:
    return await returned


def may_retry(error: Exception) -> bool:
    """Tell whether a task that failed is worth another try: not if its program is missing, or the run is to be left."""
    if is_interruption(error) or isinstance(error, UsageError):
        return False
    return not (isinstance(error, CommandFailed) and error.status in _NOT_STARTED)


def without_summary(done: dict[str, Any]) -> dict[str, Any]:
    """Return what came of an action as it is stored: a summary that only repeats a text is left out."""
    is_told = isinstance(done.get("result"), str) and done.get("summary") == summary_of(done["result"])
    return {name: value for name, value in done.items() if name != "summary" or not is_told}


def with_summary(done: dict[str, Any]) -> dict[str, Any]:
    """Return what came of an action with its summary."""
    return done if "summary" in done else {**done, "summary": summary_of(done.get("result"))}
