"""Runs of one framework in a store: their ids and lines by the framework's own names, appends, commits by key."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from blake3 import blake3

from holdfast.encode.chunks import ChunkWriter
from holdfast.engine import Holdfast
from holdfast.engine import open as open_holdfast
from holdfast.errors import HeadMoved, InvalidId, NotFound, UsageError
from holdfast.journal.entry import body_of
from holdfast.model.checkpoint import FORMAT_VERSION, Envelope, Summary
from holdfast.model.ids import check_run_id, make_checkpoint_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.run_files import open_files, options_of
from holdfast.store.commit import IN_CHUNKS, CheckpointDraft, Commit, Draft
from holdfast.store.tables import MAIN
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from holdfast.capture.files import FileCapture
    from holdfast.encode.chunks import Chunk
    from holdfast.model.checkpoint import CheckpointRecord, SectionRecord
    from holdfast.model.triggers import Trigger
    from holdfast.store.store import Store
    from holdfast.store.tables import Record, Scalar
    from holdfast.workspace.spill import SpillingWriter

T = TypeVar("T")
_FRAMEWORK, _THREAD = "framework", "thread"
_HASHED = "thread-"
_LONGEST_LINE = 200
_LONGEST_KEY = 200
_LARGEST_INLINE = 64 * 1024
_LEAF = 256 * 1024
_MOST_LINES = 64
_MOST_TRIES = 50


def run_id_of(thread: str) -> str:
    """Return the run of a thread: its own name where that can be a run's, else one made of its hash."""
    if not isinstance(thread, str) or not thread:
        raise UsageError(f"{thread!r:.80} is not a valid thread id: use a text of at least one character")
    try:
        if not thread.startswith(_HASHED):
            return check_run_id(thread)
    except InvalidId:
        pass
    return _HASHED + _hash(thread)


def line_name_of(namespace: str) -> str:
    """Return the line of a namespace; the empty one is the main line."""
    if not namespace:
        return MAIN
    is_plain = namespace.isprintable() and namespace.isascii() and len(namespace) <= _LONGEST_LINE
    return namespace if is_plain and namespace != MAIN and not namespace.startswith("ns-") else f"ns-{_hash(namespace)}"


def checked_key(key: object) -> str:
    """Return a framework's id of a checkpoint as a key; UsageError if a store cannot keep it."""
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or not key.isprintable():
        raise UsageError(f"{key!r:.80} is not a valid checkpoint id: use 1 to {_LONGEST_KEY} printable characters")
    return key


def _hash(text: str) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest(16)


class Content(NamedTuple):
    """What a checkpoint is to hold: its sections, and the framework's own names for it and its parent."""

    sections: Sequence[SectionRecord]
    trigger: Trigger
    reason: str
    key: str
    parent: CheckpointRecord | None = None
    attributes: Mapping[str, Scalar] = {}
    steps: int = 0
    records: Sequence[Draft] = ()
    after: int | None = None
    """The journal number that it was made at; None: whatever it is by now."""
    about: Mapping[str, Scalar] | None = None
    """What the run's row says from now on, beside whose it is."""
    consumed: int | None = None
    """The last inbox entry that it has taken in."""


