"""YAML and JSON text as plain data, with the line of everything in it.

YAML is read by its 1.2 core rules: `no`, `on`, `1:30` and dates are text. No tags, no anchors (a few lines of them
unfold into gigabytes), no key twice, nothing deeper or larger than a flow can be.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from holdfast.errors import FlowInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_FILE = 4 << 20
_DEEPEST = 24
_INT = re.compile(r"[-+]?[0-9](?:_?[0-9]){0,17}\Z")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9]{1,300}\.[0-9]{0,300}|\.[0-9]{1,300}|[0-9]{1,300}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?\Z"
)
_JSON_TOKEN = re.compile(
    r'(?P<newline>\n)|(?P<key>"(?:[^"\\]|\\.)*"(?=\s*:))|(?P<other>"(?:[^"\\]|\\.)*"|[][{},]|[^]\s[{},:"]+)'
)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip

Path = tuple[str | int, ...]


def quoted(value: object, longest: int = 60) -> str:
    """Return a text in quotes, as it can be read on any terminal: long ones cut, what cannot be printed escaped."""
    text = str(value)
    return repr(text if len(text) <= longest else text[: longest - 3] + "...")


class Document:
    """Plain data, where each part of it stands, and what is wrong with it that hides nothing else."""

    def __init__(
        self, data: Any, lines: dict[Path, int] | None = None, problems: list[tuple[Path, str]] | None = None
    ) -> None:
        self.data = data
        self.lines = lines or {}
        self.problems = problems or []

    def line(self, path: Path) -> int | None:
        """Return the line of a path, of its nearest parent if it has none itself."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_text(data: bytes, file: str) -> Document:
    """Return what a flow file says; FlowInvalid with the line if it is neither plain YAML nor JSON."""
    if len(data) > LARGEST_FILE:
        raise FlowInvalid(f"it is larger than {LARGEST_FILE:,} bytes, which no flow needs", file, ())
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FlowInvalid("it is not UTF-8", file, (f"line {line}: byte 0x{data[error.start]:02x}",)) from None
    try:
        return _read_json(text) if text.lstrip()[:1] == "{" else _read_yaml(text)
    except RecursionError:
        raise FlowInvalid("it is nested too deeply", file, (f"more than {_DEEPEST} levels",)) from None
    except ValueError as error:
        raise FlowInvalid("it cannot be read", file, (str(error),)) from None


def _read_json(text: str) -> Document:
    """Read JSON; a text that only begins like it may still be YAML in its flow style."""
    try:
        data = json.loads(text, parse_constant=str)
    except json.JSONDecodeError:
        return _read_yaml(text)
    except RecursionError:
        data = None  # where it is too deep is found below
    places = _JsonPlaces(text)
    return Document(data, places.lines, places.problems)


class _JsonPlaces:
    """Where everything stands in a text that is JSON."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[tuple[Path, str]] = []
        self._path: list[str | int] = []  # of the value that comes next or is under way
        line = 1
        for token in _JSON_TOKEN.finditer(text):
            if token.lastgroup == "newline":
                line += 1
            else:
                self._take(token[0], line, is_key=token.lastgroup == "key")

    def _take(self, piece: str, line: int, *, is_key: bool) -> None:
        path = self._path
        if is_key:
            path[-1] = json.loads(piece)
            if (first := self.lines.get(tuple(path))) is not None:
                self.problems.append((tuple(path), _twice(path[-1], first)))
            self.lines[tuple(path)] = line
        elif piece in ("]", "}"):
            path.pop()
        elif piece == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else ""
        else:
            self._value(piece, line)

    def _value(self, piece: str, line: int) -> None:
        path = self._path
        self.lines.setdefault(tuple(path), line)
        if piece in _CONSTANTS:
            self.problems.append((tuple(path), f"{piece} is no number that a flow could use"))
        elif piece in ("[", "{"):
            if len(path) > _DEEPEST:
                raise ValueError(f"line {line}: nested deeper than {_DEEPEST} levels")
            path.append(0 if piece == "[" else "")


def _read_yaml(text: str) -> Document:
    import yaml  # noqa: PLC0415 - loaded only where there is a file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(yaml, yaml.parse(text, Loader=loader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from None


class _Builder:
    """Plain data from YAML events."""

    def __init__(self, yaml: Any, events: Iterator[Any]) -> None:
        self._yaml = yaml
        self._events = events
        self._lines: dict[Path, int] = {}
        self._problems: list[tuple[Path, str]] = []

    def document(self) -> Document:
        yaml = self._yaml
        data = None
        seen = False
        for event in self._events:
            if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    raise ValueError(f"{_place(event)}: a second document begins; a flow file holds one")
                seen = True
                continue
            data = self._value(event, ())
        return Document(data, self._lines, self._problems)

    def _value(self, event: Any, path: Path) -> Any:
        yaml = self._yaml
        self._refuse(event, path)
        self._lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event.value) if event.implicit[0] else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            for item in self._until(yaml.SequenceEndEvent):
                items.append(self._value(item, (*path, len(items))))
            return items
        return self._mapping(path)

    def _mapping(self, path: Path) -> dict[str, Any]:
        yaml = self._yaml
        values: dict[str, Any] = {}
        for key in self._until(yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise ValueError(f"{_place(key)}: a key is a plain word, not a list or mapping")  # noqa: TRY004
            self._refuse(key, path)
            below = (*path, key.value)
            if key.value in values:
                self._problems.append((below, _twice(key.value, self._lines[below])))
            self._lines[below] = key.start_mark.line + 1
            values[key.value] = self._value(next(self._events), below)
        return values

    def _until(self, end: type) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _refuse(self, event: Any, path: Path) -> None:
        if isinstance(event, self._yaml.AliasEvent) or event.anchor is not None:
            raise ValueError(f"{_place(event)}: anchors and aliases (& and *) are not used here; write it out")
        if event.tag is not None and event.tag != "!":
            raise ValueError(f"{_place(event)}: tags ({event.tag:.40}) are not used here")
        if len(path) > _DEEPEST:
            raise ValueError(f"{_place(event)}: nested deeper than {_DEEPEST} levels")


def _scalar(text: str) -> Any:
    """Return what a plain scalar means by the core rules of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def _twice(key: object, line: int) -> str:
    return f"{quoted(key)} is there twice, first on line {line}"


def _place(event: Any) -> str:
    return f"line {event.start_mark.line + 1}"
