"""Where a flow stands, and what it said when it stood there: two sections of its run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.flow.digests import FlowDigests, PhaseDigest
from holdfast.workspace.user_key import is_user_mark, user_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFINITION, POSITION = "flow", "flow_position"


# Rows, and no mapping from names to digests: under a name such as "auth" a digest would be taken for a credential.
_TaskRow = tuple[str, str, str]
_PhaseRow = tuple[str, str, str, list[_TaskRow]]


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The definition that a run follows, so that it can be resumed from the store alone."""

    flow: dict[str, Any]
    params: dict[str, Any] = {}
    given: list[str] = []
    """Parameters that are not what the definition has them by default."""
    digests: list[_PhaseRow] = []
    file: str | None = None
    project: str | None = None
    """The folder that `file` is relative to."""
    imports: list[str] = []
    """Modules that were imported for its functions."""
    agent: str | None = None
    """Of a plan: the command that does the phases without one of theirs."""
    mark: str = ""
    """Under this user's own key: that this user started it so, in that folder; see `start_mark`."""


def start_mark(project: str | None, file: str | None, imports: Sequence[str], agent: str | None) -> str:
    """Return what shows that this user started a flow so: a store may come from elsewhere, and names what is run."""
    return user_mark("flow start", project, file, list(imports), agent)


def is_started_here(record: FlowRecord) -> bool:
    """Tell whether this user started a flow so."""
    return is_user_mark(record.mark, "flow start", record.project, record.file, record.imports, record.agent)


def rows_of(digests: FlowDigests) -> list[_PhaseRow]:
    """Return digests as they are stored."""
    return [
        (name, one.phase, one.own, [(task, digest, one.actions[task]) for task, digest in one.tasks.items()])
        for name, one in digests.phases.items()
    ]


def digests_of(rows: list[_PhaseRow]) -> FlowDigests:
    """Return stored digests."""
    return FlowDigests(
        {
            name: PhaseDigest(
                phase, {task: one for task, one, _ in tasks}, {task: action for task, _, action in tasks}, own
            )
            for name, phase, own, tasks in rows
        }
    )


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a flow is; what its phases and tasks came to stands in their own sections."""

    current: str | None = None
    """The phase that is under way or comes next."""
    marks: dict[str, Literal["open", "kept"]] = {}
    """Phases that were begun and not left, and those whose results hold although the flow starts over."""
    rounds: dict[str, int] = {}
    """How often each phase was begun: visits, repetitions and replans."""
    visits: dict[str, int] = {}
    excused: dict[str, int] = {}
    """How many visits of a phase count no more, because the run was resumed after it was stopped at `max_visits`."""
    repeats: dict[str, int] = {}
    """How many rounds of a phase that repeats were gone through in this visit."""
    retries: dict[str, int] = {}
    """How often a phase was tried again by its own rule, in this round."""
    replanning: dict[str, str] = {}
    """Phases whose replan was counted and is not done, with the reason."""
    left_out: dict[str, str] = {}
    """Steps of tasks that were not wanted, with the reason; each has no record of its own."""
    scripted: dict[str, int] = {}
    """How many answers each scripted agent has given."""
    due: list[str] = []
    """Phases that were settled and changed since, so that they are to be gone through again."""
    stopped: str | None = None
    """The phase at which the run was given up."""
    is_done: bool = False
    reset_at: datetime | None = None
    """When a recovery last set the run back to an earlier state, once that was taken in."""


class Kept:
    """A value as a live section: changed as a whole, and never in place."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.changes = 0

    def change(self, **fields: Any) -> None:
        """Let some fields have other values from now on."""
        self.value = msgspec.structs.replace(self.value, **fields)
        self.changes += 1

    def snapshot(self) -> Any:
        """Return it as plain data."""
        return msgspec.to_builtins(self.value)

    def restore(self, value: Any) -> None:
        """Take it back."""
        self.value = msgspec.convert(value, type(self.value))
        self.changes += 1


def raised(counts: dict[str, int], name: str) -> dict[str, int]:
    """Return counts with one of them one higher."""
    return {**counts, name: counts.get(name, 0) + 1}


def without(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a mapping without one of its names."""
    return {key: value for key, value in values.items() if key != name}


def question_name(phase: str, number: int) -> str:
    """Return the name of the question that comes before a phase, another one in every round."""
    return f"approve:{phase}" + (f"#{number}" if number > 1 else "")


def place_name(phase: str, number: int, task: str) -> str:
    """Return the name of a task's step: the same in every process, another one in every round."""
    again = f"#{number}" if number > 1 else ""
    return f"{phase}{again}/{task}"
