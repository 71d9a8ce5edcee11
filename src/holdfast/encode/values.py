"""Values to bytes and back: what is restored equals what went in, or saving fails and names the path.

Plain values are MessagePack; every other type is an extension with a code of its own, so no key in user data is
reserved. Nothing is pickled, and decoding calls nothing but the types below and those that the caller registered.

Two things are restored equal, but not of the same type: a bytearray or memoryview as bytes, and a fixed offset of a
foreign tzinfo class as a datetime.timezone.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import TYPE_CHECKING, Any
from uuid import UUID

import ormsgpack

from holdfast.encode.opaque import Opaque
from holdfast.encode.outcome import Outcome
from holdfast.encode.surplus import surplus
from holdfast.encode.types import TypeRegistry, can_adapt
from holdfast.errors import HoldfastError, IntegrityError, UnknownType, UsageError, ValueRefused
from holdfast.lazy import lazily

with lazily():
    import zoneinfo

if TYPE_CHECKING:
    from collections.abc import Callable

_STRICT = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_MAX_DEPTH = 100  # extensions inside extensions: each level costs three Python frames on the way back
_MAX_NUMBER_BYTES = 1 << 20
_TOO_DEEP = f"nested deeper than {_MAX_DEPTH} levels, or contains itself"
_FEW = 1000
_PREDICTABLE = (int, float, Decimal, tuple, frozenset)  # texts and bytes are hashed with a seed of the process
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Ext(IntEnum):
    """Extension codes; part of the format."""

    TUPLE = 1
    SET = 2
    FROZENSET = 3
    DATETIME = 4
    DATE = 5
    TIME = 6
    TIMEDELTA = 7
    UUID = 8
    DECIMAL = 9
    INTEGER = 10
    PATH = 11
    MAP = 12
    TEXT = 13
    REGISTERED = 14
    OPAQUE = 15
    OUTCOME = 16


class Packer:
    """Packs and unpacks values with the types that the caller registered."""

    def __init__(self, types: TypeRegistry | None = None, *, bound: Callable[[str, bytes], None] | None = None) -> None:
        """Take types, and `bound`, which raises for bytes that take too much memory when they are decoded."""
        self._types = types or TypeRegistry()
        self._bound = bound
        self._calls = _Calls()

    def pack(self, value: Any, where: str) -> bytes:
        """Return the value's bytes; ValueRefused names the path below `where` of what cannot be stored."""
        try:
            return ormsgpack.packb(value, default=self._extend, option=_STRICT)
        except (TypeError, ValueError, RecursionError, ValueRefused):
            interrupt, self._calls.interrupt = self._calls.interrupt, None
            if interrupt is not None:
                raise interrupt from None
            # The native encoder cannot say where it stopped, and takes neither odd keys nor lone surrogates.
            return ormsgpack.packb(self._plain(value, where, 0), option=_STRICT)

    def pack_bounded(self, value: Any, where: str) -> bytes:
        """Return the value's bytes; LimitExceeded, too, if they could not be read again for their size in memory."""
        data = self.pack(value, where)
        if self._bound is not None:
            self._bound(where, data)
        return data

    def unpack(self, data: bytes, where: str, *, is_bounded: bool = False) -> Any:
        """Return the value; UnknownType or IntegrityError if the bytes are not one of ours."""
        if self._bound is not None and not is_bounded:
            self._bound(where, data)
        reviver = _Reviver(self._types, where)
        try:
            value = ormsgpack.unpackb(data, ext_hook=reviver.revive)
            # Packing again takes a fifth of the time of unpacking; only bytes of another length are walked.
            plain = ormsgpack.unpackb(data, ext_hook=ormsgpack.Ext) if reviver.has_run else value
            if len(ormsgpack.packb(plain, option=_STRICT)) != len(data) and (more := surplus(data)) is not None:
                raise ValueError(more)  # noqa: TRY301 - as if the decoder had said so
            return value  # noqa: TRY300
        except (ValueError, TypeError) as error:
            cause = reviver.failure or error
            if isinstance(cause, HoldfastError) or not isinstance(cause, Exception):
                raise cause from None
            raise IntegrityError(f"{where}: cannot be decoded ({cause})") from cause

    def _extend(self, value: Any) -> ormsgpack.Ext:
        """Encode one non-plain value whose content is plain enough for the native encoder."""
        calls = self._calls
        calls.depth += 1
        try:
            if calls.depth > _MAX_DEPTH:
                raise ValueRefused(_TOO_DEEP, "")  # noqa: TRY301 - the walk in Python then finds the path
            return self._ext(value, "", lambda part, _where: part)
        except BaseException as error:
            if not isinstance(error, Exception):
                calls.interrupt = error  # the native encoder hides it
            raise
        finally:
            calls.depth -= 1

    def _plain(self, value: Any, where: str, depth: int) -> Any:
        """Return the value with everything that is not plain replaced by extensions, walking it in Python."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is bytes:
            return value
        if kind is int:
            return value if -(1 << 63) <= value < 1 << 64 else self._ext(value, where, _unreachable)
        if kind is str:
            return value if is_utf8(value) else ormsgpack.Ext(Ext.TEXT, value.encode("utf-8", "surrogatepass"))
        if kind is bytearray or kind is memoryview:
            return bytes(value)
        if depth >= _MAX_DEPTH:
            raise ValueRefused(_TOO_DEEP, where)
        if kind is list:
            return [self._plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
        if kind is dict:
            if all(type(key) is str and is_utf8(key) for key in value):
                return {key: self._plain(item, below(where, key), depth + 1) for key, item in value.items()}
            pairs = [
                [self._plain(key, f"{where}.<key>", depth + 1), self._plain(item, below(where, key), depth + 1)]
                for key, item in value.items()
            ]
            return ormsgpack.Ext(Ext.MAP, ormsgpack.packb(pairs, option=_STRICT))
        return self._ext(value, where, lambda part, step: self._plain(part, where + step, depth + 1))

    def _ext(self, value: Any, where: str, plain: Callable[[Any, str], Any]) -> ormsgpack.Ext:
        """Encode one non-plain value; `plain` prepares each part of it for the native encoder."""
        kind = type(value)
        encode = _SCALARS.get(kind)
        if encode is not None:
            try:
                code, content = encode(value)
            except ValueError as error:
                raise ValueRefused(str(error), where) from None
            return ormsgpack.Ext(code, content if isinstance(content, bytes) else self._pack_parts(content))
        if kind is tuple:
            parts = [plain(item, f"[{index}]") for index, item in enumerate(value)]
            return ormsgpack.Ext(Ext.TUPLE, self._pack_parts(parts))
        if kind is set or kind is frozenset:
            # Sorted by their bytes, so that equal sets are stored as equal bytes.
            items = sorted(self._pack_parts(plain(item, "{}")) for item in value)
            code = Ext.SET if kind is set else Ext.FROZENSET
            return ormsgpack.Ext(code, array_header(len(items)) + b"".join(items))
        adapter = self._types.for_class(kind)
        if adapter is None:
            raise ValueRefused(_refusal(kind), where)
        try:
            taken = adapter.take_apart(value)
        except Exception as error:
            raise ValueRefused(f"cannot take this {kind.__qualname__} apart ({error})", where) from error
        parts = [plain(part, "") for part in taken] if adapter.flat else plain(taken, "")
        return ormsgpack.Ext(Ext.REGISTERED, self._pack_parts([adapter.name, parts]))

    def _pack_parts(self, parts: Any) -> bytes:
        return ormsgpack.packb(parts, default=self._extend, option=_STRICT)


class _Calls(threading.local):
    """How deep this thread is inside the native encoder's calls back, and an interrupt that met it there."""

    depth = 0
    interrupt: BaseException | None = None


