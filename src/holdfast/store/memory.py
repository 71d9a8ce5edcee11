"""The memory medium: rows and chunks in dictionaries; the model of the others, gone with its process."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.store.api import StoreTraits
from holdfast.store.medium import Batch, MediumSizes, StaleError, apply_in
from holdfast.store.store import Store
from holdfast.store.tables import CHECKPOINT, RECORD, RUN, TABLES, Table
from holdfast.store.wakeups import Wakeups

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.encode.chunks import Chunk
    from holdfast.store.tables import Key, Row
    from holdfast.store.wakeups import Wakeup


class _Rows:
    """The rows of one table, with its indexes as sorted lists of cells."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows: dict[Key, Row] = {}
        self._keys: list[tuple[Any, ...]] = []
        names = [column.name for column in table.all_columns]
        self._places = {index.name: [names.index(name) for name in index.columns] for index in table.indexes}
        self._unique = {index.name for index in table.indexes if index.unique}
        self._sorted: dict[str, list[tuple[Any, ...]]] = {index.name: [] for index in table.indexes}

    def put(self, row: Row) -> None:
        key = row[: len(self.table.key)]
        for name in self._unique:
            cells = _sortable(row[place] for place in self._places[name])
            for other in self._between(self._sorted[name], cells, None, None):
                if other[len(cells) :] != _sortable(key):
                    raise StaleError(self.table.name)
        self._forget(key)
        self.rows[key] = row  # an old one keeps its place: the order in which runs were begun is that of this mapping
        insort(self._keys, _sortable(key))
        for name, places in self._places.items():
            insort(self._sorted[name], _sortable([*(row[place] for place in places), *key]))

    def drop(self, key: Key) -> None:
        self._forget(key)
        self.rows.pop(key, None)

    def reorder(self, keys: list[Key]) -> None:
        self.rows = {key: self.rows[key] for key in keys}

    def _forget(self, key: Key) -> None:
        row = self.rows.get(key)
        if row is None:
            return
        self._keys.pop(bisect_left(self._keys, _sortable(key)))
        for name, places in self._places.items():
            entry = _sortable([*(row[place] for place in places), *key])
            self._sorted[name].pop(bisect_left(self._sorted[name], entry))

    def scan(
        self, prefix: Key, index: str | None, low: Any, high: Any, *, reverse: bool = False, limit: int | None = None
    ) -> list[Row]:
        entries = self._keys if index is None else self._sorted[index]
        found = self._between(entries, _sortable(prefix), low, high, reverse=reverse, limit=limit)
        width = len(self.table.key)
        return [self.rows[tuple(cell for _, cell in entry[-width:])] for entry in found]

    def _between(
        self, entries: list[tuple[Any, ...]], prefix: Any, low: Any, high: Any, *, reverse: bool = False,
        limit: int | None = None,
    ) -> list[tuple[Any, ...]]:  # fmt: skip
        first = bisect_left(entries, prefix if low is None else (*prefix, (1, low)))
        last = bisect_right(entries, (*prefix, (2, 0)) if high is None else (*prefix, (1, high), (2, 0)))
        if limit is not None:  # before the copy: most questions are for one row of many
            first, last = (max(first, last - limit), last) if reverse else (first, min(last, first + limit))
        return entries[first:last][::-1] if reverse else entries[first:last]


def _sortable(cells: Iterable[Any]) -> tuple[Any, ...]:
    """Return cells that can be compared, absent ones first."""
    return tuple((0, None) if cell is None else (1, cell) for cell in cells)


