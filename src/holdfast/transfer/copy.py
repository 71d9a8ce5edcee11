"""Copying runs between any two stores: ids, numbers, journals, links, marks and deleted numbers kept, all verified.

A copy that was interrupted is resumed: what the target has is compared, not sent again. Nothing in the target is ever
overwritten; a run that went another way there is refused. Seals and chains are the target's own, so stores of
different keys can be copied to each other; what is encrypted never becomes readable.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from holdfast.encode.chunks import Chunk, ChunkReader, parse_node, verified
from holdfast.encode.tree import LEAF, NODE, Ref, decode_node
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, IntegrityError, KeyRefused, NotFound, RunDiffers
from holdfast.model.checkpoint import Marks
from holdfast.model.ids import check_checkpoint_id, check_run_id, is_reserved
from holdfast.store.envelopes import open_checkpoint
from holdfast.store.import_rows import Import, import_rows
from holdfast.store.keys import has_keys, keys_of
from holdfast.store.lineage import is_fork, parent_checksum
from holdfast.store.tables import MAIN, CheckpointRow, GapRow, Record, TombstoneRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.store import Store
    from holdfast.store.tables import AccountRow, InboxRow, LineRow, RunRow

T = TypeVar("T")
_BATCH = 64
_RECORDS = 256  # of one transaction in the target
_BATCH_BYTES = 4 * 1024 * 1024


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did for one run: `present` were in the target already."""

    run: str
    checkpoints: int
    present: int
    chunks: int
    chunk_bytes: int
    marked: int = 0
    """Checkpoints in the target whose marks were brought up to date."""
    records: int = 0
    """Journal records that were sent."""
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

    Each checkpoint is one commit in the target, with the records before it, so a copy that stops in the middle leaves
    a shorter, sound run.
    """
    target = _as_keys_allow(source, target)
    chosen = [source.row_of(name) for name in _chosen(source, runs)]
    return [_Copy(source, target, run, progress or _say_nothing).carry_out() for run in chosen]


def _as_keys_allow(source: Store, target: Store) -> Store:
    """Return the target as it is to be written; KeyRefused if what is protected in the source would not be there."""
    ours, theirs = keys_of(source), keys_of(target)
    if ours is None and has_keys(source):
        raise KeyRefused("it is encrypted or signed: open it with its key to copy from it", source.url)
    if theirs is None and has_keys(target):
        refused = KeyRefused(
            "it has a key: open it with holdfast.open(place, key_file=...) to copy into it", target.url
        )
        if ours is None:
            raise refused
        try:
            target = ours.over(target.medium)
        except KeyRefused:
            raise refused from None
        theirs = keys_of(target)
    if ours is not None and theirs is None:
        return ours.over(target.medium)
    if ours is not None and theirs is not None and (ours.mode, theirs.mode) == ("encrypt", "sign"):
        raise KeyRefused("it is signed, not encrypted: what is secret in the source could be read there", target.url)
    return target


def _chosen(source: Store, runs: Iterable[str] | None) -> list[str]:
    """Return the runs to copy, without the engine's own: another store's inbox would answer for its people."""
    if runs is not None:
        return [check_run_id(run) for run in runs]
    listing = source.runs()
    if listing.damaged:
        raise IntegrityError(f"nothing was copied: {listing.damaged[0]}")
    return [check_run_id(run.id) for run in reversed(listing) if not is_reserved(run.id)]


def _say_nothing(_run: str, _done: int, _total: int) -> None:
    pass


class _Copy:
    """One run on its way."""

    def __init__(self, source: Store, target: Store, run: RunRow, progress: Callable[[str, int, int], None]) -> None:
        self.source = source
        self.target = target
        self.run = run
        self.progress = progress
        self.held: set[bytes] = set()
        self.done = 0
        self.total = 0
        self.present = 0
        self.sent = 0
        self.records = 0
        self.marked = 0
        self.chunks = 0
        self.chunk_bytes = 0

    def carry_out(self) -> Copied:
        run = self.run.id
        lines = sorted(self.source.lines(run), key=lambda line: (line.name != MAIN, line.name))
        self.total = sum(line.last_seq for line in lines)
        with suppress(NotFound):
            self.held = self.target.held(run)
        inbox, accounts = self._new_entries(), list(self.source.accounts(run).values())
        if set(self.target.line_names(run)) - {line.name for line in lines}:
            raise RunDiffers(run, self.target.url)
        for one in [_LineCopy(self, line) for line in lines]:  # all are compared before anything is sent
            one.carry_out(inbox, accounts)
            inbox = []
        return Copied(
            run=run, checkpoints=self.sent, present=self.present, chunks=self.chunks, records=self.records,
            chunk_bytes=self.chunk_bytes, marked=self.marked, missing_parent=self._missing_parent(),
        )  # fmt: skip

    def _new_entries(self) -> list[InboxRow]:
        """Return the inbox entries that the target has not; RunDiffers if it has others under their numbers."""
        there = {entry.number: entry for entry in self.target.inbox(self.run.id)}
        ours = self.source.inbox(self.run.id)
        if any(there.get(entry.number, entry) != entry for entry in ours) or there.keys() - {
            one.number for one in ours
        }:
            raise RunDiffers(self.run.id, self.target.url)
        return [entry for entry in ours if entry.number not in there]

    def _missing_parent(self) -> str | None:
        first = self.source.checkpoint_at(self.run.id, 1) if self.total else None
        if first is None or not is_fork(first.envelope):
            return None
        return first.envelope.parent if parent_checksum(self.target, first.envelope) is None else None

    def needed(self, pieces: Iterable[Record | GapRow], record: CheckpointRecord | None) -> list[Chunk]:
        """Return the chunks that records and a checkpoint need and the target's run has not, each verified."""
        found: dict[bytes, Chunk] = {}
        for piece in pieces:
            if isinstance(piece, Record) and piece.chunks:
                found.update((chunk.id, chunk) for chunk in self._below(piece))
        if record is not None:
            found.update((chunk.id, chunk) for chunk in self._sections(record))
        return list(found.values())

    def _below(self, record: Record) -> Iterator[Chunk]:
        """Yield what a record names, and what stands below it."""
        waiting: list[tuple[bytes, int | None]] = [(name, None) for name in record.chunks]
        seen: set[bytes] = set()
        while waiting:
            name, kind = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            chunk = self.source.fetch([name]).get(name)
            kind, plain = _of_kind(name, chunk, kind)
            if name not in self.held and chunk is not None:
                yield chunk
            if kind == NODE:
                try:
                    waiting += [(one.id, one.kind) for one in decode_node(plain) if isinstance(one, Ref)]
                except ValueError as error:
                    raise ChunkCorrupt(str(error), name.hex()) from error

    def _sections(self, record: CheckpointRecord) -> Iterator[Chunk]:
        """Yield the checkpoint's chunks that the target's run has not."""
        held, reader = self.held, ChunkReader(self.source.fetch)
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
                    stored = self.source.fetch([ref.id for ref in fresh])
                    for ref in fresh:
                        plain = verified(ref.kind, ref.id, stored.get(ref.id))
                        yield stored[ref.id]
                        if ref.kind == NODE:
                            waiting += [entry for entry in parse_node(ref, plain) if isinstance(entry, Ref)]
                    for parts in reader.stored_nodes(known):
                        waiting += [part for part in parts if isinstance(part, Ref) and part.id not in held]
            except ChunkCorrupt as error:
                raise ChunkCorrupt(error.detail, error.chunk, record.envelope.id, section.name) from error


