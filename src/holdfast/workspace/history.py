"""Which commits reach which others, found without git; in doubt one counts as not reached."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.workspace.objects import Objects

_MAX_COMMITS = 200_000
_SKEW_S = 30 * 24 * 3600  # how much later than its child a commit may claim to have been made


def reaches(objects: Objects, tips: Iterable[str], wanted: str) -> bool:
    """Return whether a commit is one of these or lies behind one of them; the newest are looked at first."""
    target = objects.commit(wanted)
    if target is None:
        return False
    queue: list[tuple[int, str]] = []
    seen: set[str] = set()

    def add(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        commit = objects.commit(name)
        if commit is not None and commit.time >= target.time - _SKEW_S:
            heapq.heappush(queue, (-commit.time, name))

    for tip in tips:
        add(objects.peeled(tip))
    while queue and len(seen) < _MAX_COMMITS:
        _, name = heapq.heappop(queue)
        if name == wanted:
            return True
        commit = objects.commit(name)
        for parent in commit.parents if commit is not None else ():
            add(parent)
    return False
