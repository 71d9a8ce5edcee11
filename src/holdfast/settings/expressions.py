"""Regular expressions in settings: which cannot be used, told from their parsed form without matching anything."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 2_000


def matches_nothing(pattern: str) -> bool:
    """Tell whether an expression fits empty text, and so would match everywhere; re.error if it is not valid."""
    if len(pattern) > LONGEST:
        raise re.error(f"it has {len(pattern):,} characters; the limit is {LONGEST:,}")
    try:
        re.compile(pattern)
        return int(_parser().parse(pattern).getwidth()[0]) == 0
    except (RecursionError, OverflowError, MemoryError) as error:
        raise re.error(f"it is too large ({type(error).__name__})") from None


def _parser() -> Any:
    return vars(re)["_parser"]
