"""Repair of what a store keeps about its runs: rows, lines, leases and holds, from sound checkpoints and records."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import IntegrityError, NotFound
from holdfast.store.codec import LARGEST_NUMBER, shown, stored_time
from holdfast.store.envelopes import open_checkpoint, read_checkpoint
from holdfast.store.line_reader import NUMBERS
from holdfast.store.medium import first_cells
from holdfast.store.ranges import cut
from holdfast.store.repeat import repeated
from holdfast.store.store import misnumbered, run_record
from holdfast.store.tables import (
    ACCOUNT,
    CHECKPOINT,
    GAP,
    INBOX,
    LEASE,
    LINE,
    MAIN,
    RECORD,
    RUN,
    TOMBSTONE,
    CheckpointRow,
    LeaseRow,
    LineRow,
    RunRow,
    Table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.medium import Reader, Transaction
    from holdfast.store.ranges import Ranges
    from holdfast.store.store import Store
    from holdfast.store.tables import Key, Row

_PAGE = 1_000  # records that are looked at at once


class Repair:
    """Finds and rebuilds the damaged runs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._medium = store.medium
        self._codec = store.codec
        self._lines = store.line_reader

    @repeated
    def damaged_runs(self) -> list[str]:
        """Return the runs whose row, lines or leases are not as they were written, or lost: `rebuild` repairs them.

        Those without a row of their own come last: one that stands under another's name is theirs again by then.
        """
        names: dict[str, None] = {}
        lost: dict[str, None] = {}
        with self._medium.read() as reader:
            for table in (RUN, LINE, LEASE):
                rows = (
                    self._medium.in_order_begun()
                    if table is RUN
                    else [row for run in first_cells(reader, table) for row in reader.scan(table, (run,))]
                )
                for row in rows:
                    value = self._codec.open_if_sound(table, row)
                    if value is None or (table is RUN and self._lacks_accounts(reader, value)):
                        names[shown(row[0])] = None
            for run in dict.fromkeys(run for table in (LINE, CHECKPOINT) for run in first_cells(reader, table)):
                try:
                    for line in self._lines.names(reader, run):
                        head = self._lines.existing(reader, run, line)[1]
                        if not self._store.leases.is_last(reader, head):
                            names[shown(run)] = None
                except (IntegrityError, NotFound):
                    into = names if reader.scan(RUN, (run,), limit=1) else lost
                    into[shown(run)] = None
                if any(self._home(reader, row, [run]) for row in misnumbered(reader, run, MAIN)):
                    names[shown(run)] = None
            names |= dict.fromkeys(self._cut_short(reader))
            if self._medium.damaged_holds():  # whose they were, nobody knows
                names |= dict.fromkeys(shown(row[0]) for row in reader.scan(RUN))
        return [*(name for name in names if name not in lost), *lost]

    def _cut_short(self, reader: Reader) -> Iterator[str]:
        """Yield the runs that are not what was witnessed of them."""
        for head in self._lines.heads.all()[0] if self._lines.heads else ():
            try:
                self._lines.check_witnessed(reader, head)
            except IntegrityError:
                yield head.run

    @repeated
    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:
        """Rebuild a run's rows from its sound checkpoints and records, unless they can be read; None if it has none.

        Rows that stand under another name, and prove by their seal whose they are, go back there first. The run then
        holds, beside what it held, the chunks that `reach` names; a damaged lease is nobody's.
        """
        with self._medium.write() as transaction:
            transaction.lock(run)
            if self._lines.heads is not None:
                self._lines.heads.clear(run)  # what is missing is missing: the run continues from what is there
            self._return_strays(transaction)
            self._drop_damaged_leases(transaction, run)
            owner: RunRow | None = None
            lines: dict[str, LineRow] = {}
            for name in dict.fromkeys([MAIN, *self._lines.names(transaction, run)]):
                settled = self._settled(transaction, run, name)
                if settled is not None:
                    owner, lines[name] = settled[0], self._with_lease(transaction, settled[1])
            if owner is None:
                self._drop_remains(transaction, run)
                return None
            owner = self._with_accounts(transaction, owner)
            sound: list[CheckpointRecord] = []
            for row in transaction.scan(CHECKPOINT, (run,)):
                with suppress(IntegrityError):
                    sound.append(read_checkpoint(self._codec, row))
            needed = {
                *reach(sound),
                *(name for line in lines.values() for name in self._named_chunks(transaction, line)),
            }
            transaction.hold_ids(owner.n, self._store.stored_names(needed))
        self._medium.recount_holds()
        self._lines.forget(run)
        return run_record(owner, lines[MAIN]) if MAIN in lines else None

    def _lacks_accounts(self, reader: Reader, owner: RunRow) -> bool:
        """Tell whether budgets that a run's row names are lost, are others, or cannot be read."""
        try:
            names = {row[1] for row in reader.scan(ACCOUNT, (owner.id,))}
            return not set(dict(owner.accounts)) <= names or not set(self._digests(reader, owner)) <= {*owner.accounts}
        except IntegrityError:
            return True

    def _digests(self, reader: Reader, owner: RunRow) -> tuple[tuple[str, bytes], ...]:
        found = self._codec.open_sound(ACCOUNT, reader.scan(ACCOUNT, (owner.id,)))
        return tuple(sorted((account.name, account.digest) for account in found))

    def _with_accounts(self, transaction: Transaction, owner: RunRow) -> RunRow:
        """Let a run's row name the budgets that are there: one that is lost is missed no longer."""
        digests = self._digests(transaction, owner)
        if digests == owner.accounts:
            return owner
        named = msgspec.structs.replace(owner, accounts=digests, version=owner.version + 1)
        transaction.put(RUN, self._codec.close(RUN, named))
        return named

    def _settled(self, transaction: Transaction, run: str, name: str) -> tuple[RunRow, LineRow] | None:
        """Return a run's row and a line, rebuilt if they cannot be read; None if nothing says that it was there."""
        try:
            return self._lines.existing(transaction, run, name)
        except NotFound:
            return None
        except IntegrityError:
            rows = transaction.scan(LINE, (run, name)) + transaction.scan(CHECKPOINT, (run, name), limit=1)
            if not rows and not self._deleted(transaction, run, name):
                return None
        owner, line = self._rebuilt(transaction, run, name)
        transaction.put(RUN, self._codec.close(RUN, owner))
        transaction.put(LINE, self._codec.close(LINE, line))
        return owner, line

    def _return_strays(self, transaction: Transaction) -> None:
        """Put rows that do not open where they stand, but open elsewhere, where they belong."""
        tables = (RUN, LINE, CHECKPOINT, TOMBSTONE, LEASE, INBOX, ACCOUNT)
        homes = list(dict.fromkeys(str(run) for table in tables for run in first_cells(transaction, table)))
        for table in tables:
            for name in homes:
                for row in transaction.scan(table, (name,)):
                    home = self._home(transaction, row, homes, table)
                    if home is not None:
                        transaction.drop(table, row[: len(table.key)])
                        transaction.put(table, home)

    def _home(self, reader: Reader, row: Row, runs: Sequence[str], table: Table = CHECKPOINT) -> Row | None:
        """Return a row as it belongs, under one of these runs and a key that is free; None if it is right, or lost."""
        if self._codec.open_if_sound(table, row) is not None:
            return None
        for run in runs:
            keys = [(run, *row[1 : len(table.key)])]
            if table is CHECKPOINT:
                keys += [(run, row[1], seq) for seq in self._vacant(reader, run, shown(row[1]))]
            for key in keys:
                home = (*key, *row[len(table.key) :])
                is_free = key != row[: len(table.key)] and self._codec.open_if_sound(table, home) is not None
                if is_free and not reader.scan(table, key, limit=1):
                    return home
        return None

    def _vacant(self, reader: Reader, run: str, line: str) -> list[int]:
        """Return the numbers of a line, up to its last, that neither a checkpoint nor a tombstone has."""
        taken = {int(row[2]) for row in reader.scan(CHECKPOINT, (run, line), high=LARGEST_NUMBER)}  # type: ignore[arg-type]
        taken |= self._deleted(reader, run, line)
        head = self._codec.open_if_sound(LINE, _row(reader, LINE, (run, line)))
        last = max([head.last_seq, *taken]) if head is not None else max(taken, default=0) + 1
        return sorted(set(range(1, last + 1)) - taken)

    def _drop_damaged_leases(self, transaction: Transaction, run: str) -> None:
        for row in transaction.scan(LEASE):
            if shown(row[0]) == run and self._codec.open_if_sound(LEASE, row) is None:
                transaction.drop(LEASE, row[:2])

    def _with_lease(self, transaction: Transaction, line: LineRow) -> LineRow:
        """Let a lease that is lost or not the last one be nobody's, under a token that was never given."""
        if self._store.leases.is_last(transaction, line):
            return line
        fenced = msgspec.structs.replace(line, fence=line.fence + 1)
        lease = LeaseRow(run=line.run, line=line.name, owner="nobody", token=fenced.fence, expires_at=0.0)
        transaction.put(LEASE, self._codec.close(LEASE, lease))
        transaction.put(LINE, self._codec.close(LINE, fenced))
        return fenced

    def _later_token(self) -> int:
        """Return a token above any that was given by counting, and above those returned here before."""
        return int(self._medium.now())

    def _drop_remains(self, transaction: Transaction, run: str) -> None:
        """Drop rows of a run that cannot be read and of which nothing else is left."""
        if not transaction.scan(RUN, (run,), limit=1):
            transaction.drop(RUN, (run,))  # a medium that keeps a run in a file of its own is rid of what damaged it
        for table in (RUN, LINE):
            for row in transaction.scan(table):
                is_alone = shown(row[0]) == run and not transaction.scan(CHECKPOINT, (row[0],), limit=1)
                if is_alone and self._codec.open_if_sound(table, row) is None:
                    transaction.drop(table, row[: len(table.key)])

    def _named_chunks(self, reader: Reader, line: LineRow) -> Iterator[bytes]:
        """Yield the chunks that the sound records of a line name."""
        low = 1
        while rows := reader.scan(RECORD, (line.n,), low=low, limit=_PAGE):
            low = int(rows[-1][1]) + 1  # type: ignore[arg-type]
            for record in self._codec.open_sound(RECORD, rows):
                yield from record.chunks

    def _rebuilt(self, transaction: Transaction, run: str, name: str) -> tuple[RunRow, LineRow]:
        """Return a run's row and a line as its checkpoints and records show them."""
        now = datetime.now(UTC)
        line_row, run_row = _row(transaction, LINE, (run, name)), _row(transaction, RUN, (run,))
        rows = transaction.scan(CHECKPOINT, (run, name), low=1, high=LARGEST_NUMBER, reverse=True)
        sound: list[CheckpointRow] = list(self._codec.open_sound(CHECKPOINT, rows))
        deleted = self._deleted(transaction, run, name)
        last = max([*(int(row[2]) for row in rows), *deleted], default=0)  # type: ignore[arg-type]
        created = stored_time(sound[-1].created_at) if sound else now
        updated = stored_time(sound[0].created_at) if sound else now
        line: LineRow | None = self._codec.open_if_sound(LINE, line_row)
        owner: RunRow | None = self._codec.open_if_sound(RUN, run_row)
        lease = self._store.leases.stored(transaction, run, name)
        number = line.n if line else self._same_n(transaction, LINE, line_row, 2)
        chain, ranges, end = self._journal_end(transaction, number, line)
        fences = [one for one in (line.fence if line else None, lease.token if lease else None) if one is not None]
        rebuilt = LineRow(
            run=run, name=name, n=number, created_at=line.created_at if line else created, updated_at=updated,
            number=end, chain=chain, ranges=ranges, head=sound[0].id if sound else None, last_seq=last,
            checkpoints=len(rows), fence=max(fences) if fences else self._later_token(),
            consumed=line.consumed if line else 0, chunked=end,
        )  # fmt: skip
        if owner is None:
            n = self._same_n(transaction, RUN, run_row, 1)
            owner = RunRow(id=run, n=n, created_at=created, updated_at=updated, status=_status(sound))
        version = max(owner.version, line.run_version if line else 0)
        return msgspec.structs.replace(owner, version=version), msgspec.structs.replace(rebuilt, run_version=version)

    def _same_n(self, reader: Reader, table: Table, row: Row | None, place: int) -> int:
        """Return the number that a damaged row shows, if it can be its own; another one if not."""
        n = None if row is None else row[place]
        if row is None or not isinstance(n, int) or not 0 <= n < NUMBERS:
            return self._lines.new_number()
        width = len(table.key)
        taken = reader.scan(table, (n,), index=f"{table.name}_n", limit=2)
        return n if all(one[:width] == row[:width] for one in taken) else self._lines.new_number()

    def _journal_end(self, reader: Reader, line: int, known: LineRow | None) -> tuple[bytes, Ranges, int]:
        """Return the chain, ranges and number where the records of a line end; damaged ones before it stay."""
        ends: list[tuple[int, bytes]] = [(0, b"")]
        rows = reader.scan(RECORD, (line,), reverse=True, limit=1)
        ends += [(int(row[1]), row[-1] if isinstance(row[-1], bytes) else b"") for row in rows]  # type: ignore[arg-type]
        gaps = self._codec.open_sound(GAP, reader.scan(GAP, (line,), reverse=True, limit=1))
        ends += [(gap.last, gap.seal) for gap in gaps]
        number, chain = max(ends)
        ranges = cut(known.ranges, number) if known else ()
        last = ranges[-1][1] if ranges else 0
        if last < number:
            ranges = (*ranges[:-1], (ranges[-1][0] if ranges else 1, number))
        return chain, ranges, number

    def _deleted(self, reader: Reader, run: str, line: str) -> set[int]:
        """Return the numbers of a line that have a sound tombstone."""
        rows = reader.scan(TOMBSTONE, (run, line), low=0, high=LARGEST_NUMBER)
        return {one.seq for one in self._codec.open_sound(TOMBSTONE, rows)}


def _status(rows: Sequence[CheckpointRow]) -> str | None:
    """Return how a run stands by the newest of these checkpoints that can be read."""
    for row in rows:
        with suppress(IntegrityError):
            return open_checkpoint(row).envelope.summary.status
    return None


def _row(reader: Reader, table: Table, key: Key) -> Row | None:
    """Return a row by its key, even of a damaged run: a medium may refuse that by `get`."""
    return next(iter(reader.scan(table, key)), None)