def _of_kind(name: bytes, chunk: Chunk | None, kind: int | None) -> tuple[int, bytes]:
    """Return a chunk's kind and plain bytes; where only its name is known, it may be either."""
    if kind is None:
        try:
            return LEAF, verified(LEAF, name, chunk)
        except ChunkCorrupt:
            kind = NODE
    return kind, verified(kind, name, chunk)


class _LineCopy:
    """One line of a run on its way: checked, compared with what is there, then sent a few records at a time."""

    def __init__(self, copy: _Copy, line: LineRow) -> None:
        self._copy = copy
        self._source = copy.source
        self._target = copy.target
        self._run = copy.run
        self._line = line
        self._there = self._target.line(self._run.id, line=line.name)
        self._after = self._there.number if self._there else 0
        self._after_seq = self._there.last_seq if self._there else 0
        self._is_touched = False
        self._changes: dict[str, tuple[Marks, Marks]] = {}
        self._checksums: dict[str, bytes] = {}
        if self._after > line.number or self._after_seq > line.last_seq:
            raise self._differs()
        self._pieces = _Peekable(self._new_pieces())
        self._history = _Peekable(self._new_history())

    def carry_out(self, inbox: list[InboxRow], accounts: list[AccountRow]) -> None:
        """Copy what is missing; inbox and accounts travel with the first transaction."""
        copy, pieces = self._copy, self._pieces
        left = self._target.mark_many(self._run.id, self._changes) if self._changes else []
        copy.marked += len(self._changes) - len(left)
        is_changed = self._is_changed(accounts)
        while self._history.next is not None:
            one = self._history.take()
            record = open_checkpoint(one) if isinstance(one, CheckpointRow) else None
            if isinstance(one, CheckpointRow):
                check_checkpoint_id(one.id)
                inbox = self._send_records(pieces, one.number, inbox, accounts)
            self._send([], [one], record, inbox, accounts)
            inbox = []
            copy.sent += record is not None
            copy.done += 1
            copy.progress(self._run.id, copy.done, copy.total)
        inbox = self._send_records(pieces, self._line.number, inbox, accounts)
        if inbox or (not self._is_touched and (is_changed or self._there is None)):
            self._send([], [], None, inbox, accounts)

    def _is_changed(self, accounts: list[AccountRow]) -> bool:
        """Tell whether the target has the line, but not all that is said about it and its run."""
        if self._there is None:
            return False
        run = self._target.row_of(self._run.id)
        said = msgspec.structs.replace(self._run, n=run.n, created_at=run.created_at, version=run.version)
        known = self._target.accounts(self._run.id)
        mine, theirs = self._line, self._there
        return (
            said != run
            or (mine.ranges, mine.consumed) != (theirs.ranges, theirs.consumed)
            or any(known.get(one.name) != one for one in accounts)
        )

    def _send_records(
        self, pieces: _Peekable[Record | GapRow], upto: int, inbox: list[InboxRow], accounts: list[AccountRow]
    ) -> list[InboxRow]:
        """Send the journal up to a number; return the inbox entries that are still to be sent."""
        batch: list[Record | GapRow] = []
        size = 0
        while pieces.next is not None and _first(pieces.next) <= upto:
            piece = pieces.take()
            batch.append(piece)
            size += len(piece.body) if isinstance(piece, Record) else 0
            if len(batch) >= _RECORDS or size >= _BATCH_BYTES:
                self._send(batch, [], None, inbox, accounts)
                batch, size, inbox = [], 0, []
        if batch:
            self._send(batch, [], None, inbox, accounts)
            inbox = []
        return inbox

    def _send(
        self,
        pieces: list[Record | GapRow],
        history: list[CheckpointRow | TombstoneRow],
        record: CheckpointRecord | None,
        inbox: list[InboxRow],
        accounts: list[AccountRow],
    ) -> None:
        """Send one transaction; damage is told with what the target has by now, since that stays."""
        copy = self._copy
        try:
            chunks = copy.needed(pieces, record)
            line = import_rows(
                self._target, Import(
                    run=self._run, line=self._line, after=self._after, after_seq=self._after_seq, pieces=pieces,
                    history=history, chunks=chunks, inbox=inbox, accounts=accounts,
                )
            )  # fmt: skip
        except IntegrityError as error:
            there = "the checkpoints before this one are" if self._after or self._after_seq else "nothing of it is"
            left = f"{error.detail}; the copy of run {self._run.id!r} stopped here, {there} in {self._target.url}"
            raise type(error)(**{**vars(error), "detail": left}) from error
        self._after, self._after_seq, self._is_touched = line.number, line.last_seq, True
        copy.held.update(chunk.id for chunk in chunks)
        copy.chunks += len(chunks)
        copy.chunk_bytes += sum(len(chunk.data) for chunk in chunks)
        copy.records += sum(isinstance(piece, Record) for piece in pieces)

    def _new_history(self) -> Iterator[CheckpointRow | TombstoneRow]:
        """Compare what the target has, and note marks that it lacks; then yield the numbers that it has not."""
        theirs = self._target.history(self._there) if self._there else iter(())
        for ours in self._source.history(self._line):
            self._check_link(ours)
            if ours.seq > self._after_seq:
                yield ours
                continue
            other = next(theirs)
            if not _are_same(ours, other):
                raise self._differs()
            self._copy.present += isinstance(ours, CheckpointRow)
            self._copy.done += 1
            if isinstance(ours, CheckpointRow) and isinstance(other, CheckpointRow):
                marks = _joined(ours.marks, other.marks)
                if marks != other.marks:
                    self._changes[other.id] = (other.marks, marks)

    def _check_link(self, one: CheckpointRow | TombstoneRow) -> None:
        """Refuse a checkpoint whose parent is not the one it was taken on."""
        if isinstance(one, CheckpointRow):
            record = open_checkpoint(one)
            envelope = record.envelope
            parent = envelope.parent
            was = self._checksums.get(parent or "") or parent_checksum(self._source, envelope)
            if was != envelope.parent_checksum and not (was is None and is_fork(envelope)):
                raise CheckpointCorrupt(
                    f"its parent {parent} is not the one it had, and a copy would hide that", one.id
                )
        self._checksums[one.id] = _checksum(one)

    def _new_pieces(self) -> Iterator[Record | GapRow]:
        """Walk the source's journal, its chain checked; compare what the target has, and yield what it has not."""
        theirs = self._target.journal.walk(self._there) if self._there else iter(())
        other = next(theirs, None)
        for step in self._source.journal.walk(self._line):
            if step.fault is not None or step.item is None:
                raise step.fault or IntegrityError(f"the journal of run {self._run.id!r} cannot be read")
            item = step.item
            while other is not None and other.last < step.last:
                if other.fault is not None:
                    raise other.fault
                other = next(theirs, None)
            if step.last <= self._after:
                if other is not None and other.fault is not None:
                    raise other.fault
                is_both = isinstance(item, Record) and other is not None and isinstance(other.item, Record)
                if is_both and _content(item) != _content(other.item):  # type: ignore[arg-type,union-attr]
                    raise self._differs()
                continue
            if isinstance(item, GapRow) and item.first <= self._after:
                item = msgspec.structs.replace(item, first=self._after + 1)
            yield item

    def _differs(self) -> RunDiffers:
        return RunDiffers(self._run.id, self._target.url)


