"""Every error that Holdfast raises, grouped by what the caller can do about it.

HoldfastError
├── UsageError            the call or the value is at fault: change it
│   ├── InvalidId         an id outside the grammar
│   ├── ValueRefused      a value that could not come back equal
│   ├── SectionInvalid    a typed section that does not fit its type
│   ├── UnknownType       stored data names a type that the caller did not register
│   └── LimitExceeded     larger than a limit that the caller may raise
├── NotFound              there is no such run, checkpoint or section
├── Conflict              somebody else was first: read again, then decide
│   └── HeadMoved
├── IntegrityError        stored bytes are not what was written: nothing of them is handed out
│   ├── ChunkCorrupt
│   ├── CheckpointCorrupt
│   ├── RunCorrupt
│   ├── StoreCorrupt
│   └── FormatTooNew
└── StoreError            the medium refused: mend it, then repeat
    ├── StoreUnavailable
    ├── StoreFull
    └── StoreBusy
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(eq=False)
class HoldfastError(Exception):
    """What all errors of this package share: fields, a sentence made of them, and a hint what to do next."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Keep the fields as `args`, so that the error survives pickling."""
        self.args = tuple(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self) -> str:
        """Say what happened and what to do next."""
        return type(self).__name__


@dataclass(eq=False)
class UsageError(HoldfastError):
    """The call cannot be carried out as it was made."""

    exit_code: ClassVar[int] = 2

    detail: str

    def sentence(self) -> str:
        """Say what is wrong with the call."""
        return self.detail


@dataclass(eq=False)
class InvalidId(UsageError):
    """An id outside the grammar."""

    kind: str

    def sentence(self) -> str:
        """Quote the id, escaped, and state the grammar."""
        shown = self.detail if len(self.detail) <= 80 else self.detail[:77] + "..."  # noqa: PLR2004
        return (
            f"{shown!a} is no {self.kind} id: use 1 to 200 ASCII letters, digits and _ . : @ + = - , "
            "beginning with a letter, a digit or _"
        )


@dataclass(eq=False)
class ValueRefused(UsageError):
    """A value that could not come back equal to what went in."""

    path: str

    def sentence(self) -> str:
        """Name the place in the value."""
        return f"{self.path}: {self.detail}"


@dataclass(eq=False)
class SectionInvalid(UsageError):
    """A typed section that does not fit its type."""

    section: str

    def sentence(self) -> str:
        """Name the section and the place in it."""
        return f"section {self.section!a}: {self.detail}"


@dataclass(eq=False)
class UnknownType(UsageError):
    """Stored data names a type that the caller did not register; it is neither imported nor guessed."""

    where: str

    def sentence(self) -> str:
        """Name the type and how to register it."""
        return f"{self.where}: holds a value of type {self.detail!a}; pass that class in holdfast.open(types=[...])"


@dataclass(eq=False)
class LimitExceeded(UsageError):
    """Something is larger than a limit that protects this process."""

    what: str
    size: int
    limit: int

    def sentence(self) -> str:
        """Give the number that tripped and the limit."""
        return f"{self.what}: {self.size:,} is over the limit of {self.limit:,}; {self.detail}"


@dataclass(eq=False)
class NotFound(HoldfastError):
    """There is no such thing in this store."""

    exit_code: ClassVar[int] = 3

    kind: str
    name: str

    def sentence(self) -> str:
        """Name what was looked for."""
        return f"there is no {self.kind} {self.name!a} in this store"


@dataclass(eq=False)
class Conflict(HoldfastError):
    """Somebody else was first."""

    exit_code: ClassVar[int] = 4
    retryable: ClassVar[bool] = True

    run: str


@dataclass(eq=False)
class HeadMoved(Conflict):
    """Another writer moved the run's head since this one read it; nothing was written."""

    expected: str | None
    actual: str | None

    def sentence(self) -> str:
        """Name both heads."""
        return (
            f"run {self.run!a}: another writer moved its head from {self.expected} to {self.actual}; nothing was "
            "written. Open the run again with hf.run(...) to go on from the new head"
        )


@dataclass(eq=False)
class IntegrityError(HoldfastError):
    """Stored bytes are not what was written."""

    exit_code: ClassVar[int] = 5

    detail: str

    def sentence(self) -> str:
        """Say what is damaged."""
        return self.detail


@dataclass(eq=False)
class ChunkCorrupt(IntegrityError):
    """A chunk is missing or its bytes do not have its name; names the checkpoint and section it was read for."""

    chunk: str
    checkpoint: str | None = None
    section: str | None = None

    def sentence(self) -> str:
        """Name the section and checkpoint that need the chunk."""
        place = f"section {self.section!a} of checkpoint {self.checkpoint}: " if self.checkpoint else ""
        return (
            f"{place}chunk {self.chunk[:16]} {self.detail}. Other checkpoints stay readable: hf.verify() lists the "
            "damage, hf.latest(run, sound=True) finds the newest sound one"
        )


@dataclass(eq=False)
class CheckpointCorrupt(IntegrityError):
    """A checkpoint's record does not match its checksum, or is missing where another record names it."""

    checkpoint: str

    def sentence(self) -> str:
        """Name the checkpoint."""
        return (
            f"checkpoint {self.checkpoint}: {self.detail}. Other checkpoints stay readable: hf.verify() lists the "
            "damage, hf.latest(run, sound=True) finds the newest sound one"
        )


@dataclass(eq=False)
class RunCorrupt(IntegrityError):
    """A run's record does not match its checksum, or is missing while its checkpoints are there."""

    run: str

    def sentence(self) -> str:
        """Name the run."""
        return f"run {self.run!a}: {self.detail}. hf.verify() lists the damage"


@dataclass(eq=False)
class StoreCorrupt(IntegrityError):
    """The store as a whole cannot be read, or is not one of ours."""

    store: str

    def sentence(self) -> str:
        """Name the store."""
        return f"store {self.store}: {self.detail}"


@dataclass(eq=False)
class FormatTooNew(IntegrityError):
    """Written by a newer version of Holdfast."""

    found: int
    known: int

    def sentence(self) -> str:
        """Give both versions."""
        return f"{self.detail} has format {self.found}, this program knows up to {self.known}: upgrade holdfast"


@dataclass(eq=False)
class StoreError(HoldfastError):
    """The medium refused."""

    exit_code: ClassVar[int] = 6

    store: str
    detail: str

    def sentence(self) -> str:
        """Name the store and what it said."""
        return f"store {self.store}: {self.detail}"


@dataclass(eq=False)
class StoreUnavailable(StoreError):
    """The store cannot be opened, read or written; nothing was acknowledged."""


@dataclass(eq=False)
class StoreFull(StoreError):
    """No room is left; nothing of the refused write remains."""


@dataclass(eq=False)
class StoreBusy(StoreError):
    """Other processes held the store for longer than the busy timeout."""

    retryable: ClassVar[bool] = True
