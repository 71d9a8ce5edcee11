"""Where a checkpoint's parent is: in its own run, deleted, or in the run that it was forked from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Envelope
    from holdfast.store.api import Store


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
    for run in store.runs() if is_fork(envelope) else ():
        left = store.tombstone(run.id, envelope.parent)
        if left is not None:
            return left
    return None


def is_fork(envelope: Envelope) -> bool:
    """Tell whether a checkpoint begins a run on another run's checkpoint."""
    return envelope.seq == 1 and envelope.parent is not None
