"""Ranges of journal numbers: those that are a line's present, first to last, both included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.tables import LineRow

Ranges = tuple[tuple[int, int], ...]


def cut(ranges: Ranges, number: int) -> Ranges:
    """Return ranges as far as a number."""
    return tuple((low, min(high, number)) for low, high in ranges if low <= number)


def upto(line: LineRow, number: int) -> Ranges:
    """Return the numbers of a line up to one of them; NotFound if it is not on the line."""
    kept = cut(line.ranges, number)
    if number and (not kept or kept[-1][1] != number):
        raise NotFound("journal position", f"{line.run}#{number}")
    return kept


def are_ordered(ranges: Ranges, number: int) -> bool:
    """Tell whether ranges follow each other, and end at a number or before it."""
    last = 0
    for low, high in ranges:
        if not last < low <= high <= number:
            return False
        last = high
    return True


def extended(ranges: Ranges, number: int) -> Ranges:
    """Return ranges with one more number after them."""
    if ranges and ranges[-1][1] == number - 1:
        return (*ranges[:-1], (ranges[-1][0], number))
    return (*ranges, (number, number))


def spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return rising numbers as ranges of consecutive ones."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        found[-1:] = extended(tuple(found[-1:]), number)
    return found
