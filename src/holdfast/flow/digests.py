"""Names for what a flow says, so that a changed file is met with a plan: what is kept, what runs, what is gone.

A task's digest covers all that decides what it does: its own words, its agent's, the parameters that it uses, and the
tasks and phases whose results it builds on.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.capture.secret_keys import SECRET_KEYS
from holdfast.capture.secrets import ends_in_secret_key, is_secret_key, is_telling, keys_pattern, looks_random
from holdfast.encode.documents import open_regular
from holdfast.errors import DocumentInvalid, UsageError
from holdfast.flow.condition import parse_condition
from holdfast.flow.model import Work
from holdfast.flow.names import known_names
from holdfast.flow.template import fill, names_in
from holdfast.flow.variables import Variables
from holdfast.runtime.artifacts import digest_of
from holdfast.workspace.descriptors import open_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from holdfast.flow.model import Action, Flow, Gate, Phase, Task

Change = Literal["same", "changed", "follows", "new", "removed"]
Will = Literal["kept", "runs", "again", "gates", "conditions", "continues", "failed", "gone", "never"]

_NOT_DECIDING = {
    "retries", "backoff", "timeout", "max_fixes", "approve", "artifacts", "summary", "writes", "needs", "gates", "fix",
    "inputs", "on_interrupt", "knowledge",
}  # fmt: skip
_GATE_DECIDES = {"run", "env", "cwd"}
_FLEETING = {"budget", "run"}
_LENGTH = 16
_SECRET = keys_pattern(SECRET_KEYS)


class PhaseDigest(msgspec.Struct, frozen=True):
    """The digest of a phase and of each of its tasks; `actions` leaves gates and fixes out, `own` what is before it."""

    phase: str
    tasks: dict[str, str] = {}
    actions: dict[str, str] = {}
    own: str = ""


class FlowDigests(msgspec.Struct, frozen=True):
    """The digests of a whole flow, phases in their order."""

    phases: dict[str, PhaseDigest] = {}


class PhaseChange(msgspec.Struct, frozen=True):
    """What became of one phase and its tasks between two versions of a flow."""

    phase: str
    change: Change
    tasks: dict[str, Change] = {}
    will: Will | None = None
    """What resuming the run does with it, if that was looked at; `task_wills`, with the tasks of a changed one."""
    task_wills: dict[str, Will] = {}
    reason: str = ""
    """Why it runs again; `task_reasons`, what changed about each of its tasks."""
    task_reasons: dict[str, str] = {}
    effects: dict[str, str] = {}
    """Outside effects that have happened, by task; they happen again if it runs again."""

    @property
    def is_changed(self) -> bool:
        """Whether its results may be others now: it changed, or something before it did."""
        return self.change in ("changed", "follows")

    def line(self) -> str:
        """Say it for people."""
        effects = [
            effect for task, effect in self.effects.items() if self.task_wills.get(task, self.will) in ("runs", "again")
        ]
        again = f"; this has happened, and happens again: {', '.join(effects)}" if effects else ""
        return f"{self.phase}: {_said(self.change, self.will)}{_why(self.reason)}{again}"


class FlowChanges(msgspec.Struct, frozen=True):
    """What became of a flow: every phase of the new version in its order, then those that are gone."""

    phases: tuple[PhaseChange, ...] = ()

    def which(self, change: Change) -> tuple[str, ...]:
        """Return the phases that changed in one way."""
        return tuple(one.phase for one in self.phases if one.change == change)

    @property
    def is_same(self) -> bool:
        """Whether nothing changed."""
        return all(one.change == "same" for one in self.phases)

    def lines(self) -> list[str]:
        """Say it for people, one line a phase, and a line for each task of a changed one."""
        said: list[str] = []
        for one in self.phases:
            said.append(one.line())
            if (one.is_changed or one.task_wills) and list(one.tasks) != [one.phase]:
                said += [
                    f"  {task}: {_said(change, one.task_wills.get(task))}{_why(one.task_reasons.get(task))}"
                    for task, change in one.tasks.items()
                ]
        return said


_CHANGES = {
    "same": "unchanged",
    "changed": "changed",
    "follows": "what comes before it changed",
    "new": "new",
    "removed": "no longer in the flow",
}
_WILLS = {
    "kept": "its results are kept",
    "runs": "it runs",
    "again": "it runs again",
    "gates": "only its gates run again",
    "conditions": "its tasks are kept, its conditions are looked at again",
    "continues": "it continues where it was",
    "failed": "it failed, and on_failure decides",
    "gone": "its results stay in the record",
    "never": "it never ran",
}


def _said(change: Change, will: Will | None) -> str:
    return _CHANGES[change] + (f", {_WILLS[will]}" if will is not None else "")


def _why(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def changed_parts(
    task: Task, before: Task, *, flow: Flow, old: Flow, params: Mapping[str, Any], known: Mapping[str, Any]
) -> list[str]:
    """Return what differs in a task's definition and parameters between two versions of its flow, for people."""
    now, then = _plain(task), _plain(before)
    deciding = [name for name in now | then if name not in _NOT_DECIDING or name in ("gates", "fix", "needs")]
    names = Variables(known_names(flow))
    used = [*_action_names(task, flow, names), *map(names_in, flow.env.values())]
    used += [name for gate in task.gates for name in _gate_names(gate, names)]
    used += _action_names(task.fix, flow, names) if task.fix else ()
    values, others = _params_used(used, params), _params_used(used, known)
    asked = [task, *([task.fix] if task.fix else [])]
    agents, before_agents = _agents_of(asked, flow), _agents_of(asked, old)
    return [
        *(f"parameter {name} changed" for name in values if values[name] != others.get(name)),
        *(f"`{name}` changed" for name in deciding if now.get(name) != then.get(name)),
        *(f"agent {name} changed" for name in agents if agents[name] != before_agents.get(name)),
        *(["env of the flow changed"] if _without_secrets(flow.env) != _without_secrets(old.env) else []),
    ]


