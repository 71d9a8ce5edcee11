"""Rebuilding what a store keeps about a run: its record, holds and lease, from the checkpoints that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.encode.tree import Ref
from holdfast.store.reach import Reach
from holdfast.store.repair import Repair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.store import Store


def rebuild(store: Store, run: str) -> RunRecord | None:
    """Rebuild a run's record, with all that its sound checkpoints need; what cannot be read is passed over."""
    return Repair(store).rebuild(run, lambda sound: _needed(store, sound))


def _needed(store: Store, records: Sequence[CheckpointRecord]) -> set[bytes]:
    reach = Reach(store)
    roots = {Ref(one.kind, one.size, one.root) for record in records for one in record.envelope.sections}
    reach.add(roots, past_damage=True)
    return reach.seen