class FrameworkRuns:
    """All runs of one framework in a store."""

    def __init__(self, place: Holdfast | str | Path | None, framework: str, **options: Any) -> None:
        self.owns = not isinstance(place, Holdfast)
        self.holdfast = place if isinstance(place, Holdfast) else open_holdfast(place, **options)
        self.framework = framework
        self.tools = self.holdfast.internals.tools
        self._lines: OrderedDict[tuple[str, str], FrameworkLine] = OrderedDict()
        self._captures: dict[str, FileCapture] = {}
        self._lock = threading.RLock()

    @property
    def store(self) -> Store:
        """The store itself."""
        return self.holdfast.store

    def line(self, thread: str, namespace: str = "") -> FrameworkLine:
        """Return the line of a thread and namespace, with what this process knows of it."""
        return self.named_line(thread, run_id_of(thread), line_name_of(namespace))

    def named_line(self, thread: str, run: str, name: str) -> FrameworkLine:
        """Return a line by its own name."""
        place = run, name
        with self._lock:
            line = self._lines.get(place)
            if line is None:
                line = self._lines[place] = FrameworkLine(self, thread, run, name)
                while len(self._lines) > _MOST_LINES:
                    self._lines.popitem(last=False)
            self._lines.move_to_end(place)
            return line

    def threads(self) -> Iterator[tuple[str, str]]:
        """Yield every thread of this framework and its run, the last begun first."""
        for run, about in self.rows():
            yield str(about.get(_THREAD, run)), run

    def rows(self) -> Iterator[tuple[str, Mapping[str, Scalar]]]:
        """Yield every run of this framework with what its row says of it, the last begun first."""
        for run in self.store.runs():
            about = self.about(run.id)
            if about.get(_FRAMEWORK) == self.framework:
                yield run.id, about

    def about(self, run: str) -> Mapping[str, Scalar]:
        """Return what the row of a run says of it; nothing if there is none."""
        try:
            return self.store.row_of(run).attributes
        except NotFound:
            return {}

    def attributes(self, thread: str) -> dict[str, Scalar]:
        """Return what the row of a thread's run says: whose it is, and the thread's own id."""
        return {_FRAMEWORK: self.framework, _THREAD: thread}

    def exists(self, run: str) -> bool:
        """Tell whether a run is one of this framework's threads; UsageError if it is somebody else's."""
        try:
            found = self.store.row_of(run).attributes.get(_FRAMEWORK)
        except NotFound:
            return False
        if found != self.framework:
            raise UsageError(
                f"run {run!r} of this store is not one of {self.framework}'s: use another id, or another store"
            )
        return True

    def delete(self, thread: str) -> None:
        """Delete a thread with all that it holds; nothing happens if there is none."""
        run = run_id_of(thread)
        with self._forgetting(run):
            if self.exists(run):
                self.holdfast.delete_run(run)

    @contextmanager
    def _forgetting(self, run: str) -> Iterator[None]:
        """Forget what is known of a run's lines before and after a change: what it refers to may be gone."""
        self.forget(run)
        try:
            yield
        finally:
            self.forget(run)

    def forget(self, run: str) -> None:
        """Forget what this process knows of a run."""
        with self._lock:
            known = [line for place, line in self._lines.items() if place[0] == run]
        for line in known:
            with line.lock:
                line.forget()

    def capture_of(self, workspace: str) -> FileCapture:
        """Return the capture of a directory, opened once."""
        with self._lock:
            if workspace not in self._captures:
                options = options_of(self.holdfast.settings.workspace)
                self._captures[workspace] = open_files(self.store, self.tools.reader, workspace, options)
            return self._captures[workspace]

    def close(self) -> None:
        """Close the store if it was opened here; closing twice is fine."""
        with self._lock:
            for capture in self._captures.values():
                capture.save_cache()
            self._captures.clear()
            self._lines.clear()
        if self.owns:
            self.holdfast.close()


