"""Footprint: how much memory packed bytes take once they are decoded, estimated before they are.

An empty mapping is one byte when packed and 80 when decoded, and a megabyte of a store may hold 64 of such bytes. What
shrank so well that its footprint is out of proportion to what is stored is refused, so that a hostile store of 1 MB
stays below 512 MB of memory; at writing, too, but for lists that grow item by item. Ordinary ratios pass at any size.
"""

from __future__ import annotations

from typing import Final

import zstandard

from holdfast.encode.values import Ext
from holdfast.errors import LimitExceeded
from holdfast.lazy import pattern

_ALWAYS = 192 << 20
_TIMES_LIMIT = 3
_TIMES_STORED = 96
_ITEM, _NUMBER, _TEXT, _LIST, _MAP, _ENTRY, _EXT = 12, 40, 72, 80, 88, 48, 400
_MAP_OF_SOME = 208
_RAW: Final = frozenset({Ext.TEXT, Ext.INTEGER, Ext.UUID, Ext.OPAQUE})
_TABLES: Final = frozenset({Ext.SET, Ext.FROZENSET})
_SINGLE = pattern(rb"[\x00-\x7f\xc0\xc2\xc3\xe0-\xff]+")
_ABOVE_LATIN = pattern(rb"[\xc4-\xef]")
_ABOVE_PLANE = pattern(rb"[\xf0-\xf4]")
_HEAVIEST = _MAP_OF_SOME + 15 * _ENTRY
_NO_HEADS: Final = bytes((*range(0x80), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)))
_HEADS: Final = tuple(
    (weight, bytes(byte for byte in range(256) if byte not in heads))
    for weight, heads in (
        (_HEAVIEST, (*range(0x80, 0x90), 0xDE, 0xDF)),
        (_LIST, (*range(0x90, 0xA0), 0xDC, 0xDD)),
        (_TEXT, (*range(0xA0, 0xC0), 0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB)),
        (_EXT, (*range(0xC7, 0xCA), *range(0xD4, 0xD9))),
    )
)
_WIDTHS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xCA: 4, 0xCB: 8}
_SIZED: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_COUNTED: Final = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_EXT_SIZED: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_EXT_FIXED: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def check_footprint(name: str, data: bytes, *, max_bytes: int, stored_bytes: int | None = None) -> None:
    """Raise LimitExceeded if a packed value unfolds out of proportion to what is stored of it.

    Without `stored_bytes`, of a value that is about to be stored, compression tells what that would be.
    """
    limit = max(_ALWAYS, _TIMES_LIMIT * max_bytes, _TIMES_STORED * (stored_bytes or 0))
    if _most(data, limit) <= limit:
        return
    if stored_bytes is None:
        stored_bytes = len(zstandard.ZstdCompressor(level=1).compress(data))
        limit = max(limit, _TIMES_STORED * stored_bytes)
    found = footprint(data, limit)
    if found > limit:
        raise LimitExceeded(
            "raise max_section_mb to use it", f"the memory that {name} takes when it is decoded", found, limit
        )


def _most(data: bytes, limit: int) -> int:
    """Return more than the footprint can be, by counting bytes that may be heads."""
    if len(data) * _HEAVIEST <= limit:
        return 0
    quick = 16 * len(data) + _HEAVIEST * len(data.translate(None, _NO_HEADS))
    if quick <= limit:
        return quick
    return 16 * len(data) + sum(weight * len(data.translate(None, others)) for weight, others in _HEADS)


def footprint(data: bytes, limit: int) -> int:  # noqa: C901 - a row of heads
    """Return about how many bytes of memory a packed value takes when decoded; counts no further than the limit."""
    total = position = 0
    end = len(data)
    while position < end and total <= limit:
        head = data[position]
        position += 1
        if head < 0x80 or head >= 0xE0 or head in (0xC0, 0xC2, 0xC3):  # noqa: PLR2004 - the format's own numbers
            run = _SINGLE.match(data, position - 1)
            stop = run.end() if run is not None else position
            total += _ITEM * (stop - position + 1)
            position = stop
        elif head < 0x90:  # noqa: PLR2004
            total += _map(head & 15)
        elif head < 0xA0:  # noqa: PLR2004
            total += _LIST
        elif head < 0xC0:  # noqa: PLR2004
            total += _text(data, position, head & 31)
            position += head & 31
        elif head in _WIDTHS:
            total += _NUMBER
            position += _WIDTHS[head]
        elif head in _SIZED:
            start = position + _SIZED[head]
            size = int.from_bytes(data[position:start], "big")
            total += _text(data, start, min(size, end))
            position = start + size
        elif head in _COUNTED:
            start = position + _COUNTED[head]
            count = min(int.from_bytes(data[position:start], "big"), end - position)
            total += _LIST if head < 0xDE else _map(count)  # noqa: PLR2004
            position = start
        elif head in _EXT_SIZED or head in _EXT_FIXED:
            start = position + _EXT_SIZED.get(head, 0)
            size = _EXT_FIXED.get(head) or int.from_bytes(data[position:start], "big")
            code = data[start] if start < end else 0
            position = start + 1
            if code in _RAW:
                total += _TEXT + 2 * min(size, end)
                position += size
            else:
                total += _EXT + (_ITEM * min(size, end) if code in _TABLES else 0)
    return total


def _map(count: int) -> int:
    return _MAP if count == 0 else _MAP_OF_SOME + _ENTRY * max(0, count - 5)


def _text(data: bytes, start: int, size: int) -> int:
    """Return what a text takes: one byte a character, or two or four for all as soon as one needs them."""
    if size > 1 << 12:
        # Whoever shows it has it twice, and as bytes again.
        width = 1
        if _ABOVE_PLANE.search(data, start, start + size):
            width = 8
        elif _ABOVE_LATIN.search(data, start, start + size):
            width = 3
        return _TEXT + width * size
    return _TEXT + size
