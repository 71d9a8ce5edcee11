"""Amounts of a budget as people type them: 10_000 or 10,000, 2.50, and for time 90s or 1h30m."""

from __future__ import annotations

import math
import re

from holdfast.errors import UsageError

_IN_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")


def parse_amount(budget: str, text: str) -> float:
    """Return an amount of more than nothing; UsageError shows how one is written."""
    is_time = budget.rpartition("/")[2] in ("time", "time_s")
    if _IN_THOUSANDS.fullmatch(text.strip()):
        text = text.replace(",", "")
    if "," in text:
        raise UsageError(
            f"{text!r:.60} is not an amount: a comma parts thousands, as in 1,000; a fraction has a point, as in 2.50"
        )
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        value = _seconds(text) if is_time else math.nan
    if not math.isfinite(value) or value <= 0:
        raise UsageError(
            f"{text!r:.60} is not an amount: write a number{', or a duration as in 1h30m' if is_time else ''}"
        )
    return int(value) if value.is_integer() else value


def _seconds(text: str) -> float:
    from holdfast.flow.duration import parse_duration  # noqa: PLC0415 - only for time

    try:
        return parse_duration(text)
    except ValueError:
        return math.nan
