"""Checking a whole store: every row, journal, chain link, head, tree, chunk and hold; reads only, once each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.encode.chunks import ChunkReader, verified
from holdfast.encode.tree import LEAF, NODE, Base, Ref, content_size, decode_node
from holdfast.errors import ChunkCorrupt, HoldfastError, IntegrityError, NotFound
from holdfast.model.sections import WORKSPACE
from holdfast.store.inspection import Inspection
from holdfast.store.lineage import is_fork, parent_checksum
from holdfast.store.reach import Reach
from holdfast.store.tables import Record
from holdfast.verify.remembered import rolled_back

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.api import Listing, Tombstone
    from holdfast.store.store import Store

FaultKind = Literal[
    "store", "run", "checkpoint", "link", "head", "chunk", "journal", "tombstone", "hold", "lease", "inbox", "account"
]
_BATCH = 256
_LOOKS = 5
_BATCH_BYTES = 4 * 1024 * 1024
_KINDS: dict[str, FaultKind] = {
    "line": "run", "lease": "lease", "tombstone": "tombstone", "inbox": "inbox", "account": "account",
    "record": "journal", "gap": "journal",
}  # fmt: skip


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written, and where."""

    kind: FaultKind
    detail: str
    run: str | None = None
    checkpoint: str | None = None
    section: str | None = None
    chunk: str | None = None
    number: int | None = None
    """The number in the run's journal."""


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


def verify(
    store: Store,
    *,
    progress: Callable[[str, int], None] | None = None,
    remembered: Mapping[str, str | tuple[int, str]] | None = None,
) -> Report:
    """Check everything in a store and name each fault; `progress` is told what was checked, and how many so far.

    `remembered` are heads that were kept outside the store: that history still leads to them is checked as well.
    """
    report = _Check(store, progress or (lambda _what, _count: None)).report()
    lost = [
        Fault(kind="head", detail=detail, run=run, checkpoint=head if isinstance(head, str) else head[1])
        for run, head in (remembered or {}).items()
        if (detail := rolled_back(store, run, head)) is not None
    ]
    return msgspec.structs.replace(report, faults=(*report.faults, *lost)) if lost else report


