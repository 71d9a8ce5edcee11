"""From what a person typed to one checkpoint: by default the newest sound one, with what was passed over on the way.

Finding changes nothing; `mark_corrupted` writes down what was found to be damaged.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import (
    Ambiguous,
    CheckpointCorrupt,
    ChunkCorrupt,
    Conflict,
    FormatTooNew,
    IntegrityError,
    NotFound,
    UsageError,
)
from holdfast.journal.position import Position, resolve
from holdfast.lazy import lazily
from holdfast.model.checkpoint import CheckpointRecord, RunRecord, nothing_of
from holdfast.model.ids import is_reserved
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.line import RunLine, Unreadable, number
from holdfast.recovery.specs import Reading, Spec, parse
from holdfast.verify.check import faults_in

with lazily():  # only what is not there has a nearest name
    import difflib

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.store.store import Store

__all__ = ["Damage", "Located", "Spec", "locate", "mark_corrupted", "parse"]

_MOST_IDS = 250_000  # ids, not records: what a look-up by the end of an id reads at most
_MOST_LABELS = 20_000  # records that a look-up by label alone reads at most
_ONLY_SOME = f"a label without its run is looked for in {_MOST_LABELS:,} checkpoints only"
_TAIL_DIGITS = 20
_MOST_MATCHES = 200


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was passed over: why, and what is lost by continuing from an older one."""

    run: str
    seq: int
    checkpoint: str | None
    detail: str
    lost: str = ""
    steps: int | None = None
    """How many steps it had recorded, where that can still be read."""

    def __str__(self) -> str:
        return f"{self.run}@{self.seq} ({self.checkpoint or 'id unknown'}): {self.detail}. Lost: {self.lost}"


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint, and the damage that was passed over to find it, newest first."""

    record: CheckpointRecord
    skipped: tuple[Damage, ...] = ()
    is_end: bool = False
    """Whether the end of the run was meant, journal included, and not this one checkpoint."""
    position: Position | None = None
    """The journal position that was meant, which the checkpoint is the newest before."""
    run: RunRecord | None = None
    """The run's own record as it was then, where it was read."""


def locate(
    store: Store,
    spec: str,
    *,
    run: str | None = None,
    sound: bool = True,
    without: Container[str] = (),
    left: bool = True,
) -> Located:
    """Return the checkpoint that a spec names; with `run`, the spec is relative to that run.

    A journal position (RUN#812) gives the newest checkpoint at or before it, and the position itself; without `left`,
    one on a segment that was gone back from is refused.

    A spec that names one checkpoint gives that one, or IntegrityError if it is damaged. A spec that names a run or a
    place on its line gives the newest checkpoint there that is sound; with `sound` off, the newest whose record can be
    read. Sections named in `without` are not looked at. Changes nothing.
    """
    search = _Search(store, parse(spec), run, sound=sound, without=without, left=left)
    found = search.result()
    name = found.record.envelope.run
    is_end = spec in ("latest", name, f"{name}:latest", f"{name}@latest")
    return msgspec.structs.replace(found, is_end=is_end, run=search.run_record(name))


def mark_corrupted(store: Store, damages: Iterable[Damage]) -> list[str]:
    """Mark passed-over checkpoints as corrupted where their records can be read; return the ids newly marked.

    Doing it twice is the same as once. A mark that somebody changes at the same moment is left as they set it.
    """
    marked: list[str] = []
    for damage in damages:
        if damage.checkpoint is None:
            continue
        try:
            record = store.checkpoint(damage.checkpoint)
            if record.marks.status == "corrupted":
                continue
            marks = msgspec.structs.replace(record.marks, status="corrupted")
            store.mark(damage.checkpoint, marks, expected=record.marks)
        except (IntegrityError, NotFound, Conflict):
            continue
        marked.append(damage.checkpoint)
    return marked


