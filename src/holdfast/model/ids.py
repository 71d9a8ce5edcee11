"""Ids: one strict grammar for names that users choose, time-ordered random ids for checkpoints."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from holdfast.errors import InvalidId
from holdfast.lazy import pattern

RESERVED = "_holdfast."
"""How the runs begin that the engine keeps for itself: inboxes and keys; lists hide them."""
_RUN = re.compile(r"(?!(?:latest|before|cp_[0-9a-f]{32})\Z)[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,199}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,199}\Z")
_CHECKPOINT = re.compile(r"cp_[0-9a-f]{32}\Z")
_READABLE = pattern(
    r"(?:.*/)?[^/]*-(?:(?P<time>\d{8}T\d{9})Z-(?:(?P<short>[0-9a-f]{8})|(?P<stage>[A-Za-z][\w.+=-]{0,99}?))"
    r"|(?P<whole>[0-9a-f]{32}))(?:\.(?:yaml|yml|json))?\Z"
)
_ODD = pattern(r"[^A-Za-z0-9_.+=]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_DIGITS, _SHORT_DIGITS = 12, 8


def check_run_id(run: object) -> str:
    """Return a run id that somebody else than the engine chose, or raise InvalidId; every store relies on it.

    What means a checkpoint (RUN@7, RUN:label, latest) can be no run, so that a name never has two meanings.
    """
    if not isinstance(run, str) or not _RUN.match(run) or is_reserved(run):
        raise InvalidId(str(run), "run")
    return run


def is_reserved(run: str) -> bool:
    """Tell whether a run is one of the engine's own: nobody else begins it, and it comes from no other store."""
    return run.startswith(RESERVED)


def check_checkpoint_id(checkpoint: object) -> str:
    """Return the checkpoint id, or raise InvalidId."""
    if not isinstance(checkpoint, str) or not _CHECKPOINT.match(checkpoint):
        raise InvalidId(str(checkpoint), "checkpoint")
    return checkpoint


def check_section_name(name: object) -> str:
    """Return the section name, or raise InvalidId."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidId(str(name), "section")
    return name


def make_checkpoint_id(time_ms: int, entropy: bytes) -> str:
    """Return an id from 48 bits of time and 80 of chance; order comes from `seq`, the time is for index locality."""
    return f"cp_{time_ms & (1 << 48) - 1:012x}{entropy[:10].hex()}"


def readable_id(checkpoint: str, what: str) -> str:
    """Return a checkpoint's name for people: its phase or trigger, its time, and the digits that lists show of it.

    `checkpoint_of_name` leads back from it: time and digits are the beginning of the id.
    """
    digits = check_checkpoint_id(checkpoint).removeprefix("cp_")
    word = _ODD.sub("-", what).strip("-.").lower()[:40] or "checkpoint"
    short = digits[_TIME_DIGITS : _TIME_DIGITS + _SHORT_DIGITS]
    time = _time_text(int(digits[:_TIME_DIGITS], 16))
    return f"{word}-{time}Z-{short}" if time else f"{word}-{digits}"


def stage_id(checkpoint: str, task: str, stage: str) -> str:
    """Return a checkpoint's name of the form task, time, stage."""
    time = _time_text(int(check_checkpoint_id(checkpoint)[3 : 3 + _TIME_DIGITS], 16))
    return f"{task}-{time}Z-{stage}" if time else f"{task}-{checkpoint.removeprefix('cp_')}"


def checkpoint_of_name(name: str) -> str | None:
    """Return how the id of the checkpoint begins that a readable name, or a file of that name, is for; None for others.

    Store.find has the ids that begin so: one, unless two were taken in the same millisecond and the name has a stage
    in the place of digits.
    """
    found = _READABLE.match(name) if len(name) < 4096 else None  # noqa: PLR2004 - no path is longer
    if found is None:
        return None
    if found["whole"]:
        return f"cp_{found['whole']}"
    try:
        time = datetime.strptime(found["time"] + "000+0000", "%Y%m%dT%H%M%S%f%z")
    except ValueError:
        return None
    return f"cp_{(time - _EPOCH) // timedelta(milliseconds=1):0{_TIME_DIGITS}x}{found['short'] or ''}"


def _time_text(time_ms: int) -> str:
    """Return a time to the millisecond, empty for one that no calendar has."""
    try:
        time = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return ""
    return f"{time:%Y%m%dT%H%M%S}{time.microsecond // 1000:03d}"


def is_in_git(*paths: str) -> bool:
    """Tell whether a path has a folder on it that a file system could take for `.git`: what lies there may be run."""
    parts = (part.rstrip(". ").lower() for path in paths for part in path.split("/"))
    return any(part in (".git", "git~1") for part in parts)
