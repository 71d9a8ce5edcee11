"""Documents as YAML or JSON text, compressed or not; reading is bounded, and knows plain data only."""

from __future__ import annotations

import re
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import zstandard

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.encode.compress import CodecName

Form = Literal["yaml", "json"]
SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst", "lz4": ".lz4"}
MAX_TEXT_BYTES = 512 * 1024 * 1024
_ANCHOR = re.compile(rb"[&*]\w+\s*$", re.MULTILINE)


def write(lines: dict[str, Any], form: Form, compression: CodecName) -> bytes:
    """Return a document's bytes."""
    text = _yaml().write(lines) if form == "yaml" else msgspec.json.format(msgspec.json.encode(lines), indent=2) + b"\n"
    if compression == "gzip":
        return _gzip(text)
    if compression == "zstd":
        return zstandard.ZstdCompressor(level=9).compress(text)
    if compression == "lz4":
        return bytes(_lz4().compress(text))
    return text


def read(data: bytes, name: str, *, head_only: bool = False) -> Any:
    """Return what a document of this name says; ValueError if it is none. `head_only` may leave out the sections."""
    text = _plain(data, name)
    if ".json" in name:
        try:
            return msgspec.json.decode(text)
        except msgspec.MsgspecError as error:
            raise ValueError(f"is no JSON ({error})") from error
    if head_only:
        text = text.partition(b"\nsections:")[0]
    return _yaml().read(text)


def _gzip(text: bytes) -> bytes:
    stream = zlib.compressobj(6, wbits=31)  # no time in its header, so equal texts are equal files
    return stream.compress(text) + stream.flush()


def _plain(data: bytes, name: str) -> bytes:
    try:
        if name.endswith(".gz"):
            stream = zlib.decompressobj(wbits=31)
            text = stream.decompress(data, MAX_TEXT_BYTES)
            whole = stream.eof
        elif name.endswith(".zst"):
            with zstandard.ZstdDecompressor().stream_reader(data) as reader:
                text = reader.read(MAX_TEXT_BYTES)
            whole = len(text) < MAX_TEXT_BYTES and len(text) == zstandard.frame_content_size(data)
        elif name.endswith(".lz4"):
            stream = _lz4().LZ4FrameDecompressor()
            text = stream.decompress(data, MAX_TEXT_BYTES)
            whole = stream.eof
        else:
            return data
    except (zlib.error, zstandard.ZstdError, RuntimeError) as error:
        raise ValueError(f"cannot be decompressed ({error})") from error
    if not whole:
        raise ValueError("is cut off, or larger than any that is written")
    return bytes(text)


def _lz4() -> Any:
    try:
        import lz4.frame  # noqa: PLC0415 - an extra, loaded only when a store uses it
    except ImportError:
        raise UsageError("lz4 compression needs the extra: pip install 'holdfast[lz4]'") from None
    return lz4.frame


class _Yaml:
    """PyYAML's safe half: long texts as blocks, no anchors written, none read."""

    def __init__(self) -> None:
        try:
            import yaml  # noqa: PLC0415 - an extra, loaded only when a store uses it
        except ImportError:
            raise UsageError("YAML documents need the extra: pip install 'holdfast[files]'") from None
        self._yaml = yaml
        self._loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

        class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
            def ignore_aliases(self, _data: Any) -> bool:
                return True

        def text(dumper: Any, value: str) -> Any:
            style = "|" if "\n" in value and not value.startswith(("\n", " ")) else None
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

        Dumper.add_representer(str, text)
        self._dumper = Dumper

    def write(self, lines: dict[str, Any]) -> bytes:
        """Return plain data as YAML that is read back the same, or say so."""
        dumped: bytes = self._yaml.dump(
            lines, Dumper=self._dumper, sort_keys=False, allow_unicode=True, width=100, encoding="utf-8"
        )
        return dumped

    def read(self, text: bytes) -> Any:
        """Return plain data."""
        try:
            if _ANCHOR.search(text) and any(getattr(event, "anchor", None) for event in self._events(text)):
                raise ValueError("uses anchors, which no document of ours does")
            return self._yaml.load(text, Loader=self._loader)  # the safe loader
        except (self._yaml.YAMLError, RecursionError) as error:
            raise ValueError(f"is no YAML ({error})") from error

    def _events(self, text: bytes) -> Any:
        return self._yaml.parse(text, Loader=self._loader)


@cache
def _yaml() -> _Yaml:
    return _Yaml()
