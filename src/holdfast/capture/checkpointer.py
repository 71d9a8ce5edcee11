"""From section values to a committed checkpoint, remembering what the next one can build on."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.capture.sections import plain, typed
from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.section import SectionEncoder, SectionMemo, decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import CheckpointCorrupt, ChunkCorrupt, NotFound
from holdfast.model.checkpoint import FORMAT_VERSION, Envelope, Marks, SectionRecord, Summary
from holdfast.model.ids import make_checkpoint_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.model.sections import WORKSPACE
from holdfast.recover.analyse import analyse, summarise
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.capture.files import FileCapture
    from holdfast.capture.redact import RedactingPacker
    from holdfast.encode.compress import Compressor
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.api import Store
    from holdfast.workspace.spill import SpillingWriter

_MOST_LISTED = 100
_TELLING = ("workflow", "agents", "budget")  # what recovery information and summary are worked out from


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
        self._lock = threading.RLock()
        self._attempt: str | None = None
        self._phase: str | None = None
        self.reload()

    def reload(self) -> None:
        """Read the run's position again, and forget what was known of the old one."""
        with self._lock:
            self._forget()
            self._values: dict[str, Any] = {}
            self.head: CheckpointRecord | None = None
            self._seq = 0
            try:
                run = self._store.run(self.run)
            except NotFound:
                return
            self._seq = run.last_seq
            if run.head is None:
                return
            try:
                self.head = self._store.checkpoint(run.head)
            except NotFound:
                raise CheckpointCorrupt(f"it is the head of run {self.run!a} and is missing", run.head) from None
            except CheckpointCorrupt as error:
                advice = f"{error.detail}, and it is the head of run {self.run!a}: hf.delete(id) steps before it"
                raise CheckpointCorrupt(advice, run.head) from error

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
    ) -> CheckpointRecord:
        """Commit a checkpoint: given sections and the workspace anew, the others carried over unless dropped.

        After a failure this writer's position is as before; should an interrupted commit be stored after all, the next
        call finds it and goes on from it.
        """
        with self._lock:
            self._settle_attempt()
            self._phase = phase
            values = {name: typed(name, value) for name, value in sections.items()}
            try:
                dropped = frozenset(drop)
                files = self.files if with_files and WORKSPACE not in dropped else None
                writer = files.writer(self.head, self._compressor) if files else ChunkWriter(self._compressor)
                with closing(writer):
                    return self._commit(
                        values, drop=dropped, trigger=trigger, reason=reason, marks=marks, files=files, writer=writer
                    )
            except BaseException:
                self._forget()
                raise

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

    def _forget(self) -> None:
        """Drop what was known of the last checkpoint's sections: the next one is whole again."""
        self._memos: dict[str, SectionMemo] = {}
        if self._redactor is not None:
            self._redactor.forget()

    def _commit(
        self,
        values: dict[str, Any],
        *,
        drop: frozenset[str],
        trigger: str,
        reason: str,
        marks: Marks,
        files: FileCapture | None,
        writer: ChunkWriter | SpillingWriter,
    ) -> CheckpointRecord:
        parent = self.head
        roots = {} if parent is None else {record.name: record for record in parent.envelope.sections}
        encoder = SectionEncoder(self._redactor or self._packer, writer, max_bytes=self._max_section_bytes)
        for name, value in values.items():
            roots[name] = self._encoded(name, plain(name, value), encoder)
        if files is not None:
            roots[WORKSPACE] = files.capture(parent, writer)
        writer.finish()
        for name in drop:
            roots.pop(name, None)
            self._memos.pop(name, None)
        clean = self._redactor.text if self._redactor is not None else str
        telling = {name: self._value(name, values, roots[name]) for name in _TELLING if name in roots}
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
            stored_bytes=writer.stored_bytes,
            codec=self._compressor.codec.name.lower(),
            recovery=_cleaned(analyse(telling.get("workflow"), telling.get("agents") or ()), clean),
            summary=_cleaned(msgspec.structs.replace(summarise(telling), phase=self._phase), clean),
        )
        if marks.label is not None:
            marks = msgspec.structs.replace(marks, label=clean(marks.label))
        self._attempt = envelope.id
        record = self._store.commit(
            envelope,
            marks,
            writer.chunks.values(),
            expected_head=parent.envelope.id if parent else None,
        )
        self.head, self._seq, self._values, self._attempt = record, envelope.seq, telling, None
        return record

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
