"""Replay: a run stepped through by its record, forwards and backwards, with state and files; nothing is called."""

from __future__ import annotations

import copy
from bisect import bisect_right
from datetime import datetime
from inspect import Parameter, signature
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from holdfast.errors import Divergence, IntegrityError, NotFound, PositionUnavailable, ReplayEnded
from holdfast.model.checkpoint import CheckpointRecord
from holdfast.recovery.find import find, locate, opened
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
_EVENTS = frozenset({"state_transition", "phase_transition", "waits", "answered", "replan"})


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
    place: str = ""
    """The position in the journal where it had just ended: RUN#812."""
    events: tuple[str, ...] = ()
    """Transitions, questions, answers and replans since the step before it; with the last step, those after it, too."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What shows a position: a checkpoint of that very moment, or the one before it and the journal up to there.

    `note` says which state and files are shown where they are not of this very moment; None where they are.
    """

    checkpoint: str
    seq: int
    steps: int
    note: str | None = None
    place: str = ""
    """What names it: RUN@7, or RUN#812 for a position in the journal."""


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

    def open(self, point: Point) -> Readable:
        """Open what shows a position."""

    def fork(self, point: Point, run: str) -> Any:
        """Begin a new run from a position."""

    def same(self, record: dict[str, Any], call: Callable[..., Any], args: Any, named: Any) -> tuple[str, str] | None:
        """Return what was recorded and what is asked, None if they are the same."""


class Replay:
    """A run's record, at a position between two of its steps: 0 is before the first."""

    def __init__(
        self,
        run: str,
        records: Sequence[dict[str, Any]],
        source: Source,
        numbers: Sequence[int] = (),
        journal: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.run_id = run
        self._records = list(records)
        self._numbers = numbers
        self._source = source
        self._ends = [i + 1 for i, record in enumerate(self._records) if record.get("event") in _SETTLED]
        self._times = [self._records[end - 1].get("at") for end in self._ends]
        self._journal = sorted((line for line in journal if line["kind"] in _EVENTS), key=_at)
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
        """What shows this position; `note` says whose state and files are shown where they are of another moment."""
        return self._source.point(self._ends[self.position - 1] if self.position else 0)

    @property
    def checkpoint(self) -> Readable:
        """The checkpoint that shows this position."""
        return self._source.open(self.point)

    @property
    def note(self) -> str | None:
        """Which state and files are shown where they are of another moment, None if they are of this one."""
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
        """Continue live from here: begin a new run from this position, and return its first checkpoint."""
        return self._source.fork(self.point, run)

    def _step(self, number: int) -> ReplayedStep:
        end = self._ends[number - 1] - 1
        record = self._records[end]
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
            place=f"{self.run_id}#{self._numbers[end]}" if end < len(self._numbers) else "",
            events=tuple(map(_told, self._between(number))),
        )

    def _between(self, number: int) -> list[dict[str, Any]]:
        """Return the lines of the journal that belong to a step."""
        after = self._times[number - 2] if number > 1 else None
        until = self._times[number - 1] if number < len(self._times) else None
        first = 0 if after is None else bisect_right(self._journal, after, key=_at)
        end = len(self._journal) if until is None else bisect_right(self._journal, until, key=_at)
        return self._journal[first:end]


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


_at = itemgetter("at")


def _told(line: dict[str, Any]) -> str:
    choice = f": {line['choice']}" if line.get("choice") else ""
    return f"{line['kind']} {line.get('what', '')}{choice}"


_STEP = signature(Run.step).parameters.values()
_OPTIONS = frozenset(each.name for each in _STEP if each.kind is Parameter.KEYWORD_ONLY)


def _point(record: CheckpointRecord) -> Point:
    envelope = record.envelope
    place = f"{envelope.run}@{envelope.seq}"
    return Point(checkpoint=envelope.id, seq=envelope.seq, steps=envelope.summary.steps, place=place)


def replay(hf: Holdfast, spec: str) -> Replay:
    """Open the record of a run, or of the line that leads to a checkpoint, for stepping through it."""
    checkpoint = opened(hf, locate(hf.store, spec))
    record = checkpoint.record
    records = [each for each in steps_of(checkpoint) if isinstance(each, dict) and "step" in each]
    return Replay(
        record.envelope.run,
        records,
        _Recorded(hf, checkpoint, records),
        checkpoint.call_numbers,
        checkpoint.log("journal"),
    )


class _Recorded:
    """A line of checkpoints, by how many records the log of steps had in each, and the journal between them."""

    def __init__(self, hf: Holdfast, end: Checkpoint, records: list[dict[str, Any]]) -> None:
        self._hf = hf
        self._last = end
        self._end = end.record
        self._records = records
        self._line: list[CheckpointRecord] | None = None

    def point(self, records: int) -> Point:
        """Return the checkpoint whose log has so many records; without one, the position in the journal.

        Where compaction took a part of the journal, it is the nearest later checkpoint.
        """
        later = self._from(records)
        if later is not None and later.envelope.summary.steps == records:
            return _point(later)
        position = self._position(records)
        if position is not None:
            return position
        if later is None:
            return _point(self._end)
        more = later.envelope.summary.steps - records
        note = (
            f"no checkpoint of this very moment is left: this is checkpoint {later.envelope.seq}, which has "
            f"{more:,} more record{'s' * (more > 1)} of steps"
        )
        return msgspec.structs.replace(_point(later), note=note)

    def _from(self, records: int) -> CheckpointRecord | None:
        """Return the first checkpoint of the line whose log has at least so many records."""
        for record in self._oldest_first():
            if record.envelope.summary.steps >= records and self._is_of_this_line(record):
                return record
        return None

    def _position(self, records: int) -> Point | None:
        """Return the position behind so many records of calls, None if the journal no longer leads there."""
        numbers = self._last.call_numbers
        if not 0 < records <= len(numbers):
            return None
        try:
            shown = find(self._hf, f"{self._last.run}#{numbers[records - 1]}", sound=False)
        except PositionUnavailable:
            return None
        return Point(checkpoint=shown.id, seq=shown.seq, steps=records, note=shown.capture_note, place=shown.place)

    def open(self, point: Point) -> Checkpoint:
        """Open what shows a position."""
        return find(self._hf, point.place, sound=False)

    def fork(self, point: Point, run: str) -> Checkpoint:
        """Begin a new run from a position."""
        return fork(self._hf, point.place, run)

    def same(
        self, record: dict[str, Any], call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[str, str] | None:
        """Return what was recorded and what is asked for, None if they are the same."""
        given = {name: value for name, value in named.items() if name not in _OPTIONS}
        services = self._hf.internals.services(self._end.envelope.run)
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
            return steps_of(self._hf.internals.opened(record)) == self._records[:count]
        except (IntegrityError, NotFound):
            return False
