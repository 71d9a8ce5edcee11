"""Checkpoint ids for people: their time comes first and is shared, so what tells them apart begins after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_RANDOM_PART = len("cp_") + 12
_WHOLE = re.compile(r"\bcp_[0-9a-f]{32}\b")
SHORTEST = 8


def tail(checkpoint: str) -> str:
    """Return the part of an id that chance made."""
    return checkpoint[_RANDOM_PART:]


def shortened(text: str) -> str:
    """Return text with every whole id in it as lists show it."""
    return _WHOLE.sub(lambda match: tail(match[0])[:SHORTEST], text)


class Short:
    """Shortens the ids that are shown together, as far as they stay apart."""

    def __init__(self, shown: Iterable[str] = ()) -> None:
        self._length = SHORTEST
        self._seen: dict[str, str] = {}
        for checkpoint in shown:
            self(checkpoint)

    def __call__(self, checkpoint: str | None) -> str:
        """Return the short form of an id; longer from the moment that two would look the same."""
        if checkpoint is None:
            return "-"
        while self._seen.setdefault(tail(checkpoint)[: self._length], checkpoint) != checkpoint:
            known = list(dict.fromkeys(self._seen.values()))
            self._length += 2
            self._seen = {tail(one)[: self._length]: one for one in known}
        return tail(checkpoint)[: self._length]
