"""Who is at the keyboard, for the record of answers and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def me(environment: Mapping[str, str]) -> str:
    """Return the name of the person, as the environment has it."""
    return environment.get("USER") or environment.get("LOGNAME") or ""
