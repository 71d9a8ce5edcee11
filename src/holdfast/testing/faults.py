"""One seam for storage faults: every call that changes something is numbered, and any of them can fail.

A FaultyDisk is a SQLite VFS over the default one and, while it is entered, a layer over the `os` calls that make
folders and files. At call N it kills this process, tears the write, or raises an errno; it can also keep a log of all
calls, from which `after_power_loss` builds what a disk may hold after a power cut. Reads are left alone unless asked.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import apsw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from types import TracebackType

Operation = Literal[
    "create", "write", "truncate", "sync", "rename", "delete", "erase", "make folder", "sync folder", "read"
]  # fmt: skip
SECTOR_BYTES = 512
_SQLITE_CODES: dict[Operation, int] = {
    "create": apsw.SQLITE_CANTOPEN,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "read": apsw.SQLITE_IOERR_READ,
}


class Call(NamedTuple):
    """One storage call; `offset` is where a write begins or to what size a file is truncated.

    A rename has the new name as its path and the old one as its data. An erased file is about to be removed.

    What SQLite's own VFS does as part of another call is `implied`: it is logged, but has no number.
    """

    operation: Operation
    path: str
    offset: int = 0
    data: bytes = b""
    implied: bool = False


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens at call number `at`: "kill" before it, "tear" it and kill, or fail with `code` without doing it."""

    at: int
    kind: Literal["kill", "tear", "errno"]
    code: int = errno.EIO
    torn: float = 0.5
    """The part of a torn write that reaches the disk."""
    lasting: bool = False
    """Whether every later call fails too."""


