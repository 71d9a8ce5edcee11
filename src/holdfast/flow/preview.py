"""Preview of a resume: what it will do with each phase of the flow, from the newest checkpoint; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode.documents import read_regular
from holdfast.errors import DocumentInvalid, HoldfastError
from holdfast.flow.digests import FlowChanges, changed_parts, compare_flows, input_digests
from holdfast.flow.model import Flow
from holdfast.flow.position import POSITION, Position, place_name
from holdfast.flow.tasks import is_worked
from holdfast.model.sections import WORKSPACE, PhaseState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from holdfast.checkpoint import Checkpoint
    from holdfast.flow.digests import Change, FlowDigests, PhaseChange, Will
    from holdfast.flow.position import FlowRecord

_SETTLED = ("completed", "skipped")
_STAYS = (
    "kept",
    "gates",
    "conditions",
    "continues",
    "failed",
    "again",
)  # of a phase that was begun


def preview_changes(head: Checkpoint | None, flow: Flow, old: FlowDigests, new: FlowDigests) -> FlowChanges:
    """Return what became of each phase since the head of a run, and what the run will do with it."""
    preview = _Preview(head, flow, old, new)
    return FlowChanges(tuple(preview.phase(one) for one in compare_flows(old, new).phases))


class _Preview:
    """What is on record, as a phase's future depends on it."""

    def __init__(self, head: Checkpoint | None, flow: Flow, old: FlowDigests, new: FlowDigests) -> None:
        self._flow = flow
        self._old, self._new = old, new
        self._position: Position = msgspec.convert(_section(head, POSITION, {}), Position)
        self._states: Mapping[str, PhaseState] = getattr(_section(head, "phases", None), "phases", {})
        self._gated: Mapping[str, Any] = getattr(_section(head, "gates", None), "tasks", {})
        self._steps = {record["step"]: record["event"] for record in (head.calls if head else [])}

    def phase(self, one: PhaseChange) -> PhaseChange:
        """Return a change with what will be done."""
        state = self._states.get(one.phase, PhaseState())
        one = msgspec.structs.replace(one, effects=self._effects(one.phase))
        is_begun = state.attempt > 0
        if one.change == "new":
            return msgspec.structs.replace(one, will="runs")
        if one.change == "removed":
            return msgspec.structs.replace(one, will="gone" if is_begun else "never")
        if one.change == "same":
            return msgspec.structs.replace(one, will=self._unchanged(one.phase, state))
        tasks = {task: self._task(one.phase, task, change) for task, change in one.tasks.items()}
        will: Will = _of_all(one.tasks, tasks) if is_begun else "runs"
        return msgspec.structs.replace(one, will=will, task_wills=tasks)

    def _effects(self, phase: str) -> dict[str, str]:
        """Return the outside effects of a phase's tasks that have happened."""
        number = self._position.rounds.get(phase, 1)
        work = self._flow.phases[phase].work(phase) if phase in self._flow.phases else {}
        return {
            task: one.effect
            for task, one in work.items()
            if one.effect is not None and self._steps.get(place_name(phase, number, task)) == "done"
        }

    def _unchanged(self, name: str, state: PhaseState) -> Will:
        value = self._position
        if name == value.stopped or name in value.due:
            return "again"
        if state.status in _SETTLED:
            return "kept"
        if state.status == "pending":
            return "again" if state.attempt > 0 else "runs"
        return "failed" if state.status == "failed" else "continues"

    def _task(self, phase: str, task: str, change: Change) -> Will:
        if change in ("new", "removed"):
            return "runs" if change == "new" else "gone"
        value = self._position
        number = value.rounds.get(phase, 1)
        event = self._steps.get(place_name(phase, number, task))
        gated = self._gated.get(place_name(phase, number, task))
        is_done = event in ("done", "skipped")
        if change == "same" and is_done:
            return "kept"
        is_same_work = self._old.phases[phase].actions.get(task) == self._new.phases[phase].actions[task]
        if change == "changed" and is_same_work and (event == "done" or (gated is not None and is_worked(gated))):
            return "gates" if self._flow.phases[phase].work(phase)[task].gates else "kept"
        return "runs" if event is None and gated is None else "again"


def is_edited_since(head: Checkpoint, root: Path, path: str) -> bool:
    """Tell whether a file is there and not as a checkpoint has it; one that it does not have cannot be told."""
    try:
        kept = head.read(path) if WORKSPACE in head.sections else None
    except (HoldfastError, OSError):
        kept = None
    try:
        return kept is not None and read_regular(root / path, limit=len(kept)) != kept
    except DocumentInvalid:  # larger, or not a regular file
        return True
    except OSError:
        return False


def with_reasons(
    changes: FlowChanges, known: FlowRecord, flow: Flow, params: Mapping[str, Any], *, head: Checkpoint, root: Path
) -> FlowChanges:
    """Return a preview that says of each changed task what about it changed since the flow that its run knows."""
    try:
        old = msgspec.convert(known.flow, Flow)
    except msgspec.ValidationError:  # a secret was kept out of it
        return changes
    phases: list[PhaseChange] = []
    for one in changes.phases:
        reasons: dict[str, str] = {}
        if one.change == "changed":
            before, now = old.phases[one.phase].work(one.phase), flow.phases[one.phase].work(one.phase)
            for task in [task for task, change in one.tasks.items() if change == "changed"]:
                parts = changed_parts(now[task], before[task], flow=flow, old=old, params=params, known=known.params)
                files = input_digests(now[task].inputs, root)
                parts += [f"{name} changed" for name in files if is_edited_since(head, root, name) or not files[name]]
                reasons[task] = ", ".join(parts)
        reason = one.reason or (reasons.get(one.phase, "") if list(one.tasks) == [one.phase] else "")
        phases.append(msgspec.structs.replace(one, reason=reason, task_reasons=reasons))
    return FlowChanges(tuple(phases))


def lost_reasons(lost: Mapping[tuple[str, str], str], root: Path) -> dict[tuple[str, str], str]:
    """Return why tasks run again whose files are gone or changed."""
    changed = "was changed by hand; that version stays in the checkpoints"
    return {task: f"its file {name} {changed if (root / name).is_file() else 'is gone'}" for task, name in lost.items()}


def with_runs_again(changes: FlowChanges, reasons: Mapping[tuple[str, str], str]) -> FlowChanges:
    """Return a preview with kept tasks that run again all the same, each for its reason, and what follows them."""
    if not reasons:
        return changes
    phases: list[PhaseChange] = []
    first = ""
    for one in changes.phases:
        why = {task: reason for (phase, task), reason in reasons.items() if phase == one.phase}
        if one.will not in _STAYS or not (why or first):
            phases.append(one)
            continue
        reason = ", ".join(dict.fromkeys(why.values())) or f"{first} runs again before it"
        stays = set() if first else one.tasks.keys() - why.keys()
        wills: dict[str, Will] = {task: "kept" if task in stays else "again" for task in one.tasks}
        phases.append(msgspec.structs.replace(one, will="again", task_wills=wills, reason=reason))
        first = first or one.phase
    return FlowChanges(tuple(phases))


def _of_all(changes: Mapping[str, Change], wills: Mapping[str, Will]) -> Will:
    """Return what a changed phase will do, by what its tasks will."""
    if not wills or not {"runs", "again"}.isdisjoint(wills.values()):
        return "again"
    if "gates" in wills.values():
        return "gates"
    return "conditions" if all(change == "same" for change in changes.values()) else "kept"


def _section(head: Checkpoint | None, name: str, otherwise: Any) -> Any:
    return head.section(name) if head is not None and name in head.sections else otherwise
