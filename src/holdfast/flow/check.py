"""What must fit together in a flow, found before anything runs: every problem, not only the first."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from holdfast.capture.secret_keys import SECRET_KEYS
from holdfast.capture.secrets import is_secret_key, keys_pattern
from holdfast.errors import UsageError
from holdfast.flow.condition import parse_condition
from holdfast.flow.model import (
    END,
    Action,
    Agent,
    CommandLine,
    Entry,
    Flow,
    Gate,
    Knowledge,
    Phase,
    Task,
    Work,
    command_text,
)
from holdfast.flow.names import (
    ANY,
    ENTRY_VARIABLES,
    FAILURE,
    GATE_FAILURE,
    REPORTED,
    TASK_FACTS,
    VARIABLE_WORDS,
    NameUnknown,
    everywhere,
    find,
    known_names,
    leaves,
)
from holdfast.flow.order import circle_in, reachable, unconditional_circle
from holdfast.flow.read import Problem, nearest
from holdfast.flow.shell_text import holes_in, references_in, rewritten, warnings_in
from holdfast.flow.template import TemplateError, names_in, shell_names_in
from holdfast.flow.text import quoted
from holdfast.flow.variables import Variables, variable_of, variables_in
from holdfast.runtime.machine import FINAL
from holdfast.runtime.usage import MONEY_NAMES, USAGE_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.flow.text import Path

_CALL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_SECRET = keys_pattern(SECRET_KEYS)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_AMOUNTS = (*MONEY_NAMES, "tool_calls")
_ANSWER = ("output", "fail", "files", "usage", *REPORTED, *_AMOUNTS)
_USAGE = (*USAGE_NAMES, "tool_calls")
_EMPTY = Phase()
_OUTSIDE = dict.fromkeys((*VARIABLE_WORDS, "HOLDFAST_STORE"))  # variables that are there without being a fact

Names = dict[str, Any]


def problems_of(flow: Flow) -> list[Problem]:
    """Return everything that does not fit together in a flow."""
    return _Check(flow).problems


def warnings_of(flow: Flow) -> list[Problem]:
    """Return what can be carried out in a flow, and is probably a mistake."""
    return list(dict.fromkeys(_Check(flow).warnings))


class _Check:
    def __init__(self, flow: Flow) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._flow = flow
        self._is_in_order = flow.in_order  # asked for each name: looking at all phases each time is quadratic
        self._names = known_names(flow)
        self._variables: dict[str | None, Variables] = {}
        self._order = {name: at for at, name in enumerate(flow.phases)}
        self._flow_parts()
        for name, agent in flow.agents.items():
            self._storable(name, ("agents", name))
            self._agent(agent, ("agents", name))
        for name, phase in flow.phases.items():
            self._phase(name, phase, ("phases", name))
        self._routes()

    def _say(self, path: Path, detail: str) -> None:
        self.problems.append(Problem(path, detail))

    def _storable(self, name: str, path: Path) -> None:
        """Refuse a name under which nothing would be stored."""
        if is_secret_key(name, _SECRET):
            self._say(path, f"what stands under {name!r} is kept out of checkpoints as a secret: choose another name")

    def _flow_parts(self) -> None:
        flow = self._flow
        self._env(flow.env, ("env",), self._names)
        self._variables_named(flow.env_from)
        for name in ("on_wait", "on_failure"):
            hook = getattr(flow.hooks, name)
            if hook is not None and (hook.run is None) == (hook.url is None):
                self._say(("hooks", name), "a hook has one of run and url")
            if hook is not None and hook.run is not None:
                self._form(hook.run, ("hooks", name, "run"))
        subject = flow.subject
        if subject is not None:
            if subject.id is None and subject.issue is None:
                self._say(("subject",), "give an id or an issue")
            if subject.read:
                self._command(subject.read, ("subject", "read"), self._names)
        self._knowledge(flow.knowledge or Knowledge())
        if END in flow.phases:
            self._say(("phases", END), f"{END!r} is where a flow ends, so no phase can be called that")
        for name in () if flow.in_order else FINAL.intersection(flow.phases):
            self._say(("phases", name), f"{name!r} is a state in which a run ends, so no phase can be called that")
        if flow.start is not None and flow.start not in flow.phases:
            self._say(("start",), f"there is no phase {flow.start!r}{nearest(flow.start, flow.phases)}")

    def _knowledge(self, knowledge: Knowledge) -> None:
        self._entries(knowledge.entries, ("knowledge", "entries"), self._names)
        if knowledge.read is not None:
            self._command(knowledge.read, ("knowledge", "read"), self._names)
        if knowledge.write is not None:
            self._command(knowledge.write, ("knowledge", "write"), self._names, ENTRY_VARIABLES)

    def _entries(self, entries: list[Entry], path: Path, names: Names) -> None:
        for at, entry in enumerate(entries):
            self._text(entry.text, (*path, at, "text"), names)

    def _agent(self, agent: Agent, path: Path) -> None:
        given = [key for key in ("run", "call", "script") if getattr(agent, key) is not None]
        if len(given) != 1:
            self._say(path, f"an agent has one of run, call and script, not {' and '.join(given) or 'none'}")
        if agent.script is not None and not agent.script:
            self._say((*path, "script"), "a script has at least one answer")
        for at, answer in enumerate(agent.script or ()):
            if isinstance(answer, dict):
                self._answer(answer, (*path, "script", at))
        self._call_name(agent.call, (*path, "call"))
        self._env(agent.env, (*path, "env"), self._names | {"input": None})
        if agent.run is not None:
            self._form(agent.run, (*path, "run"))  # which facts there are depends on where it is used

    def _answer(self, answer: dict[str, Any], path: Path) -> None:
        """Check a scripted answer: what is in it decides what a flow does that is tried out with it."""
        for key, value in answer.items():
            if key not in _ANSWER:
                said = (
                    f"there is no {quoted(key)} in an answer{nearest(key, _ANSWER)}; data of yours belongs under output"
                )
                self._say((*path, key), said)
            elif key in ("usage", "files") and not isinstance(value, dict):
                of = "numbers" if key == "usage" else "paths to texts"
                self._say((*path, key), f"this is a mapping of {of}, not {quoted(value)}")
            elif key in _AMOUNTS and not _is_amount(value):
                self._say((*path, key), f"this is a number from 0, not {quoted(value)}")
        usage, files = answer.get("usage"), answer.get("files")
        for key, value in usage.items() if isinstance(usage, dict) else ():
            if key not in _USAGE:
                self._say((*path, "usage", key), f"there is no {quoted(key)} in usage{nearest(key, _USAGE)}")
            elif not _is_amount(value):
                self._say((*path, "usage", key), f"this is a number from 0, not {quoted(value)}")
        for file in files if isinstance(files, dict) else ():
            self._inside_workspace(str(file), (*path, "files", file))

    def _phase(self, name: str, phase: Phase, path: Path) -> None:
        self._storable(name, path)
        own = [key for key in Work.__struct_fields__ if key != "approve" and _given(phase, key)]
        if phase.tasks and own:
            self._say((*path, own[0]), f"a phase with tasks has no {own[0]} of its own: put it into a task")
        work = phase.work(name)
        if not work and not (phase.approve or phase.next or own):
            self._say(path, "it has nothing to do: give it run, call, agent or tasks")
        if not work and own:
            kinds = "run, call, agent, message, conflict or tasks"
            self._say((*path, own[0]), f"{own[0]} belongs to work, and there is none: give {kinds}")
        names = self._names
        inside = names | {"tasks": names["phases"][name]["tasks"]}
        if phase.tasks:
            self._needs(phase.tasks, (*path, "tasks"))
        for task_name, task in work.items():
            self._storable(task_name, (*path, "tasks", task_name))
            self._task(task_name, task, phase, inside, (*path, "tasks", task_name) if phase.tasks else path)
        if phase.approve:
            self._text(phase.approve.question, (*path, "approve"), names, phase=name)
        if phase.when:
            self._condition(phase.when, (*path, "when"), names)
        if phase.repeat:
            self._condition(phase.repeat.until, (*path, "repeat", "until"), inside)
        if phase.replan:
            self._action(phase.replan, (*path, "replan"), inside | FAILURE)

    def _task(self, name: str, task: Task, phase: Phase, inside: Names, path: Path) -> None:
        allowed = _needed(name, phase.tasks) if phase.tasks else set()
        before = inside | {"tasks": {one: inside["tasks"][one] for one in allowed}}
        after = before | {"tasks": before["tasks"] | {name: TASK_FACTS}, "result": TASK_FACTS["result"], "output": None}
        if task.message is None and task.conflict is None:
            self._action(task, path, before | {"attempt": None})
        else:
            self._talk(task, path, before)
        self._entries(task.knowledge, (*path, "knowledge"), after)
        for at, gate in enumerate(task.gates):
            self._gate(gate, (*path, "gates", at), after)
        if task.fix is not None:
            if not task.gates:
                self._say((*path, "fix"), "a fix fixes what a gate found, and there are no gates")
            if task.max_fixes == 0:
                self._say((*path, "max_fixes"), "a fix that may never run: give max_fixes, or leave fix out")
            self._action(task.fix, (*path, "fix"), after | GATE_FAILURE)
        if task.approve and phase.tasks:
            self._text(task.approve.question, (*path, "approve"), before)
        if task.summary:
            self._text(task.summary, (*path, "summary"), after)
        for at, artifact in enumerate(task.artifacts):
            self._inside_workspace(artifact, (*path, "artifacts", at))
        for at, file in enumerate(task.inputs):
            self._inside_workspace(file, (*path, "inputs", at))

    def _talk(self, task: Task, path: Path, names: Names) -> None:
        """Check a task that is a message or a conflict, and what its agents are given in it."""
        kinds = [key for key in ("message", "conflict", "run", "call", "agent") if getattr(task, key) is not None]
        if len(kinds) > 1:
            self._say(path, f"give one of {' and '.join(kinds)}")
        if task.input is not None:
            self._say((*path, "input"), "a message has a text and a conflict a question: put it there")
        message, conflict = task.message, task.conflict
        team = self._flow.team
        if message is not None:
            members = {*self._flow.agents, *(team.members if team is not None else ())}
            self._members({"to": [message.to], "from": [message.sender]}, members, (*path, "message"))
            self._text(message.text, (*path, "message", "text"), names)
        if conflict is not None:
            given, at = conflict.between, (*path, "conflict")
            if len(given) == 1 or len(set(given)) < len(given):
                self._say((*at, "between"), "a conflict is between two agents or more, each named once")
            self._members({"between": [*given], "settle": [conflict.settle]}, set(self._flow.agents), at)
            self._text(conflict.question, (*at, "question"), names)
        for name in task.asked:
            agent = self._flow.agents.get(name)
            if agent is not None and agent.run is not None:
                self._facts(agent.run, path, names | {"input": ANY, "attempt": None}, agent.env, f"agent {name}: ")

    def _members(self, named: Mapping[str, Sequence[str | None]], known: set[str], path: Path) -> None:
        for key, names in named.items():
            for name in names:
                if name is not None and name not in known:
                    self._say((*path, key), f"there is no agent {name!r}{nearest(name, known)}")

    def _gate(self, gate: Gate, path: Path, names: Names) -> None:
        self._command(gate.run, (*path, "run"), names, gate.env)
        self._env(gate.env, (*path, "env"), names)
        self._inside_workspace(gate.cwd, (*path, "cwd"))

    def _action(self, action: Action, path: Path, names: Names) -> None:
        flow = self._flow
        agent = flow.agents.get(action.agent) if action.agent else None
        if action.run and action.call:
            self._say(path, "give run or call, not both")
        known = [*flow.agents, *(flow.team.members if flow.team else ())]
        own = action.run is not None or action.call is not None
        if not action.agent and not own:
            self._say(path, "it says nothing to do: give run, call, agent, message or conflict")
        elif action.agent and agent is None and (not own or (known and action.agent not in known)):
            missing = nearest(action.agent, known) if known else ": declare it under agents, or give run"
            self._say((*path, "agent"), f"there is no agent {action.agent!r}{missing}")
        self._call_name(action.call, (*path, "call"))
        self._env(action.env, (*path, "env"), names)
        self._inside_workspace(action.cwd, (*path, "cwd"))
        self._value(action.input, (*path, "input"), names)
        command = action.run if own else agent.run if agent else None
        inside = names | {"input": None if action.input is None else ANY}
        if action.run is not None:
            self._command(action.run, (*path, "run"), inside, action.env)
        elif command is not None and agent is not None:
            env = {**agent.env, **action.env}
            self._facts(command, (*path, "agent"), inside, env, f"agent {action.agent}: ")
        if command is not None:
            self._input(action, command, path)

    def _input(self, action: Action, command: CommandLine, path: Path) -> None:
        try:
            uses = "input" in {name.partition(".")[0] for name in self._variables_at(path).names_in(command)}
        except UsageError:
            return  # said already
        if uses and action.input is None:
            self._say(path, f"the command {quoted(command_text(command))} uses its input, and none is given: add input")
        if not uses and action.input is not None:
            said = f"the command {quoted(command_text(command))} does not name it: it gets it as $HOLDFAST_INPUT"
            self.warnings.append(Problem((*path, "input"), said))

    def _needs(self, tasks: Mapping[str, Task], path: Path) -> None:
        for name, task in tasks.items():
            for at, need in enumerate(task.needs):
                if need not in tasks:
                    others = [one for one in tasks if one != name]
                    self._say((*path, name, "needs", at), f"there is no task {need!r}{nearest(need, others)}")
        known = {name: [need for need in task.needs if need in tasks] for name, task in tasks.items()}
        circle = circle_in(known)
        if circle:
            self._say((*path, circle[0], "needs"), f"tasks need each other in a circle: {' -> '.join(circle)}")

    def _routes(self) -> None:
        flow = self._flow
        for name, phase in flow.phases.items():
            inside = self._names | {"tasks": self._names["phases"][name]["tasks"]}
            for at, route in enumerate(phase.next):
                path: Path = ("phases", name, "next", at)
                if route.to != END and route.to not in flow.phases:
                    self._say(path, f"there is no phase {route.to!r}{nearest(route.to, [*flow.phases, END])}")
                if route.when:
                    self._condition(route.when, (*path, "when"), inside)
                elif at < len(phase.next) - 1:
                    self._say(path, "it has no when, so what stands below it is never reached")
        if flow.in_order or self.problems:
            return
        for name in flow.phases.keys() - reachable(flow):
            self._say(("phases", name), f"no way leads here from {flow.first!r}")
        circle = unconditional_circle(flow)
        if circle:
            self._say(("phases", circle[0], "next"), f"this never ends: {' -> '.join(circle)}; give a way out a when")

    def _text(self, text: str, path: Path, names: Names, *, phase: str | None = None) -> None:
        try:
            used = names_in(text)
        except UsageError as error:
            self._say(path, str(error))
            return
        for name in used:
            self._name(name, path, names, phase=phase)

    def _value(self, value: Any, path: Path, names: Names) -> None:
        if isinstance(value, str):
            self._text(value, path, names)
        elif isinstance(value, (dict, list)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                self._value(item, (*path, key), names)

    def _variables_at(self, path: Path) -> Variables:
        phase = str(path[1]) if path[0] == "phases" else None
        known = self._variables.get(phase)
        if known is None:
            known = self._variables[phase] = Variables(everywhere(self._names, phase))
        return known

    def _command(self, command: CommandLine, path: Path, names: Names, env: Mapping[str, str] | None = None) -> None:
        """Check how a command is written, and the facts that it uses."""
        self._form(command, path)
        self._facts(command, path, names, env or {})

    def _form(self, command: CommandLine, path: Path) -> None:
        """Check what can be said of a command wherever it is used."""
        if any("\0" in text for text in command):
            self._say(path, "a command has no zero byte")
        elif isinstance(command, str):
            roots = everywhere(self._names, None)
            if holes := holes_in(command, roots):
                self._say(
                    path,
                    f"{{{holes[0]}}} is not filled in in shell text, where facts are variables. Write\n"
                    f"    {rewritten(command, roots)}\n"
                    f"    or {{ {holes[0]} }} with spaces, if the braces are the command's own",
                )
            self.warnings += [Problem(path, warning) for warning in warnings_in(command)]
        else:
            for at, argument in enumerate(command):
                self._argument(argument, (*path, at), is_program=at == 0)

    def _argument(self, argument: str, path: Path, *, is_program: bool) -> None:
        try:
            used = names_in(argument)
        except UsageError as error:
            self._say(path, str(error))
            return
        if is_program and (used or not argument.strip()):
            self._say(path, "the program of a command is a plain name or path")
        roots = everywhere(self._names, None)
        for name in shell_names_in(argument):
            if name in roots:
                self._say(path, f"${{{name}}} is a variable of a shell; write {{{name}}} for the flow's value")

    def _facts(self, command: CommandLine, path: Path, names: Names, env: Mapping[str, str], said: str = "") -> None:
        """Check the facts that a command uses by their variables, and in the arguments of a list as `{name}`."""
        known = self._variables_at(path)
        given = {**self._flow.env, **env, **_OUTSIDE}
        for variable in variables_in(command):
            try:
                fact = None if variable in given else known.find(variable)
            except UsageError as error:
                self._say(path, f"{said}{error}")
                continue
            if fact is not None:
                self._name(fact.name, path, names, said=said)
            elif variable not in given and variable in references_in(command_text(command)):
                there = (variable_of(name) for name in leaves(names))
                self._say(path, f"{said}there is no fact for ${variable}{nearest(variable, there)}")
        for at, argument in enumerate([] if isinstance(command, str) else command):
            with contextlib.suppress(TemplateError):  # said already
                for name in names_in(argument):
                    self._name(name, (*path, at), names, said=said)

    def _name(self, name: str, path: Path, names: Names, *, phase: str | None = None, said: str = "") -> None:
        parts = name.split(".")
        try:
            find(names, name)
        except NameUnknown as error:
            here = self._names["phases"].get(path[1], {}).get("tasks", {}) if len(path) > 1 else {}
            there = names.get("tasks") or {}
            known = parts[0] == "tasks" and len(parts) > 1 and parts[1] in here and parts[1] not in there
            self._say(path, f"{said}{{{name}}}: {self._why_late(parts[1], path)}" if known else f"{said}{error}")
            return
        if parts == ["phases"]:
            self._say(path, f"{said}{{{name}}} is every phase at once: name one, as phases.{self._flow.first}.summary")
            return
        here_phase = phase or (str(path[1]) if path[0] == "phases" else None)
        late = self._is_in_order and parts[0] == "phases" and here_phase in self._order
        if late and self._order[parts[1]] > self._order[str(here_phase)]:
            self._say(path, f"{{{name}}}: phase {parts[1]!r} comes after {here_phase!r}, so it has no result yet")

    def _why_late(self, task: str, path: Path) -> str:
        """Return why a task of the same phase has no result at a place, and what to do about it."""
        tasks = self._flow.phases[str(path[1])].tasks
        own = str(path[3]) if path[2:3] == ("tasks",) else None if tasks else str(path[1])
        if task == own:
            return "that is this task itself, which has no result before it is done"
        if own is None:
            return f"task {task!r} is done only in this phase, so it has no result before the phase begins"
        if own in _needed(task, tasks):
            return f"task {task!r} needs {own!r}, so it has no result yet"
        return f"add {task!r} to needs first"

    def _condition(self, text: str, path: Path, names: Names) -> None:
        try:
            condition = parse_condition(text)
        except UsageError as error:
            self._say(path, str(error))
            return
        for name in condition.names:
            self._name(name, path, names)

    def _env(self, env: Mapping[str, str], path: Path, names: Names) -> None:
        for variable, text in env.items():
            self._variable(variable, (*path, variable))
            self._text(text, (*path, variable), names)

    def _variables_named(self, names: list[str]) -> None:
        for at, name in enumerate(names):
            self._variable(name, ("env_from", at))

    def _variable(self, name: str, path: Path) -> None:
        if not _VARIABLE.match(name):
            self._say(path, f"{quoted(name)} cannot be the name of an environment variable")

    def _call_name(self, call: str | None, path: Path) -> None:
        if call is not None and not _CALL.match(call):
            self._say(path, f"{quoted(call)} is not a function: write module:function")

    def _inside_workspace(self, given: str | None, path: Path) -> None:
        if given is not None and (given.startswith(("/", "~")) or ".." in given.split("/") or "\0" in given):
            self._say(path, f"{quoted(given)} leads out of the workspace, where nothing is captured")


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _given(phase: Phase, key: str) -> bool:
    """Tell whether a field of a phase was set: it differs from what it is by default."""
    return bool(getattr(phase, key) != getattr(_EMPTY, key))


def _needed(name: str, tasks: Mapping[str, Task]) -> set[str]:
    """Return the tasks that are done when a task begins."""
    done: set[str] = set()
    ahead = [name]
    while ahead:
        for need in tasks[ahead.pop()].needs:
            if need in tasks and need not in done:
                done.add(need)
                ahead.append(need)
    return done