class FaultyDisk:
    """The storage below one folder, with its calls numbered from 0 and at most one fault to come."""

    def __init__(self, folder: Path, *, name: str = "holdfast-faults", reads: bool = False, log: bool = False) -> None:
        self.folder = str(folder)
        self.vfs = name
        self.calls = 0
        self.fault: Fault | None = None
        self.struck: Call | None = None
        """The call that met the fault, the first if it lasts."""
        self.log: list[Call] | None = [] if log else None
        self._reads = reads
        self._layer = _VFS(name, self)
        self._originals: dict[str, Callable[..., Any]] = {}
        self._descriptors: dict[int, str] = {}

    def arm(self, fault: Fault | None) -> None:
        """Let this fault happen, and count from 0 again; None ends a lasting one."""
        self.fault, self.calls = fault, 0

    def meet(self, call: Call) -> float:
        """Count a call, and let the fault happen if it is its turn; return which part of a write to carry out."""
        if call.operation == "read" and not self._reads:
            return 1.0
        number, self.calls = self.calls, self.calls + 1
        fault = self.fault
        if fault is not None and (number == fault.at or (fault.lasting and number > fault.at)):
            self.struck = self.struck or call
            if fault.kind == "errno":
                raise _failure(call.operation, fault.code, call.path)
            if fault.kind == "tear" and call.operation == "write":
                return min(fault.torn, 0.999)
            kill()
        if self.log is not None and call.operation != "read":
            self.log.append(call)
        return 1.0

    def is_below(self, path: object) -> bool:
        """Tell whether a path is in this disk's folder, or is the folder itself."""
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        return isinstance(text, str) and (text == self.folder or text.startswith(self.folder + os.sep))

    def close(self) -> None:
        """Unregister the VFS; its connections must be closed before."""
        self._layer.unregister()

    def __enter__(self) -> Self:
        layers = {"mkdir": self._mkdir, "open": self._open, "fsync": self._fsync, "pwrite": self._pwrite}
        for name, layer in layers.items():
            self._originals[name] = getattr(os, name)
            setattr(os, name, layer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, original in self._originals.items():
            setattr(os, name, original)

    def _mkdir(self, path: Any, *arguments: Any, **options: Any) -> Any:
        if self.is_below(path) and not Path(path).exists():
            self.meet(Call("make folder", os.fspath(path)))
        return self._originals["mkdir"](path, *arguments, **options)

    def _open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
        below = self.is_below(path)
        if below and flags & os.O_CREAT and not Path(path).exists():
            self.meet(Call("create", os.fspath(path)))
        descriptor = self._originals["open"](path, flags, *arguments, **options)
        if below:
            self._descriptors[descriptor] = os.fspath(path)
        else:
            self._descriptors.pop(descriptor, None)
        return descriptor

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> Any:
        path = self._descriptors.get(descriptor)
        if path is not None and self._meet(Call("write", path, offset, bytes(data))) < 1.0:
            if len(data) > SECTOR_BYTES:  # a sector is not torn
                self._originals["pwrite"](descriptor, data[: len(data) // 2], offset)
            kill()
        return self._originals["pwrite"](descriptor, data, offset)

    def _fsync(self, descriptor: int) -> Any:
        path = self._descriptors.get(descriptor)
        if path is not None:
            self._meet(Call("sync folder" if Path(path).is_dir() else "sync", path))
        return self._originals["fsync"](descriptor)

    def _meet(self, call: Call) -> float:
        """Count a call of the operating system, which fails with errors of its own."""
        try:
            return self.meet(call)
        except apsw.Error as error:
            code = self.fault.code if self.fault else errno.EIO
            raise OSError(code, os.strerror(code), call.path) from error


class _VFS(apsw.VFS):
    def __init__(self, name: str, disk: FaultyDisk) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        if path and flags[0] & apsw.SQLITE_OPEN_CREATE and not Path(path).exists():
            self._disk.meet(Call("create", path))
        return _File(self._disk, name, path, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001
        if Path(filename).exists():
            self._disk.meet(Call("delete", filename))
        super().xDelete(filename, syncdir)
        if syncdir and self._disk.log is not None:
            self._disk.log.append(Call("sync folder", str(Path(filename).parent), implied=True))

    def excepthook(self, *_error: object) -> bool:
        """Say nothing: SQLite has the error already."""
        return True


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, path: str, flags: list[int]) -> None:
        # SQLite syncs the folder with the first sync of a log or journal that it created.
        self._names_itself = bool(flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL))
        self._disk = disk
        self._path = path
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.meet(Call("read", self._path, offset))
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        part = self._disk.meet(Call("write", self._path, offset, bytes(data)))
        if part < 1.0:
            super().xWrite(bytes(data[: int(len(data) * part)]), offset)
            kill()
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.meet(Call("truncate", self._path, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.meet(Call("sync", self._path))
        super().xSync(flags)
        if self._names_itself and self._disk.log is not None:
            self._names_itself = False
            self._disk.log.append(Call("sync folder", str(Path(self._path).parent), implied=True))

    def excepthook(self, *_error: object) -> bool:
        """Say nothing: SQLite has the error already."""
        return True


def kill() -> None:
    """End this process as a crash does: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _failure(operation: Operation, code: int, path: str) -> Exception:
    """Return the error that the layer below would have raised: SQLite's, or the operating system's for folders."""
    if not path.endswith(("-wal", "-journal")) and operation in ("make folder", "sync folder", "create"):
        return OSError(code, os.strerror(code), path)
    if code == errno.ENOSPC and operation == "write":
        return apsw.exception_for(apsw.SQLITE_FULL)
    return apsw.exception_for(_SQLITE_CODES[operation])


@dataclass
class _Inode:
    synced: bytes = b""
    pending: list[Call] = field(default_factory=list)

    def sync(self) -> None:
        content = bytearray(self.synced)
        for call in self.pending:
            _apply(content, call, call.data)
        self.synced = bytes(content)
        self.pending.clear()

    def survivor(self, random: Random, lost: float) -> bytes:
        """Return what may be found after a power cut: of each unsynced call all, nothing, or some of its sectors."""
        content = bytearray(self.synced)
        for call in self.pending:
            if random.random() < lost:
                continue
            if call.operation == "truncate" or random.random() < 0.5:
                _apply(content, call, call.data)
                continue
            for start in range(0, len(call.data), SECTOR_BYTES):
                if random.random() < 0.5:
                    part = call.data[start : start + SECTOR_BYTES]
                    _apply(content, Call("write", call.path, call.offset + start), part)
        return bytes(content)


class _Platter:
    """What is durable below a folder, and what else a power cut may leave of each name."""

    def __init__(self) -> None:
        self._inodes: dict[str, _Inode] = {}
        # First what is durable, then each change since; None is "not there".
        self._entries: dict[str, list[_Inode | Literal["folder"] | None]] = {}

    def carry_out(self, call: Call) -> None:
        match call.operation:
            case "create":
                self._inodes[call.path] = _Inode()
                self._change(call.path, self._inodes[call.path])
            case "make folder":
                self._change(call.path, "folder")
            case "rename":
                source = os.fsdecode(call.data)
                self._change(source, None)
                self._inodes[call.path] = self._inodes.pop(source)
                self._change(call.path, self._inodes[call.path])
            case "erase":
                pass
            case "delete":
                self._inodes.pop(call.path, None)
                self._change(call.path, None)
            case "sync folder":
                for path, states in self._entries.items():
                    if str(Path(path).parent) == call.path:
                        del states[:-1]
            case "sync":
                self._inodes[call.path].sync()
            case _:
                self._inodes[call.path].pending.append(call)

    def leave(self, folder: Path, target: Path, random: Random) -> None:
        lost = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        target.mkdir(parents=True)
        for path in sorted(self._entries):
            states = self._entries[path]
            state = random.choice(states) if random.random() < 0.5 else states[0 if lost > 0.5 else -1]
            place = target / Path(path).relative_to(folder)
            if state is None or not place.parent.is_dir():
                continue
            if state == "folder":
                place.mkdir(mode=0o700)
            else:
                place.write_bytes(state.survivor(random, lost))
                place.chmod(0o600)

    def _change(self, path: str, state: _Inode | Literal["folder"] | None) -> None:
        self._entries.setdefault(path, [None]).append(state)


def after_power_loss(calls: Sequence[Call], folder: Path, target: Path, random: Random) -> None:
    """Build in `target` one state in which a power cut after these calls may leave `folder`.

    What was synced is there. Each unsynced write may be there, torn at sectors, or lost; each unsynced folder entry is
    as it was after any of its changes: no order is kept that was not asked for.
    """
    platter = _Platter()
    for call in calls:
        platter.carry_out(call)
    platter.leave(folder, target, random)


def _apply(content: bytearray, call: Call, data: bytes) -> None:
    if call.operation == "truncate":
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
        return
    if len(content) < call.offset:
        content.extend(bytes(call.offset - len(content)))
    content[call.offset : call.offset + len(data)] = data
