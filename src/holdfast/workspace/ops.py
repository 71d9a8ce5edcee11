"""The file operations of a restore behind one small class, so that a test can fail or kill at each of them."""

from __future__ import annotations

import errno
import os

from holdfast.workspace.descriptors import OPEN_DIRECTORY

_MODE = 0o777
_FAR_NS = 2**62
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)


class FileOps:
    """Changes the file system, always relative to an open directory and never through a link."""

    def create(self, directory: int, name: bytes) -> int:
        """Open a new file for writing; FileExistsError if there is anything at that name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=directory)

    def write(self, handle: int, data: bytes) -> None:
        """Write all of it."""
        written = os.write(handle, data)
        while written < len(data):
            written += os.write(handle, memoryview(data)[written:])

    def finish(self, handle: int, mode: int, mtime_ns: int | None) -> None:
        """Set a file's mode, without setuid and the like, and its time if one is given."""
        os.fchmod(handle, mode & _MODE)
        if mtime_ns is not None:
            mtime_ns = max(-_FAR_NS, min(mtime_ns, _FAR_NS))  # a stored time may be any number
            os.utime(handle, ns=(mtime_ns, mtime_ns))

    def sync(self, handle: int) -> None:
        """Make a file or a directory durable."""
        os.fsync(handle)

    def sync_all(self) -> None:
        """Make everything durable: cheaper than many single calls."""
        os.sync()

    def symlink(self, directory: int, name: bytes, target: bytes) -> None:
        """Create a link."""
        os.symlink(target, name, dir_fd=directory)

    def mkdir(self, directory: int, name: bytes, mode: int) -> None:
        """Create a directory."""
        os.mkdir(name, mode & _MODE, dir_fd=directory)

    def rmdir(self, directory: int, name: bytes) -> None:
        """Remove an empty directory."""
        os.rmdir(name, dir_fd=directory)

    def unlink(self, directory: int, name: bytes) -> None:
        """Remove a file or a link."""
        os.unlink(name, dir_fd=directory)

    def chmod_directory(self, directory: int, name: bytes, mode: int) -> None:
        """Set a directory's mode."""
        handle = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
        try:
            os.fchmod(handle, mode & _MODE)
        finally:
            os.close(handle)

    def rename(self, source: int, old: bytes, target: int, new: bytes) -> None:
        """Move a name; what is at the new one is replaced."""
        os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)

    def place(self, source: int, old: bytes, target: int, new: bytes) -> None:
        """Put a file or link at a new name, FileExistsError if there is anything; the old name may stay or not."""
        try:
            os.link(old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without hard links: the look before the move leaves a window of microseconds.
            try:
                os.lstat(new, dir_fd=target)
            except FileNotFoundError:
                os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
                return
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
