"""Queries: lists of runs and checkpoints by what their rows say, newest first, a page at a time; no payload is read.

Values are bound, never text of a query. What has a list column (status, trigger, phase, key, times) is compared there:
in an encrypted store by its keyed digest. Text and attributes are read from the rows that are left. A page reads as
many rows as it takes to fill it; the order of runs by their last move is exact to a few seconds from page to page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from holdfast.errors import IntegrityError, NotFound, UsageError
from holdfast.model.ids import is_reserved
from holdfast.model.nearest import hint
from holdfast.store import envelopes
from holdfast.store.api import Listing
from holdfast.store.commit import MOVED_EVERY_S
from holdfast.store.repeat import repeated
from holdfast.store.tables import CHECKPOINT, MAIN, RUN, LineRow, RunRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.codec import RowCodec
    from holdfast.store.line_reader import LineReader
    from holdfast.store.medium import Reader
    from holdfast.store.tables import Cell, Row, Scalar, Table

_PAGE = 200
_FEW = 8
_MOST_TOGETHER = 50  # runs that moved in the same few seconds, and are looked at for the last of them
_MOST_ATTRIBUTES = 64
_LONGEST_NAME = 200
_LONGEST_VALUE = 1_000
_AFTER_ALL = "\U0010ffff"


class RunFilters(TypedDict, total=False):
    """Which runs are listed; all that is given must hold."""

    status: str | None
    """How it stands: running, waiting, completed, failed, cancelled ..."""
    key: str | None
    """The caller's key."""
    prefix: str | None
    """How its id begins."""
    text: str | None
    """A text in its id, key, status or attributes, in any case."""
    attributes: Mapping[str, Scalar] | None
    """Attributes that it has with these very values."""
    since: datetime | None
    """Moved at this time or later."""
    until: datetime | None
    """Moved before this time for the last time."""


class CheckpointFilters(TypedDict, total=False):
    """Which checkpoints are listed; all that is given must hold."""

    trigger: str | None
    phase: str | None
    status: str | None
    """valid, archived, expired, corrupted"""
    key: str | None
    """The caller's key."""
    prefix: str | None
    """How its key, its label or its id begins."""
    text: str | None
    """A text in its reason, label, phase, key or attributes, in any case."""
    attributes: Mapping[str, Scalar] | None
    """Attributes that it has with these very values."""
    since: datetime | None
    """Taken at this time or later."""
    until: datetime | None
    """Taken before this time."""


def checked_filters(filters: Mapping[str, Any], known: type) -> dict[str, Any]:
    """Return the filters that are given; UsageError for one that there is not, or whose value cannot be compared."""
    names = known.__annotations__
    for name, value in filters.items():
        if name not in names:
            raise UsageError(f"a list has no filter {name!r}: {hint(name, names)}")
        if value is None:
            continue
        if name == "attributes":
            check_attributes(value)
        elif name in ("since", "until"):
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise UsageError(f"{name}={value!r}: give a time with its zone, datetime.now(UTC) - timedelta(days=1)")
        elif not isinstance(value, str):
            raise UsageError(f"{name}={value!r}: give a text")
    return {name: value for name, value in filters.items() if value is not None}


def check_attributes(attributes: object) -> dict[str, Scalar]:
    """Return attributes that can be stored: names with small scalars; UsageError otherwise."""
    if not isinstance(attributes, Mapping):
        raise UsageError(f"attributes={attributes!r:.80}: give names with values, {{'issue': 12}}")
    if len(attributes) > _MOST_ATTRIBUTES:
        raise UsageError(
            f"{len(attributes)} attributes: {_MOST_ATTRIBUTES} at most; what is larger belongs into state="
        )
    for name, value in attributes.items():
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise UsageError(f"attribute {name!r:.80}: a name has 1 to {_LONGEST_NAME} printable characters")
        if not (value is None or isinstance(value, (str, int, float))):
            raise UsageError(f"attribute {name!r}: {value!r:.80} is not a text, a number, True, False or None")
        if isinstance(value, str) and len(value) > _LONGEST_VALUE:
            raise UsageError(f"attribute {name!r}: {len(value):,} characters, and {_LONGEST_VALUE:,} at most are kept")
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"attribute {name!r}: {value} cannot be compared")
    return dict(attributes)


def cleaned_attributes(attributes: Mapping[str, Scalar], clean: Callable[[str], str]) -> dict[str, Scalar]:
    """Return attributes without secrets, judged by their names, too."""
    return {clean(name): _cleaned(name, value, clean) for name, value in attributes.items()}


def _cleaned(name: str, value: Scalar, clean: Callable[[str], str]) -> Scalar:
    if not isinstance(value, str):
        return value
    told = clean(f"{name}={value}")
    return clean(value) if told == f"{name}={value}" else told.removeprefix(f"{name}=")


