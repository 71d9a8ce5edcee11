"""Documents that anybody may have written: JSON and YAML files, read within bounds and as plain data only.

A file is opened without following links and without waiting, must be a regular one, and is refused for its size before
it is read. What it says is refused if it is nested too deeply, has too many parts, uses anchors or tags, or says a key
twice. Whatever is wrong is a DocumentInvalid with the place; nothing else leaves this module but errors of the disk.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import DocumentInvalid
from holdfast.lazy import lazily, pattern

with lazily():  # a file of a few bytes is read without them
    import json

    import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_INT = pattern(r"[-+]?[0-9](?:_?[0-9]){0,17}\Z")
_FLOAT = pattern(r"[-+]?(?:[0-9]{1,300}\.[0-9]{0,300}|\.[0-9]{1,300}|[0-9]{1,300}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?\Z")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_STRING = pattern(rb'"(?:[^"\\]|\\.)*"')
_JSON_TOKEN = pattern(
    r'(?P<newline>\n)|(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<other>"(?:[^"\\]|\\.)*"|[][{},]|[^]\s[{},:"]+)'
)
_NO_FILE = {errno.ELOOP: "is a symbolic link", errno.ENXIO: "is a socket"}
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)


class Bounds(NamedTuple):
    """How large a document may be."""

    size_bytes: int = 16 << 20
    depth: int = 64
    nodes: int = 500_000
    """Values and containers. An empty list is one or two bytes of text and up to 72 of memory."""


BOUNDS = Bounds()


DocumentPath = tuple[str | int, ...]


class Places:
    """Where each part of a document stands, and what is wrong in it that hides nothing else: a key twice, NaN.

    Without one of these the document is refused for it.
    """

    def __init__(self) -> None:
        self.lines: dict[DocumentPath, int] = {}
        self.problems: list[tuple[DocumentPath, str]] = []

    def key(self, path: DocumentPath, line: int) -> None:
        """Note where a key stands, and that it did before."""
        first = self.lines.get(path)
        if first is not None:
            self.problems.append((path, f"{path[-1]!r:.80} is there twice, first on line {first}"))
        self.lines[path] = line


class Stream(NamedTuple):
    """A regular file that is open for reading."""

    descriptor: int
    status: os.stat_result


def open_regular(path: Path | str, *, follow: bool = False, dir_fd: int | None = None) -> Stream:
    """Open a regular file for reading; DocumentInvalid for anything else, OSError if the disk refuses."""
    try:
        descriptor = os.open(path, _FLAGS & ~os.O_NOFOLLOW if follow else _FLAGS, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise DocumentInvalid(f"{_NO_FILE[error.errno]}, not a file", str(path)) from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise DocumentInvalid("is not a regular file", str(path))
    return Stream(descriptor, status)


def read_regular(path: Path | str, *, limit: int, follow: bool = False) -> bytes:
    """Return a regular file's bytes; DocumentInvalid if there are more than `limit`, before they are read."""
    return b"".join(blocks(path, open_regular(path, follow=follow), limit))


class OwnFile(NamedTuple):
    """A file of this user, and how it was when it was opened."""

    data: bytes
    status: os.stat_result


def read_own(path: Path | str, *, limit: int) -> OwnFile:
    """Return a regular file that belongs to this user; DocumentInvalid if it is another's, or a link."""
    stream = open_regular(path)
    if stream.status.st_uid != os.geteuid():
        os.close(stream.descriptor)
        raise DocumentInvalid("belongs to another user", str(path))
    return OwnFile(b"".join(blocks(path, stream, limit)), stream.status)


def blocks(path: Path | str, stream: Stream, limit: int) -> Iterator[bytes]:
    """Yield an open file's bytes and close it; DocumentInvalid if there are more than `limit`, before any is read."""
    descriptor, status = stream
    try:
        if status.st_size > limit:
            raise DocumentInvalid(f"has {status.st_size:,} bytes; the limit is {limit:,}", str(path))
        left = limit + 1
        while left and (part := os.read(descriptor, min(left, 1 << 20))):
            yield part
            left -= len(part)
    finally:
        os.close(descriptor)
    if not left:
        raise DocumentInvalid(f"grew beyond the limit of {limit:,} bytes", str(path))


