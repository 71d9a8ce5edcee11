"""Heads that were remembered outside a store: whether its history still leads to them.

A store that was put back as it once was is sound in itself, with any key. What shows it is a head that somebody noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import IntegrityError, NotFound
from holdfast.model.ids import check_checkpoint_id, check_run_id

if TYPE_CHECKING:
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.store import Store


def rolled_back(store: Store, run: str, head: str | tuple[int, str]) -> str | None:
    """Return why a run's history does not lead to a remembered head (its id, or number and id); None if it does.

    The head must stand at its number, or have been deleted there, and every checkpoint since must descend from it.
    """
    number, checkpoint = (None, head) if isinstance(head, str) else head
    check_checkpoint_id(checkpoint)
    check_run_id(run)
    try:
        last = store.run(run).last_seq
        deleted = {one.id: (one.seq, one.checksum) for one in store.tombstones(run)}
        there = _present(store, run, checkpoint)
        if there is None and checkpoint not in deleted:
            return _gone(checkpoint)
        found = deleted[checkpoint][0] if there is None else there.envelope.seq
        if number is not None and found != number:
            return f"the remembered head {checkpoint} was number {number}, and is number {found}: history was rewritten"
        if found > last:
            return f"the remembered head {checkpoint} is number {found}, and history ends at {last}: it was rolled back"
        return _departure(store, checkpoint, there, run=run, last=last, known=deleted)
    except NotFound:
        return _gone(checkpoint)
    except IntegrityError as error:
        return str(error)


def _present(store: Store, run: str, checkpoint: str) -> CheckpointRecord | None:
    try:
        record = store.checkpoint(checkpoint)
    except NotFound:
        return None
    return record if record.envelope.run == run else None


def _departure(
    store: Store,
    head: str,
    there: CheckpointRecord | None,
    *,
    run: str,
    last: int,
    known: dict[str, tuple[int, bytes]],
) -> str | None:
    """Return the first checkpoint after a head that does not descend from it, None if all do.

    If the head was deleted, the next one may have been taken on the last one that was left before it.
    """
    if there is not None:
        known[head] = there.envelope.seq, there.checksum
    found = known[head][0]
    deleted = {seq for seq, _ in known.values()} if there is None else set()
    lowest = next(seq for seq in range(found, -1, -1) if seq not in deleted)
    if lowest and (left := store.checkpoint_at(run, lowest)) is not None:
        known[left.envelope.id] = lowest, left.checksum
    for seq in range(found + 1, last + 1):
        record = store.checkpoint_at(run, seq)
        if record is None:
            continue
        envelope = record.envelope
        before, checksum = known.get(envelope.parent or "", (-1, b""))
        if before < lowest or checksum != envelope.parent_checksum:
            if there is None and lowest == 0 and envelope.parent is None:
                continue  # all before it was deleted
            return f"checkpoint {envelope.id} does not descend from the remembered head {head}"
        known[envelope.id] = seq, record.checksum
    return None


def _gone(checkpoint: str) -> str:
    return f"the remembered head {checkpoint} is gone: history was cut off or rolled back"
