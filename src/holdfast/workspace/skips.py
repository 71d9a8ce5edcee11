"""What was not captured, and why: counted exactly, listed up to a limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Skip(NamedTuple):
    """One path that was not captured; a directory stands for everything below it."""

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Skips:
    """The paths that were not captured."""

    listed: tuple[Skip, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def problems(self) -> tuple[Skip, ...]:
        """Return what no rule left out: files that could not be read, changed, are special or too large."""
        return tuple(skip for skip in self.listed if not by_rule(skip.reason))


NO_SKIPS = Skips()


def by_rule(reason: str) -> bool:
    """Return whether a rule of the user or a default asked for it."""
    return reason.startswith(("ignored", "generated", "secret"))


def gather(own: Iterable[Skip], parts: Iterable[Skips], limit: int) -> Skips:
    """Return one list of skips, at most `limit` paths for each reason, and the sums of the counts."""
    listed, counts = list(own), Counter[str]()
    for skip in listed:
        counts[skip.reason] += 1
    for part in parts:
        listed.extend(part.listed)
        counts.update(part.counts)
    if not counts:
        return NO_SKIPS
    seen: Counter[str] = Counter()
    kept: list[Skip] = []
    for skip in listed:
        seen[skip.reason] += 1
        if seen[skip.reason] <= limit:
            kept.append(skip)
    return Skips(tuple(kept), dict(sorted(counts.items())))
