"""A log of a run: records that are added and never changed, kept in sections of bounded size.

The first section has the log's name, the next `name.2`, `name.3`; a full one is carried over from checkpoint to
checkpoint at no cost.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.encode.appended import Appended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SEGMENT_BYTES = 8 * 1024 * 1024
_SETTLED_BYTES = 256 * 1024  # a section of this size that another process wrote is not begun anew to add to it


def segment_names(log: str, sections: Iterable[str]) -> list[str]:
    """Return those of these sections that hold a log, in its order."""
    found = {name for name in sections if name == log or _number(log, name)}
    return sorted(found, key=lambda name: _number(log, name))


def _number(log: str, name: str) -> int:
    head, _, tail = name.partition(".")
    return int(tail) if head == log and tail.isdecimal() else 0


class StoredSegment(NamedTuple):
    """One section of a log, as a checkpoint has it."""

    items: list[Any]
    size_bytes: int


class Segment:
    """One section of a log, as a live object."""

    def __init__(self, items: list[Any], before: int) -> None:
        self.items = items
        self.before = before
        self.size_bytes = 0

    @property
    def changes(self) -> int:
        """How many records there are: it only grows, so this tells whether there are new ones."""
        return len(self.items)

    def snapshot(self) -> Appended:
        """Return what is in it now."""
        return Appended(self.items, before=self.before)

    def restore(self, value: Any) -> None:
        """Take the records of a checkpoint instead."""
        self.items = list(value)


class Log:
    """All records of one log; threads may add at once."""

    def __init__(self, name: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.name = name
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._segments = [Segment([], 0)]
        self._attach: Callable[[str, Segment], None] | None = None
        self._attached = 0

    def attach(self, register: Callable[[str, Segment], None], stored: Mapping[str, StoredSegment]) -> None:
        """Become sections of a run, with the records that its head has."""
        before, segments = 0, []
        for name in segment_names(self.name, stored):
            segment = Segment(list(stored[name].items), before)
            segment.size_bytes = stored[name].size_bytes
            segments.append(segment)
            before += len(segment.items)
        if not segments or segments[-1].size_bytes > _SETTLED_BYTES:
            segments.append(Segment([], before))
        self._segments = segments
        self._attach = register
        for number, segment in enumerate(segments, 1):
            register(self._section(number), segment)
        self._attached = len(segments)

    def add(self, record: dict[str, Any], size_bytes: int = 0) -> int:
        """Add a record and return how many there are."""
        with self._lock:
            last = self._segments[-1]
            if last.size_bytes + size_bytes > self._segment_bytes and last.items:
                last = Segment([], last.before + len(last.items))
                self._segments.append(last)
            last.items.append(record)
            last.size_bytes += size_bytes
            count, number = last.before + len(last.items), len(self._segments)
        if self._attach is not None and self._attached < number:
            # Outside our lock, because it takes the run's, whose holder may be about to add. Whoever adds meanwhile
            # attaches it, too: a record is in a section before its writer goes on.
            self._attach(self._section(number), last)
            self._attached = max(self._attached, number)
        return count

    def __len__(self) -> int:
        last = self._segments[-1]
        return last.before + len(last.items)

    def records(self) -> list[dict[str, Any]]:
        """Return every record, oldest first."""
        with self._lock:
            return [record for segment in self._segments for record in segment.items]

    def _section(self, number: int) -> str:
        return self.name if number == 1 else f"{self.name}.{number}"
