"""A commit: what its writer asks for, and the batch of guarded rows that carries it out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.encode.chunks import Chunk
from holdfast.errors import HeadMoved, NotFound
from holdfast.model.checkpoint import CheckpointRecord, Envelope, Marks
from holdfast.store import envelopes
from holdfast.store.line_reader import KnownLine
from holdfast.store.medium import Batch
from holdfast.store.ranges import are_ordered, extended
from holdfast.store.tables import (
    ACCOUNT,
    CHECKPOINT,
    LEASE,
    LINE,
    MAIN,
    RECORD,
    RUN,
    AccountRow,
    CheckpointRow,
    LineRow,
    Record,
    RunRow,
    Scalar,
)

if TYPE_CHECKING:
    from holdfast.store.codec import RowCodec
    from holdfast.store.lease import Leases
    from holdfast.store.line_reader import LineReader
    from holdfast.store.ranges import Ranges

IN_CHUNKS = "in chunks"
"""The key of records whose body is kept in chunks, so that a sweep finds them."""
WENT_BACK = "went_back"
"""Kind and key of the first record of a segment; its body holds the numbers that the line went back to."""
MOVED_EVERY_S = 5.0  # how exact the order of runs by their last move is; finer would cost a row and an index a commit


class Draft(NamedTuple):
    """A journal record that has no number yet."""

    kind: str
    path: str
    at: float
    body: bytes = b""
    key: str | None = None
    chunks: tuple[bytes, ...] = ()


class CheckpointDraft(NamedTuple):
    """A checkpoint that is not stored yet."""

    envelope: Envelope
    marks: Marks = Marks()
    key: str | None = None
    attributes: Mapping[str, Scalar] | None = None
    records: int | None = None
    """How many of its commit's records it comes after; None: all of them."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """All that one commit does to a line: records, checkpoints, accounts, the inbox cursor; all of it or nothing."""

    run: str
    line: str = MAIN
    fence: int | None = None
    after: int | None = None
    """The journal number that the writer stands at; None appends wherever the line is."""
    records: Sequence[Draft] = ()
    checkpoints: Sequence[CheckpointDraft] = ()
    """Oldest first; each but the first is taken on the one before it."""
    expected_head: str | None = None
    chunks: Collection[Chunk] = ()
    back_to: tuple[tuple[int, int], ...] | None = None
    """Go back: these numbers are the line's from now on; what else there is is left, and stays readable."""
    accounts: Sequence[tuple[AccountRow | None, AccountRow]] = ()
    """Budgets: the row as the writer knows it, and as it is from now on."""
    consumed: int | None = None
    run_changes: Mapping[str, Any] = {}
    """Fields of the run's row that change: status, project, key, attributes, forked_from."""
    new_run: Mapping[str, Any] = {}
    """Fields of the run's row where this commit begins the run: it may have been deleted since its writer looked."""
    at: datetime | None = None


class Committed(NamedTuple):
    """What a commit made."""

    line: LineRow
    records: tuple[Record, ...]
    checkpoints: tuple[CheckpointRecord, ...]

    @property
    def checkpoint(self) -> CheckpointRecord | None:
        """The last of its checkpoints, which is the head now."""
        return self.checkpoints[-1] if self.checkpoints else None


class Prepared(NamedTuple):
    """A commit that is ready to be applied, and what is known once it is."""

    batch: Batch
    result: Committed
    after: KnownLine


class ClosedChunks:
    """Chunks that are encrypted one by one as they are taken out, so that a large commit stays within its memory."""

    def __init__(self, chunks: Collection[Chunk], codec: RowCodec) -> None:
        self._chunks = chunks
        self._codec = codec

    def __iter__(self) -> Iterator[Chunk]:
        return map(self._codec.close_chunk, self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, chunk: object) -> bool:
        return any(one == chunk for one in self)