def verify_checkpoint(store: Store, checkpoint: str) -> Report:
    """Check one checkpoint: its own record, its link to the one before, and everything that it holds."""
    try:
        record = store.checkpoint(checkpoint)
    except (NotFound, IntegrityError) as error:
        return Report(
            runs=0,
            checkpoints=1,
            chunks=0,
            faults=(Fault(kind="checkpoint", detail=str(error), checkpoint=checkpoint),),
        )
    return _silent(store).report_of(record)


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
        self._below: dict[bytes, list[bytes]] = {}  # what each node refers to, for the holds of a run
        self._checkpoints = 0
        self._notes: list[str] = []

    def report(self) -> Report:
        """Check all there is; what cannot be read at all is a fault, and the rest is still checked."""
        faults: dict[Fault, None] = {}
        runs = 0
        for part in (self._medium, self._rows):
            try:
                faults.update(dict.fromkeys(part()))
            except HoldfastError as error:
                faults[Fault(kind="store", detail=str(error))] = None
        try:
            listing = self._store.runs()
            runs = len(listing)
            for damage in listing.damaged:
                run = getattr(damage, "run", None)
                faults[Fault(kind="run", detail=str(damage), run=run)] = None
            for record in listing:
                faults.update(dict.fromkeys(self._run(record.id)))
            faults.update(dict.fromkeys(self._unlisted({record.id for record in listing})))
            faults.update(dict.fromkeys(self._strays()))
        except HoldfastError as error:
            faults[Fault(kind="store", detail=str(error))] = None
        return Report(
            runs=runs,
            checkpoints=self._checkpoints,
            chunks=len(self._bad),
            faults=tuple(faults),
            notes=tuple(self._notes),
        )

    def report_of(self, record: CheckpointRecord) -> Report:
        """Check one checkpoint."""
        faults = (*self._link(record, {}), *self.sections(record))
        return Report(runs=0, checkpoints=1, chunks=len(self._bad), faults=faults, notes=tuple(self._notes))

    def _medium(self) -> Iterator[Fault]:
        for line in self._store.medium.check():
            yield Fault(kind="store", detail=line)
        inspection = Inspection(self._store)
        for line in inspection.wrong_heads():
            yield Fault(kind="store", detail=line)
        for line in inspection.wrong_chunks():
            yield Fault(kind="store", detail=line)

    def _rows(self) -> Iterator[Fault]:
        """Check the rows that no list of runs, checkpoints or records shows."""
        for table, row, error in Inspection(self._store).damaged_rows():
            kind = _KINDS.get(table.name, "store")
            run = str(row[0]) if kind not in ("store", "journal") else None
            yield Fault(kind=kind, detail=str(error), run=run)

    def _unlisted(self, listed: Container[str]) -> Iterator[Fault]:
        """Check the checkpoints of runs whose own row cannot be read: one bad row does not hide the others."""
        for run in Inspection(self._store).runs_with_checkpoints():
            if run in listed:
                continue
            for found in Inspection(self._store).stored_checkpoints(run):
                if isinstance(found, IntegrityError):
                    name = getattr(found, "checkpoint", None)
                    yield Fault(kind="checkpoint", detail=str(found), run=run, checkpoint=name)
                else:
                    yield from self.sections(found)
                    self._checkpoints += 1

    def _run(self, run: str) -> Iterator[Fault]:
        roots: list[bytes] = []
        try:
            lines = self._store.line_names(run)
            begun = self._store.run(run)
        except NotFound:
            return  # somebody deleted it meanwhile
        for line in lines:
            try:
                yield from self._line(run, line, roots)
            except IntegrityError as error:
                yield Fault(kind="run", detail=str(error), run=run)
            except NotFound:
                return
        yield from self._holds(begun, roots)
        for kind, read in (("account", self._store.accounts), ("inbox", self._store.inbox)):
            try:
                read(run)
            except IntegrityError as error:
                yield Fault(kind=kind, detail=str(error), run=run)  # type: ignore[arg-type]

    def _line(self, run: str, line: str, roots: list[bytes]) -> Iterator[Fault]:
        listing, faults = self._listed(self._store.run(run, line=line), line)
        for damage in listing.damaged:
            name = getattr(damage, "checkpoint", None)
            yield Fault(kind="checkpoint", detail=str(damage), run=run, checkpoint=name)
        yield from faults
        by_id = {record.envelope.id: record for record in listing}
        for record in listing:
            yield from self._link(record, by_id)
            yield from self.sections(record)
            roots += [section.root for section in record.envelope.sections]
            self._checkpoints += 1
            self._progress("checkpoints", self._checkpoints)
        with self._store.medium.read() as reader:
            head = self._store.line_reader.read(reader, run, line).line
            is_leased = head is None or self._store.leases.is_last(reader, head)
        if head is not None and not is_leased:
            detail = f"the lease of line {line!r} is not the last one that was taken (number {head.fence})"
            yield Fault(kind="lease", detail=detail, run=run)
        for step in self._store.journal.walk(head) if head is not None else ():
            if step.fault is not None:
                yield Fault(kind="journal", detail=str(step.fault), run=run, number=step.first)
            for name in step.item.chunks if isinstance(step.item, Record) else ():
                roots.append(name)
                if not self._is_either(name):
                    detail = f"chunk {name.hex()[:16]} of record #{step.first} is missing or damaged"
                    yield Fault(kind="chunk", detail=detail, run=run, number=step.first, chunk=name.hex())

    def _is_either(self, name: bytes) -> bool:
        """Check a chunk that is known by its name only, and what is below it."""
        if name not in self._bad:
            chunk = self._store.fetch([name]).get(name)
            if _is_sound(LEAF, name, chunk):
                self._bad[name] = None
            elif chunk is None or not _is_sound(NODE, name, chunk):
                self._bad[name] = "is missing or damaged"
            else:
                self._tree(Ref(NODE, _size_of(verified(NODE, name, chunk)), name))
        return self._bad[name] is None

    def _holds(self, run: RunRecord, roots: list[bytes]) -> Iterator[Fault]:
        """Check that a run holds all that its checkpoints and records need: what nobody holds is swept away."""
        reached: set[bytes] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += self._below.get(name, ())
        try:
            missing = [name for name in reached - self._store.held(run.id) if self._bad.get(name, "") is None]
            if not missing or _deleted(self._store.run(run.id)) != _deleted(run):
                return  # whole, or something was deleted meanwhile
        except (NotFound, IntegrityError):
            return
        detail = f"{len(missing):,} chunks that it needs are not held for it: `holdfast repair` holds them again"
        yield Fault(kind="hold", detail=detail, run=run.id, chunk=missing[0].hex())

    def _listed(self, run: RunRecord, line: str) -> tuple[Listing[CheckpointRecord], list[Fault]]:
        """Return a line's checkpoints, and where they do not match its row.

        The list is newer than the row, so what does not match is looked at again if something was deleted meanwhile.
        """
        for _ in range(_LOOKS):
            listing = self._store.checkpoints(run.id, line=line)
            faults = list(_mismatches(run, listing, self._store.tombstones(run.id, line=line)))
            now = self._store.run(run.id, line=line) if faults else run
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
        parts = reader.stored_nodes([ref])[0]
        below = [part for part in parts if isinstance(part, Ref)]
        if below and isinstance(below[0], Base):
            reader.node(ref)  # a patch has to fit its base
        self._below[ref.id] = [entry.id for entry in below]
        return below

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


def _mismatches(run: RunRecord, listing: Listing[CheckpointRecord], tombstones: Sequence[Tombstone]) -> Iterator[Fault]:
    """Compare a line's row with its checkpoints and tombstones; those taken after it was read are passed over."""
    known = {record.envelope.id for record in listing if record.envelope.seq <= run.last_seq}
    there = {record.envelope.seq for record in listing}
    for one in tombstones:
        if one.seq in there:
            detail = f"checkpoint {run.id}@{one.seq} is there, and deleted as well"
            yield Fault(kind="tombstone", detail=detail, run=run.id, checkpoint=one.id)
        elif one.seq > run.last_seq:
            detail = f"checkpoint {run.id}@{one.seq} is deleted, and was never taken: the last one is {run.last_seq}"
            yield Fault(kind="tombstone", detail=detail, run=run.id, checkpoint=one.id)
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


def _size_of(node: bytes) -> int:
    """Return the size that a node states for itself; a node that cannot be read has none."""
    try:
        return sum(map(content_size, decode_node(node)))
    except ValueError:
        return 0