def check_key(key: object) -> str | None:
    """Return a caller's key; UsageError if it is none."""
    if key is not None and (not isinstance(key, str) or not key.strip() or len(key) > _LONGEST_VALUE):
        raise UsageError(f"key={key!r:.80}: give a text of 1 to {_LONGEST_VALUE:,} characters")
    return key


class _Cursor(NamedTuple):
    """Where a list of runs continues: behind the run of this id that moved at this time."""

    moved: float
    run: str

    def __str__(self) -> str:
        return f"{self.moved!r}:{self.run}"


def _cursor(text: str | None) -> _Cursor | None:
    if text is None:
        return None
    moved, _, run = text.partition(":")
    try:
        return _Cursor(float(moved), run)
    except ValueError:
        raise UsageError(f"after={text!r:.80}: give the `after` of a page that was listed before") from None


class Queries:
    """Lists of one store."""

    def __init__(self, lines: LineReader, record_of: Callable[[RunRow, LineRow], RunRecord]) -> None:
        self._lines = lines
        self._medium = lines.medium
        self._record_of = record_of

    @property
    def _codec(self) -> RowCodec:
        return self._lines.codec

    @repeated
    def runs(
        self, filters: Mapping[str, Any], *, limit: int | None = None, after: str | None = None
    ) -> Listing[RunRecord]:
        """Return the runs that fit, the last moved first."""
        found: list[RunRecord] = []
        damaged: list[IntegrityError] = []
        start, last = _cursor(after), None
        wanted = limit if limit is not None else math.inf
        with self._medium.read() as reader:
            for row in self._by_move(reader, filters, start, page=_PAGE if limit is None else min(limit + 1, _PAGE)):
                if len(found) >= wanted:
                    break
                last = _Cursor(*_place(row))
                try:
                    run: RunRow = self._codec.open(RUN, row)
                    if not _fits_run(run, filters):
                        continue
                    found.append(self._record_of(*self._lines.existing(reader, run.id)))
                except IntegrityError as error:
                    damaged.append(error)
                except NotFound:
                    continue
            else:
                last = None
        found.sort(key=lambda one: one.updated_at, reverse=True)
        return Listing(found, damaged, str(last) if last is not None else None)

    @repeated
    def last_moved(self) -> Listing[RunRecord]:
        """Return the runs of which one moved last; the order of their rows is exact to a few seconds."""
        found: list[RunRecord] = []
        damaged: list[IntegrityError] = []
        first: float | None = None
        with self._medium.read() as reader:
            for row in islice(self._by_move(reader, {}, None, page=_FEW), _MOST_TOGETHER):
                moved = _place(row)[0]
                first = moved if first is None else first
                if moved < first - MOVED_EVERY_S:
                    break
                try:
                    found.append(self._record_of(*self._lines.existing(reader, str(row[0]))))
                except IntegrityError as error:
                    damaged.append(error)
        return Listing(found, damaged)

    def _by_move(
        self, reader: Reader, filters: Mapping[str, Any], start: _Cursor | None, *, page: int
    ) -> Iterator[Row]:
        """Yield the rows of runs that may fit, the last moved first; what can be told from cells is."""
        since, until = (filters[name].timestamp() if name in filters else None for name in ("since", "until"))
        cells = self._cells(RUN, filters, ("status", "key"))
        for row in self._candidates(reader, filters, start, since, page):
            place = _place(row)
            if (
                not is_reserved(place[1])
                and place[1].startswith(filters.get("prefix", ""))
                and (start is None or place < start)
                and (since is None or place[0] >= since)
                and (until is None or place[0] < until)
                and all(row[column] == cell for column, cell in cells)
            ):
                yield row

    def _candidates(
        self, reader: Reader, filters: Mapping[str, Any], start: _Cursor | None, since: float | None, page: int
    ) -> Iterator[Row]:
        if "key" in filters:
            prefix = (self._codec.cell(RUN, "project", ""), self._codec.cell(RUN, "key", filters["key"]))
            return iter(sorted(reader.scan(RUN, prefix, index="run_key"), key=_place, reverse=True))
        if "prefix" in filters:
            low = filters["prefix"]
            return iter(sorted(reader.scan(RUN, low=low, high=low + _AFTER_ALL), key=_place, reverse=True))
        high = start.moved if start is not None else None
        if "status" in filters:
            cell = self._codec.cell(RUN, "status", filters["status"])
            return _down(reader, (cell,), "run_status", low=since, high=high, page=page)
        return _down(reader, (), "run_updated", low=since, high=high, page=page)

    def _cells(self, table: Table, filters: Mapping[str, Any], names: Iterable[str]) -> list[tuple[int, Cell]]:
        """Return the columns that filters are compared in, with what each must hold."""
        columns = [column.name for column in table.all_columns]
        return [
            (columns.index(name), self._codec.cell(table, name, filters[name])) for name in names if name in filters
        ]

    @repeated
    def checkpoints(
        self,
        run: str,
        filters: Mapping[str, Any],
        *,
        limit: int | None = None,
        before_seq: int | None = None,
        line: str = MAIN,
    ) -> Listing[CheckpointRecord]:
        """Return the checkpoints of a line that fit, highest number first."""
        found: list[CheckpointRecord] = []
        damaged: list[IntegrityError] = []
        wanted = limit if limit is not None else math.inf
        cells = self._cells(CHECKPOINT, filters, ("phase", "status", "key"))
        taken = [column.name for column in CHECKPOINT.all_columns].index("created_at")
        since, until = (filters[name].timestamp() if name in filters else None for name in ("since", "until"))
        with self._medium.read() as reader:
            for row in self._by_number(reader, run, line, filters, before_seq):
                if len(found) >= wanted:
                    break
                at = row[taken]
                if (
                    (since is not None and not (isinstance(at, float) and at >= since))
                    or (until is not None and not (isinstance(at, float) and at < until))
                    or any(row[column] != cell for column, cell in cells)
                ):
                    continue
                try:
                    record = envelopes.read_checkpoint(self._codec, row)
                except IntegrityError as error:
                    damaged.append(error)
                    continue
                if _fits_checkpoint(record, filters):
                    found.append(record)
        return Listing(found, damaged)

    def _by_number(
        self, reader: Reader, run: str, line: str, filters: Mapping[str, Any], before_seq: int | None
    ) -> Iterator[Row]:
        """Yield the rows of checkpoints, highest number first; by the index of triggers where one is asked for."""
        prefix: tuple[Cell, ...] = (run, line)
        index = None
        if "trigger" in filters:
            prefix, index = (*prefix, self._codec.cell(CHECKPOINT, "trigger", filters["trigger"])), "checkpoint_trigger"
        high = None if before_seq is None else before_seq - 1
        while high is None or high > 0:
            rows = reader.scan(CHECKPOINT, prefix, index=index, low=1, high=high, reverse=True, limit=_PAGE)
            yield from rows
            if len(rows) < _PAGE:
                return
            high = int(rows[-1][2]) - 1  # type: ignore[arg-type]


