"""Saying something to a run from outside: answers, signals, pause, cancel and larger budgets, from any process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.checkpointer import Checkpointer
from holdfast.encode.section import decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import IntegrityError, NotFound, UsageError
from holdfast.model.checkpoint import Marks
from holdfast.model.ids import check_run_id
from holdfast.model.runtime_sections import WaitsValue
from holdfast.model.triggers import Trigger
from holdfast.runtime.inbox import Item, drop, inbox_of, post, read_items
from holdfast.runtime.status import FINAL
from holdfast.runtime.waits import is_raised
from holdfast.store.lineage import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.encode.chunks import ChunkReader
    from holdfast.encode.compress import Compressor
    from holdfast.encode.values import Packer
    from holdfast.model import sections
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.model.runtime_sections import Wait
    from holdfast.runtime.amounts import Given
    from holdfast.runtime.inbox import ItemKind
    from holdfast.store.api import Store

_SECTION = "inbox"


class Control:
    """The outside of all runs of one store."""

    def __init__(
        self,
        store: Store,
        packer: Packer,
        compressor: Compressor,
        reader: ChunkReader,
        *,
        max_section_bytes: int,
        clock: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._packer = packer
        self._compressor = compressor
        self._reader = reader
        self._max_section_bytes = max_section_bytes
        self._clock = clock
        self._entropy = entropy

    def reader(self, run: str) -> Callable[[int], Sequence[Item]]:
        """Return what reads a run's inbox behind a number; it looks at stored items only when they moved."""
        name = inbox_of(run)
        last: tuple[str | None, list[Any]] = (None, [])

        def read(after: int) -> list[Item]:
            nonlocal last
            try:
                head = self._store.run(name).head
            except NotFound:
                return []
            if head is None:
                return []
            if head != last[0]:
                last = (head, self._section(self._store.checkpoint(head), _SECTION) or [])
            return read_items(last[1], after)

        return read

    def waiting(self, run: str) -> list[Wait]:
        """Return what a run waits for, as its newest checkpoint says; what was answered meanwhile is left out.

        A run that has ended waits for nothing, also if it came to its end past something that was never answered.
        """
        head = self._head(run)
        if head.envelope.summary.status in FINAL:
            return []
        value = self._waits(head)
        items = self.reader(run)(value.read)
        answered = {item.target for item in items if item.kind == "answer"}
        if any(item.kind == "resume" for item in items):
            answered |= {wait.id for wait in value.open.values() if wait.kind == "pause"}
        return [
            wait
            for wait in value.open.values()
            if wait.id not in answered and not any(is_raised(wait, item) for item in items)
        ]

    def answer(
        self, run: str, choice: str, *, wait: str | None = None, by: str = "", note: str = "", value: Any = None
    ) -> Wait:
        """Answer what a run waits for, by default the one thing that it waits for; return what was answered."""
        self._check_alive(run)
        waits = self.waiting(run)
        chosen = [one for one in waits if one.id == wait] if wait is not None else waits
        if len(chosen) != 1:
            known = ", ".join(one.id for one in waits) or "nothing"
            what = f"for {wait!r}" if wait is not None else "for one thing alone"
            raise UsageError(f"run {run!r} does not wait {what}: it waits for {known}")
        options = chosen[0].options
        if options and choice not in options:
            raise UsageError(f"{choice!r} is no answer to {chosen[0].question!r}: use {' or '.join(options)}")
        if chosen[0].kind == "budget":
            value = self._amounts(run, chosen[0], choice, value)
        self._post(run, "answer", target=chosen[0].id, choice=choice, by=by, note=note, value=value)
        return chosen[0]

    def signal(self, run: str, name: str, value: Any = None, *, by: str = "", note: str = "") -> None:
        """Send a named signal; it is kept until the run waits for it."""
        self._check_alive(run)
        self._post(run, "signal", target=name, choice=name, by=by, note=note, value=value)

    def pause(self, run: str, *, by: str = "", note: str = "") -> None:
        """Ask a run to stop at its next boundary and wait; a command that it runs now comes to its end first."""
        self._check_alive(run)
        self._post(run, "pause", by=by, note=note)

    def unpause(self, run: str, *, by: str = "", note: str = "") -> None:
        """Let a paused run go on, or take a pause back that it has not taken yet."""
        self._check_alive(run)
        self._post(run, "resume", choice="resume", by=by, note=note)

    def cancel(self, run: str, *, by: str = "", note: str = "") -> None:
        """Ask a run to end at its next boundary; commands that it runs now are ended."""
        self._check_alive(run)
        self._post(run, "cancel", by=by, note=note)

    def raise_budget(self, run: str, more: Mapping[str, Given], *, by: str = "", note: str = "") -> list[Wait]:
        """Raise the limits of budgets by so much, whether or not the run waits for them; return the waits that end.

        A name is meant in the part that the run waits for, then in the run; `phase:plan/tokens` says which.
        """
        from holdfast.runtime.amounts import amount_of, stored  # noqa: PLC0415 - most commands do without
        from holdfast.runtime.ledger import find_limited  # noqa: PLC0415

        self._check_alive(run)
        waits = [wait for wait in self.waiting(run) if wait.kind == "budget"]
        section = self._budget(run)
        near = waits[0].details["part"] if waits else ""
        value = {
            find_limited(section, name, near=near): stored(amount_of(name, amount)) for name, amount in more.items()
        }
        item = self._post(run, "budget", by=by, note=note, value=value)
        return [wait for wait in waits if is_raised(wait, item)]

    def _amounts(self, run: str, wait: Wait, choice: str, value: Any) -> Any:
        """Return what an answer gives to the budgets of a part; UsageError says how an amount is given."""
        from holdfast.runtime.amounts import amount_of, stored  # noqa: PLC0415
        from holdfast.runtime.ledger import NEED_AMOUNT, find_limited  # noqa: PLC0415

        if choice not in NEED_AMOUNT:
            return value
        budget, part = wait.details["budget"], wait.details["part"]
        if value is None:
            raise UsageError(
                f"{choice!r} needs an amount: give it as the answer's value (`--value 500`), or raise the budget "
                f"with `holdfast budget {run} {budget}=MORE`"
            )
        given = value if isinstance(value, dict) else {budget: value}
        section = self._budget(run)
        prefix = f"{part}/" if part else ""
        return {
            find_limited(section, f"{prefix}{name}").removeprefix(prefix): stored(amount_of(name, amount))
            for name, amount in given.items()
        }

    def _budget(self, run: str) -> sections.Budget:
        from holdfast.capture.sections import typed  # noqa: PLC0415

        section: sections.Budget = typed("budget", self._section(self._head(run), "budget") or {})
        return section

    def drop_read(self, run: str) -> None:
        """Let go of what a run has read: set back to an earlier checkpoint, it must not hear an old answer again."""
        try:
            read = self._waits(self._head(run)).read
        except (IntegrityError, NotFound):
            return  # what a damaged head had read is not known
        drop(lambda: _Line(self._checkpointer(run), self._section), upto=read)

    def forget(self, run: str) -> None:
        """Delete a run's inbox with the run."""
        try:
            self._store.delete_run(inbox_of(run))
        except NotFound:
            return

    def _post(self, run: str, kind: ItemKind, **given: Any) -> Item:
        now = datetime.fromtimestamp(self._clock(), UTC)
        item = post(
            lambda: _Line(self._checkpointer(run), self._section),
            lambda number: Item(number=number, kind=kind, at=now, **given),
            consumed=self._waits(self._head(run)).read,
        )
        self._store.wake(run)
        return item

    def _checkpointer(self, run: str) -> Checkpointer:
        return Checkpointer(
            inbox_of(run),
            self._store,
            self._packer,
            self._compressor,
            max_section_bytes=self._max_section_bytes,
            clock=self._clock,
            entropy=self._entropy,
        )

    def _check_alive(self, run: str) -> None:
        status = self._head(run).envelope.summary.status
        if status in FINAL:
            raise UsageError(f"run {run!r} is {status}: it takes nothing from outside any more")

    def _head(self, run: str) -> CheckpointRecord:
        record = self._store.run(check_run_id(run))
        head = head_of(self._store, record)
        if head is None:
            raise NotFound("checkpoint of run", run)
        return head

    def _waits(self, record: CheckpointRecord) -> WaitsValue:
        stored = self._section(record, "waits")
        return WaitsValue() if stored is None else msgspec.convert(stored, WaitsValue)

    def _section(self, record: CheckpointRecord, name: str) -> Any:
        for one in record.envelope.sections:
            if one.name == name:
                root = Ref(one.kind, one.size, one.root)
                return decode_section(name, root, self._packer, self._reader, max_bytes=self._max_section_bytes)
        return None


class _Line:
    """An inbox's own run, at its head."""

    def __init__(self, checkpointer: Checkpointer, section: Callable[[CheckpointRecord, str], Any]) -> None:
        self._checkpointer = checkpointer
        self._section = section

    def read(self) -> list[Any]:
        head = self._checkpointer.head
        return [] if head is None else self._section(head, _SECTION) or []

    def write(self, items: list[Any], reason: str) -> None:
        self._checkpointer.take({_SECTION: items}, trigger=Trigger.MANUAL.value, reason=reason, marks=Marks())
