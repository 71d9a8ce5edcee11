"""The recorder of an open run: turns what changed since the last commit into records and checkpoints.

It knows what the journal has, what waits to be stored, and whether the run is protected; the `Writer` below it commits,
the `Watch` above it decides what is due.
"""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.capture.live import LiveSections
from holdfast.capture.lock import RunLock
from holdfast.capture.marks import checked_marks, checked_text
from holdfast.capture.protection import Protection, reason_of
from holdfast.capture.sections import gather, is_runs_own
from holdfast.capture.writer import RecordDraft
from holdfast.checkpoint import Checkpoint, NotSaved
from holdfast.errors import Conflict, LeaseLost, UsageError
from holdfast.journal.entry import NOTED, SAVED, body_of, make_entry
from holdfast.journal.run_log import item_body
from holdfast.model.checkpoint import Marks
from holdfast.model.ids import check_section_name
from holdfast.model.sections import WORKSPACE
from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast.capture.writer import Bring, Writer
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.runtime.inbox import Item
    from holdfast.store.tables import LineRow
    from holdfast.store.wakeups import Wakeup

_log = logging.getLogger("holdfast")
_AT_ONCE = frozenset({Trigger.MANUAL, Trigger.PHASE_COMPLETE})
"""What waits for no other commit: its caller gets it, or it is read back before anything follows it."""
grouping: ContextVar[Recorder | None] = ContextVar("holdfast_grouping", default=None)
"""The run whose saves are staged here and now."""


class Services(NamedTuple):
    """What the parts of a run get from the engine."""

    clock: Callable[[], float]
    monotonic: Callable[[], float]
    entropy: Callable[[int], bytes]
    pack: Callable[[Any, str], bytes]
    unpack: Callable[[bytes, str], Any]
    read_inbox: Callable[[int], Sequence[Item]]
    listen: Callable[[], Wakeup]
    wake: Callable[[], None]
    max_section_bytes: int


class CommitFacts(NamedTuple):
    """What the run's row and inbox get with every commit."""

    consumed: int | None = None
    run_changes: Mapping[str, Any] = {}


