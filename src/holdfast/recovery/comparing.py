"""Any two checkpoints beside each other: state by structure, files by content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.model.sections import WORKSPACE
from holdfast.recover.compare import StateDiff, compare_sections
from holdfast.recovery.gather import find

if TYPE_CHECKING:
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.workspace.compare import Change
    from holdfast.workspace.diff import FileDiff


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """What differs between two checkpoints, the old one first; files are read when they are asked for."""

    old: Checkpoint
    new: Checkpoint
    state: StateDiff

    def __bool__(self) -> bool:
        return bool(self.state)

    @property
    def has_files(self) -> bool:
        """Whether there are files to compare: both differ, and the new one holds some."""
        return self.state.files_differ and WORKSPACE in self.new.sections

    def file_changes(self) -> list[Change]:
        """Return the paths that differ."""
        return self.new.changes(self.old) if self.has_files else []

    def file_diffs(self) -> list[FileDiff]:
        """Return the same as unified diffs."""
        return self.new.diff(self.old) if self.has_files else []

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data for JSON, files as paths with what became of them."""
        files = [{"path": change.path, "status": change.status} for change in self.file_changes()]
        return {**self.state.to_json(), "files": files}

    def lines(self) -> list[str]:
        """Say it in words, a line each."""
        told = self.state.lines() if self.state.sections or not self.state.files_differ else []
        if self.state.files_differ and not self.has_files:
            told.append("the new one holds no files")
        return [*told, *(f"{change.status} {change.path!r}" for change in self.file_changes())]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def diff(hf: Holdfast, old: str, new: str, *, run: str | None = None) -> CheckpointDiff:
    """Compare two checkpoints, of one run or of two."""
    before, after = (find(hf, spec, run=run, sound=False) for spec in (old, new))
    return CheckpointDiff(before, after, _state(before, after))


def _state(old: Checkpoint, new: Checkpoint) -> StateDiff:
    return compare_sections(
        old.record.envelope.sections,
        new.record.envelope.sections,
        old.section,
        new.section,
        names=(old.id, new.id),
    )
