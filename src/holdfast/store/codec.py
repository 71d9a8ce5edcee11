"""Rows as bytes: every value sealed to its table and key, encrypted or signed where the store has a key.

Without a key a seal finds damage; with one it finds forgery too, for every row alike. In an encrypted store the value
is encrypted, chunks and their names as well, and hidden list columns hold keyed digests: equality works, no more.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import zstandard
from blake3 import blake3

from holdfast.encode.chunks import Chunk
from holdfast.errors import (
    CheckpointCorrupt,
    IntegrityError,
    LimitExceeded,
    RunCorrupt,
    StoreCorrupt,
    UsageError,
)
from holdfast.store.tables import TABLES, CheckpointRow, LeaseRow, LineRow, RunRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.encode.encrypt import Vault
    from holdfast.store.tables import Cell, Key, Row, Table

Mode = Literal["plain", "sign", "encrypt"]
SEAL_BYTES = 16
LARGEST_VALUE = 1024 * 1024
_COMPRESS_FROM = 256
_NAME_BYTES = 32
LARGEST_NUMBER = (1 << 48) - 1
"""No number that a store gives comes this far: a higher one is damage."""
_LARGEST_PACKED = (1 << 32) - 1
_LONGEST_SHOWN = 80
_RAW, _ZSTD = b"\0", b"\1"
_UNREADABLE = 255  # a codec that does not exist: reading such a chunk says that it is damaged
_TAKEN_OUT = b"taken out\0"
_encode = msgspec.msgpack.Encoder().encode
_decoders = {table.name: msgspec.msgpack.Decoder(table.struct) for table in TABLES}
_KEYS = {table.name: tuple(column.name for column in table.key) for table in TABLES}
_KEY_GETTERS = {name: attrgetter(*names) for name, names in _KEYS.items()}
_COLUMNS = {table.name: tuple(column.name for column in table.columns) for table in TABLES}
_INT_COLUMNS = {(table.name, column.name) for table in TABLES for column in table.columns if column.type == "int"}
_HASHED = {table.name for table in TABLES for name in table.hidden if (table.name, name) in _INT_COLUMNS}
"""Tables with a column that holds a digest in every store."""


class _Zstd(threading.local):
    """A compressor for each thread: one that two threads use at once fails, or mixes their bytes."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1, write_content_size=True).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Zstd()


