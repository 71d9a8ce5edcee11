"""Names on disk: derived from ids, never the raw id, and no two ids share one, also where case does not count."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.checkpoint import Envelope

_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_.+=@-]{0,99}(?<!\.)\Z")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d|archive|chunks|deleted|index|latest)(\..*)?\Z")
_ODD = re.compile(r"[^A-Za-z0-9_+=@-]+")


def run_name(run: str) -> str:
    """Return the name of a run's folder: the id itself if it is plain, else made plain and marked with its hash."""
    if _PLAIN.match(run) and not _RESERVED.match(run):
        return run
    return f"{_ODD.sub('_', run)[:80]}~{blake3(run.encode()).hexdigest(length=6)}"


def document_name(envelope: Envelope, suffix: str) -> str:
    """Return a checkpoint's file name: phase, time, and the end of its id."""
    at = envelope.summary.phase or envelope.summary.state or envelope.trigger
    phase = _ODD.sub("-", at).strip("-").lower()[:40] or "checkpoint"
    return f"{phase}-{envelope.created_at:%Y%m%dT%H%M%SZ}-{envelope.id[-12:]}{suffix}"


def is_named_for(name: str, checkpoint: str) -> bool:
    """Tell whether a file's name is one that this checkpoint would have."""
    return f"-{checkpoint[-12:]}." in name


class Location:
    """Where below a base each run's folder is: a relative template with `{run}` in one of its parts."""

    def __init__(self, base: Path, template: str) -> None:
        parts = Path(template).parts
        holders = [index for index, part in enumerate(parts) if "{run}" in part]
        if len(holders) != 1 or Path(template).is_absolute() or any(part in ("..", ".") for part in parts):
            raise UsageError(f"location={template!r}: give a relative path with {{run}} in one of its parts")
        self.base = base
        self._above = parts[: holders[0]]
        self._before, _, self._after = parts[holders[0]].partition("{run}")
        self._below = parts[holders[0] + 1 :]

    def of(self, run: str) -> Path:
        """Return a run's folder."""
        return self.base.joinpath(*self._above, f"{self._before}{run_name(run)}{self._after}", *self._below)

    def all(self) -> Iterator[Path]:
        """Yield every folder that may be a run's."""
        above = self.base.joinpath(*self._above)
        if not above.is_dir():
            return
        for entry in sorted(above.iterdir()):
            named = entry.name.startswith(self._before) and entry.name.endswith(self._after)
            if named and not entry.name.startswith(".") and not entry.is_symlink():
                folder = entry.joinpath(*self._below)
                if folder.is_dir():
                    yield folder
