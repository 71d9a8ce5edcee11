"""A writer for captures of any size: beyond a bound, chunks wait for the commit in a file."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from holdfast.encode.chunks import Chunk
from holdfast.encode.compress import MAX_CHUNK_BYTES, Codec
from holdfast.encode.tree import LEAF, NODE, Part, Ref, encode_node, leaf_id, node_id
from holdfast.errors import LimitExceeded, StoreError, StoreFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future, ThreadPoolExecutor
    from types import TracebackType
    from typing import Self

    from holdfast.encode.compress import Compressor

_BATCH_CHUNKS = 128
_BATCH_BYTES = 1024 * 1024
_BATCHES_AHEAD = 4  # plain bytes that wait for a thread: four megabytes
_BUFFER_BYTES = 1024 * 1024  # of the file: one call for hundreds of small chunks


class SpillingWriter:
    """Collects the chunks of one commit like a `ChunkWriter`, in bounded memory; close it after the commit.

    `chunks` is whole after `finish()`; reading it goes back to the file for what was spilled. A thread compresses batch
    after batch while the caller reads on; less than a batch is compressed by `finish()` itself.
    """

    def __init__(
        self,
        compressor: Compressor,
        *,
        memory_bytes: int = 8 * 1024 * 1024,
        directory: str | None = None,
    ) -> None:
        self.chunks = SpilledChunks(memory_bytes, directory)
        self._compressor = compressor
        self._pool: ThreadPoolExecutor | None = None
        self._running: deque[Future[list[Chunk]]] = deque()
        self._batch: list[tuple[bytes, bytes]] = []
        self._batch_bytes = 0
        self._waiting: set[bytes] = set()  # names that are not among the chunks yet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def leaf(self, data: bytes) -> Ref:
        """Add plain bytes and return their reference."""
        name = leaf_id(data)
        if name not in self._waiting and name not in self.chunks:
            _check_size(data)
            self._waiting.add(name)
            self._batch.append((name, data))
            self._batch_bytes += len(data)
            if len(self._batch) >= _BATCH_CHUNKS or self._batch_bytes >= _BATCH_BYTES:
                self._submit()
        return Ref(LEAF, len(data), name)

    def node(self, entries: Iterable[Part]) -> Ref:
        """Add a node over these entries and return its reference."""
        data, size = encode_node(entries)
        name = node_id(data)
        if name not in self.chunks:
            _check_size(data)
            self.chunks.add(Chunk(name, Codec.NONE, len(data), data))
        return Ref(NODE, size, name)

    def forget(self, ref: Ref) -> None:
        """Keep it: the store takes a chunk that it has already for what it is."""

    @property
    def stored_bytes(self) -> int:
        """The compressed size of all chunks."""
        return self.chunks.stored_bytes

    def finish(self) -> None:
        """Wait until every chunk is compressed; raises what went wrong."""
        while self._running:
            self._take()
        self._keep(self._compress(self._batch))
        self._batch, self._batch_bytes = [], 0

    def close(self) -> None:
        """Give back the thread and the file."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self.chunks.close()

    def _submit(self) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only a full batch pays for it

            self._pool = ThreadPoolExecutor(1, thread_name_prefix="holdfast-compress")
        self._running.append(self._pool.submit(self._compress, self._batch))
        self._batch, self._batch_bytes = [], 0
        while len(self._running) > _BATCHES_AHEAD or (self._running and self._running[0].done()):
            self._take()

    def _take(self) -> None:
        self._keep(self._running.popleft().result())

    def _keep(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self.chunks.add(chunk)
            self._waiting.discard(chunk.id)

    def _compress(self, batch: list[tuple[bytes, bytes]]) -> list[Chunk]:
        stored = self._compressor.compress_many([data for _, data in batch])
        return [Chunk(name, done[0], len(data), done[1]) for (name, data), done in zip(batch, stored, strict=True)]


class SpilledChunks(Mapping[bytes, Chunk]):
    """Chunks by name, in the order they came: in memory up to a bound, then in an unlinked file."""

    def __init__(self, memory_bytes: int, directory: str | None = None) -> None:
        self._held: dict[bytes, Chunk | int] = {}
        self._room = memory_bytes
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._end = 0
        self._is_behind = False  # the file has bytes that are not written yet
        self.stored_bytes = 0

    def add(self, chunk: Chunk) -> None:
        """Keep a chunk that is not there yet."""
        size = len(chunk.data)
        self.stored_bytes += size
        if size <= self._room:
            self._room -= size
            self._held[chunk.id] = chunk
            return
        if self._file is None:
            import tempfile  # noqa: PLC0415 - only what is spilled pays for it

            try:
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=_BUFFER_BYTES)  # noqa: SIM115 - closed by `close`
            except OSError as error:
                raise _refused(error) from error
        try:
            self._file.write(chunk.data)
        except OSError as error:
            raise _refused(error) from error
        # One number for three: tens of thousands of these wait at once.
        self._held[chunk.id] = self._end << 64 | size << 32 | chunk.size << 8 | chunk.codec
        self._end += size
        self._is_behind = True

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            with suppress(OSError):  # what was not written yet is not needed any more
                self._file.close()

    def _flush(self) -> None:
        assert self._file is not None
        try:
            self._file.flush()
        except OSError as error:
            raise _refused(error) from error
        self._is_behind = False

    def __getitem__(self, name: bytes) -> Chunk:
        held = self._held[name]
        if isinstance(held, Chunk):
            return held
        assert self._file is not None
        if self._is_behind:
            self._flush()
        try:
            data = os.pread(self._file.fileno(), held >> 32 & 0xFFFFFFFF, held >> 64)
        except OSError as error:
            raise _refused(error) from error
        return Chunk(name, held & 0xFF, held >> 8 & 0xFFFFFF, data)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def _refused(error: OSError) -> StoreError:
    kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else StoreUnavailable
    return kind("temporary file", f"{os.strerror(error.errno or 0)} while chunks wait there for the commit")


def _check_size(data: bytes) -> None:
    if len(data) > MAX_CHUNK_BYTES:
        raise LimitExceeded("cut it smaller", "a chunk's bytes", len(data), MAX_CHUNK_BYTES)
