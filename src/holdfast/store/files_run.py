"""One run's folder as it is found: documents, deleted checkpoints, index; the documents are the truth.

The index and `latest` are for people and tools. They are written after every change and looked at only to notice that a
document vanished; missing, stale or broken, they are made anew.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.encode import records
from holdfast.encode.chunks import Chunk
from holdfast.errors import CheckpointCorrupt, IntegrityError
from holdfast.model.checkpoint import FORMAT_VERSION, RunRecord
from holdfast.store import files_text
from holdfast.store.files_document import Document, document_of, record_of
from holdfast.store.files_index import known_by_index, read_index

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.files_document import RunFacts
    from holdfast.store.files_index import Index

ARCHIVE, DELETED, CHUNKS = "archive", "deleted", "chunks"
GRAVES = "deleted.json"
_DOCUMENT_ENDS = tuple(f".{form}{end}" for form in ("yaml", "json") for end in files_text.SUFFIXES.values())


class Grave(msgspec.Struct, frozen=True, kw_only=True):
    """What a deleted checkpoint leaves."""

    seq: int
    id: str
    checksum: str
    seal: str
    created_at: datetime


class Graves(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run's deleted checkpoints left, with what is known of the run when none is left."""

    run: str
    number: int
    created_at: datetime
    checkpoints: list[Grave] = []


class Found(NamedTuple):
    """A document in a run's folder: sound, or with what is wrong with it."""

    path: Path
    record: CheckpointRecord | None
    facts: RunFacts | None
    error: IntegrityError | None
    seq: int
    id: str


class RunState(NamedTuple):
    """A run as a scan of its folder gives it."""

    run: str
    number: int
    created_at: datetime
    updated_at: datetime
    last_seq: int
    documents: dict[int, Found]
    graves: dict[int, Grave]

    @property
    def record(self) -> RunRecord:
        """The run's record; its head is the highest number that is left."""
        head = self.documents[max(self.documents)].id if self.documents else None
        return RunRecord(
            format_version=FORMAT_VERSION, id=self.run, head=head, last_seq=self.last_seq,
            checkpoints=len(self.documents), created_at=self.created_at, updated_at=self.updated_at,
        )  # fmt: skip


_StatKey = tuple[int, int, int, int]


class RunReader:
    """Reads runs' folders, and remembers each file as long as it does not change."""

    def __init__(self) -> None:
        self._heads: dict[Path, tuple[_StatKey, Found]] = {}
        self._whole: dict[Path, tuple[_StatKey, Document]] = {}
        self._chunks: dict[Path, tuple[Document, dict[bytes, Chunk]]] = {}
        self._indexes: dict[Path, tuple[_StatKey, Index | None]] = {}

    def state(self, folder: Path) -> RunState | None:
        """Return what a folder holds, None if no run began there; call it with the folder locked."""
        found = self._documents(folder)
        graves = _graves(folder)
        if not found and graves is None:
            return None
        index = self._index(folder)
        buried = {grave.id: grave for grave in graves.checkpoints} if graves else {}
        documents: dict[int, Found] = {}
        nameless: list[Found] = []
        for each in found:
            document = known_by_index(each, index) if each.error else each
            if document.id in buried:
                continue
            if document.seq < 1:
                nameless.append(document)
            elif document.seq not in documents or document.path.parent.name == ARCHIVE:
                documents[document.seq] = document
        graves_by_seq = {grave.seq: grave for grave in buried.values()}
        last = max([*documents, *graves_by_seq, index.last_seq if index else 0, 0])
        for document in nameless:
            free = (seq for seq in range(1, last + 2) if seq not in documents and seq not in graves_by_seq)
            number = next(free)
            documents[number] = document._replace(seq=number)
            last = max(last, number)
        return _state(folder, documents, graves, graves_by_seq, last)

    def __contains__(self, path: Path) -> bool:
        """Tell whether a document was read lately."""
        return path in self._whole

    def document(self, path: Path) -> Document:
        """Return a whole document, CheckpointCorrupt if it cannot be read."""
        key = _stat_key(path)
        known = self._whole.get(path)
        if known is None or known[0] != key:
            if len(self._whole) >= 8:  # noqa: PLR2004 - whole contents: a few are enough to go through a checkpoint
                self._whole.pop(next(iter(self._whole)))
            known = self._whole[path] = (key, document_of(_lines(path), path.name))
        return known[1]

    def chunks(self, path: Path) -> dict[bytes, Chunk]:
        """Return the chunks in a document; of an edited section, its content under the name that it should have."""
        try:
            document = self.document(path)
        except (IntegrityError, FileNotFoundError):
            return {}
        known = self._chunks.get(path)
        if known is None or known[0] is not document:
            for old in self._chunks.keys() - self._whole.keys():
                del self._chunks[old]
            known = self._chunks[path] = (document, _chunks(document))
        return known[1]

    def _index(self, folder: Path) -> Index | None:
        for name in ("index.yaml", "index.json"):
            path = folder / name
            try:
                key = _stat_key(path)
            except FileNotFoundError:
                continue
            known = self._indexes.get(path)
            if known is None or known[0] != key:
                known = self._indexes[path] = (key, read_index(path))
            return known[1]
        return None

    def _documents(self, folder: Path) -> list[Found]:
        found = []
        for place in (folder, folder / ARCHIVE):
            if place.is_dir():
                found += [self._head(path) for path in sorted(place.iterdir()) if is_document(path.name)]
        return found

    def _head(self, path: Path) -> Found:
        key = _stat_key(path)
        known = self._heads.get(path)
        if known is None or known[0] != key:
            known = self._heads[path] = (key, _read_head(path))
        return known[1]


