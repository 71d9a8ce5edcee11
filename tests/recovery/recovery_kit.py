"""What recovery tests share: a live object, damage behind the store's back, and pictures of a store and a tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from holdfast import Checkpoint, Holdfast


class Notes:
    """A live object with state."""

    def __init__(self, *lines: str, breaks: bool = False) -> None:
        self.lines = list(lines)
        self.breaks = breaks

    def snapshot(self) -> list[str]:
        return list(self.lines)

    def restore(self, value: list[str]) -> None:
        if self.breaks:
            raise ValueError("these notes take nothing back")
        self.lines = list(value)


def database(place: Path) -> Path:
    return next(Path(place).rglob("*.db"))


def execute(place: Path, statement: str, *values: Any) -> list[Any]:
    connection = apsw.Connection(str(database(place)))
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def damage_record(place: Path, checkpoint: str) -> None:
    """Change a byte of a checkpoint's envelope, so that nothing of it can be read."""
    [[sealed]] = execute(place, "SELECT value FROM checkpoint WHERE id = ?", checkpoint)
    broken = bytes([*sealed[:-1], sealed[-1] ^ 1])
    execute(place, "UPDATE checkpoint SET value = ? WHERE id = ?", broken, checkpoint)


def damage_section(place: Path, checkpoint: Checkpoint, section: str) -> None:
    """Change a byte of a section's root chunk."""
    root = next(record.root for record in checkpoint.record.envelope.sections if record.name == section)
    [[data]] = execute(place, "SELECT data FROM chunk WHERE id = ?", root)
    execute(place, "UPDATE chunk SET data = ? WHERE id = ?", bytes([*data[:-1], data[-1] ^ 1]), root)


def contents(hf: Holdfast) -> dict[str, Any]:
    """Return every run's position and checkpoints with their marks: two equal pictures are an untouched store."""
    return {
        run.id: (run.head, run.last_seq, [(r.envelope.id, r.marks) for r in hf.store.checkpoints(run.id)])
        for run in hf.store.runs()
    }


def tree(root: Path) -> dict[str, Any]:
    """Return every path below a directory with its content and mode."""
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(root.rglob("*"))
        if ".holdfast" not in path.parts and ".git" not in path.parts
    }
