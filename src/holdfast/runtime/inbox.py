"""Inbox entries: what other processes have to say to a run, and how they are packed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.errors import IntegrityError

if TYPE_CHECKING:
    from holdfast.encode.values import Packer
    from holdfast.store.store import Store
    from holdfast.store.tables import InboxRow

ItemKind = Literal["answer", "signal", "pause", "resume", "cancel", "budget"]


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


def pack_item(packer: Packer, **given: Any) -> bytes:
    """Return the body of an entry."""
    return packer.pack(given, "inbox")


def read_item(row: InboxRow, packer: Packer) -> Item:
    """Return an inbox row as what was said; IntegrityError if it cannot be read."""
    given = packer.unpack(row.body, "inbox")
    try:
        told = {"number": row.number, "kind": row.kind, "at": datetime.fromtimestamp(row.at, UTC), **given}
        return msgspec.convert(told, Item)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise IntegrityError(f"inbox entry {row.number} of run {row.run!r} cannot be read ({error})") from error


def read_inbox(store: Store, packer: Packer, run: str, after: int) -> list[Item]:
    """Return what was said to a run behind a number, and behind what the run has taken in for good."""
    return [read_item(row, packer) for row in store.unread(run, after=after)]
