"""The journal of a restore: written and synced whole before the first swap, so that its finder can finish or undo.

It carries a MAC under a key that only this user has, outside of every workspace: a journal that came with a repository
is not carried out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat as modes
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.errors import RestoreRefused
from holdfast.workspace import paths
from holdfast.workspace.descriptors import OPEN_FILE
from holdfast.workspace.state import ABSENT, State
from holdfast.workspace.user_key import user_key

if TYPE_CHECKING:
    from holdfast.workspace.ops import FileOps

NAME = b"journal"
DONE = b"done"
UNDONE = b"undone"
_DRAFT = b"journal.tmp"
_MAX_BYTES = 1024 * 1024 * 1024
_MAC_BYTES = 32
_STEP = 1024 * 1024


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


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All steps, in order."""

    plan: str
    moves: tuple[Move, ...]
    format: int = 2


def write(directory: int, restore: bytes, journal: Journal, ops: FileOps) -> None:
    """Make the journal of the restore with this name durable, under its name only when it is whole."""
    data = json.dumps(msgspec.to_builtins(journal), separators=(",", ":")).encode("ascii")
    handle = ops.create(directory, _DRAFT)
    try:
        ops.write(handle, _mac(restore, data) + data)
        ops.sync(handle)
    finally:
        os.close(handle)
    ops.rename(directory, _DRAFT, directory, NAME)
    ops.sync(directory)


def read(directory: int, restore: bytes, name: bytes = NAME) -> Journal | None:
    """Return the journal of an interrupted restore, or None if none was written.

    RestoreRefused if this user did not write it for this very restore, or if it is damaged.
    """
    try:
        handle = os.open(name, OPEN_FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _foreign(restore) from error
    with open(handle, "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(handle)
        if not modes.S_ISREG(status.st_mode) or not _MAC_BYTES < status.st_size <= _MAX_BYTES:
            raise _foreign(restore)
        # Authenticated in small steps before it is taken into memory: a foreign one may have any size.
        told, mac = file.read(_MAC_BYTES), _begun(restore)
        while data := file.read(_STEP):
            mac.update(data)
        if not hmac.compare_digest(told, mac.digest()):
            raise _foreign(restore)
        file.seek(_MAC_BYTES)
        data = file.read(_MAX_BYTES)
    try:
        journal = msgspec.convert(json.loads(data), Journal)
        for move in journal.moves:
            paths.split(move.path)
    except (ValueError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"the journal of an interrupted restore is damaged ({error})") from error
    return journal


def _mac(restore: bytes, data: bytes) -> bytes:
    mac = _begun(restore)
    mac.update(data)
    return mac.digest()


def _begun(restore: bytes) -> hmac.HMAC:
    return hmac.new(user_key(), b"holdfast restore journal\0" + restore + b"\0", hashlib.sha256)


def _foreign(restore: bytes) -> RestoreRefused:
    place = f".holdfast/{paths.in_a_line(paths.text(restore))}"
    return RestoreRefused(
        f"{place} says that a restore was interrupted, but this user did not begin it, so it is not carried out. "
        f"If it came with the files, delete {place}; if you began it elsewhere, what it set aside is in {place}/old"
    )
