"""A flow that changed since its run was last resumed: what is kept, what runs again, what is gone.

Nothing is written here: the parts of the run are changed in memory, and the next checkpoint holds all of it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import IntegrityError, NotFound, UsageError
from holdfast.flow.digests import compare_flows
from holdfast.flow.position import place_name, question_name
from holdfast.flow.preview import preview_changes
from holdfast.model.sections import PhaseState
from holdfast.recovery.history import FileHistory
from holdfast.workspace.ownership import EDITS, read_edits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from holdfast.flow.digests import FlowChanges, FlowDigests, PhaseChange
    from holdfast.flow.model import Flow
    from holdfast.flow.position import Kept
    from holdfast.run import Run

_SETTLED = ("completed", "skipped")


def take_changes(run: Run, flow: Flow, position: Kept, old: FlowDigests, new: FlowDigests) -> FlowChanges:
    """Make the run ready for a flow that is not what it was; return what became of it."""
    changes = compare_flows(old, new)
    is_reordered = flow.in_order and list(old.phases) != list(new.phases)
    if changes.is_same and not is_reordered:
        return changes
    changes = preview_changes(run.recorder.present, flow, old, new)
    with run.lock:
        known = run.phases.snapshot().phases
        continues = _continues(flow, position, changes)
        marks = dict(position.value.marks)
        due = dict.fromkeys(position.value.due)
        for change in changes.phases:
            name = change.phase
            if change.change == "removed":
                marks.pop(name, None)
                due.pop(name, None)
                run.host.note("flow changed", f"phase {name} is no longer in the flow; its results stay in the record")
                continue
            state = known.get(name, PhaseState())
            status = state.status
            if change.is_changed and (status != "pending" or state.attempt > 0):
                marks[name] = "open"
                if status not in ("pending", "running"):
                    due[name] = None
                _adopt_work(run, position, change, old, new)
                run.host.note("flow changed", f"phase {change.line()}")
            elif change.change == "same" and status in _SETTLED and name not in due and not continues:
                marks[name] = "kept"
        if "waits" in run.recorder.present.sections:
            run.host.waits.withdraw()  # what is still to be asked is asked when the flow comes there
        current = position.value.current if continues else flow.first
        position.change(marks=marks, due=list(due), current=current, is_done=False)
    return changes


def _continues(flow: Flow, position: Kept, changes: FlowChanges) -> bool:
    """Tell whether a flow with routes continues where it stands: only what is under way or not reached yet changed.

    From the beginning it would come by phases whose results are of an earlier lap, and follow those.
    """
    value = position.value
    if flow.in_order or value.current not in flow.phases or value.due:
        return False
    return all(
        one.change in ("same", "removed")
        or (one.is_changed and (one.phase == value.current or one.phase not in value.visits))
        for one in changes.phases
    )


def _adopt_work(run: Run, position: Kept, change: PhaseChange, old: FlowDigests, new: FlowDigests) -> None:
    """Keep the work of tasks that had no gates and changed only in what follows the work: if they have some now."""
    phase = change.phase
    number = position.value.rounds.get(phase, 1)
    for task, became in change.tasks.items():
        action, place = new.phases[phase].actions.get(task, ""), place_name(phase, number, task)
        if became != "changed" or old.phases[phase].actions.get(task) != action:
            continue
        done = run.calls.kept(place)
        if done is not None and run.calls.kept(f"{place}/work") is None:
            result = {"response": run.calls.result(done), "message": ""}
            run.calls.adopt("task", f"{place}/work", result, inputs=action, of=done)


def run_again(run: Run, flow: Flow, position: Kept, tasks: Iterable[tuple[str, str]], why: str) -> None:
    """Let tasks, and everything after their phases, run again, whatever is kept of them."""
    wanted = set(tasks)
    if not wanted:
        return
    order = list(flow.phases)
    first = min(order.index(phase) for phase, _ in wanted)
    with run.lock:
        marks, due = dict(position.value.marks), dict.fromkeys(position.value.due)
        for phase in order[:first]:
            if run.phases.state(phase).status in _SETTLED and phase not in due:
                marks[phase] = "kept"
        for phase in order[first:]:
            run.calls.void(question_name(phase, position.value.rounds.get(phase, 1)))  # a yes was for the work before
            state = run.phases.state(phase)
            if state.status == "pending" and state.attempt == 0:
                continue
            marks[phase] = "open"
            if state.status not in ("pending", "running"):
                due[phase] = None
            number = position.value.rounds.get(phase, 1)
            for task in flow.phases[phase].work(phase):
                # What follows in order depends on the versions of all before it; on other ways nothing says so.
                if (phase, task) in wanted or (order.index(phase) > first and not flow.in_order):
                    _void(run, place_name(phase, number, task))
                    _void(run, f"{place_name(phase, number, task)}/work")
        if "waits" in run.recorder.present.sections:
            run.host.waits.withdraw()
        position.change(marks=marks, due=list(due), current=flow.first, is_done=False)
        run.host.note("runs again", ", ".join("/".join(one) for one in sorted(wanted)), why=why)


def _void(run: Run, path: str) -> None:
    if run.calls.kept(path) is not None:
        run.calls.void(path)


def lost_artifacts(
    run: Run,
    flow: Flow,
    position: Kept,
    root: Path,
    digests: FlowDigests,
    *,
    is_edited: Callable[[str], bool] | None = None,
) -> dict[tuple[str, str], str]:
    """Return the tasks that are kept and whose files are gone or not as the run left them, each with the first.

    What later calls of the run made of a file is how the run left it, also that they moved it. Whether somebody edited
    a file is known of a run that was entered; `is_edited` tells it of another.
    """
    found: dict[tuple[str, str], str] = {}
    is_edited = is_edited or _edited(run).__contains__
    history = FileHistory(run.holdfast, run.id)
    for (phase, task), made in kept_artifacts(run, flow, position, digests).items():
        lost = next((name for name in made if is_edited(name) or _is_lost(root, name, history)), None)
        if lost is not None:
            found[phase, task] = lost
    return found


def kept_artifacts(
    run: Run, flow: Flow, position: Kept, digests: FlowDigests
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the files that each kept task was declared to make, and made."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for phase, definition in flow.phases.items():
        number = position.value.rounds.get(phase, 1)
        for task, one in definition.work(phase).items():
            record = run.calls.kept(place_name(phase, number, task)) if one.artifacts else None
            if record is None or record.input != digests.phases[phase].tasks[task]:
                continue
            done = run.calls.result(record)
            if isinstance(done, dict):
                found[phase, task] = tuple(done.get("artifacts", ()))
    return found


def _is_lost(root: Path, name: str, history: FileHistory) -> bool:
    """Tell whether a file is gone that the run's own calls did not move elsewhere."""
    try:
        return not (root / name).is_file() and not history.is_moved(name)
    except (NotFound, UsageError, IntegrityError):  # it was in no checkpoint, or nobody can tell any more
        return True


def _edited(run: Run) -> set[str]:
    """Return the files that somebody other than the run changed since it last looked at them."""
    before = run.workspace.before_entry if run.host.has_workspace else None
    if before is None or run.head is None or EDITS not in run.head.sections:
        return set()
    return {change.path for change in run.workspace.changes(before)} & read_edits(run.head.section(EDITS)).keys()
