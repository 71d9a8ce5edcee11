"""Copying runs between any two stores: ids, numbers, links, marks and deleted numbers kept, every byte verified.

A copy that was broken off is carried on: what the target has already is compared, not sent again. No checkpoint in the
target is ever overwritten; a run that went another way there is refused. Marks that were set since travel, too.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from holdfast.encode.chunks import Chunk, ChunkReader, parse_node, verified
from holdfast.encode.tree import NODE, Ref
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, IntegrityError, NotFound, RunDiffers, UsageError
from holdfast.model.checkpoint import Marks
from holdfast.model.ids import check_checkpoint_id, check_run_id, is_reserved
from holdfast.store.api import Tombstone
from holdfast.store.lineage import is_fork, parent_checksum
from holdfast.transfer.keys import KEYS_RUN, agreement, bare, locked_like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.model.checkpoint import CheckpointRecord, Envelope, RunRecord
    from holdfast.store.api import Store

_BATCH = 64


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did for one run: `present` were in the target already."""

    run: str
    checkpoints: int
    present: int
    chunks: int
    chunk_bytes: int
    marked: int = 0
    """Checkpoints in the target whose marks were brought up to date."""
    missing_parent: str | None = None
    """The checkpoint that this run was forked from, if the target has it not."""


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
    agreed = agreement(source, target)
    if agreed == "with the key slots":
        keys = _Copy(bare(source), target, bare(source).run(KEYS_RUN), _say_nothing)
        keys.carry_out()
    target = locked_like(source, target)
    make = _RelinkingCopy if agreed == "linked anew" else _Copy
    chosen = [source.run(name) for name in _chosen(source, runs, in_order=make is _RelinkingCopy)]
    return [make(source, target, run, progress or _say_nothing).carry_out() for run in chosen]


def _chosen(source: Store, runs: Iterable[str] | None, *, in_order: bool) -> list[str]:
    """Return the runs to copy; in the order in which they began, a fork comes after what it was forked from.

    The engine's own runs stay: another store's keys would lock this one, another store's inbox answer for its people.
    """
    given = None if runs is None else [check_run_id(run) for run in runs]
    if given is not None and not in_order:
        return given
    listing = source.runs()
    if listing.damaged:
        raise IntegrityError(f"nothing was copied: {listing.damaged[0]}")
    begun = [check_run_id(run.id) for run in reversed(listing) if not is_reserved(run.id)]
    return begun if given is None else [*(run for run in begun if run in given), *(set(given) - set(begun))]


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
        last, head, marked = self._present(items)
        held = self._target.held(run.id) if last else set[bytes]()
        present = sum(isinstance(item, Tombstone) is False for seq, item in items.items() if seq <= last)
        pending = [item for seq, item in sorted(items.items()) if seq > last]
        done = len(items) - len(pending)
        copied = 0
        for item in pending:
            if isinstance(item, Tombstone):
                self._target.bury(run.id, item, created_at=run.created_at)
            else:
                head = self._sent(item, head, held, copied + present)
                copied += 1
            done += 1
            self._progress(run.id, done, len(items))
        return Copied(
            run=run.id, checkpoints=copied, present=present, chunks=self._chunks, chunk_bytes=self._chunk_bytes,
            marked=marked, missing_parent=self._missing_parent(items.get(1)),
        )  # fmt: skip

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

    def _present(self, items: dict[int, CheckpointRecord | Tombstone]) -> tuple[int, str | None, int]:
        """Return how far the target has this very run already, its head, and how many marks were brought up to date.

        RunDiffers if it has another run of the same name.
        """
        run = self._run.id
        try:
            there = self._target.run(run)
        except NotFound:
            return 0, None, 0
        if there.last_seq > self._run.last_seq:
            raise RunDiffers(run, self._target.url)
        changes: dict[str, tuple[Marks, Marks]] = {}
        for theirs in self._target.checkpoints(run):
            ours = items.get(theirs.envelope.seq)
            if ours is None or not self._is_same(ours, theirs):
                raise RunDiffers(run, self._target.url)
            if not isinstance(ours, Tombstone):
                marks = _joined(ours.marks, theirs.marks)
                if marks != theirs.marks:
                    changes[theirs.envelope.id] = (theirs.marks, marks)
        left = self._target.mark_many(run, changes) if changes else []
        return there.last_seq, there.head, len(changes) - len(left)

    def _is_same(self, ours: CheckpointRecord | Tombstone, theirs: CheckpointRecord) -> bool:
        return ours.checksum == theirs.checksum

    def _envelope(self, record: CheckpointRecord) -> Envelope:
        """Return what the target gets of a checkpoint's record."""
        return record.envelope

    def _missing_parent(self, first: CheckpointRecord | Tombstone | None) -> str | None:
        if first is None or isinstance(first, Tombstone) or not is_fork(first.envelope):
            return None
        return first.envelope.parent if parent_checksum(self._target, first.envelope) is None else None

    def _sent(self, record: CheckpointRecord, head: str | None, held: set[bytes], before: int) -> str:
        """Send one checkpoint; damage is told with what the target has by now, since that stays."""
        try:
            return self._send(record, head, held)
        except IntegrityError as error:
            there = "the checkpoints before this one are" if before else "nothing of it is"
            left = f"{error.detail}; the copy of run {self._run.id!r} stopped here, {there} in {self._target.url}"
            raise dataclasses.replace(error, detail=left) from error

    def _send(self, record: CheckpointRecord, head: str | None, held: set[bytes]) -> str:
        chunks = list(self._needed(record, held))
        stored = self._target.commit(self._envelope(record), record.marks, chunks, expected_head=head)
        if not self._is_same(record, stored):
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


class _RelinkingCopy(_Copy):
    """One run on its way under another key: each checkpoint is bound to its parent as the target has it.

    The old link is checked first, so that a broken chain is refused, not mended. A tombstone keeps the checksum that it
    had, and so does the child's link to it.
    """

    def _is_same(self, ours: CheckpointRecord | Tombstone, theirs: CheckpointRecord) -> bool:
        if isinstance(ours, Tombstone):
            return ours.id == theirs.envelope.id
        return _unlinked(ours.envelope) == _unlinked(theirs.envelope)

    def _envelope(self, record: CheckpointRecord) -> Envelope:
        envelope = record.envelope
        if envelope.parent is None:
            return envelope
        was = parent_checksum(self._source, envelope)
        if was != envelope.parent_checksum and not (was is None and is_fork(envelope)):
            raise CheckpointCorrupt(
                f"its parent {envelope.parent} is not the one it had, and a copy under another key would hide that",
                envelope.id,
            )
        now = parent_checksum(self._target, envelope)
        if now is None and was is not None:
            raise UsageError(
                f"run {envelope.run!r} was forked from checkpoint {envelope.parent}: under another key links are made "
                "anew, so copy the run of that checkpoint first, or both at once"
            )
        return msgspec.structs.replace(envelope, parent_checksum=now or envelope.parent_checksum)


def _unlinked(envelope: Envelope) -> Envelope:
    return msgspec.structs.replace(envelope, parent_checksum=None)


def _joined(ours: Marks, theirs: Marks) -> Marks:
    """Return the source's marks over the target's: a pin or label that only the target has stays."""
    return Marks(status=ours.status, pinned=ours.pinned or theirs.pinned, label=ours.label or theirs.label)
