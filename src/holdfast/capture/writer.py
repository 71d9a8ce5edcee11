"""The writer of a run: the one path by which records and checkpoints reach the store.

A checkpoint and the journal record of what caused it are one commit; without a checkpoint the record alone is. Several
of them may be staged, each on the one before, and committed at once. What the next commit can build on is remembered,
and only after the store has taken this one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, nullcontext
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from holdfast.capture.sections import PlainMemo, plain, typed
from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.section import SectionEncoder, SectionMemo, decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, LeaseHeld, NotFound
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Envelope, Marks, SectionRecord, Summary
from holdfast.model.ids import make_checkpoint_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.analyse import TELLING, analyse, summarise
from holdfast.store.captures import Capture, announced
from holdfast.store.commit import IN_CHUNKS, CheckpointDraft, Commit, Draft
from holdfast.store.envelopes import seal
from holdfast.store.lineage import head_of
from holdfast.store.owner import end_dead_lease
from holdfast.store.queries import cleaned_attributes
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.capture.files import FileCapture
    from holdfast.capture.redact import RedactingPacker
    from holdfast.encode.chunks import Chunk
    from holdfast.encode.compress import Compressor
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import RunRecord
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow
    from holdfast.workspace.spill import SpillingWriter

    Bring: TypeAlias = Callable[[Sequence[SectionRecord]], Iterable[Chunk]]

_MOST_LISTED = 100
_LARGEST_INLINE = 64 * 1024
_LEAF = 256 * 1024


class RecordDraft(NamedTuple):
    """A journal record on its way: what happened, to which call or log."""

    kind: str
    path: str
    body: bytes
    key: str | None = None


class _Chunks(Collection["Chunk"]):
    """The chunks of all that is staged, one collection after another."""

    def __init__(self) -> None:
        self.parts: list[Collection[Chunk]] = []

    def __iter__(self) -> Iterator[Chunk]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __contains__(self, chunk: object) -> bool:
        return any(chunk in part for part in self.parts)


class _Staged:
    """Records and checkpoints that are encoded and wait for one commit."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.checkpoints: list[CheckpointDraft] = []
        self.chunks = _Chunks()
        self.held: ExitStack | None = None
        """What is let go after the commit: files that chunks wait in, captures that are announced."""
        self.back_to: tuple[tuple[int, int], ...] | None = None
        self.consumed: int | None = None
        self.run_changes: dict[str, Any] = {}
        self.at: datetime | None = None