class _Peekable(Generic[T]):
    """An iterator that shows what comes next."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self.next: T | None = next(items, None)

    def take(self) -> T:
        """Return what comes next, and look at what comes then."""
        taken, self.next = self.next, next(self._items, None)
        assert taken is not None
        return taken


def _first(piece: Record | GapRow) -> int:
    return piece.first if isinstance(piece, GapRow) else piece.number


def _content(record: Record) -> tuple[object, ...]:
    """Return what a record says, without what is its store's own."""
    return record.number, record.kind, record.path, record.at, record.key, record.body, record.chunks


def _are_same(ours: CheckpointRow | TombstoneRow, theirs: CheckpointRow | TombstoneRow) -> bool:
    """Tell whether two stores have the same checkpoint under a number, deleted in either or not."""
    if isinstance(ours, CheckpointRow) and isinstance(theirs, CheckpointRow):
        return (ours.envelope, ours.number, ours.ranges, ours.key) == (
            theirs.envelope,
            theirs.number,
            theirs.ranges,
            theirs.key,
        )
    return (ours.id, _checksum(ours)) == (theirs.id, _checksum(theirs))


def _checksum(one: CheckpointRow | TombstoneRow) -> bytes:
    return one.checksum if isinstance(one, TombstoneRow) else open_checkpoint(one).checksum


def _joined(ours: Marks, theirs: Marks) -> Marks:
    """Return the source's marks over the target's: a pin or label that only the target has stays."""
    return Marks(status=ours.status, pinned=ours.pinned or theirs.pinned, label=ours.label or theirs.label)