class _Search:
    """One look-up: the readings in order, the first that leads to a checkpoint wins."""

    def __init__(
        self, store: Store, spec: Spec, run: str | None, *, sound: bool, without: Container[str], left: bool
    ) -> None:
        self._store = store
        self._left = left
        self._without = without
        self._spec = spec
        self._run = run
        self._sound = sound
        self._lines: dict[str, RunLine | None] = {}
        self._is_cut = False

    def result(self) -> Located:
        missed: NotFound | None = None
        for reading in self._readings():
            try:
                found = self._read(reading)
            except NotFound as error:
                if reading.kind != "id":
                    raise
                missed = error  # a run may be called like a checkpoint
                continue
            if found is not None:
                return found
        raise missed or self._no_such()

    def run_record(self, run: str) -> RunRecord | None:
        """Return a run's own record, if the search read it."""
        line = self._lines.get(run)
        return line.record if line is not None else None

    def _readings(self) -> Iterator[Reading]:
        """Yield the readings, those that name no run with the run that the search is relative to."""
        if self._run is None:
            yield from self._spec.readings
            return
        if self._line(self._run) is None:
            raise self._no_such_run(self._run)
        for reading in self._spec.readings:
            if reading.run in (None, self._run):
                yield reading._replace(run=self._run)

    def _read(self, reading: Reading) -> Located | None:
        """Return what one reading leads to; None if it does not apply, NotFound if its run has no such checkpoint."""
        if reading.run is not None and self._line(reading.run) is None:
            return None
        record = position = None
        if reading.kind == "position" and reading.run is not None:
            position = resolve(self._store, reading.run, int(reading.value), left=self._left, sound=self._sound)
            record = position.base if position is not None else None
        elif reading.kind == "id":
            record = self._by_id(reading)
        elif reading.kind == "prefix":
            record = self._by_prefix(reading)
        elif reading.kind == "seq":
            record = self._by_seq(reading)
        elif reading.kind == "label":
            record = self._by_label(reading)
        elif reading.kind in ("latest", "before"):
            return self._on_line(reading)
        if record is None:
            return None
        if reading.back:
            line = self._line(record.envelope.run)
            return self._back(line, record, reading) if line else None
        return Located(record=self._checked(record), position=position)

    def _by_id(self, reading: Reading) -> CheckpointRecord:
        record = self._store.checkpoint(reading.value)
        if reading.run is not None and record.envelope.run != reading.run:
            hint = f"it is one of run {record.envelope.run!r}"
            raise NotFound(f"checkpoint of run {reading.run!r} with id", reading.value, hint)
        return record

    def _by_prefix(self, reading: Reading) -> CheckpointRecord | None:
        """Find an id by how it begins, or by how its random end begins: ids of one minute share their time."""
        found = self._ids_in_run(reading) if reading.run is not None else self._ids_anywhere(reading.value)
        if len(found) > 1:
            raise Ambiguous(f"{self._spec.text!r}", tuple(found))
        return self._store.checkpoint(found[0]) if found else None

    def _ids_in_run(self, reading: Reading) -> list[str]:
        line = self._line(reading.run or "")
        ids = (row.id if isinstance(row, Unreadable) else row.envelope.id for row in (line.rows() if line else ()))
        return list(islice((name for name in ids if name and _begins(name, reading.value)), _MOST_MATCHES))

    def _ids_anywhere(self, digits: str) -> list[str]:
        found = self._store.find(f"cp_{digits}", limit=_MOST_MATCHES)
        if len(digits) <= _TAIL_DIGITS and len(found) < _MOST_MATCHES:
            ends = (name for name in self._store.find("cp_", limit=_MOST_IDS) if name.startswith(digits, -_TAIL_DIGITS))
            found = list(dict.fromkeys([*found, *islice(ends, _MOST_MATCHES)]))[:_MOST_MATCHES]
        return [name for name in found if self._is_visible(name)] if len(found) < _MOST_MATCHES else found

    def _is_visible(self, checkpoint: str) -> bool:
        """Tell whether a checkpoint is of a run that people see; a damaged one is of nobody knows whom."""
        try:
            return not is_reserved(self._store.checkpoint(checkpoint).envelope.run)
        except IntegrityError:
            return True
        except NotFound:
            return False

    def _by_seq(self, reading: Reading) -> CheckpointRecord | None:
        if reading.run is None:
            return None
        line = self._line(reading.run)
        seq = int(reading.value)
        if line is not None and 0 < seq <= line.last_seq:
            record = self._store.checkpoint_at(reading.run, seq)
            if record is not None:
                return record
        hint = f"its last is {line.last_seq}" if line and seq > line.last_seq else "it was deleted" if seq else ""
        raise NotFound(f"checkpoint of run {reading.run!r} with number", reading.value, hint)

    def _by_label(self, reading: Reading) -> CheckpointRecord | None:
        """Find a label in its run, or in one run alone; of several in a run the newest has it."""
        if reading.run is not None:
            line = self._line(reading.run)
            found = (row for row in line.rows() if isinstance(row, CheckpointRecord)) if line else ()
            return next((record for record in found if record.marks.label == reading.value), None)
        matches: dict[str, CheckpointRecord] = {}
        left = _MOST_LABELS
        for run, line in self._readable_lines():
            for row in islice(line.rows(), left):
                left -= 1
                if isinstance(row, CheckpointRecord) and row.marks.label == reading.value:
                    matches[run] = row
                    break
            self._is_cut = not left
            if self._is_cut:
                break
        if len(matches) > 1:
            raise Ambiguous(f"{reading.value!r:.80}", tuple(f"{run}:{reading.value}" for run in matches))
        if matches and self._is_cut:
            raise UsageError(f"{_ONLY_SOME}, so another run may have {reading.value!r:.80}, too: name it, as RUN:LABEL")
        return next(iter(matches.values()), None)

    def _on_line(self, reading: Reading) -> Located | None:
        """Find the newest one on a run's line, or the newest before a phase, and go back from it."""
        run = reading.run or self._newest_run()
        line = self._line(run)
        if line is None:
            return None
        rows = _before_phase(line, reading.value) if reading.kind == "before" else _line_first(line)
        found = self._first_sound(line, rows)
        return self._back(line, found.record, reading, found.skipped) if reading.back else found

    def _back(
        self, line: RunLine, start: CheckpointRecord, reading: Reading, skipped: Sequence[Damage] = ()
    ) -> Located:
        """Go so many resumable checkpoints back along the parents."""
        passed: list[Damage] = []
        had = 0
        rows = line.line(start)
        next(rows)
        for row in rows:
            if self._is_expired(row):
                continue
            had += isinstance(row, CheckpointRecord) and row.envelope.recovery.can_resume
            if had < reading.back or (isinstance(row, CheckpointRecord) and not row.envelope.recovery.can_resume):
                continue
            damage = self._damage(line, row)
            if damage is not None:
                passed.append(damage)
            elif isinstance(row, CheckpointRecord):
                return Located(record=row, skipped=(*skipped, *_with_loss(passed, row)))
        hint = f"there are {had} resumable ones before {start.envelope.id}" + (
            ", damaged ones with them" * bool(passed)
        )
        raise NotFound(f"checkpoint of run {line.run!r} at", self._spec.text, hint)

    def _first_sound(self, line: RunLine, rows: Iterator[CheckpointRecord | Unreadable]) -> Located:
        passed: list[Damage] = []
        expired = 0
        for row in rows:
            if self._is_expired(row):
                expired += 1
                continue
            damage = self._damage(line, row)
            if damage is None and isinstance(row, CheckpointRecord):
                return Located(record=row, skipped=_with_loss(passed, row))
            if damage is not None:
                passed.append(damage)
        if line.record is not None and not line.last_seq and line.record.number:
            return Located(record=nothing_of(line.run, line.record.updated_at))  # it stands on its journal alone
        if not passed:
            hint = f"its {expired} are expired: name one by its id to look at it, pin it to keep it" if expired else ""
            raise NotFound("checkpoint of run", line.run, hint)
        count = "its only one is" if len(passed) == 1 else f"all {len(passed)} are"
        raise IntegrityError(
            f"run {line.run!r} has no sound checkpoint left there: {count} damaged (the newest: {passed[0].detail}). "
            "Bring the run back from a copy or a bundle, or begin it again under another name"
        )

    def _is_expired(self, row: CheckpointRecord | Unreadable) -> bool:
        """Tell whether a checkpoint is only there until the next sweep: not damaged, and not to go back to."""
        return self._sound and isinstance(row, CheckpointRecord) and row.marks.status == "expired"

    def _damage(self, line: RunLine, row: CheckpointRecord | Unreadable) -> Damage | None:
        """Return why a checkpoint cannot be continued from, None if it is whole."""
        if isinstance(row, Unreadable):
            if isinstance(row.error, FormatTooNew):
                raise row.error  # not damaged: continuing from an older one would undo what a newer program did
            return Damage(run=line.run, seq=row.seq, checkpoint=row.id, detail=row.detail)
        envelope = row.envelope
        detail = None
        if self._sound and row.marks.status == "corrupted":
            detail = "it is marked as corrupted"
        elif self._sound:
            faults = faults_in(self._store, row, without=self._without)
            detail = f"section {faults[0].section}: {faults[0].detail}" if faults else None
        if detail is None:
            return None
        steps = envelope.summary.steps
        return Damage(run=line.run, seq=envelope.seq, checkpoint=envelope.id, detail=detail, steps=steps)

    def _checked(self, record: CheckpointRecord) -> CheckpointRecord:
        """Return a checkpoint that was asked for by name; ChunkCorrupt if it is not whole."""
        faults = faults_in(self._store, record, without=self._without) if self._sound else []
        if faults:
            raise ChunkCorrupt(faults[0].detail, faults[0].chunk or "", record.envelope.id, faults[0].section)
        return record

    def _line(self, run: str) -> RunLine | None:
        """Return a run's line, None if there is no such run."""
        if run not in self._lines:
            try:
                self._lines[run] = RunLine(self._store, run)
            except NotFound:
                self._lines[run] = None
        return self._lines[run]

    def _newest_run(self) -> str:
        """Return the run that moved last."""
        listing = self._store.queries.last_moved()
        if listing.damaged or not listing:
            listing = self._store.runs()  # the whole list finds runs whose own row is damaged or lost
        moved = {run.id: run.updated_at for run in listing if not is_reserved(run.id)}
        for error in listing.damaged:
            name = getattr(error, "run", "")
            line = None if is_reserved(name) else self._readable_line(name)
            newest = next((row for row in line.rows() if isinstance(row, CheckpointRecord)), None) if line else None
            if newest is not None:
                moved.setdefault(name, newest.envelope.created_at)
        if not moved:
            raise (
                listing.damaged[0] if listing.damaged else NotFound("checkpoint", self._spec.text, "the store is empty")
            )
        return max(moved, key=moved.__getitem__)

    def _run_names(self) -> list[str]:
        """Return the names of all runs that people see, also of those whose own record is damaged."""
        listing = self._store.runs()
        names = [*(run.id for run in listing), *(getattr(error, "run", "") for error in listing.damaged)]
        return [name for name in dict.fromkeys(names) if name and not is_reserved(name)]

    def _readable_lines(self) -> Iterator[tuple[str, RunLine]]:
        for run in self._run_names():
            line = self._readable_line(run)
            if line is not None:
                yield run, line

    def _readable_line(self, run: str) -> RunLine | None:
        try:
            return self._line(run)
        except IntegrityError:
            return None

    def _no_such(self) -> NotFound:
        text = self._spec.text
        if any(reading.kind == "id" and not reading.back for reading in self._spec.readings):
            return NotFound("checkpoint", text)
        if self._run is not None:
            return NotFound(f"checkpoint of run {self._run!r} named", text)
        for reading in self._spec.readings:
            if reading.run is not None and self._lines.get(reading.run) is not None:
                return NotFound(f"checkpoint of run {reading.run!r} named", reading.value)
        named = next((reading.run for reading in self._spec.readings if reading.run is not None), text)
        return self._no_such_run(named, kind="run, checkpoint or label")

    def _no_such_run(self, name: str, *, kind: str = "run") -> NotFound:
        """Name the runs that are called nearly so."""
        known = self._run_names()
        near = difflib.get_close_matches(name, known, n=3)
        hints = [f"did you mean {' or '.join(map(repr, near))}?"] if near else [] if known else ["the store is empty"]
        return NotFound(kind, name, "; ".join([*hints, *([_ONLY_SOME] if self._is_cut else [])]))


