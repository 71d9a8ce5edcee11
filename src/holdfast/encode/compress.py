"""Compression of single chunks: bounded on the way back, because stored bytes are untrusted."""

from __future__ import annotations

import threading
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import zstandard

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_CHUNK_BYTES = 4 * 1024 * 1024
_SMALLEST = 64  # below this a frame's header eats the gain

CodecName = Literal["none", "zstd", "gzip", "lz4"]


class Codec(IntEnum):
    """How a chunk's bytes are stored; the numbers are part of the format."""

    NONE = 0
    ZSTD = 1
    GZIP = 2
    LZ4 = 3


class Compressor:
    """Compresses chunks with one codec; safe to use from several threads."""

    def __init__(self, codec: CodecName = "zstd", *, level: int | None = None) -> None:
        try:
            self.codec = Codec[codec.upper()]
        except KeyError:
            raise UsageError(f"unknown compression {codec!r}: use none, zstd, gzip or lz4") from None
        self._local = threading.local()
        self._level = level
        self._is_batching = self.codec is Codec.ZSTD and "multi_compress_to_buffer" in zstandard.backend_features
        if self.codec is Codec.LZ4:
            _lz4()

    def compress(self, data: bytes) -> tuple[Codec, bytes]:
        """Return the codec used and the stored bytes; bytes that do not shrink are kept as they are."""
        if self.codec is Codec.NONE or len(data) < _SMALLEST:
            return Codec.NONE, data
        try:
            squeeze: Callable[[bytes], bytes] = self._local.squeeze
        except AttributeError:
            squeeze = self._local.squeeze = self._make()
        stored = squeeze(data)
        return (self.codec, stored) if len(stored) < len(data) else (Codec.NONE, data)

    def compress_many(self, batch: Sequence[bytes]) -> list[tuple[Codec, bytes]]:
        """Return what `compress` gives for each of these; other threads run meanwhile, where the library can do that.

        One call for each chunk waits for Python's lock each time, which takes longer than compressing a small chunk.
        """
        large: list[bytes | bytearray | memoryview] = [data for data in batch if len(data) >= _SMALLEST]
        if not self._is_batching or not large:
            return [self.compress(data) for data in batch]
        try:
            native: zstandard.ZstdCompressor = self._local.native
        except AttributeError:
            native = self._local.native = self._zstd()
        squeezed = iter(native.multi_compress_to_buffer(large))
        done: list[tuple[Codec, bytes]] = []
        for data in batch:
            stored = next(squeezed).tobytes() if len(data) >= _SMALLEST else data
            done.append((self.codec, stored) if len(stored) < len(data) else (Codec.NONE, data))
        return done

    def quick(self) -> Compressor:
        """Return one of the same codec for a bulk of new chunks: a fifth less time for three hundredths more bytes."""
        return Compressor(self.codec.name.lower(), level=1)  # type: ignore[arg-type]

    def _make(self) -> Callable[[bytes], bytes]:
        """Build the native compressor once a thread: it costs more than compressing a small chunk."""
        if self.codec is Codec.ZSTD:
            return self._zstd().compress
        if self.codec is Codec.GZIP:
            level = 6 if self._level is None else self._level
            return lambda data: zlib.compress(data, level, wbits=31)
        compress_block: Callable[..., bytes] = _lz4().compress
        return lambda data: compress_block(data, store_size=False)

    def _zstd(self) -> zstandard.ZstdCompressor:
        return zstandard.ZstdCompressor(level=3 if self._level is None else self._level)


_decompressors = threading.local()
_SMALL_BLOCKS, _SMALL_BLOCK_BYTES = 16, 1024  # a hostile frame has millions of empty blocks: not to be walked here
_UNPACKS_BATCHES = "multi_decompress_to_buffer" in zstandard.backend_features


