"""The files store: a folder a run, a readable document a checkpoint; for reading, for git, for small teams.

A document holds the whole content of its sections, so it costs what is there, not what changed. Sections that are no
value (a workspace) or too large for a document are chunks in a folder beside it.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode import records
from holdfast.encode.chunks import Chunk, ChunkWriter
from holdfast.encode.compress import CodecName, Compressor
from holdfast.encode.tree import Ref
from holdfast.errors import (
    CheckpointCorrupt,
    Conflict,
    HeadMoved,
    IntegrityError,
    LimitExceeded,
    NotFound,
    RunCorrupt,
    StoreUnavailable,
    UsageError,
)
from holdfast.model.checkpoint import CheckpointRecord, Marks, SectionRecord
from holdfast.model.ids import make_checkpoint_id
from holdfast.store import files_text
from holdfast.store.api import Listing, StoreStats, StoreTraits, Tombstone
from holdfast.store.files_chunks import ChunkFiles, is_sound
from holdfast.store.files_counters import CounterFile
from holdfast.store.files_disk import Disk, translated
from holdfast.store.files_document import Content, Document, RunFacts, document_of, lines_of
from holdfast.store.files_index import Overview
from holdfast.store.files_lease import FileLeases
from holdfast.store.files_names import Location, document_name, is_named_for
from holdfast.store.files_run import (
    ARCHIVE,
    CHUNKS,
    DELETED,
    GRAVES,
    Grave,
    Graves,
    RunReader,
    RunState,
    gaps,
    grave_of,
    is_document,
    named,
)
from holdfast.store.files_tree import flatten
from holdfast.store.lease import check_fence, check_terms
from holdfast.store.prefix import id_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from holdfast.model.checkpoint import Envelope, RunRecord
    from holdfast.store.bell import Bell
    from holdfast.store.files_run import Found
    from holdfast.store.lease import Lease

_DOCUMENT_BYTES = 8 * 1024 * 1024  # larger sections are chunks beside the document


class FilesStore:
    """Runs, checkpoints and chunks as files below one folder."""

    traits = StoreTraits(durable=True, many_processes=True, readable=True)

    def __init__(
        self,
        folder: Path | str,
        *,
        form: files_text.Form = "yaml",
        compression: CodecName = "none",
        location: str = "{run}",
        task_file: bool = False,
        max_document_bytes: int = 64 * 1024 * 1024,
        disk: Disk | None = None,
    ) -> None:
        if form not in ("yaml", "json") or compression not in files_text.SUFFIXES:
            raise UsageError(f"form={form!r}, compression={compression!r}: use yaml or json; none, gzip, zstd or lz4")
        self.folder = Path(folder).absolute()
        self.own_paths = (self.folder,)
        self.url = f"file://{self.folder}"
        self._form: files_text.Form = form
        self._compression: CodecName = compression
        self._suffix = f".{form}{files_text.SUFFIXES[compression]}"
        files_text.write({}, form, compression)  # a missing extra is named now, not at the first commit
        self._location = Location(self.folder, location)
        self._max_document_bytes = max_document_bytes
        self._disk = disk or Disk(self.url)
        self._reader = RunReader()
        self._chunks = ChunkFiles(self._disk)
        self._leases = FileLeases(self._disk, self._location)
        self._counters = CounterFile(self._disk, self._location, self._leases, self._reader)
        self._overview = Overview(self._disk, self._reader, form, task_file=task_file)
        self._lock = threading.RLock()
        self._closed = False
        with translated(self.url):
            self._disk.make_folder(self.folder)
            if self.folder.stat().st_uid != os.geteuid():
                raise StoreUnavailable(self.url, "belongs to another user; copy it to a place of your own")
            self._finish_deletions()

    def commit(
        self,
        envelope: Envelope,
        marks: Marks,
        chunks: Collection[Chunk],
        *,
        expected_head: str | None,
        fence: int | None = None,
    ) -> CheckpointRecord:
        """Write the checkpoint's document durably; it is there when its name is, and that is the last thing done."""
        brought = {chunk.id: chunk for chunk in chunks}
        record = CheckpointRecord(envelope, records.seal(envelope)[1], marks)
        folder = self._location.of(envelope.run)
        with self._calls():
            if expected_head is not None and not folder.is_dir():
                raise HeadMoved(envelope.run, expected_head, None)
            self._disk.make_folder(folder)
            with self._disk.locked(folder, alone=True):
                check_fence(self._leases.of(folder), envelope.run, fence, datetime.now(UTC))
                state = self._reader.state(folder)
                run = state.record if state else None
                if (run.head if run else None, run.last_seq if run else 0) != (expected_head, envelope.seq - 1):
                    raise HeadMoved(envelope.run, expected_head, run.head if run else None)
                facts = RunFacts(state.number, state.created_at) if state else self._new_facts(envelope)
                contents, covered = self._contents(record, brought)
                loose = [chunk for name, chunk in brought.items() if name not in covered]
                self._chunks.put(folder / CHUNKS, loose)
                document = Document(record=record, facts=facts, contents=contents)
                self._put_document(folder / document_name(envelope, self._suffix), document)
                self._overview.refresh(folder)
        return record

    def run(self, run: str) -> RunRecord:
        """Return a run, NotFound if there is none."""
        with self._reading(run) as (_, state):
            return state.record

    def runs(self, *, limit: int | None = None) -> Listing[RunRecord]:
        """Return the runs, the last begun first."""
        states, damaged = [], []
        with self._calls():
            for folder in self._location.all():
                try:
                    state = self._state(folder)
                except IntegrityError as error:
                    damaged.append(RunCorrupt(str(error), folder.name))
                    continue
                if state is not None:
                    states.append(state)
        states.sort(key=lambda state: state.number, reverse=True)
        return Listing([state.record for state in states][:limit], damaged)

    def checkpoint(self, checkpoint: str) -> CheckpointRecord:
        """Return a checkpoint whose whole document is sound, NotFound if there is none."""
        with self._calls():
            return self._sound(self._find(checkpoint)[1], checkpoint)

    def checkpoint_at(self, run: str, seq: int) -> CheckpointRecord | None:
        """Return the checkpoint with this number, None if it was deleted."""
        try:
            with self._reading(run) as (_, state):
                if seq in state.documents:
                    return self._sound(state.documents[seq], state.documents[seq].id)
                if seq in state.graves:
                    return None
        except NotFound:
            pass
        raise CheckpointCorrupt("it vanished from the store without having been deleted", f"{run}@{seq}")

    def checkpoints(
        self, run: str, *, limit: int | None = None, before_seq: int | None = None
    ) -> Listing[CheckpointRecord]:
        """Return a run's checkpoints, highest number first; numbers that vanished are reported as damage."""
        found: list[CheckpointRecord] = []
        damaged: list[IntegrityError] = []
        with self._reading(run) as (_, state):
            upper = state.last_seq + 1 if before_seq is None else min(before_seq, state.last_seq + 1)
            numbers = sorted((seq for seq in state.documents if seq < upper), reverse=True)
            shown = numbers[:limit]
            lowest = shown[-1] if shown and len(shown) < len(numbers) else 1
            if limit != 0:
                damaged += gaps(run, state, lowest, upper)
            for seq in shown:
                document = state.documents[seq]
                if document.record is None:
                    damaged.append(named(document.error, document.id))
                else:
                    found.append(document.record)
        return Listing(found, damaged)

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there; of several copies a sound one."""
        wanted = set(ids)
        found: dict[bytes, Chunk] = {}
        with self._calls():
            for source in self._sources(wanted) if wanted else ():
                for name in wanted & source.keys():
                    found[name] = source[name]
                    if is_sound(source[name]):
                        wanted.discard(name)
                if not wanted:
                    break
        return found

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the name of every stored chunk."""
        with self._calls():
            names = {name for folder in self._location.all() for name in self._held(folder)}
        yield from sorted(names)

    def find(self, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of checkpoints that begin with a prefix."""
        bounds = id_range(prefix)
        names: list[str] = []
        with self._calls():
            for folder in self._location.all() if bounds else ():
                try:
                    state = self._state(folder)
                except IntegrityError:
                    continue  # the run's list says what is wrong with it
                names += [found.id for found in state.documents.values()] if state else []
        return sorted(name for name in names if bounds and bounds[0] <= name <= bounds[1])[:limit]

    def mark(self, checkpoint: str, marks: Marks, *, expected: Marks | None = None) -> None:
        """Replace a checkpoint's marks; an archived one moves to the archive folder."""
        with self._calls():
            folder, found = self._find(checkpoint)
            with self._disk.locked(folder, alone=True):
                state = self._reader.state(folder)  # it may have moved before we had the lock
                now = state.documents.get(found.seq) if state else None
                if now is None or now.path.name != found.path.name:
                    raise NotFound("checkpoint", checkpoint)
                self._put_marks(folder, now, marks, expected)
                self._overview.refresh(folder)

    def mark_many(self, run: str, changes: Mapping[str, tuple[Marks, Marks]]) -> list[str]:
        """Replace the marks that are as expected, and return the ids of the others.

        Nobody sees it half-way; a crash in between leaves some documents marked and others as they were.
        """
        left: list[str] = []
        with self._writing(run) as (folder, state):
            by_id = {found.id: found for found in state.documents.values()}
            for checkpoint, (expected, marks) in changes.items():
                try:
                    self._put_marks(folder, by_id[checkpoint], marks, expected)
                except (KeyError, Conflict, IntegrityError):
                    left.append(checkpoint)
            self._overview.refresh(folder)
        return left

    def _put_marks(self, folder: Path, found: Found, marks: Marks, expected: Marks | None) -> None:
        document = self._reader.document(found.path)
        if expected is not None and document.record.marks != expected:
            raise Conflict(document.record.envelope.run)
        record = CheckpointRecord(document.record.envelope, document.record.checksum, marks)
        place = folder / ARCHIVE if marks.status == "archived" else folder
        self._disk.make_folder(place)
        self._put_document(place / found.path.name, msgspec.structs.replace(document, record=record))
        if place / found.path.name != found.path:
            self._disk.remove(found.path)
            self._disk.sync_folder(found.path.parent)

    def delete(self, run: str, checkpoints: Sequence[str], *, spare_pinned: bool = False) -> list[str]:
        """Delete checkpoints of one run: done when the list of deleted ones names them all."""
        with self._writing(run) as (folder, state):
            by_id = {found.id: found for found in state.documents.values()}
            for checkpoint in checkpoints:
                if checkpoint not in by_id:
                    raise NotFound("checkpoint", checkpoint)
            asked = [by_id[checkpoint] for checkpoint in dict.fromkeys(checkpoints)]
            spared = [one for one in asked if spare_pinned and (one.record is None or one.record.marks.pinned)]
            doomed = [one for one in asked if one not in spared]
            graves = [*state.graves.values(), *(grave_of(run, found, state) for found in doomed)]
            self._put_graves(folder, state, graves)
            self._disk.make_folder(folder / DELETED)
            for found in doomed:
                self._disk.move(found.path, folder / DELETED / found.path.name)
            self._disk.sync_folder(folder / DELETED)
            self._overview.refresh(folder)
        return [one.id for one in spared]

    def delete_run(self, run: str) -> None:
        """Delete a run's folder: done when it has another name."""
        with self._writing(run) as (folder, _):
            gone = folder.with_name(f".gone-{os.urandom(8).hex()}")
            self._disk.move(folder, gone)
            self._disk.sync_folder(folder.parent)
        with self._calls():
            self._disk.meet("remove", gone)
            shutil.rmtree(gone)

    def held(self, run: str) -> set[bytes]:
        """Return the chunks that a run holds."""
        with self._reading(run) as (folder, _):
            return set(self._held(folder))

    def release(self, run: str, chunks: Sequence[bytes], *, expected_seq: int, created_at: datetime) -> None:
        """Let a run's hold on chunks go: with them go deleted documents and chunk files."""
        doomed = set(chunks)
        with self._writing(run) as (folder, state):
            if (state.last_seq, state.created_at) != (expected_seq, created_at):
                raise HeadMoved(run, f"{run}@{expected_seq}", state.record.head)
            for found in state.documents.values():
                if found.error is None:
                    self._drop_contents(found.path, doomed)
            needed = set[bytes]().union(*(self._in_document(found.path) for found in state.documents.values()))
            for path in self._deleted(folder):
                if self._in_document(path) <= doomed | needed:
                    self._disk.remove(path)
            self._chunks.remove(folder / CHUNKS, doomed)

    def reclaim(self) -> None:
        """Do nothing: a removed file is gone."""

    def tombstone(self, run: str, checkpoint: str) -> bytes | None:
        """Return the checksum of a deleted checkpoint, None if none was deleted under this id."""
        try:
            with self._reading(run) as (_, state):
                graves = {grave.id: grave for grave in state.graves.values()}
        except NotFound:
            return None
        return bytes.fromhex(graves[checkpoint].checksum) if checkpoint in graves else None

    def tombstones(self, run: str) -> list[Tombstone]:
        """Return all that a run's deleted checkpoints left."""
        with self._reading(run) as (_, state):
            return [
                Tombstone(seq=seq, id=grave.id, checksum=bytes.fromhex(grave.checksum))
                for seq, grave in sorted(state.graves.items())
            ]

    def bury(self, run: str, tombstone: Tombstone, *, created_at: datetime) -> None:
        """Take over a checkpoint that was deleted elsewhere as the run's next number."""
        folder = self._location.of(run)
        with self._calls():
            self._disk.make_folder(folder)
            with self._disk.locked(folder, alone=True):
                state = self._reader.state(folder)
                if (state.last_seq if state else 0) != tombstone.seq - 1:
                    raise HeadMoved(run, f"{run}@{tombstone.seq - 1}", state.record.head if state else None)
                if state is None:
                    state = RunState(run, self._counters.count(runs=1).runs, created_at, created_at, 0, {}, {})
                seal = records.seal_tombstone(run, tombstone.seq, tombstone.id, tombstone.checksum).hex()
                grave = Grave(
                    seq=tombstone.seq, id=tombstone.id, checksum=tombstone.checksum.hex(), seal=seal,
                    created_at=state.updated_at,
                )  # fmt: skip
                self._put_graves(folder, state, [*state.graves.values(), grave])
                self._overview.refresh(folder)

    def migrate(self, *, progress: Callable[[str, int], None] | None = None) -> list[int]:  # noqa: ARG002
        """Do nothing: there is one form of documents so far."""
        return []

    def accept(self, checkpoint: str) -> CheckpointRecord:
        """Commit what somebody wrote into a document by hand as a new checkpoint on the run's head."""
        with self._calls():
            _, found = self._find(checkpoint)
            document = self._reader.document(found.path)
            head = self.run(document.record.envelope.run)
            parent = self._find(head.head)[1].record if head.head else None
        writer = ChunkWriter(Compressor("none"))
        was = document.record.envelope
        roots = []
        for section in was.sections:
            if section.name in document.contents:
                data = document.contents[section.name].data
                step = 1 << 20
                refs = [writer.leaf(data[at : at + step]) for at in range(0, len(data), step)] or [writer.leaf(data)]
                root = refs[0] if len(refs) == 1 else writer.node(refs)
                roots.append(SectionRecord(section.name, root.kind, root.id, root.size))
            elif section.name not in document.damage:
                roots.append(section)
            else:
                raise CheckpointCorrupt(document.damage[section.name], checkpoint)
        now = datetime.now(UTC)
        envelope = msgspec.structs.replace(
            was, id=make_checkpoint_id(int(now.timestamp() * 1000), os.urandom(10)), seq=head.last_seq + 1,
            parent=head.head, parent_checksum=parent.checksum if parent else None, trigger="manual",
            reason=f"edited by hand: {checkpoint}", created_at=now, sections=tuple(roots),
            stored_bytes=sum(len(chunk.data) for chunk in writer.chunks.values()),
        )  # fmt: skip
        return self.commit(envelope, Marks(), list(writer.chunks.values()), expected_head=head.head)

    def take_lease(self, run: str, *, owner: str, ttl_s: float) -> Lease:
        """Take the right to move a run, LeaseHeld if another owner has it; the clock is this machine's."""
        check_terms(owner, ttl_s)
        with self._calls():
            return self._leases.take(run, owner, ttl_s, lambda: self._counters.count(tokens=1).token)

    def renew_lease(self, lease: Lease, *, ttl_s: float) -> Lease:
        """Keep a lease for longer, LeaseLost if somebody took it."""
        check_terms(lease.owner, ttl_s)
        with self._calls():
            return self._leases.change(lease, ttl_s)

    def end_lease(self, lease: Lease) -> None:
        """Give a lease back."""
        with self._calls():
            self._leases.end(lease)

    def lease(self, run: str) -> Lease | None:
        """Return the running lease of a run."""
        with self._calls():
            return self._leases.running(run)

    def wake(self, run: str) -> None:
        """Ring for all who listen for a run."""
        with self._calls():
            self._leases.ring(run)

    def listen(self, run: str) -> Bell:
        """Return a bell that hears every ring for the run from now on."""
        return self._leases.bell(run)

    def damaged_runs(self) -> list[str]:
        """Return none: what is kept of a run is made from its documents."""
        return []

    def rebuild(self, run: str, reach: Callable[[Sequence[CheckpointRecord]], Collection[bytes]]) -> RunRecord | None:  # noqa: ARG002
        """Return the run as it is, None if there is none."""
        try:
            return self.run(run)
        except NotFound:
            return None

    def check(self) -> Iterator[str]:
        """Yield every document that is broken or was edited, and where."""
        with self._calls():
            for folder in self._location.all():
                try:
                    state = self._state(folder)
                except IntegrityError as error:
                    yield str(error)
                    continue
                for found in state.documents.values() if state else ():
                    try:
                        yield from self._reader.document(found.path).damage.values()
                    except IntegrityError as error:
                        yield str(error)

    def stats(self) -> StoreStats:
        """Count what is stored; a chunk in many documents counts once, their files count whole."""
        runs = self.runs()
        with self._calls():
            sizes = {
                name: chunk.size for folder in self._location.all() for name, chunk in self._all_chunks(folder).items()
            }
            times = [record.envelope.created_at for run in runs for record in self.checkpoints(run.id)]
            on_disk = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        total = sum(sizes.values())
        return StoreStats(
            url=self.url, engine=f"files ({self._form})", runs=len(runs), checkpoints=sum(r.checkpoints for r in runs),
            chunks=len(sizes), chunk_bytes=total, stored_bytes=total, file_bytes=on_disk,
            oldest_at=min(times, default=None), newest_at=max(times, default=None),
        )  # fmt: skip

    def close(self) -> None:
        """Refuse further calls; nothing is kept open."""
        self._closed = True

    @contextmanager
    def _calls(self) -> Iterator[None]:
        """Let one thread in at a time, with the disk's errors translated."""
        with self._lock, translated(self.url):
            if self._closed:
                raise UsageError(f"store {self.url} is closed; open it again")
            yield

    @contextmanager
    def _reading(self, run: str, *, alone: bool = False) -> Iterator[tuple[Path, RunState]]:
        """Give out a run's folder and what it holds, NotFound if there is none."""
        folder = self._location.of(run)
        with self._calls():
            if not folder.is_dir():
                raise NotFound("run", run)
            with self._disk.locked(folder, alone=alone):
                state = self._reader.state(folder)
                if state is None:
                    raise NotFound("run", run)
                if state.run != run:
                    raise RunCorrupt(f"its folder {folder.name} holds run {state.run!r}", run)
                yield folder, state

    def _writing(self, run: str) -> Any:
        return self._reading(run, alone=True)

    def _state(self, folder: Path) -> RunState | None:
        with self._disk.locked(folder, alone=False):
            return self._reader.state(folder)

    def _find(self, checkpoint: str) -> tuple[Path, Found]:
        """Return a checkpoint's document and its run's folder."""
        for folder in self._location.all():
            places = [place for place in (folder, folder / ARCHIVE) if place.is_dir()]
            if any(is_named_for(path.name, checkpoint) for place in places for path in place.iterdir()):
                state = self._state(folder)
                for found in state.documents.values() if state else ():
                    if found.id == checkpoint or (found.error and is_named_for(found.path.name, checkpoint)):
                        return folder, found
        raise NotFound("checkpoint", checkpoint)

    def _sound(self, found: Found, checkpoint: str) -> CheckpointRecord:
        """Return a document's record, CheckpointCorrupt if its head or any of its sections was edited."""
        if found.record is None:
            raise named(found.error, checkpoint)
        damage = self._reader.document(found.path).damage
        if damage:
            raise CheckpointCorrupt(next(iter(damage.values())), checkpoint)
        return found.record

    def _contents(
        self, record: CheckpointRecord, brought: Mapping[bytes, Chunk]
    ) -> tuple[dict[str, Content], set[bytes]]:
        """Return the sections that fit into a document, and the chunks that these cover."""

        def fetch(ids: Sequence[bytes]) -> dict[bytes, Chunk]:
            found = {name: brought[name] for name in ids if name in brought}
            missing = [name for name in ids if name not in found]
            return {**found, **self.fetch(missing)} if missing else found

        contents: dict[str, Content] = {}
        covered: set[bytes] = set()
        for section in record.envelope.sections:
            if section.size <= _DOCUMENT_BYTES and section.name != "workspace":
                try:
                    root = Ref(section.kind, section.size, section.root)
                    data, outline, names = flatten(root, fetch, limit=_DOCUMENT_BYTES)
                except (IntegrityError, ValueError):
                    continue  # a carried-over section is damaged: its checkpoint says so, this one still has its name
                contents[section.name] = Content(data, outline)
                covered |= names
        return contents, covered

    def _put_document(self, path: Path, document: Document) -> None:
        """Write a document, after it was read back and found to be the same."""
        lines = lines_of(document)
        data = files_text.write(lines, self._form, self._compression)
        try:
            sound = document_of(files_text.read(data, path.name), path.name) == document
        except (IntegrityError, ValueError):
            sound = False
        if not sound:
            lines = lines_of(document, plain=True)
            data = files_text.write(lines, self._form, self._compression)
        if len(data) > self._max_document_bytes:
            limit = self._max_document_bytes
            raise LimitExceeded("raise max_document_bytes, or use SQLite", "a document's bytes", len(data), limit)
        self._disk.put(path, data)

    def _sources(self, wanted: set[bytes]) -> Iterator[Mapping[bytes, Chunk]]:
        """Yield mappings that may have these chunks: chunk files, documents with such a root, then all documents."""
        folders = list(self._location.all())
        for folder in folders:
            yield self._chunks.get(folder / CHUNKS, wanted)
        paths: list[Path] = []
        likely: list[Path] = []
        for folder in folders:
            try:
                state = self._state(folder)
            except IntegrityError:
                continue
            for found in sorted(state.documents.values(), key=lambda f: -f.seq) if state else ():
                roots = {section.root for section in found.record.envelope.sections} if found.record else set()
                (likely if roots & wanted or found.path in self._reader else paths).append(found.path)
            paths += self._deleted(folder)
        for path in [*likely, *paths]:
            yield self._reader.chunks(path)

    def _in_document(self, path: Path) -> set[bytes]:
        return set(self._reader.chunks(path))

    def _deleted(self, folder: Path) -> list[Path]:
        place = folder / DELETED
        return sorted(path for path in place.iterdir() if is_document(path.name)) if place.is_dir() else []

    def _all_chunks(self, folder: Path) -> dict[bytes, Chunk]:
        state = self._reader.state(folder)
        paths = [*self._deleted(folder), *(found.path for found in state.documents.values())] if state else []
        found = self._chunks.get(folder / CHUNKS, self._chunks.names(folder / CHUNKS))
        for path in paths:
            found.update(self._reader.chunks(path))
        return found

    def _held(self, folder: Path) -> Iterator[bytes]:
        try:
            yield from self._all_chunks(folder)
        except IntegrityError:
            return

    def _drop_contents(self, path: Path, doomed: set[bytes]) -> None:
        """Take sections out of a document of which a chunk was released."""
        document = self._reader.document(path)
        kept = {name: c for name, c in document.contents.items() if not document.chunks(name).keys() & doomed}
        if len(kept) < len(document.contents):
            self._put_document(path, msgspec.structs.replace(document, contents=kept, damage={}))

    def _new_facts(self, envelope: Envelope) -> RunFacts:
        return RunFacts(self._counters.count(runs=1).runs, envelope.created_at)

    def _put_graves(self, folder: Path, state: RunState, graves: Sequence[Grave]) -> None:
        ordered = sorted(graves, key=lambda grave: grave.seq)
        whole = Graves(run=state.run, number=state.number, created_at=state.created_at, checkpoints=ordered)
        text = msgspec.json.format(msgspec.json.encode(whole), indent=2)
        self._disk.put(folder / GRAVES, text + b"\n")

    def _finish_deletions(self) -> None:
        """Remove what a deletion that was killed had only renamed."""
        for folder in {self.folder, *(place.parent for place in self._location.all())}:
            for gone in folder.glob(".gone-*"):
                shutil.rmtree(gone, ignore_errors=True)
