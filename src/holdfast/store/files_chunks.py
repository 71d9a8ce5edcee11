"""Chunks as files of their own, for sections that are no document: one folder a run, named by hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.encode.chunks import Chunk, verified
from holdfast.encode.tree import LEAF, NODE
from holdfast.errors import ChunkCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from holdfast.store.files_disk import Disk

_HEADER_BYTES = 5
_NAME_CHARS = 64


class ChunkFiles:
    """Chunk files of runs: five bytes of codec and plain size, then the stored bytes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def put(self, folder: Path, chunks: Sequence[Chunk]) -> None:
        """Store chunks durably; one that is there is kept, or mended if its bytes differ."""
        if chunks:
            self._disk.make_folder(folder)
        for chunk in chunks:
            path = folder / chunk.id.hex()
            data = bytes([chunk.codec]) + chunk.size.to_bytes(4, "big") + chunk.data
            if not path.exists() or path.read_bytes() != data:
                self._disk.put(path, data)

    def get(self, folder: Path, names: Iterable[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there."""
        found = {}
        if folder.is_dir():
            for name in names:
                try:
                    data = (folder / name.hex()).read_bytes()
                except FileNotFoundError:
                    continue
                size = int.from_bytes(data[1:_HEADER_BYTES], "big")
                found[name] = Chunk(name, data[0] if data else 0, size, data[_HEADER_BYTES:])
        return found

    def names(self, folder: Path) -> set[bytes]:
        """Return the names of all chunks in a folder."""
        if not folder.is_dir():
            return set()
        return {bytes.fromhex(path.name) for path in folder.iterdir() if len(path.name) == _NAME_CHARS}

    def remove(self, folder: Path, names: Iterable[bytes]) -> None:
        """Remove chunks; those that are not there are fine."""
        for name in self.names(folder) & set(names):
            self._disk.remove(folder / name.hex())


def is_sound(chunk: Chunk) -> bool:
    """Tell whether a chunk's bytes have its name, as a leaf or as a node."""
    for kind in (LEAF, NODE):
        try:
            verified(kind, chunk.id, chunk)
        except ChunkCorrupt:
            continue
        return True
    return False
