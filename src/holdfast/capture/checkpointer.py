"""From section values to a committed checkpoint, remembering what the next one can build on."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from holdfast.capture.sections import PlainMemo, plain, typed
from holdfast.encode.appended import Appended
from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.section import SectionEncoder, SectionMemo, decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, NotFound
from holdfast.model.checkpoint import FORMAT_VERSION, Envelope, Marks, SectionRecord, Summary
from holdfast.model.ids import make_checkpoint_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import WORKSPACE
from holdfast.recover.analyse import analyse, summarise
from holdfast.store.lineage import head_of
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from holdfast.capture.files import FileCapture
    from holdfast.capture.redact import RedactingPacker
    from holdfast.encode.chunks import Chunk
    from holdfast.encode.compress import Compressor
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import CheckpointRecord, RunRecord
    from holdfast.store.api import Store
    from holdfast.workspace.spill import SpillingWriter

    Bring: TypeAlias = Callable[[Sequence[SectionRecord]], Iterable[Chunk]]

_MOST_LISTED = 100
_TELLING = ("workflow", "agents", "budget", "graph", "phases", "status")  # what recovery information is worked out from


class Checkpointer:
    """Takes checkpoints of one run for one writer; threads take turns."""

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
        self._attempt: str | None = None
        self._phase: str | None = None
        self._plain = PlainMemo()
        self._last_analysed: tuple[dict[str, Any], RecoveryInfo, Summary] = ({}, RecoveryInfo(), Summary())
        self.fence: int | None = None
        """The token of the lease that this writer holds, if it holds one."""
        self.reload()

    def reload(self, *, rewinding: bool = False) -> None:
        """Read the run's position again, and forget what was known of the old one."""
        with self._lock:
            self.forget()
            self._values: dict[str, Any] = {}
            self.head: CheckpointRecord | None = None
            self.head_id: str | None = None
            self._seq = 0
            try:
                run = self._store.run(self.run)
            except NotFound:
                return
            self._seq, self.head_id = run.last_seq, run.head
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
                f"{error.detail}, so run {self.run!r} cannot go on from its head: "
                f"`holdfast resume {self.run}`, or hf.recover({self.run!r}), goes back to the newest sound one"
            )
            raise CheckpointCorrupt(advice, error.checkpoint) from error

    def take(
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
        bring: Bring | None = None,
        trusted: Container[str] = (),
    ) -> CheckpointRecord:
        """Commit a checkpoint: given sections and the workspace anew, the others carried over unless dropped.

        With `onto`, that checkpoint is the parent, and what is carried over is carried over from it; "nothing" begins
        a new line. The head that was stays, beside the line. Where that one is of another run, `bring` gives the
        chunks of what is carried over, so that this run holds them, too. `trusted` sections are known to be of their
        type.

        After a failure this writer's position is as before; should an interrupted commit be stored after all, the next
        call finds it and goes on from it.
        """
        with self._lock:
            self._settle_attempt()
            self._phase = phase
            parent = self._parent(onto)
            values = {name: value if name in trusted else typed(name, value) for name, value in sections.items()}
            try:
                dropped = frozenset(drop)
                files = self.files if with_files and WORKSPACE not in dropped else None
                writer = self._writer(files, parent, bring)
                with closing(writer):
                    return self._commit(
                        values,
                        parent,
                        drop=dropped,
                        trigger=trigger,
                        reason=reason,
                        marks=marks,
                        files=files,
                        writer=writer,
                        bring=bring,
                    )
            except BaseException:
                self.forget()
                raise

    def _writer(
        self, files: FileCapture | None, parent: CheckpointRecord | None, bring: Bring | None
    ) -> ChunkWriter | SpillingWriter:
        if bring is not None:
            from holdfast.workspace.spill import SpillingWriter  # noqa: PLC0415 - only forks and files pay for it

            return SpillingWriter(self._compressor)
        return files.writer(self.head or parent, self._compressor) if files else ChunkWriter(self._compressor)

    def _parent(self, onto: CheckpointRecord | Literal["nothing"] | None) -> CheckpointRecord | None:
        """Return what the next checkpoint builds on; what is known of another one is of no use then."""
        if onto is None:
            if self.head is None and self.head_id is not None:
                self._read_head(self._store.run(self.run))  # opened for rewinding: it is damaged, and says so
            return self.head
        parent = None if onto == "nothing" else onto
        if parent is None or parent.envelope.id != self.head_id:
            self.forget()
            self._values = {}
        return parent

    def _settle_attempt(self) -> None:
        """Find out whether a commit that was interrupted is stored after all: then this writer stands on it."""
        attempt = self._attempt
        if attempt is None:
            return
        try:
            is_stored = self._store.run(self.run).head == attempt
        except NotFound:
            is_stored = False
        self._attempt = None  # only now: a store that did not answer is asked again by the next call
        if is_stored:
            self.reload()

    def forget(self) -> None:
        """Drop what was known of the last checkpoint's sections: the next one is whole again."""
        self._memos: dict[str, SectionMemo] = {}
        if self._redactor is not None:
            self._redactor.forget()

    def _commit(
        self,
        values: dict[str, Any],
        parent: CheckpointRecord | None,
        *,
        drop: frozenset[str],
        trigger: str,
        reason: str,
        marks: Marks,
        files: FileCapture | None,
        writer: ChunkWriter | SpillingWriter,
        bring: Bring | None,
    ) -> CheckpointRecord:
        roots = {} if parent is None else {record.name: record for record in parent.envelope.sections}
        self._plain.begin()
        encoder = SectionEncoder(self._redactor or self._packer, writer, max_bytes=self._max_section_bytes)
        for name, value in values.items():
            roots[name] = self._encoded(name, plain(name, value, self._plain), encoder)
        if files is not None:
            roots[WORKSPACE] = files.capture(self.head or parent, writer)
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
        clean = self._redactor.text if self._redactor is not None else str
        telling = {name: self._value(name, values, roots[name]) for name in _TELLING if name in roots}
        recovery, summary = self._analysed(telling, clean)
        phase = clean(self._phase) if self._phase is not None else summary.phase
        summary = msgspec.structs.replace(summary, phase=phase, steps=_steps(values, parent))
        now = self._clock()
        envelope = Envelope(
            format_version=FORMAT_VERSION,
            id=make_checkpoint_id(int(now * 1000), self._entropy(10)),
            run=self.run,
            seq=self._seq + 1,
            parent=parent.envelope.id if parent else None,
            parent_checksum=parent.checksum if parent else None,
            trigger=trigger,
            reason=clean(reason),
            created_at=datetime.fromtimestamp(now, UTC),
            program_version=__version__,
            sections=tuple(roots.values()),
            stored_bytes=stored_bytes,
            codec=self._compressor.codec.name.lower(),
            recovery=recovery,
            summary=summary,
        )
        if marks.label is not None:
            marks = msgspec.structs.replace(marks, label=clean(marks.label))
        self._attempt = envelope.id
        record = self._store.commit(
            envelope,
            marks,
            writer.chunks.values(),
            expected_head=self.head_id,
            fence=self.fence,
        )
        self.head, self._seq, self._values, self._attempt = record, envelope.seq, telling, None
        self.head_id = envelope.id
        return record

    def _analysed(self, telling: dict[str, Any], clean: Callable[[str], str]) -> tuple[RecoveryInfo, Summary]:
        """Return what the sections say of going on and in lists, without secrets; anew only if one of them is."""
        last, recovery, summary = self._last_analysed
        if last.keys() != telling.keys() or any(last[name] is not value for name, value in telling.items()):
            recovery, summary = _cleaned(analyse(telling), clean), _cleaned(summarise(telling), clean)
            self._last_analysed = dict(telling), recovery, summary
        return recovery, summary

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


def _steps(values: dict[str, Any], parent: CheckpointRecord | None) -> int:
    """Count the records of all steps by their log, which is carried over when nothing was added."""
    logs = [log for name, log in values.items() if isinstance(log, Appended) and name.split(".")[0] == "steps"]
    before = parent.envelope.summary.steps if parent else 0
    return max((log.before + len(log) for log in logs), default=before)


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
