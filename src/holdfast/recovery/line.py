"""A run's checkpoints from the head back: along parents, past what was deleted and what is damaged.

Reads pages as they are asked for, and works without the run's own record where the store still gives checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import CheckpointCorrupt, IntegrityError, NotFound, RunCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.store import Store

_SMALLEST_PAGE, _LARGEST_PAGE = 4, 512
_WINDOW = 16  # numbers in a row that must be absent before a run without a record is believed to end
_MOST_NUMBERS = 1 << 40


class Unreadable:
    """A checkpoint whose record cannot be read: its number, its id where that is known, and why."""

    __slots__ = ("detail", "error", "id", "seq")

    def __init__(self, seq: int, error: IntegrityError, checkpoint: str | None = None) -> None:
        name = checkpoint or getattr(error, "checkpoint", None)
        self.seq = seq
        self.error = error
        self.id: str | None = name if isinstance(name, str) and name.startswith("cp_") else None
        self.detail = error.detail


class RunLine:
    """One run's checkpoints, read backwards; nothing is read twice."""

    def __init__(self, store: Store, run: str) -> None:
        self.run = run
        self._store = store
        self.problem: RunCorrupt | None = None
        """Why the run's own record could not be read, if so."""
        self.record: RunRecord | None = None
        try:
            self.record = store.run(run)
            self.last_seq = self.record.last_seq
        except RunCorrupt as error:
            self.problem = error
            self.last_seq = _highest(store, run)
            if not self.last_seq:
                raise
        self._page = _SMALLEST_PAGE
        self._rows: dict[int, CheckpointRecord | Unreadable] = {}  # highest number first
        self._numbers: dict[str, int] = {}
        self._unread = self.last_seq + 1  # every number from here on has been read
        self._graves: dict[str, int] | None = None

    def rows(self, below: int | None = None) -> Iterator[CheckpointRecord | Unreadable]:
        """Yield what there is below a number, highest first."""
        limit = self.last_seq + 1 if below is None else below
        shown = 0
        while True:
            rows = list(self._rows.values())
            for row in rows[shown:]:
                if number(row) < limit:
                    yield row
            shown = len(rows)
            if len(self._rows) == shown and not self._read_page():
                return

    def line(self, start: CheckpointRecord | None = None) -> Iterator[CheckpointRecord | Unreadable]:
        """Yield a checkpoint (by default the head) and those that it was built on, newest first.

        Where a parent was deleted or cannot be read, the line continues at the next lower number.
        """
        row: CheckpointRecord | Unreadable | None = start or self._head()
        while row is not None:
            yield row
            row = self._before(row)

    def _head(self) -> CheckpointRecord | Unreadable | None:
        if self.record is None:
            return next(self.rows(), None)
        if self.record.head is None:
            return None
        return self._named(self.record.head, below=self.last_seq + 1)

    def _before(self, row: CheckpointRecord | Unreadable) -> CheckpointRecord | Unreadable | None:
        if isinstance(row, Unreadable):
            return next(self.rows(row.seq), None)
        parent = row.envelope.parent
        return None if parent is None else self._named(parent, below=row.envelope.seq)

    def _named(self, checkpoint: str, *, below: int) -> CheckpointRecord | Unreadable | None:
        """Return the checkpoint of this id, or the next lower one if it is gone; None if it is another run's."""
        if checkpoint not in self._numbers and self._unread > below - 1 > 0:
            self._read_page()  # a parent is nearly always the next lower one
        if self._numbers.get(checkpoint, below) < below:
            return self._rows[self._numbers[checkpoint]]
        try:
            record = self._store.checkpoint(checkpoint)
        except NotFound:
            return next(self.rows(self._tombstone(checkpoint, below)), None)
        except IntegrityError as error:
            damaged = (row for row in self.rows(below) if isinstance(row, Unreadable) and row.id == checkpoint)
            return next(damaged, None) or Unreadable(below - 1, error, checkpoint)
        if record.envelope.run != self.run:
            return None
        return record if record.envelope.seq < below else next(self.rows(below), None)

    def _tombstone(self, checkpoint: str, below: int) -> int:
        """Return the number that a deleted checkpoint had, or the bound if it left none."""
        if self._graves is None:
            try:
                self._graves = {one.id: one.seq for one in self._store.tombstones(self.run)}
            except (IntegrityError, NotFound):
                self._graves = {}
        return min(self._graves.get(checkpoint, below), below)

    def _read_page(self) -> bool:
        """Read the next page; say whether there may be more of it than before."""
        if self._unread <= 1:
            return False
        top = self._unread
        size, self._page = self._page, min(self._page * 4, _LARGEST_PAGE)
        try:
            page = self._store.checkpoints(self.run, limit=size, before_seq=top) if self.problem is None else None
        except RunCorrupt as error:
            self.problem, page = error, None
        if page is not None and not page.damaged:
            for record in page:
                self._keep(record.envelope.seq, record)
            self._unread = page[-1].envelope.seq if len(page) == size else 1
            return bool(page)
        # Damage does not say its number in a page, so this stretch is read number by number.
        lowest = page[-1].envelope.seq if page else max(1, top - size)
        self._tombstone("", 0)
        graves = set((self._graves or {}).values())
        for seq in range(top - 1, lowest - 1, -1):
            if seq in graves:
                continue
            try:
                found = self._store.checkpoint_at(self.run, seq)
            except IntegrityError as error:
                self._keep(seq, Unreadable(seq, error))
            else:
                if found is not None:
                    self._keep(seq, found)
        self._unread = lowest
        return True

    def _keep(self, seq: int, row: CheckpointRecord | Unreadable) -> None:
        self._rows[seq] = row
        name = row.id if isinstance(row, Unreadable) else row.envelope.id
        if name is not None:
            self._numbers[name] = seq


def number(row: CheckpointRecord | Unreadable) -> int:
    """Return the number of a checkpoint in its run."""
    return row.seq if isinstance(row, Unreadable) else row.envelope.seq


def _highest(store: Store, run: str) -> int:
    """Return the highest number that a run without a record still has, 0 if none: doubling, then halving.

    Every number was taken once, so what is absent beyond the last one is absent for good; a few that vanished in
    between are looked past.
    """

    def last_in(start: int) -> int:
        return next((seq for seq in range(start + _WINDOW - 1, start - 1, -1) if _is_there(store, run, seq)), 0)

    low, high = 1, 2
    if not last_in(low):
        return 0
    while high < _MOST_NUMBERS and last_in(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if last_in(middle) else (low, middle)
    return last_in(low)


def _is_there(store: Store, run: str, seq: int) -> bool:
    try:
        store.checkpoint_at(run, seq)
    except CheckpointCorrupt as error:
        return error.checkpoint.startswith("cp_")
    except RunCorrupt:
        return False
    except IntegrityError:
        pass
    return True
