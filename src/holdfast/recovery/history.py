"""History of a run's files: which calls made each tree, each version of a file, and each line of it.

It stands on the checkpoints that hold files. Where some between two are gone, all calls of the stretch are named.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode.chunks import ChunkReader
from holdfast.encode.tree import Ref
from holdfast.errors import IntegrityError, NotFound, UsageError
from holdfast.journal.call_record import is_work
from holdfast.model.checkpoint import CheckpointRecord
from holdfast.model.ids import check_run_id
from holdfast.model.sections import WORKSPACE
from holdfast.recovery.gather import steps_of
from holdfast.recovery.line import RunLine
from holdfast.workspace import snapshot as snapshots
from holdfast.workspace.directory import FILE
from holdfast.workspace.ownership import EDITS, fingerprint, read_edits
from holdfast.workspace.state import State
from holdfast.workspace.tree import look_up, near_paths, pieces, walk

if TYPE_CHECKING:
    from holdfast.engine import Holdfast
    from holdfast.workspace.directory import Entry
    from holdfast.workspace.snapshot import Snapshot

_MOST_BYTES = 8 * 1024 * 1024
_LONGEST_PROMPT = 200
_BEFORE = "before the run"


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """Who made what is new in a checkpoint: calls and agents of the run, or a person; with what it cost."""

    checkpoint: str
    seq: int
    at: datetime
    by: str
    """The calls, or `you` for a person, or `before the run`."""
    calls: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    prompt: str = ""
    """What the last of the agents was given, shortened."""
    tokens: int = 0
    duration_s: float = 0.0
    phase: str | None = None

    def __str__(self) -> str:
        cost = [f"{self.tokens:,} tokens"] * bool(self.tokens) + [f"{self.duration_s:.1f} s"] * (self.duration_s >= 0.1)  # noqa: PLR2004
        agents = f" (agent {', '.join(self.agents)})" if self.agents else ""
        return f"{self.by}{agents}" + (f", {', '.join(cost)}" if cost else "")


class FileVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a file: who made it, and what became of it."""

    author: Author
    status: str
    """created, changed or deleted."""
    size: int = 0


class BlamedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file as it is now, and who wrote it."""

    number: int
    text: str
    author: Author


@dataclass(frozen=True, slots=True)
class Moment:
    """A checkpoint whose files are not those of the one before."""

    record: CheckpointRecord
    snapshot: Snapshot
    before: CheckpointRecord | None


class FileHistory:
    """The trees of one run, oldest first."""

    def __init__(self, hf: Holdfast, run: str) -> None:
        self._hf = hf
        self.run = check_run_id(run)
        self.reader = ChunkReader(hf.store.fetch)

    @cached_property
    def moments(self) -> list[Moment]:
        """Every checkpoint of the run's line at which the files changed, oldest first."""
        rows = [row for row in RunLine(self._hf.store, self.run).line() if isinstance(row, CheckpointRecord)]
        found: list[Moment] = []
        before: CheckpointRecord | None = None
        seen: bytes | None = None
        for record in reversed(rows):
            section = next((one for one in record.envelope.sections if one.name == WORKSPACE), None)
            if section is not None and section.root != seen:
                seen = section.root
                try:
                    snapshot = snapshots.load(self.reader, Ref(section.kind, section.size, section.root))
                except IntegrityError:
                    continue  # what is damaged cannot say anything: the stretch is longer
                if not found or found[-1].snapshot.root != snapshot.root:
                    found.append(Moment(record, snapshot, before))
                before = record
            else:
                before = record if section is not None else before
        if not found:
            raise UsageError(f"run {self.run!r} has no checkpoint with files: open it with workspace=directory")
        return found

    def versions(self, path: str) -> list[FileVersion]:
        """Return what became of a file, oldest first; NotFound if no checkpoint has it."""
        return [
            FileVersion(author=author, status=status, size=entry.size if entry is not None else 0)
            for author, status, entry in self._changes(path)
        ]

    def is_moved(self, path: str) -> bool:
        """Tell whether a call of the run took a file away, and its content came under another name with that."""
        changes = self._changes(path)
        author, status, _ = changes[-1]
        if status != "deleted" or not author.calls:
            return False
        last = State.of(changes[-2][2])
        if not last.size:  # an empty file is like any other
            return False
        number = next(n for n, one in enumerate(self.moments) if one.record.envelope.id == author.checkpoint)
        trees = (walk(self.reader, self.moments[n].snapshot.root) for n in (number - 1, number))
        before, after = ({name for name, entry in tree if State.of(entry) == last} for tree in trees)
        return not after <= before

    def blame(self, path: str) -> list[BlamedLine]:
        """Return the lines of a file as its last checkpoint has it, each with who wrote it."""
        lines: list[str] = []
        authors: list[Author] = []
        for author, _, entry in self._changes(path):
            new = self._lines(path, entry)
            matcher = difflib.SequenceMatcher(a=lines, b=new, autojunk=False)
            kept = [author] * len(new)
            for block in matcher.get_matching_blocks():
                kept[block.b : block.b + block.size] = authors[block.a : block.a + block.size]
            lines, authors = new, kept
        return [
            BlamedLine(number=number, text=text, author=author)
            for number, (text, author) in enumerate(zip(lines, authors, strict=True), 1)
        ]

    def author(self, moment: Moment, path: str | None = None, entry: Entry | None = None) -> Author:
        """Return who made what a moment has and the one before has not; of one path, or of the tree."""
        envelope = moment.record.envelope
        known = Author(checkpoint=envelope.id, seq=envelope.seq, at=envelope.created_at, by=_BEFORE)
        if moment is self.moments[0]:
            return known
        if path is not None and self._edits(moment.record).get(path) == fingerprint(State.of(entry)):
            return msgspec.structs.replace(known, by="you")
        since = moment.before.envelope if moment.before is not None else None
        records = self.calls[since.summary.steps if since is not None else 0 : envelope.summary.steps]
        done = [one for one in records if one.get("event") in ("done", "failed") and is_work(one)]
        calls = tuple(dict.fromkeys(one["step"] for one in done))
        agents, prompt = self._agents(moment, since.created_at if since is not None else None)
        return msgspec.structs.replace(
            known,
            by=", ".join(calls) or envelope.reason or envelope.trigger,
            calls=calls,
            agents=agents,
            prompt=prompt,
            tokens=sum(_tokens(one.get("result")) for one in done),
            duration_s=sum(one.get("duration_s") or 0.0 for one in done),
            phase=envelope.summary.phase,
        )

    def _changes(self, path: str) -> list[tuple[Author, str, Entry | None]]:
        found: list[tuple[Author, str, Entry | None]] = []
        last: Entry | None = None
        for moment in self.moments:
            entry = look_up(self.reader, moment.snapshot.root, path)
            if entry is not None and entry.kind != FILE:
                raise UsageError(f"{path!r} is not a file: name one")
            if State.of(entry) == State.of(last):
                continue
            status = "created" if last is None else "deleted" if entry is None else "changed"
            found.append((self.author(moment, path, entry), status, entry))
            last = entry
        if not found:
            names = [name.decode("utf-8", "replace") for name, _ in walk(self.reader, self.moments[-1].snapshot.root)]
            raise NotFound("captured file", path, near_paths(path, names))
        return found

    def _lines(self, path: str, entry: Entry | None) -> list[str]:
        if entry is not None and entry.size > _MOST_BYTES:
            raise UsageError(f"{path!r} has {entry.size:,} bytes: blame reads files up to {_MOST_BYTES:,}")
        data = b"".join(pieces(self.reader, entry.ref)) if entry is not None else b""
        return data.decode("utf-8", "replace").splitlines()

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """Every record of a call on the run's path, oldest first."""
        return [
            one for one in steps_of(self._hf.latest(self.run, required=True)) if isinstance(one, dict) and "step" in one
        ]

    def _edits(self, record: CheckpointRecord) -> dict[str, str]:
        checkpoint = self._hf.internals.opened(record)
        return read_edits(checkpoint.section(EDITS)) if EDITS in checkpoint.sections else {}

    def _agents(self, moment: Moment, since: datetime | None) -> tuple[tuple[str, ...], str]:
        """Return the agents that ended between two checkpoints, and what the last of them was given."""
        checkpoint = self._hf.internals.opened(moment.record)
        agents = checkpoint.section("agents") if "agents" in checkpoint.sections else ()
        ended = [one for one in agents if one.completed_at is not None and (since is None or one.completed_at >= since)]
        prompt = f"{ended[-1].input}"[:_LONGEST_PROMPT] if ended and ended[-1].input is not None else ""
        return tuple(one.id for one in ended), prompt


def _tokens(result: Any) -> int:
    found = result.get("tokens") if isinstance(result, dict) else None
    return found if isinstance(found, int) else 0
