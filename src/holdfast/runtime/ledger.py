"""What every budget of a run has used and may use: one book for the run, its phases and their agents.

Nothing here saves, asks or waits; whoever calls holds the run's lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.model import sections
from holdfast.model.nearest import hint
from holdfast.runtime.amounts import add, from_stored, stored, subtract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from holdfast.runtime.amounts import Amount

TIME = "time_s"
COUNTS = frozenset({"retries", "subcalls", "tool_calls"})
KNOWN_AFTER = ("tokens", "money", "tool_calls")
"""What a call cost is known when it is over: before, the most that it may cost is reserved."""
Hold = tuple[tuple[str, str, "Amount"], ...]
"""What is reserved for one call: part, name and amount."""
ROOT = ""
NEED_AMOUNT = ("raise", "limit")
"""The answers to a budget's question that come with an amount."""
_FOLD_EVERY_S = 1.0  # so that many small steps do not store the budgets with each of them


def named(name: str) -> str:
    """Return the name that a budget has here: flows say `time`."""
    return TIME if name == "time" else name


def label_of(path: str, name: str) -> str:
    """Return the name of a part's budget among all of the run."""
    return f"{path}/{name}" if path else name


def find_limited(section: sections.Budget, name: str, *, near: str = ROOT) -> str:
    """Return the label of the limited budget that somebody means by a name, in the part near to them or in the run.

    UsageError names those that there are.
    """
    parts = {ROOT: section.spending} | {path: part.spending for path, part in section.nested.items()}
    known = {label_of(path, one) for path, lines in parts.items() for one in lines if lines[one].limit is not None}
    path, _, last = name.rpartition("/")
    label = label_of(path, named(last))
    found = next((one for one in (label_of(near, label), label) if one in known), None)
    if found is None:
        raise UsageError(f"no budget {name!r} has a limit that could be raised: {hint(name, known)}")
    return found


@dataclass(slots=True)
class LedgerLine:
    """One budget: how much is used, and how much there may be."""

    used: Amount = 0
    limit: Amount | None = None
    raised: Amount = 0
    warned: bool = False
    asked: int = 0
    reserved: Amount = 0
    lost: Amount = 0

    def is_used_up(self, name: str, wanted: int = 0) -> bool:
        """Tell whether the run must stop: an amount at its limit, a count beyond it, or if so many more are wanted.

        Calls are counted as they begin, so a limit of three allows three; what a call cost is known when it is over.
        """
        if self.limit is None:
            return False
        return self.used + wanted > self.limit if name in COUNTS else self.used >= self.limit

    def has_reached(self, share: float, wanted: int = 0) -> bool:
        """Tell whether this share of the limit is used, or will be with so many more."""
        used = self.used + wanted
        return self.limit is not None and used > 0 and float(used) >= float(self.limit) * share

    def raise_to(self, limit: Amount, share: float) -> None:
        """Take a new limit that a person gave; the warning comes again if it is far enough away."""
        assert self.limit is not None
        self.raised = add(self.raised, subtract(limit, self.limit))
        self.limit = limit
        self.warned = self.warned and self.has_reached(share)

    def stored(self) -> sections.Spending:
        """Return it as sections have it."""
        return sections.Spending(
            used=stored(self.used),
            limit=None if self.limit is None else stored(self.limit),
            raised=stored(self.raised),
            warned=self.warned,
            asked=self.asked,
            reserved=stored(self.reserved),
            lost=stored(self.lost),
        )


@dataclass(slots=True)
class LedgerPart:
    """The budgets of the run, a phase or an agent, and the clock of its running time."""

    share: float
    lines: dict[str, LedgerLine] = field(default_factory=dict)
    seconds: float = 0.0  # that were counted before `since`
    since: float | None = None
    openings: int = 0

    def line(self, name: str) -> LedgerLine:
        """Return a budget, a new one without a limit if there is none."""
        return self.lines.setdefault(name, LedgerLine())

    def seconds_until(self, now: float) -> float:
        """Return the running time up to now."""
        return self.seconds + (0.0 if self.since is None else max(0.0, now - self.since))

    def look_at_clock(self, now: float) -> None:
        """Bring the used time up to now."""
        self.line(TIME).used = from_stored(round(self.seconds_until(now), 3))

    def stop_clock(self, now: float) -> None:
        """Count no time from now on."""
        if self.since is not None:
            self.seconds += max(0.0, now - self.since)
            self.since = None


