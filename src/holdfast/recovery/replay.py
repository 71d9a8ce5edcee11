"""Replay: a run stepped through by its record, forwards and backwards, with state and files; nothing is called."""

from __future__ import annotations

import copy
from datetime import datetime
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from holdfast.errors import Divergence, IntegrityError, NotFound, ReplayEnded
from holdfast.model.checkpoint import CheckpointRecord
from holdfast.recovery.find import locate
from holdfast.recovery.fork import fork
from holdfast.recovery.gather import steps_of
from holdfast.recovery.line import RunLine
from holdfast.run import Run
from holdfast.runtime.steps import step_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast

T = TypeVar("T")
_SETTLED = ("done", "failed", "skipped")


class ReplayedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it was recorded; `number` counts from 1."""

    number: int
    step: str
    event: str
    result: Any = None
    error: str | None = None
    at: datetime | None = None
    attempts: int = 1
    duration_s: float = 0.0
    phase: str | None = None


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint that shows a position; `note` says so where it shows a later moment, None where it is exact."""

    checkpoint: str
    seq: int
    steps: int
    note: str | None = None


class Readable(Protocol):
    """A checkpoint, as far as a replay needs it."""

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of its sections."""

    def section(self, name: str) -> Any:
        """Return one section."""

    def files(self) -> list[Any]:
        """Return every captured path."""

    def read(self, path: str) -> bytes:
        """Return the bytes of one captured file."""


class Source(Protocol):
    """What a replay asks of the engine."""

    def point(self, records: int) -> Point:
        """Return the first checkpoint of the line whose log has so many records."""

    def open(self, checkpoint: str) -> Readable:
        """Open a checkpoint."""

    def fork(self, checkpoint: str, run: str) -> Any:
        """Begin a new run from a checkpoint."""

    def same(self, record: dict[str, Any], call: Callable[..., Any], args: Any, named: Any) -> tuple[str, str] | None:
        """Return what was recorded and what is asked, None if they are the same."""


class Replay:
    """A run's record, at a position between two of its steps: 0 is before the first."""

    def __init__(self, run: str, records: Sequence[dict[str, Any]], source: Source) -> None:
        self.run_id = run
        self._records = list(records)
        self._source = source
        self._ends = [i + 1 for i, record in enumerate(self._records) if record.get("event") in _SETTLED]
        self.position = 0

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Self:
        """Step through what is left of it."""
        return self

    def __next__(self) -> ReplayedStep:
        if self.position >= len(self):
            raise StopIteration
        return self.next()

    @property
    def steps(self) -> list[ReplayedStep]:
        """Every recorded step, in the order in which they ended; one that failed and was tried again is there twice."""
        return [self._step(number) for number in range(1, len(self) + 1)]

    @property
    def step(self) -> ReplayedStep | None:
        """The step that led to this position, None before the first."""
        return self._step(self.position) if self.position else None

    def next(self) -> ReplayedStep:
        """Go one step on and return it; ReplayEnded after the last."""
        if self.position >= len(self):
            raise ReplayEnded(self.run_id)
        self.position += 1
        return self._step(self.position)

    def back(self) -> ReplayedStep | None:
        """Go one step back and return the step that led there, None before the first; it stays at the beginning."""
        self.position = max(0, self.position - 1)
        return self.step

    def to(self, step: str | int) -> ReplayedStep | None:
        """Go to where a step had just ended, by its name (its last end counts) or number; 0 is the beginning."""
        if isinstance(step, int):
            if not 0 <= step <= len(self):
                raise NotFound(f"step of run {self.run_id!r} with number", str(step))
            self.position = step
            return self.step
        for number in range(len(self), 0, -1):
            if self._records[self._ends[number - 1] - 1]["step"] == step:
                self.position = number
                return self.step
        raise NotFound(f"recorded step of run {self.run_id!r} named", step)

    @property
    def point(self) -> Point:
        """Which checkpoint shows this position; `note` says if it is of a later moment, because others are gone."""
        return self._source.point(self._ends[self.position - 1] if self.position else 0)

    @property
    def checkpoint(self) -> Readable:
        """The checkpoint that shows this position."""
        return self._source.open(self.point.checkpoint)

    @property
    def note(self) -> str | None:
        """Why state and files are of a later moment, None if they are of this one."""
        return self.point.note

    @property
    def state(self) -> dict[str, Any]:
        """Every section as it was at this position."""
        shown = self.checkpoint
        return {name: shown.section(name) for name in shown.sections if name != "workspace"}

    @property
    def files(self) -> list[Any]:
        """Every captured path as it was at this position; none for a run without a workspace."""
        shown = self.checkpoint
        return shown.files() if "workspace" in shown.sections else []

    def read(self, path: str) -> bytes:
        """Return the bytes of a file as they were at this position."""
        return self.checkpoint.read(path)

    def run(self) -> ReplayRun:
        """Return an object with `step(name, call, ...)` that answers from the record and calls nothing."""
        return ReplayRun(self.run_id, self._records, self._source)

    def fork(self, run: str) -> Any:
        """Go on live from here: begin a new run from this position's checkpoint, and return its first."""
        return self._source.fork(self.point.checkpoint, run)

    def _step(self, number: int) -> ReplayedStep:
        record = self._records[self._ends[number - 1] - 1]
        error = record.get("error")
        return ReplayedStep(
            number=number,
            step=record["step"],
            event=record["event"],
            result=copy.deepcopy(record.get("result")),
            error=error.get("message") if isinstance(error, dict) else None,
            at=record.get("at"),
            attempts=record.get("attempts", 1),
            duration_s=record.get("duration_s", 0.0),
            phase=record.get("phase"),
        )


