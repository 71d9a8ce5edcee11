"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

with lazily():
    import difflib

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 30


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: the nearest known name, or those that there are."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    if not names:
        return "there is none yet"
    return "there are " + ", ".join(map(repr, names[:_SHOWN])) + (" ..." if len(names) > _SHOWN else "")
