"""Times and sizes as a person says them."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.errors import UsageError
from holdfast.lazy import pattern

_SPANS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = pattern(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)\Z")
_STEPS = ((60, 1, "s"), (3600, 60, "min"), (2 * 86400, 3600, "h"), (60 * 86400, 86400, "days"))
_NOW_S = 5
_KILO = 1000


def age(then: datetime, now: datetime) -> str:
    """Return how long ago something was: "3 min ago"; a moment to come, by a clock that jumped, is "in 3 min"."""
    seconds = (now - then).total_seconds()
    if abs(seconds) < _NOW_S:
        return "just now"
    length = span(abs(seconds))
    if length is None:
        return f"{then.astimezone(now.tzinfo):%Y-%m-%d}"
    return f"{length} ago" if seconds > 0 else f"in {length}"


def span(seconds: float) -> str | None:
    """Return a length of time in its largest unit, None if it is longer than two months."""
    for limit, unit, name in _STEPS:
        if seconds < limit:
            return f"{int(seconds // unit)} {name}"
    return None


def duration(seconds: float) -> str:
    """Return a length of time of work: "0.4 s", "2 min 5 s", "3 h 20 min"."""
    if seconds < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(then: datetime) -> str:
    """Return a time in full, in UTC."""
    return f"{then:%Y-%m-%d %H:%M:%S} UTC"


def parse_span(text: str) -> timedelta:
    """Return a length of time from "90s", "30m", "12h", "7d" or "2w"."""
    match = _SPAN.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a length of time: write 90s, 30m, 12h, 7d or 2w")
    try:
        return timedelta(seconds=float(match[1]) * _SPANS[match[2]])
    except OverflowError:
        raise UsageError(f"{text!r} is longer than any time there is") from None


def size(count: int) -> str:
    """Return a number of bytes: "812 B", "4.9 KB", "1.2 GB"."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < _KILO:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KILO
    return f"{amount:.1f} TB"


def number(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: "1 file", "3 files"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
