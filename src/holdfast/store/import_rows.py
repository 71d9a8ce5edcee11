"""Import of rows of another store: they continue a line here, chained and sealed as this store does it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.encode.chunks import Chunk
from holdfast.errors import CheckpointCorrupt, HeadMoved, RunCorrupt, RunDiffers
from holdfast.store.commit import ClosedChunks
from holdfast.store.envelopes import open_checkpoint
from holdfast.store.medium import StaleError
from holdfast.store.ranges import are_ordered, cut
from holdfast.store.repeat import repeated
from holdfast.store.tables import (
    ACCOUNT,
    CHECKPOINT,
    GAP,
    INBOX,
    LINE,
    RECORD,
    RUN,
    TOMBSTONE,
    AccountRow,
    CheckpointRow,
    GapRow,
    InboxRow,
    LineRow,
    Record,
    RunRow,
    TombstoneRow,
)

if TYPE_CHECKING:
    from holdfast.store.codec import RowCodec
    from holdfast.store.medium import Transaction
    from holdfast.store.store import Store
    from holdfast.store.tables import Row


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of another store that continue a line here: all of them or none.

    Of the run and the line everything is taken over but what is this store's own: their numbers `n`, chain and fence.
    """

    run: RunRow
    line: LineRow
    after: int
    """The journal number that the line stands at here; 0 for a new one."""
    after_seq: int
    """The last checkpoint number here."""
    pieces: Sequence[Record | GapRow] = ()
    """Journal numbers from `after` on, none left out."""
    history: Sequence[CheckpointRow | TombstoneRow] = ()
    """Checkpoint numbers from `after_seq` on, none left out."""
    chunks: Collection[Chunk] = ()
    held: Collection[bytes] = ()
    """Names of chunks that are stored here already."""
    inbox: Sequence[InboxRow] = ()
    accounts: Sequence[AccountRow] = ()


@repeated
def import_rows(store: Store, given: Import) -> LineRow:
    """Continue a line with rows of another store, chained and sealed as this one does; all or nothing.

    HeadMoved if the line is not where the sender believes, LeaseHeld if somebody writes it, RunDiffers if a
    checkpoint or inbox entry is here already, IntegrityError if the rows do not follow each other.
    """
    for one in given.history:
        if isinstance(one, CheckpointRow):
            open_checkpoint(one)
    try:
        with store.medium.write() as transaction:
            transaction.lock(given.run.id)
            line = import_line(store, transaction, given)
    except StaleError:
        raise RunDiffers(given.run.id, store.url) from None
    store.line_reader.forget(given.run.id)
    return line


def import_line(store: Store, transaction: Transaction, given: Import) -> LineRow:
    """Continue a line within a transaction that has locked its run; StaleError if a row is here already."""
    run, name = given.run.id, given.line.name
    lines, codec = store.line_reader, store.codec
    known = lines.read(transaction, run, name)
    fence = store.leases.first_fence(store.leases.stored(transaction, run, name), run, None)
    line = known.line or LineRow(
        run=run, name=name, n=lines.new_number(), created_at=given.line.created_at,
        updated_at=given.line.updated_at, fence=fence,
    )  # fmt: skip
    if (line.number, line.last_seq) != (given.after, given.after_seq):
        raise HeadMoved(run, f"{run}#{given.after}@{given.after_seq}", f"{run}#{line.number}@{line.last_seq}")
    owner = msgspec.structs.replace(
        given.run,
        n=known.run.n if known.run else lines.new_number(),
        created_at=known.run.created_at if known.run else given.run.created_at,
    )
    line = _import_journal(transaction, codec, line, given)
    line = _import_history(transaction, codec, line, given)
    entries = {int(row[1]) for row in transaction.scan(INBOX, (run,))}  # type: ignore[arg-type]
    for entry in given.inbox:
        transaction.insert(INBOX, codec.close(INBOX, msgspec.structs.replace(entry, run=run)))
        entries.add(entry.number)
    for account in given.accounts:
        transaction.put(ACCOUNT, codec.close(ACCOUNT, msgspec.structs.replace(account, run=run)))
    accounts = codec.open_sound(ACCOUNT, transaction.scan(ACCOUNT, (run,)))
    digests = tuple(sorted((one.name, one.digest) for one in accounts))
    version = max(given.run.version, known.run.version if known.run else 0)
    owner = msgspec.structs.replace(owner, accounts=digests, version=version)
    consumed = min(given.line.consumed, max(entries, default=0))
    line = msgspec.structs.replace(
        line, updated_at=given.line.updated_at, consumed=max(line.consumed, consumed), run_version=version
    )
    transaction.put(RUN, codec.close(RUN, owner))
    transaction.put(LINE, codec.close(LINE, line))
    transaction.hold(owner.n, ClosedChunks(given.chunks, codec))
    transaction.hold_ids(owner.n, given.held)
    return line


def _import_journal(transaction: Transaction, codec: RowCodec, line: LineRow, given: Import) -> LineRow:
    number, chain = line.number, line.chain
    records: list[Row] = []
    gaps: list[Row] = []
    for piece in given.pieces:
        first, last = (piece.first, piece.last) if isinstance(piece, GapRow) else (piece.number, piece.number)
        if first != number + 1 or last < first:
            raise RunCorrupt(f"record #{first} of its journal comes after #{number}", line.run)
        moved = msgspec.structs.replace(piece, line=line.n, prev=chain)
        if isinstance(piece, GapRow):
            gaps.append(codec.close(GAP, moved))
            chain = piece.seal
        else:
            row = codec.close(RECORD, moved)
            records.append(row)
            chain = row[-1]
        number = last
    transaction.insert(RECORD, *records)
    transaction.insert(GAP, *gaps)
    if not are_ordered(given.line.ranges, given.line.number):
        raise RunCorrupt("the ranges of its journal are out of order", line.run)
    if number > given.line.number:
        raise RunCorrupt(f"its journal ends at #{given.line.number}, and has #{number}", line.run)
    ranges = cut(given.line.ranges, number)
    chunked = [piece.number for piece in given.pieces if isinstance(piece, Record) and piece.chunks]
    return msgspec.structs.replace(
        line, number=number, chain=chain, ranges=ranges, chunked=max(chunked, default=line.chunked)
    )


def _import_history(transaction: Transaction, codec: RowCodec, line: LineRow, given: Import) -> LineRow:
    seq, head, checkpoints = line.last_seq, line.head, line.checkpoints
    stored: list[Row] = []
    tombstones: list[Row] = []
    for one in given.history:
        if one.seq != seq + 1:
            raise CheckpointCorrupt(f"it comes after number {seq}", f"{line.run}@{one.seq}")
        seq = one.seq
        if isinstance(one, TombstoneRow):
            left = msgspec.structs.replace(one, run=line.run, line=line.name)
            tombstones.append(codec.close(TOMBSTONE, left))
            continue
        if (one.run, one.line) != (line.run, line.name) or one.number > line.number:
            raise CheckpointCorrupt(f"it belongs to {one.run}/{one.line} at #{one.number}", one.id)
        if not are_ordered(one.ranges, one.number):
            raise CheckpointCorrupt("the ranges of its journal are out of order", one.id)
        stored.append(codec.close(CHECKPOINT, one))
        head, checkpoints = one.id, checkpoints + 1
    transaction.insert(CHECKPOINT, *stored)
    transaction.insert(TOMBSTONE, *tombstones)
    return msgspec.structs.replace(line, last_seq=seq, head=head, checkpoints=checkpoints)
