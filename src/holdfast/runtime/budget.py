"""Budgets: used and limit, a warning at a share, and a pause at the limit until a person raises it.

What was spent is counted first, for the budget and all above it; a budget that is used up then stops the run inside
`spend` or `check`. Tokens, money and time are used up at their limit; of calls and retries all may be taken, and the
next one stops: `reserve` counts them before they begin. Amounts are exact, see `runtime/amounts.py`. Time is running
time over all processes of the run: it counts while a budget is open, and not while the run waits for somebody.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from holdfast.capture.sections import typed
from holdfast.errors import BudgetExhausted, UsageError
from holdfast.model.nearest import hint
from holdfast.model.runtime_sections import Wait
from holdfast.model.triggers import Trigger
from holdfast.runtime.amounts import add, amount_of, shown, stored
from holdfast.runtime.calls import charge_call
from holdfast.runtime.host import Alone
from holdfast.runtime.ledger import (
    COUNTS,
    NEED_AMOUNT,
    ROOT,
    TIME,
    Hold,
    Ledger,
    LedgerLine,
    LedgerPart,
    label_of,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from holdfast.model import sections
    from holdfast.model.runtime_sections import Reply
    from holdfast.runtime.amounts import Amount, Given
    from holdfast.runtime.host import Host

KNOWN = ("tokens", TIME, "retries", "subcalls", "tool_calls", "money")
OnWarning = Literal["continue", "ask"]


class BudgetWarning(NamedTuple):
    """A budget that is nearly used up."""

    budget: str
    used: Amount
    limit: Amount


class _Stop(NamedTuple):
    """A budget at which the run must stop and ask."""

    path: str
    name: str
    is_warning: bool = False
    wanted: int = 0
    """How many more of a count are to begin."""

    @property
    def label(self) -> str:
        """The budget's name with the part that it belongs to."""
        return label_of(self.path, self.name)

    def wait_id(self, asked: int) -> str:
        """Return the name of the question, after so many that were answered."""
        return f"budget:{self.label}:{asked + 1}"


@dataclass(slots=True)
class _Book:
    """What a budget and all below it share."""

    host: Host
    ledger: Ledger
    asking: threading.Lock
    warned: Callable[[BudgetWarning], object] | None
    on_warning: OnWarning
    put: set[str] = field(default_factory=set)
    """The questions of this process."""