class Ledger:
    """Every part's budgets, by path."""

    def __init__(self, monotonic: Callable[[], float], share: float) -> None:
        self._monotonic = monotonic
        self._halts = 0
        self.parts: dict[str, LedgerPart] = {ROOT: LedgerPart(share)}
        self.counted: dict[str, None] = {}
        self.largest: dict[str, dict[str, Amount]] = {}
        self.changes = 0
        self._time_seen = 0.0
        self.open(ROOT)

    def open(self, path: str, share: float | None = None) -> LedgerPart:
        """Return a part, its clock running."""
        part = self.parts.setdefault(path, LedgerPart(self.parts[ROOT].share))
        if share is not None:
            part.share = share
        part.openings += 1
        if part.since is None and not self._halts:
            part.since = self._monotonic()
        part.line(TIME)
        return part

    def close(self, path: str) -> None:
        """Stop a part's clock when the last who opened it has closed it."""
        part = self.parts.get(path)
        if part is not None and part.openings:
            part.openings -= 1
            if not part.openings:
                part.stop_clock(self._monotonic())

    def halt(self) -> None:
        """Stop all clocks, until `continue` is called as often."""
        self._halts += 1
        for part in self.parts.values():
            part.stop_clock(self._monotonic())

    def continue_clocks(self) -> None:
        """Let the clocks of what is open run again."""
        self._halts -= 1
        if not self._halts:
            for part in self.parts.values():
                part.since = self._monotonic() if part.openings else None

    def is_limited(self, path: str) -> bool:
        """Tell whether a part, or one above it, has a limit."""
        while not any(line.limit is not None for line in self.parts[path].lines.values()):
            if path == ROOT:
                return False
            path = path.rpartition("/")[0]
        return True

    def above(self, path: str) -> Iterator[tuple[str, LedgerPart]]:
        """Yield a part and all above it, the nearest first, their clocks looked at."""
        now = self._monotonic()
        while True:
            part = self.parts[path]
            part.look_at_clock(now)
            yield path, part
            if path == ROOT:
                return
            path = path.rpartition("/")[0]

    def hold(self, path: str, who: str, most: Mapping[str, Amount] | None) -> Hold:
        """Reserve what a call may cost, in a part and all above it, as far as they have limits.

        Of each budget that is what is declared, else the most that a call of this agent cost so far, else the most that
        any agent's did, else all that is left.
        """
        known: dict[str, Amount] = {}
        for costs in self.largest.values():
            known |= {name: max(amount, known.get(name, 0)) for name, amount in costs.items()}
        known |= {**self.largest.get(who, {}), **(most or {})}
        held = []
        for at, part in self.above(path):
            for name in KNOWN_AFTER:
                line = part.lines.get(name)
                if line is None or line.limit is None:
                    continue
                left = subtract(line.limit, add(line.used, line.reserved))
                amount = known[name] if name in known else max(0, left)
                line.reserved = add(line.reserved, amount)
                held.append((at, name, amount))
        return tuple(held)

    def release(self, held: Hold) -> None:
        """Give back what was reserved for a call."""
        for at, name, amount in held:
            if at in self.parts:
                line = self.parts[at].line(name)
                line.reserved = max(0, subtract(line.reserved, amount))
        self.changes += bool(held)

    def all_held(self) -> Hold:
        """Return all that is reserved."""
        return tuple(
            (path, name, line.reserved)
            for path, part in self.parts.items()
            for name, line in part.lines.items()
            if line.reserved
        )

    def lose(self, held: Hold, spent: Mapping[str, Amount]) -> dict[str, Amount]:
        """Count what was reserved as spent, but for what is counted already, and return it: nobody knows the cost."""
        self.release(held)
        lost: dict[str, Amount] = {}
        for at, name, amount in held:
            left = subtract(amount, spent.get(name, 0))
            if at in self.parts and left > 0:
                line = self.parts[at].line(name)
                line.used, line.lost = add(line.used, left), add(line.lost, left)
                lost[label_of(at, name)] = left
        return lost

    def settle(self, who: str, held: Hold, spent: Mapping[str, Amount]) -> None:
        """Give back what was reserved for a call that is over, and note what it cost."""
        self.release(held)
        cost = {name: spent[name] for name in KNOWN_AFTER if spent.get(name)}
        if held and cost:  # one that failed at once, say, tells nothing of what the next may cost
            before = self.largest.get(who, {})
            self.largest[who] = before | {name: max(before.get(name, 0), amount) for name, amount in cost.items()}

    def look_at_time(self) -> None:
        """Let the running time that went by count as a change, once a second."""
        now = self.parts[ROOT].seconds_until(self._monotonic())
        if now - self._time_seen >= _FOLD_EVERY_S:
            self._time_seen = now
            self.changes += 1

    def snapshot(self) -> sections.Budget:
        """Return everything as its section."""
        now = self._monotonic()
        values: dict[str, dict[str, sections.Spending]] = {}
        for path, part in self.parts.items():
            part.look_at_clock(now)
            values[path] = {name: line.stored() for name, line in part.lines.items()}
        return sections.Budget(
            spending=values.pop(ROOT),
            nested={path: sections.BudgetPart(spending=spending) for path, spending in values.items()},
            counted=list(self.counted),
            largest={who: {name: stored(one) for name, one in known.items()} for who, known in self.largest.items()},
        )

    def restore(self, value: sections.Budget) -> None:
        """Take everything back; clocks that ran run on from the time that is stored."""
        spending = {ROOT: value.spending} | {path: part.spending for path, part in value.nested.items()}
        parts = {path: self._restored(path, lines) for path, lines in spending.items()}
        for path, part in self.parts.items():
            if part.openings and path not in parts:
                parts[path] = self._restored(path, {})  # somebody holds it
        self.parts = parts
        self.counted = dict.fromkeys(value.counted)
        self.largest = {
            who: {name: from_stored(one) for name, one in known.items()} for who, known in value.largest.items()
        }
        self._time_seen = parts[ROOT].seconds
        self.changes += 1

    def _restored(self, path: str, spending: dict[str, sections.Spending]) -> LedgerPart:
        before = self.parts.get(path)
        part = LedgerPart(before.share if before else self.parts[ROOT].share)
        for name, one in spending.items():
            limit = None if one.limit is None else from_stored(one.limit)
            part.lines[name] = LedgerLine(
                from_stored(one.used), limit, from_stored(one.raised), one.warned, one.asked,
                from_stored(one.reserved), from_stored(one.lost),
            )  # fmt: skip
        if TIME in part.lines:
            part.seconds = float(part.lines[TIME].used)
        if before is not None and before.openings:
            part.openings = before.openings
            part.since = None if self._halts else self._monotonic()
            part.line(TIME)
        return part
