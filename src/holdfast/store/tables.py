"""Tables of a store, format 2: what each row holds, what it is found by, and what it is bound to.

A row is a key, a few list columns (for finding and filtering; derived from the value), the value and a seal. The value
is the truth: it holds everything, and the seal binds it to its table and key. Media know tables only as columns.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from blake3 import blake3

from holdfast.model.checkpoint import Marks

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 2
MAIN = "main"
"""The line that every run has."""

Type = Literal["text", "int", "real", "blob"]
Cell: TypeAlias = str | int | float | bytes | None
Key: TypeAlias = tuple[Cell, ...]
Row: TypeAlias = tuple[Cell, ...]
Scalar: TypeAlias = str | int | float | bool | None
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
"""A count that a store gives; one that is out of reach was not given by any, and a successor always fits."""
Handle: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""A random number that stands for a run or a line in the keys of others."""
Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
"""A number in a journal."""
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_300_800)]
"""A time since 1970 that has a date."""
Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
Amount: TypeAlias = Annotated[str, msgspec.Meta(max_length=100)]


class RunRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A run: `n` names this incarnation, so that a run that was deleted and begun again is another one."""

    id: str
    n: Handle
    created_at: Time
    updated_at: Time
    project: str = ""
    key: str | None = None
    status: str | None = None
    attributes: dict[str, Scalar] = {}
    forked_from: str | None = None
    accounts: tuple[tuple[str, bytes], ...] = ()
    """The names and digests of its budgets, so that one whose row vanished or was put back is missed."""
    version: Number = 0
    """How often the row was changed; each line notes what it saw, so that an older row put back is noticed."""


class LineRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The head of a line: the last journal number and its seal, the head checkpoint, and who may write.

    `ranges` are the numbers that the line consists of, oldest first; the last one is open and ends at `number`. Going
    back closes a range early and begins another after the highest number ever used. `consumed` is the last inbox
    entry that the run has taken in; it only grows.
    """

    run: str
    name: str
    n: Handle
    created_at: Time
    updated_at: Time
    number: Position = 0
    chain: bytes = b""
    ranges: tuple[tuple[Position, Position], ...] = ()
    head: str | None = None
    last_seq: Number = 0
    checkpoints: Number = 0
    fence: Number = 0
    consumed: Number = 0
    chunked: Position = 0
    """The number of the last record that is kept in chunks: a sweep must not overlook one that comes meanwhile."""
    run_version: Number = 0
    """The version of the run's row when this one was last written."""