def prepare(commit: Commit, known: KnownLine, lines: LineReader, leases: Leases) -> Prepared:
    """Return the batch that carries a commit out on a line as it is known; Conflict if it does not fit."""
    first = commit.checkpoints[0].envelope if commit.checkpoints else None
    now = commit.at or (commit.checkpoints[-1].envelope.created_at if commit.checkpoints else datetime.now(UTC))
    codec = lines.codec
    batch = Batch(chunks=ClosedChunks(commit.chunks, codec))
    if commit.expected_head is not None and known.line is None:
        raise HeadMoved(commit.run, commit.expected_head, None)
    run = known.run or RunRow(
        id=commit.run, n=lines.new_number(), created_at=now, updated_at=now,
        forked_from=first.parent if first is not None else None,
    )  # fmt: skip
    line = known.line or _new_line(commit, now, lines, leases)
    if known.run is None and commit.line != MAIN:
        _begin_main(batch, commit.run, now, lines)
    if known.line is None:
        batch.guards.append((LEASE, (commit.run, commit.line), known.lease_seal))
    else:
        leases.check_fence(commit.run, commit.line, line.fence, commit.fence)
    batch.run = run.n
    if commit.after is not None and commit.after != line.number:
        raise HeadMoved(commit.run, f"{commit.run}#{commit.after}", f"{commit.run}#{line.number}")
    ranges = line.ranges if commit.back_to is None else _checked_ranges(commit.back_to, line)
    began = _began(commit, line, ranges, now)
    records, chain = _add_records(batch, [*began, *commit.records], line, codec)
    reached = [(line.number, ranges)]
    chunked = line.chunked
    for record in records:
        ranges = extended(ranges, record.number)
        reached.append((record.number, ranges))
        chunked = record.number if record.chunks else chunked
    number = line.number + len(records)
    made = _add_checkpoints(batch, commit, codec, line, reached[len(began) :]) if commit.checkpoints else []
    last = made[-1].envelope if made else None
    changed = _changed_run(run, known, commit, now)
    moved = msgspec.structs.replace(
        line,
        number=number,
        chain=chain,
        ranges=ranges,
        head=last.id if last else line.head,
        last_seq=last.seq if last else line.last_seq,
        checkpoints=line.checkpoints + len(made),
        updated_at=now,
        consumed=line.consumed if commit.consumed is None else max(line.consumed, commit.consumed),
        chunked=chunked,
        run_version=(changed or run).version,
    )
    line_row = codec.close(LINE, moved)
    batch.guards.append((LINE, (commit.run, commit.line), known.line_seal))
    batch.puts.append((LINE, line_row))
    run_seal = known.run_seal
    if changed is not None:
        run_row = codec.close(RUN, changed)
        batch.guards.append((RUN, (commit.run,), known.run_seal))
        batch.puts.append((RUN, run_row))
        run, run_seal = changed, run_row[-1]
    _put_accounts(batch, commit, codec)
    return Prepared(
        batch,
        Committed(moved, tuple(records[len(began) :]), tuple(made)),
        KnownLine(run, run_seal, moved, line_row[-1]),
    )


def _add_records(batch: Batch, drafts: Sequence[Draft], line: LineRow, codec: RowCodec) -> tuple[list[Record], bytes]:
    """Add records to a batch, each after the one before it; return them and the seal of the last."""
    records: list[Record] = []
    chain = line.chain
    for number, draft in enumerate(drafts, line.number + 1):
        record = Record(
            line=line.n, number=number, prev=chain, kind=draft.kind, path=draft.path, at=draft.at, key=draft.key,
            body=draft.body, chunks=draft.chunks,
        )  # fmt: skip
        row = codec.close(RECORD, record)
        chain = row[-1]
        batch.inserts.append((RECORD, row))
        records.append(record)
    return records, chain