def flow_digests(flow: Flow, params: Mapping[str, Any], root: Path | None) -> FlowDigests:
    """Return the digests of a flow with these parameters, and the files below `root` that it declares as inputs."""
    names = Variables(known_names(flow))
    own = {
        name: _phase_digest(name, phase, flow, params, names=names, root=root) for name, phase in flow.phases.items()
    }
    return FlowDigests(_built_on(flow, own, names))


def compare_flows(old: FlowDigests, new: FlowDigests) -> FlowChanges:
    """Return what became of each phase and task."""
    changes: list[PhaseChange] = []
    for name, digest in new.phases.items():
        before = old.phases.get(name)
        if before is None:
            changes.append(PhaseChange(name, "new"))
            continue
        tasks = _compare(before.tasks, digest.tasks)
        change: Change = "changed" if before.own != digest.own else "follows"
        changes.append(PhaseChange(name, "same" if before.phase == digest.phase else change, tasks))
    changes += [PhaseChange(name, "removed") for name in old.phases if name not in new.phases]
    return FlowChanges(tuple(changes))


def question_digest(
    template: str, value_of: Callable[[str], Any], *, definition: str, clean: Callable[[str], str]
) -> str:
    """Return a digest of what a person is asked: the words without secrets, and the definition of the work.

    What differs by itself between two processes (what is spent, where the workspace is) counts by its name alone.
    """

    def lasting(name: str) -> Any:
        root, *_, last = name.split(".") if "." in name else (name, name)
        return name if root in _FLEETING else _without_secrets({last: value_of(name)})[last]

    return _digest([clean(fill(template, lasting)), definition])


def phases_used(phase: Phase, name: str, flow: Flow, names: Variables) -> set[str]:
    """Return the other phases whose results a phase builds on, by the names in its texts."""
    found: set[str] = set()
    for text in _names_of(phase, name, flow, names):
        found |= {parts[1] for parts in (used.split(".") for used in text) if parts[0] == "phases" and len(parts) > 1}
    return found - {name}