def _begins(checkpoint: str, digits: str) -> bool:
    """Tell whether an id, or its random end, begins with these digits."""
    return checkpoint.startswith(digits, len("cp_")) or checkpoint.startswith(digits, -_TAIL_DIGITS)


def _line_first(line: RunLine) -> Iterator[CheckpointRecord | Unreadable]:
    """Yield a run's line, then what lies beside it; archived ones only when nothing else is left."""
    seen: set[int] = set()
    archived: list[CheckpointRecord] = []
    for rows in (line.line(), line.rows()):
        for row in rows:
            if number(row) in seen:
                continue
            seen.add(number(row))
            if isinstance(row, CheckpointRecord) and row.marks.status == "archived":
                archived.append(row)
            else:
                yield row
    yield from archived


def _before_phase(line: RunLine, phase: str) -> Iterator[CheckpointRecord | Unreadable]:
    """Yield what lies on the line before a phase began, newest first."""
    rows = list(line.line())
    inside = [index for index, row in enumerate(rows) if isinstance(row, CheckpointRecord) and _is_in(row, phase)]
    if not inside:
        raise _no_such_phase(line.run, phase, rows)
    before = rows[inside[-1] + 1 :]
    if not before:
        raise NotFound(f"checkpoint of run {line.run!r} before phase", phase, "it began with that phase")
    return iter(before)


