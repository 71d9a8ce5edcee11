"""What other processes have to say to a run: answers, signals, pause, cancel and larger budgets, through the store.

The process that moves a run holds its lease, so nobody else may commit to it. Each run therefore has an inbox, a run of
its own that lists hide; the run remembers in its own checkpoints how far it has read.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from blake3 import blake3

from holdfast.errors import Conflict, HeadMoved
from holdfast.model.ids import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ItemKind = Literal["answer", "signal", "pause", "resume", "cancel", "budget"]

INBOXES = f"{RESERVED}inbox."
_LONGEST_RUN = 150
_TRIES = 20


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that was said; numbers only grow."""

    number: int
    kind: ItemKind
    at: datetime
    target: str = ""
    choice: str = ""
    by: str = ""
    note: str = ""
    value: Any = None


class Line(Protocol):
    """The inbox's own run, open for reading and writing."""

    def read(self) -> list[Any]:
        """Return its items as they are stored."""

    def write(self, items: list[Any], reason: str) -> None:
        """Store items instead; HeadMoved if somebody else did."""


def inbox_of(run: str) -> str:
    """Return the id of a run's inbox."""
    return INBOXES + (run if len(run) <= _LONGEST_RUN else blake3(run.encode()).hexdigest())


def post(open_line: Callable[[], Line], make: Callable[[int], Item], *, consumed: int) -> Item:
    """Put one item in; those that the run has read are let go."""
    for _ in range(_TRIES):
        line = open_line()
        items = read_items(line.read(), 0)
        item = make(max(consumed, *(one.number for one in items), 0) + 1 if items else consumed + 1)
        kept = [*(one for one in items if one.number > consumed), item]
        try:
            line.write([msgspec.to_builtins(one, builtin_types=(datetime,)) for one in kept], item.kind)
        except HeadMoved:
            continue
        return item
    raise Conflict(item.target)


def drop(open_line: Callable[[], Line], *, upto: int) -> None:
    """Let go of the items up to a number."""
    for _ in range(_TRIES):
        line = open_line()
        items = read_items(line.read(), 0)
        kept = [one for one in items if one.number > upto]
        if len(kept) == len(items):
            return
        try:
            line.write([msgspec.to_builtins(one, builtin_types=(datetime,)) for one in kept], "read")
        except HeadMoved:
            continue
        return


def read_items(stored: Sequence[Any], after: int) -> list[Item]:
    """Return the items behind a number, in order."""
    items = [msgspec.convert(one, Item) for one in stored]
    return [item for item in items if item.number > after]