def _compare(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, Change]:
    changes: dict[str, Change] = {
        name: "new" if name not in old else "same" if old[name] == digest else "changed" for name, digest in new.items()
    }
    return changes | dict.fromkeys((name for name in old if name not in new), "removed")


def _phase_digest(
    name: str, phase: Phase, flow: Flow, params: Mapping[str, Any], *, names: Variables, root: Path | None
) -> PhaseDigest:
    work = phase.work(name)
    actions: dict[str, str] = {}
    tasks: dict[str, str] = {}
    for task in needs_first(work):
        needs = sorted(tasks.get(need, "") for need in work[task].needs)
        files = input_digests(work[task].inputs, root)
        actions[task] = _digest([_action_digest(work[task], flow, params, names), needs, files])
        tasks[task] = _digest([actions[task], _checks_digest(work[task], flow, params, names)])
    tasks, actions = {task: tasks[task] for task in work}, {task: actions[task] for task in work}
    rest = [phase.when, _plain(phase.repeat), _plain(phase.replan), _values(phase.when, params)]
    own = _digest([tasks, rest])
    return PhaseDigest(own, tasks, actions, own)


def _built_on(flow: Flow, phases: dict[str, PhaseDigest], names: Variables) -> dict[str, PhaseDigest]:
    """Return the digests with the work in them that each phase builds on: of all before it, for phases hand over files.

    Gates and fixes of an earlier phase are not part of it: if they change, its work is checked again and stays.
    """
    work = {name: [digest.actions, flow.phases[name].when] for name, digest in phases.items()}
    order = list(phases)
    found: dict[str, PhaseDigest] = {}
    for place, (name, digest) in enumerate(phases.items()):
        used = phases_used(flow.phases[name], name, flow, names)
        below = sorted({*order[:place], *used} & work.keys(), key=order.index)
        if not below:
            found[name] = digest
            continue
        seal = [work[other] for other in below]
        tasks, actions = (
            {task: _digest([one, seal]) for task, one in part.items()} for part in (digest.tasks, digest.actions)
        )
        found[name] = PhaseDigest(_digest([digest.phase, seal]), tasks, actions, digest.own)
    return found


def input_digests(patterns: Sequence[str], root: Path | None) -> dict[str, str]:
    """Return the files that a task declares as its inputs, with digests of their content; a missing one is empty.

    UsageError for one that is not a plain file in the workspace, or larger than is read: a changed one would not be
    noticed.
    """
    if root is None or not patterns:
        return {}
    found: dict[str, str] = {}
    for pattern in patterns:
        paths = sorted(path for path in root.glob(pattern) if path.exists() and not path.is_dir())
        names = [path.relative_to(root).as_posix() for path in paths]
        found |= {name: _input_digest(root, name) for name in names} or {pattern: ""}
    return found


def _input_digest(root: Path, name: str) -> str:
    try:
        parent, last = open_parent(os.path.realpath(root), os.fsencode(name))
        try:
            stream = open_regular(os.fsdecode(last), dir_fd=parent)
        finally:
            os.close(parent)
        return digest_of(name, stream)
    except FileNotFoundError:
        return ""
    except DocumentInvalid as error:
        reason = error.detail
    except NotADirectoryError:
        reason = "lies behind a link"
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    raise UsageError(f"input {name!r} {reason}: name plain files below the workspace in `inputs:`")


def needs_first(work: Mapping[str, Task]) -> list[str]:
    """Return the tasks so that each stands after those it needs."""
    done: dict[str, None] = {}
    for root in work:
        ahead = [root]
        while ahead:
            name = ahead[-1]
            missing = [need for need in work[name].needs if need in work and need not in done]
            if missing:
                ahead += missing
            else:
                done[ahead.pop()] = None
    return list(done)


