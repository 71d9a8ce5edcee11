"""Ownership of file changes: who left a path as it is now.

What was captured while a run's process worked is the run's. What changed between two captures is placed by its time of
change (ctime: mtime survives `mv`, `cp -p` and tar, so it proves nothing) against the process's last sign of life. A
deleted file has no time, and its directory's moves with the next change there: the sign of life names what was gone.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.workspace.heartbeat import BEAT_S, SignOfLife

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast.workspace.state import State

EDITS = "edits"
"""The section that says what people left in the directory."""
Owner = Literal["run", "interrupted", "person", "unknown"]
_MAX_BYTES = 64 * 1024 * 1024
_UNSURE_NS = int(BEAT_S * 1e9)  # so long after its last sign of life a process may still have worked
_SAME_MOMENT_NS = 20_000_000  # one change stamps a file and its directory within a tick of the kernel's clock


@dataclass(frozen=True, slots=True)
class Ownership:
    """What is known of who works in a directory: the run's last process, and what people left there."""

    life: SignOfLife | None = None
    edits: Mapping[str, str] = field(default_factory=dict)
    """What a person left at each path, as `fingerprint` gives it."""
    tree: str = ""
    """The tree that was captured last: what a sign of life names as gone from another one says nothing of now."""

    @property
    def interrupted(self) -> str:
        """What was interrupted, for people."""
        return self.life.interrupted if self.life is not None else ""

    def of_captured(self, path: str, now: State) -> Owner:
        """Return who left a path that is as it was captured."""
        return "person" if self.edits.get(path) == fingerprint(now) else "run"

    def of_changes(self, root: str, changed: Iterable[bytes]) -> dict[bytes, Owner]:
        """Return who changed each of all the paths that changed since they were captured."""
        life = self.life
        if life is None or life.is_mine:  # beside a process that is at work, somebody may have edited as well
            return dict.fromkeys(changed, "unknown")
        top = os.fsencode(root)
        found: dict[bytes, Owner] = {}
        named = life.gone if life.tree == self.tree else ()
        gone_then = frozenset(path.encode("latin-1", "replace") for path in named)
        gone: dict[bytes, dict[bytes, bytes]] = {}  # by the directory that is left, each path with what went with it
        for path in changed:
            try:
                changed_ns = os.lstat(os.path.join(top, path)).st_ctime_ns  # noqa: PTH118 - bytes
            except OSError:
                if any(one in gone_then for one in _with_parents(path)):  # seen to be gone while the process lived
                    found[path] = "run" if life.has_ended else "interrupted"
                    continue
                left, name = _left(top, path)
                gone.setdefault(left, {})[path] = name
                continue
            found[path] = _placed(life, changed_ns, is_sure=True)
        for left, below in gone.items():
            changed_ns, is_explained = _directory_changed_at(os.path.join(top, left))  # noqa: PTH118
            # A directory has one stamp: of several things that went from it, nobody can say which went last.
            is_sure = not is_explained and len(set(below.values())) == 1
            found |= dict.fromkeys(below, _placed(life, changed_ns, is_sure=is_sure))
        return found


def _placed(life: SignOfLife, changed_ns: int, *, is_sure: bool) -> Owner:
    """Return who made a change at this time."""
    if changed_ns <= life.last_ns:
        return "run" if life.has_ended else "interrupted"
    if life.has_ended:
        return "person"
    return "person" if is_sure and changed_ns > life.last_ns + _UNSURE_NS else "unknown"


def _with_parents(path: bytes) -> Iterator[bytes]:
    """Yield a path and the directories above it."""
    while path:
        yield path
        path = path.rpartition(b"/")[0]


def _left(top: bytes, path: bytes) -> tuple[bytes, bytes]:
    """Return the nearest directory above a path that is still there, and the name in it that is gone."""
    above, _, name = path.rpartition(b"/")
    while above and not os.path.isdir(os.path.join(top, above)):  # noqa: PTH112, PTH118
        above, _, name = above.rpartition(b"/")
    return above, name


def fingerprint(state: State) -> str:
    """Return a short text that is equal for equal states of a path."""
    return f"{state.kind}:{state.mode:o}:{state.hash}{state.target}"


def edits_value(edits: Mapping[str, str]) -> dict[str, bytes]:
    """Return what people left as the section's value: packed, so that redaction has no text to change in it."""
    text = json.dumps(dict(edits), sort_keys=True, separators=(",", ":"))
    return {"packed": zlib.compress(text.encode("ascii"), 1)}


def read_edits(value: object) -> dict[str, str]:
    """Return what a stored section says that people left; what is stored is not trusted."""
    packed = value.get("packed") if isinstance(value, dict) else None
    if not isinstance(packed, bytes):
        return {}
    try:
        return msgspec.convert(json.loads(zlib.decompressobj().decompress(packed, _MAX_BYTES)), dict[str, str])
    except (zlib.error, ValueError, RecursionError, msgspec.ValidationError):
        return {}


def _directory_changed_at(place: bytes) -> tuple[int, bool]:
    """Return when a directory changed last, and whether something that is in it tells why."""
    try:
        changed_ns = os.lstat(place).st_ctime_ns
        with os.scandir(place) as entries:
            others = [entry.stat(follow_symlinks=False).st_ctime_ns for entry in entries if entry.name != b".holdfast"]
    except OSError:
        return 2**63, True  # nobody can tell
    return changed_ns, any(abs(other - changed_ns) <= _SAME_MOMENT_NS for other in others)
