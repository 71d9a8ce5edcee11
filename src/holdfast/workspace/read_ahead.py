"""Contents of a restore's files, fetched ahead of their writing: many small ones at once, unpacked by a thread."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from holdfast.encode.chunks import verified
from holdfast.encode.compress import decompress_many
from holdfast.encode.tree import LEAF
from holdfast.workspace.tree import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from holdfast.encode.chunks import Chunk, ChunkReader
    from holdfast.workspace.state import State

_BATCH_FILES = 256
_BATCH_BYTES = 4 * 1024 * 1024


class _Batch(NamedTuple):
    """Chunks that were fetched, and their plain bytes when the thread is done."""

    chunks: list[Chunk]
    unpacked: Future[list[bytes | None]]


class ReadAhead:
    """Gives the contents of files in the order in which they were announced.

    The thread only unpacks, in one call without Python's lock. One that fetched and verified as well would wait for
    that lock after each file, and so would the writer: a restore then took a third longer.
    """

    def __init__(self, reader: ChunkReader, announced: Iterable[State]) -> None:
        self._reader = reader
        self._batches = _batches(announced)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="holdfast-unpack")
        self._coming: _Batch | None = None
        self._have: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        self._coming = self._next()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def content(self, state: State) -> Iterable[bytes]:
        """Return the verified bytes of a file, in pieces."""
        found = self._have.get(state.hash)
        if found is None and self._coming is not None and state.hash and not state.cut:
            batch, self._have = self._coming, {}
            unpacked = batch.unpacked.result()
            self._coming = self._next()
            self._have = {
                chunk.id.hex(): verified(LEAF, chunk.id, chunk, plain)
                for chunk, plain in zip(batch.chunks, unpacked, strict=True)
            }
            found = self._have.get(state.hash)
        return pieces(self._reader, state.ref()) if found is None else (found,)

    def _next(self) -> _Batch | None:
        """Fetch the next batch and have it unpacked."""
        sizes = next(self._batches, None)
        if sizes is None:
            return None
        stored = self._reader.stored([bytes.fromhex(name) for name in sizes])
        # One that is missing, or claims another size than its directory says, is left to `pieces`, which reports it.
        found = [chunk for chunk in stored.values() if chunk.size == sizes.get(chunk.id.hex())]
        packed = [(chunk.codec, chunk.data, chunk.size) for chunk in found]
        return _Batch(found, self._pool.submit(decompress_many, packed))


def _batches(states: Iterable[State]) -> Iterator[dict[str, int]]:
    """Yield the names and sizes of small files' contents, some megabytes at once, each once in a batch."""
    batch: dict[str, int] = {}
    total = 0
    for state in states:
        if not state.hash or state.cut or state.hash in batch:
            continue
        batch[state.hash] = state.size
        total += state.size
        if len(batch) >= _BATCH_FILES or total >= _BATCH_BYTES:
            yield batch
            batch, total = {}, 0
    if batch:
        yield batch
