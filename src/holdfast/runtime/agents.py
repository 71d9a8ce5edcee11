"""The agents of a run: functions and commands as calls, and the section that shows them."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.capture.sections import typed
from holdfast.encode.outcome import Outcome
from holdfast.errors import CommandFailed, UsageError
from holdfast.journal.outcomes import summary_of
from holdfast.model.failure import failure_of
from holdfast.model.sections import Agent, AgentTask, TokenUsage
from holdfast.model.triggers import Trigger
from holdfast.runtime.amounts import add, amount_of
from holdfast.runtime.attempt import Retry, check_retry
from holdfast.runtime.calls import CallOptions, CallView, current_step
from holdfast.runtime.command import Command, CommandResult
from holdfast.runtime.coroutines import result_of
from holdfast.runtime.host import Alone
from holdfast.runtime.recorded import check_name, digest_of, kept, reason_of
from holdfast.runtime.signature import wants_argument
from holdfast.runtime.usage import Spent, added, counted, report_of, spent_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from holdfast.runtime.amounts import Amount, Given
    from holdfast.runtime.calls import Call, OnUnknown
    from holdfast.runtime.host import Host
    from holdfast.runtime.team import Team

_SETTLED = ("completed", "skipped")
_TELLING = ("running", "failed", "pending", "completed", "skipped")  # which of its tasks an agent's own fields show
_LONGEST_SUMMARY = 200


class AgentOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may return to say more than its output: a summary, where the output lies, what it cost."""

    output: Any = None
    summary: str = ""
    location: str | None = None
    tokens: TokenUsage = TokenUsage()
    money: int | float | Decimal | str = 0
    tool_calls: int = 0
    is_counted: bool = False
    """Whether the caller counted the cost in a budget of its own."""


class AgentTaskOutput(NamedTuple):
    """What an agent did for a task, as lists show it."""

    agent: str
    task: str
    completed_at: datetime | None
    summary: str
    location: str | None


class _Registered(NamedTuple):
    what: Callable[..., Any] | Command
    retry: Retry
    timeout_s: float | None
    store: Callable[[Any], Any] | None
    on_unknown: OnUnknown | None = None
    most: Mapping[str, Amount] | None = None


def call_name(agent: str, task: str | None) -> str:
    """Return the name of an agent's call, made here; inside the task's own call its name says enough."""
    step = current_step()
    is_inside = step is not None and task is not None and f"{step.name}/".startswith(f"{task}/")
    return f"agent:{agent}" if task is None or is_inside else f"agent:{agent}/{task}"


