"""A section's bytes as a value that people can read, and back to exactly the same bytes.

What YAML and JSON cannot say is a mapping with one key that begins with `$`; such keys of the user's own get one `$`
more. Nothing is guessed: bytes that would not come back the same are refused here and kept in base64 instead.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from math import isfinite
from typing import Any, NamedTuple

import ormsgpack

from holdfast.encode.values import Ext

_MAX_DEPTH = 200
_LONGEST_NUMBER = 1000
_NAMES: dict[int, str] = {
    Ext.TUPLE: "$tuple",
    Ext.SET: "$set",
    Ext.FROZENSET: "$frozenset",
    Ext.DATETIME: "$datetime",
    Ext.DATE: "$date",
    Ext.TIME: "$time",
    Ext.TIMEDELTA: "$timedelta",
    Ext.DECIMAL: "$decimal",
    Ext.PATH: "$path",
    Ext.MAP: "$map",
    Ext.REGISTERED: "$type",
}
_CODES = {name: code for code, name in _NAMES.items()}


class _Extension(NamedTuple):
    code: int
    data: bytes


class NotReadableError(ValueError):
    """These bytes have no readable form that would come back the same."""


def readable(data: bytes) -> Any:
    """Return the one MessagePack value in these bytes in readable form; NotReadableError if it would not come back."""
    try:
        value = _shown(_unpacked(data), 0)
        if packed(value) != data:
            raise NotReadableError("it would not come back the same")
    except (ValueError, TypeError, RecursionError, KeyError) as error:
        raise NotReadableError(str(error)) from error
    return value


def packed(value: Any) -> bytes:
    """Return a readable value's bytes; ValueError if it is not one of ours."""
    try:
        return ormsgpack.packb(_hidden(value, 0), option=ormsgpack.OPT_PASSTHROUGH_SUBCLASS)
    except (TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ValueError(f"holds something that is no value of ours ({error})") from error


def _shown(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NotReadableError("nested too deep")
    kind = type(value)
    if kind is dict:
        return {_shown_key(key): _shown(item, depth + 1) for key, item in value.items()}
    if kind is list:
        return [_shown(item, depth + 1) for item in value]
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is float and not isfinite(value):
        return {"$float": repr(value)}
    if kind is _Extension:
        return _shown_ext(value, depth)
    return value


def _shown_key(key: Any) -> str:
    if type(key) is not str:
        raise NotReadableError("a key that is no text")
    return f"${key}" if key.startswith("$") else key


def _shown_ext(value: _Extension, depth: int) -> dict[str, Any]:
    code, data = value
    if code in _NAMES:
        return {_NAMES[code]: _shown(_unpacked(data), depth + 1)}
    if code == Ext.UUID:
        return {"$uuid": data.hex()}
    if code == Ext.INTEGER and len(data) < _LONGEST_NUMBER:
        return {"$int": str(int.from_bytes(data, "big", signed=True))}
    return _raw(code, data)


def _raw(code: int, data: bytes) -> dict[str, Any]:
    return {"$ext": [code, b64encode(data).decode()]}


def _unpacked(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=_Extension)


def _hidden(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")
    kind = type(value)
    if kind is list:
        return [_hidden(item, depth + 1) for item in value]
    if kind is not dict:
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if type(key) is str and key.startswith("$") and not key.startswith("$$"):
            return _hidden_special(key, inner, depth)
    return {_hidden_key(key): _hidden(item, depth + 1) for key, item in value.items()}


def _hidden_key(key: Any) -> str:
    if type(key) is not str or (key.startswith("$") and not key.startswith("$$")):
        raise ValueError(f"has the key {key!r:.40}; a key of yours that begins with $ is written with $$")
    return key[1:] if key.startswith("$$") else key


def _hidden_special(name: str, inner: Any, depth: int) -> Any:
    if name == "$bytes":
        return b64decode(inner, validate=True)
    if name == "$float":
        return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[inner]
    if name == "$uuid":
        return ormsgpack.Ext(Ext.UUID, bytes.fromhex(inner))
    if name == "$int":
        number = int(inner)
        return ormsgpack.Ext(Ext.INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
    if name == "$ext":
        code, data = inner
        return ormsgpack.Ext(code, b64decode(data, validate=True))
    content = ormsgpack.packb(_hidden(inner, depth + 1), option=ormsgpack.OPT_PASSTHROUGH_SUBCLASS)
    return ormsgpack.Ext(_CODES[name], content)
