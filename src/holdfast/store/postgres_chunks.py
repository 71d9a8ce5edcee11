"""Chunks as rows, and as objects outside where a shelf is given; which run holds which is a row, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.types.numeric import Int8

from holdfast.encode.chunks import Chunk
from holdfast.errors import UsageError
from holdfast.store.named_sql import queries
from holdfast.store.postgres_pool import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from holdfast.store.objects import ObjectShelf
    from holdfast.store.postgres_pool import TimedConnection

    Ask = Callable[..., list[tuple[Any, ...]]]

_Q = queries("postgres.sql")
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_COUNT = 1000
_OBJECTS_AT_ONCE = 16
_MOST_BYTES = 1 << 62


class ChunkRow(NamedTuple):
    """A chunk as a row: without its bytes where they are an object."""

    id: bytes
    codec: int
    size: int
    stored_size: int
    data: bytes | None


class Brought(NamedTuple):
    """The chunks of one commit. `rows` are all of them if they fit into one statement; else they come in batches."""

    ids: list[bytes]
    rows: list[ChunkRow] | None


class ChunkRows:
    """The chunk and hold tables of one tenant."""

    def __init__(self, tenant: str, shelf: ObjectShelf | None) -> None:
        self._tenant = tenant
        self._shelf = shelf

    def prepare(self, chunks: Collection[Chunk], ask: Ask) -> Brought:
        """Look through the chunks of a commit, and make those that go outside durable before any row names them.

        Chunks may come from a file or be encrypted as they are taken out: more than a batch of them is not kept.
        """
        rows: dict[bytes, ChunkRow] | None = {}
        ids: dict[bytes, None] = {}
        outside: list[Chunk] = []
        size = 0
        for chunk in chunks:
            if chunk.id in ids:
                continue
            ids[chunk.id] = None
            row = self._row(chunk)
            if row.data is None:
                outside.append(chunk)
                if len(outside) == _OBJECTS_AT_ONCE:
                    self._put_objects(outside, ask)
                    outside = []
            size += len(row.data or b"")
            if rows is not None:
                rows[row.id] = row
                if size > _BATCH_BYTES or len(rows) > _BATCH_COUNT:
                    rows = None
        if outside:
            self._put_objects(outside, ask)
        return Brought(sorted(ids), None if rows is None else [rows[name] for name in sorted(rows)])

    def batches(self, chunks: Iterable[Chunk]) -> Iterator[list[ChunkRow]]:
        """Cut chunks into batches that one statement takes; their objects are there already."""
        batch: dict[bytes, ChunkRow] = {}
        size = 0
        for chunk in chunks:
            row = self._row(chunk)
            weight = len(row.data or b"")
            if batch and (size + weight > _BATCH_BYTES or len(batch) >= _BATCH_COUNT):
                yield [batch[name] for name in sorted(batch)]
                batch, size = {}, 0
            batch[row.id] = row
            size += weight
        if batch:
            yield [batch[name] for name in sorted(batch)]

    def fetch(self, ids: list[bytes], ask: Ask) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there; one whose object is gone is not."""
        found = {row[0]: Chunk(*row) for row in ask("fetch", ids=ids)} if ids else {}
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

    def release(self, run: int, ids: list[bytes] | None, ask: Ask) -> None:
        """End a run's hold on chunks (None: all), and delete those that nobody holds."""
        gone = [row[0] for row in ask("release_chunks", run=Int8(run), ids=ids)]
        if gone:
            ask("doom", ids=gone)

    def sweep_objects(self, connection: TimedConnection) -> int:
        """Delete a page of objects whose grace is over, and return how many; 0 when there are no more.

        Their names stay locked meanwhile: a writer that wants one back waits, and then stores it again.
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
            if orphans:
                self._on(connection, "doom", ids=orphans)
            count += len(orphans)
        return count

    def _row(self, chunk: Chunk) -> ChunkRow:
        if not 0 <= chunk.size < _MOST_BYTES:
            raise UsageError(f"chunk {chunk.id.hex()[:16]} has a size ({chunk.size}) that cannot be stored")
        is_outside = self._shelf is not None and len(chunk.data) >= self._shelf.from_bytes
        return ChunkRow(chunk.id, int(chunk.codec), chunk.size, len(chunk.data), None if is_outside else chunk.data)

    def _put_objects(self, chunks: list[Chunk], ask: Ask) -> None:
        """Store objects; they are taken back from a sweep first."""
        ask("spare", ids=[chunk.id for chunk in chunks])
        if self._shelf is not None:
            self._shelf.put(self._tenant, chunks)

    def _on(self, connection: TimedConnection, name: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(_Q[name], {"tenant": self._tenant, **values}, binary=True)
        return cursor.fetchall() if cursor.description else []


def columns(rows: Collection[ChunkRow]) -> list[Any]:
    """Return chunk rows as the arrays that hold_chunks takes."""
    return [
        Array("blob", (row.id for row in rows)),
        Array("int", (Int8(row.codec) for row in rows)),
        Array("int", (Int8(row.size) for row in rows)),
        Array("int", (Int8(row.stored_size) for row in rows)),
        Array("blob", (row.data for row in rows)),
    ]
