"""Letting go of the chunks that a run's remaining checkpoints no longer need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.tree import NODE, Ref
from holdfast.errors import HeadMoved, RunCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.store.api import Store

_TRIES = 20
_BATCH = 256


def sweep(store: Store, run: str) -> int:
    """Release what no checkpoint of the run reaches, and return how many chunks that were.

    Safe beside writers: reachability is worked out without a lock, and the release is refused if the run went on
    meanwhile, in which case it is worked out again. Damage in the run stops the sweep: better to keep too much.
    """
    for _ in range(_TRIES):
        seq = store.run(run).last_seq
        held = store.held(run)
        listing = store.checkpoints(run)
        if listing.damaged:
            raise RunCorrupt(f"nothing is swept while it has damage ({listing.damaged[0]})", run)
        roots = {Ref(s.kind, s.size, s.root) for record in listing for s in record.envelope.sections}
        dead = sorted(held - reachable(store, roots))
        try:
            store.release(run, dead, expected_seq=seq)
        except HeadMoved:
            continue
        return len(dead)
    return 0


def reachable(store: Store, roots: Iterable[Ref]) -> set[bytes]:
    """Return the names of all chunks at and below these roots, reading each node once."""
    reader = ChunkReader(store.fetch)
    seen: set[bytes] = set()
    nodes: list[Ref] = []

    def meet(ref: Ref) -> None:
        if ref.id not in seen:
            seen.add(ref.id)
            if ref.kind == NODE:
                nodes.append(ref)

    for root in roots:
        meet(root)
    while nodes:
        batch = [nodes.pop() for _ in range(min(_BATCH, len(nodes)))]
        for entries in reader.nodes(batch):
            for entry in entries:
                if isinstance(entry, Ref):
                    meet(entry)
    return seen
