"""Runs, checkpoints and stored values as JSON documents: what --json and the web page say, in the same words.

Readable, and not meant to be read back.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.lazy import lazily
from holdfast.model.redaction import Redacted

with lazily():
    from holdfast.capture import redact

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import Envelope, RunRecord
    from holdfast.store.store import Store

_DEEPEST = 200
_LONGEST_BITS = 14_000  # Python writes no number of more than 4,300 digits


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can say it: times as ISO text, bytes as base64, sets and tuples as lists."""
    if depth > _DEEPEST:
        return "..."
    if value is None or (isinstance(value, (bool, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, int):
        return value if value.bit_length() <= _LONGEST_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(plain(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [plain(item, depth + 1) for item in items]
    return _other(value, depth)


def without_secrets(packer: Packer, value: Any, where: str) -> Any:
    """Return data as JSON can say it, without what the redaction rules of today take out."""
    value = plain(value)
    if not isinstance(packer, redact.RedactingPacker):
        return value
    packer.forget()
    packer.begin(where)
    return plain(packer.unpack(packer.pack(value, where), where))


def _other(value: Any, depth: int) -> Any:
    if isinstance(value, Redacted):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, msgspec.Struct):
        return {name: plain(item, depth + 1) for name, item in msgspec.structs.asdict(value).items()}
    if isinstance(value, HoldfastError):
        return {name: plain(getattr(value, name), depth + 1) for name in value.field_names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name), depth + 1) for name in names}
    return str(value)


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a list says of a checkpoint."""
    summary, recovery = checkpoint.summary, checkpoint.recovery
    return {
        "id": checkpoint.id,
        "run": checkpoint.run,
        "seq": checkpoint.seq,
        "line": checkpoint.line,
        "number": checkpoint.number,
        "place": checkpoint.place,
        "capture_note": checkpoint.capture_note,
        "key": checkpoint.key,
        "attributes": checkpoint.attributes,
        "parent": checkpoint.parent,
        "trigger": checkpoint.trigger,
        "reason": checkpoint.reason,
        "created_at": checkpoint.created_at.isoformat(),
        "status": checkpoint.status,
        "label": checkpoint.label,
        "pinned": checkpoint.pinned,
        "readable_id": checkpoint.readable_id,
        "phase": summary.phase,
        "state": summary.state,
        "steps": summary.steps,
        "run_status": summary.status,
        "can_resume": recovery.can_resume,
        "blockers": list(recovery.blockers),
        "sections": list(checkpoint.sections),
        "size_bytes": checkpoint.size_bytes,
        "stored_bytes": checkpoint.stored_bytes,
    }


def is_moving(store: Store, run: str) -> bool:
    """Tell whether a process moves a run now: it has the lease, and is not known to be gone."""
    from holdfast.store.owner import is_dead  # noqa: PLC0415 - only for runs that say they are under way

    lease = store.leases.running(run)
    return lease is not None and not is_dead(lease.owner)


def run_document(run: RunRecord, head: Envelope | None, *, moving: bool) -> dict[str, Any]:
    """Return what a list says of a run."""
    return {
        "moving": moving,
        "id": run.id,
        "key": run.key,
        "attributes": dict(run.attributes),
        "head": run.head,
        "checkpoints": run.checkpoints,
        "last_seq": run.last_seq,
        "created_at": run.created_at.isoformat(),
        "updated_at": run.updated_at.isoformat(),
        "status": head.summary.status if head is not None else None,
        "phase": head.summary.phase if head is not None else None,
        "state": head.summary.state if head is not None else None,
        "trigger": head.trigger if head is not None else None,
        "reason": head.reason if head is not None else None,
        "can_resume": head.recovery.can_resume if head is not None else None,
    }
