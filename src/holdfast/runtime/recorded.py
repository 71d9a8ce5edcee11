"""Recorded values: copies that nobody else can change, digests that every process agrees on, names and reasons."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from blake3 import blake3

from holdfast.encode.values import Packer
from holdfast.errors import HoldfastError, UsageError

_LONGEST_REASON = 300
_LONGEST_NAME = 200
ATOMS = (str, bytes, int, float, bool, type(None))
_PLAIN = Packer()


def kept(value: Any) -> Any:
    """Return a copy that the value's owner cannot change; what cannot be copied is kept as it is."""
    if isinstance(value, ATOMS):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __deepcopy__ raises
        return value


def digest_of(value: Any) -> str | None:
    """Return a name for the content, whatever the order of its keys; None if it has no form that stays the same."""
    try:
        content = msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        try:
            content = _PLAIN.pack(value, "")
        except HoldfastError:
            return None
    return blake3(content).hexdigest(length=16)


def reason_of(text: str) -> str:
    """Return a text that can stand as the reason of a checkpoint: not long, and valid whatever an agent printed."""
    valid = text.encode(errors="backslashreplace").decode()
    return valid if len(valid) <= _LONGEST_REASON else valid[: _LONGEST_REASON - 3] + "..."


def check_name(kind: str, name: object) -> None:
    """Raise UsageError unless a phase, an agent or a task may be called so."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise UsageError(f"{name!r:.80} is not a valid name of {kind}: use 1 to {_LONGEST_NAME} printable characters")
