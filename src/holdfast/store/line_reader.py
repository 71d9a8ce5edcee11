"""Rows of a run and one of its lines: read, checked against the rest of the store, and remembered from the last commit.

A line is stale if there are later checkpoints or records than its row says, or if the medium's witness file (`heads`)
has seen it further along.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import IntegrityError, NotFound, RunCorrupt
from holdfast.store.codec import LARGEST_NUMBER, shown
from holdfast.store.heads import ENTRIES, MARKS, Head
from holdfast.store.medium import first_cells
from holdfast.store.repeat import repeated
from holdfast.store.tables import CHECKPOINT, INBOX, LEASE, LINE, MAIN, RECORD, RUN, LineRow, RunRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.codec import RowCodec
    from holdfast.store.heads import Heads
    from holdfast.store.medium import Medium, Reader
    from holdfast.store.tables import CheckpointRow

NUMBERS = 1 << 31
"""Runs and lines have numbers below this."""


class KnownLine(NamedTuple):
    """A run and one of its lines as they were last seen, with their seals."""

    run: RunRow | None
    run_seal: bytes | None
    line: LineRow | None
    line_seal: bytes | None
    lease_seal: bytes | None = None


class LineReader:
    """Reads the lines of one store, and remembers how the last commit left them."""

    def __init__(self, medium: Medium, codec: RowCodec, entropy: Callable[[int], bytes]) -> None:
        self.medium = medium
        self.codec = codec
        self.heads: Heads | None = getattr(medium, "heads", None)
        self.entropy = entropy
        self._known: dict[tuple[str, str], KnownLine] = {}
        self._lock = threading.Lock()

    def new_number(self) -> int:
        """Return a number for a new run or line."""
        return int.from_bytes(self.entropy(4), "big") % NUMBERS

    def read(self, reader: Reader, run: str, line: str = MAIN) -> KnownLine:
        """Return a run and a line as they are stored; RunCorrupt if a row is damaged, gone or older than the rest."""
        run_row, line_row = reader.get(RUN, (run,)), reader.get(LINE, (run, line))
        head: LineRow | None = None if line_row is None else self.codec.open(LINE, line_row)
        owner: RunRow | None = None if run_row is None else self.codec.open(RUN, run_row)
        last_seq, number = (head.last_seq, head.number) if head else (0, 0)
        if reader.scan(CHECKPOINT, (run, line), low=last_seq + 1, high=LARGEST_NUMBER, limit=1):
            stale = f"its record ends at {last_seq}, and there are later checkpoints: it is stale"
            raise RunCorrupt(stale if head else "its record vanished while its checkpoints are there", run)
        if head is not None and reader.scan(RECORD, (head.n,), low=number + 1, limit=1):
            raise RunCorrupt(f"its journal ends at {number}, and there are later records: it is stale", run)
        if head is not None and owner is None:
            raise RunCorrupt("its record vanished while its checkpoints are there", run)
        if head is not None and owner is not None and owner.version < head.run_version:
            raise RunCorrupt(f"its record is version {owner.version}, and was {head.run_version}: it is stale", run)
        if self.heads is not None:
            self._check_tail(self.heads, run, line, head)
            self._check_witness(self.heads, reader, run, f"{MARKS}{line}")
        return KnownLine(
            owner, run_row[-1] if run_row else None, head, line_row[-1] if line_row else None  # type: ignore[arg-type]
        )  # fmt: skip

    def existing(self, reader: Reader, run: str, line: str = MAIN) -> tuple[RunRow, LineRow]:
        """Return a run and a line; NotFound if there is none."""
        known = self.read(reader, run, line)
        if known.run is None or known.line is None:
            raise NotFound("run", run)
        return known.run, known.line

    def read_for_commit(self, reader: Reader, run: str, line: str) -> KnownLine:
        """Return a run and a line, and for a new line the seal of the lease that was taken before it."""
        found = self.read(reader, run, line)
        lease = reader.get(LEASE, (run, line)) if found.line is None else None
        return found if lease is None else found._replace(lease_seal=lease[-1])  # type: ignore[arg-type]

    @repeated
    def look_up(self, run: str, line: str) -> KnownLine:
        """Read a line for a commit, in a look of its own."""
        with self.medium.read() as reader:
            return self.read_for_commit(reader, run, line)

    def names(self, reader: Reader, run: str) -> list[str]:
        """Return the lines that a run has a row or checkpoints of."""
        names = [row[1] for row in reader.scan(LINE, (run,))]
        return list(dict.fromkeys(map(shown, [*names, *first_cells(reader, CHECKPOINT, (run,))])))

    def remembered(self, run: str, line: str) -> KnownLine | None:
        """Return a line as the last commit of this process left it; others may have moved it since."""
        return self._known.get((run, line))

    def remember(self, known: KnownLine) -> None:
        """Keep what a commit made, and witness it."""
        line = known.line
        assert line is not None
        with self._lock:
            self._known[line.run, line.name] = known
        if self.heads is not None:
            self.heads.advance(Head(line.run, line.name, line.number, line.last_seq))

    def witness_entry(self, run: str, number: int) -> None:
        """Witness an entry of an inbox."""
        if self.heads is not None:
            self.heads.advance(Head(run, ENTRIES, number, 0))

    def witness_mark(self, row: CheckpointRow) -> None:
        """Witness that a checkpoint was marked."""
        if self.heads is not None:
            self.heads.advance(Head(row.run, f"{MARKS}{row.line}", row.marked, row.seq))

    def check_inbox(self, reader: Reader, run: str) -> None:
        """Raise RunCorrupt if a run's inbox ends before what was acknowledged."""
        if self.heads is not None:
            self._check_witness(self.heads, reader, run, ENTRIES)

    def check_witnessed(self, reader: Reader, head: Head) -> None:
        """Raise RunCorrupt if what an entry of the witness file stands for is not there any more."""
        if self.heads is not None and head.line.startswith((ENTRIES, MARKS)):
            self._check_witness(self.heads, reader, head.run, head.line)
        else:
            self.read(reader, head.run, head.line)

    def forget(self, run: str, line: str | None = None) -> None:
        """Forget a line, or all lines of a run: they are read again."""
        with self._lock:
            for place in [place for place in self._known if place[0] == run and line in (None, place[1])]:
                del self._known[place]

    def _check_tail(self, heads: Heads, run: str, line: str, head: LineRow | None) -> None:
        """Raise RunCorrupt if a line ends before what was acknowledged: the medium has lost its tail."""
        seen = heads.of(run, line)
        while seen is not None and _is_short(head, seen):
            # What was read may be older than the witness: only a look that begins after it decides.
            with self.medium.fresh() as reader:
                row = reader.get(LINE, (run, line))
            head = None if row is None else self.codec.open(LINE, row)
            before, seen = seen, heads.of(run, line)
            if seen == before and _is_short(head, seen):
                records = max(0, seen.number - (head.number if head else 0))
                checkpoints = max(0, seen.seq - (head.last_seq if head else 0))
                raise RunCorrupt(
                    f"its last {records} records and {checkpoints} checkpoints were stored and are missing: the end "
                    "of the store's log was lost, or an older copy was put in its place",
                    run,
                )

    def _check_witness(self, heads: Heads, reader: Reader, run: str, what: str) -> None:
        """Raise RunCorrupt if the last entry of an inbox, or the last mark, is not there any more."""
        seen = heads.of(run, what)
        while seen is not None and (lost := self._lost(reader, seen)) is not None:
            with self.medium.fresh() as later:  # as for a line: what was read may be older than the witness
                lost = self._lost(later, seen)
            before, seen = seen, heads.of(run, what)
            if seen == before and lost is not None:
                raise RunCorrupt(
                    f"{lost}: the end of the store's log was lost, or an older copy was put in its place", run
                )

    def _lost(self, reader: Reader, seen: Head) -> str | None:
        """Return what is missing of an inbox or of a checkpoint's marks, None if nothing is."""
        if seen.line == ENTRIES:
            rows = reader.scan(INBOX, (seen.run,), reverse=True, limit=1)
            missing = seen.number - (int(rows[0][1]) if rows else 0)  # type: ignore[arg-type]
            return f"the last {missing} messages to it were stored and are missing" if missing > 0 else None
        row = reader.get(CHECKPOINT, (seen.run, seen.line.removeprefix(MARKS), seen.seq))
        if row is None:
            return None  # deleted since
        try:
            marked = self.codec.open(CHECKPOINT, row).marked
        except IntegrityError:
            return None  # damage of its own, which has a name
        missing = seen.number - marked
        told = f"{missing} changes of the marks of checkpoint {seen.seq} were stored and are missing"
        return told if missing > 0 else None


def _is_short(line: LineRow | None, seen: Head) -> bool:
    """Tell whether a line ends before what was witnessed of it."""
    return (line.number if line else 0) < seen.number or (line.last_seq if line else 0) < seen.seq
