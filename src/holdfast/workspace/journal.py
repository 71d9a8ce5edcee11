"""The journal of a restore: written and synced whole before the first swap, so that its finder can finish or undo."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import RestoreRefused
from holdfast.workspace import paths
from holdfast.workspace.state import ABSENT, State

if TYPE_CHECKING:
    from holdfast.workspace.ops import FileOps

NAME = b"journal"
DONE = b"done"
UNDONE = b"undone"
_DRAFT = b"journal.tmp"
_MAX_BYTES = 1024 * 1024 * 1024


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step of the swap.

    take: the path is moved to `old/slot` and must be what was expected. put: `new/slot` is placed at the path, at which
    there must be nothing; `expect` is what is placed, so that an undo sees what others changed since. tree: the same
    with a directory and all below it. mkdir, rmdir, chmod: of a directory.
    """

    do: Literal["take", "put", "tree", "mkdir", "rmdir", "chmod"]
    path: str
    slot: int = 0
    expect: State = ABSENT
    mode: int = 0
    was: int = 0
    count: int = 0  # only in journals of earlier versions


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All steps, in order."""

    plan: str
    moves: tuple[Move, ...]
    format: int = 1


def write(directory: int, journal: Journal, ops: FileOps) -> None:
    """Make the journal durable, under its name only when it is whole."""
    data = json.dumps(msgspec.to_builtins(journal), separators=(",", ":")).encode("ascii")
    handle = ops.create(directory, _DRAFT)
    try:
        ops.write(handle, data)
        ops.sync(handle)
    finally:
        os.close(handle)
    ops.rename(directory, _DRAFT, directory, NAME)
    ops.sync(directory)


def read(directory: int) -> Journal | None:
    """Return the journal of an interrupted restore, or None if none was written; RestoreRefused if it is damaged."""
    try:
        handle = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor
        data = file.read(_MAX_BYTES)
    try:
        journal = msgspec.convert(json.loads(data), Journal)
        for move in journal.moves:
            paths.split(move.path)
    except (ValueError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"the journal of an interrupted restore is damaged ({error})") from error
    return journal
