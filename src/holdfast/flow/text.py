"""A flow file's text as plain data, with the line of everything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.encode.documents import Bounds, DocumentPath, Places, parse_json, parse_yaml, read_regular
from holdfast.errors import DocumentInvalid, FlowInvalid

if TYPE_CHECKING:
    from pathlib import Path as FilePath

BOUNDS = Bounds(size_bytes=4 << 20, depth=25, nodes=200_000)

Path = DocumentPath


def quoted(value: object, longest: int = 60) -> str:
    """Return a text in quotes, as it can be read on any terminal: long ones cut, what cannot be printed escaped."""
    text = str(value)
    return repr(text if len(text) <= longest else text[: longest - 3] + "...")


class Document:
    """Plain data, where each part of it stands, and what is wrong with it that hides nothing else."""

    def __init__(self, data: Any, places: Places | None = None) -> None:
        places = places or Places()
        self.data = data
        self.lines = places.lines
        self.problems = places.problems

    def line(self, path: Path) -> int | None:
        """Return the line of a path, of its nearest parent if it has none itself."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_text(data: bytes, file: str) -> Document:
    """Return what a flow file says; FlowInvalid with the line if it is neither plain YAML nor JSON."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        places = Places()
        try:
            return Document(parse_json(data, file, BOUNDS, places=places), places)
        except DocumentInvalid:
            pass  # what only begins like JSON may still be YAML in its flow style
    places = Places()
    try:
        return Document(parse_yaml(data, file, BOUNDS, places=places), places)
    except DocumentInvalid as error:
        raise FlowInvalid("it cannot be read", file, (error.detail,)) from None


def read_flow_file(path: FilePath) -> bytes:
    """Return the bytes of a flow or plan that the caller named; FlowInvalid if it is not a file, or too large."""
    try:
        return read_regular(path, limit=BOUNDS.size_bytes, follow=True)
    except DocumentInvalid as error:
        raise FlowInvalid(f"it {error.detail}", str(path), ()) from None
    except (OSError, ValueError) as error:
        raise FlowInvalid(f"it cannot be read ({getattr(error, 'strerror', error)})", str(path), ()) from error
