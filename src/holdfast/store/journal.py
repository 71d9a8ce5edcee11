"""The journal of a line: records by number, path and key, compaction, and a walk that checks rows and their chain."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import HeadMoved, IntegrityError, NotFound, RunCorrupt
from holdfast.store.medium import first_cells
from holdfast.store.ranges import cut, spans
from holdfast.store.repeat import repeated
from holdfast.store.tables import GAP, LINE, MAIN, RECORD, GapRow, LineRow, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from holdfast.store.codec import RowCodec
    from holdfast.store.line_reader import LineReader
    from holdfast.store.medium import Medium, Reader
    from holdfast.store.tables import Row

_PAGE = 500


class ChainStep(NamedTuple):
    """One piece of a journal: a record, or the gap that compaction left; or what is wrong where one should be."""

    first: int
    last: int
    item: Record | GapRow | None
    fault: IntegrityError | None


def open_record(codec: RowCodec, line: LineRow, row: Row) -> Record:
    """Return a record; damage is named with the run and the record's number."""
    try:
        record: Record = codec.open(RECORD, row)
    except IntegrityError as error:
        raise RunCorrupt(f"record #{row[1]!s} of its journal: {error.detail}", line.run) from error
    return record


class LineJournal:
    """The journals of one store's lines."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines
        self._medium = lines.medium
        self._codec = lines.codec

    @repeated
    def records(
        self, line: LineRow, *, low: int = 1, high: int | None = None, limit: int | None = None, reverse: bool = False
    ) -> list[Record]:
        """Return records by number, those of left segments too; IntegrityError at the first damaged or missing one."""
        low, high = max(low, 1), line.number if high is None else min(high, line.number)
        with self._medium.read() as reader:
            rows = reader.scan(RECORD, (line.n,), low=low, high=high, limit=limit, reverse=reverse)
            records = [open_record(self._codec, line, row) for row in rows]
            found = [record.number for record in records]
            if limit is not None and len(found) == limit:
                low, high = (found[-1], high) if reverse and found else (low, found[-1] if found else 0)
            is_complete = len(found) > high - low
            missing = None if is_complete else self._first_missing(reader, line, found, low, high)
            present = line if missing is None else self._lines.read(reader, line.run, line.name).line
        if present is None or present.n != line.n:
            raise NotFound("run", line.run)  # it was deleted since its line was read
        if missing is None:
            return records
        raise RunCorrupt(f"record #{missing} of its journal vanished", line.run)

    def _first_missing(self, reader: Reader, line: LineRow, found: Sequence[int], low: int, high: int) -> int | None:
        """Return the first number between two that is not found and that no compaction removed, None if all are."""
        spans = [(number, number) for number in found]
        for row in reader.scan(GAP, (line.n,), high=high):
            gap: GapRow = self._codec.open(GAP, row)
            spans.append((gap.first, gap.last))
        following = low
        for first, last in sorted(spans):
            if first > following:
                break
            following = max(following, last + 1)
        return following if following <= high else None

    @repeated
    def newest(self, line: LineRow, path: str, *, upto: int | None = None) -> Record | None:
        """Return the newest record of a path on the line's present segments, up to a number."""
        for record in self._by("path", line, path, upto=upto, reverse=True):
            return record
        return None

    @repeated
    def keyed(self, line: LineRow, key: str, *, upto: int | None = None) -> Record | None:
        """Return the newest record with this key on the line's present segments, up to a number."""
        for record in self._by("key", line, key, upto=upto, reverse=True):
            return record
        return None

    @repeated
    def lines_with(self, key: str) -> list[LineRow]:
        """Return the lines, of any run, that have a record with this key."""
        cell = self._codec.cell(RECORD, "key", key)
        found: list[LineRow] = []
        with self._medium.read() as reader:
            for number in first_cells(reader, RECORD, (cell,), index="record_key"):
                rows = reader.scan(LINE, (number,), index="line_n", limit=1)
                found += [self._codec.open(LINE, row) for row in rows]
        return [line for line in found if self.keyed(line, key) is not None]

    def with_key(self, line: LineRow, key: str, *, after: int = 0) -> Iterator[Record]:
        """Yield the records with a key after a number, on left segments too, in order."""
        everything = msgspec.structs.replace(line, ranges=((after + 1, line.number),))
        return self._by("key", everything, key, upto=None, reverse=False)

    def of_path(self, line: LineRow, path: str, *, reverse: bool = False) -> Iterator[Record]:
        """Yield the records of a path on the line's present segments, in order."""
        return self._by("path", line, path, reverse=reverse)

    @repeated
    def of_paths(self, line: LineRow, paths: Iterable[str]) -> dict[str, list[Record]]:
        """Return the records of several paths, each in order, all as of one moment."""
        with self._medium.read() as reader:
            return {path: list(self._by("path", line, path, reader=reader)) for path in paths}

    def _by(
        self, column: str, line: LineRow, text: str, *, upto: int | None = None, reverse: bool = False,
        reader: Reader | None = None,
    ) -> Iterator[Record]:  # fmt: skip
        cell = self._codec.cell(RECORD, column, text)
        last = line.number if upto is None else upto
        ranges = cut(line.ranges, last)
        most = 1 if reverse else 256
        for first, end in reversed(ranges) if reverse else ranges:
            low, high = first, end
            while low <= high:
                with self._medium.read() if reader is None else nullcontext(reader) as moment:
                    rows = moment.scan(
                        RECORD, (cell, line.n), index=f"record_{column}", low=low, high=high, reverse=reverse,
                        limit=most,
                    )  # fmt: skip
                for row in rows:
                    record = open_record(self._codec, line, row)
                    if getattr(record, column) == text:
                        yield record
                number = int(rows[-1][1]) if rows else low  # type: ignore[arg-type]
                if not low <= number <= high:
                    raise RunCorrupt(f"the index of its journal leads from #{low} to #{number}", line.run)
                if len(rows) < most:
                    break
                low, high = (low, number - 1) if reverse else (number + 1, high)

    @repeated
    def gaps(self, line: LineRow) -> list[GapRow]:
        """Return what compaction removed from a line, lowest number first."""
        with self._medium.read() as reader:
            return [self._codec.open(GAP, row) for row in reader.scan(GAP, (line.n,))]

    @repeated
    def compact(self, run: str, numbers: Collection[int], *, line: str = MAIN) -> None:
        """Remove records of a line, and leave gaps that keep the chain checkable; HeadMoved if the line is gone."""
        with self._medium.write(erase=True) as transaction:
            transaction.lock(run)
            head = self._lines.existing(transaction, run, line)[1]
            for first, last in spans(sorted(numbers)):
                rows = transaction.scan(RECORD, (head.n,), low=first, high=last)
                opened = [self._codec.open(RECORD, row) for row in rows]
                if [one.number for one in opened] != list(range(first, last + 1)):
                    raise HeadMoved(run, f"{run}#{first}..{last}", head.head)
                gap = GapRow(line=head.n, first=first, last=last, prev=opened[0].prev, seal=rows[-1][-1])  # type: ignore[arg-type]
                for number in range(first, last + 1):
                    transaction.drop(RECORD, (head.n, number))
                transaction.put(GAP, self._codec.close(GAP, gap))

    def walk(self, line: LineRow) -> Iterator[ChainStep]:
        """Yield a line's journal in order, every row, the chain that joins them and its end checked."""
        return JournalWalk(self._medium, self._codec, line).steps()


