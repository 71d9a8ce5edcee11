"""A list that only grows: its owner promises that what was in it once stays as it was.

So nothing of it is compared or packed again to find out what is new; the cost of saving it is that of what was added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Appended:
    """The first `length` items of a list, for one checkpoint; the list may grow meanwhile.

    Two of these over the same list object are the same log at two moments. `before` counts what stands in earlier
    sections of the same log.
    """

    __slots__ = ("before", "items", "length")

    def __init__(self, items: list[Any], *, before: int = 0) -> None:
        self.items = items
        self.length = len(items)
        self.before = before

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items[: self.length])
