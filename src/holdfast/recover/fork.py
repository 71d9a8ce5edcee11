"""Forks: the chunks that a new run must hold itself, and where a run came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.encode.chunks import parse_node, verified
from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import ChunkCorrupt, IntegrityError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import CheckpointRecord, SectionRecord
    from holdfast.store.api import Store

_BATCH = 64
_BATCH_BYTES = 4 * 1024 * 1024


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run was forked from; `run` is None when the origin was deleted since."""

    checkpoint: str
    run: str | None = None
    seq: int | None = None


def chunks_below(store: Store, checkpoint: str, sections: Iterable[SectionRecord]) -> Iterator[Chunk]:
    """Yield every chunk of these sections once, verified and as it is stored, a few in memory at a time."""
    seen: set[bytes] = set()
    for section in sections:
        waiting = [Ref(section.kind, section.size, section.root)]
        try:
            while waiting:
                batch = _next(waiting, seen)
                stored = store.fetch([ref.id for ref in batch])
                for ref in batch:
                    plain = verified(ref.kind, ref.id, stored.get(ref.id))
                    yield stored[ref.id]
                    if ref.kind == NODE:
                        waiting += [entry for entry in parse_node(ref, plain) if isinstance(entry, Ref)]
        except ChunkCorrupt as error:
            raise ChunkCorrupt(error.detail, error.chunk, checkpoint, section.name) from error


def _next(waiting: list[Ref], seen: set[bytes]) -> list[Ref]:
    """Take a few references off the end, so many that their chunks are a few megabytes at most."""
    batch: list[Ref] = []
    size = 0
    while waiting and len(batch) < _BATCH and size < _BATCH_BYTES:
        ref = waiting.pop()
        if ref.id not in seen:
            seen.add(ref.id)
            batch.append(ref)
            size += ref.size if ref.kind == LEAF else 0  # a node's size is of all that is below it
    return batch


def origin(store: Store, run: str) -> Origin | None:
    """Return the checkpoint of another run that this one was forked from, None if it began by itself."""
    try:
        first = store.checkpoint_at(run, 1)
    except (NotFound, IntegrityError):
        return None
    if first is None or first.envelope.parent is None:
        return None
    return origin_of(store, first)


def origin_of(store: Store, first: CheckpointRecord) -> Origin | None:
    """Return what a run's first checkpoint says of where it was forked from."""
    parent = first.envelope.parent
    if parent is None:
        return None
    try:
        record = store.checkpoint(parent)
    except (NotFound, IntegrityError):
        return Origin(checkpoint=parent)
    return Origin(checkpoint=parent, run=record.envelope.run, seq=record.envelope.seq)


def lineage(store: Store, run: str) -> list[Origin]:
    """Return the forks that led to a run, the nearest first; it ends where an origin was deleted."""
    found: list[Origin] = []
    seen = {run}
    name: str | None = run
    while name is not None:
        came_from = origin(store, name)
        if came_from is None:
            break
        found.append(came_from)
        name = came_from.run if came_from.run not in seen else None
        if name is not None:
            seen.add(name)
    return found