class ReplayRun:
    """Stands in for a run: its steps return what was recorded, in any order, and no function is called."""

    def __init__(self, run: str, records: Sequence[dict[str, Any]], source: Source) -> None:
        self.id = run
        self._last = {record["step"]: record for record in records}
        self._left = {name: None for name, record in self._last.items() if record.get("event") in ("done", "skipped")}
        self._source = source

    def step(self, name: str, call: Callable[..., T], *args: Any, **named: Any) -> T:
        """Return the recorded result; Divergence if the record has another step, ReplayEnded if it has no more."""
        record = self._last.get(name)
        if record is None:
            if not self._left:
                raise ReplayEnded(self.id)
            raise Divergence(self.id, name, f"step {next(iter(self._left))!r} next", f"a step named {name!r}")
        different = self._source.same(record, call, args, named)
        if different is not None:
            raise Divergence(self.id, name, *different)
        if record.get("event") not in ("done", "skipped"):
            ended = ReplayEnded(self.id)
            told = (record.get("error") or {}).get("message", "its end was never recorded")
            ended.add_note(f"step {name!r} did not succeed: {told}")
            raise ended
        self._left.pop(name, None)
        result: T = copy.deepcopy(record.get("result"))  # type: ignore[assignment]
        return result


_STEP = signature(Run.step).parameters.values()
_OPTIONS = frozenset(each.name for each in _STEP if each.kind is Parameter.KEYWORD_ONLY)


def replay(hf: Holdfast, spec: str) -> Replay:
    """Open the record of a run, or of the line that leads to a checkpoint, for stepping through it."""
    found = locate(hf.store, spec)
    record = found.record
    checkpoint = hf.reached(record, None if found.is_end else record.number)
    records = [each for each in steps_of(checkpoint) if isinstance(each, dict) and "step" in each]
    return Replay(record.envelope.run, records, _Recorded(hf, record, records))


class _Recorded:
    """A line of checkpoints, by how many records the log of steps had in each."""

    def __init__(self, hf: Holdfast, end: CheckpointRecord, records: list[dict[str, Any]]) -> None:
        self._hf = hf
        self._end = end
        self._records = records
        self._line: list[CheckpointRecord] | None = None

    def point(self, records: int) -> Point:
        """Return the first checkpoint of the line whose log has so many records, or the nearest later one."""
        for record in self._oldest_first():
            envelope = record.envelope
            if envelope.summary.steps >= records and self._is_of_this_line(record):
                note = None
                if envelope.summary.steps > records:
                    later = envelope.summary.steps - records
                    note = (
                        f"no checkpoint of this very moment is left: this is checkpoint {envelope.seq}, which has "
                        f"{later:,} more record{'s' * (later > 1)} of steps"
                    )
                return Point(checkpoint=envelope.id, seq=envelope.seq, steps=envelope.summary.steps, note=note)
        end = self._end.envelope
        return Point(checkpoint=end.id, seq=end.seq, steps=end.summary.steps)

    def open(self, checkpoint: str) -> Checkpoint:
        """Open a checkpoint."""
        return self._hf.get(checkpoint)

    def fork(self, checkpoint: str, run: str) -> Checkpoint:
        """Begin a new run from a checkpoint."""
        return fork(self._hf, checkpoint, run)

    def same(
        self, record: dict[str, Any], call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[str, str] | None:
        """Return what was recorded and what is asked for, None if they are the same."""
        given = {name: value for name, value in named.items() if name not in _OPTIONS}
        services = self._hf.services(self._end.envelope.run)
        digest, code = step_identity(services.pack, record["step"], call, args, given)
        if record.get("code") not in (None, code):
            return f"a step by {record['code']}", code
        if record.get("input") not in (None, digest):
            return "a step with other arguments", f"{code} with new ones"
        return None

    def _oldest_first(self) -> list[CheckpointRecord]:
        if self._line is None:
            line = RunLine(self._hf.store, self._end.envelope.run)
            rows = [row for row in line.line(self._end) if isinstance(row, CheckpointRecord)]
            self._line = rows[::-1]
        return self._line

    def _is_of_this_line(self, record: CheckpointRecord) -> bool:
        """Tell whether a checkpoint's log is the beginning of this one: past a deleted one the line is a guess."""
        count = record.envelope.summary.steps
        if record.envelope.id == self._end.envelope.id:
            return True
        if count > len(self._records):
            return False
        try:
            return steps_of(self._hf.opened(record)) == self._records[:count]
        except (IntegrityError, NotFound):
            return False
