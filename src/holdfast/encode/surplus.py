"""Surplus in packed bytes: what stands after a value, and keys that a mapping has twice.

Decoders drop both without a word, so two readers could see different values in the same bytes. Nothing that Holdfast
writes has them.
"""

from __future__ import annotations

from typing import Final

_FIXED: Final = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4,
    0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_SIZED: Final = {  # the width of the size, and the bytes between it and the content
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1), 0xD9: (1, 0), 0xDA: (2, 0),
    0xDB: (4, 0),
}  # fmt: skip
_ARRAYS: Final = {0xDC: 2, 0xDD: 4}
_MAPS: Final = {0xDE: 2, 0xDF: 4}


def surplus(data: bytes) -> str | None:
    """Return what a sound packed value has too much, None if nothing; ValueError if the bytes are not a value."""
    end, twice = _walk(data)
    if end < len(data):
        return f"{len(data) - end:,} bytes stand after its value"
    if end > len(data):
        raise ValueError("is cut off")
    return "a mapping has a key twice" if twice else None


def _walk(data: bytes) -> tuple[int, bool]:
    """Return where the first value ends, and whether a mapping in it has a key twice; never recurses."""
    position, twice = 0, False
    open_maps: list[tuple[int, int, set[bytes] | None]] = [(1, 0, None)]  # values left, where a key began, keys so far
    while open_maps and position < len(data):
        left, key_at, keys = open_maps.pop()
        if keys is not None and left % 2 == 0 and key_at >= 0:
            key_at = position
        if left > 1 or keys is not None:
            open_maps.append((left - 1, key_at, keys))
        position, count, is_map = _after(data, position)
        if count:
            open_maps.append((count * 2 if is_map else count, position, set() if is_map else None))
            continue
        twice = _close(data, position, open_maps) or twice
    return position, twice


def _close(data: bytes, position: int, open_maps: list[tuple[int, int, set[bytes] | None]]) -> bool:
    """Take note of keys that end here, and drop what has no more values; tell whether a key was there before."""
    twice = False
    while open_maps:
        left, key_at, keys = open_maps[-1]
        if keys is not None and left % 2:
            key = data[key_at:position]
            twice = twice or key in keys
            keys.add(key)
        if left:
            break
        open_maps.pop()
    return twice


def _after(data: bytes, position: int) -> tuple[int, int, bool]:
    """Return the position after a value's head or whole value, how many entries follow, and whether it is a mapping."""
    first = data[position]
    position += 1
    if first < 0x80 or first >= 0xE0:  # noqa: PLR2004 - the format's own numbers
        return position, 0, False
    if first < 0x90:  # noqa: PLR2004
        return position, first & 15, True
    if first < 0xA0:  # noqa: PLR2004
        return position, first & 15, False
    if first < 0xC0:  # noqa: PLR2004
        return position + (first & 31), 0, False
    if first in _FIXED:
        return position + _FIXED[first], 0, False
    if first in _SIZED:
        width, beside = _SIZED[first]
        return position + width + beside + int.from_bytes(data[position : position + width], "big"), 0, False
    width = _ARRAYS.get(first) or _MAPS.get(first) or 0
    if not width:
        raise ValueError(f"has the unknown byte 0x{first:02x}")
    return position + width, int.from_bytes(data[position : position + width], "big"), first in _MAPS
