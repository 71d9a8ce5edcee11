"""Lanes of a checkpoint graph: chains of checkpoints, each in a lane, with where it leaves another; pure.

A lane is given as `holdfast log` gives it: from the newest down, each lane waits for the parent of what it last had.
A run of a hundred thousand checkpoints on one line is one chain of one range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Chain(msgspec.Struct, kw_only=True):
    """Checkpoints below one another in one lane: stretches of numbers from the top down, and what it joins."""

    lane: int
    ranges: list[list[int]]
    """[highest, lowest] of each stretch."""
    joins: int | None = None
    """The number of the checkpoint in another chain that its last one was taken on."""
    gaps: list[int]
    """The numbers below which checkpoints were deleted."""


def chains(rows: Iterable[tuple[int, int]], deleted: Collection[int] = ()) -> list[Chain]:
    """Return the chains of checkpoints given newest first as a number and its parent's, 0 for none in this run."""
    found: list[Chain] = []
    open_lanes: list[tuple[int, Chain]] = []  # what each lane waits for
    for seq, parent in rows:
        waiting = [i for i, (wanted, _) in enumerate(open_lanes) if wanted == seq]
        if not waiting:
            broken = next((i for i, (wanted, _) in enumerate(open_lanes) if wanted in deleted), None)
            if broken is not None:
                open_lanes[broken][1].gaps.append(open_lanes[broken][1].ranges[-1][1])
                waiting = [broken]
        if waiting:
            here = waiting[0]
            chain = open_lanes[here][1]
            for lane in reversed(waiting[1:]):
                open_lanes[lane][1].joins = seq
                del open_lanes[lane]
        else:
            here = len(open_lanes)
            chain = Chain(lane=here, ranges=[], gaps=[])
            found.append(chain)
            open_lanes.append((seq, chain))
        if chain.ranges and chain.ranges[-1][1] == seq + 1:
            chain.ranges[-1][1] = seq
        else:
            chain.ranges.append([seq, seq])
        if parent == 0:
            del open_lanes[here]
        else:
            open_lanes[here] = (parent, chain)
    return found


def grown(known: list[Chain], rows: Iterable[tuple[int, int]], newest: int) -> bool:
    """Add rows (oldest first) on top of known chains in place; False if one does not simply follow the newest."""
    for seq, parent in rows:
        if parent != newest or not known or known[0].ranges[0][0] != newest:
            return False
        if seq == newest + 1:
            known[0].ranges[0][0] = seq
        else:
            known[0].ranges.insert(0, [seq, seq])
        newest = seq
    return True
