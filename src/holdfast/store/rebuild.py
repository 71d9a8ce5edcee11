"""A run's record made anew from its checkpoints, for stores whose own record of it is damaged or gone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.model.checkpoint import FORMAT_VERSION, RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import CheckpointRecord


def made_anew(run: str, sound: Sequence[CheckpointRecord], *, checkpoints: int, last_seq: int) -> RunRecord:
    """Return the record of a run with these sound checkpoints, highest number first; it holds nothing yet.

    As after deletions, the highest one is the head. `checkpoints` and `last_seq` count those, too, that cannot be read.
    """
    now = datetime.now(UTC)
    return RunRecord(
        format_version=FORMAT_VERSION,
        id=run,
        head=sound[0].envelope.id if sound else None,
        last_seq=last_seq,
        checkpoints=checkpoints,
        created_at=sound[-1].envelope.created_at if sound else now,
        updated_at=sound[0].envelope.created_at if sound else now,
    )
