"""Starting afresh: the old line is set aside under a name with its time; nothing of it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.model.checkpoint import CheckpointRecord, Marks
    from holdfast.store.api import Store

_TRIES = 20


def archive_name(at: datetime) -> str:
    """Return the label of a line that was set aside at this time."""
    return f"archived-{at:%Y%m%dT%H%M%SZ}"


def keep_tip(store: Store, tip: CheckpointRecord, at: datetime) -> str:
    """Pin and label the end of a line, so that it stays and can be found; return the label, its own if it has one."""
    label = tip.marks.label or archive_name(at)
    marks = msgspec.structs.replace(tip.marks, pinned=True, label=label)
    if marks != tip.marks:
        store.mark(tip.envelope.id, marks, expected=tip.marks)
    return label


def archive_before(store: Store, run: str, seq: int) -> int:
    """Archive every checkpoint below a number, pinned ones too, in one transaction; return how many it were.

    Doing it twice is the same as once; what somebody marks at the same moment is looked at again.
    """
    count = 0
    for _ in range(_TRIES):
        changes: dict[str, tuple[Marks, Marks]] = {}
        for record in store.checkpoints(run, before_seq=seq):
            if record.marks.status == "valid":
                archived = msgspec.structs.replace(record.marks, status="archived")
                changes[record.envelope.id] = (record.marks, archived)
        if not changes:
            break
        left = store.mark_many(run, changes)
        count += len(changes) - len(left)
        if not left:
            break
    return count


def tip_of(store: Store, run: str) -> CheckpointRecord | None:
    """Return the end of a run's line, None if the run has none."""
    head = store.run(run).head
    try:
        return store.checkpoint(head) if head is not None else None
    except NotFound:
        return None
