"""Where a run's head is, and a checkpoint's parent: in its own run, deleted, or in the run that it was forked from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import CheckpointCorrupt, NotFound

if TYPE_CHECKING:
    from holdfast.model.checkpoint import CheckpointRecord, Envelope, RunRecord
    from holdfast.store.store import Store


def head_of(store: Store, run: RunRecord) -> CheckpointRecord | None:
    """Return a run's head, None if all its checkpoints were deleted; CheckpointCorrupt if it vanished."""
    if run.head is None:
        return None
    try:
        return store.checkpoint(run.head)
    except NotFound:
        raise CheckpointCorrupt(f"it is the head of run {run.id!r} and is missing", run.head) from None


def parent_checksum(store: Store, envelope: Envelope) -> bytes | None:
    """Return the checksum that a checkpoint's parent has, or had when it was deleted; None if it is nowhere here."""
    if envelope.parent is None:
        return None
    left = store.tombstone(envelope.run, envelope.parent)
    if left is not None:
        return left
    try:
        return store.checkpoint(envelope.parent).checksum
    except NotFound:
        pass
    return store.tombstone(None, envelope.parent) if is_fork(envelope) else None


def is_fork(envelope: Envelope) -> bool:
    """Tell whether a checkpoint begins a run on another run's checkpoint."""
    return envelope.seq == 1 and envelope.parent is not None
