"""Letting go of the chunks that a run's remaining checkpoints no longer need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.encode.tree import Ref
from holdfast.errors import HeadMoved, RunCorrupt
from holdfast.store.commit import IN_CHUNKS
from holdfast.store.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.api import Listing
    from holdfast.store.store import Store

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

    Safe beside writers: reachability is worked out without a lock, and the release is refused if the run continued
    meanwhile, in which case only what is new is looked at again. Damage in the run stops the sweep: better to keep too
    much. With `slice_of`, so many chunks go in one transaction and `rest` is called between two, so that a commit waits
    for one slice at most; `reader` is a second way into the same store, so that reading holds up nobody.
    """
    source = reader or store
    lines = {line.name: line for line in source.lines(run)}
    created_at = source.run(run).created_at
    held = source.held(run)
    reach = Reach(source)
    for name in lines:
        for listing in _pages(source, run, name):
            reach.add(_roots(listing, run))
    reach.seen.update(_chunks_of_records(source, run))
    dead = sorted(held - reach.seen)
    size = slice_of or max(1, len(dead))
    gone = tries = 0
    for start in range(0, max(1, len(dead)), size):
        while True:
            some = [chunk for chunk in dead[start : start + size] if chunk not in reach.seen]
            try:
                store.release(
                    run,
                    some,
                    expected_seq=sum(line.last_seq for line in lines.values()),
                    created_at=created_at,
                    expected_chunked=sum(line.chunked for line in lines.values()),
                )
            except HeadMoved:
                tries += 1
                if tries == _TRIES:
                    return gone
                now = {line.name: line for line in store.lines(run)}
                seqs = {name: line.last_seq for name, line in lines.items()}
                if store.run(run).created_at != created_at or any(
                    line.last_seq < seqs.get(name, 0) for name, line in now.items()
                ):
                    return gone  # it was deleted and begun again: what was worked out is of another run
                for name, line in now.items():
                    new = line.last_seq - seqs.get(name, 0)
                    reach.add(_roots(store.checkpoints(run, limit=max(1, new), line=name), run))
                reach.seen.update(_chunks_of_records(store, run))
                lines = now
                continue
            gone += len(some)
            break
        rest()
    return gone


def _pages(store: Store, run: str, line: str) -> Iterable[Listing[CheckpointRecord]]:
    """Yield a line's checkpoints a page at a time, so that no single read holds the store for long."""
    before_seq: int | None = None
    while True:
        listing = store.checkpoints(run, limit=_PAGE, before_seq=before_seq, line=line)
        yield listing
        if len(listing) + len(listing.damaged) < _PAGE:
            return
        before_seq = min(record.envelope.seq for record in listing) if listing else 0


def _chunks_of_records(store: Store, run: str) -> set[bytes]:
    """Return the chunks that journal records are kept in, on all lines of a run."""
    found: set[bytes] = set()
    for line in store.lines(run):
        for record in store.journal.with_key(line, IN_CHUNKS):
            found.update(record.chunks)
    return found


def _roots(listing: Listing[CheckpointRecord], run: str) -> set[Ref]:
    if listing.damaged:
        raise RunCorrupt(f"nothing is swept while it has damage ({listing.damaged[0]})", run)
    return {Ref(s.kind, s.size, s.root) for record in listing for s in record.envelope.sections}