def is_document(name: str) -> bool:
    """Tell whether a file's name is a checkpoint document's."""
    return name.endswith(_DOCUMENT_ENDS) and not name.startswith((".", "index.", "task.")) and name != GRAVES


def _chunks(document: Document) -> dict[bytes, Chunk]:
    found: dict[bytes, Chunk] = {}
    for section in document.record.envelope.sections:
        if section.name in document.contents:
            chunks = document.chunks(section.name)
            found.update(chunks)
            if section.root not in chunks:
                data = document.contents[section.name].data
                found[section.root] = Chunk(section.root, 0, len(data), data)
    return found


def _read_head(path: Path) -> Found:
    lines: Any = None
    try:
        lines = _lines(path, head_only=True)
        record, facts = record_of(lines, path.name)
    except IntegrityError as error:
        claimed = lines if isinstance(lines, dict) else {}
        seq, name = claimed.get("seq"), claimed.get("id")
        seq = seq if isinstance(seq, int) and 0 < seq < 1 << 53 else 0
        return Found(path, None, None, error, seq, name if isinstance(name, str) else path.name)
    return Found(path, record, facts, None, record.envelope.seq, record.envelope.id)


def _lines(path: Path, *, head_only: bool = False) -> Any:
    try:
        return files_text.read(path.read_bytes(), path.name, head_only=head_only)
    except ValueError as error:
        raise CheckpointCorrupt(f"{path.name} {error}", path.name) from error


def _graves(folder: Path) -> Graves | None:
    try:
        data = (folder / GRAVES).read_bytes()
    except FileNotFoundError:
        return None
    try:
        graves = msgspec.json.decode(data, type=Graves)
    except msgspec.MsgspecError as error:
        raise CheckpointCorrupt(f"{folder.name}/{GRAVES} is broken ({error}); restore it", folder.name) from error
    for grave in graves.checkpoints:
        if records.seal_tombstone(graves.run, grave.seq, grave.id, bytes.fromhex(grave.checksum)).hex() != grave.seal:
            raise CheckpointCorrupt("what it left when it was deleted does not match its checksum", grave.id)
    return graves


def _state(
    folder: Path, documents: dict[int, Found], graves: Graves | None, by_seq: dict[int, Grave], last: int
) -> RunState:
    sound = next((found for found in documents.values() if found.record and found.facts), None)
    newest = documents.get(last)
    if sound is not None and sound.record and sound.facts:
        run, number, created_at = sound.record.envelope.run, sound.facts.number, sound.facts.created_at
        updated_at = created_at
    elif graves is not None:
        run, number, created_at = graves.run, graves.number, graves.created_at
        updated_at = created_at
    else:
        broken = next(iter(documents.values()))
        raise broken.error or CheckpointCorrupt("no document of its run can be read", folder.name)
    if newest is not None and newest.record:
        updated_at = newest.record.envelope.created_at
    elif last in by_seq:
        updated_at = by_seq[last].created_at
    return RunState(run, number, created_at, updated_at, last, documents, by_seq)


def _stat_key(path: Path) -> _StatKey:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def grave_of(run: str, found: Found, state: RunState) -> Grave:
    """Return what a document leaves when it is deleted."""
    if found.record is None:
        checksum, created_at = bytes(32), state.updated_at
    else:
        checksum, created_at = found.record.checksum, found.record.envelope.created_at
    seal = records.seal_tombstone(run, found.seq, found.id, checksum).hex()
    return Grave(seq=found.seq, id=found.id, checksum=checksum.hex(), seal=seal, created_at=created_at)


def gaps(run: str, state: RunState, lowest: int, upper: int) -> list[IntegrityError]:
    """Return one error for each stretch of numbers that are neither there nor deleted."""
    known = sorted(seq for seq in {*state.documents, *state.graves} if lowest <= seq < upper)
    errors: list[IntegrityError] = []
    before = lowest - 1
    for seq in [*known, upper]:
        if seq > before + 1:
            name = f"{run}@{before + 1}" if seq == before + 2 else f"{run}@{before + 1}..{seq - 1}"
            errors.append(CheckpointCorrupt("vanished from the store without having been deleted", name))
        before = seq
    return errors


def named(error: IntegrityError | None, checkpoint: str) -> CheckpointCorrupt:
    """Return what is wrong with a document as an error of its checkpoint."""
    return CheckpointCorrupt(error.detail if error else "cannot be read", checkpoint)
