"""Lanes of a checkpoint graph: chains of checkpoints, each in a lane, with where it leaves another; pure.

A lane is given as `holdfast log` gives it: from the newest down, each lane waits for the parent of what it last had.
A run of a hundred thousand checkpoints on one line is one chain of one range.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Chain(msgspec.Struct, kw_only=True):
    """Checkpoints below one another in one lane: stretches of numbers from the top down, and what it joins."""

    lane: int
    ranges: list[list[int]]
    """[highest, lowest] of each stretch."""
    joins: int | None = None
    """The number of the checkpoint in another chain that its last one was taken on."""
    gaps: list[int]
    """The numbers below which checkpoints were deleted."""


def chains(last: int, branches: Mapping[int, int], deleted: Sequence[int] = ()) -> list[Chain]:
    """Return the chains of checkpoints 1 to `last`, each taken on the one before it but for the branches.

    `branches` are the parents of those that were taken on another one, 0 for none in this run. The work is by branches
    and deleted ones: what lies between them is one stretch.
    """
    found: list[Chain] = []
    open_lanes: list[tuple[int, Chain]] = []  # what each lane waits for
    gone = set(deleted)
    for high, low in _stretches(last, branches, deleted):
        waiting = [i for i, (wanted, _) in enumerate(open_lanes) if wanted == high]
        if not waiting:
            broken = next((i for i, (wanted, _) in enumerate(open_lanes) if wanted in gone), None)
            if broken is not None:
                open_lanes[broken][1].gaps.append(open_lanes[broken][1].ranges[-1][1])
                waiting = [broken]
        if waiting:
            here = waiting[0]
            chain = open_lanes[here][1]
            for lane in reversed(waiting[1:]):
                open_lanes[lane][1].joins = high
                del open_lanes[lane]
        else:
            here = len(open_lanes)
            chain = Chain(lane=here, ranges=[], gaps=[])
            found.append(chain)
            open_lanes.append((high, chain))
        if chain.ranges and chain.ranges[-1][1] == high + 1:
            chain.ranges[-1][1] = low
        else:
            chain.ranges.append([high, low])
        parent = branches.get(low, low - 1)
        if parent == 0:
            del open_lanes[here]
        else:
            open_lanes[here] = (parent, chain)
    for wanted, chain in open_lanes:  # what it came from is deleted, and nothing below is free for it
        if wanted in gone:
            chain.gaps.append(chain.ranges[-1][1])
    return found


def _stretches(last: int, branches: Mapping[int, int], deleted: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield stretches of kept numbers from the top down, highest and lowest: a lane joins and leaves at their ends."""
    ends = {0, *(seq - 1 for seq in branches), *branches.values(), *deleted, *(seq - 1 for seq in deleted)}
    ordered = sorted(end for end in ends | {last} if 0 <= end <= last)
    gone = set(deleted)
    for low, high in reversed(list(pairwise(ordered))):
        if high not in gone:
            yield high, low + 1
