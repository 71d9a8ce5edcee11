"""Outcomes: what is stored where a section shows the result of a call, whose only owner is the call's record."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """The result of a call, or a part of it, by path and version; a reader gets what the record has."""

    path: str
    version: str
    keys: tuple[str, ...] = ()
    """Where in the result it stands."""
    is_summary: bool = False
    """Whether it is shown in short."""