def _no_such_phase(run: str, phase: str, rows: Sequence[CheckpointRecord | Unreadable]) -> NotFound:
    summaries = [row.envelope.summary for row in rows if isinstance(row, CheckpointRecord)]
    known = {name for summary in summaries for name in (summary.phase, summary.state) if name}
    near = difflib.get_close_matches(phase, sorted(known), n=3) or sorted(known)[:5]
    return NotFound(f"checkpoint of run {run!r} in phase", phase, f"there are {', '.join(near)}" if near else "")


def _is_in(record: CheckpointRecord, phase: str) -> bool:
    return phase in (record.envelope.summary.phase, record.envelope.summary.state)


def _with_loss(passed: Sequence[Damage], found: CheckpointRecord) -> tuple[Damage, ...]:
    """Return damage with what is lost by continuing from an older checkpoint, in words."""
    return tuple(
        msgspec.structs.replace(damage, lost=_loss(damage, len(passed) - index, found))
        for index, damage in enumerate(passed)
    )


def _loss(damage: Damage, checkpoints: int, found: CheckpointRecord) -> str:
    if damage.seq < found.envelope.seq:
        return f"nothing, {found.envelope.run}@{found.envelope.seq} is newer"
    parts = ["1 checkpoint" if checkpoints == 1 else f"{checkpoints:,} checkpoints"]
    steps = damage.steps - found.envelope.summary.steps if damage.steps is not None else 0
    if steps > 0:
        parts.append("1 step" if steps == 1 else f"{steps:,} steps")
    since, taken_at = found.envelope.created_at, _time_of(damage.checkpoint)
    work = f"the work since {since:%Y-%m-%d %H:%M:%S} UTC"
    if taken_at is not None and taken_at > since:
        work = f"{_span(taken_at - since)} of work, from {since:%Y-%m-%d %H:%M:%S} to {taken_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{' and '.join(parts)} after {found.envelope.run}@{found.envelope.seq}: {work}"


