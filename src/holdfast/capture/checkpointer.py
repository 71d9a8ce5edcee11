"""From section values to a committed checkpoint, remembering what the next one can build on."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.capture.sections import plain, typed
from holdfast.encode.chunks import ChunkReader, ChunkWriter
from holdfast.encode.section import SectionEncoder, SectionMemo, decode_section
from holdfast.encode.tree import Ref
from holdfast.errors import CheckpointCorrupt, NotFound
from holdfast.model.checkpoint import FORMAT_VERSION, Envelope, Marks, SectionRecord
from holdfast.model.ids import make_checkpoint_id
from holdfast.recover.analyse import analyse, summarise
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.encode.compress import Compressor
    from holdfast.encode.values import Packer
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.api import Store

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
    ) -> None:
        self.run = run
        self._store = store
        self._packer = packer
        self._compressor = compressor
        self._max_section_bytes = max_section_bytes
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.RLock()
        self.reload()

    def reload(self) -> None:
        """Read the run's position again, and forget what was known of the old one."""
        with self._lock:
            self._memos: dict[str, SectionMemo] = {}
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

    def take(
        self, sections: Mapping[str, Any], *, drop: Iterable[str] = (), trigger: str, reason: str, marks: Marks
    ) -> CheckpointRecord:
        """Commit a checkpoint: given sections anew, the others carried over from the head unless dropped.

        After any failure nothing is stored and this writer's position is as before.
        """
        with self._lock:
            values = {name: typed(name, value) for name, value in sections.items()}
            try:
                return self._commit(values, frozenset(drop), trigger, reason, marks)
            except BaseException:
                self._memos.clear()
                raise

    def _commit(
        self, values: dict[str, Any], drop: frozenset[str], trigger: str, reason: str, marks: Marks
    ) -> CheckpointRecord:
        writer = ChunkWriter(self._compressor)
        parent = self.head
        roots = {} if parent is None else {record.name: record for record in parent.envelope.sections}
        encoder = SectionEncoder(self._packer, writer, max_bytes=self._max_section_bytes)
        for name, value in values.items():
            root = encoder.encode(name, plain(name, value), self._memos.setdefault(name, SectionMemo()))
            roots[name] = SectionRecord(name, root.kind, root.id, root.size)
        for name in drop:
            roots.pop(name, None)
            self._memos.pop(name, None)
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
            reason=reason,
            created_at=datetime.fromtimestamp(now, UTC),
            program_version=__version__,
            sections=tuple(roots.values()),
            stored_bytes=sum(len(chunk.data) for chunk in writer.chunks.values()),
            codec=self._compressor.codec.name.lower(),
            recovery=analyse(telling.get("workflow"), telling.get("agents") or ()),
            summary=summarise(telling),
        )
        record = self._store.commit(
            envelope,
            marks,
            list(writer.chunks.values()),
            expected_head=parent.envelope.id if parent else None,
        )
        self.head, self._seq, self._values = record, envelope.seq, telling
        return record

    def _value(self, name: str, values: dict[str, Any], record: SectionRecord) -> Any:
        """Return a typed section's value, read back once if it was carried over from before this writer."""
        if name in values:
            return values[name]
        if name not in self._values:
            root = Ref(record.kind, record.size, record.root)
            reader = ChunkReader(self._store.fetch)
            stored = decode_section(name, root, self._packer, reader, max_bytes=self._max_section_bytes)
            self._values[name] = typed(name, stored)
        return self._values[name]
