"""What templates and conditions find behind their names while a flow runs, read from the run's own sections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.flow.actions import with_summary
from holdfast.flow.names import find
from holdfast.flow.position import place_name
from holdfast.runtime.amounts import stored
from holdfast.runtime.budget import KNOWN
from holdfast.runtime.calls import current_step
from holdfast.runtime.knowledge import entry_facts
from holdfast.runtime.ledger import TIME

if TYPE_CHECKING:
    from holdfast.flow.model import Flow
    from holdfast.flow.position import Kept, Position
    from holdfast.run import Run
    from holdfast.runtime.budget import Budget

_NOTHING = {"status": "pending", "result": None, "output": None, "summary": None, "exit_code": None, "error": None}


class Facts:
    """The values behind names, as they are at the moment they are asked for."""

    def __init__(
        self, run: Run, flow: Flow, params: dict[str, Any], position: Kept, *, budget: Budget, phase: str
    ) -> None:
        self._run = run
        self._flow = flow
        self._params = params
        self._kept = position
        self._budget = budget
        self._phase = phase
        self.more: dict[str, Any] = {}
        """Names that are known only in one place: input, failure, result, ..."""

    @property
    def _position(self) -> Position:
        value: Position = self._kept.value
        return value

    def having(self, **more: Any) -> Facts:
        """Return the same facts with more names."""
        facts = Facts(self._run, self._flow, self._params, self._kept, budget=self._budget, phase=self._phase)
        facts.more = {**self.more, **more}
        return facts

    def __call__(self, name: str) -> Any:
        """Return the value of a dotted name; NameUnknown names the nearest."""
        root = name.partition(".")[0]
        if root in self.more:
            return find(self.more, name)
        if root in _OF_AN_AGENT:
            return None
        return find({root: self._root(root, name), **dict.fromkeys(_ROOTS - {root}, None)}, name)

    def _root(self, root: str, name: str) -> Any:
        if root == "params":
            return self._params
        if root == "phases":
            wanted = name.split(".")[1] if "." in name else ""
            return {one: self.phase(one) if one == wanted else None for one in self._flow.phases}
        if root == "tasks":
            if name == root:
                return self.tasks(self._phase)
            wanted = name.split(".")[1]
            work = self._flow.phases[self._phase].work(self._phase)
            return {one: self.task(self._phase, one) if one == wanted else None for one in work}
        if root == "run":
            place = str(self._run.workspace.path) if self._run.host.has_workspace else None
            return {"id": self._run.id, "workspace": place}
        if root == "flow":
            return {"name": self._flow.name}
        if root == "subject":
            return _subject(self._run, self._flow)
        if root == "budget":
            return _amounts(self._budget)
        return self._other(root)

    def _other(self, root: str) -> Any:
        """Return what is known to the run, or which try, round or visit this is."""
        if root == "knowledge":
            known = self._run.knowledge
            return [entry_facts(entry) for entry in (*known.injected, *known.captured, *known.pending)]
        if root == "description":
            return self._flow.phases[self._phase].description
        if root == "attempt":
            step = current_step()
            return step.attempt if step else 1
        if root == "round":
            return self._position.rounds.get(self._phase, 1)
        return self._position.visits.get(self._phase, 0)

    def tasks(self, phase: str) -> dict[str, Any]:
        """Return what each task of a phase came to in its present round."""
        return {task: self.task(phase, task) for task in self._flow.phases[phase].work(phase)}

    def task(self, phase: str, task: str) -> dict[str, Any]:
        """Return what a task came to in the present round of its phase."""
        position = self._position
        number = position.rounds.get(phase, 1)
        step = place_name(phase, number, task)
        record = self._run.calls.record(step)
        if record is None or record["event"] == "voided":
            status = "skipped" if step in position.left_out else "pending"
            return {**_NOTHING, "status": status, "artifacts": []}
        kept = record.get("result")
        done: dict[str, Any] = kept if isinstance(kept, dict) else {"result": kept}
        done = with_summary(done) if record["event"] == "done" else done
        error = record.get("error") or {}
        return {
            **_NOTHING,
            **done,
            "output": _output(done),
            "artifacts": done.get("artifacts", []),
            "status": {"done": "completed", "started": "running"}.get(record["event"], record["event"]),
            "error": error.get("message"),
        }

    def phase(self, phase: str) -> dict[str, Any]:
        """Return what a phase came to."""
        state = self._run.phases.state(phase)
        tasks = self.tasks(phase)
        result = (
            tasks[phase]["result"] if list(tasks) == [phase] else {name: one["result"] for name, one in tasks.items()}
        )
        return {
            "status": state.status,
            "summary": state.summary,
            "result": result,
            "error": state.error.message if state.error else None,
            "artifacts": [one.path for one in state.artifacts],
            "visits": self._position.visits.get(phase, 0),
            "duration_s": state.duration_s,
            "tasks": tasks,
        }


_OF_AN_AGENT = {"messages", "message", "conflict"}  # nothing, where no agent is told or asked
_ROOTS = {
    "params", "phases", "tasks", "run", "flow", "subject", "budget", "visit", "round", "attempt", "description",
    "knowledge", *_OF_AN_AGENT,
}  # fmt: skip


def _output(done: dict[str, Any]) -> str | None:
    output = done.get("output")
    if output is not None:
        return str(output)
    return done["result"] if isinstance(done.get("result"), str) else None


def _subject(run: Run, flow: Flow) -> dict[str, Any]:
    if flow.subject is None:
        return {}
    now = run.subject.value
    known = {name: getattr(now, name) for name in ("id", "title", "body", "labels", "assignees", "branch")}
    return {**known, "issue": flow.subject.issue}


def _amounts(budget: Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys((*KNOWN, *budget.spending)):
        amounts = {"used": budget.used(name), "limit": budget.limit_of(name), "left": budget.left(name)}
        found["time" if name == TIME else name] = {
            key: None if amount is None else stored(amount) for key, amount in amounts.items()
        }
    return found
