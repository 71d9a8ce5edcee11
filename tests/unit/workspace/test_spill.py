"""The writer of large captures: the same chunks as the plain one, in bounded memory."""

from __future__ import annotations

import pytest

from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.compress import MAX_CHUNK_BYTES, Compressor
from holdfast.errors import LimitExceeded
from holdfast.workspace.spill import SpillingWriter


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("memory_bytes", [0, 5_000, 1_000_000])
def test_it_gives_the_references_and_chunks_of_the_plain_writer_whatever_is_spilled(memory_bytes, threads):
    plain = ChunkWriter(Compressor())
    with SpillingWriter(Compressor(), memory_bytes=memory_bytes, threads=threads) as writer:
        for number in [*range(600), 5, 7]:
            data = b"%d content " % number * 50
            assert writer.leaf(data) == plain.leaf(data)
        refs = [plain.leaf(b"%d content " % number * 50) for number in range(3)]
        assert writer.node([b"literal", *refs]) == plain.node([b"literal", *refs])
        writer.finish()
        assert dict(writer.chunks) == plain.chunks
        assert writer.chunks.stored_bytes == sum(len(chunk.data) for chunk in plain.chunks.values())
        reader = ChunkReader(lambda ids: {name: writer.chunks[name] for name in ids})
        assert reader.leaf(refs[2]) == b"2 content " * 50


def test_a_chunk_that_is_too_large_is_refused():
    with SpillingWriter(Compressor()) as writer, pytest.raises(LimitExceeded):
        writer.leaf(b"x" * (MAX_CHUNK_BYTES + 1))


def test_what_fails_in_a_thread_is_raised_by_finish():
    class Broken(Compressor):
        def compress(self, data):
            raise OSError(f"no {len(data)}")

    with SpillingWriter(Broken(), threads=1) as writer:
        writer.leaf(b"x" * 100)
        with pytest.raises(OSError, match="no"):
            writer.finish()
