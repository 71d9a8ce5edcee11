"""Names on disk: derived from ids, never the raw id, and no two ids share one, also where case does not count."""

from __future__ import annotations

import re

from blake3 import blake3

_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_.+=@-]{0,99}(?<!\.)\Z")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d|archive|chunks|deleted|index|latest)(\..*)?\Z")
_ODD = re.compile(r"[^A-Za-z0-9_+=@-]+")


def run_name(run: str) -> str:
    """Return the name of a run's folder: the id itself if it is plain, else made plain and marked with its hash."""
    if _PLAIN.match(run) and not _RESERVED.match(run):
        return run
    return f"{_ODD.sub('_', run)[:80]}~{blake3(run.encode()).hexdigest(length=6)}"
