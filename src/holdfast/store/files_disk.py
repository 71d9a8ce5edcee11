"""Files that are there whole or not at all: temporary file, sync, rename, sync of the folder; one writer a folder.

Every call that changes the disk goes through `meet`, so that a test can stop the world at each of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import StoreBusy, StoreFull, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY_TIMEOUT_S = 60.0
_TEMPORARY = ".tmp"


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
    """The calls that change a files store."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._mine: set[Path] = set()

    def meet(self, operation: str, path: Path) -> None:
        """Be told of each call before it is made."""

    def put(self, path: Path, data: bytes) -> None:
        """Write a file durably under its name, in place of any other; what fails leaves nothing."""
        temporary = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}{_TEMPORARY}")
        try:
            self.meet("create", temporary)
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                self.meet("write", temporary)
                _write_all(descriptor, data)
                self.meet("sync", temporary)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self.meet("rename", path)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.sync_folder(path.parent)

    def link(self, path: Path, target: str) -> None:
        """Point a symbolic link at a neighbour; where links are not to be had, a file holds the name."""
        temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}{_TEMPORARY}")
        self.meet("create", temporary)
        try:
            temporary.symlink_to(target)
        except OSError:
            self.put(path, f"{target}\n".encode())
            return
        self.meet("rename", path)
        temporary.replace(path)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        self.meet("remove", path)
        path.unlink(missing_ok=True)

    def move(self, path: Path, to: Path) -> None:
        """Move a file or folder within the store."""
        self.meet("rename", to)
        path.rename(to)

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
        self.meet("sync folder", folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def locked(self, folder: Path, *, alone: bool) -> Iterator[None]:
        """Hold a folder, with other readers or alone; the lock goes with the process that has it.

        Whoever holds it alone may ask again. A store lets one thread in at a time, so that is always the same one.
        """
        if folder in self._mine:
            yield
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock(descriptor, alone=alone)
            if alone:
                self._mine.add(folder)
                self._tidy(folder)
            yield
        finally:
            self._mine.discard(folder)
            os.close(descriptor)

    def _lock(self, descriptor: int, *, alone: bool) -> None:
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        pause = 0.0005
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreBusy(self._store, "other processes kept it locked for too long; repeat") from None
                time.sleep(pause)
                pause = min(0.02, pause * 1.5)
            else:
                return

    def _tidy(self, folder: Path) -> None:
        """Remove what a writer that was killed left half written: nobody else is writing here now."""
        for entry in os.scandir(folder):
            if entry.name.startswith(".") and entry.name.endswith(_TEMPORARY):
                Path(entry.path).unlink(missing_ok=True)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
