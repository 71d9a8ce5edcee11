import gzip
import tracemalloc
import zlib

import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.encode.compress import MAX_CHUNK_BYTES, Codec, Compressor, decompress, decompress_many
from holdfast.errors import UsageError

some = settings(derandomize=True, deadline=None, database=None, max_examples=100)
codecs = pytest.mark.parametrize("codec", ["none", "zstd", "gzip", "lz4"])


def test_a_frame_of_very_many_blocks_is_not_walked_and_left_to_the_library():
    """Proves D11: its blocks are not walked one by one where that would take seconds."""
    header = b"\x28\xb5\x2f\xfd\x20\x64"  # one segment of 100 bytes, no checksum
    last = (100 << 3 | 1).to_bytes(3, "little") + b"x" * 100
    for empty, is_walked in ((0, True), (3, True), (1_000_000, False)):
        stored = header + b"\0\0\0" * empty + last
        assert decompress_many([(Codec.ZSTD, stored, 100)]) == [b"x" * 100 if is_walked else None]
        assert decompress(Codec.ZSTD, stored, 100) == b"x" * 100


@codecs
@pytest.mark.parametrize(
    "data", [b"", b"x", b"x" * 63, b"x" * 64, b"ab" * 50_000, bytes(range(256)) * 9, b"\0" * MAX_CHUNK_BYTES]
)
def test_what_was_compressed_comes_back(codec, data):
    """Proves A7."""
    used, stored = Compressor(codec).compress(data)
    assert decompress(used, stored, len(data)) == data
    assert len(stored) <= len(data)


@codecs
def test_many_at_once_are_compressed_like_each_and_come_back(codec):
    batch = [b"", b"x" * 63, *(b"%d words " % n * n for n in range(1, 300)), bytes(range(256)), b"\0" * MAX_CHUNK_BYTES]
    compressor = Compressor(codec)
    done = compressor.compress_many(batch)
    assert done == [compressor.compress(data) for data in batch]
    assert compressor.compress_many([]) == compressor.compress_many([b""])[1:] == []
    back = decompress_many([(used, stored, len(data)) for (used, stored), data in zip(done, batch, strict=True)])
    wanted = [data if used is Codec.ZSTD else None for (used, _), data in zip(done, batch, strict=True)]
    assert back == wanted
    assert decompress_many([]) == []


def test_without_the_library_s_batches_they_are_compressed_and_left_one_by_one(monkeypatch):
    done = Compressor().compress_many([b"x" * 100, b"y" * 10])
    monkeypatch.setattr(zstandard, "backend_features", set())
    monkeypatch.setattr("holdfast.encode.compress._UNPACKS_BATCHES", False)
    assert Compressor().compress_many([b"x" * 100, b"y" * 10]) == done
    assert decompress_many([(done[0][0], done[0][1], 100)]) == [None]


@codecs
def test_bytes_that_do_not_shrink_are_kept_as_they_are(codec):
    data = bytes(hash((n, 7)) % 251 for n in range(300))
    noise = zlib.compress(data, 9) * 1
    assert Compressor(codec).compress(noise) == (Codec.NONE, noise)


@codecs
def test_text_shrinks_with_the_chosen_codec(codec):
    used, stored = Compressor(codec).compress(b"the same words again " * 500)
    assert used.name.lower() == codec
    assert codec == "none" or len(stored) < 1000


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_a_level_can_be_chosen(codec):
    data = b"".join(f"{n % 97} words of {n * n % 1013} kinds; ".encode() for n in range(5_000))
    assert Compressor(codec, level=9).compress(data)[1] != Compressor(codec, level=1).compress(data)[1]


@codecs
def test_the_quick_one_has_the_same_codec_at_its_lowest_level(codec):
    data = b"".join(f"{n % 97} words of {n * n % 1013} kinds; ".encode() for n in range(5_000))
    assert Compressor(codec).quick().compress(data) == Compressor(codec, level=1).compress(data)


def test_an_unknown_codec_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="none, zstd, gzip or lz4"):
        Compressor("brotli")
    with pytest.raises(ValueError, match="unknown codec 9"):
        decompress(9, b"", 0)


BOMB_BYTES = 300 * 1024 * 1024


def fed(compressor):
    """Return a bomb, made a megabyte at a time so that this process never holds it."""
    megabyte = b"\0" * (1 << 20)
    return b"".join(compressor.compress(megabyte) for _ in range(BOMB_BYTES >> 20)) + compressor.flush()


def lz4_bomb():
    """Return a block by hand: one literal, a match with itself of BOMB_BYTES, five last literals."""
    length, rest = divmod(BOMB_BYTES - 1 - 5 - 4 - 15, 255)
    return b"\x1f\0\x01\0" + b"\xff" * length + bytes([rest]) + b"\x50" + b"\0" * 5