class _Reviver:
    """Turns extensions back into values; keeps the first failure, because the native decoder hides it."""

    def __init__(self, types: TypeRegistry, where: str) -> None:
        self._types = types
        self._where = where
        self._depth = 0
        self.has_run = False
        self.failure: BaseException | None = None

    def revive(self, code: int, data: bytes) -> Any:
        """Return the value of one extension."""
        self.has_run = True
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH:
                raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")  # noqa: TRY301 - kept as the failure
            return self._value(code, data)
        except BaseException as error:
            self.failure = self.failure or error
            raise
        finally:
            self._depth -= 1

    def _value(self, code: int, data: bytes) -> Any:
        if code == Ext.REGISTERED:
            name, stored = self._parts(data)
            adapter = self._types.for_name(name)
            if adapter is None:
                raise UnknownType(str(name), self._where)
            try:
                return adapter.put_together(stored)
            except UsageError as error:
                raise UsageError(f"{self._where}: {error.detail}") from error
        if code == Ext.INTEGER:
            if len(data) > _MAX_NUMBER_BYTES:
                raise ValueError(f"an integer of {len(data):,} bytes")
            return int.from_bytes(data, "big", signed=True)
        if code == Ext.TEXT:
            return data.decode("utf-8", "surrogatepass")
        if code == Ext.UUID:
            return UUID(bytes=bytes(data))
        if code == Ext.OPAQUE:
            return Opaque(data)
        revive = _REVIVERS.get(code)
        if revive is None:
            raise ValueError(f"unknown extension {code}")
        return revive(self._parts(data))

    def _parts(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self.revive)


