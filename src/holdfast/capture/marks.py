"""What a person or program writes on a checkpoint, checked before it is sealed: a seal over nonsense keeps nonsense."""

from __future__ import annotations

import msgspec

from holdfast.errors import LimitExceeded, UsageError
from holdfast.model.checkpoint import Marks

MAX_TEXT_BYTES = 64 * 1024


def checked_marks(marks: Marks) -> Marks:
    """Return the marks, or raise UsageError if one is not of its type or not among its values."""
    try:
        msgspec.convert(msgspec.structs.astuple(marks), Marks)
    except msgspec.ValidationError as error:
        shown = ", ".join(f"{name}={value!r:.80}" for name, value in msgspec.structs.asdict(marks).items())
        raise UsageError(f"{shown}: {error}") from None
    if marks.label is not None:
        checked_text("label", marks.label)
    return marks


def checked_text(name: str, text: object) -> str:
    """Return a text that a record can hold, or raise UsageError."""
    if not isinstance(text, str):
        raise UsageError(f"{name}={text!r:.80}: give text, not a {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} is not valid text ({error})") from None
    if size > MAX_TEXT_BYTES:
        raise LimitExceeded("put it into a section", f"{name}'s bytes", size, MAX_TEXT_BYTES)
    return text
