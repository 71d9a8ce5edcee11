"""The state of one path, in a checkpoint or on disk, as a plain value that a plan can show, save and compare."""

from __future__ import annotations

import os
import stat as modes
from typing import TYPE_CHECKING, Literal

import msgspec
from blake3 import blake3

from holdfast.encode.tree import LEAF, NODE, Ref
from holdfast.workspace.contents import NotCaptured, read_file
from holdfast.workspace.directory import DIRECTORY, FILE, LINK, Entry
from holdfast.workspace.paths import text
from holdfast.workspace.sink import Sink
from holdfast.workspace.tree import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

Kind = Literal["absent", "file", "directory", "link", "other"]
_KINDS: dict[int, Kind] = {FILE: "file", DIRECTORY: "directory", LINK: "link"}


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is at a path; `hash` and `cut` name a file's content in the store."""

    kind: Kind = "absent"
    mode: int = 0
    size: int = 0
    hash: str = ""
    cut: bool = False
    target: str = ""

    @classmethod
    def of(cls, entry: Entry | None) -> Self:
        """Return the state of a captured entry; a directory without what it holds."""
        if entry is None:
            return cls()
        if entry.kind == FILE and entry.ref is not None:
            return cls("file", entry.mode, entry.ref.size, entry.ref.id.hex(), cut=entry.ref.kind == NODE)
        return cls(_KINDS[entry.kind], entry.mode, target=text(entry.target))

    def ref(self) -> Ref | None:
        """Return the reference of a file's content; None for an empty one."""
        if not self.hash:
            return None
        return Ref(NODE if self.cut else LEAF, self.size, bytes.fromhex(self.hash))


ABSENT = State()
OTHER = State("other")


def tree_state(below: Iterable[tuple[bytes, State]]) -> State:
    """Return one state for a directory and everything below it, equal when every path and state is."""
    lines = sorted(path + b"\0" + repr(msgspec.structs.astuple(state)).encode() + b"\0" for path, state in below)
    return State("directory", size=len(lines), hash=blake3(b"".join(lines)).hexdigest())


def on_disk(directory: int, name: bytes) -> State:
    """Return the state of one name in an open directory; a file is read and named as a capture would name it."""
    try:
        status = os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return ABSENT
    mode = modes.S_IMODE(status.st_mode) & 0o777
    if modes.S_ISLNK(status.st_mode):
        return State("link", target=text(os.readlink(name, dir_fd=directory)))
    if modes.S_ISDIR(status.st_mode):
        return State("directory", mode)
    if not modes.S_ISREG(status.st_mode):
        return OTHER
    try:
        ref, _, _ = read_file(directory, name, Sink(Scratch()), limit=status.st_size)
    except (NotCaptured, OSError):
        return OTHER
    return State.of(Entry(name, FILE, mode, ref))
