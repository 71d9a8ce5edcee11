"""Entries: the body of a journal record, from what changed in a run to bytes and back."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import plain_value
from holdfast.encode.chunks import verified
from holdfast.encode.tree import LEAF
from holdfast.encode.values import below
from holdfast.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.capture.delta import Delta
    from holdfast.encode.values import Packer
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow, Record

SAVED = "saved"
"""The kind of a record whose body is an entry."""
NOTED = "note"
"""The path of an entry that notes something: it is part of the audit trail, and compaction leaves it."""
APPENDED = "appended"
"""The kind of a record that is one item of a public log."""


class PartChange(msgspec.Struct, frozen=True, array_like=True):
    """One change to a part: its section, the path below it, and a packed value where there is one."""

    section: str
    path: bytes
    kind: str
    value: bytes | None = None


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What one record says: its cause, notes, changes of parts."""

    trigger: str
    reason: str
    phase: str | None
    notes: list[bytes]
    parts: list[PartChange]
    is_whole: bool = True
    """Whether it tells all that its commit changed about the parts; if not, only its checkpoint has it."""


_LARGEST_BODY = 128 << 20
"""What a body may unfold to where it is stored in less; a section's usual limit twice."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def make_entry(
    packer: Packer,
    *,
    trigger: str,
    reason: str,
    phase: str | None,
    notes: Sequence[Any],
    parts: Mapping[str, Delta],
    is_whole: bool = True,
    begin: Any = None,
) -> bytes:
    """Return the bytes of an entry; ValueRefused names what cannot be stored. `begin` hears which section is packed."""
    if begin is not None:
        begin("journal")
    packed_notes = [packer.pack(note, f"journal[{number}]") for number, note in enumerate(notes)]
    changes: list[PartChange] = []
    for section, made in parts.items():
        if begin is not None:
            begin(section)
        for path, kind, *value in made:
            packed = packer.pack_bounded(plain_value(value[0]), reduce(below, path, section)) if value else None
            changes.append(PartChange(section, packer.pack(path, section), kind, packed))
    return _encode(Entry(trigger, reason, phase, packed_notes, changes, is_whole))


def read_entry(record: Record, store: Store) -> Entry:
    """Return the entry of a record; IntegrityError if it cannot be read."""
    try:
        return _decode(body_of(record, store))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(f"journal record #{record.number} cannot be decoded ({error})") from error


def body_of(record: Record, store: Store) -> bytes:
    """Return a record's body, fetched and verified where it is kept in chunks."""
    if not record.chunks:
        return record.body
    stored = store.fetch(record.chunks)
    stored_bytes = sum(len(chunk.data) for chunk in stored.values())
    size = sum(stored[name].size for name in record.chunks if name in stored)
    if size > max(_LARGEST_BODY, stored_bytes):
        detail = f"names {size:,} bytes that are stored in {stored_bytes:,}"
        raise IntegrityError(f"record {record.number} {detail}: it was not written by this program")
    return b"".join(verified(LEAF, name, stored.get(name)) for name in record.chunks)


def records_since(store: Store, line: LineRow, number: int) -> list[Record]:
    """Return the records that a line has after a number, oldest first; IntegrityError at the first damaged one."""
    ranges = [(max(low, number + 1), high) for low, high in line.ranges if high > number]
    return [record for low, high in ranges for record in store.journal.records(line, low=low, high=high)]


def entries_of(records: Iterable[Record], store: Store) -> list[Entry]:
    """Return the entries among records."""
    return [read_entry(record, store) for record in records if record.kind == SAVED]


def notes_of(entries: Iterable[Entry], packer: Packer) -> list[dict[str, Any]]:
    """Return what entries note, oldest first."""
    return [packer.unpack(note, "journal") for entry in entries for note in entry.notes]


def changes_of(entries: Iterable[Entry], section: str, packer: Packer) -> Delta:
    """Return what entries change about one part, oldest first."""
    found: Delta = []
    for entry in entries:
        for change in entry.parts:
            if change.section == section:
                path = packer.unpack(change.path, section)
                value = [] if change.value is None else [packer.unpack(change.value, section)]
                found.append([path, change.kind, *value])
    return found
