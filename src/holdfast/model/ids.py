"""Ids: one strict grammar for names that users choose, time-ordered random ids for checkpoints."""

from __future__ import annotations

import re

from holdfast.errors import InvalidId

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,199}\Z")
_CHECKPOINT = re.compile(r"cp_[0-9a-f]{32}\Z")


def check_run_id(run: object) -> str:
    """Return the run id, or raise InvalidId; every store relies on this grammar."""
    if not isinstance(run, str) or not _NAME.match(run):
        raise InvalidId(str(run), "run")
    return run


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
