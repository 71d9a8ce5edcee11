"""The records of a store: the checkpoint's envelope, its marks, its run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from holdfast.model.ids import readable_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.redaction import Redaction

FORMAT_VERSION = 2

Status = Literal["creating", "valid", "corrupted", "expired", "archived"]
NO_RECOVERY_POINT = frozenset({"creating", "corrupted", "expired"})
"""Checkpoints of these statuses are listed, and never offered to go back to."""
FINISHED = frozenset({"completed", "cancelled"})
"""The statuses of a run in which nothing is left to do: such a run expires as a whole."""


class SectionRecord(msgspec.Struct, frozen=True, array_like=True):
    """One section of a checkpoint: the root of its tree (`kind` tells leaf from node) and its plain size."""

    name: str
    kind: Annotated[int, msgspec.Meta(ge=1, le=2)]
    root: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    size: Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
    redacted: tuple[Redaction, ...] = ()  # the first of them; the count is of all
    redacted_count: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a list shows of a checkpoint, kept beside the payload so that a list never decodes one."""

    state: str | None = None
    agents: dict[str, int] = {}
    budget_used: dict[str, float | int] = {}
    phase: str | None = None
    steps: int = 0
    status: str | None = None
    budget_limits: dict[str, float | int | None] = {}
    loop_count: int | None = None
    progress: str = ""
    """What the program says of its progress, as JSON without secrets; empty where that is long."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A checkpoint without its payload: immutable, and bound to its parent by the parent's checksum."""

    format_version: int  # first, so that a newer record can be told from a damaged one
    id: str
    run: str
    seq: int
    parent: str | None
    parent_checksum: bytes | None
    trigger: str
    reason: str
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    program_version: str
    sections: tuple[SectionRecord, ...]
    stored_bytes: int
    codec: str
    recovery: RecoveryInfo
    summary: Summary
    sealed: bytes = b""  # all of the above, encrypted; then trigger, reason, sections, recovery and summary are empty
    mac: bytes = b""

    @property
    def size_bytes(self) -> int:
        """The plain size of all sections."""
        return sum(section.size for section in self.sections)


def name_of(envelope: Envelope) -> str:
    """Return a checkpoint's name for people: phase or trigger, time and short digits."""
    return readable_id(envelope.id, envelope.summary.phase or envelope.trigger)


class Marks(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What may change about a checkpoint after it was taken."""

    status: Status = "valid"
    pinned: bool = False
    label: str | None = None
    expired_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """When an automatic sweep found it past its age, while its status is "expired"."""


class CheckpointRecord(msgspec.Struct, frozen=True):
    """A checkpoint as a store returns it; `checksum` seals the envelope and is what a child is bound to."""

    envelope: Envelope
    checksum: bytes
    marks: Marks
    number: int = 0
    """The journal number that it stands at: what the journal has up to it is in its sections."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The journal numbers that led to it: going back to it makes them the line's again."""
    key: str | None = None
    """The name that its writer gave it."""
    attributes: dict[str, str | int | float | bool | None] = {}
    line: str = "main"
    """The line of its run that it is on."""

    @property
    def is_nothing(self) -> bool:
        """Whether it is none: what stands below the journal of a run that took no checkpoint yet."""
        return not self.envelope.id


def nothing_of(run: str, at: datetime) -> CheckpointRecord:
    """Return what stands below the journal of a run that has no checkpoint yet, as of a time."""
    envelope = Envelope(
        format_version=FORMAT_VERSION, id="", run=run, seq=0, parent=None, parent_checksum=None, trigger="", reason="",
        created_at=at, program_version="", sections=(), stored_bytes=0, codec="none",
        recovery=RecoveryInfo(), summary=Summary(),
    )  # fmt: skip
    return CheckpointRecord(envelope, b"", Marks())


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A run as a store returns it: `last_seq` and `number` never go back, so order survives deletions and clocks."""

    format_version: int
    id: str
    head: str | None
    last_seq: int
    checkpoints: int
    created_at: datetime
    updated_at: datetime
    number: int = 0
    """The last journal number."""
    chunked: int = 0
    """The number of the last journal record that is kept in chunks."""
    status: str | None = None
    """How it stands, as far as it said so."""
    key: str | None = None
    """The name that its caller gave it."""
    attributes: dict[str, str | int | float | bool | None] = {}
    line: str = "main"
    """The line that head and numbers are of."""
