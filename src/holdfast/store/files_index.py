"""A run at a glance, for people and tools: its index, `latest`, and all of a task in one file.

None of it is the truth: it is written after every change, and made anew when it is missing, stale or broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from holdfast.store import files_text
from holdfast.store.files_document import lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.store.files_disk import Disk
    from holdfast.store.files_run import Found, RunReader, RunState


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the index."""

    seq: int
    id: str
    file: str
    trigger: str
    state: str | None
    created_at: str
    status: str
    label: str | None


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """A run's checkpoints at a glance, newest first."""

    run: str
    last_seq: int
    last_modified: str
    seal: str
    checkpoints: list[IndexEntry]


def make_index(state: RunState, folder: Path) -> Index:
    """Return the index of a run as it was found."""
    entries = [
        IndexEntry(
            seq=found.seq, id=found.id, file=str(found.path.relative_to(folder)),
            trigger=found.record.envelope.trigger, state=found.record.envelope.summary.state,
            created_at=found.record.envelope.created_at.isoformat(), status=found.record.marks.status,
            label=found.record.marks.label,
        )
        for _, found in sorted(state.documents.items(), reverse=True)
        if found.record is not None
    ]  # fmt: skip
    modified = state.updated_at.isoformat()
    seal = _index_seal(state.run, state.last_seq)
    return Index(run=state.run, last_seq=state.last_seq, last_modified=modified, seal=seal, checkpoints=entries)


def _index_seal(run: str, last_seq: int) -> str:
    return blake3(f"{run}\0{last_seq}".encode()).hexdigest(length=8)


def read_index(path: Path) -> Index | None:
    """Return an index that is sound, None for anything else."""
    try:
        index = msgspec.convert(files_text.read(path.read_bytes(), path.name), Index)
    except (OSError, ValueError):
        return None
    return index if index.seal == _index_seal(index.run, index.last_seq) else None


def known_by_index(found: Found, index: Index | None) -> Found:
    """Return a broken document with the number and id that the index had for it, if its own are gone."""
    for entry in index.checkpoints if index else ():
        if entry.file.rpartition("/")[2] == found.path.name:
            return found._replace(seq=entry.seq, id=entry.id)
    return found


class Overview:
    """Writes what stands beside a run's documents."""

    def __init__(self, disk: Disk, reader: RunReader, form: files_text.Form, *, task_file: bool) -> None:
        self._disk = disk
        self._reader = reader
        self._form = form
        self._task_file = task_file

    def refresh(self, folder: Path) -> None:
        """Write index and `latest` anew; they are no truth, so a disk that refuses now is no failure of the call."""
        state = self._reader.state(folder)
        if state is None:
            return
        index = msgspec.to_builtins(make_index(state, folder))
        try:
            self._disk.put(folder / f"index.{self._form}", files_text.write(index, self._form, "none"))
            if self._task_file:
                self._disk.put(folder / f"task.{self._form}", self._task(state))
            if state.documents:
                newest = state.documents[max(state.documents)].path
                self._disk.link(folder / "latest", str(newest.relative_to(folder)))
        except OSError:
            return

    def _task(self, state: RunState) -> bytes:
        """Return all checkpoints of a run as one versioned document, newest first: a file a task."""
        sound = [found for _, found in sorted(state.documents.items(), reverse=True) if found.record]
        lines = {
            "task": state.run,
            "version": state.last_seq,
            "last_modified": state.updated_at.isoformat(),
            "checkpoints": [lines_of(self._reader.document(found.path)) for found in sound],
        }
        return files_text.write(lines, self._form, "none")