def array_header(count: int) -> bytes:
    """Return the shortest MessagePack array header, as the native encoder writes it."""
    if count < 16:  # noqa: PLR2004 - the format's own bounds
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def map_header(count: int) -> bytes:
    """Return the shortest MessagePack map header, as the native encoder writes it."""
    if count < 16:  # noqa: PLR2004 - the format's own bounds
        return bytes((0x80 | count,))
    return b"\xde" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdf" + count.to_bytes(4, "big")


def _datetime_parts(value: datetime) -> tuple[int, list[Any]]:
    return Ext.DATETIME, _moment_parts(value)


def _time_parts(value: time) -> tuple[int, list[Any]]:
    return Ext.TIME, _moment_parts(value)


def _moment_parts(value: datetime | time) -> list[Any]:
    """Return the local time as ISO text, its zone (region's key, offset in microseconds or None) and the fold."""
    zone = value.tzinfo
    local = value.replace(tzinfo=None).isoformat()
    if zone is None:
        return [local, None, value.fold]
    if type(zone) is not timezone and type(zone) is zoneinfo.ZoneInfo and zone.key:
        return [local, zone.key, value.fold]
    offset = zone.utcoffset(None)
    if offset is None or value.utcoffset() != offset:
        raise ValueError(f"cannot checkpoint a time zone of class {type(zone).__qualname__}: use zoneinfo.ZoneInfo")
    # Not as ISO text: Python before 3.14 reads an offset of less than a second as UTC.
    return [local, offset // timedelta(microseconds=1), value.fold]


def _revive_moment(kind: type[datetime | time], parts: Any) -> Any:
    text, zone, fold = parts
    value = kind.fromisoformat(text)
    if zone is not None:
        fixed = type(zone) is int
        value = value.replace(tzinfo=timezone(timedelta(microseconds=zone)) if fixed else zoneinfo.ZoneInfo(zone))
    return value.replace(fold=fold)


def _revive_path(parts: Any) -> Any:
    kind, text = parts
    concrete = {"PosixPath": PosixPath, "WindowsPath": WindowsPath}.get(kind)
    if concrete is not None and concrete is type(Path()):
        return concrete(text)
    return {"Posix": PurePosixPath, "Windows": PureWindowsPath}[kind.removeprefix("Pure").removesuffix("Path")](text)


def _revive_decimal(text: Any) -> Decimal:
    if len(text) > _MAX_NUMBER_BYTES:
        raise ValueError(f"a decimal of {len(text):,} digits")
    return Decimal(text)


def _decimal_text(value: Decimal) -> tuple[int, str]:
    text = str(value)
    if len(text) > _MAX_NUMBER_BYTES:
        raise ValueError(f"a decimal of {len(text):,} digits is over the limit of {_MAX_NUMBER_BYTES:,}")
    return Ext.DECIMAL, text


def _integer_bytes(value: int) -> tuple[int, bytes]:
    length = value.bit_length() // 8 + 1
    if length > _MAX_NUMBER_BYTES:
        raise ValueError(f"an integer of {length:,} bytes is over the limit of {_MAX_NUMBER_BYTES:,}")
    return Ext.INTEGER, value.to_bytes(length, "big", signed=True)


def _path_parts(value: Any) -> tuple[int, Any]:
    text = str(value)
    return Ext.PATH, [type(value).__name__, text if is_utf8(text) else _surrogate_text(text)]


_SCALARS: dict[type, Callable[[Any], tuple[int, Any]]] = {
    datetime: _datetime_parts,
    date: lambda value: (Ext.DATE, value.isoformat()),
    time: _time_parts,
    timedelta: lambda value: (Ext.TIMEDELTA, [value.days, value.seconds, value.microseconds]),
    UUID: lambda value: (Ext.UUID, value.bytes),
    Decimal: _decimal_text,
    int: _integer_bytes,
    Opaque: lambda value: (Ext.OPAQUE, bytes(value)),
    Outcome: lambda value: (
        Ext.OUTCOME,
        ormsgpack.packb([value.path, value.version, list(value.keys), value.is_summary]),
    ),
    PosixPath: _path_parts,
    WindowsPath: _path_parts,
    PurePosixPath: _path_parts,
    PureWindowsPath: _path_parts,
}
_REVIVERS: dict[int, Callable[[Any], Any]] = {
    Ext.TUPLE: tuple,
    Ext.SET: lambda items: set(_scattered(items)),
    Ext.FROZENSET: lambda items: frozenset(_scattered(items)),
    Ext.DATETIME: lambda parts: _revive_moment(datetime, parts),
    Ext.DATE: date.fromisoformat,
    Ext.TIME: lambda parts: _revive_moment(time, parts),
    Ext.TIMEDELTA: lambda parts: timedelta(*parts),
    Ext.DECIMAL: _revive_decimal,
    Ext.PATH: _revive_path,
    Ext.OUTCOME: lambda parts: Outcome(str(parts[0]), str(parts[1]), tuple(map(str, parts[2])), bool(parts[3])),
    Ext.MAP: lambda pairs: _mapping(pairs),  # noqa: PLW0108 - defined below
}


def _mapping(pairs: Any) -> dict[Any, Any]:
    _scattered([key for key, _ in pairs])
    return {key: item for key, item in pairs}  # noqa: C416 - dict() would take any two-letter string


def _scattered(items: Any) -> Any:
    """Return elements of a set; ValueError if they were chosen to have one hash, which takes time by their square."""
    if len(items) > _FEW:
        counts = Counter(hash(item) for item in items if isinstance(item, _PREDICTABLE))
        most = max(counts.values(), default=0)
        if most > _FEW:
            raise ValueError(f"{most:,} of its {len(items):,} elements have the same hash")
    return items


def _surrogate_text(text: str) -> ormsgpack.Ext:
    return ormsgpack.Ext(Ext.TEXT, text.encode("utf-8", "surrogatepass"))


def is_utf8(text: str) -> bool:
    """Tell whether text has no lone surrogate, which MessagePack could not hold as text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def below(where: str, key: Any) -> str:
    """Return the path of what stands under a key, as Python would write it."""
    if isinstance(key, str) and _IDENTIFIER.match(key):
        return f"{where}.{key}"
    return f"{where}[{key!r:.40}]"


def _unreachable(_part: Any, _where: str) -> Any:
    raise AssertionError("a scalar has no parts")


def _refusal(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if can_adapt(kind):
        return f"cannot checkpoint a {name} that is not registered: holdfast.open(types=[{kind.__qualname__}])"
    for plain in (dict, list, str, int, float, tuple, set, bytes):
        if issubclass(kind, plain):
            return f"cannot checkpoint a {name}: make it a plain {plain.__name__}, or register the class"
    return f"cannot checkpoint a {name}"
