"""The range of checkpoint ids that begin with a prefix, so that an index finds them and no pattern is ever matched."""

from __future__ import annotations

import re

_ID = "cp_"
_DIGITS = 32
_PREFIX = re.compile(r"(?:|c|cp|cp_[0-9a-f]{0,32})\Z")


def id_range(prefix: str) -> tuple[str, str] | None:
    """Return the lowest and the highest id that begin with this text, None if no id can.

    Both are whole ids of one form, so that every collation orders what lies between them alike.
    """
    if not _PREFIX.match(prefix):
        return None
    digits = prefix[len(_ID) :]
    return _ID + digits.ljust(_DIGITS, "0"), _ID + digits.ljust(_DIGITS, "f")