def read_document(path: Path, bounds: Bounds = BOUNDS) -> Any:
    """Return what a JSON or YAML file says, compressed (.gz, .zst) or not."""
    data, name = read_regular(path, limit=bounds.size_bytes), path.name
    for suffix, unpack in ((".gz", _gunzip), (".zst", _unzstd)):
        if name.endswith(suffix):
            data, name = unpack(data, bounds.size_bytes, str(path)), name.removesuffix(suffix)
    parse = parse_json if name.endswith((".json", ".jsonl")) else parse_yaml
    return parse(data, str(path), bounds)


def parse_json(data: bytes, name: str, bounds: Bounds = BOUNDS, *, places: Places | None = None) -> Any:
    """Return what a JSON text says; DocumentInvalid if it is none, or says more than it may.

    `places` is filled with the line of every part, by its path.
    """
    text = _text(data, name, bounds)
    if _parts(data) > bounds.nodes and _parts(_STRING.sub(b"", data)) > bounds.nodes:  # before they take memory
        raise DocumentInvalid(f"has more than {bounds.nodes:,} parts", name)
    try:
        hook, constant = (_unique, _refuse_constant) if places is None else (None, str)
        value = json.loads(text, object_pairs_hook=hook, parse_constant=constant, parse_float=_finite)
    except (ValueError, RecursionError, MemoryError) as error:
        raise DocumentInvalid(f"is not valid JSON ({_said(error)})", name) from None
    _check_depth(value, name, bounds)
    if places is not None:
        _fill_json_places(text, places)
    return value


def parse_yaml(data: bytes, name: str, bounds: Bounds = BOUNDS, *, places: Places | None = None) -> Any:
    """Return what a YAML text says by the core rules of YAML 1.2: `no`, `on`, `1:30` and dates are text.

    No tags, no anchors, no key twice, one document. `places` is filled with the line of every part, by its path.
    """
    text = _text(data, name, bounds)
    try:
        import yaml  # noqa: PLC0415 - loaded only where there is such a file
    except ImportError:
        raise DocumentInvalid("needs PyYAML: pip install pyyaml", name) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(yaml, yaml.parse(text, Loader=loader), bounds, places).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DocumentInvalid(f"is not valid YAML ({place}{error.problem or error.context})", name) from None
    except (yaml.YAMLError, ValueError, RecursionError, MemoryError) as error:
        raise DocumentInvalid(f"is not valid YAML ({_said(error)})", name) from None


