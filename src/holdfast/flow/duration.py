"""Durations as people write them: `30s`, `2h`, `1h30m`."""

from __future__ import annotations

import math
import re
from itertools import pairwise

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+\Z")


def parse_duration(text: str) -> float:
    """Return the seconds that a text means; ValueError if it is not a duration."""
    if not _WHOLE.match(text):
        raise ValueError(f"{text!r:.60} is not a duration: write 30s, 5m, 2h or 1h30m")
    parts = _PART.findall(text)
    units = [list(_UNITS).index(unit) for _, unit in parts]
    if any(later >= earlier for earlier, later in pairwise(units)):
        raise ValueError(f"{text!r:.60} is not a duration: give the larger unit first, each once")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def show_duration(seconds: float) -> str:
    """Return seconds as people read them, in at most two units."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f}ms"
    if seconds < 10:  # noqa: PLR2004 - below ten seconds the tenths tell
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
