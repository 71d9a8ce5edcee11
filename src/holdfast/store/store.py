"""The store: runs, their lines, checkpoints, inboxes and chunks, with every rule about them written once over a medium.

Compare-and-set: a commit names what its writer believes (head, number), is prepared against the line's row, and is
applied only if that row is still the same; whoever lost reads again and decides. Fencing falls out of it: taking a
lease changes the line's row. Deleting leaves tombstones, so numbers are never given twice and links stay checkable.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from holdfast.errors import (
    CheckpointCorrupt,
    Conflict,
    HeadMoved,
    IntegrityError,
    NotFound,
    RunCorrupt,
    StoreCorrupt,
)
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Marks, RunRecord
from holdfast.model.ids import RESERVED, is_reserved
from holdfast.store import envelopes
from holdfast.store.api import Listing, StoreStats, Tombstone
from holdfast.store.codec import LARGEST_NUMBER, RowCodec, is_readable, shown, stored_time
from holdfast.store.commit import WENT_BACK, CheckpointDraft, Commit, prepare
from holdfast.store.journal import LineJournal
from holdfast.store.lease import Leases
from holdfast.store.line_reader import NUMBERS, LineReader
from holdfast.store.medium import Batch, StaleError, apply_in, first_cells
from holdfast.store.prefix import id_range
from holdfast.store.queries import Queries
from holdfast.store.repeat import MOST_TURNS, repeated, repeats
from holdfast.store.tables import (
    ACCOUNT,
    BY_RUN,
    CHECKPOINT,
    GAP,
    INBOX,
    LEASE,
    LINE,
    MAIN,
    META,
    RECORD,
    RUN,
    TOMBSTONE,
    CheckpointRow,
    InboxRow,
    LineRow,
    MetaRow,
    RunRow,
    TombstoneRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import Envelope
    from holdfast.store.commit import Committed, Prepared
    from holdfast.store.line_reader import KnownLine
    from holdfast.store.medium import Medium, Reader, Transaction
    from holdfast.store.tables import AccountRow, Row
    from holdfast.store.wakeups import Wakeup

_IN_TURN_FROM = 5  # turns; then the commit is made under the run's lock
_KEYS = "keys"  # the row of the key slots, which is read before any key is known; store/keys.py writes it
_PAGE = 1_000  # rows that are looked at at once


@repeats(but="write")  # which knows what it has tried
class Store:
    """Runs, their lines, checkpoints and journals, and the chunks that they hold."""

    def __init__(
        self, medium: Medium, codec: RowCodec | None = None, *, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.medium = medium
        self.codec = codec or RowCodec()
        self.line_reader = LineReader(medium, self.codec, entropy)
        self.leases = Leases(self.line_reader)
        self.journal = LineJournal(self.line_reader)
        self.queries = Queries(self.line_reader, run_record)
        self._unsettled: dict[tuple[str, str], Prepared] = {}
        self.url = medium.url
        self.traits = medium.traits
        self.secret_paths: tuple[Path, ...] = ()
        """Files on this machine that the settings name as secrets, such as its key; a workspace leaves them out."""

    @property
    def folder(self) -> Path | None:
        """Where it lies on this machine, if it does."""
        return self.medium.folder

    @property
    def own_paths(self) -> tuple[Path, ...]:
        """The files and folders on this machine that are its own; a workspace leaves them out."""
        return self.medium.own_paths

    # Commits

    def write(self, commit: Commit) -> Committed:
        """Carry a commit out: durable when it returns, or nothing of it is there.

        HeadMoved if the line is not where the writer believes; LeaseLost if the writer's lease was taken over;
        LeaseHeld if somebody has a lease and the writer has none. A commit whose answer was lost is not made twice.
        """
        place = (commit.run, commit.line)
        known = self.line_reader.remembered(*place)
        tried: Prepared | None = None
        stale: KnownLine | None = None
        for turn in range(MOST_TURNS):
            fresh = known is None
            known = known or self.line_reader.look_up(*place)
            if tried is not None and self._is_made(tried, known):
                return self._remember(tried)
            if tried is not None and known == stale and self._has_moved_budgets(commit):
                raise Conflict(commit.run)
            if turn >= _IN_TURN_FROM:
                return self._write_in_turn(commit)
            try:
                prepared = prepare(commit, known, self.line_reader, self.leases)
            except Conflict:
                if fresh:
                    raise
                known = None  # what was remembered is old: others may have moved it
                continue
            try:
                self.medium.apply(prepared.batch)
            except StaleError:
                known, tried, stale = None, prepared, known
                self.line_reader.forget(*place)
                continue
            except BaseException:
                self.line_reader.forget(*place)
                self._unsettled[place] = prepared
                raise
            return self._remember(prepared)
        raise Conflict(commit.run)

    def _has_moved_budgets(self, commit: Commit) -> bool:
        """Tell whether a budget of a commit is not what its writer knows: then no other try can succeed."""
        with self.medium.read() as reader:
            rows = [(was, reader.get(ACCOUNT, (row.run, row.name))) for was, row in commit.accounts]
        return any(was != (None if row is None else self.codec.open(ACCOUNT, row)) for was, row in rows)

    def settle(self, run: str, *, line: str = MAIN) -> Committed | None:
        """Return a commit of this process that broke off and was made all the same, None if there is none.

        Asked by a writer after an error, before it writes again: whether the medium had taken it is known only now.
        """
        prepared = self._unsettled.get((run, line))
        if prepared is None:
            return None
        known = self.line_reader.look_up(run, line)
        del self._unsettled[run, line]  # only now: a store that did not answer is asked again
        return self._remember(prepared) if self._is_made(prepared, known) else None

    @repeated
    def _write_in_turn(self, commit: Commit) -> Committed:
        """Carry a commit out under the lock of its run: those who know the line already kept getting in front of it."""
        try:
            with self.medium.write() as transaction:
                transaction.lock(commit.run)
                known = self.line_reader.read_for_commit(transaction, commit.run, commit.line)
                prepared = prepare(commit, known, self.line_reader, self.leases)
                apply_in(transaction, prepared.batch)
        except StaleError:
            raise Conflict(commit.run) from None
        return self._remember(prepared)

    def commit(
        self,
        envelope: Envelope,
        marks: Marks,
        chunks: Collection[Chunk],
        *,
        expected_head: str | None,
        fence: int | None = None,
    ) -> CheckpointRecord:
        """Store chunks and a checkpoint and move the head, all or nothing; HeadMoved if the head is another."""
        try:
            done = self.write(
                Commit(
                    run=envelope.run, fence=fence, checkpoints=[CheckpointDraft(envelope, marks)],
                    expected_head=expected_head, chunks=chunks,
                )
            )  # fmt: skip
        except HeadMoved:
            with suppress(NotFound, IntegrityError):  # its caller may have lost the answer, and repeat it
                made = self.checkpoint(envelope.id)
                if made.envelope == envelope:
                    return made
            raise
        assert done.checkpoint is not None
        return done.checkpoint

    def _remember(self, prepared: Prepared) -> Committed:
        self.line_reader.remember(prepared.after)
        return prepared.result

    def _is_made(self, tried: Prepared, known: KnownLine) -> bool:
        """Tell whether this very commit was made: its answer was lost, and others may have committed since."""
        if not tried.batch.inserts:
            return known.line_seal == tried.after.line_seal
        table, row = tried.batch.inserts[0]
        with self.medium.read() as reader:
            found = reader.get(table, row[: len(table.key)])
        if found is not None and table is CHECKPOINT:  # its marks may have changed since
            return bool(self.codec.open(table, found).envelope == self.codec.open(table, row).envelope)
        return found == row

    # Runs and checkpoints

    def run(self, run: str, *, line: str = MAIN) -> RunRecord:
        """Return a run, NotFound if there is none."""
        with self.medium.read() as reader:
            return run_record(*self.line_reader.existing(reader, run, line))

    def row_of(self, run: str) -> RunRow:
        """Return what is known of a run beside its lines: status, project, key, attributes; NotFound."""
        with self.medium.read() as reader:
            return self.line_reader.existing(reader, run)[0]

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""
        found: dict[str, RunRecord] = {}
        damaged: list[IntegrityError] = []
        for row in self.medium.in_order_begun(limit=limit):
            try:
                run: RunRow = self.codec.open(RUN, row)
                with self.medium.read() as reader:
                    found[run.id] = run_record(*self.line_reader.existing(reader, run.id))
            except IntegrityError as error:
                damaged.append(error)
            except NotFound:
                continue  # deleted meanwhile
        if limit is None:
            try:
                damaged += self._lost_runs(found)
            except IntegrityError as error:
                damaged.append(error)
        return Listing(list(found.values()), damaged)

    def moved_before(
        self, status: str | None, at: datetime, *, after: float | None = None, limit: int
    ) -> list[RunRecord]:
        """Return runs of a status that moved last before a time, those that did so longest ago first.

        `after` continues a list behind the last one's `updated_at`, in seconds.
        """
        with self.medium.read() as reader:
            cell = self.codec.cell(RUN, "status", status)
            rows = reader.scan(RUN, (cell,), index="run_status", low=after, high=at.timestamp(), limit=limit)
            runs = [run for run in self.codec.open_sound(RUN, rows) if run.status == status]
            return [run_record(*self.line_reader.existing(reader, run.id)) for run in runs]

    def forks(self, checkpoints: Iterable[str] | None = None) -> dict[str, str]:
        """Return which of these checkpoints (None: of all) runs were forked from, each with one such run."""
        with self.medium.read() as reader:
            found = (
                reader.scan(RUN, index="run_fork", low="")
                if checkpoints is None
                else [row for one in checkpoints for row in reader.scan(RUN, (one,), index="run_fork", limit=1)]
            )
            return {run.forked_from: run.id for run in self.codec.open_sound(RUN, found) if run.forked_from}

    def forks_of(self, checkpoint: str) -> list[str]:
        """Return the runs that were forked from a checkpoint."""
        with self.medium.read() as reader:
            rows = reader.scan(RUN, (checkpoint,), index="run_fork")
            return sorted(run.id for run in self.codec.open_sound(RUN, rows) if run.forked_from == checkpoint)

    def _lost_runs(self, found: Collection[str]) -> Iterator[IntegrityError]:
        """Find runs that have a line or checkpoints but no row of their own."""
        lost: dict[str, None] = {}
        with self.medium.read() as reader:
            for table in (LINE, CHECKPOINT):
                for run in first_cells(reader, table):
                    if run not in found and not reader.scan(RUN, (run,), limit=1):
                        lost[run] = None
                        yield RunCorrupt("its record vanished while its checkpoints are there", shown(run))
        heads = self.line_reader.heads
        for run in dict.fromkeys(head.run for head in heads.all()[0]) if heads else ():
            if run not in found and run not in lost:
                with self.medium.read() as reader:
                    is_listed = reader.get(RUN, (run,)) is not None
                    try:
                        self.line_reader.read(reader, run)
                    except IntegrityError as error:
                        if not is_listed:
                            yield error

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint, NotFound if there is none."""
        with self.medium.read() as reader:
            return envelopes.open_checkpoint(self._by_id(reader, checkpoint))

    def _by_id(self, reader: Reader, checkpoint: str) -> CheckpointRow:
        row = self._row_by_id(reader, checkpoint)
        try:
            found: CheckpointRow = self.codec.open(CHECKPOINT, row)
        except CheckpointCorrupt as error:
            raise CheckpointCorrupt(error.detail, checkpoint) from error
        if found.id != checkpoint:
            raise CheckpointCorrupt("the index of checkpoints leads to another one", checkpoint)
        return found

    def _row_by_id(self, reader: Reader, checkpoint: str) -> Row:
        try:
            rows = reader.scan(CHECKPOINT, (checkpoint,), index="checkpoint_id", limit=1)
        except StoreCorrupt as error:
            raise CheckpointCorrupt("it is there, but the index of checkpoints does not know it", checkpoint) from error
        if not rows:
            raise NotFound("checkpoint", checkpoint)
        return rows[0]

    def checkpoint_at(self, run: str, seq: int, *, line: str = MAIN) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted; CheckpointCorrupt if it vanished."""
        with self.medium.read() as reader:
            row = reader.get(CHECKPOINT, (run, line, seq)) if -(1 << 63) <= seq < 1 << 63 else None
            if row is not None:
                return envelopes.read_checkpoint(self.codec, row)
            if self._tombstones(reader, run, line, seq, seq):
                return None
        raise CheckpointCorrupt("it vanished from the store without having been deleted", f"{run}@{seq}")

    def checkpoint_upto(self, run: str, number: int, *, line: str = MAIN) -> CheckpointRecord | None:
        """Return the newest checkpoint at or before a journal number, of whatever segment; what is damaged is passed.

        Numbers rise with the checkpoints, so it is found by halving, not by walking.
        """
        found: CheckpointRecord | None = None
        with self.medium.read() as reader:
            low, high = 1, self.line_reader.existing(reader, run, line)[1].last_seq
            while low <= high:
                middle = (low + high) // 2
                record = self._first_readable(reader, run, line, middle, high)
                if record is not None and record.number <= number:
                    found, low = record, record.envelope.seq + 1
                else:
                    high = middle - 1
        return found

    def _first_readable(self, reader: Reader, run: str, line: str, low: int, high: int) -> CheckpointRecord | None:
        while rows := reader.scan(CHECKPOINT, (run, line), low=low, high=high, limit=1):
            try:
                return envelopes.read_checkpoint(self.codec, rows[0])
            except IntegrityError:
                low = int(rows[0][2]) + 1  # type: ignore[arg-type]
        return None

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None, line: str = MAIN
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first; numbers that vanished are reported as damage."""
        found: list[CheckpointRecord] = []
        damaged: list[IntegrityError] = []
        with self.medium.read() as reader:
            try:
                upper = self.line_reader.existing(reader, run, line)[1].last_seq + 1
            except IntegrityError as error:  # where the run stands cannot be told; its checkpoints still can
                damaged.append(error)
                last = reader.scan(CHECKPOINT, (run, line), high=LARGEST_NUMBER, reverse=True, limit=1)
                upper = int(last[0][2]) + 1 if last else 1  # type: ignore[arg-type]
            for wrong in misnumbered(reader, run, line) if before_seq is None else ():
                detail = f"its number is damaged: {shown(wrong[2])} is never given"
                damaged.append(CheckpointCorrupt(detail, shown(wrong[3])))
            upper = upper if before_seq is None else min(before_seq, upper)
            rows = reader.scan(CHECKPOINT, (run, line), low=1, high=upper - 1, reverse=True, limit=limit)
            complete = limit is None or len(rows) < limit
            for row in [*rows, None] if complete else rows:
                seq = 0 if row is None else int(row[2])  # type: ignore[arg-type]
                gap = upper - seq - 1
                if gap > 0 and gap != len(self._tombstones(reader, run, line, seq + 1, upper - 1)):
                    name = f"{run}@{seq + 1}..{upper - 1}" if gap > 1 else f"{run}@{seq + 1}"
                    damaged.append(CheckpointCorrupt("vanished from the store without having been deleted", name))
                upper = seq
                if row is not None:
                    try:
                        found.append(envelopes.read_checkpoint(self.codec, row))
                    except IntegrityError as error:
                        damaged.append(error)
        return Listing(found, damaged)

    def branches(self, run: str, *, after: int = 0, line: str = MAIN) -> list[tuple[int, CheckpointRecord]]:
        """Return each first checkpoint after the run went back, with the journal number at which it did, lowest first.

        Only those after a journal number. Every other checkpoint was taken on the one before it, so a graph of any
        length is known from these few.
        """
        stands = self.line(run, line=line)
        if stands is None:
            return []
        found: list[tuple[int, CheckpointRecord]] = []
        for went in self.journal.with_key(stands, WENT_BACK, after=after):
            below = self.checkpoint_upto(run, went.number - 1, line=line)
            with self.medium.read() as reader:
                low = 1 if below is None else below.envelope.seq + 1
                first = self._first_readable(reader, run, line, low, stands.last_seq)
            if first is not None:
                found.append((went.number, first))
        return found

    def keyed(
        self, run: str, *, line: str = MAIN, below: str | None = None, limit: int | None = None
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of a line that have a key, highest key first, from below a key on; none is the end.

        Of several with one key the newest counts, so a page may be shorter than `limit` before the end. An encrypted
        store keeps no order of keys: all of the line is read.
        """
        with self.medium.read() as reader:
            if self.codec.mode == "encrypt":
                rows = reader.scan(CHECKPOINT, (run, line))
                records = [envelopes.read_checkpoint(self.codec, row) for row in rows]
                keyed = [record for record in records if record.key is not None]
                keyed.sort(key=lambda record: (record.key or "", record.envelope.seq), reverse=True)
                found = _newest_of_each([record for record in keyed if below is None or (record.key or "") < below])
                return found[:limit]
            passed = len(self._with_key(reader, run, line, below)) if below is not None else 0
            rows = reader.scan(
                CHECKPOINT, (run, line), index="checkpoint_key", low="", high=below, reverse=True,
                limit=None if limit is None else limit + passed,
            )  # fmt: skip
            records = [envelopes.read_checkpoint(self.codec, row) for row in rows[passed:]]
            if records:  # others of its key may stand behind the page
                records += self._with_key(reader, run, line, records[-1].key)
            return _newest_of_each(records)

    def by_key(self, run: str, key: str, *, line: str = MAIN) -> CheckpointRecord | None:
        """Return the newest checkpoint of a line with this key, None if there is none."""
        with self.medium.read() as reader:
            found = self._with_key(reader, run, line, key)
        return max(found, key=lambda record: record.envelope.seq, default=None)

    def _with_key(self, reader: Reader, run: str, line: str, key: str | None) -> list[CheckpointRecord]:
        cell = self.codec.cell(CHECKPOINT, "key", key)
        rows = reader.scan(CHECKPOINT, (run, line, cell), index="checkpoint_key")
        found = [envelopes.read_checkpoint(self.codec, row) for row in rows]
        return [record for record in found if record.key == key]

    def history(self, head: LineRow, *, low: int = 1) -> Iterator[CheckpointRow | TombstoneRow]:
        """Yield all numbers of a line up to its last: checkpoints, and what deleted ones left.

        CheckpointCorrupt at the first that is damaged, was lost, or is both there and deleted.
        """
        while low <= head.last_seq:
            with self.medium.read() as reader:
                high = min(low + _PAGE - 1, head.last_seq)
                found: dict[int, CheckpointRow | TombstoneRow] = {}
                for table in (CHECKPOINT, TOMBSTONE):
                    for row in reader.scan(table, (head.run, head.name), low=low, high=high):
                        one = self.codec.open(table, row)
                        if one.seq in found:
                            raise CheckpointCorrupt("it is there, and deleted as well", f"{head.run}@{one.seq}")
                        found[one.seq] = one
            for seq in range(low, high + 1):
                if seq not in found:
                    raise CheckpointCorrupt(
                        "it vanished from the store without having been deleted", f"{head.run}@{seq}"
                    )
                yield found[seq]
            low = high + 1

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix, in their order; none for what can begin no id."""
        bounds = id_range(prefix)
        if not bounds:
            return []
        with self.medium.read() as reader:
            rows = reader.scan(CHECKPOINT, index="checkpoint_id", low=bounds[0], high=bounds[1], limit=limit)
        return [str(row[3]) for row in rows]

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks; Conflict, and nothing changes, if they are not the `expected` ones by now."""
        with self.medium.write() as transaction:
            row = self._by_id(transaction, checkpoint)
            transaction.lock(row.run)
            row = self._by_id(transaction, checkpoint)
            if expected is not None and row.marks != expected:
                raise Conflict(row.run)
            marked = self._put_marks(transaction, row, marks)
        self.line_reader.witness_mark(marked)

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace marks of a run's checkpoints in one transaction, each (expected, new); return those left alone.

        Left alone is what is not as expected by now, is damaged, or is not in this run.
        """
        left: list[str] = []
        marked: CheckpointRow | None = None
        with self.medium.write() as transaction:
            transaction.lock(run)
            self.line_reader.existing(transaction, run)
            for checkpoint, (expected, marks) in changes.items():
                try:
                    row = self._by_id(transaction, checkpoint)
                except (NotFound, IntegrityError):
                    left.append(checkpoint)
                    continue
                if row.run != run or row.marks != expected:
                    left.append(checkpoint)
                else:
                    marked = self._put_marks(transaction, row, marks)
        if marked is not None:
            self.line_reader.witness_mark(marked)
        return left

    def _put_marks(self, transaction: Transaction, row: CheckpointRow, marks: Marks) -> CheckpointRow:
        changed = msgspec.structs.replace(row, marks=marks, marked=row.marked + 1)
        transaction.put(CHECKPOINT, self.codec.close(CHECKPOINT, changed))
        return changed

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints of one run, leaving tombstones for the chain; their chunks stay until released.

        All or none. With `spare_pinned`, those that are pinned by now or cannot be read stay, and are returned.
        """
        spared: list[str] = []
        with self.medium.write() as transaction:
            transaction.lock(run)
            self.line_reader.existing(transaction, run)
            lines: dict[str, list[str]] = {}
            for checkpoint in checkpoints:
                line, seq, checksum, is_pinned = self._doomed(transaction, run, checkpoint)
                if spare_pinned and is_pinned:
                    spared.append(checkpoint)
                    continue
                left = TombstoneRow(run=run, line=line, seq=seq, id=checkpoint, checksum=checksum)
                transaction.drop(CHECKPOINT, (run, line, seq))
                transaction.put(TOMBSTONE, self.codec.close(TOMBSTONE, left))
                lines.setdefault(line, []).append(checkpoint)
            for line, gone in lines.items():
                self._behead(transaction, run, line, gone)
        self.line_reader.forget(run)
        return spared

    def _doomed(self, reader: Reader, run: str, checkpoint: str) -> tuple[str, int, bytes, bool]:
        """Return where a checkpoint is, its checksum, and whether it is, or may be, pinned."""
        found = self._row_by_id(reader, checkpoint)
        if found[0] != run:
            raise NotFound("checkpoint", checkpoint)
        line, seq = str(found[1]), int(found[2])  # type: ignore[arg-type]
        try:
            row: CheckpointRow = self.codec.open(CHECKPOINT, found)
        except IntegrityError:
            return line, seq, b"", True
        return line, seq, blake3(row.envelope).digest(), row.marks.pinned

    def _behead(self, transaction: Transaction, run: str, line: str, gone: Sequence[str]) -> None:
        """Count deleted checkpoints off a line; if its head is among them, the highest one left becomes the head."""
        head = self.line_reader.existing(transaction, run, line)[1]
        left = head.head
        if left in gone:
            rows = transaction.scan(CHECKPOINT, (run, line), reverse=True, limit=1)
            left = str(rows[0][3]) if rows else None
        changed = msgspec.structs.replace(head, head=left, checkpoints=head.checkpoints - len(gone))
        transaction.put(LINE, self.codec.close(LINE, changed))

    def delete_run(self, run: str, *, expected: RunRecord | None = None) -> None:
        """Delete a run with all that no other run holds; what it held is overwritten, not just unlinked.

        HeadMoved, and nothing is deleted, if it is not as `expected` by now.
        """
        heads = self.line_reader.heads
        with self.medium.write(erase=True) as transaction:
            transaction.lock(run)
            row, main = self.line_reader.existing(transaction, run)
            if expected is not None and run_record(row, main) != expected:
                raise HeadMoved(run, expected.head, main.head)
            if heads is not None:
                heads.clear(run)  # before: what was deleted is not missed, even if the power goes
            for line in transaction.scan(LINE, (run,)):
                number = int(line[2])  # type: ignore[arg-type]
                transaction.drop(RECORD, (number,))
                transaction.drop(GAP, (number,))
            for table in BY_RUN:
                transaction.drop(table, (run,))
            transaction.release(row.n, None)
            transaction.drop(RUN, (run,))
            for lease in self.codec.open_sound(LEASE, transaction.scan(LEASE, (run,))):
                transaction.put(LEASE, self.codec.close(LEASE, msgspec.structs.replace(lease, expires_at=0.0)))
        self.line_reader.forget(run)
        self.medium.reclaim()
        if heads is not None:
            heads.clear(run, is_durable=False)  # after: another writer may have witnessed its last commit late

    # Tombstones

    def _tombstones(self, reader: Reader, run: str, line: str, low: int, high: int) -> list[TombstoneRow]:
        """Return the sound tombstones of a range: what only stands where one would be is none."""
        return list(self.codec.open_sound(TOMBSTONE, reader.scan(TOMBSTONE, (run, line), low=low, high=high)))

    def tombstone(self, run: str | None, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint of a run (None: of any), None if none was deleted by this id."""
        with self.medium.read() as reader:
            rows = reader.scan(TOMBSTONE, (checkpoint,), index="tombstone_id")
            for left in self.codec.open_sound(TOMBSTONE, rows):
                if run in (None, left.run) and left.id == checkpoint:
                    return bytes(left.checksum)
        return None

    def tombstones(self, run: str, *, line: str = MAIN) -> list[Tombstone]:
        """Return all that a run's deleted checkpoints left, lowest number first; NotFound if there is no such run."""
        with self.medium.read() as reader:
            self.line_reader.existing(reader, run, line)
            left = self._tombstones(reader, run, line, 0, LARGEST_NUMBER)
        return [Tombstone(seq=one.seq, id=one.id, checksum=one.checksum) for one in left]

    # Chunks

    def fetch(self, ids: Sequence[bytes]) -> Mapping[bytes, Chunk]:
        """Return those of these chunks that are there."""
        names = {stored: name for name in ids for stored in self.codec.stored_names(name)}
        with self.medium.read() as reader:
            stored = reader.fetch(list(names))
        found: dict[bytes, Chunk] = {}
        for place, name in names.items():
            if place in stored and (name not in found or not is_readable(found[name])):
                found[name] = self.codec.open_chunk(name, stored[place])
        return found

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk; `Inspection.check` finds those whose name is none."""
        return (name for name in map(self.codec.true_name, self.medium.chunk_ids()) if name is not None)

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        with self.medium.read() as reader:
            stored = reader.held(self.line_reader.existing(reader, run)[0].n)
        return {name for name in map(self.codec.true_name, stored) if name is not None}

    def release(
        self,
        run: str,
        chunks: Sequence[bytes],
        *,
        expected_seq: int,
        created_at: datetime,
        expected_chunked: int | None = None,
    ) -> None:
        """End a run's hold on chunks, and delete what nobody holds; HeadMoved if the run moved meanwhile.

        `created_at` tells a run from another that was begun under its name after it was deleted. `expected_seq` is the
        sum of the last checkpoint numbers of its lines, `expected_chunked` that of the numbers of their last records
        that are kept in chunks: a commit on any line changes one of them.
        """
        with self.medium.write(erase=True) as transaction:
            transaction.lock(run)
            owner, main = self.line_reader.existing(transaction, run)
            lines: list[LineRow] = [self.codec.open(LINE, row) for row in transaction.scan(LINE, (run,))]
            seq, chunked = sum(line.last_seq for line in lines), sum(line.chunked for line in lines)
            wanted = chunked if expected_chunked is None else expected_chunked
            if (seq, owner.created_at, chunked) != (expected_seq, created_at, wanted):
                raise HeadMoved(run, f"{run}@{expected_seq}", main.head)
            transaction.release(owner.n, self.stored_names(chunks))

    def stored_names(self, chunks: Iterable[bytes]) -> list[bytes]:
        """Return the names under which chunks may be stored."""
        return [stored for name in chunks for stored in self.codec.stored_names(name)]

    def reclaim(self) -> None:
        """Give freed space back to the medium."""
        self.medium.reclaim()

    # Journal

    def line(self, run: str, *, line: str = MAIN) -> LineRow | None:
        """Return the head of a line, None if there is none."""
        with self.medium.read() as reader:
            return self.line_reader.read(reader, run, line).line

    def line_names(self, run: str) -> list[str]:
        """Return the names of a run's lines, those included whose row is damaged or lost."""
        with self.medium.read() as reader:
            return self.line_reader.names(reader, run)

    def lines(self, run: str) -> list[LineRow]:
        """Return the lines of a run, by name."""
        with self.medium.read() as reader:
            return [self.codec.open(LINE, row) for row in reader.scan(LINE, (run,))]

    # Accounts and inbox

    def accounts(self, run: str) -> dict[str, AccountRow]:
        """Return a run's budgets by name; RunCorrupt if one vanished, or is not as it was written last."""
        with self.medium.read() as reader:
            rows = [self.codec.open(ACCOUNT, row) for row in reader.scan(ACCOUNT, (run,))]
            owner = reader.get(RUN, (run,))
            digests = dict(self.codec.open(RUN, owner).accounts) if owner is not None else {}
        found: dict[str, AccountRow] = {row.name: row for row in rows}
        for name in {**digests, **found}:
            if name not in found:
                raise RunCorrupt(f"its budget {name!r} vanished", run)
            if found[name].digest != digests.get(name):
                raise RunCorrupt(f"its budget {name!r} is not as it was written last: an older one was put back", run)
        return found

    def post(self, run: str, kind: str, body: bytes, *, key: str | None = None) -> InboxRow:
        """Leave an entry in a run's inbox; one with a key that is there already is not left twice."""
        with self.medium.write() as transaction:
            transaction.lock(run)
            if key is not None:
                cell = self.codec.cell(INBOX, "key", key)
                for row in transaction.scan(INBOX, (run, cell), index="inbox_key"):
                    there: InboxRow = self.codec.open(INBOX, row)
                    if there.key == key:
                        return there
            number = self._last_entry(transaction, run) + 1
            entry = InboxRow(run=run, number=number, kind=kind, at=self.medium.now(), key=key, body=body)
            transaction.insert(INBOX, self.codec.close(INBOX, entry))
        self.line_reader.witness_entry(run, number)
        self.medium.wake(run)
        return entry

    def _last_entry(self, reader: Reader, run: str) -> int:
        """Return the number of the last entry that can be read; what claims a number out of reach blocks nobody."""
        high: int | None = None
        while rows := reader.scan(INBOX, (run,), high=high, reverse=True, limit=1):
            number = int(rows[0][1])  # type: ignore[arg-type]
            try:
                self.codec.open(INBOX, rows[0])
            except IntegrityError:
                if number < NUMBERS:
                    return number
                high = number - 1
                continue
            return number
        return 0

    def inbox(self, run: str, *, after: int = 0) -> list[InboxRow]:
        """Return the entries of a run's inbox after a number, in order; RunCorrupt if one vanished."""
        with self.medium.read() as reader:
            found = self._entries(reader, run, after)
            lines = self.codec.open_sound(LINE, reader.scan(LINE, (run,)))
            consumed = max((line.consumed for line in lines), default=0)
        if consumed > (found[-1].number if found else after):
            raise RunCorrupt(f"entry {consumed} of its inbox vanished", run)
        return found

    def unread(self, run: str, *, after: int = 0, line: str = MAIN) -> list[InboxRow]:
        """Return the entries of a run's inbox that it has not taken in, after a number; RunCorrupt if one vanished."""
        with self.medium.read() as reader:
            row = reader.get(LINE, (run, line))
            consumed = 0 if row is None else self.codec.open(LINE, row).consumed
            return self._entries(reader, run, max(after, consumed))

    def _entries(self, reader: Reader, run: str, after: int) -> list[InboxRow]:
        self.line_reader.check_inbox(reader, run)
        found: list[InboxRow] = [self.codec.open(INBOX, row) for row in reader.scan(INBOX, (run,), low=after + 1)]
        for number, entry in enumerate(found, after + 1):
            if entry.number != number:
                raise RunCorrupt(f"entry {number} of its inbox vanished", run)
        return found

    # Waking

    def wake(self, run: str) -> None:
        """Wake those who listen for a run."""
        self.medium.wake(run)

    def listen(self, run: str) -> Wakeup:
        """Return what wakes when the run is woken from now on."""
        return self.medium.listen(run)

    # The store itself

    def meta(self, name: str) -> bytes | None:
        """Return a fact about the store."""
        with self.medium.read() as reader:
            row = reader.get(META, (name,))
        return None if row is None else bytes(self.meta_codec(name).open(META, row).body)

    def put_meta(self, name: str, body: bytes, *, expected: bytes | None) -> None:
        """Replace a fact about the store; Conflict unless it is as expected (None: not there)."""
        codec = self.meta_codec(name)
        seal = None if expected is None else codec.close(META, MetaRow(name=name, body=expected))[-1]
        row = codec.close(META, MetaRow(name=name, body=body))
        try:
            self.medium.apply(Batch(guards=[(META, (name,), seal)], puts=[(META, row)]))
        except StaleError:
            raise Conflict(self.url) from None

    def meta_codec(self, name: str) -> RowCodec:
        """Return how a fact about the store is written: the key slots are read before any key is known."""
        return RowCodec() if name == _KEYS else self.codec

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:
        """Bring the layout up to date and return the versions applied; opening a store does it, too."""
        applied = self.medium.migrate()
        if progress is not None:
            for version in applied:
                progress("migration", version)
        return applied

    def stats(self) -> StoreStats:
        """Count what is stored; the engine's own runs are not counted."""
        sizes = self.medium.sizes()
        with self.medium.read() as reader:
            ends = [self._taken_at(reader, reverse=reverse) for reverse in (False, True)]
            own = sum(is_reserved(str(row[0])) for row in reader.scan(RUN, low=RESERVED, high=f"{RESERVED}~"))
        engine = {"plain": "", "sign": ", signed", "encrypt": ", AES-256-GCM"}[self.codec.mode]
        return StoreStats(
            url=self.url, engine=sizes.engine + engine, runs=sizes.runs - own, checkpoints=sizes.checkpoints,
            chunks=sizes.chunks, chunk_bytes=sizes.chunk_bytes, stored_bytes=sizes.stored_bytes,
            file_bytes=sizes.file_bytes, oldest_at=ends[0], newest_at=ends[1],
        )  # fmt: skip

    def _taken_at(self, reader: Reader, *, reverse: bool) -> datetime | None:
        for row in reader.scan(CHECKPOINT, index="checkpoint_id", reverse=reverse, limit=8):
            try:
                return stored_time(self.codec.open(CHECKPOINT, row).created_at)
            except IntegrityError:
                continue
        return None

    def close(self) -> None:
        """Let the medium go; closing twice is fine."""
        self.medium.close()


def run_record(run: RunRow, line: LineRow) -> RunRecord:
    """Return a run and a line as one record."""
    return RunRecord(
        format_version=FORMAT_VERSION, id=run.id, head=line.head, last_seq=line.last_seq,
        checkpoints=line.checkpoints, created_at=run.created_at, updated_at=line.updated_at, number=line.number,
        chunked=line.chunked, status=run.status, key=run.key, attributes=run.attributes, line=line.name,
    )  # fmt: skip


def _newest_of_each(records: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """Return the newest record of each key, in the order of the keys."""
    newest: dict[str | None, CheckpointRecord] = {}
    for record in records:
        known = newest.setdefault(record.key, record)
        if record.envelope.seq > known.envelope.seq:
            newest[record.key] = record
    return list(newest.values())


def misnumbered(reader: Reader, run: str, line: str) -> list[Row]:
    """Return the checkpoints of a line whose number damage has made one that is never given."""
    return reader.scan(CHECKPOINT, (run, line), low=LARGEST_NUMBER + 1) + reader.scan(CHECKPOINT, (run, line), high=0)