class Budget:
    """The budgets of a run or of a part of it: `spend(tokens=812, money="0.03")`.

    A custom name is known once it stands in `limits`, with None for no limit. Threads may spend at once.
    """

    gives_typed = True

    def __init__(
        self,
        host: Host | None = None,
        limits: Mapping[str, Given | None] | None = None,
        *,
        warn_at: float = 0.8,
        on_warning: OnWarning = "continue",
        warned: Callable[[BudgetWarning], object] | None = None,
    ) -> None:
        host = host or Alone()
        ledger = Ledger(host.monotonic, _share(warn_at))
        self._take(_Book(host, ledger, threading.Lock(), warned, on_warning), ROOT)
        self.limit(**(limits or {}))

    def _take(self, book: _Book, path: str) -> None:
        self._book = book
        self._host, self._ledger = book.host, book.ledger
        self.path = path
        self._is_open = True

    def child(
        self, name: str, limits: Mapping[str, Given | None] | None = None, *, warn_at: float | None = None
    ) -> Budget:
        """Return the budget of a part, new or as it was in an earlier process; what it spends counts here too.

        Its time runs until it is closed: use it in a `with` block.
        """
        if not name or "/" in name:
            raise UsageError(
                f"{name!r} is not a name for a part's budget: give one without '/', such as 'phase:research'"
            )
        child = Budget.__new__(Budget)
        with self._host.lock:
            path = f"{self.path}/{name}" if self.path else name
            is_new = path not in self._ledger.parts
            self._ledger.open(path, None if warn_at is None else _share(warn_at))
            child._take(self._book, path)  # noqa: SLF001 - it is one of us
            self._ledger.changes += is_new
        child.limit(**(limits or {}))
        return child

    def close(self) -> None:
        """Stop the clock of this budget; what it has used stays."""
        if self._is_open:
            self._is_open = False
            with self._host.lock:
                self._ledger.close(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def changes(self) -> int:
        """How often anything changed; running time is one change a second."""
        with self._host.lock:
            self._ledger.look_at_time()
            return self._ledger.changes

    def snapshot(self) -> sections.Budget:
        """Return all budgets of the run, this one and those above and below it."""
        with self._host.lock:
            return self._ledger.snapshot()

    def restore(self, value: sections.Budget | dict[str, Any]) -> None:
        """Take all budgets back; limits are those that are stored, and `limit` declares others."""
        section: sections.Budget = typed("budget", value)
        with self._host.lock:
            self._ledger.restore(section)

    def limit(self, **limits: Given | None) -> None:
        """Declare limits, None for no limit; what people raised comes on top, so saying it again changes nothing."""
        given = {name: None if value is None else amount_of(name, value) for name, value in limits.items()}
        for name in given:
            if not name.isidentifier() or name == "time":
                raise UsageError(f"{name!r} is not a name for a budget: {hint(name, KNOWN)}")
        with self._host.lock:
            part = self._part()
            for name, value in given.items():
                line = part.lines.get(name)
                wanted = None if value is None else add(value, line.raised if line else 0)
                if line is None or line.limit != wanted:
                    line = part.line(name)
                    line.limit = wanted
                    line.warned = line.warned and line.has_reached(part.share)
                    self._ledger.changes += 1

    def warn(
        self,
        *,
        at: float | None = None,
        on_warning: OnWarning | None = None,
        warned: Callable[[BudgetWarning], object] | None = None,
    ) -> None:
        """Set from which share on this budget warns, and for all budgets of the run what happens then."""
        with self._host.lock:
            if at is not None:
                self._part().share = _share(at)
            self._book.on_warning = on_warning or self._book.on_warning
            self._book.warned = warned or self._book.warned

    def spend(self, *, once: str | None = None, **amounts: Given) -> None:
        """Count what was spent, then stop if a budget is used up; `once` is a key that counts a single time.

        A program that goes through the same call again after a resume gives `once`; a step's own result needs none.
        """
        if self.count(once=once, **amounts) and self._has_limit(amounts):
            self._host.record(f"spent: {', '.join(sorted(amounts))}", required=False)
        self.check()

    def count(self, *, once: str | None = None, **amounts: Given) -> bool:
        """Count without stopping; False if this key was counted before. All of it is counted, or nothing."""
        exact = {name: amount_of(name, given) for name, given in amounts.items()}
        with self._host.lock:
            for name in exact:
                self._check_name(name)
            if once is not None and once in self._ledger.counted:
                return False
            self._add(exact)
            charge_call(exact)
            if once is not None:
                self._ledger.counted[once] = None
            self._ledger.changes += bool(exact) or once is not None
        return True

    def reserve(self, **counts: int) -> None:
        """Count calls or retries that are to begin now, as soon as there is room for them here and above."""
        for name in counts:
            if name not in COUNTS:
                raise UsageError(f"{name!r} cannot be reserved: only {', '.join(sorted(COUNTS))} are known beforehand")
        self._reserve({name: int(amount_of(name, given)) for name, given in counts.items()})

    def _reserve(self, exact: Mapping[str, int], who: str = "", most: Mapping[str, Amount] | None = None) -> Hold:
        while True:
            with self._host.lock:
                stop = self._used_up(exact)
                if stop is None:
                    held = self._ledger.hold(self.path, who, most) if who else ()
                    self._add(exact)
                    self._ledger.changes += 1
                    break
            self._ask(stop)
        try:
            if held or self._has_limit(exact):
                self._host.record(f"reserved: {', '.join(sorted(exact))}")  # durable before what it is for begins
            self._warn()
        except BaseException:  # it could not be stored, or somebody was to be asked: what does not begin is not counted
            with self._host.lock:
                self._add({name: -amount for name, amount in exact.items()})
                self._ledger.release(held)
                self._ledger.changes += 1
            raise
        return held

    def check(self) -> None:
        """Warn if it is time, and stop while this budget or one above it is used up, until somebody raises it.

        A question that an earlier process left open is put again, before anything else is begun.
        """
        if not self.is_limited:
            return
        self._warn()
        while (stop := self._used_up() or self._left_open()) is not None:
            self._ask(stop)

    @property
    def is_limited(self) -> bool:
        """Whether this budget or one above it has any limit."""
        with self._host.lock:
            return self._ledger.is_limited(self.path)

    def _has_limit(self, names: Collection[str]) -> bool:
        """Tell whether one of these is limited, here or above: only then must it be durable at once."""
        with self._host.lock:
            parts = [part for _path, part in self._ledger.above(self.path)]
        return any(name in part.lines and part.lines[name].limit is not None for part in parts for name in names)

    def _add(self, amounts: Mapping[str, Amount]) -> None:
        for _path, part in self._ledger.above(self.path):
            for name, amount in amounts.items():
                line = part.line(name)
                line.used = add(line.used, amount)

    def raise_by(self, more: Mapping[str, Given], *, by: str = "") -> None:
        """Add to limits."""
        self._raise(self.path, more, by=by, is_total=False)

    def raise_labelled(self, more: Mapping[str, Given], *, by: str = "", is_total: bool = False) -> None:
        """Add to limits of any part of the run, or set them; questions about them are answered with it."""
        by_path: dict[str, dict[str, Given]] = {}
        for label, amount in more.items():
            path, _, name = label.rpartition("/")
            by_path.setdefault(path, {})[name] = amount
        with self._host.lock:
            for path, amounts in by_path.items():
                try:
                    self._raise(path, amounts, by=by, is_total=is_total)
                except UsageError as error:
                    self._host.note("budget_raise_refused", str(error), by=by)
                    continue
                for name in amounts:
                    self._ledger.parts[path].line(name).asked += 1  # the next question is another one

    def count_time(self) -> None:
        """Let the time that went by be stored with the next checkpoint, however little it is."""
        with self._host.lock:
            self._ledger.changes += 1

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Count no time inside: the run waits for somebody."""
        with self._host.lock:
            self._ledger.halt()
        try:
            yield
        finally:
            with self._host.lock:
                self._ledger.continue_clocks()

    @property
    def spending(self) -> dict[str, sections.Spending]:
        """What is used, and the limit, by name."""
        with self._host.lock:
            return {name: line.stored() for name, line in self._lines().items()}

    def used(self, name: str) -> Amount:
        """Return how much is used: an int, or a Decimal where there is a fraction."""
        return self._line(name).used

    def limit_of(self, name: str) -> Amount | None:
        """Return the limit, None if there is none."""
        return self._line(name).limit

    def left(self, name: str) -> Amount | None:
        """Return how much may still be spent, here and above; None if there is no limit."""
        with self._host.lock:
            self._check_name(name, reading=True)
            lines = [part.lines.get(name, LedgerLine()) for _path, part in self._ledger.above(self.path)]
            found = [max(0, add(line.limit, -line.used)) for line in lines if line.limit is not None]
        return min(found, default=None)

    def _part(self) -> LedgerPart:
        return next(part for _path, part in self._ledger.above(self.path))

    def _lines(self) -> dict[str, LedgerLine]:
        return self._part().lines

    def _line(self, name: str) -> LedgerLine:
        with self._host.lock:
            self._check_name(name, reading=True)
            return self._lines().get(name, LedgerLine())

    def _check_name(self, name: str, *, reading: bool = False) -> None:
        if name == TIME and not reading:
            raise UsageError(f"{TIME} counts by itself: spend everything else")
        known = set(KNOWN).union(*(part.lines for _path, part in self._ledger.above(self.path)))
        if name not in known:
            raise UsageError(f"there is no budget {name!r}: {hint(name, known)} A new one is declared in limits")

    def _warn(self) -> None:
        found: list[tuple[_Stop, BudgetWarning]] = []
        with self._host.lock:
            for path, part in self._ledger.above(self.path):
                for name, line in part.lines.items():
                    if line.limit is not None and not line.warned and line.has_reached(part.share):
                        line.warned = True
                        stop = _Stop(path, name, is_warning=True)
                        found.append((stop, BudgetWarning(stop.label, line.used, line.limit)))
            self._ledger.changes += bool(found)
        for stop, warning in found:
            what = f"{warning.budget}: {shown(warning.used)} of {shown(warning.limit)} used"
            self._host.note("budget_warning", what)
            if self._book.warned is not None:
                self._book.warned(warning)
            self._host.save(Trigger.BUDGET_WARNING, what)
            if self._book.on_warning == "ask" and warning.used < warning.limit:
                self._ask(stop)

    def _used_up(self, wanted: Mapping[str, int] | None = None) -> _Stop | None:
        """Return a budget that is used up, or among those that are wanted one without room for them."""
        with self._host.lock:
            for path, part in self._ledger.above(self.path):
                for name, line in part.lines.items():
                    if wanted is None or name in wanted:
                        more = (wanted or {}).get(name, 0)
                        if line.is_used_up(name, more):
                            return _Stop(path, name, wanted=more)
        return None

    def _left_open(self) -> _Stop | None:
        """Return a budget that an earlier process asked about and got no answer, if there is still reason to ask."""
        asks_early = self._book.on_warning == "ask"
        with self._host.lock:
            for path, part in self._ledger.above(self.path):
                for name, line in part.lines.items():
                    wanted = int(name in COUNTS)
                    is_used_up = line.is_used_up(name, wanted)
                    if not (is_used_up or (asks_early and line.has_reached(part.share, wanted))):
                        continue
                    stop = _Stop(path, name, is_warning=not is_used_up, wanted=wanted)
                    asked = stop.wait_id(line.asked)
                    if asked not in self._book.put and self._host.is_waiting_for(asked):
                        return stop
        return None

    def _ask(self, stop: _Stop) -> None:
        """Wait until somebody has answered; one thread asks, and the others then find the limit raised."""
        with self._book.asking:
            with self._host.lock:
                line = self._ledger.parts[stop.path].line(stop.name)
                if not (stop.is_warning or line.is_used_up(stop.name, stop.wanted)):
                    return
                used, limit, asked = line.used, line.limit, line.asked
                self._book.put.add(stop.wait_id(asked))
            assert limit is not None
            exhausted = BudgetExhausted(self._host.id, stop.label, stored(used), stored(limit))
            if isinstance(self._host, Alone):
                raise exhausted
            state = "is nearly used up" if stop.is_warning else "is used up"
            of_it = f", {shown(line.lost)} of it reserved by calls of unknown cost" if line.lost else ""
            wait = Wait(
                id=stop.wait_id(asked),
                kind="budget",
                question=f"The budget {stop.label} {state} ({shown(used)} of {shown(limit)}{of_it}): raise it?",
                options=("raise", "limit", "continue", "stop") if stop.is_warning else ("raise", "limit", "stop"),
                details={
                    "budget": stop.name,
                    "part": stop.path,
                    "used": stored(used),
                    "limit": stored(limit),
                    **({"lost": stored(line.lost)} if line.lost else {}),
                },
            )
            reply = self._host.wait_for(wait)
            self._follow(stop, asked, reply, exhausted)

    def _follow(self, stop: _Stop, asked: int, reply: Reply, exhausted: BudgetExhausted) -> None:
        with self._host.lock:  # that it was answered, and what came of it, are in the same checkpoint
            line = self._ledger.parts[stop.path].line(stop.name)
            line.asked = max(line.asked, asked + 1)  # the next question is another one
            self._ledger.changes += 1
            self._take_reply(stop, reply)
        if reply.choice == "stop":
            self._host.note("budget_exhausted", stop.label, by=reply.by, note=reply.note)
            self._host.save(Trigger.BUDGET_WARNING, f"stopped at the budget {stop.label}")
            raise exhausted

    def _take_reply(self, stop: _Stop, reply: Reply) -> None:
        if reply.choice not in NEED_AMOUNT:
            return
        try:
            more = reply.value if isinstance(reply.value, dict) else {stop.name: reply.value}
            self._raise(stop.path, more, by=reply.by, is_total=reply.choice == "limit")
        except UsageError as error:
            self._host.note("budget_reply_refused", f"{stop.label}: {error}", by=reply.by)

    def _raise(self, path: str, amounts: Mapping[str, Given], *, by: str, is_total: bool) -> None:
        exact = {named(name): amount_of(name, given) for name, given in amounts.items()}
        with self._host.lock:
            part = self._ledger.parts.get(path, LedgerPart(1.0))
            for name in exact:
                line = part.lines.get(name)
                if line is None or line.limit is None:
                    raise UsageError(f"the budget {label_of(path, name)!r} has no limit that could be raised")
            for name, amount in exact.items():
                line = part.lines[name]
                assert line.limit is not None
                line.raise_to(amount if is_total else add(line.limit, amount), part.share)
            self._ledger.changes += 1
        for name, amount in exact.items():
            how = "set to" if is_total else "raised by"
            self._host.note("budget_raised", f"{label_of(path, name)} {how} {shown(amount)}", by=by)


def begin_call(budget: Budget, who: str, most: Mapping[str, Amount] | None = None) -> Hold:
    """Reserve a call of an agent and what it may cost, durably; `end_call` gives that back.

    `most` is the most that it may cost, else that is what its dearest call cost so far, else all that is left. A call
    whose end nobody saw has spent it.
    """
    budget.check()
    return budget._reserve({"subcalls": 1}, who, most)  # noqa: SLF001 - not for users


def end_call(budget: Budget, who: str, held: Hold, spent: Mapping[str, Amount], *, is_known: bool) -> None:
    """Give back what was reserved for a call that is over; stored in one commit with its end.

    Where it was cut off before it could say what it cost (`is_known` is off), that stays charged.
    """
    book = budget._book  # noqa: SLF001 - not for users
    with book.host.lock:
        if is_known:
            book.ledger.settle(who, held, spent)
        else:
            _lose(book, held, spent, f"by a call of {who} that was cut off")


def charge_lost(budget: Budget) -> None:
    """Count what calls had reserved whose process is gone; to be called before this one reserves anything."""
    book = budget._book  # noqa: SLF001 - not for users
    with book.host.lock:
        _lose(book, book.ledger.all_held(), {}, "by calls whose process died")


def _lose(book: _Book, held: Hold, spent: Mapping[str, Amount], why: str) -> None:
    for label, amount in book.ledger.lose(held, spent).items():
        book.host.note("budget_lost", f"{label}: {shown(amount)} {why}")


def _share(warn_at: float) -> float:
    if not 0 < warn_at <= 1:
        raise UsageError(f"warn_at={warn_at!r}: give a share of the limit, more than 0 and at most 1")
    return warn_at