def _span(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{time.total_seconds():.1f} s"


def _time_of(checkpoint: str | None) -> datetime | None:
    """Return when an id was made, which it says itself, None if it cannot be a time."""
    if checkpoint is None:
        return None
    try:
        return datetime.fromtimestamp(int(checkpoint[3:15], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def find(hf: Holdfast, spec: str, *, run: str | None = None, sound: bool = True) -> Checkpoint:
    """Return the checkpoint that a spec names; what was passed over as damaged is in its `skipped`."""
    return opened(hf, locate(hf.store, spec, run=run, sound=sound))


def opened(hf: Holdfast, located: Located) -> Checkpoint:
    """Return what was located for reading: a checkpoint, a position, or the end of a run with all its journal has."""
    if located.position is not None:
        place = located.position
        return hf.internals.opened(located.record, since=place.since, ranges=place.ranges, is_left=place.is_left)
    passed = [CheckpointCorrupt(each.detail, each.checkpoint or f"{each.run}@{each.seq}") for each in located.skipped]
    # Behind damage the journal tells of work whose files went with it: only what has no files continues from there.
    to_end = located.is_end and not (passed and any(one.name == WORKSPACE for one in located.record.envelope.sections))
    return hf.internals.reached(located.record, None, passed) if to_end else hf.internals.opened(located.record, passed)
