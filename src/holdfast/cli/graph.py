"""The lines of a log: which lane a checkpoint stands in, newest first; pure, one row at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Row(NamedTuple):
    """How one checkpoint is drawn: what comes above it (joining lines), and the lanes beside its star."""

    above: tuple[str, ...]
    lanes: str


class LogGraph:
    """Draws a tree of checkpoints from the newest down; each lane waits for the parent of what it last showed."""

    def __init__(self, is_deleted: Callable[[str], bool] = lambda _id: False) -> None:
        self._lanes: list[str] = []
        self._is_deleted = is_deleted

    def row(self, checkpoint: str, parent: str | None) -> Row:
        """Place the next checkpoint, and return how it is drawn."""
        above: list[str] = []
        waiting = [i for i, wanted in enumerate(self._lanes) if wanted == checkpoint]
        if not waiting and (lane := self._broken_lane()) is not None:
            above.append(self._drawn(lane, ":"))
            waiting = [lane]
        if not waiting:
            self._lanes.append(checkpoint)
            waiting = [len(self._lanes) - 1]
        here, *others = waiting
        for lane in reversed(others):
            above.append(self._joining(here, lane))
            del self._lanes[lane]
        lanes = self._drawn(here, "*")
        if parent is None:
            del self._lanes[here]
        else:
            self._lanes[here] = parent
        return Row(tuple(above), lanes)

    def _broken_lane(self) -> int | None:
        """Return the lane whose next checkpoint was deleted, so that what comes now stands below it."""
        return next((i for i, wanted in enumerate(self._lanes) if self._is_deleted(wanted)), None)

    def _drawn(self, here: int, sign: str) -> str:
        return " ".join(sign if i == here else "|" for i in range(len(self._lanes)))

    def _joining(self, here: int, lane: int) -> str:
        """Draw a lane that ends in an earlier one: `|/`, or `|_|/` past others; lanes to its right move up."""
        left = "".join("|" + (" " if i < here else "_") for i in range(lane - 1))
        right = "".join(" /" for _ in range(len(self._lanes) - lane - 1))
        return f"{left}|/{right}"
