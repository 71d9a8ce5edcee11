"""Calls that change a files store: each leaves a file whole or as it was, and goes through `meet`.

A test stands in for the disk by overriding `meet`: it sees every call before it is made, and can stop the world there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.encode.chunks import Chunk
from holdfast.encode.documents import open_regular, read_regular
from holdfast.errors import DocumentInvalid, StoreBusy, StoreFull, StoreUnavailable
from holdfast.store.owner import lock_advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_HEADER_BYTES = 5
_LARGEST_CHUNK = 16 << 20
_NO_CODEC = 255  # a codec that does not exist: reading such a chunk says that it is damaged
_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02
_ZEROS = bytes(1 << 16)
_WRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in a file's place is not waited for


@contextmanager
def translated(store: str) -> Iterator[None]:
    """Turn the operating system's errors into ours, each with what to do next."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(store, "no space left; nothing was written. Free some space, then repeat") from error
        raise StoreUnavailable(
            store, f"the disk refused ({error.strerror}: {error.filename}); nothing was acknowledged"
        ) from error


class Disk:
    """The calls that change files below one folder."""

    def meet(self, operation: str, path: Path, data: bytes = b"", offset: int = 0) -> None:
        """Be told of each call before it is made."""

    def append(self, path: Path, data: bytes, end: int, *, sync: bool = True) -> os.stat_result:
        """Write after the first `end` bytes of a file, cut off what follows, and sync; a failure leaves `end` bytes."""
        descriptor = self._open(path)
        try:
            try:
                if os.fstat(descriptor).st_size > end:
                    self.meet("truncate", path, offset=end)
                    os.ftruncate(descriptor, end)
                self._write(descriptor, path, data, end)
                if sync:
                    self.meet("sync", path)
                    os.fsync(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(descriptor, end)
                raise
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def overwrite(self, path: Path, data: bytes) -> None:
        """Write at the beginning of a small file, unsynced."""
        descriptor = self._open(path)
        try:
            self._write(descriptor, path, data, 0)
        finally:
            os.close(descriptor)

    def create(self, path: Path, data: bytes) -> None:
        """Write a new file, not yet synced; a failure leaves none."""
        self.meet("create", path)
        descriptor = os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            self._write(descriptor, path, data, 0)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def sync(self, path: Path) -> None:
        """Make a file's bytes durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self.meet("sync", path)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name, in place of any other; durable once the target's folder is synced."""
        self.meet("rename", to, os.fsencode(path))
        path.replace(to)

    def replace(self, path: Path, to: Path) -> None:
        """Put a synced file in the place of another, durably, and then overwrite the other's bytes."""
        old = os.open(to, _WRITE) if to.is_file() and not to.is_symlink() else None
        try:
            self.rename(path, to)
            self.sync_folder(to.parent)
            if old is not None:
                self._blank(old, to)
        finally:
            if old is not None:
                os.close(old)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        if os.path.lexists(path):
            self.meet("delete", path)
            path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder that is empty; one that is not stays."""
        self.meet("delete", path)
        with suppress(OSError):
            path.rmdir()

    def erase(self, path: Path) -> None:
        """Overwrite a file that nobody needs any more, and remove it."""
        with suppress(FileNotFoundError):
            kind = stat.S_IFMT(path.lstat().st_mode)
            if kind == stat.S_IFDIR:  # not ours: what is in it stays
                self.remove_folder(path)
                return
            if kind == stat.S_IFREG:
                descriptor = os.open(path, _WRITE)
                try:
                    self._blank(descriptor, path)
                finally:
                    os.close(descriptor)
            self.remove(path)

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it for their owner only, durable up to the first that was there."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        self.meet("make folder", folder)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            return
        folder.chmod(0o700)
        self.sync_folder(folder.parent)

    def sync_folder(self, folder: Path) -> None:
        """Make a folder's entries durable."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.meet("sync folder", folder)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _blank(self, descriptor: int, path: Path) -> None:
        size, offset = os.fstat(descriptor).st_size, 0
        self.meet("erase", path)
        while offset < size:
            offset += os.pwrite(descriptor, _ZEROS[: size - offset], offset)
        os.fsync(descriptor)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, _WRITE)
        except FileNotFoundError:
            self.meet("create", path)
            descriptor = os.open(path, _WRITE | os.O_CREAT, 0o600)
            os.fchmod(descriptor, 0o600)
            return descriptor

    def _write(self, descriptor: int, path: Path, data: bytes, offset: int) -> None:
        self.meet("write", path, data, offset)
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written