class Recorder:
    """Records and checkpoints of one handle on a run; threads take turns under `lock`."""

    def __init__(self, holdfast: Holdfast, run: str, writer: Writer, services: Services) -> None:
        self.id = run
        self.writer = writer
        self.lock = RunLock()
        self.live = LiveSections()
        self.notes: list[dict[str, Any]] = []
        """Lines of the journal that the next commit stores."""
        self.packer = holdfast.internals.journal_packer()
        self.protection = Protection()
        self.records_stored = 0
        self.is_ended = False
        """Whether what was stored last says that the run is complete: there is nothing to add at its end."""
        self.facts: Callable[[], CommitFacts] = CommitFacts
        self._holdfast = holdfast
        self._services = services
        self._packing = threading.Lock()
        self._added: list[RecordDraft] = []
        self._found: dict[str, tuple[str, bytes] | None] = {}
        self._log_lengths: dict[str, int] = {}
        self._had_calls: bool | None = None
        self._calls_since = 0
        self._known_present: Checkpoint | None = None
        self._staged = _Staged()
        self.on_stored: Callable[[CheckpointRecord], object] = lambda _record: None
        """Hears of each checkpoint once it is stored."""

    @property
    def has_unstored(self) -> bool:
        """Whether something could not be stored and waits for the next commit."""
        return bool(self._added) or self.protection.since is not None

    @property
    def is_enabled(self) -> bool:
        """Whether anything is stored at all."""
        return self._holdfast.settings.enabled

    def checkpoint(
        self,
        *,
        trigger: Trigger | str = Trigger.MANUAL,
        reason: str = "",
        label: str | None = None,
        pinned: bool = False,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        carry_over: bool = True,
        files: bool = True,
        phase: str | None = None,
        onto: Checkpoint | Literal["nothing"] | None = None,
        calls: Sequence[RecordDraft] = (),
        key: str | None = None,
        attributes: Mapping[str, str | int | float | bool | None] | None = None,
        **known_sections: Any,
    ) -> Checkpoint:
        """Store a checkpoint durably and return it.

        Known sections (`state`, `workflow`, `agents`, ...) are keywords, your own go into `sections`; registered
        objects are asked for theirs. What is not given is carried over from the checkpoint before, unless named in
        `drop`; without `carry_over`, nothing but files is. A run with a workspace captures it too, unless `files` is
        False. With `onto` the run goes back: the new checkpoint is taken on that one instead of the head or nothing.
        `hf.checkpoints(run, key=..., attributes=...)` finds it by the `key` and `attributes` that it is given.
        """
        values = given = gather(known_sections, sections)
        try:
            trigger = Trigger(trigger)
        except ValueError:
            raise UsageError(f"unknown trigger {trigger!r}: use one of {', '.join(Trigger)}") from None
        marks = checked_marks(Marks(pinned=pinned, label=label))
        dropped = _checked_drop(drop, values)
        checked_text("reason", reason)
        if not self.is_enabled:
            _log.info("run %s: checkpointing is disabled, nothing was saved", self.id)
            return NotSaved(self.id, trigger.value, reason)
        with self.lock:
            is_grouped = self.is_grouped and onto is None and trigger not in _AT_ONCE
            if onto is not None:
                self.flush()
                self.live.forget()
                self._log_lengths.clear()
            if "error" not in values:
                dropped.append("error")  # it belongs to the checkpoint that it was given to
            try:
                trusted = self.live.trusted - values.keys()
                base = onto if isinstance(onto, Checkpoint) else self.present if onto is None else None
                steps = base.summary.steps + (self._calls_since if onto is None else 0) if base is not None else 0
                if base is not None:  # what the journal has and no object of this process gives comes from there
                    if not carry_over:
                        live = self.live.names if onto is None else ()
                        dropped += [one for one in base.sections if one not in {*values, *dropped, *live, WORKSPACE}]
                    skipped = {*dropped, *(self.live.names if onto is None else ())}
                    after = {name: value for name, value in base.journaled_sections().items() if name not in skipped}
                    values = {**after, **values}
                values = {**self.live.snapshots(without=[*values, *dropped]), **values}
                replaced = [name for name in (*given, *dropped) if is_runs_own(name)]
                entry = self._entry(trigger, reason, phase, replaced=replaced, goes_back=onto is not None)
                added = self._added[self._staged.added :] if onto is None else []
                self._begin_staging()
                self.writer.stage_checkpoint(
                    values,
                    drop=dropped,
                    trigger=trigger.value,
                    reason=reason,
                    marks=marks,
                    with_files=files and not (is_grouped and self._staged.has_files),
                    phase=phase,
                    onto=_base(onto),
                    ranges=onto.ranges if isinstance(onto, Checkpoint) else None,
                    trusted=trusted,
                    records=[*added, *calls, *([entry.draft] if entry else [])],
                    steps=steps + len(added) + len(calls),
                    key=key,
                    attributes=attributes,
                    **self.facts()._asdict(),
                )
            except Exception as error:
                self.writer.forget()
                self._failed(error)
                raise
            self.live.stored()
            self._is_staged(entry, len(added))
            self._staged.has_files |= files
            self.live.journal_whole(replaced)
            self._calls_since = 0
            if is_grouped and (tip := self.writer.tip) is not None:
                self._known_present = self._holdfast.internals.opened(tip)
            else:
                self.flush()
            assert self._known_present is not None
            return self._known_present

    def _begin_staging(self) -> None:
        """Remember what is stored, before memory runs ahead of the store."""
        if not self.writer.is_staged:
            self._staged = _Staged(self.live.mark(), (self._known_present, self._calls_since))
        self._staged.since = perf_counter()

    def _is_staged(self, entry: _JournalEntry | None, added: int) -> None:
        """Note what goes with the next commit."""
        self._staged.took_s += perf_counter() - self._staged.since
        self._staged.added += added
        if entry is not None:
            self.live.journaled(entry.after)
            self._staged.notes += entry.notes

    def flush(self) -> None:
        """Commit what is staged; after a failure memory is as if none of it had been, so the next commit has it."""
        with self.lock:
            if not self.writer.is_staged:
                return
            before, began = self.writer.head, perf_counter()
            try:
                made = self.writer.flush()
                for record in made:
                    if record.envelope.trigger == Trigger.PHASE_COMPLETE:
                        self._holdfast.internals.read_back(record, before)
            except BaseException as error:
                self.writer.forget()  # one that was read back damaged must be stored again, not referred to
                self._unstage()
                if isinstance(error, Exception):
                    self._failed(error)
                raise
            staged, self._staged = self._staged, _Staged()
            del self.notes[: staged.notes]
            del self._added[: staged.added]
            self.records_stored += staged.added
            opened = [self._holdfast.internals.opened(record) for record in made]
            if opened:
                self._known_present = opened[-1]
            self._succeeded(opened[-1].id if opened else "its journal")
            self._holdfast.internals.tell("saved", self.id, since=began - staged.took_s if opened else None)
            for record in made:
                self.on_stored(record)
        for one in opened:
            self._holdfast.internals.mirror(one)

    def _unstage(self) -> None:
        """Forget that something was staged: it is not stored, and goes with the next commit."""
        staged, self._staged = self._staged, _Staged()
        self._log_lengths.clear()  # the next commit finds out where the line is, and others may have moved it
        if staged.before is not None:
            self.live.rewind(staged.live)
            self._known_present, self._calls_since = staged.before

    @property
    def is_staged(self) -> bool:
        """Whether something was saved in a group and is not durable yet."""
        return self.writer.is_staged

    @property
    def is_grouped(self) -> bool:
        """Whether what is saved here and now waits for the next commit."""
        return grouping.get() is self

    def append(self, *, trigger: Trigger, reason: str, phase: str | None = None) -> bool:
        """Make durable what changed, without a checkpoint; nothing is written if nothing did."""
        if not self.is_enabled:
            return True
        with self.lock:
            try:
                entry = self._entry(trigger, reason, phase)
                added = self._added[self._staged.added :]
                records = [*added, *([entry.draft] if entry else [])]
                if records:
                    self._begin_staging()
                    self.writer.stage_records(records, **self.facts()._asdict())
            except Exception as error:
                self._failed(error)
                raise
            self._is_staged(entry, len(added))
            self._calls_since += len(added)
            if not self.is_grouped:
                self.flush()
        return True

    def append_items(self, kind: str, path: str, items: Sequence[bytes], count: Callable[[], int]) -> None:
        """Add items of a log, each with its ordinal; `count` tells how many there are, where this handle does not know.

        No other writer comes between: one that moved the line makes this one read its position again.
        """
        if not self.is_enabled:
            return
        with self.lock:
            try:
                first = self._log_lengths.pop(path, None)
                first = count() if first is None else first
                added = self._added[self._staged.added :]
                records = [*added, *(RecordDraft(kind, path, item_body(*one)) for one in enumerate(items, first))]
                self._begin_staging()
                self.writer.stage_records(records)
            except Exception as error:
                self._failed(error)
                raise
            self._is_staged(None, len(added))
            self._calls_since += len(added)
            self.flush()
            self._log_lengths[path] = first + len(items)

    def _succeeded(self, by: str) -> None:
        """Note that what changed is stored: the run is protected again."""
        if self.protection.since is not None:
            _log.warning("run %s is protected again by %s", self.id, by)
        self.protection = Protection()
        self.is_ended = False

    def _failed(self, error: Exception) -> None:
        """Note what could not be stored; another writer's move is not a failure of the store."""
        if isinstance(error, LeaseLost):
            self._holdfast.internals.tell("lost", self.id)
        if isinstance(error, Conflict):
            return
        clean = getattr(self.packer, "text", str)
        now = datetime.fromtimestamp(self._services.clock(), UTC)
        self.protection = self.protection.failed(clean(reason_of(error)), now)
        self._holdfast.internals.tell("failed", self.id)

    def pack(self, value: Any, what: str) -> bytes:
        """Return a value as the journal keeps it, without secrets; ValueRefused if it cannot be stored."""
        with self._packing:
            begin = getattr(self.packer, "begin", None)
            if begin is not None:
                begin("steps")
            return self.packer.pack_bounded(value, what)

    def add_record(self, kind: str, path: str, body: bytes) -> int:
        """Let the journal get a record with the next commit; return how many there are with it."""
        with self.lock:
            self._found[path] = (kind, body)
            if self.is_enabled:
                self._added.append(RecordDraft(kind, path, body))
            return self.records_stored + len(self._added)

    def find_record(self, path: str) -> tuple[str, bytes] | None:
        """Return kind and body of the newest record of a path, stored or added."""
        if path not in self._found:
            line = self.line() if self.is_enabled and self._has_stored_calls else None
            record = None if line is None else self._holdfast.store.journal.newest(line, path)
            found = None if record is None else (record.kind, body_of(record, self._holdfast.store))
            with self.lock:
                self._found.setdefault(path, found)
        return self._found[path]

    @property
    def _has_stored_calls(self) -> bool:
        """Whether the store may have calls that this handle does not know: not in a run that it began."""
        if self._had_calls is None:
            self._had_calls = self.present.summary.steps > 0
        return self._had_calls

    def journal(self) -> list[dict[str, Any]]:
        """Return every line of the journal, oldest first."""
        with self.lock:
            return [*self._holdfast.internals.present(self.id, self.writer.head).notes, *self.notes]

    def forget_records(self) -> None:
        """Look calls up again: the run stands elsewhere than this handle knew."""
        self._found.clear()
        self._log_lengths.clear()
        self._had_calls = None
        self._added.clear()
        self._staged = _Staged()

    def line(self) -> LineRow | None:
        """Return where the run's line stands, None if nothing of it is stored."""
        return self.writer.line or self._holdfast.store.line(self.id)

    def _entry(
        self,
        trigger: Trigger,
        reason: str,
        phase: str | None,
        *,
        replaced: Sequence[str] = (),
        goes_back: bool = False,
    ) -> _JournalEntry | None:
        """Return what changed since the journal last had it, as a record; None if nothing did.

        Sections of the run's own that are `replaced` by hand, and going back, are told by the checkpoint alone.
        """
        deltas, after = self.live.changes()
        for name in replaced:
            deltas.pop(name, None)
        is_whole = not replaced and not goes_back
        notes = self.notes[self._staged.notes :]
        if not deltas and not notes and is_whole:
            return None
        clean = getattr(self.packer, "text", str)
        body = make_entry(
            self.packer, trigger=trigger.value, reason=clean(reason), phase=phase, notes=notes, parts=deltas,
            is_whole=is_whole, begin=getattr(self.packer, "begin", None),
        )  # fmt: skip
        draft = RecordDraft(SAVED, NOTED if notes else "", body)
        return _JournalEntry(draft, after, len(notes))

    @property
    def present(self) -> Checkpoint:
        """How the run stood when this handle last read it: its head and what the journal has since."""
        if self._known_present is None:
            self._known_present = self._holdfast.internals.present(self.id, self.writer.head)
            self._calls_since = self._staged.added
        return self._known_present

    @property
    def head_record(self) -> CheckpointRecord | None:
        """The record of the head, as this writer knows it."""
        return self.writer.head

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the next one will be taken on."""
        record = self.writer.head
        return None if record is None else self._holdfast.internals.present(self.id, record)

    def begin_from(
        self,
        origin: Checkpoint,
        *,
        bring: Bring,
        sections: Mapping[str, Any],
        drop: Iterable[str],
        reason: str,
        label: str | None = None,
        calls: Sequence[tuple[str, str, bytes]] | None = None,
        closing: Sequence[tuple[str, str, bytes]] = (),
        notes: Sequence[Any] | None = None,
    ) -> Checkpoint:
        """Begin this run, which is new, from a checkpoint of another; `bring` gives the chunks that it needs of it.

        Its calls and notes are those of the other run, unless others are given; `closing` ends calls open there.
        """
        values = gather({}, {**origin.journaled_sections(), **sections})
        logs = [RecordDraft(kind, path, body) for kind, path, body in origin.log_records()]
        made_calls = [*(origin.call_records() if calls is None else calls), *closing]
        told = make_entry(
            self.packer, trigger=Trigger.RECOVERY, reason=reason, phase=None, parts={}, is_whole=False,
            notes=origin.notes if notes is None else notes,
        )  # fmt: skip
        logs.append(RecordDraft(SAVED, NOTED, told))
        record = self.writer.take(
            values,
            drop=_checked_drop(drop, values),
            trigger=Trigger.RECOVERY,
            reason=reason,
            marks=checked_marks(Marks(pinned=True, label=label)),
            with_files=False,
            phase=origin.summary.phase,
            onto=_base(origin),
            bring=bring,
            records=[*logs, *(RecordDraft(*one) for one in made_calls)],
            steps=len(made_calls),
            run_changes={"forked_from": origin.id},
        )
        self._known_present = None
        self._succeeded(record.envelope.id)
        made = self._holdfast.internals.opened(record)
        self._holdfast.internals.mirror(made)
        return made

    def stand_at(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint for how the run stands; calls are looked up again."""
        self._known_present = checkpoint
        self.forget_records()

    def restore_registered(self, checkpoint: Checkpoint | None = None) -> list[str]:
        """Give every registered object its state from a checkpoint, by default the head; all of them or none."""
        source = checkpoint or self.head
        if source is None:
            return []
        with self.lock:
            values = {name: source.live_section(name) for name in self.live.names if name in source.sections}
            return self.live.restore(values)

    def reload(self, *, rewinding: bool = False) -> None:
        """Go to the run's present head, wherever another writer moved it; a damaged one is refused unless rewinding."""
        with self.lock:
            self.writer.unstage()
            self._unstage()
            self.writer.reload(rewinding=rewinding)
            self._known_present = None
            self._had_calls = None
            self.live.forget()


class _Staged:
    """How far memory is ahead of the store: what goes with the next commit, and what was before it."""

    def __init__(self, live: Any = None, before: tuple[Any, ...] | None = None) -> None:
        self.live = live
        self.before = before
        self.added = self.notes = 0
        self.has_files = False
        self.since = self.took_s = 0.0
        """When its last part was begun, and how long all of them took to be made."""


class _JournalEntry(NamedTuple):
    """A record of what changed, and what the journal has once it is stored."""

    draft: RecordDraft
    after: Mapping[str, Any]
    notes: int


def _base(onto: Checkpoint | Literal["nothing"] | None) -> CheckpointRecord | Literal["nothing"] | None:
    """Return what a checkpoint is taken on, as the writer has it; a journal may have no checkpoint below it."""
    if not isinstance(onto, Checkpoint):
        return onto
    return "nothing" if onto.record.is_nothing else onto.record


def _checked_drop(drop: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    if isinstance(drop, str):
        raise UsageError(f"drop={drop!r}: give a list of names, [{drop!r}]")
    names = [check_section_name(name) for name in drop]
    both = next((name for name in names if name in given), None)
    if both is not None:
        raise UsageError(f"section {both!r} is given and dropped at once")
    return names
