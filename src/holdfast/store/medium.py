"""The transaction port: all that a medium has to offer so that the rules of a store can be written once.

A medium keeps rows (tuples of cells) and chunks. Reads see one moment. A transaction is all or nothing, and durable
when it returns. `apply` is a transaction without questions: guards, then writes; a medium far away does it in one trip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import StoreCorrupt, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import Envelope
    from holdfast.store.api import StoreTraits
    from holdfast.store.heads import Heads
    from holdfast.store.tables import Key, Row, Table
    from holdfast.store.wakeups import Wakeup


class StaleError(Exception):
    """A guard of a batch did not hold, or a row that was to be new is there: nothing was written."""


class RolledBack(StoreUnavailable):
    """A transaction ended without a fault of its own (its connection broke, a deadlock): nothing was written.

    Whoever began it may do all of it again.
    """


@dataclass(slots=True)
class Batch:
    """What one commit writes, and what must be so for it."""

    guards: list[tuple[Table, Key, bytes | None]] = field(default_factory=list)
    """Rows that must have this seal by now; None: must not be there."""
    inserts: list[tuple[Table, Row]] = field(default_factory=list)
    puts: list[tuple[Table, Row]] = field(default_factory=list)
    drops: list[tuple[Table, Key]] = field(default_factory=list)
    run: int = 0
    chunks: Collection[Chunk] = ()
    """Chunks that the run of this number holds from now on."""
    shown: list[tuple[Key, Envelope]] = field(default_factory=list)
    """The checkpoints of this commit, for a medium that shows people where runs stand; none if that is encrypted."""


class Reader(Protocol):
    """Looks at one moment of a store."""

    def get(self, table: Table, key: Key) -> Row | None:
        """Return the row with this key."""

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
        """Return rows in the order of their key, or of an index, whose first cells are `prefix`.

        The cell after the prefix is bounded by `low` and `high`, both included.
        """

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there, as they are stored."""

    def held(self, run: int) -> set[bytes]:
        """Return the ids of the chunks that a run holds."""


class Transaction(Reader, Protocol):
    """Reads and writes that take effect together."""

    def lock(self, run: str) -> None:
        """Let no other transaction that locks this run proceed until this one has ended."""

    def insert(self, table: Table, *rows: Row) -> None:
        """Add rows; StaleError if there is one with the key of one of them."""

    def put(self, table: Table, row: Row) -> None:
        """Add a row, or replace the one with its key."""

    def drop(self, table: Table, prefix: Key) -> None:
        """Delete the rows whose key begins with this."""

    def hold(self, run: int, chunks: Iterable[Chunk]) -> None:
        """Store chunks and let a run hold them; one that is there with other bytes is replaced."""

    def hold_ids(self, run: int, ids: Collection[bytes]) -> None:
        """Let a run hold chunks that are there; those that are not are passed over."""

    def release(self, run: int, ids: Collection[bytes] | None) -> None:
        """End a run's hold on these chunks (None: all), and delete those whose holders are all gone."""


class Medium(Protocol):
    """A place that keeps rows and chunks."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def traits(self) -> StoreTraits:
        """How it differs from others."""

    @property
    def heads(self) -> Heads | None:
        """The file beside it that witnesses how far its lines had come, if it has one."""

    @property
    def folder(self) -> Path | None:
        """Where it lies on this machine, if it does."""

    @property
    def own_paths(self) -> tuple[Path, ...]:
        """The files and folders on this machine that are its own."""

    def read(self) -> AbstractContextManager[Reader]:
        """Look at one moment."""

    def fresh(self) -> AbstractContextManager[Reader]:
        """Look at the present moment, even inside a look at an earlier one; asked only of media with heads."""

    def write(self, *, erase: bool = False) -> AbstractContextManager[Transaction]:
        """Begin a transaction; the end of the block commits it, an error leaves nothing. `erase` overwrites bytes."""

    def apply(self, batch: Batch) -> None:
        """Check the guards and write everything; StaleError if one does not hold."""

    def now(self) -> float:
        """Return the time that all who use this medium share, in seconds."""

    def in_order_begun(self, *, limit: int | None = None) -> list[Row]:
        """Return the rows of runs, the last begun first."""

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the id of every stored chunk."""

    def damaged_holds(self) -> Mapping[bytes, str]:
        """Return chunks whose count of holders is not the number of runs that hold them, with what is wrong."""

    def recount_holds(self) -> None:
        """Make every chunk's count of holders the number of runs that hold it."""

    def wake(self, run: str) -> None:
        """Wake those who listen for a run."""

    def listen(self, run: str) -> Wakeup:
        """Return what wakes when the run is woken from now on."""

    def migrate(self) -> list[int]:
        """Bring the layout up to date and return the versions applied."""

    def check(self) -> Iterator[str]:
        """Yield what the medium itself finds wrong with its structures."""

    def sizes(self) -> MediumSizes:
        """Count what is stored."""

    def reclaim(self) -> None:
        """Give freed space back."""

    def close(self) -> None:
        """Let the medium go; closing twice is fine."""


@dataclass(frozen=True, slots=True)
class MediumSizes:
    """How much a medium holds."""

    engine: str
    runs: int
    checkpoints: int
    records: int
    chunks: int
    chunk_bytes: int
    stored_bytes: int
    file_bytes: int


def apply_in(transaction: Transaction, batch: Batch) -> None:
    """Carry a batch out in a transaction that nobody can come between."""
    for table, key, seal in batch.guards:
        row = transaction.get(table, key)
        if (None if row is None else row[-1]) != seal:
            raise StaleError(table.name)
    if batch.chunks:
        transaction.hold(batch.run, batch.chunks)
    for table, row in batch.inserts:
        transaction.insert(table, row)
    for table, row in batch.puts:
        transaction.put(table, row)
    for table, key in batch.drops:
        transaction.drop(table, key)


def first_cells(reader: Reader, table: Table, prefix: Key = (), *, index: str | None = None) -> Iterator[Any]:
    """Yield each cell that follows a prefix in a table's keys, or in an index, once, from one to the next."""
    last: Any = None
    seen: set[Any] = set()
    names = next((one.columns for one in table.indexes if one.name == index), None)
    columns = [column.name for column in table.all_columns]
    place = len(prefix) if names is None else columns.index(names[len(prefix)])
    while True:
        low = None if last is None else last + 1 if isinstance(last, int) else f"{last!s}\0"
        rows = reader.scan(table, prefix, index=index, low=low, limit=1)
        if not rows:
            return
        last = rows[0][place]
        if last in seen:
            raise StoreCorrupt(f"the rows of {table.name} are out of order, so they cannot be listed", "here")
        seen.add(last)
        yield last