class Writer:
    """Writes to one line of a run; threads take turns."""

    def __init__(
        self,
        run: str,
        store: Store,
        packer: Packer,
        compressor: Compressor,
        *,
        max_section_bytes: int,
        clock: Callable[[], float],
        entropy: Callable[[int], bytes],
        redactor: RedactingPacker | None = None,
        files: FileCapture | None = None,
        rewinding: bool = False,
    ) -> None:
        self.run = run
        self.files = files
        self._store = store
        self._packer = packer
        self._redactor = redactor
        self._compressor = compressor
        self._max_section_bytes = max_section_bytes
        self._clock = clock
        self._entropy = entropy
        self._rewinding = rewinding
        self._lock = threading.RLock()
        self._is_unsettled = False
        self._attempt: str | None = None
        self._staged: _Staged | None = None
        self._phase: str | None = None
        self._plain = PlainMemo()
        self._last_analysed: tuple[dict[str, Any], RecoveryInfo, Summary] = ({}, RecoveryInfo(), Summary())
        self.about: Mapping[str, Any] = {}
        """What the run's row gets with the next commit: the caller's key and attributes."""
        self.fence: int | None = None
        """The token of the lease that this writer holds, if it holds one."""
        self.reload()

    def reload(self, *, rewinding: bool = False) -> None:
        """Read the run's position again, and forget what was known of the old one."""
        with self._lock:
            self._is_lost = True  # until the store has answered: if it does not, the next commit asks again
            self._read_position(rewinding=rewinding)
            self._is_lost = False

    def _read_position(self, *, rewinding: bool) -> None:
        self.forget()
        self._values: dict[str, Any] = {}
        self.head: CheckpointRecord | None = None
        self.head_id: str | None = None
        self._seq = self.number = 0
        self.line: LineRow | None = None
        try:
            run = self._store.run(self.run)
        except NotFound:
            return
        self._seq, self.head_id, self.number = run.last_seq, run.head, run.number
        if run.head is None:
            return
        try:
            self.head = self._read_head(run)
        except CheckpointCorrupt:
            if not self._rewinding and not rewinding:
                raise

    def _read_head(self, run: RunRecord) -> CheckpointRecord | None:
        try:
            return head_of(self._store, run)
        except CheckpointCorrupt as error:
            advice = (
                f"{error.detail}, so run {self.run!r} cannot continue from its head: "
                f"`holdfast resume {self.run}`, or hf.recover({self.run!r}), goes back to the newest sound one"
            )
            raise CheckpointCorrupt(advice, error.checkpoint) from error

    def append(
        self, *records: RecordDraft, consumed: int | None = None, run_changes: Mapping[str, Any] | None = None
    ) -> None:
        """Add records to the journal in one commit, after all that is staged: durable when this returns.

        After a failure this writer's position is as before; should they be stored after all, the next call finds them
        and continues after them.
        """
        with self._lock:
            self.stage_records(records, consumed=consumed, run_changes=run_changes)
            self.flush()

    def stage_records(
        self,
        records: Sequence[RecordDraft],
        *,
        consumed: int | None = None,
        run_changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Encode records for the next commit."""
        with self._lock:
            if self._staged is None:
                self._settle()
            chunks, now = ChunkWriter(self._compressor), self._clock()
            drafts = [_draft(record, now, chunks) for record in records]
            staged = self._stage(drafts, consumed, run_changes)
            staged.at = datetime.fromtimestamp(now, UTC)
            if chunks.chunks:
                staged.chunks.parts.append(chunks.chunks.values())

    def _stage(self, drafts: Iterable[Draft], consumed: int | None, run_changes: Mapping[str, Any] | None) -> _Staged:
        staged = self._staged = self._staged or _Staged()
        staged.drafts += drafts
        staged.consumed = staged.consumed if consumed is None else consumed
        staged.run_changes |= run_changes or {}
        return staged

    @property
    def is_staged(self) -> bool:
        """Whether something waits for the next commit."""
        return self._staged is not None

    @property
    def tip(self) -> CheckpointRecord | None:
        """The checkpoint that the next one builds on: the last that is staged, as it will be, else the head."""
        if self._staged is None or not self._staged.checkpoints:
            return self.head
        last = self._staged.checkpoints[-1]
        return CheckpointRecord(last.envelope, seal(last.envelope)[1], last.marks, self.number + (last.records or 0))

    def unstage(self) -> None:
        """Drop what is staged: none of it will be stored."""
        with self._lock:
            staged, self._staged = self._staged, None
            if staged is not None:
                if staged.held is not None:
                    staged.held.close()
                self.forget()
                self._values = {}

    def flush(self) -> tuple[CheckpointRecord, ...]:
        """Commit what is staged and return its checkpoints; after a failure none of it is there, nor staged."""
        with self._lock:
            staged, self._staged = self._staged, None
            if staged is None:
                return ()
            commit = Commit(
                run=self.run,
                fence=self.fence,
                after=self.number,
                records=staged.drafts,
                checkpoints=staged.checkpoints,
                expected_head=self.head_id if staged.checkpoints else None,
                chunks=staged.chunks,
                back_to=staged.back_to,
                consumed=staged.consumed,
                run_changes=staged.run_changes,
                at=staged.at,
            )
            try:
                with staged.held or nullcontext():
                    return self._write(commit)
            except BaseException:
                if staged.checkpoints:
                    self.forget()
                    self._values = {}
                raise

    def _write(self, commit: Commit) -> tuple[CheckpointRecord, ...]:
        """Commit; memory follows the store, not the other way round."""
        self._is_unsettled, self._attempt = True, commit.checkpoints[-1].envelope.id if commit.checkpoints else None
        if self.about:
            commit = msgspec.structs.replace(commit, run_changes={**self.about, **commit.run_changes})
        try:
            committed = self._store.write(commit)
        except LeaseHeld as held:
            if not end_dead_lease(self._store, self.run, held.owner):
                raise
            committed = self._store.write(commit)
        self._is_unsettled, self.about = False, {}
        self.number, self.line = committed.line.number, committed.line
        if committed.checkpoint is not None:
            self.head, self.head_id = committed.checkpoint, committed.checkpoint.envelope.id
            self._seq = committed.checkpoint.envelope.seq
        return committed.checkpoints

    def take(self, sections: Mapping[str, Any], **given: Any) -> CheckpointRecord:
        """Commit a checkpoint, after all that is staged; `stage_checkpoint` says what may be given.

        After a failure this writer's position is as before; should an interrupted commit be stored after all, the next
        call finds it and continues from it.
        """
        with self._lock:
            self.stage_checkpoint(sections, **given)
            return self.flush()[-1]

    def stage_checkpoint(
        self,
        sections: Mapping[str, Any],
        *,
        drop: Iterable[str] = (),
        trigger: str,
        reason: str,
        marks: Marks,
        with_files: bool = True,
        phase: str | None = None,
        onto: CheckpointRecord | Literal["nothing"] | None = None,
        ranges: tuple[tuple[int, int], ...] | None = None,
        bring: Bring | None = None,
        trusted: Container[str] = (),
        records: Sequence[RecordDraft] = (),
        steps: int = 0,
        consumed: int | None = None,
        run_changes: Mapping[str, Any] | None = None,
        key: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Encode a checkpoint for the next commit: given sections, the workspace, the others carried over.

        What is neither given nor dropped comes from the checkpoint before, staged or stored; with `onto`, which then is
        the parent, from that one; "nothing" begins a new line. The head that was stays, beside the line; `ranges` are
        the journal numbers that led there. Where `onto` is of another run, `bring` gives the chunks of what is carried
        over, so that this run holds them, too. `trusted` sections are known to be of their type. `records` are what the
        journal gets with it, `steps` how many records of calls there are then.
        """
        with self._lock:
            if onto is not None:
                self.flush()
            if self._staged is None:
                self._settle()
            self._phase = phase
            parent = self._parent(onto)
            values = {name: value if name in trusted else typed(name, value) for name, value in sections.items()}
            try:
                dropped = frozenset(drop)
                files = self.files if with_files and WORKSPACE not in dropped else None
                with ExitStack() as held:
                    writer = held.enter_context(closing(self._writer(files, parent, bring)))
                    if files is not None:
                        held.enter_context(self._announced(trigger, reason))
                    envelope, drafts = self._encode(
                        values,
                        parent,
                        drop=dropped,
                        trigger=trigger,
                        reason=reason,
                        files=files,
                        writer=writer,
                        bring=bring,
                        records=records,
                        steps=steps,
                    )
                    if onto is not None:  # how the run stands is what is gone back to
                        run_changes = {**(run_changes or {}), "status": envelope.summary.status}
                    staged = self._stage(drafts, consumed, run_changes)
                    staged.held = staged.held or ExitStack()
                    staged.held.enter_context(held.pop_all())
                if marks.label is not None:
                    marks = msgspec.structs.replace(marks, label=self._clean(marks.label))
                key = self._clean(key) if key is not None else None
                told = cleaned_attributes(attributes or {}, self._clean)
                staged.checkpoints.append(CheckpointDraft(envelope, marks, key, told, len(staged.drafts)))
                staged.chunks.parts.append(writer.chunks.values())
                staged.at = envelope.created_at
                if onto is not None and bring is None:
                    staged.back_to = ranges if ranges is not None else parent.ranges if parent else ()
            except BaseException:
                self.forget()
                raise

    def _clean(self, text: str) -> str:
        return self._redactor.text(text) if self._redactor is not None else text

    def _announced(self, trigger: str, reason: str) -> AbstractContextManager[None]:
        """Show a capture of files that takes long in the store, so that one which is cut off is seen."""
        now = self._clock()
        capture = Capture(
            id=make_checkpoint_id(int(now * 1000), os.urandom(10)), run=self.run, seq=self._next_seq, trigger=trigger,
            reason=self._clean(reason), begun_at=datetime.fromtimestamp(now, UTC),
        )  # fmt: skip
        return announced(self._store, capture)

    def _writer(
        self, files: FileCapture | None, parent: CheckpointRecord | None, bring: Bring | None
    ) -> ChunkWriter | SpillingWriter:
        if bring is not None:
            from holdfast.workspace.spill import SpillingWriter  # noqa: PLC0415 - only forks and files pay for it

            return SpillingWriter(self._compressor)
        return files.writer(self.tip or parent, self._compressor) if files else ChunkWriter(self._compressor)

    @property
    def _next_seq(self) -> int:
        return self._seq + (len(self._staged.checkpoints) if self._staged is not None else 0) + 1

    def _parent(self, onto: CheckpointRecord | Literal["nothing"] | None) -> CheckpointRecord | None:
        """Return what the next checkpoint builds on; what is known of another one is of no use then."""
        if onto is None:
            if self.head is None and self.head_id is not None:
                self._read_head(self._store.run(self.run))  # opened for rewinding: it is damaged, and says so
            return self.tip
        parent = None if onto == "nothing" else onto
        if parent is None or parent.envelope.id != self.head_id:
            self.forget()
            self._values = {}
        return parent

    def _settle(self) -> None:
        """Find out whether a commit that broke off is stored after all: then this writer stands on it."""
        if self._is_lost:
            self.reload()
        if not self._is_unsettled:
            return
        is_made = self._store.settle(self.run) is not None
        if not is_made and self._attempt is not None:
            try:
                is_made = self._store.run(self.run).head == self._attempt
            except NotFound:
                is_made = False
        self._is_unsettled = False  # only now: a store that did not answer is asked again by the next call
        if is_made:
            self.reload()

    def forget(self) -> None:
        """Drop what was known of the last checkpoint's sections: the next one is whole again."""
        self._memos: dict[str, SectionMemo] = {}
        if self._redactor is not None:
            self._redactor.forget()

    def _encode(
        self,
        values: dict[str, Any],
        parent: CheckpointRecord | None,
        *,
        drop: frozenset[str],
        trigger: str,
        reason: str,
        files: FileCapture | None,
        writer: ChunkWriter | SpillingWriter,
        bring: Bring | None,
        records: Sequence[RecordDraft],
        steps: int,
    ) -> tuple[Envelope, list[Draft]]:
        """Put what changed into the writer, and return the checkpoint and its records."""
        roots = {} if parent is None else {record.name: record for record in parent.envelope.sections}
        self._plain.begin()
        encoder = SectionEncoder(self._redactor or self._packer, writer, max_bytes=self._max_section_bytes)
        for name, value in values.items():
            roots[name] = self._encoded(name, plain(name, value, self._plain), encoder)
        if files is not None:
            roots[WORKSPACE] = files.capture(self.tip or parent, writer)
        drafts = [_draft(record, self._clock(), writer) for record in records]
        writer.finish()
        for name in drop:
            roots.pop(name, None)
            self._memos.pop(name, None)
        stored_bytes = writer.stored_bytes
        if bring is not None:
            carried = cast("SpillingWriter", writer).chunks
            for chunk in bring([record for name, record in roots.items() if name not in values]):
                if chunk.id not in carried:
                    carried.add(chunk)
        telling = {name: self._value(name, values, roots[name]) for name in TELLING if name in roots}
        recovery, summary = self._analysed(telling)
        phase = self._clean(self._phase) if self._phase is not None else summary.phase
        summary = msgspec.structs.replace(summary, phase=phase, steps=steps)
        now = self._clock()
        if self._staged is not None and self._staged.checkpoints:
            # Names that people read have milliseconds in them: those of one commit must differ, too.
            last = self._staged.checkpoints[-1].envelope.created_at.timestamp()
            now = max(now, (int(last * 1000) + 1) / 1000)
        envelope = Envelope(
            format_version=FORMAT_VERSION,
            id=make_checkpoint_id(int(now * 1000), self._entropy(10)),
            run=self.run,
            seq=self._next_seq,
            parent=parent.envelope.id if parent else None,
            parent_checksum=parent.checksum if parent else None,
            trigger=trigger,
            reason=self._clean(reason),
            created_at=datetime.fromtimestamp(now, UTC),
            program_version=__version__,
            sections=tuple(roots.values()),
            stored_bytes=stored_bytes,
            codec=self._compressor.codec.name.lower(),
            recovery=recovery,
            summary=summary,
        )
        self._values = telling
        return envelope, drafts

    def _analysed(self, telling: dict[str, Any]) -> tuple[RecoveryInfo, Summary]:
        """Return what the sections say of resuming and in lists, without secrets; kept while none of them changes."""
        last, recovery, summary = self._last_analysed
        if last.keys() != telling.keys() or any(last[name] is not value for name, value in telling.items()):
            recovery, summary = _cleaned(analyse(telling), self._clean), _cleaned(summarise(telling), self._clean)
            summary = msgspec.structs.replace(summary, progress=self._shown(telling.get("progress")))
            self._last_analysed = dict(telling), recovery, summary
        return recovery, summary

    def _shown(self, progress: Any) -> str:
        """Return what the program says of its progress, without secrets, as a list can show it."""
        detail = getattr(typed("progress", progress), "detail", None) if progress is not None else None
        if not detail:
            return ""
        if self._redactor is not None:
            self._redactor.begin("progress")
            detail = self._packer.unpack(self._redactor.pack(detail, "progress"), "progress")
        try:
            text = msgspec.json.encode(detail, enc_hook=str).decode()
        except (TypeError, ValueError):
            return ""
        return text if len(text) <= _LONGEST_SHOWN else ""

    def _encoded(self, name: str, value: Any, encoder: SectionEncoder) -> SectionRecord:
        """Encode one section; what redaction took out of it is listed beside it."""
        memo = self._memos.setdefault(name, SectionMemo())
        if self._redactor is None:
            root = encoder.encode(name, value, memo)
            return SectionRecord(name, root.kind, root.id, root.size)
        self._redactor.begin(name)
        root = encoder.encode(name, value, memo)
        found = self._redactor.end(memo)
        return SectionRecord(name, root.kind, root.id, root.size, tuple(found[:_MOST_LISTED]), len(found))

    def _value(self, name: str, values: dict[str, Any], record: SectionRecord) -> Any:
        """Return a typed section's value, read back once if it was carried over from before this writer."""
        if name in values:
            return values[name]
        if name not in self._values:
            root = Ref(record.kind, record.size, record.root)
            reader = ChunkReader(self._store.fetch)
            try:
                stored = decode_section(name, root, self._packer, reader, max_bytes=self._max_section_bytes)
            except ChunkCorrupt as error:
                head = self.head.envelope.id if self.head else None
                raise ChunkCorrupt(error.detail, error.chunk, head, name) from error
            self._values[name] = typed(name, stored)
        return self._values[name]


def _draft(record: RecordDraft, at: float, chunks: ChunkWriter | SpillingWriter) -> Draft:
    """Return a record as the store takes it: what is too large for a row goes into chunks."""
    if len(record.body) <= _LARGEST_INLINE:
        return Draft(record.kind, record.path, at, record.body, record.key)
    size = len(record.body)
    parts = tuple(chunks.leaf(record.body[start : start + _LEAF]).id for start in range(0, size, _LEAF))
    return Draft(record.kind, record.path, at, b"", IN_CHUNKS, parts)


_LONGEST_SHOWN = 4096  # of a summary: every list reads it
_S = TypeVar("_S", RecoveryInfo, Summary)


def _cleaned(record: _S, clean: Callable[[str], str]) -> _S:
    """Return what lists show of a checkpoint with its texts redacted like the rest."""

    def of(value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, tuple):
            return tuple(map(of, value))
        return {of(key): item for key, item in value.items()} if isinstance(value, dict) else value

    return msgspec.structs.replace(
        record, **{name: of(value) for name, value in msgspec.structs.asdict(record).items()}
    )
