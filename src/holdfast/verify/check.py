"""Checking a whole store: every record, chain link, head, tree and chunk; reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.encode.chunks import ChunkReader, verified
from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.errors import ChunkCorrupt, HoldfastError, IntegrityError, NotFound
from holdfast.model.sections import WORKSPACE
from holdfast.store.lineage import is_fork, parent_checksum
from holdfast.store.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from datetime import datetime

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.api import Listing, Store

FaultKind = Literal["store", "run", "checkpoint", "link", "head", "chunk"]
_BATCH = 256
_LOOKS = 5
_BATCH_BYTES = 4 * 1024 * 1024


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written, and where."""

    kind: FaultKind
    detail: str
    run: str | None = None
    checkpoint: str | None = None
    section: str | None = None
    chunk: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification looked at and what it found."""

    runs: int
    checkpoints: int
    chunks: int
    faults: tuple[Fault, ...]
    notes: tuple[str, ...] = ()
    """What could not be checked because it is in another store: no fault of this one."""

    @property
    def sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.faults


def verify(store: Store, *, progress: Callable[[str, int], None] | None = None) -> Report:
    """Check everything in a store and name each fault; `progress` is told what was checked, and how many so far."""
    return _Check(store, progress or (lambda _what, _count: None)).report()


def faults_in(
    store: Store, record: CheckpointRecord, *, since: CheckpointRecord | None = None, without: Container[str] = ()
) -> list[Fault]:
    """Check one checkpoint down to its last chunk, but for sections that are as in `since` and those left out."""
    known = {section.root for section in since.envelope.sections} if since is not None else set()
    chosen = [one for one in record.envelope.sections if one.root not in known and one.name not in without]
    envelope = msgspec.structs.replace(record.envelope, sections=tuple(chosen))
    return list(_silent(store).sections(msgspec.structs.replace(record, envelope=envelope)))


def faults_carried(store: Store, record: CheckpointRecord, since: CheckpointRecord) -> list[Fault]:
    """Check what a checkpoint carries over from the one before: values down to the last chunk, of files the lists."""
    kept = {section.root for section in since.envelope.sections}
    files = [one for one in record.envelope.sections if one.root in kept and one.name == WORKSPACE]
    faults = faults_in(
        store, record, without={one.name for one in record.envelope.sections if one.root not in kept} | {WORKSPACE}
    )
    for section in files:
        try:
            Reach(store).add([Ref(section.kind, section.size, section.root)])
        except ChunkCorrupt as error:
            faults.append(
                Fault(
                    kind="chunk",
                    detail=f"chunk {error.chunk[:16]} {error.detail}",
                    run=record.envelope.run,
                    checkpoint=record.envelope.id,
                    section=section.name,
                    chunk=error.chunk,
                )
            )
    return faults


def are_sound(store: Store, roots: Iterable[Ref]) -> bool:
    """Tell whether everything below these references is there and whole."""
    return _silent(store).are_sound(list(roots))


def _silent(store: Store) -> _Check:
    return _Check(store, lambda _what, _count: None)


class _Check:
    def __init__(self, store: Store, progress: Callable[[str, int], None]) -> None:
        self._store = store
        self._progress = progress
        self._bad: dict[bytes, str | None] = {}  # a chunk, or one below it, is bad: why; None: checked and sound
        self._checkpoints = 0
        self._notes: list[str] = []

    def report(self) -> Report:
        """Check all there is; what cannot be read at all is a fault, and the rest is still checked."""
        faults: list[Fault] = []
        runs = 0
        try:
            faults += [Fault(kind="store", detail=line) for line in self._store.check()]
        except HoldfastError as error:
            faults.append(Fault(kind="store", detail=str(error)))
        try:
            listing = self._store.runs()
            runs = len(listing)
            faults += [Fault(kind="run", detail=str(e), run=getattr(e, "run", None)) for e in listing.damaged]
            for run in listing:
                faults += self._run(run)
            faults += self._strays()
        except HoldfastError as error:
            faults.append(Fault(kind="store", detail=str(error)))
        return Report(
            runs=runs,
            checkpoints=self._checkpoints,
            chunks=len(self._bad),
            faults=tuple(faults),
            notes=tuple(self._notes),
        )

    def _run(self, run: RunRecord) -> Iterator[Fault]:
        try:
            listing, faults = self._listed(run)
        except IntegrityError as error:
            yield Fault(kind="run", detail=str(error), run=run.id)
            return
        except NotFound:
            return  # somebody deleted it meanwhile
        for damage in listing.damaged:
            name = getattr(damage, "checkpoint", None)
            yield Fault(kind="checkpoint", detail=str(damage), run=run.id, checkpoint=name)
        yield from faults
        by_id = {record.envelope.id: record for record in listing}
        for record in listing:
            yield from self._link(record, by_id)
            yield from self.sections(record)
            self._checkpoints += 1
            self._progress("checkpoints", self._checkpoints)

    def _listed(self, run: RunRecord) -> tuple[Listing[CheckpointRecord], list[Fault]]:
        """Return a run's checkpoints, and where they do not match its record.

        The list is newer than the record, so what does not match is looked at again if something was deleted meanwhile.
        """
        for _ in range(_LOOKS):
            listing = self._store.checkpoints(run.id)
            faults = list(_mismatches(run, listing))
            now = self._store.run(run.id) if faults else run
            if _deleted(now) == _deleted(run):
                break
            run = now
        return listing, faults

    def _link(self, record: CheckpointRecord, by_id: dict[str, CheckpointRecord]) -> Iterator[Fault]:
        """Check that a checkpoint's parent is the one it was taken on, or left a tombstone that says so."""
        envelope = record.envelope
        if envelope.parent is None:
            return
        try:
            parent = by_id.get(envelope.parent)
            checksum = parent.checksum if parent else parent_checksum(self._store, envelope)
        except IntegrityError as error:
            yield Fault(kind="link", detail=str(error), run=envelope.run, checkpoint=envelope.id)
            return
        if checksum is None and is_fork(envelope):
            self._notes.append(
                f"run {envelope.run!r} was forked from {envelope.parent}, which is not in this store: the link to it "
                "cannot be checked. Copy that run here, too"
            )
        elif checksum != envelope.parent_checksum:
            detail = f"its parent {envelope.parent} " + ("is missing" if checksum is None else "is not the one it had")
            yield Fault(kind="link", detail=detail, run=envelope.run, checkpoint=envelope.id)

    def sections(self, record: CheckpointRecord) -> Iterator[Fault]:
        """Check the trees of a checkpoint; chunks that were checked for another one are not read again."""
        for section in record.envelope.sections:
            root = Ref(section.kind, section.size, section.root)
            problem = self._tree(root)
            if problem is not None:
                yield Fault(
                    kind="chunk",
                    detail=problem,
                    run=record.envelope.run,
                    checkpoint=record.envelope.id,
                    section=section.name,
                    chunk=root.id.hex(),
                )

    def are_sound(self, roots: list[Ref]) -> bool:
        """Tell whether all these trees are whole."""
        self._leaves([root for root in roots if root.kind == LEAF])
        return all(self._tree(root) is None for root in roots)

    def _tree(self, root: Ref) -> str | None:
        """Return what is wrong at or below a reference: depth first, each chunk once."""
        stack: list[tuple[Ref, list[Ref] | None]] = [(root, None)]
        while stack:
            ref, children = stack.pop()
            if children is not None:
                self._bad[ref.id] = next((why for child in children if (why := self._bad[child.id])), None)
                continue
            if ref.id in self._bad:
                continue
            try:
                below = self._children(ref)
            except ChunkCorrupt as error:
                self._bad[ref.id] = f"chunk {error.chunk[:16]} {error.detail}"
                continue
            self._bad[ref.id] = None
            if below:
                self._leaves([child for child in below if child.kind == LEAF and child.id not in self._bad])
                stack.append((ref, below))
                stack.extend((child, None) for child in below)
            self._progress("chunks", len(self._bad))
        return self._bad[root.id]

    def _leaves(self, leaves: list[Ref]) -> None:
        """Check many leaves with few reads, a few megabytes each; one that looks wrong is left to be read alone."""
        while leaves:
            batch: list[Ref] = []
            size = 0
            while leaves and len(batch) < _BATCH and size < _BATCH_BYTES:
                batch.append(leaves.pop())
                size += batch[-1].size
            try:
                stored = self._store.fetch([leaf.id for leaf in batch])
            except HoldfastError:
                continue
            for leaf in batch:
                chunk = stored.get(leaf.id)
                if chunk is not None and chunk.size == leaf.size and _is_sound(LEAF, leaf.id, chunk):
                    self._bad[leaf.id] = None

    def _children(self, ref: Ref) -> list[Ref]:
        reader = ChunkReader(self._store.fetch)
        if ref.kind == LEAF:
            size = len(reader.leaf(ref))
            if size != ref.size:
                raise ChunkCorrupt(f"holds {size:,} bytes, its node says {ref.size:,}", ref.id.hex())
            return []
        return [entry for entry in reader.node(ref) if isinstance(entry, Ref)]

    def _strays(self) -> Iterator[Fault]:
        """Check the chunks that no checkpoint reaches: damage there is damage, though nothing needs it."""
        strays = [name for name in self._store.chunk_ids() if name not in self._bad]
        for start in range(0, len(strays), _BATCH):
            batch = strays[start : start + _BATCH]
            stored = self._store.fetch(batch)
            for name in batch:
                self._bad[name] = None
                chunk = stored.get(name)
                if not any(_is_sound(kind, name, chunk) for kind in (LEAF, NODE)):
                    yield Fault(kind="chunk", detail="a chunk that nothing needs is damaged", chunk=name.hex())


def _mismatches(run: RunRecord, listing: Listing[CheckpointRecord]) -> Iterator[Fault]:
    """Compare a run's record with its checkpoints; those taken after the record was read are passed over."""
    known = {record.envelope.id for record in listing if record.envelope.seq <= run.last_seq}
    if run.head not in known and (run.head is not None or known):
        yield Fault(kind="head", detail=f"the head {run.head} is not among the sound checkpoints", run=run.id)
    if len(known) + len(listing.damaged) < run.checkpoints:
        yield Fault(kind="run", detail=f"{run.checkpoints - len(known)} checkpoints are missing", run=run.id)
    if len(known) > run.checkpoints:
        detail = f"{len(known) - run.checkpoints} checkpoints are there that were deleted"
        yield Fault(kind="run", detail=detail, run=run.id)


def _deleted(run: RunRecord) -> tuple[datetime, int]:
    """Return what changes when a checkpoint is deleted, or the whole run and another is begun."""
    return run.created_at, run.last_seq - run.checkpoints


def _is_sound(kind: int, name: bytes, chunk: object) -> bool:
    try:
        verified(kind, name, chunk)  # type: ignore[arg-type]
    except ChunkCorrupt:
        return False
    return True