def _down(
    reader: Reader, prefix: tuple[Cell, ...], index: str, *, low: float | None, high: float | None, page: int
) -> Iterator[Row]:
    """Yield rows of runs by their last move, downwards, those of one moment by their id, so that pages fit together."""
    while True:
        rows = reader.scan(RUN, prefix, index=index, low=low, high=high, reverse=True, limit=page)
        if len(rows) < page or not rows:
            yield from sorted(rows, key=_place, reverse=True)
            return
        last = _place(rows[-1])[0]
        yield from sorted((row for row in rows if _place(row)[0] > last), key=_place, reverse=True)
        yield from sorted(reader.scan(RUN, prefix, index=index, low=last, high=last), key=_place, reverse=True)
        high, page = math.nextafter(last, -math.inf), min(page * 4, _PAGE)


_MOVED = [column.name for column in RUN.all_columns].index("updated_at")


def _place(row: Row) -> tuple[float, str]:
    """Return when a run moved, and its id; damage may have left anything there."""
    moved = row[_MOVED]
    return (float(moved) if isinstance(moved, (int, float)) else 0.0), str(row[0])


def _fits_run(run: RunRow, filters: Mapping[str, Any]) -> bool:
    texts = (run.id, run.key, run.status, *run.attributes.values())
    return _has(run.attributes, filters) and _says(texts, filters)


def _fits_checkpoint(record: CheckpointRecord, filters: Mapping[str, Any]) -> bool:
    envelope, label = record.envelope, record.marks.label
    begins = filters.get("prefix", "")
    texts = (envelope.reason, label, envelope.summary.phase, record.key, *record.attributes.values())
    return (
        (filters.get("archived", True) or record.marks.status != "archived")
        and ("trigger" not in filters or envelope.trigger == filters["trigger"])
        and any(name is not None and name.startswith(begins) for name in (record.key, label, envelope.id))
        and _has(record.attributes, filters)
        and _says(texts, filters)
    )


def _has(attributes: Mapping[str, Scalar], filters: Mapping[str, Any]) -> bool:
    """Tell whether attributes have these very values; 1, 1.0 and True are three of them."""
    wanted = filters.get("attributes", {})
    return all(
        name in attributes and attributes[name] == value and type(attributes[name]) is type(value)
        for name, value in wanted.items()
    )


def _says(texts: Iterable[object], filters: Mapping[str, Any]) -> bool:
    wanted = filters.get("text")
    return wanted is None or any(wanted.casefold() in str(text).casefold() for text in texts if text is not None)
