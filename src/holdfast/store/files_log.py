"""Logs of a files store: one line of JSON a transaction, and a witness beside that says how far the log went.

A line says whose log it is, its number, and the check of the line before it; a check over all that ends it. So a line
of another run, an older copy and a gap are found. The last line may be torn: a crash cut it off before it was
acknowledged, and it is dropped. Any other bad line is damage. The witness is written after the line is durable and is
not synced: it may lag, and never leads. So a log that ends before its witness has lost its newest lines.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from blake3 import blake3

from holdfast.encode.documents import open_regular, read_regular
from holdfast.errors import DocumentInvalid, FormatTooNew, IntegrityError, LimitExceeded
from holdfast.store.tables import FORMAT, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.encode.documents import Stream
    from holdfast.store.tables import Cell, Row, Table, Type

LONGEST_LINE = 64 << 20
LARGEST_INDEX = 256 << 20
_READ = 1 << 20
_HEAD, _TAIL = b',"check":"', b'"}\n'
_CHECK_CHARS = 32
_END_BYTES = len(_HEAD) + _CHECK_CHARS + len(_TAIL)
_WITNESS = re.compile(rb"(\d{16}) (\d{16}) ([0-9a-f]{32}) [0-9a-f]{16}\n(.*)\n\Z", re.DOTALL)
_WITNESS_BYTES = 2048
_BY_NAME = {table.name: table for table in TABLES}
_TYPES = {table.name: [column.type for column in table.all_columns] for table in TABLES}
_KINDS: dict[Type, tuple[type, ...]] = {"text": (str,), "int": (int,), "real": (int, float)}
_WIDTHS = {table.name: (len(table.key), len(table.all_columns)) for table in TABLES}

_Cells = list[str | int | float | None]


class LogLine(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One transaction: rows put and dropped, in their order, and the chunks that a run holds or lets go."""

    holdfast: int
    """The format, first: a line of a newer program is told from a damaged one."""
    run: str
    number: int
    prev: str
    begun: int = 0
    """In the first line of a run: its place in the order in which runs were begun."""
    rows: list[tuple[str, _Cells]] = []
    """Rows by table; a table with a minus sign drops the rows whose key begins with these cells."""
    holder: int = 0
    hold: list[str] = []
    release: list[str] = []


class LogChange(NamedTuple):
    """One row put (`row`), or the beginning of the keys of rows that are dropped (`prefix`)."""

    table: Table
    row: Row | None
    prefix: Row = ()


class WrittenLines(NamedTuple):
    """A line as it was read, with where it ends and its check; `error` says why it cannot be trusted.

    Only one that does not match its check can be torn: whole lines of others, or of a newer program, do.
    """

    line: LogLine | None
    check: str
    end: int
    error: IntegrityError | None = None
    matches: bool = True


class Witness(NamedTuple):
    """What a log held at least, when its witness was written."""

    number: int
    size: int
    check: str
    run: str


BROKEN = Witness(-1, 0, "", "")
"""A file that is not a witness: the log stands for itself, but a bad line at its end cannot be taken for a torn one."""
_decode = msgspec.json.Decoder(LogLine).decode
_encode = msgspec.json.Encoder().encode


def make_line(line: LogLine) -> tuple[bytes, str]:
    """Return a line's bytes and its check; LimitExceeded if it is longer than a line may be."""
    body = _encode(line)[:-1]
    if len(body) > LONGEST_LINE - _END_BYTES:
        raise LimitExceeded("commit less at once", "a transaction's bytes", len(body), LONGEST_LINE)
    return sealed(body)


def sealed(body: bytes) -> tuple[bytes, str]:
    """Return a JSON object without its closing brace as a line that ends with its check, and the check."""
    check = blake3(body).hexdigest(length=_CHECK_CHARS // 2)
    return body + _HEAD + check.encode() + _TAIL, check


def put_change(table: Table, row: Row) -> tuple[str, _Cells]:
    """Return a row that is put as a line has it."""
    return table.name, [b64encode(cell).decode() if isinstance(cell, bytes) else cell for cell in row]


def drop_change(table: Table, prefix: Row) -> tuple[str, _Cells]:
    """Return the drop of rows as a line has it."""
    return f"-{table.name}", [cell for cell in prefix if not isinstance(cell, bytes)]  # keys have no bytes


def changes_of(line: LogLine) -> Iterator[LogChange]:
    """Yield what a line did to rows; ValueError if it is not what lines of ours hold."""
    for name, cells in line.rows:
        table = _BY_NAME.get(name.removeprefix("-"))
        if table is None:
            raise ValueError(f"holds a row of {name!r:.40}, which is not a table")
        width, full = _WIDTHS[table.name]
        if name.startswith("-"):
            if len(cells) > width:
                raise ValueError(f"drops a key of {table.name} that is too long")
            yield LogChange(table, None, tuple(map(_cell, cells, _TYPES[table.name])))
        elif len(cells) != full or None in cells[:width]:
            raise ValueError(f"holds a row of {table.name} with {len(cells)} cells")
        else:
            yield LogChange(table, tuple(map(_cell, cells, _TYPES[table.name])))


def _cell(cell: Any, kind: Type) -> Cell:
    if kind == "blob":
        try:
            return b64decode(cell, validate=True)
        except (TypeError, ValueError):
            raise ValueError("holds a value that is not base64") from None
    if cell is not None and not isinstance(cell, _KINDS[kind]):
        raise ValueError(f"holds {cell!r:.40} where a {kind} belongs")
    return cast("Cell", cell)


def read_lines(descriptor: int, start: int = 0) -> Iterator[WrittenLines]:
    """Yield the lines of a log from a position on, each parsed and checked by itself; the last may be torn.

    Memory is bounded by the longest line. A line that is longer than any of ours ends the reading.
    """
    position, parts, held = start, [b""], 0  # what is read of the line that is not whole yet
    while data := os.pread(descriptor, _READ, position + held):
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*parts, lines[0]))
            for raw in lines:
                position += len(raw) + 1
                yield _parsed(raw + b"\n", position)
            parts, held = [], 0
        parts.append(rest)
        held += len(rest)
        if held > LONGEST_LINE:
            error = IntegrityError(f"is longer than {LONGEST_LINE:,} bytes")
            yield WrittenLines(None, "", position, error, matches=False)
            return
    if held:
        yield WrittenLines(None, "", position, IntegrityError("is cut off"), matches=False)


