"""Where symbolic links lead once a restore is done: resolved name by name, as the kernel would resolve them."""

from __future__ import annotations

import os
import stat as modes
from typing import TYPE_CHECKING

from holdfast.workspace.descriptors import OPEN_DIRECTORY, open_parent_below
from holdfast.workspace.directory import LINK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.workspace.directory import Entry

_MAX_LINKS = 40  # as many as the kernel follows
_MAX_TARGET = 4095


class PlannedTree:
    """A workspace as it will be: what the plan says of a path, else what is on disk, captured or not."""

    def __init__(self, root: str, planned: Mapping[bytes, Entry | None]) -> None:
        self._root = os.open(root, OPEN_DIRECTORY)
        self._planned = planned
        self._known: dict[bytes, bytes | None] = {}

    def close(self) -> None:
        """Give the directory back."""
        os.close(self._root)

    def leads_out(self, link: bytes, target: bytes) -> set[bytes] | None:
        """Return the links over which a link with this target leaves the workspace, None if it stays inside."""
        over: set[bytes] = set()
        if target.startswith(b"/") or len(target) > _MAX_TARGET:
            return over
        place = link.split(b"/")[:-1]
        waiting = target.split(b"/")[::-1]
        followed = 0
        while waiting:
            name = waiting.pop()
            if name == b"..":
                if not place:
                    return over
                place.pop()
            elif name not in (b"", b"."):
                place.append(name)
                path = b"/".join(place)
                further = self._target(path)
                if further is not None:
                    over.add(path)
                    followed += 1
                    if further.startswith(b"/") or len(further) > _MAX_TARGET:
                        return over
                    if followed > _MAX_LINKS:
                        return None  # the kernel would give up here, too
                    place.pop()
                    waiting += further.split(b"/")[::-1]
        return None

    def _target(self, path: bytes) -> bytes | None:
        """Return where the link at a path will lead, None if there will be none."""
        if path in self._planned:
            entry = self._planned[path]
            return entry.target if entry is not None and entry.kind == LINK else None
        if path not in self._known:
            self._known[path] = self._on_disk(path)
        return self._known[path]

    def _on_disk(self, path: bytes) -> bytes | None:
        try:
            parent, name = open_parent_below(self._root, path)
        except OSError:
            return None
        try:
            status = os.lstat(name, dir_fd=parent)
            return os.readlink(name, dir_fd=parent) if modes.S_ISLNK(status.st_mode) else None
        except OSError:
            return None
        finally:
            os.close(parent)
