"""The feed: committed records and checkpoints of any process, in the order of each line, from a cursor on.

A cursor is a number per line: numbers are given by compare-and-set, so they have no gaps, and what was committed while
nobody followed is found as well as what is committed now. Between two looks no transaction is open.
"""

from __future__ import annotations

import json
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from holdfast.errors import NotFound, UsageError
from holdfast.model.ids import check_run_id, is_reserved
from holdfast.store.tables import LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow, Record

END = "end"
"""The cursor after everything that is there now."""
_decode = msgspec.json.Decoder(list[tuple[str, str, int, int, int]]).decode
_PAGE = 256
_LOOK_EVERY_S = 0.05
_LOOK_AT_LEAST_EVERY_S = 0.4


class FeedItem(NamedTuple):
    """One thing that was committed: a record, or a checkpoint that follows the record of its number."""

    run: str
    line: str
    number: int
    record: Record | None = None
    checkpoint: CheckpointRecord | None = None


class _Seen(NamedTuple):
    """How far a line was read: which line it was, its last record and its last checkpoint."""

    n: int = 0
    number: int = 0
    seq: int = 0


class Feed:
    """An iterator over what is committed; `cursor` is where the next one would continue."""

    def __init__(
        self,
        store: Store,
        runs: Iterable[str] | None,
        after: str | None,
        *,
        wait_s: float | None = None,
    ) -> None:
        self._store = store
        self._runs = None if runs is None else [check_run_id(run) for run in runs]
        self._wait_s = wait_s
        self._seals: dict[tuple[str, str], Any] = {}
        self._seen: dict[tuple[str, str], _Seen] = {} if after in (None, END) else _parsed(after)
        if after == END:
            self._seen = {(line.run, line.name): _Seen(line.n, line.number, line.last_seq) for line in self._moved()}
        self._items = self._endless()

    @property
    def cursor(self) -> str:
        """What has been handed out so far, as text for `after`."""
        return json.dumps([[run, line, *seen] for (run, line), seen in sorted(self._seen.items())])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FeedItem:
        return next(self._items)

    def ready(self) -> Iterator[FeedItem]:
        """Yield what is committed by now, and end; IntegrityError at the first damaged record."""
        for line in self._moved():
            place = (line.run, line.name)
            seen = self._seen.get(place, _Seen())
            if seen.n != line.n:
                seen = _Seen(line.n)  # another run was begun under its name
            try:
                yield from self._line(place, line, seen)
            except NotFound:
                continue  # deleted meanwhile
            finally:
                if self._seen.get(place, _Seen())[1:] != (line.number, line.last_seq):
                    self._seals.pop(place, None)  # not read to its end: it is looked at again

    def _endless(self) -> Iterator[FeedItem]:
        pause, idle_since = _LOOK_EVERY_S, time.monotonic()
        while True:
            found = False
            for item in self.ready():
                found = True
                yield item
            if found:
                pause, idle_since = _LOOK_EVERY_S, time.monotonic()
            if self._wait_s is not None and time.monotonic() - idle_since >= self._wait_s:
                return
            time.sleep(pause)
            pause = min(pause * 1.3, _LOOK_AT_LEAST_EVERY_S)

    def _moved(self) -> Iterator[LineRow]:
        """Yield the lines whose row is not the one that was last looked at."""
        codec = self._store.codec
        with self._store.medium.read() as reader:
            if self._runs is None:
                rows = reader.scan(LINE)
            else:
                rows = list(chain.from_iterable(reader.scan(LINE, (run,)) for run in self._runs))
        for row in rows:
            run, name = str(row[0]), str(row[1])
            if is_reserved(run) or self._seals.get((run, name)) == row[-1]:
                continue
            line: LineRow = codec.open(LINE, row)
            self._seals[run, name] = row[-1]
            yield line

    def _line(self, place: tuple[str, str], line: LineRow, seen: _Seen) -> Iterator[FeedItem]:
        """Yield what a line has since it was last read: each checkpoint after the record that it stands at."""
        checkpoints = self._checkpoints(line, seen.seq)
        while seen.number < line.number:
            records = self._store.journal.records(line, low=seen.number + 1, limit=_PAGE)
            for record in records:
                while checkpoints and checkpoints[0].number < record.number:
                    seen = self._passed(place, seen._replace(seq=checkpoints[0].envelope.seq))
                    yield FeedItem(*place, checkpoints[0].number, checkpoint=checkpoints.pop(0))
                seen = self._passed(place, seen._replace(number=record.number))
                yield FeedItem(*place, record.number, record=record)
            if len(records) < _PAGE:
                seen = self._passed(place, seen._replace(number=line.number))  # what compaction removed is passed over
        for checkpoint in checkpoints:
            seen = self._passed(place, seen._replace(seq=checkpoint.envelope.seq))
            yield FeedItem(*place, checkpoint.number, checkpoint=checkpoint)
        self._passed(place, seen._replace(seq=line.last_seq))  # those that were deleted since are passed over

    def _passed(self, place: tuple[str, str], seen: _Seen) -> _Seen:
        self._seen[place] = seen
        return seen

    def _checkpoints(self, line: LineRow, after: int) -> list[CheckpointRecord]:
        """Return a line's checkpoints after a number, oldest first."""
        found: list[CheckpointRecord] = []
        before: int | None = line.last_seq + 1
        while before is not None and before > after + 1:
            listed = self._store.checkpoints(line.run, limit=_PAGE, before_seq=before, line=line.name)
            newer = [one for one in listed if one.envelope.seq > after]
            found += newer
            if listed.damaged:
                raise listed.damaged[0]
            before = newer[-1].envelope.seq if len(newer) == _PAGE else None
        return found[::-1]


def _parsed(cursor: str | None) -> dict[tuple[str, str], _Seen]:
    """Return what a cursor says; UsageError if it is none."""
    try:
        rows = _decode(cursor or "")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(
            f"this is not a cursor of a feed ({error!s:.100}): give one of `feed.cursor`, or none"
        ) from None
    return {(run, line): _Seen(n, number, seq) for run, line, n, number, seq in rows}
