"""Owner of a lease: which process it is, and whether it is surely gone."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.store import Store

_log = logging.getLogger("holdfast")
_PLACE_FIELD = 5
_OWNER = re.compile(r"(?P<host>\S+) pid (?P<pid>\d+)(?: \((?P<born>[\d.]+)\))? since .*")


def end_dead_lease(store: Store, run: str, owner: str) -> bool:
    """End the lease of a process of this machine that is gone, so that nobody waits for it; tell whether it ended."""
    if not is_dead(owner):
        return False
    lease = store.leases.running(run)
    if lease is None or lease.owner != owner:
        return lease is None
    _log.warning("run %s: its owner %s is gone, and its lease is taken over", run, owner)
    store.leases.end(lease)
    return True


def owner_name(now: str, entropy: Callable[[int], bytes]) -> str:
    """Return who this is, for people and for `is_dead`: host, process, since when, and which handle of it."""
    pid = os.getpid()
    born = _born(pid)
    return f"{os.uname().nodename} pid {pid}{f' ({born})' if born else ''} since {now} #{entropy(3).hex()}"


def this_process() -> str:
    """Return a name of this process that no other has, on this machine since it was started."""
    pid = os.getpid()
    return f"{os.uname().nodename} {pid} {_born(pid) or ''}"


def is_dead(owner: str) -> bool:
    """Tell whether an owner was a process of this machine that is surely gone."""
    found = _OWNER.fullmatch(owner)
    if found is None or found["host"] != os.uname().nodename:
        return False
    ours = _born(os.getpid())
    if ours is None or found["born"] is None or ours.partition(".")[0] != found["born"].partition(".")[0]:
        return False  # numbers of another container, or of a system that does not tell
    return _born(int(found["pid"])) != found["born"]


def lock_advice(*files: Path | str) -> str:
    """Return what to do about a lock on one of these files that is kept for too long: who has it, if that is told."""
    for pid in _lock_holders({place for file in files if (place := _place(file)) is not None}):
        state = _state(pid)
        if state is not None:
            is_stopped = state in "Tt"
            said = f"process {pid}{', which is stopped,' if is_stopped else ''} has kept it locked for too long"
            resume = f"continue it (kill -CONT {pid}) or " if is_stopped else "wait for it, or "
            return f"{said}: {resume}end it (kill -9 {pid}), and repeat; what it had not committed is dropped"
    return "another process has kept it locked for too long; repeat, or end that process"


def _lock_holders(places: set[str]) -> list[int]:
    """Return the processes of this machine that have one of these files locked; none where the system does not tell."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]  # 1: FLOCK ADVISORY WRITE 4711 fd:01:1234 0 EOF
    held = [(row[4], row[_PLACE_FIELD]) for row in rows if row[3:4] == ["WRITE"] and len(row) > _PLACE_FIELD]
    return [int(pid) for pid, place in held if place in places and int(pid) not in (-1, os.getpid())]


def _place(file: Path | str) -> str | None:
    """Return device and inode as /proc/locks has them: an inode alone is another file on another file system."""
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def _born(pid: int) -> str | None:
    """Return which numbers a process is counted in, and when it began: its number alone may be used again."""
    try:
        numbers = Path("/proc/self/ns/pid").readlink().name
        state, *_, ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:20]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else f"{''.join(filter(str.isdigit, numbers))}.{ticks}"