class Agents:
    """All agents of a run, as a live section; threads may call at once."""

    gives_typed = True

    def __init__(self, host: Host | None = None) -> None:
        self._host: Host = host or Alone()
        self.team: Team | None = None
        """A team is kept in step with the calls."""
        self._registry: dict[str, _Registered] = {}
        self._agents: dict[str, Agent] = {}
        self._active: set[tuple[str, str]] = set()
        self.changes = 0

    def register(
        self,
        name: str,
        what: Callable[..., Any] | Command,
        *,
        role: str = "",
        retries: int = 0,
        backoff: float = 1.0,
        transient: Callable[[Exception], bool] | None = None,
        timeout_s: float | None = None,
        store: Callable[[Any], Any] | None = None,
        on_unknown: OnUnknown | None = None,
        most: Mapping[Any, Given] | None = None,
    ) -> None:
        """Name a function or command; transient errors are retried, `store` makes of an output what is kept of it.

        `on_unknown` decides on a call that began and has no recorded end after a crash: retry (the default), skip, ask.
        `most` is the most that one call may cost ({"tokens": 5000}): so much is reserved while it is under way, and is
        spent if that is cut off. For a budget without it that is what its dearest call cost so far, else all that is
        left.
        """
        check_name("an agent", name)
        if not callable(what) and not isinstance(what, Command):
            raise UsageError(f"agent {name!r} is a {type(what).__qualname__}: give a function or a Command")
        retry = Retry(retries, backoff) if transient is None else Retry(retries, backoff, transient=transient)
        check_retry(retry, timeout_s)
        with self._host.lock:
            known = self._registry.get(name)
            if known is not None and known.what is not what:
                raise UsageError(f"agent {name!r} is registered already, as {known.what!r}: choose another name")
            cost = None if most is None else {each: amount_of(each, given) for each, given in most.items()}
            self._registry[name] = _Registered(what, retry, timeout_s, store, on_unknown, cost)
            agent = self._agents.get(name)
            if agent is None or (role and agent.role != role):
                self._put(msgspec.structs.replace(agent or Agent(id=name, status="pending"), role=role))

    def call(
        self,
        agent: str,
        given: Any = None,
        *,
        task: str | None = None,
        using: Callable[..., Any] | Command | None = None,
    ) -> Any:
        """Return an agent's output for a task; it is called unless that is kept, for the same input.

        A call without a task is named by its number, the same whenever the program runs; name your tasks where threads
        call. `using` does this task in place of what is registered under the agent's name, if anything is.
        """
        registered = self._registered(agent, using)
        check_name("an agent", agent)
        if task is not None:
            check_name("a task", task)
        if self._is_skipped(agent, task):
            return None
        if task is not None and (agent, task) in self._active:
            raise UsageError(f"agent {agent!r} is at task {task!r} already: wait for it, or name another task")
        shown = _Shown(self, agent, task, self._host.keep(given, f"the input of agent {agent!r}"))
        what = registered.what
        options = CallOptions(
            retry=registered.retry,
            timeout_s=None if isinstance(what, Command) else registered.timeout_s,
            on_unknown=registered.on_unknown,
            store=partial(_plain, registered.store),
            charged_to=agent,
            most=registered.most,
            trigger=Trigger.AGENT_COMPLETE,
            failure=Trigger.ERROR_OCCURRED,
            view=CallView(shown.begun, shown.attempted, shown.done, shown.failed),
        )

        def work() -> AgentOutput:
            if isinstance(what, Command):
                output = _run_command(what, given, registered.timeout_s, self._host)
            else:
                output = _read_output(_call(agent, what, given), self._host)
            spent = spent_by(output)
            if not output.is_counted:
                self._host.charge(**spent._asdict())
            return output

        try:
            done = self._host.calls.call(
                "agent",
                call_name(agent, task),
                work,
                options,
                inputs=digest_of(given) or type(given).__qualname__,
                is_numbered=task is None,
            )
        finally:
            self._active.discard((agent, shown.name))
        return done.output if isinstance(done, AgentOutput) else kept(done["output"]) if done is not None else None

    def _is_skipped(self, agent: str, task: str | None) -> bool:
        """Tell whether somebody decided to leave a task, or an agent, out."""
        known = self._agents.get(agent)
        if known is None:
            return False
        own = known.tasks.get(task) if task is not None else None
        return own.status == "skipped" if own is not None else known.status == "skipped"

    def spend(self, agent: str, *, input_tokens: int = 0, output_tokens: int = 0, task: str | None = None) -> None:
        """Add tokens to a task, by default the one that the agent is at."""
        usage = counted(TokenUsage(input=input_tokens, output=output_tokens))
        with self._host.lock:
            name = task or self._under_way(agent)
            known = self.task(agent, name)
            self._put_task(agent, name, tokens=added(known.tokens, usage))

    def skip(self, agent: str, task: str | None = None, reason: str = "") -> None:
        """Leave a task out, or all that an agent has not done: a call for it returns None."""
        with self._host.lock:
            known = self._agents.get(agent) or Agent(id=agent, status="pending")
            names = (
                [task] if task is not None else [name for name, one in known.tasks.items() if one.status != "completed"]
            )
            for name in names:
                if name not in known.tasks or known.tasks[name].status != "completed":
                    self._put_task(agent, name, status="skipped", reason=reason)
            if not names:
                self._put(msgspec.structs.replace(known, status="skipped"))
        self._host.save(Trigger.AGENT_COMPLETE, reason_of(f"{agent} skipped" + (f": {reason}" if reason else "")))

    def retry(self, agent: str, task: str) -> None:
        """Make a task due again, whatever came of it; stored with the next commit."""
        with self._host.lock:
            if self.task(agent, task).status not in ("pending", "running"):
                self._put_task(agent, task, status="pending", output=None, completed_at=None, reason="")
                self._host.calls.void(call_name(agent, task))

    def resume(self) -> None:
        """Make ready to be resumed: what was under way is pending, and of an agent that was skipped, all."""
        with self._host.lock:
            for agent in list(self._agents.values()):
                for name, task in agent.tasks.items():
                    if task.status == "running" and (agent.id, name) not in self._active:
                        self._put_task(agent.id, name, status="pending")
                    if agent.status == "skipped" and task.status not in _SETTLED:
                        self._put_task(agent.id, name, status="skipped")
                if not agent.tasks and agent.status == "running":
                    self._put(msgspec.structs.replace(agent, status="pending"))

    @property
    def agents(self) -> tuple[Agent, ...]:
        """All agents, in the order they came."""
        return tuple(map(self._seen, self._agents.values()))

    def _seen(self, agent: Agent) -> Agent:
        """Return an agent with its outputs, which the records of its calls have."""
        shown = self._host.calls.shown
        tasks = {
            name: msgspec.structs.replace(task, output=shown(task.output), summary=shown(task.summary))
            for name, task in agent.tasks.items()
        }
        return msgspec.structs.replace(agent, output=shown(agent.output), tasks=tasks)

    def __getitem__(self, agent: str) -> Agent:
        """Return where an agent stands; UsageError names those that there are."""
        return self._seen(self._known(agent))

    def _known(self, agent: str) -> Agent:
        try:
            return self._agents[agent]
        except KeyError:
            raise UsageError(f"there is no agent {agent!r}: there are {', '.join(self._agents) or 'none'}") from None

    def task(self, agent: str, task: str) -> AgentTask:
        """Return what an agent did for a task; UsageError if it was never called for it."""
        try:
            return self._known(agent).tasks[task]
        except KeyError:
            raise UsageError(f"agent {agent!r} was never called for task {task!r}") from None

    def outputs(self, agent: str | None = None) -> list[AgentTaskOutput]:
        """Return every finished task, of one agent or of all, with summary and location of its output."""
        return [
            AgentTaskOutput(one.id, name, task.completed_at, task.summary, task.location)
            for one in self.agents
            if agent is None or one.id == agent
            for name, task in one.tasks.items()
            if task.status == "completed"
        ]

    def snapshot(self) -> list[Agent]:
        """Return all of it as a section."""
        return list(self._agents.values())

    def restore(self, value: Any) -> None:
        """Take a section back; registered functions and commands stay."""
        section: list[Agent] = typed("agents", value)
        with self._host.lock:
            self._agents = {agent.id: agent for agent in section}
            self.changes += 1

    def _registered(self, agent: str, using: Callable[..., Any] | Command | None) -> _Registered:
        known = self._registry.get(agent)
        if using is not None:
            return known._replace(what=using) if known else _Registered(using, Retry(), None, None)
        if known is None:
            there = ", ".join(self._registry) or "none"
            raise UsageError(f"there is no agent {agent!r}: registered are {there}; use agents.register()")
        return known

    def _under_way(self, agent: str) -> str:
        names = [name for owner, name in self._active if owner == agent]
        if len(names) != 1:
            raise UsageError(f"agent {agent!r} is at {len(names)} tasks now: say which task spent the tokens")
        return names[0]

    def _put_task(self, agent: str, name: str, **fields: Any) -> None:
        """Keep a task with other fields; the agent's own fields show the task that tells most of it."""
        known = self._agents.get(agent) or Agent(id=agent, status="pending")
        before = known.tasks.get(name) or AgentTask(status="pending")
        after = msgspec.structs.replace(before, **fields)
        tasks = {**known.tasks, name: after}
        shown = _telling(tasks)
        spent = TokenUsage(
            input=known.tokens.input + after.tokens.input - before.tokens.input,
            output=known.tokens.output + after.tokens.output - before.tokens.output,
        )
        self._put(
            msgspec.structs.replace(
                known,
                status=shown.status,
                started_at=shown.started_at,
                completed_at=shown.completed_at,
                input=shown.input,
                output=shown.output,
                error=shown.error.message if shown.error else None,
                attempts=shown.attempts,
                tokens=spent,
                tasks=tasks,
            )
        )

    def _put(self, agent: Agent) -> None:
        self._agents[agent.id] = agent
        self.changes += 1


