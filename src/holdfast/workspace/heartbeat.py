"""Heartbeat of a process that works in a directory: a local file, touched every second while its run is open.

Its time of change is the last sign of life, by the clock of the file system that also stamps the files. It is never
synced: after a power cut an older one is there, and what changed later counts as a person's, which is kept.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.encode.documents import read_own
from holdfast.errors import DocumentInvalid
from holdfast.own_folder import touch, write_whole
from holdfast.store.owner import this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_log = logging.getLogger("holdfast")
BEAT_S = 1.0
_MAX_BYTES = 4 * 1024 * 1024
_MOST_CALLS = 100
_MOST_GONE_BYTES = 256 * 1024


class SignOfLife(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process in a run: since when it worked, when it last gave a sign, and the calls under way then."""

    run: str
    directory: str
    process: str
    entered_ns: int
    calls: dict[str, int] = {}
    """The start of each call that was under way."""
    policies: dict[str, Literal["keep", "roll_back", "ask"]] = {}
    """What is to become of half-written files of those that say so."""
    has_ended: bool = False
    """Whether it left the run by itself: nothing was interrupted then."""
    last_ns: int = 0
    tree: str = ""
    """The tree that was captured last by then."""
    gone: tuple[str, ...] = ()
    """What that tree holds and had been deleted by then, each byte of a path as one character; not all of much."""

    @property
    def is_mine(self) -> bool:
        """Whether it is this very process, which is not over."""
        return not self.has_ended and self.process == this_process()

    @property
    def interrupted(self) -> str:
        """What was interrupted, for people: the outermost calls under way, or the process."""
        outer = [call for call in sorted(self.calls) if not any(call.startswith(f"{one}/") for one in self.calls)]
        return ", ".join(outer) or "the run's process"

    @property
    def innermost(self) -> dict[str, int]:
        """The calls under way that had none within them, each with its start: what was around them had handed over."""
        return {one: at for one, at in self.calls.items() if not any(call.startswith(f"{one}/") for call in self.calls)}

    @property
    def policy(self) -> Literal["keep", "roll_back", "ask"] | None:
        """What is to become of files that were half written, None if no call says so.

        Whose a file is among several calls nobody can tell: they are rolled back only if all want that.
        """
        wanted = {self._policy_of(call) for call in self.calls or self.policies}
        if "ask" in wanted:
            return "ask"
        if wanted <= {None}:
            return None
        return "roll_back" if wanted == {"roll_back"} else "keep"

    def _policy_of(self, call: str) -> Literal["keep", "roll_back", "ask"] | None:
        """Return the policy of a call, or of the nearest around it."""
        parts = call.split("/")
        around = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((self.policies[name] for name in around if name in self.policies), None)


class Heartbeat:
    """Keeps the sign of life of this process while a run is open."""

    def __init__(
        self,
        file: Path,
        run: str,
        directory: str,
        *,
        calls: Callable[[], Mapping[str, int]],
        policies: Callable[[], Mapping[str, Any]] = dict,
        missing: Callable[[], tuple[str, Iterable[bytes]]] = lambda: ("", ()),
        beat_s: float = BEAT_S,
        lock: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._file = file
        self._run = run
        self._directory = directory
        self._calls = calls
        self._policies = policies
        self._missing = missing
        self._tree = ""
        self._gone: tuple[str, ...] = ()
        self._looks_at = 0.0
        self._beat_s = beat_s
        self._locked = lock
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._written: SignOfLife | None = None
        self._entered_ns = 0
        self._refused: str | None = None

    def start(self) -> None:
        """Begin: from here on, what changes in the directory may be this process's work."""
        self._written = None
        self.beat()
        self._entered_ns = _stamp_of(self._file)
        self.beat()
        self._over.clear()
        self._thread = threading.Thread(target=self._keep, name=f"holdfast-heartbeat-{self._run}", daemon=True)
        self._thread.start()

    def beat(self, *, has_ended: bool = False) -> None:
        """Give a sign of life; one that cannot be written is only missed, which is said where a link is the cause."""
        calls = dict(sorted(self._calls().items())[:_MOST_CALLS])
        self._look()
        life = SignOfLife(
            run=self._run,
            directory=self._directory,
            process=this_process(),
            entered_ns=self._entered_ns,
            calls=calls,
            policies=dict(self._policies()),
            has_ended=has_ended,
            tree=self._tree,
            gone=self._gone,
        )
        with self._lock:
            try:
                self._put(life)
                self._refused = None
            except OSError as error:
                if error.errno == errno.ELOOP and self._refused != error.filename:
                    _log.warning("run %s gives no sign of life: %s %s", self._run, error.filename, error.strerror)
                    self._refused = error.filename

    def _put(self, life: SignOfLife) -> None:
        if life == self._written and touch(self._file):
            return
        write_whole(self._file, self._locked(msgspec.json.encode(life)))
        self._written = life

    def _look(self) -> None:
        """Look at what is gone: once a beat, and seldom enough that it costs a twentieth of a core at most."""
        began = time.monotonic()
        if began < self._looks_at:
            return
        left, found = _MOST_GONE_BYTES, []
        self._tree, missing = self._missing()
        for path in missing:
            left -= len(path)
            if left < 0:
                break
            found.append(path.decode("latin-1"))
        self._gone = tuple(found)
        self._looks_at = began + max(self._beat_s / 2, 20 * (time.monotonic() - began))

    def stop(self) -> None:
        """End by oneself: what changes from now on is not this process's work."""
        if self._thread is None:
            return
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._thread = None
        self.beat(has_ended=True)

    def _keep(self) -> None:
        while not self._over.wait(self._beat_s):
            self.beat()


def last_sign(file: Path, run: str, directory: str, *, unlock: Callable[[bytes], bytes] = bytes) -> SignOfLife | None:
    """Return the last process that worked for a run in a directory, None if there was none, or nobody can tell."""
    try:
        found = read_own(file, limit=_MAX_BYTES)
        life = msgspec.json.decode(unlock(found.data), type=SignOfLife)
    except (OSError, ValueError, DocumentInvalid):
        return None
    if life.run != run or life.directory != directory:
        return None
    return msgspec.structs.replace(life, last_ns=found.status.st_mtime_ns)


def _stamp_of(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