class RowCodec:
    """Turns structs into rows and back; one for each way that a store is protected."""

    def __init__(
        self, vault: Vault | None = None, mode: Mode = "plain", *, renew: Callable[[], bool] | None = None
    ) -> None:
        if (vault is None) != (mode == "plain"):
            raise UsageError(f"a store cannot have the mode {mode!r} {'without' if vault is None else 'with'} a key")
        self.mode: Mode = mode
        self.vault = vault
        self._renew = renew
        """Asked when a row does not open: whether the store's keys changed, and `vault` is another one now."""
        self._is_encrypted = mode == "encrypt"

    def close(self, table: Table, value: msgspec.Struct) -> tuple[Any, ...]:
        """Return a struct as a row of its table; UsageError or LimitExceeded if it cannot be stored."""
        try:
            data = _encode(value)
        except (UnicodeEncodeError, OverflowError) as error:
            raise UsageError(f"a text or number of this {table.name} cannot be stored ({error})") from None
        if len(data) > LARGEST_VALUE:
            raise LimitExceeded("shorten its names and texts", f"a {table.name} row", len(data), LARGEST_VALUE)
        packed = _ZSTD + _zstd.compress(data) if len(data) >= _COMPRESS_FROM else _RAW + data
        key = _key_of(table, value)
        top = _LARGEST_PACKED if table.packed else LARGEST_NUMBER
        for cell in key:
            if type(cell) is int and not 0 <= cell <= top:
                raise UsageError(f"{table.name} {key}: a number is out of reach; it was set by damage, or by hand")
        place = _place(table, key)
        if self.vault is not None and self._is_encrypted:
            packed = self.vault.encrypt(packed, place)
        return (*key, *self._columns(table, value), packed, self._seal(place, packed))

    def open(self, table: Table, row: Row) -> Any:
        """Return a row's struct; IntegrityError unless it is what was written under this key."""
        try:
            return self._opened(table, row)
        except IntegrityError:
            if self._renew is None or not self._renew():
                raise
        return self._opened(table, row)

    def open_if_sound(self, table: Table, row: Row | None) -> Any:
        """Return a row's struct, None if there is no row or it is damaged."""
        try:
            return None if row is None else self.open(table, row)
        except IntegrityError:
            return None

    def open_sound(self, table: Table, rows: Iterable[Row]) -> Iterator[Any]:
        """Yield the structs of those rows that are as they were written."""
        return (value for value in (self.open_if_sound(table, row) for row in rows) if value is not None)

    def _opened(self, table: Table, row: Row) -> Any:
        width = len(table.key)
        key, columns, packed, seal = row[:width], row[width:-2], row[-2], row[-1]
        place = _place(table, key)
        if not isinstance(packed, bytes) or seal != self._seal(place, packed):
            raise damaged(table, key, "does not match its checksum")
        try:
            if self.vault is not None and self._is_encrypted:
                packed = self.vault.decrypt(packed, place)
            value = _decoders[table.name].decode(_unpacked(packed))
            expected = self._columns(table, value)
        except msgspec.ValidationError as error:  # its seal is right: it is what some program wrote
            detail = (
                f"has not the form that this version of Holdfast reads ({error}): open it with the one that wrote it"
            )
            raise damaged(table, key, detail) from error
        except (ValueError, OverflowError, msgspec.MsgspecError, zstandard.ZstdError, RecursionError) as error:
            raise damaged(table, key, f"cannot be decoded ({error})") from error
        if _key_of(table, value) != key:
            raise damaged(table, key, "belongs to another place")
        if expected != columns:
            raise damaged(table, key, "is listed under other values than it has")
        return value

    def has_sealed(self, table: Table, row: Row) -> bool:
        """Tell whether a row has the seal that this codec gives it."""
        packed = row[-2]
        return isinstance(packed, bytes) and row[-1] == self._seal(_place(table, row[: len(table.key)]), packed)

    def cell(self, table: Table, column: str, value: Cell) -> Cell:
        """Return what a list column holds for a value."""
        if value is None or column not in table.hidden:
            return value
        is_int = (table.name, column) in _INT_COLUMNS
        if not is_int and not self._is_encrypted:
            return value
        text = f"{table.name}\0{column}\0{value!s}".encode(errors="surrogatepass")
        digest = self.vault.digest(text) if self.vault is not None else blake3(text).digest()
        return int.from_bytes(digest[:8], "big", signed=True) if is_int else digest[:16].hex()

    def close_chunk(self, chunk: Chunk) -> Chunk:
        """Return a chunk as it is stored."""
        if self.vault is None or not self._is_encrypted:
            return chunk
        name = self.vault.hide(chunk.id)
        return Chunk(name, chunk.codec, chunk.size, self.vault.encrypt(chunk.data, _about(name, chunk)))

    def open_chunk(self, name: bytes, chunk: Chunk) -> Chunk:
        """Return a stored chunk under its true name; one that does not open is damaged for its reader."""
        if self.vault is None or not self._is_encrypted:
            return chunk
        try:
            data = self.vault.decrypt(chunk.data, _about(chunk.id, chunk), named=chunk.id)
        except (ValueError, OverflowError):
            return Chunk(name, _UNREADABLE, chunk.size, b"")
        return Chunk(name, chunk.codec, chunk.size, data)

    def stored_names(self, chunk: bytes) -> list[bytes]:
        """Return the names under which a chunk may be stored, the newest epoch's first."""
        return self.vault.hidden_names(chunk) if self.vault is not None and self._is_encrypted else [chunk]

    def true_name(self, stored: bytes) -> bytes | None:
        """Return the name of a stored chunk; None if it stands under a name that this store does not give."""
        if self.vault is None or not self._is_encrypted:
            return stored if len(stored) == _NAME_BYTES else None
        try:
            return self.vault.show(stored)
        except ValueError:
            return None

    def lock_value(self, data: bytes) -> bytes:
        """Return what redaction took out, locked for this store; UsageError unless it is encrypted."""
        if self.vault is None or not self._is_encrypted:
            raise UsageError("only an encrypted store keeps what redaction takes out")
        return self.vault.lock(data, _TAKEN_OUT)

    def unlock_value(self, locked: bytes) -> bytes | None:
        """Return what redaction took out; None if it was locked for another store, or altered."""
        if self.vault is None or not self._is_encrypted:
            return None
        try:
            return self.vault.unlock(locked, _TAKEN_OUT)
        except (ValueError, OverflowError):
            return None

    def _columns(self, table: Table, value: msgspec.Struct) -> tuple[Cell, ...]:
        derive = table.derive
        if not self._is_encrypted and table.name not in _HASHED:
            return tuple([derive(value, name) for name in _COLUMNS[table.name]])
        return tuple([self.cell(table, name, derive(value, name)) for name in _COLUMNS[table.name]])

    def _seal(self, place: bytes, packed: bytes) -> bytes:
        if self.vault is not None:
            return self.vault.sign(place + packed)[:SEAL_BYTES]
        return blake3(place + packed).digest(SEAL_BYTES)


def is_readable(chunk: Chunk) -> bool:
    """Tell whether a chunk could be opened."""
    return chunk.codec != _UNREADABLE


def damaged(table: Table, key: Key, detail: str) -> IntegrityError:
    """Return the error for a row that is not what was written."""
    names = [shown(name)[:_LONGEST_SHOWN] for name in key]
    if table.struct is CheckpointRow:
        return CheckpointCorrupt(f"its record {detail}", f"{names[0]}@{names[2]}")
    if table.struct in (RunRow, LineRow, LeaseRow):
        what = {RunRow: "record", LineRow: "line", LeaseRow: "lease"}[table.struct]
        return RunCorrupt(f"its {what} {detail}", names[0])
    return StoreCorrupt(f"{table.name} {'/'.join(names)} {detail}", "here")


def shown(cell: object) -> str:
    """Return a cell as a text that can be shown: damage may have left what is none."""
    raw = cell if isinstance(cell, bytes) else str(cell).encode(errors="surrogateescape")
    return raw.decode(errors="replace")


def stored_time(seconds: float) -> datetime:
    """Return a stored time; IntegrityError if it cannot be one."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise IntegrityError(f"a stored time ({seconds!r}) is not a valid time") from None


def _unpacked(packed: bytes) -> bytes:
    kind, data = packed[:1], packed[1:]
    if kind == _RAW:
        return data
    if kind != _ZSTD:
        raise ValueError("unknown form")
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= LARGEST_VALUE:
        raise ValueError("too large")
    return _zstd.decompress(data, max_output_size=size, allow_extra_data=False)


def _key_of(table: Table, value: msgspec.Struct) -> Key:
    names = _KEYS[table.name]
    return _KEY_GETTERS[table.name](value) if len(names) > 1 else (getattr(value, names[0]),)


def _place(table: Table, key: Key) -> bytes:
    """Return what a value is bound to: its table and key."""
    return "\0".join((table.name, *map(str, key), "")).encode(errors="surrogatepass")


def _about(name: bytes, chunk: Chunk) -> bytes:
    return b"chunk\0" + name + bytes((chunk.codec,)) + chunk.size.to_bytes(8, "big")
