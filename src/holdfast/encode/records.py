"""A store's records as sealed bytes: every field is under the checksum, and is checked before it is believed."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from blake3 import blake3

from holdfast.errors import CheckpointCorrupt, FormatTooNew, LimitExceeded, RunCorrupt, UsageError
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Envelope, Marks, RunRecord

_Record = TypeVar("_Record", Envelope, Marks, RunRecord)

_LARGEST_RECORD = 1024 * 1024
_encode = msgspec.msgpack.Encoder().encode
_decoders = {cls: msgspec.msgpack.Decoder(cls) for cls in (Envelope, Marks, RunRecord)}


def seal(record: Envelope | RunRecord) -> tuple[bytes, bytes]:
    """Return a record's bytes and their checksum."""
    data = _encoded(record)
    if len(data) > _LARGEST_RECORD:
        raise LimitExceeded("shorten its reason, state and names", "a checkpoint's record", len(data), _LARGEST_RECORD)
    return data, blake3(data).digest()


def seal_marks(checkpoint: str, marks: Marks) -> tuple[bytes, bytes]:
    """Return marks' bytes and a checksum that binds them to their checkpoint."""
    data = _encoded(marks)
    return data, blake3(checkpoint.encode() + b"\0" + data).digest()


def seal_tombstone(run: str, seq: int, checkpoint: str, checksum: bytes) -> bytes:
    """Return a checksum over all that a deleted checkpoint leaves behind."""
    return blake3(f"{run}\0{seq}\0{checkpoint}\0".encode() + checksum).digest()


def seal_lease(run: str, owner: str, token: int, expires_at: float) -> bytes:
    """Return a checksum over a lease."""
    return blake3(f"{run}\0{owner}\0{token}\0{expires_at!r}".encode(errors="surrogatepass")).digest()


def open_checkpoint(
    checkpoint: str, envelope: bytes, checksum: bytes, marks: bytes, marks_checksum: bytes
) -> CheckpointRecord:
    """Return the checkpoint stored under this id, or raise CheckpointCorrupt."""
    if blake3(envelope).digest() != checksum:
        raise CheckpointCorrupt("its record does not match its checksum", checkpoint)
    if blake3(checkpoint.encode() + b"\0" + marks).digest() != marks_checksum:
        raise CheckpointCorrupt("its marks do not match their checksum", checkpoint)
    try:
        place = f"checkpoint {checkpoint}"
        record = CheckpointRecord(_decode(Envelope, envelope, place), checksum, _decode(Marks, marks, place))
    except msgspec.MsgspecError as error:
        raise CheckpointCorrupt(f"its record cannot be decoded ({error})", checkpoint) from error
    if record.envelope.id != checkpoint:
        raise CheckpointCorrupt(f"its record belongs to {record.envelope.id!r}", checkpoint)
    return record


def open_run(run: str, data: bytes, checksum: bytes) -> RunRecord:
    """Return the run stored under this id, or raise RunCorrupt."""
    if blake3(data).digest() != checksum:
        raise RunCorrupt("its record does not match its checksum", run)
    try:
        record = _decode(RunRecord, data, f"run {run!r}")
    except msgspec.MsgspecError as error:
        raise RunCorrupt(f"its record cannot be decoded ({error})", run) from error
    if record.id != run:
        raise RunCorrupt(f"its record belongs to {record.id!r}", run)
    return record


def _encoded(record: Envelope | RunRecord | Marks) -> bytes:
    try:
        return _encode(record)
    except (UnicodeEncodeError, OverflowError) as error:
        raise UsageError(f"a reason, label, state or count of this checkpoint cannot be stored ({error})") from None


def _decode(cls: type[_Record], data: bytes, place: str) -> _Record:
    try:
        record: _Record = _decoders[cls].decode(data)  # type: ignore[assignment]
    except msgspec.MsgspecError:
        if cls is not Marks:
            _refuse_newer(place, data)
        raise
    if not isinstance(record, Marks) and record.format_version > FORMAT_VERSION:
        raise FormatTooNew(place, record.format_version, FORMAT_VERSION)
    return record


def _refuse_newer(place: str, data: bytes) -> None:
    """Raise FormatTooNew if undecodable bytes begin with a version that this program does not know."""
    try:
        fields = msgspec.msgpack.decode(data)
    except msgspec.MsgspecError:
        return
    if isinstance(fields, list) and fields and isinstance(fields[0], int) and fields[0] > FORMAT_VERSION:
        raise FormatTooNew(place, fields[0], FORMAT_VERSION)