def bombs():
    yield "zstd", Codec.ZSTD, fed(zstandard.ZstdCompressor(level=1).compressobj(size=BOMB_BYTES))
    yield "zstd without its size", Codec.ZSTD, fed(zstandard.ZstdCompressor(level=1).compressobj())
    yield "gzip", Codec.GZIP, fed(zlib.compressobj(9, wbits=31))
    yield "lz4", Codec.LZ4, lz4_bomb()
    yield "lz4 with its size", Codec.LZ4, BOMB_BYTES.to_bytes(4, "little") + lz4_bomb()


BOMBS = {name: (codec, stored) for name, codec, stored in bombs()}


@pytest.mark.parametrize(
    "claimed", [0, 1, 1000, MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1, BOMB_BYTES, 1 << 62, -1, -2, -(1 << 40)]
)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_before_it_is_unpacked(bomb, claimed):
    """Proves D11."""
    codec, stored = BOMBS[bomb]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r".+"):
            decompress(codec, stored, claimed)
        assert decompress_many([(codec, stored, claimed)]) == [None]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MAX_CHUNK_BYTES


def test_the_bombs_would_go_off_without_the_guard():
    assert lz4.block.decompress(BOMBS["lz4"][1], uncompressed_size=BOMB_BYTES) == b"\0" * BOMB_BYTES
    assert zstandard.frame_content_size(BOMBS["zstd"][1]) == BOMB_BYTES


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        (Codec.ZSTD, zstandard.compress(b"x" * 100) + b"more"),
        (Codec.ZSTD, zstandard.compress(b"x" * 100) * 2),
        (Codec.ZSTD, zstandard.compress(b"x" * 100)[:-1]),
        (Codec.GZIP, zlib.compress(b"x" * 100, wbits=31) + b"more"),
        (Codec.GZIP, gzip.compress(b"x" * 50, mtime=0) * 2),
        (Codec.GZIP, zlib.compress(b"x" * 100, wbits=31)[:-1]),
        (Codec.GZIP, zlib.compress(b"x" * 100)),
        (Codec.LZ4, lz4.block.compress(b"x" * 100, store_size=False) + b"more"),
        (Codec.LZ4, lz4.block.compress(b"x" * 100, store_size=False)[:-1]),
        (Codec.LZ4, lz4.block.compress(b"x" * 99, store_size=False)),
        (Codec.NONE, b"x" * 99),
        (Codec.NONE, b"x" * 101),
    ],
)
def test_bytes_too_many_or_too_few_are_refused(codec, stored):
    with pytest.raises(ValueError, match=r".+"):
        decompress(codec, stored, 100)


frames = st.sampled_from(
    [
        (zstandard.ZstdCompressor(level=level, write_checksum=checked).compress(data), len(data))
        for level in (1, 19)
        for checked in (False, True)
        for data in (b"some words and some words " * 20, b"x" * 300_000, bytes(range(256)) * 3, b"x")
    ]
)
harms = st.one_of(
    st.tuples(st.just("flip"), st.integers(0), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.integers(1, 40), st.just(0)),
    st.tuples(st.just("more"), st.integers(0, 255), st.integers(1, 20)),
    st.tuples(st.just("twice"), st.just(0), st.just(0)),
)


@st.composite
def harmed(draw):
    stored, size = draw(frames)
    for how, where, what in draw(st.lists(harms, max_size=2)):
        if how == "flip" and stored:
            at = where % len(stored)
            stored = stored[:at] + bytes([stored[at] ^ what]) + stored[at + 1 :]
        elif how == "cut":
            stored = stored[:-where]
        elif how == "more":
            stored += bytes([where]) * what
        else:
            stored *= 2
    return Codec.ZSTD, stored, size + draw(st.sampled_from([0, 0, 0, 1, -1]))


@settings(some, max_examples=500)
@given(st.lists(harmed(), max_size=6))
def test_of_many_at_once_none_is_taken_that_would_be_refused_alone(batch):
    for item, plain in zip(batch, decompress_many(batch), strict=True):
        if plain is not None:
            assert decompress(*item) == plain


@settings(some, max_examples=300)
@given(st.integers(-1, 5), st.binary(max_size=100), st.integers(-2, 200))
def test_garbage_gives_exactly_its_size_or_a_value_error(codec, stored, size):
    try:
        plain = decompress(codec, stored, size)
    except ValueError:
        return
    assert len(plain) == size


@some
@given(st.sampled_from(["zstd", "gzip", "lz4"]), st.integers(0), st.integers(1, 255))
def test_a_changed_byte_gives_the_right_size_or_a_value_error(codec, at, flip):
    data = b"some words and some words " * 20
    used, stored = Compressor(codec).compress(data)
    torn = bytearray(stored)
    torn[at % len(torn)] ^= flip
    try:
        plain = decompress(used, bytes(torn), len(data))
    except ValueError:
        return
    assert len(plain) == len(data)