def _add_checkpoints(
    batch: Batch, commit: Commit, codec: RowCodec, line: LineRow, reached: Sequence[tuple[int, Ranges]]
) -> list[CheckpointRecord]:
    """Let a batch insert the checkpoints of a commit; `reached` is where the journal stands after so many records."""
    made: list[CheckpointRecord] = []
    head, last_seq, expected = line.head, line.last_seq, commit.expected_head
    for new in commit.checkpoints:
        envelope = new.envelope
        if head != expected or last_seq != envelope.seq - 1 or (made and envelope.parent != head):
            raise HeadMoved(commit.run, expected, head)
        data, checksum = envelopes.seal(envelope)
        row = _checkpoint_row(commit, new, data, *reached[-1 if new.records is None else new.records])
        made.append(
            CheckpointRecord(
                envelope, checksum, new.marks, row.number, row.ranges, new.key, row.attributes, commit.line
            )
        )
        batch.inserts.append((CHECKPOINT, codec.close(CHECKPOINT, row)))
        if codec.mode != "encrypt":
            batch.shown.append(((row.run, row.line, row.seq), envelope))
        head = expected = envelope.id
        last_seq = envelope.seq
    return made


def _put_accounts(batch: Batch, commit: Commit, codec: RowCodec) -> None:
    for was, account in commit.accounts:
        seal = None if was is None else codec.close(ACCOUNT, was)[-1]
        batch.guards.append((ACCOUNT, (account.run, account.name), seal))
        batch.puts.append((ACCOUNT, codec.close(ACCOUNT, account)))


def _begin_main(batch: Batch, run: str, now: datetime, lines: LineReader) -> None:
    """Begin the main line of a run whose first commit is on another: lists, deletion and sweeping start there."""
    main = LineRow(run=run, name=MAIN, n=lines.new_number(), created_at=now, updated_at=now)
    batch.guards.append((LINE, (run, MAIN), None))
    batch.puts.append((LINE, lines.codec.close(LINE, main)))


def _new_line(commit: Commit, now: datetime, lines: LineReader, leases: Leases) -> LineRow:
    with lines.medium.read() as reader:
        lease = leases.stored(reader, commit.run, commit.line)
    fence = leases.first_fence(lease, commit.run, commit.fence)
    return LineRow(run=commit.run, name=commit.line, n=lines.new_number(), created_at=now, updated_at=now, fence=fence)


def _changed_run(run: RunRow, known: KnownLine, commit: Commit, now: datetime) -> RunRow | None:
    """Return the run's row as it is from now on, None if it stays as it is."""
    wanted = commit.run_changes
    if commit.accounts:
        digests = {account.name: account.digest for _, account in commit.accounts}
        wanted = {**wanted, "accounts": tuple(sorted({**dict(run.accounts), **digests}.items()))}
    if known.run is None:
        return msgspec.structs.replace(run, **{**commit.new_run, **wanted})
    changes = wanted and {name: value for name, value in wanted.items() if getattr(run, name) != value}
    if changes or abs((now - run.updated_at).total_seconds()) > MOVED_EVERY_S:
        return msgspec.structs.replace(run, updated_at=now, version=run.version + 1, **changes)
    return None


def _checkpoint_row(commit: Commit, new: CheckpointDraft, data: bytes, number: int, ranges: Ranges) -> CheckpointRow:
    envelope = new.envelope
    return CheckpointRow(
        run=commit.run, line=commit.line, seq=envelope.seq, id=envelope.id, envelope=data, trigger=envelope.trigger,
        phase=envelope.summary.phase, created_at=envelope.created_at.timestamp(), marks=new.marks, number=number,
        key=new.key, attributes=dict(new.attributes or {}), ranges=ranges,
    )  # fmt: skip


def _began(commit: Commit, line: LineRow, ranges: Ranges, now: datetime) -> list[Draft]:
    """Return the first record of a segment if the line is left: where each record and checkpoint came from is known.

    It is left for another checkpoint, too, where nothing was recorded between that one and the head.
    """
    onto_another = bool(commit.checkpoints) and commit.checkpoints[0].envelope.parent != line.head
    if commit.back_to is None or (ranges == line.ranges and not onto_another):
        return []
    return [Draft(WENT_BACK, "", now.timestamp(), msgspec.msgpack.encode(ranges), WENT_BACK)]


def _checked_ranges(ranges: Ranges, line: LineRow) -> Ranges:
    """Return numbers to go back to; NotFound if the line never had them."""
    if not are_ordered(ranges, line.number):
        raise NotFound("journal position", f"{line.run}#{ranges[-1][1]}")
    return ranges
