"""Cutting bytes into leaves so that the next version shares all but what changed.

Cuts follow the previous version's: unchanged stretches keep their leaf, wherever they moved to, and only the bytes in
between are cut again. That needs no rolling hash, and comparing is memcmp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.encode.chunks import ChunkSink
    from holdfast.encode.tree import Ref

SMALLEST_CUT = 1024
_LARGEST_CUT = 64 * 1024
_SEARCH_WINDOW = 512 * 1024
_MAX_MISSES = 16
_PROBE = 64  # bytes looked for before the rest of a cut is compared: searching for a long needle costs more


class Cut(NamedTuple):
    """One leaf of a blob, with its bytes at hand for the next comparison."""

    data: bytes
    ref: Ref


def recut(new: bytes, old: Sequence[Cut], writer: ChunkSink) -> list[Cut]:
    """Return the cuts of `new`, taking over every old cut that stands in it unchanged."""
    cuts: list[Cut] = []
    position = 0
    for cut in old:
        if not new.startswith(cut.data, position):
            break
        cuts.append(cut)
        position += len(cut.data)
    kept_after: list[Cut] = []
    end = len(new)
    for cut in reversed(old[len(cuts) :]):
        start = end - len(cut.data)
        if start < position or not new.startswith(cut.data, start):
            break
        kept_after.append(cut)
        end = start
    kept_after.reverse()
    middle = old[len(cuts) : len(old) - len(kept_after)]
    size = min(max(len(new) // 32, SMALLEST_CUT), _LARGEST_CUT)
    for stretch in _align(new, position, end, middle):
        if isinstance(stretch, Cut):
            cuts.append(stretch)
        else:
            _cut_stretch(stretch, cuts, size, writer)
    cuts.extend(kept_after)
    return cuts


def _align(new: bytes, position: int, end: int, old: Sequence[Cut]) -> Iterator[Cut | bytes]:
    """Yield `new[position:end]` as old cuts found in it, in order, and the stretches between them."""
    misses = 0
    for cut in old:
        if misses == _MAX_MISSES:
            break
        found = -1
        if len(cut.data) >= _PROBE:
            found = new.find(cut.data[:_PROBE], position, min(end, position + _SEARCH_WINDOW))
        if found < 0 or found + len(cut.data) > end or not new.startswith(cut.data, found):
            misses += 1
            continue
        misses = 0
        if found > position:
            yield new[position:found]
        yield cut
        position = found + len(cut.data)
    if position < end:
        yield new[position:end]


def _cut_stretch(stretch: bytes, cuts: list[Cut], size: int, writer: ChunkSink) -> None:
    """Append a changed stretch; a short one takes its left neighbour in, so that cuts do not crumble."""
    if cuts and len(stretch) < size // 2 and len(cuts[-1].data) + len(stretch) <= 2 * size:
        stretch = cuts.pop().data + stretch
    count = max(1, round(len(stretch) / size))
    step = -(-len(stretch) // count)
    for start in range(0, len(stretch), step):
        data = stretch[start : start + step]
        cuts.append(Cut(data, writer.leaf(data)))
