"""Owner of a lease: which process it is, and whether it is surely gone."""

from __future__ import annotations

import logging
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.store import Store

_log = logging.getLogger("holdfast")
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
    return f"{socket.gethostname()} pid {pid}{f' ({born})' if born else ''} since {now} #{entropy(3).hex()}"


def this_process() -> str:
    """Return a name of this process that no other has, on this machine since it was started."""
    pid = os.getpid()
    return f"{socket.gethostname()} {pid} {_born(pid) or ''}"


def is_dead(owner: str) -> bool:
    """Tell whether an owner was a process of this machine that is surely gone."""
    found = _OWNER.fullmatch(owner)
    if found is None or found["host"] != socket.gethostname():
        return False
    ours = _born(os.getpid())
    if ours is None or found["born"] is None or ours.partition(".")[0] != found["born"].partition(".")[0]:
        return False  # numbers of another container, or of a system that does not tell
    return _born(int(found["pid"])) != found["born"]


def _born(pid: int) -> str | None:
    """Return which numbers a process is counted in, and when it began: its number alone may be used again."""
    try:
        numbers = Path("/proc/self/ns/pid").readlink().name
        state, *_, ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:20]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else f"{''.join(filter(str.isdigit, numbers))}.{ticks}"