def _parsed(raw: bytes, end: int) -> WrittenLines:
    body, check = raw[:-_END_BYTES], raw[-_CHECK_CHARS - len(_TAIL) : -len(_TAIL)].decode("ascii", "replace")
    matches = raw == sealed(body)[0]
    error = None if matches else IntegrityError("does not match its check")
    try:
        line = _decode(body + b"}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as failure:
        error = error or _newer(body) or IntegrityError(f"cannot be decoded ({failure})")
        return WrittenLines(None, check, end, error, matches)
    if matches and line.holdfast != FORMAT:
        error = FormatTooNew("its journal", line.holdfast, FORMAT)
    return WrittenLines(line, check, end, error, matches)


def _newer(body: bytes) -> FormatTooNew | None:
    """Return the error for a line whose shape is not known because a newer program wrote it."""
    found = re.match(rb'\{"holdfast":(\d{1,9})[,}]', body)
    version = int(found[1]) if found else 0
    return FormatTooNew("its journal", version, FORMAT) if version > FORMAT else None


def tail_check(descriptor: int, end: int) -> str:
    """Return the check of the line that ends at a position, as it stands there."""
    data = os.pread(descriptor, _CHECK_CHARS + len(_TAIL), max(0, end - _CHECK_CHARS - len(_TAIL)))
    return data[: -len(_TAIL)].decode("ascii", "replace") if data.endswith(_TAIL) else ""


def make_witness(witness: Witness) -> bytes:
    """Return a witness as its file has it, always of one length for a run; a torn one does not match its end."""
    said = f"{witness.number:016d} {witness.size:016d} {witness.check}"
    return f"{said} {blake3(f'{said} {witness.run}'.encode()).hexdigest(length=8)}\n{witness.run}\n".encode()


def read_witness(path: Path, run: str | None = None) -> Witness | None:
    """Return a witness, None if it is missing or empty, BROKEN if it is anything else than one of this run."""
    try:
        data = read_regular(path, limit=_WITNESS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DocumentInvalid:
        return BROKEN
    found = _WITNESS.match(data)
    if not found:
        return BROKEN if data else None
    witness = Witness(int(found[1]), int(found[2]), found[3].decode(), found[4].decode(errors="replace"))
    return witness if make_witness(witness) == data and run in (None, witness.run) else BROKEN


def open_log(path: Path) -> Stream | None:
    """Open a log for reading, None if there is none; DocumentInvalid if it is not a regular file."""
    try:
        return open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


class IndexLine(msgspec.Struct, forbid_unknown_fields=True):
    """One run in the index: its place in the order of runs, its numbers and those of its lines."""

    run: str
    begun: int
    numbers: list[int]
    lines: list[int]


_decode_index = msgspec.json.Decoder(IndexLine).decode


def index_line(entry: IndexLine) -> bytes:
    """Return a run as the index has it."""
    return sealed(_encode(entry)[:-1])[0]


def read_index(path: Path, start: int) -> tuple[list[IndexLine], int | None]:
    """Return the entries of an index from a position on and where they end; None if it is missing or broken."""
    try:
        size = path.lstat().st_size
        if size == start:
            return [], start
        data = read_regular(path, limit=LARGEST_INDEX)[start:] if start < size else None
    except (FileNotFoundError, NotADirectoryError, DocumentInvalid):
        data = None
    if data is None:
        return [], None
    found: list[IndexLine] = []
    *lines, _torn = data.split(b"\n")
    for raw in lines:
        body = raw[: 1 - _END_BYTES]
        try:
            if raw + b"\n" != sealed(body)[0]:
                return found, None
            found.append(_decode_index(body + b"}"))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return found, None
    return found, start + sum(len(raw) + 1 for raw in lines)