def _text(data: bytes, name: str, bounds: Bounds) -> str:
    if len(data) > bounds.size_bytes:
        raise DocumentInvalid(f"has {len(data):,} bytes; the limit is {bounds.size_bytes:,}", name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentInvalid(f"is not UTF-8 (line {line}: byte 0x{data[error.start]:02x})", name) from None


def _parts(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _said(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r:.80} is there twice")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits:.40} is larger than any number can be")
    return number


def _fill_json_places(text: str, places: Places) -> None:
    """Note where everything stands in a text that is JSON."""
    path: list[str | int] = []  # of the value that comes next or is under way
    line = 1
    for token in _JSON_TOKEN.finditer(text):
        piece = token[0]
        if token.lastgroup == "newline":
            line += 1
        elif token.lastgroup == "key":
            path[-1] = json.loads(piece)
            places.key(tuple(path), line)
        elif piece in ("]", "}"):
            path.pop()
        elif piece == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
        else:
            places.lines.setdefault(tuple(path), line)
            if piece in ("NaN", "Infinity", "-Infinity"):
                places.problems.append((tuple(path), f"{piece} is not a JSON number"))
            elif piece in ("[", "{"):
                path.append(0 if piece == "[" else "")


def _check_depth(value: Any, name: str, bounds: Bounds) -> None:
    """Refuse what is nested deeper than it may, without recursion."""
    level, depth = [value], 0
    while level := [part for part in level if type(part) is dict or type(part) is list]:
        depth += 1
        if depth > bounds.depth:
            raise DocumentInvalid(f"is nested deeper than {bounds.depth} levels", name)
        level = [below for part in level for below in (part.values() if type(part) is dict else part)]


def _gunzip(data: bytes, limit: int, name: str) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise DocumentInvalid(f"cannot be decompressed ({error})", name) from None
    if len(plain) > limit or not stream.eof or stream.unused_data:
        raise DocumentInvalid(f"is cut off, or holds more than {limit:,} bytes", name)
    return plain


def _unzstd(data: bytes, limit: int, name: str) -> bytes:
    try:
        # A window of 8 MiB at most: a hostile frame may ask for gigabytes before it says anything.
        with zstandard.ZstdDecompressor(max_window_size=8 << 20).stream_reader(
            data, read_across_frames=False
        ) as reader:
            plain = reader.read(limit + 1)
            whole = len(plain) <= limit and not reader.read(1)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DocumentInvalid(f"cannot be decompressed ({error})", name) from None
    if not whole:
        raise DocumentInvalid(f"holds more than {limit:,} bytes", name)
    return plain


class _Builder:
    """Plain data from YAML events."""

    def __init__(
        self, yaml: Any, events: Iterator[Any], bounds: Bounds, places: Places | None
    ) -> None:  # fmt: skip
        self._yaml = yaml
        self._events = events
        self._bounds = bounds
        self._places = places
        self._nodes = 0

    def document(self) -> Any:
        yaml = self._yaml
        data, begun = None, False
        for event in self._events:
            if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                if begun:
                    raise ValueError(f"{_place(event)}: a second document begins")
                begun = True
                continue
            data = self._value(event, ())
        return data

    def _value(self, event: Any, path: DocumentPath) -> Any:
        yaml = self._yaml
        self._check(event, len(path))
        if self._places is not None:
            self._places.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event.value) if event.implicit[0] else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            for item in self._until(yaml.SequenceEndEvent):
                items.append(self._value(item, (*path, len(items))))
            return items
        values: dict[str, Any] = {}
        for key in self._until(yaml.MappingEndEvent):
            self._check(key, len(path))
            if not isinstance(key, yaml.ScalarEvent):
                raise ValueError(f"{_place(key)}: a key is a plain word, not a list or mapping")  # noqa: TRY004
            if self._places is not None:
                self._places.key((*path, key.value), key.start_mark.line + 1)
            elif key.value in values:
                raise ValueError(f"{_place(key)}: {key.value!r:.80} is there twice")
            values[key.value] = self._value(next(self._events), (*path, key.value))
        return values

    def _until(self, end: type) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _check(self, event: Any, depth: int) -> None:
        self._nodes += 1
        if isinstance(event, self._yaml.AliasEvent) or event.anchor is not None:
            raise ValueError(f"{_place(event)}: anchors and aliases (& and *) are not used here; write it out")
        if event.tag is not None and event.tag != "!":
            raise ValueError(f"{_place(event)}: tags ({event.tag:.40}) are not used here")
        if depth >= self._bounds.depth and not isinstance(event, self._yaml.ScalarEvent):
            raise ValueError(f"{_place(event)}: nested deeper than {self._bounds.depth} levels")
        if self._nodes > self._bounds.nodes:
            raise ValueError(f"{_place(event)}: more than {self._bounds.nodes:,} parts")


def _scalar(text: str) -> Any:
    return _WORDS[text] if text in _WORDS else _number(text)


def is_plain_text(text: str) -> bool:
    """Tell whether a plain scalar of YAML is this text, and not a number, a truth value or nothing."""
    return text not in _WORDS and isinstance(_number(text), str)


def _number(text: str) -> Any:
    """Return the number that a plain scalar means, the text itself if it means none."""
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def _place(event: Any) -> str:
    return f"line {event.start_mark.line + 1}"