class Record(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One journal record. `prev` is the seal of the record before it, so the seals form a chain."""

    line: Handle
    number: Position
    prev: bytes
    kind: str
    path: str
    at: Seconds
    key: str | None = None
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()


class GapRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Records that compaction removed: their numbers, the seal before the first and that of the last."""

    line: Handle
    first: Position
    last: Position
    prev: bytes
    seal: bytes


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A checkpoint: its envelope as bytes, what may change about it, and the journal number it stands at."""

    run: str
    line: str
    seq: Number
    id: str
    envelope: bytes
    trigger: str
    phase: str | None
    created_at: Seconds
    marks: Marks = Marks()
    number: Position = 0
    key: str | None = None
    attributes: dict[str, Scalar] = {}
    ranges: tuple[tuple[Position, Position], ...] = ()
    marked: Number = 0
    """How often its marks were changed, so that a change that was lost is noticed."""


class TombstoneRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a deleted checkpoint leaves: its number stays taken, and its child's link can still be checked."""

    run: str
    line: str
    seq: Number
    id: str
    checksum: bytes


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Who may write a line, until when; `token` never goes back."""

    run: str
    line: str
    owner: str
    token: Number
    expires_at: Seconds


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One entry that somebody else left for a run."""

    run: str
    number: Number
    kind: str
    at: Seconds
    key: str | None = None
    body: bytes = b""


class AccountRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One budget of a run, over all segments: what was used, what is reserved by open calls, and the limit."""

    run: str
    name: str
    used: Amount = "0"
    reserved: Amount = "0"
    lost: Amount = "0"
    limit: Amount | None = None
    raised: Amount = "0"

    @property
    def digest(self) -> bytes:
        """What its run's row has of it."""
        return blake3(msgspec.msgpack.encode(self)).digest(16)


class MetaRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One fact about the store itself."""

    name: str
    body: bytes = b""


class Column(NamedTuple):
    """A column as a medium sees it."""

    name: str
    type: Type


class Index(NamedTuple):
    """A way to find rows by list columns."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False


class Table(NamedTuple):
    """A table: the rows' type, the key's fields, and list columns with a way to derive each from a row's value.

    `hidden` columns hold what an encrypted store must not show: it stores a keyed digest there. `packed` says that the
    key is two integers (31 and 32 bits), which a medium may keep as one.
    """

    name: str
    struct: type[msgspec.Struct]
    key: tuple[Column, ...]
    columns: tuple[Column, ...] = ()
    hidden: frozenset[str] = frozenset()
    indexes: tuple[Index, ...] = ()
    packed: bool = False
    derive: Callable[[msgspec.Struct, str], Cell] = getattr

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Every column in the order of a row's cells."""
        return (*self.key, *self.columns, Column("value", "blob"), Column("seal", "blob"))


def _checkpoint_cell(row: msgspec.Struct, name: str) -> Cell:
    found = getattr(row, name, msgspec.UNSET)
    return getattr(row.marks, name) if found is msgspec.UNSET else found  # type: ignore[attr-defined,no-any-return]


RUN = Table(
    "run",
    RunRow,
    key=(Column("id", "text"),),
    columns=(
        Column("n", "int"),
        Column("project", "text"),
        Column("key", "text"),
        Column("status", "text"),
        Column("updated_at", "real"),
        Column("forked_from", "text"),
    ),
    hidden=frozenset({"project", "key", "status"}),
    indexes=(
        Index("run_n", ("n",), unique=True),
        Index("run_key", ("project", "key")),
        Index("run_status", ("status", "updated_at")),
        Index("run_updated", ("updated_at",)),
        Index("run_fork", ("forked_from",)),
    ),
    derive=lambda row, name: row.updated_at.timestamp() if name == "updated_at" else getattr(row, name),  # type: ignore[attr-defined]
)
LINE = Table(
    "line",
    LineRow,
    key=(Column("run", "text"), Column("name", "text")),
    columns=(Column("n", "int"),),
    indexes=(Index("line_n", ("n",), unique=True),),
)
RECORD = Table(
    "record",
    Record,
    key=(Column("line", "int"), Column("number", "int")),
    columns=(Column("path", "int"), Column("key", "int")),
    hidden=frozenset({"path", "key"}),
    indexes=(Index("record_path", ("path", "line", "number")), Index("record_key", ("key", "line", "number"))),
    packed=True,
    derive=lambda row, name: (row.path or None) if name == "path" else row.key,  # type: ignore[attr-defined]  # what has no path is not found by one
)
GAP = Table("gap", GapRow, key=(Column("line", "int"), Column("first", "int")), packed=True)
CHECKPOINT = Table(
    "checkpoint",
    CheckpointRow,
    key=(Column("run", "text"), Column("line", "text"), Column("seq", "int")),
    columns=(
        Column("id", "text"),
        Column("trigger", "text"),
        Column("phase", "text"),
        Column("status", "text"),
        Column("created_at", "real"),
        Column("key", "text"),
    ),
    hidden=frozenset({"trigger", "phase", "key"}),
    indexes=(
        Index("checkpoint_id", ("id",), unique=True),
        Index("checkpoint_trigger", ("run", "line", "trigger", "seq")),
        Index("checkpoint_key", ("run", "line", "key")),
    ),
    derive=_checkpoint_cell,
)
TOMBSTONE = Table(
    "tombstone",
    TombstoneRow,
    key=(Column("run", "text"), Column("line", "text"), Column("seq", "int")),
    columns=(Column("id", "text"),),
    indexes=(Index("tombstone_id", ("id",)),),
)
LEASE = Table("lease", LeaseRow, key=(Column("run", "text"), Column("line", "text")))
INBOX = Table(
    "inbox",
    InboxRow,
    key=(Column("run", "text"), Column("number", "int")),
    columns=(Column("key", "text"),),
    hidden=frozenset({"key"}),
    indexes=(Index("inbox_key", ("run", "key")),),
)
ACCOUNT = Table("account", AccountRow, key=(Column("run", "text"), Column("name", "text")))
META = Table("meta", MetaRow, key=(Column("name", "text"),))

TABLES: tuple[Table, ...] = (META, RUN, LINE, RECORD, GAP, CHECKPOINT, TOMBSTONE, LEASE, INBOX, ACCOUNT)
BY_RUN: tuple[Table, ...] = (LINE, CHECKPOINT, TOMBSTONE, INBOX, ACCOUNT)
"""Tables whose key begins with a run, and that end with it; leases stay, so that no token is given twice."""