def _action_digest(task: Task, flow: Flow, params: Mapping[str, Any], names: Variables) -> str:
    said = {name: value for name, value in _plain(task).items() if name not in _NOT_DECIDING}
    said |= {"conflict": {**said["conflict"], "rounds": 0}} if "conflict" in said else {}
    used = [*_action_names(task, flow, names), *map(names_in, flow.env.values())]
    return _digest([said, _agents_of([task], flow), _params_used(used, params), _without_secrets(flow.env)])


def _checks_digest(task: Task, flow: Flow, params: Mapping[str, Any], names: Variables) -> str:
    used = [used for gate in task.gates for used in _gate_names(gate, names)]
    used += _action_names(task.fix, flow, names) if task.fix else ()
    gates = [{name: value for name, value in _plain(gate).items() if name in _GATE_DECIDES} for gate in task.gates]
    fixers = _agents_of([task.fix] if task.fix else [], flow)
    return _digest([gates, _plain(task.fix), fixers, _params_used(used, params)])


def _agents_of(actions: Sequence[Action], flow: Flow) -> dict[str, Any]:
    asked = {name for action in actions if isinstance(action, Work) for name in action.asked}
    names = sorted({action.agent for action in actions if action.agent} | asked)
    known = {name: _plain(flow.agents[name]) for name in names if name in flow.agents}
    return {
        name: {key: said[key] for key in said if key not in ("role", "timeout", "most")} for name, said in known.items()
    }


def _params_used(found: list[list[str]], params: Mapping[str, Any]) -> dict[str, Any]:
    names = (name.split(".") for some in found for name in some)
    used = {parts[1] for parts in names if parts[0] == "params" and len(parts) > 1}
    return _without_secrets({name: params[name] for name in sorted(used) if name in params})  # type: ignore[no-any-return]


def _action_names(action: Action, flow: Flow, names: Variables) -> Iterator[list[str]]:
    """Yield the names that each part of an action uses."""
    agent = flow.agents.get(action.agent) if action.agent else None
    own = action.run is not None or action.call is not None
    command = action.run if own or agent is None else agent.run
    if command is not None:
        yield names.names_in(command)
    texts = action.texts if isinstance(action, Work) else ()
    env = (*action.env.values(), *(agent.env.values() if agent else ()))
    yield from map(names_in, (*env, *_strings(action.input), *texts))


def _gate_names(gate: Gate, names: Variables) -> Iterator[list[str]]:
    yield names.names_in(gate.run)
    yield from map(names_in, gate.env.values())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _names_of(phase: Phase, name: str, flow: Flow, names: Variables) -> Iterator[list[str]]:
    """Yield the names that each text and condition of a phase uses, those that decide where it leads aside."""
    for task in phase.work(name).values():
        for action in (task, task.fix):
            if action is not None:
                yield from _action_names(action, flow, names)
        for gate in task.gates:
            yield from _gate_names(gate, names)
    if phase.when:
        yield list(parse_condition(phase.when).names)


def _values(condition: str | None, params: Mapping[str, Any]) -> dict[str, Any]:
    names = parse_condition(condition).names if condition else ()
    used = {parts[1] for parts in (name.split(".") for name in names) if parts[0] == "params" and len(parts) > 1}
    return _without_secrets({name: params[name] for name in sorted(used) if name in params})  # type: ignore[no-any-return]


def _plain(part: Any) -> Any:
    return _without_secrets(msgspec.to_builtins(part))


def _without_secrets(value: Any) -> Any:
    """Return what is said without secrets, by the rules of the store: a new key is no other work, nor betrayed."""
    if isinstance(value, dict):
        return {key: "" if _is_secret(key, item) else _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _is_secret(key: str, value: Any) -> bool:
    if is_secret_key(key, _SECRET):
        return True
    is_text = isinstance(value, str)
    return is_text and (ends_in_secret_key(key, _SECRET) or (is_telling(key) and looks_random(value)))


def _digest(value: Any) -> str:
    packed = msgspec.json.encode(value, order="deterministic", enc_hook=repr)
    return hashlib.sha256(packed).hexdigest()[:_LENGTH]
