"""A run, open for taking checkpoints."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from holdfast.capture.marks import checked_marks, checked_text
from holdfast.capture.sections import gather, is_runs_own
from holdfast.capture.writer import RecordDraft
from holdfast.checkpoint import Checkpoint, NotSaved
from holdfast.errors import UsageError
from holdfast.journal.entry import NOTED, SAVED, body_of, make_entry
from holdfast.journal.run_log import RunLog
from holdfast.model.checkpoint import Marks
from holdfast.model.ids import check_section_name
from holdfast.model.runtime_sections import LOG_TYPES
from holdfast.model.triggers import Trigger
from holdfast.runtime.parts import RunParts, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from holdfast.capture.live import Live
    from holdfast.capture.lock import RunLock
    from holdfast.capture.protection import Protection
    from holdfast.capture.writer import Bring, Writer
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.model.rules import Rules
    from holdfast.run_files import RunFiles
    from holdfast.runtime.lease import LeaseKeeper
    from holdfast.store.tables import LineRow

_log = logging.getLogger("holdfast")


class Run(RunParts):
    """One writer's handle on a run; two handles on one run are two writers, and the slower one gets HeadMoved.

    In a `with` block it holds the run's lease: no other process moves the run meanwhile.
    """

    def __init__(self, holdfast: Holdfast, run: str, writer: Writer, *, waiting: Waiting = "block") -> None:
        super().__init__(run, holdfast.services(run), waiting=waiting)
        self._holdfast = holdfast
        self._writer = writer
        self._watch = holdfast.watch(self)
        self._packer = holdfast.journal_packer()
        self._packing = threading.Lock()
        self._added: list[RecordDraft] = []
        self._found: dict[str, tuple[str, bytes] | None] = {}
        self._had_calls: bool | None = None
        self._calls_since = 0
        self.records_stored = 0
        self._known_present: Checkpoint | None = None
        self._lease: LeaseKeeper | None = None
        self._old_error = False  # what ended the life before is no part of this one

    def checkpoint(
        self,
        *,
        trigger: Trigger | str = Trigger.MANUAL,
        reason: str = "",
        label: str | None = None,
        pinned: bool = False,
        sections: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        files: bool = True,
        phase: str | None = None,
        onto: Checkpoint | Literal["nothing"] | None = None,
        calls: Sequence[RecordDraft] = (),
        **known_sections: Any,
    ) -> Checkpoint:
        """Store a checkpoint durably and return it.

        Known sections (`state`, `workflow`, `agents`, ...) are keywords, your own go into `sections`; registered
        objects are asked for theirs. What is not given is carried over from the checkpoint before, unless named in
        `drop`. A run with a workspace captures it too, unless `files` is False. With `onto` the run goes back: the new
        checkpoint is taken on that one instead of the head, or on nothing.
        """
        self.check_open("no checkpoint was taken")
        values = given = gather(known_sections, sections)
        try:
            trigger = Trigger(trigger)
        except ValueError:
            raise UsageError(f"unknown trigger {trigger!r}: use one of {', '.join(Trigger)}") from None
        marks = checked_marks(Marks(pinned=pinned, label=label))
        dropped = _checked_drop(drop, values)
        checked_text("reason", reason)
        if not self._holdfast.enabled:
            _log.info("run %s: checkpointing is disabled, nothing was saved", self.id)
            return NotSaved(self.id, trigger.value, reason)
        watch = self._watch
        with watch.lock:
            if onto is not None:
                watch.live.forget()
            if self._old_error and "error" not in values:
                dropped.append("error")
            try:
                trusted = watch.live.trusted - values.keys()
                base = onto if isinstance(onto, Checkpoint) else self._present if onto is None else None
                steps = base.summary.steps + (self._calls_since if onto is None else 0) if base is not None else 0
                if base is not None:  # what the journal has and no object of this process gives comes from there
                    skipped = {*dropped, *(watch.live.names if onto is None else ())}
                    after = {name: value for name, value in base.journaled_sections().items() if name not in skipped}
                    values = {**after, **values}
                values = {**watch.live.snapshots(without=[*values, *dropped]), **values}
                replaced = [name for name in (*given, *dropped) if is_runs_own(name)]
                entry = self._entry(trigger, reason, phase, replaced=replaced, goes_back=onto is not None)
                added = self._added[:] if onto is None else []
                record = self._writer.take(
                    values,
                    drop=dropped,
                    trigger=trigger.value,
                    reason=reason,
                    marks=marks,
                    with_files=files,
                    phase=phase,
                    onto=onto.record if isinstance(onto, Checkpoint) else onto,
                    ranges=onto.ranges if isinstance(onto, Checkpoint) else None,
                    trusted=trusted,
                    records=[*added, *calls, *([entry.draft] if entry else [])],
                    steps=steps + len(added) + len(calls),
                    consumed=self._consumed,
                    run_changes=self._run_changes(),
                )
                if trigger is Trigger.PHASE_COMPLETE:
                    self._holdfast.read_back(record)
            except Exception as error:
                self._writer.forget()  # one that was read back damaged must be stored again, not referred to
                watch.failed(error)
                raise
            self._old_error = False
            watch.live.stored()
            self._entry_is_stored(entry)
            self._records_are_stored(len(added))
            watch.live.journal_whole(replaced)
            self._known_present, self._calls_since = self._holdfast.opened(record), 0
            made = self._known_present
            watch.succeeded(record)
        self._holdfast.mirror(made)
        return made

    def _append(self, *, trigger: Trigger, reason: str, phase: str | None = None) -> bool:
        """Make durable what changed, without a checkpoint; nothing is written if nothing did."""
        if not self._holdfast.enabled:
            return True
        watch = self._watch
        with watch.lock:
            try:
                entry = self._entry(trigger, reason, phase)
                added = self._added[:]
                records = [*added, *([entry.draft] if entry else [])]
                if records:
                    self._writer.append(*records, consumed=self._consumed, run_changes=self._run_changes())
            except Exception as error:
                watch.failed(error)
                raise
            self._entry_is_stored(entry)
            if records:
                self._records_are_stored(len(added))
                watch.recorded()
        return True

    def pack(self, value: Any, what: str) -> bytes:
        """Return a value as the journal keeps it, without secrets; ValueRefused if it cannot be stored."""
        with self._packing:
            begin = getattr(self._packer, "begin", None)
            if begin is not None:
                begin("steps")
            return self._packer.pack(value, what)

    def unpack(self, data: bytes, what: str) -> Any:
        """Return a packed value."""
        return self._services.unpack(data, what)

    def add_record(self, kind: str, path: str, body: bytes) -> int:
        """Let the journal get a record with the next commit; return how many there are with it."""
        with self._watch.lock:
            self._found[path] = (kind, body)
            if self._holdfast.enabled:
                self._added.append(RecordDraft(kind, path, body))
            return self.records_stored + len(self._added)

    def find_record(self, path: str) -> tuple[str, bytes] | None:
        """Return kind and body of the newest record of a path, stored or added."""
        if path not in self._found:
            line = self._line() if self._holdfast.enabled and self._has_stored_calls else None
            record = None if line is None else self._holdfast.store.journal.newest(line, path)
            found = None if record is None else (record.kind, body_of(record, self._holdfast.store))
            with self._watch.lock:
                self._found.setdefault(path, found)
        return self._found[path]

    @property
    def _has_stored_calls(self) -> bool:
        """Whether the store may have calls that this handle does not know: not in a run that it began."""
        if self._had_calls is None:
            self._had_calls = self._present.summary.steps > 0
        return self._had_calls

    def _stored_notes(self) -> list[dict[str, Any]]:
        return self._holdfast.present(self.id, self._writer.head).notes

    def _entry_is_stored(self, entry: _JournalEntry | None) -> None:
        if entry is not None:
            self._watch.live.journaled(entry.after)
            del self._notes[: entry.notes]

    def _forget_records(self) -> None:
        """Look calls up again: the run stands elsewhere than this handle knew."""
        self._found.clear()
        self._had_calls = None
        self._added.clear()
        self._calls = None

    def _records_are_stored(self, count: int) -> None:
        del self._added[:count]
        self.records_stored += count
        self._calls_since += count

    def _append_if_possible(self, *, trigger: Trigger, reason: str, phase: str | None = None) -> bool:
        return self._watch.append(trigger, reason, phase=phase)

    def log(self, name: str) -> RunLog:
        """Return a log of the run: a growing collection whose items are durable as they are appended.

        It is part of every checkpoint, costs what is appended, and goes back with the run.
        """
        if name in LOG_TYPES:
            raise UsageError(f"{name!r} is a log that the run keeps of itself: choose another name")
        return RunLog(self._holdfast.store, self._packer, name, self._line, self._append_records)

    def _line(self) -> LineRow | None:
        return self._writer.line or self._holdfast.store.line(self.id)

    def _append_records(self, kind: str, path: str, make: Callable[[], list[bytes]]) -> None:
        """Add records of one kind and path; their bodies are made where nobody can come between."""
        self.check_open(f"nothing was added to {path}")
        if not self._holdfast.enabled:
            return
        with self._watch.lock:
            try:
                added = self._added[:]
                self._writer.append(*added, *(RecordDraft(kind, path, body) for body in make()))
            except Exception as error:
                self._watch.failed(error)
                raise
            self._records_are_stored(len(added))
            self._watch.recorded()

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
        deltas, after = self._watch.live.changes()
        for name in replaced:
            deltas.pop(name, None)
        is_whole = not replaced and not goes_back
        notes = self._notes[:]
        if not deltas and not notes and is_whole:
            return None
        clean = getattr(self._packer, "text", str)
        body = make_entry(
            self._packer, trigger=trigger.value, reason=clean(reason), phase=phase, notes=notes, parts=deltas,
            is_whole=is_whole, begin=getattr(self._packer, "begin", None),
        )  # fmt: skip
        draft = RecordDraft(SAVED, NOTED if notes else "", body)
        return _JournalEntry(draft, after, len(notes))

    def _run_changes(self) -> dict[str, Any]:
        """Return what the run's row shows of it."""
        status = self._parts.get("status")
        return {} if status is None or status.status is None else {"status": status.status}

    @property
    def _consumed(self) -> int | None:
        """The number of the last inbox entry that was taken in."""
        waits = self._parts.get("waits")
        return None if waits is None else waits.taken_in

    def _ended(self) -> None:
        self._watch.ended()

    def _journal(self, section: str, value: Any) -> None:
        self._watch.live.journal(section, value)

    @property
    def _present(self) -> Checkpoint:
        """How the run stood when this handle last read it: its head and what the journal has since."""
        if self._known_present is None:
            self._known_present, self._calls_since = self._holdfast.present(self.id, self._writer.head), 0
        return self._known_present

    def maybe_checkpoint(
        self,
        event: Trigger | str,
        *,
        reason: str = "",
        phase: str | None = None,
        details: Mapping[str, Any] | None = None,
        sections: Mapping[str, Any] | None = None,
        files: bool | None = None,
        **known_sections: Any,
    ) -> Checkpoint | None:
        """Take a checkpoint if this event's switch is on and the strategy finds it due; return it, or None.

        A failure does not stop the work unless the settings say so: it is warned about, and `unprotected_since` tells.
        """
        if not self._holdfast.enabled:
            return None
        taken: Checkpoint | None = self._watch.maybe(
            event,
            reason=reason,
            phase=phase,
            details=details or {},
            sections=sections,
            files=files,
            **known_sections,
        )
        return taken

    def destructive(
        self, operation: str, detail: str = "", **known_sections: Any
    ) -> AbstractContextManager[Checkpoint | None]:
        """Stand before a destructive operation: `with run.destructive("git_push", "origin main"):` saves first."""
        return self._watch.destructive(operation, detail, **known_sections)

    def register(self, section: str, live: Live, *, quiet: bool = False) -> None:
        """Capture an object with snapshot() and restore(value) as a section of every checkpoint from now on.

        A quiet one is stored with every checkpoint, but alone is no reason for the timer to take one.
        """
        with self._watch.lock:
            self._watch.live.register(section, live, quiet=quiet)

    def unregister(self, section: str) -> None:
        """Leave a registered object out from now on; its section is carried over as it is."""
        with self._watch.lock:
            self._watch.live.unregister(section)

    def take(self, *, trigger: Trigger, files: bool | None = None, **given: Any) -> Checkpoint:
        """Take an automatic checkpoint; the workspace is captured where the settings say that it pays."""
        wanted = self._watch.rules.of(trigger).files if files is None else files
        return self.checkpoint(trigger=trigger, files=wanted, **given)

    @property
    def _root(self) -> Path | None:
        return self.workspace.path if self.has_workspace else None

    def _save(
        self, trigger: Trigger, reason: str, *, phase: str | None, files: bool | None, details: Mapping[str, Any]
    ) -> bool:
        if not self._holdfast.enabled:
            return True
        return self._watch.record(trigger, reason, phase=phase, files=files, details=details)

    def restore_registered(self, checkpoint: Checkpoint | None = None) -> list[str]:
        """Give every registered object its state from a checkpoint, by default the head; all of them or none."""
        source = checkpoint or self.head
        if source is None:
            return []
        with self._watch.lock:
            values = {name: source.section(name) for name in self._watch.live.names if name in source.sections}
            return self._watch.live.restore(values)

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
        notes: Sequence[Any] | None = None,
    ) -> Checkpoint:
        """Begin this run, which is new, from a checkpoint of another; `bring` gives the chunks that it needs of it.

        Its calls and notes are those of the other run, unless others are given.
        """
        values = gather({}, {**origin.journaled_sections(), **sections})
        logs = [RecordDraft(kind, path, body) for kind, path, body in origin.log_records()]
        made_calls = origin.call_records() if calls is None else calls
        told = make_entry(
            self._packer, trigger=Trigger.RECOVERY, reason=reason, phase=None, parts={}, is_whole=False,
            notes=origin.notes if notes is None else notes,
        )  # fmt: skip
        logs.append(RecordDraft(SAVED, NOTED, told))
        record = self._writer.take(
            values,
            drop=_checked_drop(drop, values),
            trigger=Trigger.RECOVERY,
            reason=reason,
            marks=checked_marks(Marks(pinned=True, label=label)),
            with_files=False,
            phase=origin.summary.phase,
            onto=origin.record,
            bring=bring,
            records=[*logs, *(RecordDraft(*one) for one in made_calls)],
            steps=len(made_calls),
            run_changes={"forked_from": origin.id},
        )
        self._known_present = None
        self._watch.succeeded(record)
        made = self._holdfast.opened(record)
        self._holdfast.mirror(made)
        return made

    def ignore_inbox(self) -> None:
        """Take in nothing that others have said so far; stored with the next checkpoint."""
        unread = self._services.read_inbox(0)
        if unread:
            self.waits.taken_in = unread[-1].number

    def go_back_to(self, checkpoint: Checkpoint) -> None:
        """Be as a checkpoint is: objects get its state, parts that it does not have are made anew when next used."""
        with self._watch.lock:
            self._known_present = checkpoint
            self._forget_records()
            self._forget_parts(checkpoint.sections, self.registered)
            self.restore_registered(checkpoint)
            self._watch.live.rebase()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def registered(self) -> tuple[str, ...]:
        """The sections that come from registered objects."""
        return self._watch.live.names

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run's lease for a moment, unless this handle has it already: no other process moves it meanwhile."""
        if self._lease is not None:
            yield
            return
        self._lease = self._holdfast.lease_keeper(self.id, self._lease_lost)
        try:
            self._writer.fence = self._lease.take()
            self.reload(rewinding=True)
            yield
        finally:
            self._give_back()

    @property
    def lock(self) -> RunLock:
        """Held while a checkpoint is taken; hold it yourself while registered state is changed in several steps."""
        return self._watch.lock

    @property
    def last_checkpoint_at(self) -> datetime | None:
        """When the last checkpoint was taken, None if there is none."""
        return self._watch.last_checkpoint_at

    @property
    def protection(self) -> Protection:
        """Whether the position is saved, and why not."""
        return self._watch.protection

    @property
    def unprotected_since(self) -> datetime | None:
        """When the first of the checkpoints failed that have not been made up for, None if all is saved."""
        return self._watch.protection.since

    @property
    def triggers(self) -> Rules:
        """What each trigger causes: which take checkpoints, and which capture files."""
        return self._watch.rules

    def switch(self, *, all: bool | None = None, **triggers: bool) -> None:  # noqa: A002 - reads as what it does
        """Switch triggers on and off: all together, or `switch(agent_complete=False)` one by one."""
        rules = self._watch.rules if all is None else self._watch.rules.switched({"*": all})
        self._watch.rules = rules.switched(triggers)

    def __enter__(self) -> Self:
        """Take the run's lease and watch over it until the end of the block: timer, signals, a last checkpoint."""
        try:
            if self._holdfast.enabled:
                self._take_over()
            self._watch.enter()
        except BaseException:
            self._watch.stop()
            self._give_back()
            raise
        return self

    def _take_over(self) -> None:
        """Take the lease, go to where the run stands, and store a run that is new."""
        if self._lease is None:
            self._lease = self._holdfast.lease_keeper(self.id, self._lease_lost)
            self._writer.fence = self._lease.take()
        self._catch_up()
        self._old_error = self._has("error")
        is_new = self._writer.head is None and not self._writer.number
        self.begin()
        if is_new:
            self._watch.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end(error)
            self._watch.leave(error)
        finally:
            self.close()

    def _catch_up(self) -> None:
        """Go to what another process did before it gave the lease back; parts that were looked at before follow."""
        known = self._writer.head_id, self._writer.number
        self.reload()
        if (self._writer.head_id, self._writer.number) == known:
            return
        present = self._present
        with self._watch.lock:
            self._forget_records()
            self._forget_parts(present.sections, self.registered)
            self._watch.live.restore({name: present.section(name) for name in self._parts})
            self._watch.live.rebase()

    def _give_back(self) -> None:
        if self._lease is not None:
            self._writer.fence = None
            self._lease.give_back()
            self._lease = None

    @property
    def has_workspace(self) -> bool:
        """Whether the run's checkpoints hold a directory, too."""
        return self._writer.files is not None

    @property
    def workspace(self) -> RunFiles:
        """The run's directory: what it would take to restore a checkpoint into it, and doing so."""
        from holdfast.run_files import RunFiles  # noqa: PLC0415 - only runs with files pay for loading it

        files = self._writer.files
        if files is None:
            raise UsageError(f"run {self.id!r} has no workspace: open it with hf.run({self.id!r}, workspace=directory)")
        return RunFiles(self, files)

    @property
    def head_record(self) -> CheckpointRecord | None:
        """The record of the head, as this writer knows it."""
        return self._writer.head

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the next one will be taken on."""
        record = self._writer.head
        return None if record is None else self._holdfast.present(self.id, record)

    def close(self) -> None:
        """Give the lease back, end timer, signals and threads, and leave what is known of the workspace to the next.

        Closing twice is fine.
        """
        self._is_closed = True
        self._watch.stop()
        self._give_back()
        if self._writer.files is not None:
            self._writer.files.save_cache()

    def reload(self, *, rewinding: bool = False) -> None:
        """Go to the run's present head, wherever another writer moved it; a damaged one is refused unless rewinding."""
        with self._watch.lock:
            self._writer.reload(rewinding=rewinding)
            self._known_present = None
            self._had_calls = None
            self._watch.live.forget()

    @property
    def owner(self) -> Holdfast:
        """The Holdfast that it was opened with."""
        return self._holdfast

    def __repr__(self) -> str:
        return f"<Run {self.id}>"


class _JournalEntry(NamedTuple):
    """A record of what changed, and what the journal has once it is stored."""

    draft: RecordDraft
    after: Mapping[str, Any]
    notes: int


def _checked_drop(drop: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    if isinstance(drop, str):
        raise UsageError(f"drop={drop!r}: give a list of names, [{drop!r}]")
    names = [check_section_name(name) for name in drop]
    both = next((name for name in names if name in given), None)
    if both is not None:
        raise UsageError(f"section {both!r} is given and dropped at once")
    return names
