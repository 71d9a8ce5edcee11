"""JSON that a person gives: on the command line, on standard input or in a file; one reader for all of it."""

from __future__ import annotations

from typing import Any

from holdfast.encode.documents import Bounds, parse_json
from holdfast.errors import DocumentInvalid, UsageError

MOST_BYTES = 1 << 30
_BOUNDS = Bounds(size_bytes=MOST_BYTES, depth=100, nodes=MOST_BYTES)  # deeper is not stored


def read_value(text: str | bytes, name: str, hint: str = "") -> Any:
    """Return the value of a JSON text; UsageError says what is wrong with it, by the name it is shown with."""
    try:
        return _parsed(text, name)
    except DocumentInvalid as error:
        raise UsageError(f"{name} {error.detail}{hint}") from None


def value_or_text(text: str) -> Any:
    """Return the value of a JSON text, or the text itself if it is not one."""
    try:
        return _parsed(text, "")
    except DocumentInvalid:
        return text


def _parsed(text: str | bytes, name: str) -> Any:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return parse_json(data, name, _BOUNDS)