class ChunkFiles:
    """Chunks as files named by their ids: codec and plain size in five bytes, then the stored bytes."""

    def __init__(self, folder: Path, temporary: Path, disk: Disk) -> None:
        self._folder = folder
        self._temporary = temporary
        self._disk = disk

    def path(self, name: bytes) -> Path:
        """Return where a chunk is."""
        text = name.hex()
        return self._folder / text[:2] / text

    def get(self, name: bytes) -> Chunk | None:
        """Return a chunk as it is stored, an unreadable one for what is no such file, None if it is not there."""
        try:
            data = read_regular(self.path(name), limit=_LARGEST_CHUNK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DocumentInvalid:
            data = b""
        if len(data) < _HEADER_BYTES:
            return Chunk(name, _NO_CODEC, 0, b"")
        return Chunk(name, data[0], int.from_bytes(data[1:_HEADER_BYTES], "big"), data[_HEADER_BYTES:])

    def measured(self, name: bytes) -> tuple[int, int]:
        """Return how many plain and how many stored bytes a chunk has, without reading it."""
        try:
            descriptor, status = open_regular(self.path(name))
        except (FileNotFoundError, DocumentInvalid):
            return 0, 0
        try:
            return int.from_bytes(os.read(descriptor, _HEADER_BYTES)[1:], "big"), max(0, status.st_size - _HEADER_BYTES)
        finally:
            os.close(descriptor)

    def names(self) -> Iterator[bytes]:
        """Yield the ids of all stored chunks."""
        for path in sorted(self._folder.glob("[0-9a-f][0-9a-f]/*")):
            with suppress(ValueError):
                name = bytes.fromhex(path.name)
                if self.path(name) == path:
                    yield name

    def write(self, chunk: Chunk) -> Path | None:
        """Write a chunk under a temporary name; None if it is there with these bytes."""
        if self.get(chunk.id) == chunk:
            return None
        path = self._temporary / os.urandom(8).hex()
        self._disk.create(path, bytes([chunk.codec]) + chunk.size.to_bytes(4, "big") + chunk.data)
        return path

    def publish(self, written: Mapping[bytes, Path], new: list[Path]) -> None:
        """Sync chunks and give them their names, durably; note in `new` those that were not there before."""
        for path in written.values():
            self._disk.sync(path)
        for name, path in written.items():
            place = self.path(name)
            self._disk.make_folder(place.parent)
            if not os.path.lexists(place):
                new.append(place)
            self._disk.rename(path, place)
        for folder in {self.path(name).parent for name in written}:
            self._disk.sync_folder(folder)

    def erase(self, name: bytes) -> None:
        """Overwrite and delete a chunk; under its own name it is whole or gone."""
        path = self.path(name)
        if os.path.lexists(path):
            gone = self._temporary / os.urandom(8).hex()
            self._disk.rename(path, gone)
            self._disk.erase(gone)


class Lock:
    """One file that processes lock, each with a descriptor of its own; the lock ends with the process that has it."""

    def __init__(self, path: Path, store: str, timeout_s: float) -> None:
        self._path = path
        self._store = store
        self._timeout_s = timeout_s
        self._descriptor: int | None = None
        self._owner = 0
        self._held = 0

    @contextmanager
    def hold(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock, alone or with others who only read; StoreBusy if it is not to be had within the time.

        Whoever holds it alone may ask again; one thread at a time may ask.
        """
        if not self._held:
            self._acquire(fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if not self._held and self._descriptor is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor is not None and self._owner == os.getpid():
            os.close(self._descriptor)
        self._descriptor = None

    def _acquire(self, kind: int) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause = _PAUSE_S
        while True:
            descriptor = self._opened()
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreBusy(self._store, lock_advice(self._path)) from None
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, pause * 1.5)
            else:
                if self._is_there(descriptor):
                    return
                self.close()  # the store was deleted or replaced under us

    def _opened(self) -> int:
        if self._descriptor is not None and self._owner != os.getpid():
            self._descriptor = None  # a fork's parent has this one: a lock on it would be shared
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._owner = os.getpid()
        return self._descriptor

    def _is_there(self, descriptor: int) -> bool:
        mine = os.fstat(descriptor)
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            return False
        return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)
