"""Saying something to a run from outside: answers, signals, pause, cancel and larger budgets, from any process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import UsageError
from holdfast.lazy import lazily
from holdfast.model.runtime_sections import WaitsValue
from holdfast.runtime.inbox import pack_item, read_inbox, read_item
from holdfast.runtime.status import FINAL

with lazily():
    from holdfast.capture import redact
    from holdfast.capture import sections as sections_module
    from holdfast.runtime import amounts, ledger
    from holdfast.runtime import waits as waits_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.checkpoint import Checkpoint
    from holdfast.internals import Internals
    from holdfast.model import sections
    from holdfast.model.runtime_sections import Wait
    from holdfast.runtime.amounts import Given
    from holdfast.runtime.inbox import Item, ItemKind


class Control:
    """The outside of all runs of one store."""

    def __init__(
        self,
        internals: Internals,
        wake: Callable[[str, int], object],
    ) -> None:
        """Speak to the runs of a store; `wake` hears the number of each entry that is left for a run."""
        self._store = internals.store
        self._packer = internals.packer
        self._present = internals.present_of
        self._writer = internals.journal_packer  # takes secrets out
        self._wake = wake

    def waiting(self, run: str) -> list[Wait]:
        """Return what a run waits for, as its newest checkpoint says; what was answered meanwhile is left out.

        A run that has ended waits for nothing, also if it came to its end past something that was never answered.
        """
        present = self._present(run)
        if self._status(present) in FINAL:
            return []
        value = self._waits(present)
        items = read_inbox(self._store, self._packer, run, 0)
        answered = {item.target for item in items if item.kind == "answer"}
        if any(item.kind == "resume" for item in items):
            answered |= {wait.id for wait in value.open.values() if wait.kind == "pause"}
        return [
            wait
            for wait in value.open.values()
            if wait.id not in answered and not any(waits_module.is_raised(wait, item) for item in items)
        ]

    def answer(
        self, run: str, choice: str, *, wait: str | None = None, by: str = "", note: str = "", value: Any = None
    ) -> Wait:
        """Answer what a run waits for, by default the one thing that it waits for; return what was answered."""
        self._check_alive(run)
        waits = self.waiting(run)
        chosen = [one for one in waits if one.id == wait] if wait is not None else waits
        if len(chosen) != 1:
            if not waits:
                raise UsageError(f"run {run!r} waits for nothing")
            known = ", ".join(one.id for one in waits)
            if wait is None:
                raise UsageError(f"run {run!r} waits for {known}: name one with --wait (in Python wait=)")
            raise UsageError(f"run {run!r} does not wait for {wait!r}: it waits for {known}")
        options = chosen[0].options
        if options and choice not in options:
            raise UsageError(f"{choice!r} is not an answer to {chosen[0].question!r}: use {' or '.join(options)}")
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
        """Let a paused run continue, or take a pause back that it has not taken yet."""
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
        return self._change_limits(run, "raise", more, by=by, note=note)

    def set_limits(self, run: str, limits: Mapping[str, Given], *, by: str = "", note: str = "") -> list[Wait]:
        """Set the limits of budgets, named as in `raise_budget`; return the waits that end."""
        return self._change_limits(run, "limit", limits, by=by, note=note)

    def _change_limits(self, run: str, choice: str, given: Mapping[str, Given], *, by: str, note: str) -> list[Wait]:
        self._check_alive(run)
        waits = [wait for wait in self.waiting(run) if wait.kind == "budget"]
        section = self._budget(run)
        near = waits[0].details["part"] if waits else ""
        value = {
            ledger.find_limited(section, name, near=near): amounts.stored(amounts.amount_of(name, amount))
            for name, amount in given.items()
        }
        item = self._post(run, "budget", choice=choice, by=by, note=note, value=value)
        return [wait for wait in waits if waits_module.is_raised(wait, item)]

    def _amounts(self, run: str, wait: Wait, choice: str, value: Any) -> Any:
        """Return what an answer gives to the budgets of a part; UsageError says how an amount is given."""
        if choice not in ledger.NEED_AMOUNT:
            return value
        budget, part = wait.details["budget"], wait.details["part"]
        if value is None:
            raise UsageError(
                f"{choice!r} needs an amount: give it as the answer's value (`--value 500`), or raise the budget "
                f"with `holdfast budget {run} {budget}+=MORE`"
            )
        given = value if isinstance(value, dict) else {budget: value}
        section = self._budget(run)
        prefix = f"{part}/" if part else ""
        return {
            ledger.find_limited(section, f"{prefix}{name}").removeprefix(prefix): amounts.stored(
                amounts.amount_of(name, amount)
            )
            for name, amount in given.items()
        }

    def _budget(self, run: str) -> sections.Budget:
        present = self._present(run)
        section: sections.Budget = sections_module.typed(
            "budget", present.section("budget") if "budget" in present.sections else {}
        )
        return section

    def _post(self, run: str, kind: ItemKind, **given: Any) -> Item:
        writer = self._writer()
        clean = writer.text if isinstance(writer, redact.RedactingPacker) else str
        texts = {name: clean(text) for name, text in given.items() if name != "value" and text}
        row = self._store.post(run, kind, pack_item(writer, **given | texts))
        self._wake(run, row.number)
        return read_item(row, self._packer)

    def _check_alive(self, run: str) -> None:
        status = self._status(self._present(run))
        if status in FINAL:
            raise UsageError(f"run {run!r} is {status}: it takes nothing from outside any more")

    def _status(self, present: Checkpoint) -> str | None:
        return present.section("status")["status"] if "status" in present.sections else None

    def _waits(self, present: Checkpoint) -> WaitsValue:
        return msgspec.convert(present.section("waits"), WaitsValue) if "waits" in present.sections else WaitsValue()
