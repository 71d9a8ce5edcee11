"""Stamps: what `stat` said of every captured directory and file, to see without reading that nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.workspace import paths
from holdfast.workspace.known_directory import Known

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stamp(NamedTuple):
    """One directory: its path below the root, its own key, its files by name, and each file's size and change time."""

    path: bytes
    key: tuple[int, ...]
    names: list[bytes]
    files: list[tuple[int, int]]


class _Unknown(Exception):
    """Something of the tree cannot be judged by `stat` alone."""


def stamps_of(known: Known) -> list[Stamp] | None:
    """Return the stamps of a tree; None if a change in it could leave them as they are.

    That is so for what changed too shortly before it was read, for a repository below the root, whose position is not
    among the stamps, and for an ignore file that is itself ignored.
    """
    try:
        return list(_stamps(known, b""))
    except _Unknown:
        return None


def _stamps(known: Known, path: bytes) -> Iterator[Stamp]:
    hidden = any(name not in known.names for name in known.ignore_files)
    if known.key is None or hidden or (known.has_git and path):
        raise _Unknown
    files = []
    for mark in known.stamps:
        if mark is None:
            raise _Unknown
        files.append((mark >> 64, mark & (1 << 64) - 1))
    yield Stamp(path, known.key, known.names, files)
    for name, child in known.children.items():
        if not isinstance(child, Known):
            raise _Unknown  # it could not be read: it may be able to be by now
        yield from _stamps(child, paths.join(path, name))