class JournalWalk:
    """One walk over a line as it was when its row was read; what compaction removes meanwhile is passed over."""

    def __init__(self, medium: Medium, codec: RowCodec, line: LineRow) -> None:
        self._medium = medium
        self._codec = codec
        self._line = line
        self._number = 1
        self._chain: bytes | None = b""
        """The seal that the next piece must follow; None after damage: there is nothing to compare it with."""

    def steps(self) -> Iterator[ChainStep]:
        """Yield the journal in order; what is damaged, lost or out of order is named in its place, the rest follows."""
        line = self._line
        while self._number <= line.number:
            found = self._next()
            if found is None:
                return  # the line was deleted meanwhile
            for first, row, is_gap in found:
                if first > self._number:
                    yield self._lost(first - 1)
                if first <= line.number:
                    yield self._step(first, row, is_gap=is_gap)
        is_end = self._chain == line.chain and self._number == line.number + 1
        if self._chain is not None and not is_end:
            yield self._fault(self._number, "its journal does not end as its line says")
        yield from self._outside()

    def _outside(self) -> Iterator[ChainStep]:
        """Find rows before the first number and after the last one that the line has by now."""
        line = self._line
        with self._medium.read() as reader:
            row = reader.get(LINE, (line.run, line.name))
            last = 0 if row is None else self._codec.open(LINE, row).number
            found = [
                (int(one[1]), table.name)  # type: ignore[arg-type]
                for table in (RECORD, GAP)
                for bounds in ({"high": 0}, {"low": last + 1})
                for one in (reader.scan(table, (line.n,), **bounds, limit=_PAGE) if row is not None else ())
            ]
        for number, name in found:
            yield self._fault(number, f"{name} #{number} stands outside of its journal")

    def _next(self) -> list[tuple[int, Row, bool]] | None:
        """Return the next pieces by number, as far as records and gaps are both known; at the end, its number."""
        line, end = self._line, self._line.number
        with self._medium.read() as reader:
            found: list[tuple[int, Row, bool]] = []
            for table in (RECORD, GAP):
                rows = reader.scan(table, (line.n,), low=self._number, high=line.number, limit=_PAGE)
                found += [(int(row[1]), row, table is GAP) for row in rows]  # type: ignore[arg-type]
                end = min(end, found[-1][0]) if len(rows) == _PAGE else end
            found = sorted((one for one in found if one[0] <= end), key=lambda one: (one[0], not one[2]))
            if found and found[0][0] == self._number:
                return found
            present = reader.get(LINE, (line.run, line.name))
            if present is None or present[2] != line.n:
                return None
            gap = self._gap_over(reader)
            if gap is not None:
                self._number, self._chain = gap.last + 1, gap.seal
                return []
        return found or [(line.number + 1, (), False)]

    def _gap_over(self, reader: Reader) -> GapRow | None:
        """Return a gap that begins before the next number and reaches it: compaction made it since that was passed."""
        for row in reader.scan(GAP, (self._line.n,), high=self._number - 1, reverse=True, limit=1):
            try:
                gap: GapRow = self._codec.open(GAP, row)
            except IntegrityError:
                return None
            return gap if gap.last >= self._number else None
        return None

    def _step(self, first: int, row: Row, *, is_gap: bool) -> ChainStep:
        """Return the piece at the next number, and continue behind it."""
        if first < self._number:
            return self._fault(first, f"record #{first} of its journal stands in a gap")
        try:
            item: Any = self._codec.open(GAP, row) if is_gap else open_record(self._codec, self._line, row)
        except IntegrityError as error:
            self._number, self._chain = first + 1, None
            return self._fault(first, error.detail)
        last = item.last if is_gap else first
        if last < first:
            self._number, self._chain = first + 1, None
            return self._fault(first, f"the gap at #{first} of its journal ends before it begins")
        follows = self._chain in (None, item.prev)
        self._number, self._chain = last + 1, item.seal if is_gap else row[-1]  # type: ignore[assignment]
        wrong = RunCorrupt(f"record #{first} of its journal does not follow the one before it", self._line.run)
        return ChainStep(first, last, item, None if follows else wrong)

    def _lost(self, last: int) -> ChainStep:
        first, self._number, self._chain = self._number, last + 1, None
        what = f"record #{first} of its journal" if first == last else f"records #{first}..#{last} of its journal"
        return ChainStep(first, last, None, RunCorrupt(f"{what} vanished", self._line.run))

    def _fault(self, number: int, detail: str) -> ChainStep:
        return ChainStep(number, number, None, RunCorrupt(detail, self._line.run))
