"""A run, open for taking checkpoints."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast.capture.marks import checked_marks, checked_text
from holdfast.capture.sections import gather
from holdfast.checkpoint import Checkpoint, NotSaved
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Marks
from holdfast.model.ids import check_section_name
from holdfast.model.triggers import Trigger
from holdfast.runtime.parts import RunParts, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from holdfast.capture.checkpointer import Bring, Checkpointer
    from holdfast.capture.live import Live
    from holdfast.capture.lock import RunLock
    from holdfast.capture.protection import Protection
    from holdfast.capture.triggers import TriggerSwitches
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.run_files import RunFiles
    from holdfast.runtime.lease import LeaseKeeper

_log = logging.getLogger("holdfast")


class Run(RunParts):
    """One writer's handle on a run; two handles on one run are two writers, and the slower one gets HeadMoved.

    In a `with` block it holds the run's lease: no other process moves the run meanwhile.
    """

    def __init__(self, holdfast: Holdfast, run: str, checkpointer: Checkpointer, *, waiting: Waiting = "block") -> None:
        super().__init__(run, holdfast.services(run), waiting=waiting)
        self._holdfast = holdfast
        self._checkpointer = checkpointer
        self._watch = holdfast.watch(self)
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
        **known_sections: Any,
    ) -> Checkpoint:
        """Store a checkpoint durably and return it.

        Known sections (`state`, `workflow`, `agents`, ...) are keywords, your own go into `sections`; registered
        objects are asked for theirs. What is not given is carried over from the checkpoint before, unless named in
        `drop`. A run with a workspace captures it too, unless `files` is False. With `onto` the run goes back: the new
        checkpoint is taken on that one instead of the head, or on nothing.
        """
        self.check_open("no checkpoint was taken")
        values = gather(known_sections, sections)
        try:
            trigger = Trigger(trigger)
        except ValueError:
            raise UsageError(f"unknown trigger {trigger!r}: use one of {', '.join(Trigger)}") from None
        marks = checked_marks(Marks(pinned=pinned, label=label))
        dropped = _checked_drop(drop, values)
        checked_text("reason", reason)
        if not self._holdfast.enabled:
            _log.info("run %s: checkpointing is disabled, nothing was saved", self.id)
            return NotSaved()
        watch = self._watch
        with watch.lock:
            if onto is not None:
                watch.live.forget()
            if self._old_error and "error" not in values:
                dropped.append("error")
            try:
                trusted = watch.live.trusted - values.keys()
                is_step = trigger is Trigger.STEP_COMPLETE
                values = {**watch.live.snapshots(without=[*values, *dropped], is_step=is_step), **values}
                record = self._checkpointer.take(
                    values,
                    drop=dropped,
                    trigger=trigger.value,
                    reason=reason,
                    marks=marks,
                    with_files=files,
                    phase=phase,
                    onto=onto.record if isinstance(onto, Checkpoint) else onto,
                    trusted=trusted,
                )
                if trigger is Trigger.PHASE_COMPLETE:
                    self._holdfast.read_back(record)
            except Exception as error:
                self._checkpointer.forget()  # one that was read back damaged must be stored again, not referred to
                watch.failed(error)
                raise
            self._old_error = False
            watch.live.stored()
            watch.succeeded(record)
        return self._holdfast.opened(record)

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

    def register(self, section: str, live: Live, *, quiet: bool = False, is_stored: bool = False) -> None:
        """Capture an object with snapshot() and restore(value) as a section of every checkpoint from now on.

        A quiet one is stored with every checkpoint, but alone is no reason for the timer to take one. One that counts
        its `changes`, and whose state is that of the head (`is_stored`), is carried over until it changes.
        """
        with self._watch.lock:
            self._watch.live.register(section, live, quiet=quiet, is_stored=is_stored)

    def unregister(self, section: str) -> None:
        """Leave a registered object out from now on; its section is carried over as it is."""
        with self._watch.lock:
            self._watch.live.unregister(section)

    def take(self, *, trigger: Trigger, files: bool | None = None, **given: Any) -> Checkpoint:
        """Take an automatic checkpoint; the workspace is captured where the settings say that it pays."""
        wanted = trigger in self._holdfast.settings.workspace_on if files is None else files
        return self.checkpoint(trigger=trigger, files=wanted, **given)

    @property
    def _root(self) -> Path | None:
        return self.workspace.path if self.has_workspace else None

    def _save(self, trigger: Trigger, reason: str, *, phase: str | None, files: bool | None) -> bool:
        if not self._holdfast.enabled:
            return True
        saved = self._watch.save(trigger, reason, phase=phase, files=files)
        return saved is not None

    def _offer(self, trigger: Trigger, reason: str, *, phase: str | None, details: Mapping[str, Any]) -> None:
        self.maybe_checkpoint(trigger, reason=reason, phase=phase, details=details)

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
    ) -> Checkpoint:
        """Begin this run, which is new, from a checkpoint of another; `bring` gives the chunks that it needs of it."""
        values = gather({}, sections)
        record = self._checkpointer.take(
            values,
            drop=_checked_drop(drop, values),
            trigger=Trigger.RECOVERY,
            reason=reason,
            marks=checked_marks(Marks(pinned=True, label=label)),
            with_files=False,
            phase=origin.summary.phase,
            onto=origin.record,
            bring=bring,
        )
        self._watch.succeeded(record)
        return self._holdfast.opened(record)

    def go_back_to(self, checkpoint: Checkpoint) -> None:
        """Be as a checkpoint is: objects get its state, parts that it does not have are made anew when next used."""
        with self._watch.lock:
            self._forget_parts(checkpoint.sections, self.registered)
            self.restore_registered(checkpoint)

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
        self._lease = self._holdfast.lease_keeper(self.id)
        try:
            self._checkpointer.fence = self._lease.take()
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
    def triggers(self) -> TriggerSwitches:
        """Which triggers take checkpoints."""
        return self._watch.switches

    def switch(self, *, all: bool | None = None, **triggers: bool) -> None:  # noqa: A002 - reads as what it does
        """Switch triggers on and off: all together, or `switch(agent_complete=False)` one by one."""
        switches = self._watch.switches
        if all is not None:
            switches = switches.all_on() if all else switches.all_off()
        self._watch.switches = switches.switched(triggers)

    def __enter__(self) -> Self:
        """Take the run's lease and watch over it until the end of the block: timer, signals, a last checkpoint."""
        if self._holdfast.enabled:
            if self._lease is None:
                self._lease = self._holdfast.lease_keeper(self.id)
                self._checkpointer.fence = self._lease.take()
            try:
                self._catch_up()
                self._old_error = self._has("error")
                self.begin()
                if self.head is None:
                    self._watch.begin()
            except BaseException:
                self._give_back()
                raise
        self._watch.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end(error)
            self._watch.leave(error)
        finally:
            self.close()
            self._give_back()

    def _catch_up(self) -> None:
        """Go to what another process did before it gave the lease back; parts that were looked at before follow."""
        known = self._checkpointer.head_id
        self.reload()
        head = self.head
        if head is None or head.id == known:
            return
        with self._watch.lock:
            self._forget_parts(head.sections, self.registered)
            self._watch.live.restore({name: head.section(name) for name in self._parts})

    def _give_back(self) -> None:
        if self._lease is not None:
            self._checkpointer.fence = None
            self._lease.give_back()
            self._lease = None

    @property
    def has_workspace(self) -> bool:
        """Whether the run's checkpoints hold a directory, too."""
        return self._checkpointer.files is not None

    @property
    def workspace(self) -> RunFiles:
        """The run's directory: what it would take to restore a checkpoint into it, and doing so."""
        from holdfast.run_files import RunFiles  # noqa: PLC0415 - only runs with files pay for loading it

        files = self._checkpointer.files
        if files is None:
            raise UsageError(f"run {self.id!r} has no workspace: open it with hf.run({self.id!r}, workspace=directory)")
        return RunFiles(self, files)

    @property
    def head_record(self) -> CheckpointRecord | None:
        """The record of the head, as this writer knows it."""
        return self._checkpointer.head

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that the next one will be taken on."""
        record = self._checkpointer.head
        return None if record is None else self._holdfast.opened(record)

    def close(self) -> None:
        """Leave what this process knows of the workspace to the next one; closing twice is fine."""
        self._is_closed = True
        if self._checkpointer.files is not None:
            self._checkpointer.files.save_cache()

    def reload(self, *, rewinding: bool = False) -> None:
        """Go to the run's present head, wherever another writer moved it; a damaged one is refused unless rewinding."""
        with self._watch.lock:
            self._checkpointer.reload(rewinding=rewinding)
            self._watch.live.forget()

    @property
    def owner(self) -> Holdfast:
        """The Holdfast that it was opened with."""
        return self._holdfast

    def __repr__(self) -> str:
        return f"<Run {self.id}>"


def _checked_drop(drop: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    if isinstance(drop, str):
        raise UsageError(f"drop={drop!r}: give a list of names, [{drop!r}]")
    names = [check_section_name(name) for name in drop]
    both = next((name for name in names if name in given), None)
    if both is not None:
        raise UsageError(f"section {both!r} is given and dropped at once")
    return names