class _Shown:
    """One call of an agent, as the section shows it."""

    def __init__(self, agents: Agents, agent: str, task: str | None, given: Any) -> None:
        self._agents = agents
        self._agent = agent
        self._given = given
        self.name = task or ""

    def begun(self, call: Call) -> None:
        agents, step = self._agents, current_step()
        self.name = self.name or str(call.number)
        agents._active.add((self._agent, self.name))  # noqa: SLF001 - one thing in two classes
        self._put(
            status="running",
            started_at=agents._host.now(),  # noqa: SLF001
            completed_at=None,
            error=None,
            input=self._given,
            input_digest=call.input,
            step=step.name if step else None,
            reason="",
        )
        if agents.team is not None and self._agent in agents.team:
            agents.team.assign(self._agent, self.name)

    def attempted(self, _number: int) -> None:
        self._put(attempts=self._agents.task(self._agent, self.name).attempts + 1)

    def done(self, kept_output: dict[str, Any], outcome: Any) -> None:
        agents, tokens = self._agents, TokenUsage(*kept_output["tokens"])
        self._put(
            status="completed",
            completed_at=agents._host.now(),  # noqa: SLF001
            output=_part(outcome, "output", kept_output["output"]),
            summary=_summary_in(outcome, kept_output),
            location=kept_output["location"],
            tokens=added(agents.task(self._agent, self.name).tokens, tokens),
        )
        if agents.team is not None and self._agent in agents.team:
            agents.team.done(self._agent, self.name)

    def failed(self, error: BaseException) -> None:
        self._put(status="failed", error=failure_of(error), completed_at=self._agents._host.now())  # noqa: SLF001

    def _put(self, **fields: Any) -> None:
        self._agents._put_task(self._agent, self.name, **fields)  # noqa: SLF001


