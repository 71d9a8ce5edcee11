"""Literals that a match must contain, taken from a pattern: without Hyperscan most patterns are ruled out by these.

Looking for a word in a megabyte takes 0.1 ms, searching it with `re` 1 to 200 ms.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LONGEST = 12
_MOST = 40


@lru_cache(maxsize=1024)
def literals_of(pattern: bytes) -> tuple[bytes, ...]:
    """Return words in lower case of which every match contains at least one; none if there are no such words."""
    parser: Any = getattr(
        re, "_parser", None
    )  # the only one that knows what `re` does; without it nothing is ruled out
    if parser is None:
        return ()
    found = _of_sequence(parser.parse(pattern), parser)
    return tuple(sorted(found)) if found is not None else ()


def make_possible(patterns: Sequence[bytes]) -> Callable[[bytes], list[int]]:
    """Return what tells the numbers of those patterns that may match in bytes; every word is looked for once."""
    always: list[int] = []
    by_word: dict[bytes, list[int]] = {}
    for number, pattern in enumerate(patterns):
        for word in literals_of(pattern):
            by_word.setdefault(word, []).append(number)
        if not literals_of(pattern):
            always.append(number)
    words = tuple(by_word)

    def possible(data: bytes) -> list[int]:
        lower = data.lower()
        found = {number for word in words if word in lower for number in by_word[word]}
        return sorted(found.union(always))

    return possible


def _of_sequence(parsed: Any, parser: Any) -> frozenset[bytes] | None:
    """Return the best set of words of a row of parts: the one whose shortest word is the longest."""
    options: list[frozenset[bytes]] = []
    run = b""
    for op, argument in parsed:
        if op is parser.LITERAL and argument < 128 and len(run) < _LONGEST:  # noqa: PLR2004 - ASCII, for lower()
            run += bytes([argument])
            continue
        options += [frozenset({run.lower()})] if run else []
        run = b""
        inner = _of_part(op, argument, parser)
        options += [inner] if inner is not None else []
    options += [frozenset({run.lower()})] if run else []
    usable = [option for option in options if len(option) <= _MOST]
    return max(usable, key=lambda words: min(map(len, words)), default=None)


def _of_part(op: Any, argument: Any, parser: Any) -> frozenset[bytes] | None:
    if op is parser.SUBPATTERN:
        return _of_sequence(argument[-1], parser)
    if op is parser.MAX_REPEAT or op is parser.MIN_REPEAT:
        least, _most, inner = argument
        return _of_sequence(inner, parser) if least else None
    if op is parser.BRANCH:
        branches = [_of_sequence(branch, parser) for branch in argument[1]]
        return None if None in branches else frozenset().union(*(words for words in branches if words is not None))
    return None
