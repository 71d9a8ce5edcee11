"""Holdfast: checkpoint and recovery for AI-agent workflows."""

from holdfast.checkpoint import Checkpoint
from holdfast.encode.types import TypeRegistry
from holdfast.engine import DamageWarning, Holdfast, open  # noqa: A004 - holdfast.open() reads well
from holdfast.errors import (
    CheckpointCorrupt,
    ChunkCorrupt,
    Conflict,
    FormatTooNew,
    HeadMoved,
    HoldfastError,
    IntegrityError,
    InvalidId,
    LimitExceeded,
    NotFound,
    RunCorrupt,
    SectionInvalid,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownType,
    UsageError,
    ValueRefused,
)
from holdfast.model.triggers import Trigger
from holdfast.run import Run
from holdfast.version import __version__

__all__ = [
    "Checkpoint",
    "CheckpointCorrupt",
    "ChunkCorrupt",
    "Conflict",
    "DamageWarning",
    "FormatTooNew",
    "HeadMoved",
    "Holdfast",
    "HoldfastError",
    "IntegrityError",
    "InvalidId",
    "LimitExceeded",
    "NotFound",
    "Run",
    "RunCorrupt",
    "SectionInvalid",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "Trigger",
    "TypeRegistry",
    "UnknownType",
    "UsageError",
    "ValueRefused",
    "__version__",
    "open",
]
