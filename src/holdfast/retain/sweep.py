"""Letting go of the chunks that a run's remaining checkpoints no longer need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.encode.tree import Ref
from holdfast.errors import HeadMoved, RunCorrupt
from holdfast.store.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.api import Listing, Store

_TRIES = 20
_PAGE = 500


def sweep(
    store: Store,
    run: str,
    *,
    reader: Store | None = None,
    slice_of: int | None = None,
    rest: Callable[[], object] = int,
) -> int:
    """Release what no checkpoint of the run reaches, and return how many chunks that were.

    Safe beside writers: reachability is worked out without a lock, and the release is refused if the run went on
    meanwhile, in which case only what is new is looked at again. Damage in the run stops the sweep: better to keep too
    much. With `slice_of`, so many chunks go in one transaction and `rest` is called between two, so that a commit waits
    for one slice at most; `reader` is a second way into the same store, so that reading holds up nobody.
    """
    source = reader or store
    record = source.run(run)
    seq = record.last_seq
    held = source.held(run)
    reach = Reach(source)
    for listing in _pages(source, run):
        reach.add(_roots(listing, run))
    dead = sorted(held - reach.seen)
    size = slice_of or max(1, len(dead))
    gone = tries = 0
    for start in range(0, max(1, len(dead)), size):
        while True:
            some = [chunk for chunk in dead[start : start + size] if chunk not in reach.seen]
            try:
                store.release(run, some, expected_seq=seq, created_at=record.created_at)
            except HeadMoved:
                tries += 1
                if tries == _TRIES:
                    return gone
                now = store.run(run)
                if now.created_at != record.created_at or now.last_seq < seq:
                    return gone  # it was deleted and begun again: what was worked out is of another run
                before, seq = seq, now.last_seq
                reach.add(_roots(store.checkpoints(run, limit=max(1, seq - before)), run))
                continue
            gone += len(some)
            break
        rest()
    return gone


def _pages(store: Store, run: str) -> Iterable[Listing[CheckpointRecord]]:
    """Yield a run's checkpoints a page at a time, so that no single read holds the store for long."""
    before_seq: int | None = None
    while True:
        listing = store.checkpoints(run, limit=_PAGE, before_seq=before_seq)
        yield listing
        if len(listing) + len(listing.damaged) < _PAGE:
            return
        before_seq = min(record.envelope.seq for record in listing) if listing else 0


def _roots(listing: Listing[CheckpointRecord], run: str) -> set[Ref]:
    if listing.damaged:
        raise RunCorrupt(f"nothing is swept while it has damage ({listing.damaged[0]})", run)
    return {Ref(s.kind, s.size, s.root) for record in listing for s in record.envelope.sections}
