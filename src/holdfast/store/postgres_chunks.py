"""Chunks as rows, and as objects outside where a shelf is given; each hold of a run on one is a row, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import Rollback
from psycopg.types.numeric import Int8

from holdfast.encode.chunks import Chunk
from holdfast.errors import UsageError
from holdfast.store.named_sql import queries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from holdfast.store.objects import ObjectShelf
    from holdfast.store.postgres_pool import TimedConnection

_Q = queries("postgres.sql")
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_COUNT = 1000
_MODULUS = 1 << 63


class Brought(NamedTuple):
    """The chunks of one commit: their names sorted, so that two commits lock them in one order; rows in batches."""

    ids: list[bytes]
    batches: list[list[Chunk]]
    outside: list[Chunk]


class ChunkRows:
    """The chunk and hold tables of one tenant."""

    def __init__(self, tenant: str, shelf: ObjectShelf | None) -> None:
        self._tenant = tenant
        self._shelf = shelf

    def prepare(self, chunks: Collection[Chunk]) -> Brought:
        """Sort, cut into batches, and tell what goes outside."""
        unique = sorted({chunk.id: chunk for chunk in chunks}.values())
        batches: list[list[Chunk]] = [[]]
        outside: list[Chunk] = []
        size = 0
        for chunk in unique:
            weight = len(chunk.data)
            if self._shelf is not None and weight >= self._shelf.from_bytes:
                outside.append(chunk)
                weight = 0
            if batches[-1] and (size + weight > _BATCH_BYTES or len(batches[-1]) >= _BATCH_COUNT):
                batches.append([])
                size = 0
            batches[-1].append(chunk)
            size += weight
        return Brought([chunk.id for chunk in unique], batches, outside)

    def put_objects(self, connection: TimedConnection, brought: Brought) -> None:
        """Make the outside chunks durable before any row names them; takes them back from a sweep first."""
        if brought.outside and self._shelf is not None:
            self._on(connection, "spare", ids=[chunk.id for chunk in brought.outside])
            self._shelf.put(self._tenant, brought.outside)

    def commit(self, connection: TimedConnection, values: dict[str, Any], brought: Brought) -> str:
        """Commit in one round trip, or in one transaction sent in batches if there are many chunks."""
        outside = {chunk.id for chunk in brought.outside}
        *early, last = brought.batches
        if not early:
            rows = self._on(connection, "commit", **values, **_columns(last, outside))
            return str(rows[0][0])
        with connection.transaction() as transaction:
            self._on(connection, "lock_run", run=values["run"])
            with connection.pipeline():
                for batch in early:
                    connection.execute(_Q["put_chunks"], {"tenant": self._tenant, **_columns(batch, outside)})
            outcome = str(self._on(connection, "commit", **values, **_columns(last, outside))[0][0])
            if outcome != "done":
                raise Rollback(transaction)
        return outcome

    def fetch(self, connection: TimedConnection, ids: list[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there; one whose object is gone is not."""
        found = {row[0]: Chunk(*row) for row in self._on(connection, "fetch", ids=ids)}
        outside = [chunk for chunk in found.values() if chunk.data is None]
        if outside and self._shelf is None:
            raise UsageError("this store has chunks in object storage: open it with ?chunks=s3://bucket/prefix")
        if outside and self._shelf is not None:
            objects = self._shelf.get(self._tenant, outside)
            for chunk in outside:
                del found[chunk.id]
                if chunk.id in objects:
                    found[chunk.id] = Chunk(chunk.id, chunk.codec, chunk.size, objects[chunk.id])
        return found

    def let_go(self, connection: TimedConnection, run: int, ids: list[bytes] | None) -> list[tuple[bytes, int]]:
        """Drop a run's holds (all, or on these), and what nobody holds then; return what was held, and how often.

        The rows are locked first and looked at in a statement of their own: a writer that shares one is either seen
        with its hold, or waits and stores the chunk anew.
        """
        numbers = [row[0] for row in self._on(connection, "lock_held_chunks", n=Int8(run), ids=ids)]
        gone = self._on(connection, "drop_holds", n=Int8(run), chunks=numbers)
        dropped = self._on(connection, "drop_unheld", chunks=numbers)
        outside = [name for name, is_outside in dropped if is_outside]
        if outside:
            self._on(connection, "doom", ids=outside)
        return [(name, times) for name, times in gone]

    def sweep_objects(self, connection: TimedConnection) -> int:
        """Delete a page of objects whose grace is over, and return how many; 0 when there are no more.

        Their names stay locked meanwhile: a writer that wants one back waits, and then stores it anew.
        """
        if self._shelf is None:
            return 0
        with connection.transaction():
            doomed = [row[0] for row in self._on(connection, "overdue", grace_s=self._shelf.grace_s)]
            if not doomed:
                return 0
            needed = {row[0] for row in self._on(connection, "named_chunks", ids=doomed)}
            self._shelf.delete(self._tenant, [name for name in doomed if name not in needed])
            self._on(connection, "spare", ids=doomed)
            return len(doomed)

    def doom_orphans(self, connection: TimedConnection) -> int:
        """Begin the grace of objects that no row names: left by commits that failed; return how many."""
        if self._shelf is None:
            return 0
        count = 0
        for page in self._shelf.aged(self._tenant):
            needed = {row[0] for row in self._on(connection, "named_chunks", ids=page)}
            orphans = [name for name in page if name not in needed]
            self._on(connection, "doom", ids=orphans)
            count += len(orphans)
        return count

    def _on(self, connection: TimedConnection, name: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(_Q[name], {"tenant": self._tenant, **values}, binary=True)
        return cursor.fetchall() if cursor.description else []


def holds_sum(before: int, holds: Iterable[tuple[bytes, int]]) -> int:
    """Return the sum over a run's holds after some were added or taken, in any order."""
    return (before + sum(int.from_bytes(name[:6], "big") * times for name, times in holds)) % _MODULUS


def of_64_bits(number: int) -> Int8:
    """Return a number as the server takes it; one beyond its range names nothing that could be there."""
    return Int8(max(-_MODULUS, min(_MODULUS - 1, number)))


def _array(numbers: Iterable[int]) -> str:
    """Return numbers as the server writes an array: a tenth of what the driver's own conversion takes."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _columns(chunks: Collection[Chunk], outside: set[bytes]) -> dict[str, Any]:
    return {
        "ids": [chunk.id for chunk in chunks],
        "codecs": _array(int(chunk.codec) for chunk in chunks),
        "sizes": _array(chunk.size for chunk in chunks),
        "stored_sizes": _array(len(chunk.data) for chunk in chunks),
        "datas": [None if chunk.id in outside else chunk.data for chunk in chunks],
    }
