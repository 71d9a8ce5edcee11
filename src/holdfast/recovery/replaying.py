"""Where a replay gets its record, checkpoints and forks from."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from holdfast.errors import IntegrityError, NotFound
from holdfast.model.checkpoint import CheckpointRecord
from holdfast.recover.line import RunLine
from holdfast.recover.locate import locate
from holdfast.recover.replay import Point, Replay
from holdfast.recovery.gather import log_of
from holdfast.recovery.lines import fork
from holdfast.runtime.parts import RunParts
from holdfast.runtime.steps import step_identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast

_STEP = signature(RunParts.step).parameters.values()
_OPTIONS = frozenset(each.name for each in _STEP if each.kind is Parameter.KEYWORD_ONLY)


def replay(hf: Holdfast, spec: str) -> Replay:
    """Open the record of a run, or of the line that leads to a checkpoint, for stepping through it."""
    record = locate(hf.store, spec).record
    checkpoint = hf.opened(record)
    records = [each for each in log_of(checkpoint, "steps") if isinstance(each, dict) and "step" in each]
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
            return log_of(self._hf.opened(record), "steps") == self._records[:count]
        except (IntegrityError, NotFound):
            return False
