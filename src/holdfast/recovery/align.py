"""Which items of two lists belong together: a longest common subsequence, on what stands for the items; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast.recovery.fingerprints import print_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.recovery.fingerprints import Print

Pairs = list[tuple[int, int]]

_MOST_CANDIDATES = 200_000  # pairs of equal items that are looked at: about 0.1 s
_LOOK_AHEAD = 8
_HALF = 0.5


def align(
    old: Sequence[Any], new: Sequence[Any], prints: tuple[Sequence[Print], Sequence[Print]]
) -> tuple[Pairs, Pairs]:
    """Return pairs of indices, both rising: of items that the prints say are equal, and of those edited in place."""
    olds, news = prints
    start, shortest = 0, min(len(old), len(new))
    while start < shortest and olds[start] == news[start]:
        start += 1
    end = 0
    while end < shortest - start and olds[-1 - end] == news[-1 - end]:
        end += 1
    stops = (len(old) - end, len(new) - end)
    common = _common(olds, news, start, stops)
    edited: Pairs = []
    i, j = start, start
    for a, b in [*common, stops]:
        edited += _edited(old, new, (i, a), (j, b))
        i, j = a + 1, b + 1
    equal = [(index, index) for index in range(start)]
    equal += [*common, *((stops[0] + index, stops[1] + index) for index in range(end))]
    return equal, edited


def _common(olds: Sequence[Print], news: Sequence[Print], start: int, stops: tuple[int, int]) -> Pairs:
    """Return a longest common subsequence of the two middles (Hunt and Szymanski)."""
    if start in stops:
        return []
    places = _candidates(olds[start : stops[0]], news[start : stops[1]], start)
    ends: list[int] = []  # the lowest place at which a common subsequence of each length can end
    links: list[Any] = []
    for index in range(start, stops[0]):
        for place in reversed(places.get(olds[index], ())):
            length = bisect_left(ends, place)
            longer = (index, place, links[length - 1] if length else None)
            if length == len(ends):
                ends.append(place)
                links.append(longer)
            elif place < ends[length]:
                ends[length], links[length] = place, longer
    found: Pairs = []
    link: Any = links[-1] if links else None
    while link is not None:
        found.append(link[:2])
        link = link[2]
    return found[::-1]


def _candidates(olds: Sequence[Print], news: Sequence[Print], start: int) -> dict[Print, list[int]]:
    """Return where each item is in the new list; the most frequent ones are left out where they would take long."""
    places: dict[Print, list[int]] = {}
    for index, one in enumerate(news, start):
        places.setdefault(one, []).append(index)
    costs = {one: count * len(places[one]) for one, count in Counter(olds).items() if one in places}
    left = _MOST_CANDIDATES
    for one in sorted(costs, key=costs.__getitem__):
        left -= costs[one]
        if left < 0:
            del places[one]
    return places


def _edited(old: Sequence[Any], new: Sequence[Any], olds: tuple[int, int], news: tuple[int, int]) -> Pairs:
    """Pair items that were edited in place: all of them if there are as many, else those that are alike, in order."""
    (i, a), (j, b) = olds, news
    if a - i == b - j:
        return list(zip(range(i, a), range(j, b), strict=True))
    if a == i or b == j:
        return []
    left = {index: _contents(old[index]) for index in range(i, a)}
    right = {index: _contents(new[index]) for index in range(j, b)}
    pairs: Pairs = []
    while i < a and j < b:
        ahead = next(((i, n) for n in range(j, min(b, j + _LOOK_AHEAD)) if _alike(left[i], right[n])), None)
        ahead = ahead or next(((n, j) for n in range(i, min(a, i + _LOOK_AHEAD)) if _alike(left[n], right[j])), None)
        if ahead is None:
            i, j = i + 1, j + 1
            continue
        pairs.append(ahead)
        i, j = ahead[0] + 1, ahead[1] + 1
    return pairs


def _contents(value: Any) -> frozenset[Any]:
    """Return what a mapping holds, each entry as a whole; nothing for another value."""
    if type(value) is not dict:
        return frozenset()
    return frozenset((key, print_of(item)) for key, item in value.items())


def _alike(old: frozenset[Any], new: frozenset[Any]) -> bool:
    """Tell whether one mapping may be the other, edited: they share half of what they hold."""
    return bool(old) and len(old & new) >= _HALF * max(len(old), len(new))