def _plain(store: Callable[[Any], Any] | None, output: AgentOutput) -> dict[str, Any]:
    """Return what is kept of an output."""
    return {
        "output": output.output if store is None else store(output.output),
        "summary": None if output.summary == summary_of(output.output) else output.summary,
        "location": None if output.location is None else str(output.location),  # a Path is meant well
        "tokens": [output.tokens.input, output.tokens.output],
    }


def _part(outcome: Any, key: str, value: Any, *, is_summary: bool = False) -> Any:
    """Return what refers to a part of a result; the value where there is no journal."""
    return outcome._replace(keys=(key,), is_summary=is_summary) if isinstance(outcome, Outcome) else value


def _summary_in(outcome: Any, kept_output: dict[str, Any]) -> Any:
    """Return a summary that was given, or what makes one of the output."""
    if kept_output["summary"] is not None:
        return kept_output["summary"]
    return _part(outcome, "output", summary_of(kept_output["output"]), is_summary=True)


def _telling(tasks: dict[str, AgentTask]) -> AgentTask:
    """Return the task that an agent is judged by: one under way before a failed one, and so on; of equals the last."""
    latest = {task.status: task for task in tasks.values()}
    return next(latest[status] for status in _TELLING if status in latest)


def _call(agent: str, what: Callable[..., Any], given: Any) -> Any:
    returned = what(given) if given is not None or wants_argument(what) else what()
    return result_of(returned, f"agent {agent!r}")


def spent_by(output: AgentOutput) -> Spent:
    """Return what an agent says that it spent."""
    usage = counted(output.tokens)
    tokens = int(add(usage.input, usage.output))
    amount_of("tool_calls", output.tool_calls)
    return Spent(tokens, output.tool_calls, amount_of("money", output.money))


def _read_output(returned: Any, host: Host) -> AgentOutput:
    """Return what a function returned as an output: plain, with its usage, or with all that can be said of it."""
    if isinstance(returned, AgentOutput):
        return returned
    if isinstance(returned, CommandResult):
        return _read_result(returned, host)
    if isinstance(returned, TokenUsage):
        return AgentOutput(tokens=returned)
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], TokenUsage):  # noqa: PLR2004
        return AgentOutput(output=returned[0], tokens=returned[1], summary=_summary(returned[0]))
    if isinstance(returned, dict):
        summary, location, spent = returned.get("summary"), returned.get("location"), spent_of(returned)
        return AgentOutput(
            output=returned,
            summary=summary if isinstance(summary, str) else "",
            location=location if isinstance(location, str) else None,
            tokens=usage_of(returned),
            money=spent.money,
            tool_calls=spent.tool_calls,
        )
    return AgentOutput(output=returned, summary=_summary(returned), tokens=usage_of(returned))


def _run_command(command: Command, given: Any, timeout_s: float | None, host: Host) -> AgentOutput:
    """Run a command with the input as its standard input: text as it is, anything else as JSON."""
    stdin = given if given is None or isinstance(given, str) else _as_json(given)
    output = _read_result(command.run(stdin=stdin, timeout_s=timeout_s, host=host), host)
    return msgspec.structs.replace(output, location=command.location)


def _read_result(result: CommandResult, host: Host) -> AgentOutput:
    """Return what a command printed as an output; CommandFailed also if it says itself that it failed.

    Money and tool calls are counted at once, and tokens if it failed: that was paid for, too.
    """
    spent = spent_of(result.report)
    said = report_of(result.json())
    has_failed = not result.succeeded or (isinstance(said, dict) and said.get("is_error") is True)
    host.charge(**(spent if has_failed else spent._replace(tokens=0))._asdict())
    result.check()
    if isinstance(said, dict) and said.get("is_error") is True:
        raise CommandFailed(result.command, result.exit_code, str(said.get("result", "it reports an error")))
    return AgentOutput(output=result.output, summary=_summary(result.output), tokens=result.tokens)


def _as_json(given: Any) -> str:
    try:
        return msgspec.json.encode(given).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise UsageError(f"this input cannot be handed to a command as JSON: {error}") from error


def _summary(output: Any) -> str:
    """Return the first line of a text."""
    if not isinstance(output, str):
        return ""
    line = next((line.strip() for line in output.splitlines() if line.strip()), "")
    return line if len(line) <= _LONGEST_SUMMARY else line[: _LONGEST_SUMMARY - 3] + "..."
