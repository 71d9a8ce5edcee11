"""Envelopes as bytes: what a checkpoint's checksum is made of, and how they are read with distrust."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from holdfast.errors import CheckpointCorrupt, FormatTooNew, LimitExceeded, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Envelope
from holdfast.store.codec import shown
from holdfast.store.tables import CHECKPOINT

if TYPE_CHECKING:
    from holdfast.store.codec import RowCodec
    from holdfast.store.tables import CheckpointRow, Row

_LARGEST = 1024 * 1024 - 4096  # a row holds it, its key and marks
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


def seal(envelope: Envelope) -> tuple[bytes, bytes]:
    """Return an envelope's bytes and the checksum that binds a child to it."""
    try:
        data = _encode(envelope)
    except (UnicodeEncodeError, OverflowError) as error:
        raise UsageError(f"a reason, label, state or count of this checkpoint cannot be stored ({error})") from None
    if len(data) > _LARGEST:
        raise LimitExceeded("shorten its reason, state and names", "a checkpoint's record", len(data), _LARGEST)
    return data, blake3(data).digest()


def open_checkpoint(row: CheckpointRow) -> CheckpointRecord:
    """Return a row's checkpoint; CheckpointCorrupt if its envelope cannot be read or is another's."""
    try:
        envelope = _decode(row.envelope)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        _refuse_newer(row)
        raise CheckpointCorrupt(f"its record cannot be decoded ({error})", row.id) from error
    if envelope.format_version > FORMAT_VERSION:
        raise FormatTooNew(f"checkpoint {row.id}", envelope.format_version, FORMAT_VERSION)
    if (envelope.id, envelope.run, envelope.seq) != (row.id, row.run, row.seq):
        raise CheckpointCorrupt(f"its record belongs to {envelope.id!r}", row.id)
    return CheckpointRecord(
        envelope, blake3(row.envelope).digest(), row.marks, row.number, row.ranges, row.key, row.attributes, row.line
    )


def read_checkpoint(codec: RowCodec, row: Row) -> CheckpointRecord:
    """Return the checkpoint that a stored row holds; CheckpointCorrupt under the id that the row shows."""
    try:
        return open_checkpoint(codec.open(CHECKPOINT, row))
    except CheckpointCorrupt as error:
        raise CheckpointCorrupt(error.detail, shown(row[3])) from error


def _refuse_newer(row: CheckpointRow) -> None:
    """Raise FormatTooNew if undecodable bytes begin with a version that this program does not know."""
    try:
        fields = msgspec.msgpack.decode(row.envelope)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return
    if isinstance(fields, list) and fields and isinstance(fields[0], int) and fields[0] > FORMAT_VERSION:
        raise FormatTooNew(f"checkpoint {row.id}", fields[0], FORMAT_VERSION)
