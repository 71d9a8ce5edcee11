"""Copying runs between any two stores: ids, numbers, links, marks and deleted numbers kept, every byte verified.

A copy that was broken off is carried on: what the target has already is compared, not sent again. Nothing in the target
is ever overwritten; a run that went another way there is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.encode.chunks import Chunk, ChunkReader, parse_node, verified
from holdfast.encode.tree import NODE, Ref
from holdfast.errors import ChunkCorrupt, IntegrityError, NotFound, RunDiffers
from holdfast.model.ids import check_checkpoint_id, check_run_id
from holdfast.store.api import Tombstone
from holdfast.transfer.keys import KEYS_RUN, bare, locked_like, slots_are_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.api import Store

_BATCH = 64


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did for one run: `present` were in the target already."""

    run: str
    checkpoints: int
    present: int
    chunks: int
    chunk_bytes: int


def copy_runs(
    source: Store,
    target: Store,
    runs: Iterable[str] | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Copied]:
    """Copy runs (all, unless some are named) and return what was done; `progress` gets run, numbers done, of how many.

    Each checkpoint is one commit in the target, so a copy that stops in the middle leaves a shorter, sound run.
    """
    if slots_are_missing(source, target):
        keys = _Copy(bare(source), target, bare(source).run(KEYS_RUN), _say_nothing)
        keys.carry_out()
    target = locked_like(source, target)
    if runs is None:
        listing = source.runs()
        if listing.damaged:
            raise IntegrityError(f"nothing was copied: {listing.damaged[0]}")
        names = [run.id for run in reversed(listing)]
    else:
        names = [check_run_id(run) for run in runs]
    return [_Copy(source, target, source.run(name), progress or _say_nothing).carry_out() for name in names]


def _say_nothing(_run: str, _done: int, _total: int) -> None:
    pass


class _Copy:
    """One run on its way."""

    def __init__(self, source: Store, target: Store, run: RunRecord, progress: Callable[[str, int, int], None]) -> None:
        self._source = source
        self._target = target
        self._run = run
        self._progress = progress
        self._chunks = 0
        self._chunk_bytes = 0

    def carry_out(self) -> Copied:
        run = self._run
        items = self._items()
        last, head = self._present()
        held = self._target.held(run.id) if last else set[bytes]()
        present = sum(isinstance(item, Tombstone) is False for seq, item in items.items() if seq <= last)
        pending = [item for seq, item in sorted(items.items()) if seq > last]
        done = len(items) - len(pending)
        copied = 0
        for item in pending:
            if isinstance(item, Tombstone):
                self._target.bury(run.id, item, created_at=run.created_at)
            else:
                head = self._send(item, head, held)
                copied += 1
            done += 1
            self._progress(run.id, done, len(items))
        return Copied(
            run=run.id, checkpoints=copied, present=present, chunks=self._chunks, chunk_bytes=self._chunk_bytes
        )

    def _items(self) -> dict[int, CheckpointRecord | Tombstone]:
        """Return all numbers of the run up to its last: checkpoints, and what deleted ones left."""
        listing = self._source.checkpoints(self._run.id)
        if listing.damaged:
            raise listing.damaged[0]
        items: dict[int, CheckpointRecord | Tombstone] = {t.seq: t for t in self._source.tombstones(self._run.id)}
        for record in listing:
            check_checkpoint_id(record.envelope.id)
            items[record.envelope.seq] = record
        return items

    def _present(self) -> tuple[int, str | None]:
        """Return how far the target has this very run already; RunDiffers if it has another of the same name."""
        run = self._run.id
        try:
            there = self._target.run(run)
        except NotFound:
            return 0, None
        if there.last_seq > self._run.last_seq:
            raise RunDiffers(run, self._target.url)
        for theirs in self._target.checkpoints(run):
            seq = theirs.envelope.seq
            ours = self._source.checkpoint_at(run, seq)
            checksum = ours.checksum if ours else self._source.tombstone(run, theirs.envelope.id)
            if checksum != theirs.checksum:
                raise RunDiffers(run, self._target.url)
        return there.last_seq, there.head

    def _send(self, record: CheckpointRecord, head: str | None, held: set[bytes]) -> str:
        chunks = list(self._needed(record, held))
        stored = self._target.commit(record.envelope, record.marks, chunks, expected_head=head)
        if stored.checksum != record.checksum:
            raise IntegrityError(f"checkpoint {record.envelope.id} arrived with another checksum in {self._target.url}")
        held.update(chunk.id for chunk in chunks)
        self._chunks += len(chunks)
        self._chunk_bytes += sum(len(chunk.data) for chunk in chunks)
        return record.envelope.id

    def _needed(self, record: CheckpointRecord, held: set[bytes]) -> Iterator[Chunk]:
        """Yield the checkpoint's chunks that the target's run has not, each verified against its name."""
        reader = ChunkReader(self._source.fetch)
        seen: set[bytes] = set()
        for section in record.envelope.sections:
            waiting = [Ref(section.kind, section.size, section.root)]
            try:
                while waiting:
                    batch = list({ref.id: ref for ref in waiting[-_BATCH:] if ref.id not in seen}.values())
                    del waiting[-_BATCH:]
                    seen.update(ref.id for ref in batch)
                    known = [ref for ref in batch if ref.id in held and ref.kind == NODE]
                    fresh = [ref for ref in batch if ref.id not in held]
                    stored = self._source.fetch([ref.id for ref in fresh])
                    for ref in fresh:
                        plain = verified(ref.kind, ref.id, stored.get(ref.id))
                        yield stored[ref.id]
                        if ref.kind == NODE:
                            waiting += [entry for entry in parse_node(ref, plain) if isinstance(entry, Ref)]
                    for entries in reader.nodes(known):
                        waiting += [entry for entry in entries if isinstance(entry, Ref) and entry.id not in held]
            except ChunkCorrupt as error:
                raise ChunkCorrupt(error.detail, error.chunk, record.envelope.id, section.name) from error
