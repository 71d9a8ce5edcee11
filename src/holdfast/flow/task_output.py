"""Task output: what the tasks of a run print, in one bounded file a task, readable while they run and afterwards.

The files lie in `.holdfast/output/`, or for a store elsewhere in the user's state directory: on the machine that the
tasks run on. They are redacted as the store is, written without a sync, and never written beside an encrypted store.
What a task came to is in the store all the same; these files are for looking, never the truth.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from holdfast.capture.secrets import TEXT_ESCAPE
from holdfast.home import in_base, make_private
from holdfast.own_folder import open_folder
from holdfast.runtime.output import cut, left_out_of
from holdfast.store.keys import has_keys
from holdfast.store.open import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from holdfast.engine import Holdfast
    from holdfast.flow.events import Event

KEEP_BYTES = 1 << 20
"""Of each task: half from its beginning, half from its end."""
_END = ".log"
_UNPROTECTED = "unprotected"
_BEGINNINGS = {"task_started", "task_retry", "gate_started", "fix_started", "replan"}
_ENDS = {"task_done", "task_failed", "task_skipped"}
_OLD_S = 30 * 86_400.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def output_folder(store_url: str, store_folder: Path | None) -> Path | None:
    """Return where the output of a store's runs lies on this machine; None for a user without a home."""
    if store_folder is not None and store_folder.name == FOLDER:
        return store_folder / "output"
    state = in_base(os.environ.get("XDG_STATE_HOME", ""), ".local/state")
    digest = hashlib.sha256(store_url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return None if state is None else state / "output" / digest


def run_folder(hf: Holdfast, run: str) -> Path | None:
    """Return the folder of a run's output; None if none is written for this store."""
    if hf.store.url.startswith("memory:") or has_keys(hf.store):
        return None
    folder = output_folder(hf.store.url, hf.store.folder)
    return None if folder is None else folder / quote(run, safe="")


def _remove_old(output: Path) -> None:
    """Remove output of long ago; OSError where the folder is a link, which a repository may have brought."""
    with _opened(output.parent, output.name) as folder:
        for name in os.listdir(folder):  # noqa: PTH208 - a descriptor
            if os.lstat(name, dir_fd=folder).st_mtime < time.time() - _OLD_S:
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


class OutputFiles:
    """Writes what tasks print, as it comes out of redaction; nothing that fails here stops the run."""

    def __init__(self, folder: Path, keep_bytes: int = KEEP_BYTES) -> None:
        self._folder = folder
        self._keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._open: dict[str, _OutputFile] = {}

    @classmethod
    def of(cls, hf: Holdfast, run: str) -> OutputFiles | None:
        """Return the files of a run, None if there are to be none; output of long ago is removed."""
        folder = run_folder(hf, run)
        if folder is None:
            return None
        with suppress(OSError):
            _remove_old(folder.parent)
        return cls(folder)

    def take(self, event: Event) -> None:
        """Take an event in: output is written, and a line that says when an attempt, gate or fix began.

        That a run is not protected cannot be in its store: it stands in a file beside the output, until it is again.
        """
        if event.kind in ("unprotected", "protected"):
            self._mark_unprotected(event.at.isoformat() if event.kind == "unprotected" else None)
        if event.phase is None or event.task is None:
            return
        name = f"{event.phase}/{event.task}"
        with self._lock:
            if event.kind == "task_output":
                file = self._open.setdefault(name, _OutputFile(self._folder / (quote(name, safe="") + _END)))
                file.add(event.text, self._keep_bytes)
            elif event.kind in _BEGINNINGS:
                file = self._open.setdefault(name, _OutputFile(self._folder / (quote(name, safe="") + _END)))
                file.begin(f"[{event.at:%Y-%m-%d %H:%M:%S} {event.kind.replace('_', ' ')} {event.gate or ''}".rstrip())
            elif event.kind in _ENDS and name in self._open:
                self._open.pop(name).close()
            elif name in self._open:
                self._open[name].end_line()

    def _mark_unprotected(self, since: str | None) -> None:
        path = self._folder / _UNPROTECTED
        with suppress(OSError):  # the disk may be full
            if since is None:
                with _run_folder(self._folder) as folder:
                    os.unlink(_UNPROTECTED, dir_fd=folder)
                return
            with os.fdopen(_descriptor(path, os.O_WRONLY | os.O_TRUNC, make=True), "w") as file:
                file.write(since)

    def close(self) -> None:
        """Let go of the files."""
        self._mark_unprotected(None)
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


class _OutputFile:
    """The output of one task; the file is made with the first thing that is printed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._header = ""
        self._is_line_open = False
        self._size = 0

    def begin(self, header: str) -> None:
        self.end_line()
        self._header = f"{header}]\n"

    def add(self, text: str, keep_bytes: int) -> None:
        """Write a piece of text; colours are for terminals."""
        self._write(self._header + without_colours(text))
        self._header = ""
        self._is_line_open = not text.endswith("\n")
        if self._size > 2 * keep_bytes:
            self._shorten(keep_bytes)

    def end_line(self) -> None:
        """Let what comes next begin a line."""
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False

    def close(self) -> None:
        self.end_line()
        if self._file is not None:
            self._file.close()

    def _write(self, text: str) -> None:
        if self._file is None:
            self._file = os.fdopen(_descriptor(self._path, os.O_WRONLY | os.O_APPEND, make=True), "ab", buffering=0)
            self._size = os.fstat(self._file.fileno()).st_size
        data = text.encode(errors="backslashreplace")
        self._file.write(data)
        self._size += len(data)

    def _shorten(self, keep_bytes: int) -> None:
        """Leave the middle out, in a new file that takes the place of the old one at once."""
        assert self._file is not None
        with open_output(self._path) as file:
            kept = cut(file.read().decode(errors="backslashreplace"), keep_bytes).encode()
        part = self._path.with_suffix(".part")
        with os.fdopen(_descriptor(part, os.O_WRONLY | os.O_TRUNC, make=True), "wb") as file:
            file.write(kept)
        with _run_folder(self._path.parent) as folder:
            os.replace(part.name, self._path.name, src_dir_fd=folder, dst_dir_fd=folder)
        self._file.close()
        self._file = os.fdopen(_descriptor(self._path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)
        self._size = len(kept)


def unprotected_since(folder: Path) -> str | None:
    """Return since when the run of a folder is not protected, as ISO text; None if it is, or nothing says so."""
    try:
        with open_output(folder / _UNPROTECTED) as file:
            return datetime.fromisoformat(file.read(64).decode()).isoformat()
    except (OSError, ValueError):
        return None


def open_output(path: Path) -> IO[bytes]:
    """Open a file of output for reading; OSError if it, or its folder, is not what was written here."""
    return os.fdopen(_descriptor(path, os.O_RDONLY), "rb")


def _descriptor(path: Path, flags: int, *, make: bool = False) -> int:
    """Open a file of output, following no link: neither its folder, its run's nor itself may lead elsewhere."""
    with _run_folder(path.parent, make=make) as folder:
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        descriptor = os.open(path.name, flags, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return descriptor


def _run_folder(run: Path, *, make: bool = False) -> AbstractContextManager[int]:
    return _opened(run.parent.parent, run.parent.name, run.name, make=make)


@contextmanager
def _opened(above: Path, *names: str, make: bool = False) -> Iterator[int]:
    """Open a folder below another, in which no name may be a link, nor `.holdfast` itself."""
    is_own = above.name == FOLDER
    if make and not is_own:
        make_private(above)
    folder = open_folder(str(above), make=make) if is_own else os.open(above, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
            inner = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


class TaskOutput(NamedTuple):
    """The output of one task, as it is found."""

    task: str
    path: Path


def outputs_in(folder: Path) -> list[TaskOutput]:
    """Return the output of a run's tasks, in the order in which they last printed something."""
    found: list[tuple[int, str]] = []
    with suppress(OSError), _run_folder(folder) as opened:
        for name in os.listdir(opened):  # noqa: PTH208 - a descriptor
            status = os.lstat(name, dir_fd=opened)
            if name.endswith(_END) and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, name))
    return [TaskOutput(unquote(name.removesuffix(_END)), folder / name) for _time, name in sorted(found)]


class Tail:
    """Reads a task's output as it grows, also if its middle is left out meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_id = 0
        self._read = 0  # bytes of the file
        self._total = 0  # bytes of the output, with what was left out of the file

    def lines(self, *, is_last: bool = False) -> list[str]:
        """Return the lines that came since the last time; with `is_last`, also one without an end."""
        try:
            with open_output(self._path) as file:
                file_id = os.fstat(file.fileno()).st_ino
                if file_id == self._file_id:
                    file.seek(self._read)
                    data = file.read()
                else:
                    data = self._started_over(file.read())
                    self._file_id = file_id
        except OSError:
            return []
        whole = data if is_last else data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._total += len(whole)
        return whole.decode(errors="backslashreplace").splitlines()

    def _started_over(self, data: bytes) -> bytes:
        """Return what of a file is new, whose middle was left out since the last time."""
        gap = left_out_of(data)
        if gap is None:
            start, more = min(self._total, len(data)), 0
        else:
            more = gap.size_bytes - (gap.end - gap.start)  # bytes of the output for which the file has none
            behind = max(gap.start, self._total - more)  # the gap itself, if what comes next was left out
            start = self._total if self._total <= gap.start else min(behind, len(data))
        self._read, self._total = start, start + more
        return data[start:]


def without_colours(line: str) -> str:
    """Return a line without what would colour it or move the cursor."""
    return TEXT_ESCAPE.sub("", line)
