"""Regular expressions that a stranger wrote: those whose matching takes bounded time, told from their parsed form.

`re` tries every way in which an expression can match. The number of ways is counted here without matching anything: one
per choice between alternatives and per number of repetitions, multiplied along the expression.
"""

from __future__ import annotations

import re
from typing import Any

LONGEST = 2_000
_MOST_WAYS = 256
_WIDEST = 1_024
_UNBOUNDED = 1 << 30


def matches_nothing(pattern: str) -> bool:
    """Tell whether an expression fits empty text, and so would match everywhere; re.error if it is not valid."""
    if len(pattern) > LONGEST:
        raise re.error(f"it has {len(pattern):,} characters; the limit is {LONGEST:,}")
    try:
        re.compile(pattern)
        return int(_parser().parse(pattern).getwidth()[0]) == 0
    except (RecursionError, OverflowError, MemoryError) as error:
        raise re.error(f"it is too large ({type(error).__name__})") from None


def is_bounded(pattern: str) -> bool:
    """Tell whether an expression takes at most a fixed number of steps at each place of a text."""
    try:
        if len(pattern) > LONGEST or matches_nothing(pattern):
            return False
        parsed = _parser().parse(pattern)
        return int(parsed.getwidth()[1]) <= _WIDEST and _ways(parsed) <= _MOST_WAYS
    except re.error:
        return False


def _parser() -> Any:
    return vars(re)["_parser"]


def _ways(parsed: Any) -> int:
    """Return in how many ways a row of parts can be tried."""
    ways = 1
    for op, argument in parsed:
        ways *= _ways_of_part(op, argument)
        if ways > _MOST_WAYS:
            return _UNBOUNDED
    return ways


def _ways_of_part(op: Any, argument: Any) -> int:
    parser = _parser()
    if op in (parser.LITERAL, parser.NOT_LITERAL, parser.ANY, parser.IN, parser.AT):
        return 1
    if op is parser.SUBPATTERN:
        return _ways(argument[-1])
    if op is parser.BRANCH:
        return sum(map(_ways, argument[1]))
    if op in (parser.MAX_REPEAT, parser.MIN_REPEAT):
        least, most, inner = argument
        each = _ways(inner)
        if most > _WIDEST or each > _MOST_WAYS:
            return _UNBOUNDED
        if each == 1:
            return int(most - least + 1)
        return int(sum(min(each**count, _UNBOUNDED) for count in range(least, most + 1)))
    return _UNBOUNDED  # looks around, refers back, or is newer than this table
