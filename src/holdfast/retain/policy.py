"""Which checkpoints go; pure, so that it can be shown before anything is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.model.checkpoint import CheckpointRecord


def expendable(
    records: Sequence[CheckpointRecord], *, head: str | None, keep: int | None, before: datetime | None
) -> list[str]:
    """Return the ids beyond the newest `keep` or older than `before`; the head and pinned ones always stay."""
    if keep is None and before is None:
        raise UsageError("prune needs keep= or older_than=: without either everything stays")
    if keep is not None and keep < 1:
        raise UsageError(f"keep={keep} would delete everything: keep at least 1, or use hf.delete_run(...)")
    newest_first = sorted(records, key=lambda record: -record.envelope.seq)
    return [
        record.envelope.id
        for index, record in enumerate(newest_first)
        if record.envelope.id != head
        and not record.marks.pinned
        and ((keep is not None and index >= keep) or (before is not None and record.envelope.created_at < before))
    ]