class MemoryTables:
    """All rows, chunks and holds, with transactions that can be undone; whoever uses it takes care of locking."""

    def __init__(self) -> None:
        self.tables = {table.name: _Rows(table) for table in TABLES}
        self.chunks: dict[bytes, Chunk] = {}
        self.holders: dict[bytes, set[int]] = {}
        self.holds: dict[int, set[bytes]] = {}
        self._undo: list[Any] | None = None

    @contextmanager
    def transaction(self) -> Iterator[MemoryTables]:
        """Keep what is done in the block, or nothing if it fails."""
        self._undo = []
        try:
            yield self
        except BaseException:
            undo, self._undo = self._undo, None
            for function, *given in reversed(undo):
                function(*given)
            raise
        finally:
            self._undo = None

    def _noted(self, *undo: Any) -> None:
        if self._undo is not None:
            self._undo.append(undo)

    def get(self, table: Table, key: Key) -> Row | None:
        """Return the row with this key."""
        return self.tables[table.name].rows.get(key)

    def scan(
        self,
        table: Table,
        prefix: Key = (),
        *,
        index: str | None = None,
        low: object = None,
        high: object = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[Row]:
        """Return rows in order."""
        return self.tables[table.name].scan(prefix, index, low, high, reverse=reverse, limit=limit)

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there."""
        return {name: self.chunks[name] for name in ids if name in self.chunks}

    def held(self, run: int) -> set[bytes]:
        """Return the ids of the chunks that a run holds."""
        return set(self.holds.get(run, ()))

    def lock(self, run: str) -> None:
        """Do nothing: a transaction is alone."""

    def insert(self, table: Table, *rows: Row) -> None:
        """Add rows; StaleError if there is one with the key of one of them."""
        for row in rows:
            if row[: len(table.key)] in self.tables[table.name].rows:
                raise StaleError(table.name)
            self.put(table, row)

    def put(self, table: Table, row: Row) -> None:
        """Add a row, or replace the one with its key."""
        rows, key = self.tables[table.name], row[: len(table.key)]
        before = rows.rows.get(key)
        rows.put(row)
        self._noted(*((rows.drop, key) if before is None else (rows.put, before)))

    def drop(self, table: Table, prefix: Key) -> None:
        """Delete the rows whose key begins with this."""
        rows = self.tables[table.name]
        if table is RUN:  # undone last, after the rows are back: the order of this mapping counts
            self._noted(rows.reorder, list(rows.rows))
        for row in rows.scan(prefix, None, None, None):
            rows.drop(row[: len(table.key)])
            self._noted(rows.put, row)

    def hold(self, run: int, chunks: Iterable[Chunk]) -> None:
        """Store chunks and let a run hold them."""
        for chunk in chunks:
            before = self.chunks.get(chunk.id)
            if before != chunk:
                self.chunks[chunk.id] = chunk
                self._noted(*((self.chunks.pop, chunk.id) if before is None else (self._set_chunk, before)))
            self.add_hold(run, chunk.id)

    def hold_ids(self, run: int, ids: Collection[bytes]) -> None:
        """Let a run hold chunks that are there."""
        for name in ids:
            if name in self.chunks:
                self.add_hold(run, name)

    def release(self, run: int, ids: Collection[bytes] | None) -> None:
        """End a run's hold on chunks, and delete those that nobody holds."""
        mine = self.holds.get(run, set())
        for name in list(mine if ids is None else mine & set(ids)):
            self.end_hold(run, name)
        for name in list(mine) if ids is None else ids:
            self._drop_unheld(name)
        if ids is None:
            for name in [name for name in self.chunks if not self.holders.get(name)]:
                self._drop_unheld(name)

    def _drop_unheld(self, name: bytes) -> None:
        if name in self.chunks and not self.holders.get(name):
            self._noted(self._set_chunk, self.chunks.pop(name))

    def _set_chunk(self, chunk: Chunk) -> None:
        self.chunks[chunk.id] = chunk

    def add_hold(self, run: int, name: bytes) -> None:
        """Let a run hold a chunk, whether it is there or not."""
        if run not in self.holders.setdefault(name, set()):
            self.holders[name].add(run)
            self.holds.setdefault(run, set()).add(name)
            self._noted(self.end_hold, run, name)

    def end_hold(self, run: int, name: bytes) -> None:
        """End a run's hold on a chunk, and leave the chunk alone."""
        if run in self.holders.get(name, ()):
            self.holders[name].discard(run)
            self.holds.get(run, set()).discard(name)
            self._noted(self.add_hold, run, name)


class MemoryMedium:
    """Rows and chunks in this process, under one lock."""

    traits = StoreTraits(durable=False, many_processes=False)
    url = "memory:"
    heads = None
    folder = None
    own_paths = ()

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tables = MemoryTables()
        self._wakes = Wakeups()
        self._closed = False

    @contextmanager
    def read(self) -> Iterator[MemoryTables]:
        """Look at one moment."""
        with self._lock:
            if self._closed:
                raise UsageError("this memory store is closed, and what it held is gone")
            yield self._tables

    def fresh(self) -> AbstractContextManager[MemoryTables]:
        """Look at the present moment, which every look is."""
        return self.read()

    @contextmanager
    def write(self, *, erase: bool = False) -> Iterator[MemoryTables]:  # noqa: ARG002 - nothing is left to overwrite
        """Begin a transaction."""
        with self.read() as tables, tables.transaction():
            yield tables

    def apply(self, batch: Batch) -> None:
        """Check the guards and write everything."""
        with self.write() as tables:
            apply_in(tables, batch)

    def now(self) -> float:
        """Return the time."""
        return time.time()

    def in_order_begun(self, *, limit: int | None = None) -> list[Row]:
        """Return the rows of runs, the last begun first."""
        with self.read() as tables:
            return list(reversed(tables.tables[RUN.name].rows.values()))[:limit]

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the id of every stored chunk."""
        with self.read() as tables:
            names = list(tables.chunks)
        yield from names

    def damaged_holds(self) -> Mapping[bytes, str]:
        """Return none: there is no count that could be wrong."""
        return {}

    def recount_holds(self) -> None:
        """Do nothing: there is no count that could be wrong."""

    def wake(self, run: str) -> None:
        """Wake those who listen for a run."""
        with self.read():
            self._wakes.wake(run)

    def listen(self, run: str) -> Wakeup:
        """Return what wakes when the run is woken from now on."""
        with self.read():
            return self._wakes.open(run)

    def migrate(self) -> list[int]:
        """Do nothing: there is no layout."""
        return []

    def check(self) -> Iterator[str]:
        """Find nothing: there is no medium to be wrong."""
        yield from ()

    def sizes(self) -> MediumSizes:
        """Count what is stored."""
        with self.read() as tables:
            stored = sum(len(chunk.data) for chunk in tables.chunks.values())
            return MediumSizes(
                engine="memory",
                runs=len(tables.tables[RUN.name].rows),
                checkpoints=len(tables.tables[CHECKPOINT.name].rows),
                records=len(tables.tables[RECORD.name].rows),
                chunks=len(tables.chunks),
                chunk_bytes=sum(chunk.size for chunk in tables.chunks.values()),
                stored_bytes=stored,
                file_bytes=stored,
            )

    def reclaim(self) -> None:
        """Do nothing: the interpreter reclaims."""

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True


class MemoryStore(Store):
    """A store in this process, gone with it."""

    def __init__(self) -> None:
        super().__init__(MemoryMedium())
