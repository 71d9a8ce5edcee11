"""Ids: one strict grammar for names that users choose, time-ordered random ids for checkpoints."""

from __future__ import annotations

import re

from holdfast.errors import InvalidId

RESERVED = "_holdfast."
"""How the runs begin that the engine keeps for itself: inboxes and keys; lists hide them."""
_RUN = re.compile(r"(?!(?:latest|before|cp_[0-9a-f]{32})\Z)[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,199}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,199}\Z")
_CHECKPOINT = re.compile(r"cp_[0-9a-f]{32}\Z")


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
