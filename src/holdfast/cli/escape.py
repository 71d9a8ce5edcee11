"""Stored text made harmless for a terminal: what could move the cursor, colour or reorder letters is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.lazy import pattern

if TYPE_CHECKING:
    import re

# Control characters but tab and newline, letters that turn the writing direction or are not seen, halves of characters.
_LETTERS = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_UNSAFE = pattern(_LETTERS)
_UNSAFE_IN_A_LINE = pattern(f"[\t\n]|{_LETTERS}")
_BYTE_ESCAPES = range(0xDC80, 0xDD00)


def safe(text: str) -> str:
    """Return text of several lines with what a terminal would obey written out."""
    return _UNSAFE.sub(_written_out, text)


def safe_line(text: str) -> str:
    """Return text that stays on its line."""
    return text if text.isprintable() else _UNSAFE_IN_A_LINE.sub(_written_out, text)


def json_text(value: Any) -> str:
    """Return a value as JSON for people: letters stay readable, what a terminal would obey is escaped as JSON does."""
    import json  # noqa: PLC0415 - only where JSON is shown

    return _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], json.dumps(value, indent=2, ensure_ascii=False))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code in _BYTE_ESCAPES:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    named = {9: "\\t", 10: "\\n", 13: "\\r", 27: "\\e"}.get(code)
    if named:
        return named
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