def decompress(codec: int, stored: bytes, size: int) -> bytes:
    """Return exactly `size` plain bytes, or raise ValueError; never allocates more than that."""
    if not 0 <= size <= MAX_CHUNK_BYTES:  # below 0, zlib and lz4 would take it for "no limit"
        raise ValueError(f"claims {size:,} bytes, a chunk has at most {MAX_CHUNK_BYTES:,}")
    if codec == Codec.NONE:
        plain = stored
    elif codec == Codec.ZSTD:
        plain = _decompress_zstd(stored, size)
    elif codec == Codec.GZIP:
        plain = _decompress_gzip(stored, size)
    elif codec == Codec.LZ4:
        plain = _decompress_lz4(stored, size)
    else:
        raise ValueError(f"is stored with unknown codec {codec}")
    if len(plain) != size:
        raise ValueError(f"holds {len(plain):,} bytes instead of {size:,}")
    return plain


def decompress_many(batch: Sequence[tuple[int, bytes, int]]) -> list[bytes | None]:
    """Return the plain bytes of several chunks (codec, stored bytes, size); other threads run meanwhile.

    None stands for each that only `decompress` can judge: another codec, or anything unsound.
    """
    sound = [_is_one_frame(*item) for item in batch]
    frames: list[bytes | bytearray | memoryview] = [
        item[1] for item, is_sound in zip(batch, sound, strict=True) if is_sound
    ]
    if not frames:  # the library divides by the number of frames
        return [None] * len(batch)
    try:
        plain = iter(zstandard.ZstdDecompressor().multi_decompress_to_buffer(frames))
    except zstandard.ZstdError:
        return [None] * len(batch)
    return [next(plain).tobytes() if is_sound else None for is_sound in sound]


def _is_one_frame(codec: int, stored: bytes, size: int) -> bool:
    """Tell whether the stored bytes are one zstd frame of this size and no more, by the headers of its blocks."""
    if codec != Codec.ZSTD or not 0 < size <= MAX_CHUNK_BYTES or not _UNPACKS_BATCHES:
        return False
    try:
        if zstandard.frame_content_size(stored) != size:
            return False
        position = zstandard.frame_header_size(stored)
    except zstandard.ZstdError:
        return False
    is_last = False
    for _ in range(_SMALL_BLOCKS + size // _SMALL_BLOCK_BYTES):
        header = int.from_bytes(stored[position : position + 3], "little")
        is_last, is_repeated = bool(header & 1), header >> 1 & 3 == 1
        position += 3 + (1 if is_repeated else header >> 3)
        if is_last or position > len(stored):
            break
    return is_last and position + (4 if stored[4] & 4 else 0) == len(stored)  # that bit says whether a checksum follows


def _decompress_zstd(stored: bytes, size: int) -> bytes:
    # zstandard allocates what the frame header claims, whatever max_output_size says: so the claim is checked first.
    try:
        claimed = zstandard.frame_content_size(stored)
        if claimed != size:
            raise ValueError(f"claims {claimed:,} bytes instead of {size:,}")
        try:
            decompressor: zstandard.ZstdDecompressor = _decompressors.zstd
        except AttributeError:
            decompressor = _decompressors.zstd = zstandard.ZstdDecompressor()
        return decompressor.decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"is not a sound zstd frame ({error})") from error


def _decompress_gzip(stored: bytes, size: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(stored, size + 1)
    except zlib.error as error:
        raise ValueError(f"is not a sound gzip stream ({error})") from error
    if not stream.eof or stream.unused_data:
        raise ValueError("does not end where its gzip stream ends")
    return plain


def _decompress_lz4(stored: bytes, size: int) -> bytes:
    block = _lz4()
    try:
        plain: bytes = block.decompress(stored, uncompressed_size=size)
    except block.LZ4BlockError as error:
        raise ValueError(f"is not a sound lz4 block ({error})") from error
    return plain


def _lz4() -> Any:
    try:
        import lz4.block  # noqa: PLC0415 - an extra, loaded only when a store uses it
    except ImportError:
        raise UsageError("lz4 compression needs the extra: pip install 'holdfast[lz4]'") from None
    return lz4.block
