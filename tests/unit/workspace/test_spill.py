"""The writer of large captures: the same chunks as the plain one, in bounded memory."""

from __future__ import annotations

import pytest

from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.compress import MAX_CHUNK_BYTES, Compressor
from holdfast.errors import LimitExceeded
from holdfast.workspace.spill import SpillingWriter


@pytest.mark.parametrize("count", [0, 3, 128, 600])  # less than a batch, just one, several and a rest
@pytest.mark.parametrize("memory_bytes", [0, 5_000, 1_000_000])
def test_it_gives_the_references_and_chunks_of_the_plain_writer_whatever_is_spilled(memory_bytes, count):
    plain = ChunkWriter(Compressor())
    with SpillingWriter(Compressor(), memory_bytes=memory_bytes) as writer:
        for number in [*range(count), 1, 2]:
            data = b"%d content " % number * 50
            assert writer.leaf(data) == plain.leaf(data)
        refs = [plain.leaf(b"%d content " % number * 50) for number in (1, 2)]
        assert writer.node([b"literal", *refs]) == plain.node([b"literal", *refs])
        writer.finish()
        assert dict(writer.chunks) == plain.chunks
        assert writer.chunks.stored_bytes == sum(len(chunk.data) for chunk in plain.chunks.values())
        reader = ChunkReader(lambda ids: {name: writer.chunks[name] for name in ids})
        assert reader.leaf(refs[1]) == b"2 content " * 50


def test_a_chunk_that_is_too_large_is_refused():
    with SpillingWriter(Compressor()) as writer, pytest.raises(LimitExceeded):
        writer.leaf(b"x" * (MAX_CHUNK_BYTES + 1))


@pytest.mark.parametrize("count", [1, 200])
def test_what_fails_while_compressing_is_raised_by_finish(count):
    class Broken(Compressor):
        def compress_many(self, batch):
            raise OSError(f"no {len(batch)}")

    with SpillingWriter(Broken()) as writer, pytest.raises(OSError, match="no"):  # noqa: PT012 - or by an earlier leaf
        for number in range(count):
            writer.leaf(b"%d" % number * 100)
        writer.finish()