class RunsOwner:
    """What every adapter is: something opened on a store, for `with` or `async with`, and closed."""

    _runs: FrameworkRuns

    @classmethod
    def open(cls, *given: Any, **options: Any) -> Self:
        """Open a store for `with` or `async with`; the end of the block closes it."""
        return cls(*given, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Close the store if it was opened here; closing twice is fine."""
        self._runs.close()

    @property
    def holdfast(self) -> Holdfast:
        """The store, for everything that the framework has no word for."""
        return self._runs.holdfast


class FrameworkLine:
    """One line of one thread: where it stands as this process last saw it."""

    def __init__(self, runs: FrameworkRuns, thread: str, run: str, name: str) -> None:
        self.run = run
        self.name = name
        self.lock = threading.RLock()
        self.memory: Any = None
        """What an adapter knows of the head's sections; void with the head."""
        self._runs = runs
        self._store = runs.store
        self._thread = thread
        self._is_checked = False
        self.forget()

    def forget(self) -> None:
        """Forget where the line stands: the next commit reads it, and builds on nothing."""
        self.memory = None
        self.head: CheckpointRecord | None = None
        self._head_id: str | None = None
        self._seq: int | None = None
        self._is_checked = False

    def append(
        self,
        *drafts: Draft,
        chunks: Collection[Chunk] = (),
        after: int | None = None,
        about: Mapping[str, Scalar] | None = None,
    ) -> tuple[Record, ...]:
        """Add records: durable when this returns; HeadMoved if the journal is not at `after` by now."""
        with self.lock:
            made = self._store.write(
                Commit(
                    run=self.run, line=self.name, after=after, records=drafts, chunks=chunks,
                    run_changes=self._run_changes(about), new_run=self._new_run(), at=self._now(),
                )
            )  # fmt: skip
            return made.records

    def draft(
        self, kind: str, path: str, body: bytes, chunks: ChunkWriter | SpillingWriter, *, key: str | None = None
    ) -> Draft:
        """Return a record as the store takes it: what is too large for a row goes into chunks, and has no key."""
        at = self._runs.tools.clock()
        if len(body) <= _LARGEST_INLINE:
            return Draft(kind, path, at, body, key)
        parts = tuple(chunks.leaf(body[start : start + _LEAF]).id for start in range(0, len(body), _LEAF))
        return Draft(kind, path, at, b"", IN_CHUNKS, parts)

    def record(self, kind: str, path: str, body: bytes) -> Record:
        """Add one record with this body."""
        writer = ChunkWriter(self._runs.tools.compressor)
        draft = self.draft(kind, path, body, writer)
        return self.append(draft, chunks=list(writer.chunks.values()))[0]

    def commit(
        self,
        make: Callable[[ChunkWriter | SpillingWriter], Content],
        *,
        workspace: str | None = None,
        tries: int = _MOST_TRIES,
    ) -> None:
        """Commit a checkpoint, with the files of a directory if there is one; `make` is asked again if others moved.

        `make` may build on `head` and `memory`; both are void when it is asked again.
        """
        with self.lock:
            for _ in range(tries):
                if self._seq is None:
                    self._read()
                files = self._runs.capture_of(workspace) if workspace is not None else None
                compressor = self._runs.tools.compressor
                if files is not None and self.head is None and self._head_id is not None:
                    self.head = self._store.checkpoint(self._head_id)  # so that files cost what changed since
                writer = files.writer(self.head, compressor) if files is not None else ChunkWriter(compressor)
                try:
                    self._commit(make(writer), files, writer)
                except HeadMoved:
                    self.forget()
                    continue
                except BaseException:
                    self.forget()
                    raise
                finally:
                    writer.close()
                return
            raise HeadMoved(self.run, self._head_id, None)

    def _commit(self, content: Content, files: FileCapture | None, writer: ChunkWriter | SpillingWriter) -> None:
        sections = list(content.sections)
        if files is not None:
            sections.append(files.capture(self.head, writer))
        writer.finish()
        tools, parent = self._runs.tools, content.parent
        now = tools.clock()
        envelope = Envelope(
            format_version=FORMAT_VERSION,
            id=make_checkpoint_id(int(now * 1000), tools.entropy(10)),
            run=self.run,
            seq=(self._seq or 0) + 1,
            parent=parent.envelope.id if parent else None,
            parent_checksum=parent.checksum if parent else None,
            trigger=content.trigger.value,
            reason=content.reason,
            created_at=datetime.fromtimestamp(now, UTC),
            program_version=__version__,
            sections=tuple(sections),
            stored_bytes=writer.stored_bytes,
            codec=tools.compressor.codec.name.lower(),
            recovery=RecoveryInfo(),
            summary=Summary(steps=content.steps),
        )
        made = self._store.write(
            Commit(
                run=self.run,
                line=self.name,
                after=content.after,
                records=content.records,
                checkpoints=[CheckpointDraft(envelope, key=content.key, attributes=content.attributes)],
                expected_head=self._head_id,
                chunks=writer.chunks.values(),
                run_changes=self._run_changes(content.about),
                new_run=self._new_run(),
                consumed=content.consumed,
                at=envelope.created_at,
            )
        )
        self.head, self._head_id, self._seq = made.checkpoint, envelope.id, envelope.seq

    def _read(self) -> None:
        """Read where the line stands; what it holds is not known."""
        row = self._store.line(self.run, line=self.name)
        self._head_id, self._seq = (row.head, row.last_seq) if row is not None else (None, 0)

    def _new_run(self) -> dict[str, Any]:
        """Return what the run's row is to say of its owner; UsageError if the run is somebody else's."""
        self._is_checked = self._is_checked or self._runs.exists(self.run)
        return {"attributes": self._runs.attributes(self._thread)}

    def _run_changes(self, about: Mapping[str, Scalar] | None) -> dict[str, Any]:
        """Return what the run's row is to say from now on, beside whose it is."""
        return {} if about is None else {"attributes": {**self._runs.attributes(self._thread), **about}}

    @property
    def number(self) -> int:
        """The journal number that the line stands at, as it is stored."""
        row = self._store.line(self.run, line=self.name)
        return row.number if row is not None else 0

    def repeat(self, write: Callable[[], T]) -> T:
        """Return what `write` returns; it is called again while others are faster."""
        for tries_left in range(_MOST_TRIES, 0, -1):
            try:
                return write()
            except HeadMoved:
                if tries_left == 1:
                    raise
        raise AssertionError

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._runs.tools.clock(), UTC)

    def by_key(self, key: str) -> CheckpointRecord | None:
        """Return the checkpoint with this key."""
        return self._store.by_key(self.run, key, line=self.name)

    def keyed(self, *, below: str | None = None, limit: int | None = None) -> list[CheckpointRecord]:
        """Return the checkpoints that have a key, highest first."""
        return self._store.keyed(self.run, line=self.name, below=below, limit=limit)

    def newest(self) -> CheckpointRecord | None:
        """Return the head of the line."""
        row = self._store.line(self.run, line=self.name)
        return self._store.checkpoint(row.head) if row is not None and row.head is not None else None

    def has(self, key: str) -> bool:
        """Tell whether the line has a record with this key."""
        row = self._store.line(self.run, line=self.name)
        return row is not None and self._store.journal.keyed(row, key) is not None

    def with_record(self, key: str) -> CheckpointRecord | None:
        """Return the checkpoint that was taken with the record of this key, or the first after it."""
        row = self._store.line(self.run, line=self.name)
        record = self._store.journal.keyed(row, key) if row is not None else None
        if row is None or record is None:
            return None
        before = self._store.checkpoint_upto(self.run, record.number - 1, line=self.name)
        seqs = range(before.envelope.seq + 1 if before is not None else 1, row.last_seq + 1)
        found = (self._store.checkpoint_at(self.run, seq, line=self.name) for seq in seqs)
        return next((one for one in found if one is not None), None)

    def first_path(self) -> str | None:
        """Return the path of the oldest record, None if there is none."""
        row = self._store.line(self.run, line=self.name)
        found = self._store.journal.records(row, limit=1) if row is not None else []
        return found[0].path if found else None

    def records(self, path: str, *, reverse: bool = False) -> Iterator[tuple[Record, bytes]]:
        """Yield the records of a path with their bodies, in order."""
        row = self._store.line(self.run, line=self.name)
        for record in self._store.journal.of_path(row, path, reverse=reverse) if row is not None else ():
            yield record, body_of(record, self._store)

    def records_of(self, paths: Sequence[str]) -> dict[str, list[tuple[Record, bytes]]]:
        """Return the records of several paths with their bodies, in order."""
        row = self._store.line(self.run, line=self.name)
        found = self._store.journal.of_paths(row, paths) if row is not None else {}
        return {path: [(record, body_of(record, self._store)) for record in found.get(path, ())] for path in paths}

    def clear(self) -> None:
        """Remove all records of the line."""
        with self.lock:
            row = self._store.line(self.run, line=self.name)
            found = self._store.journal.records(row) if row is not None else []
            if found:
                self._store.journal.compact(self.run, [record.number for record in found], line=self.name)

    def remove(self, checkpoints: Sequence[CheckpointRecord], paths: Sequence[str]) -> None:
        """Delete checkpoints, and the records of some paths; space is given back by a sweep."""
        with self.lock:
            self.forget()
            if checkpoints:
                self._store.delete(self.run, [record.envelope.id for record in checkpoints])
            row = self._store.line(self.run, line=self.name)
            numbers = [
                record.number
                for path in paths
                for record in (self._store.journal.of_path(row, path) if row is not None else ())
            ]
            if numbers:
                self._store.journal.compact(self.run, numbers, line=self.name)
