"""Keeping the right to move a run for as long as its block is open: taken, renewed by a thread, given back."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, LeaseHeld, LeaseLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.api import Store
    from holdfast.store.lease import Lease

_log = logging.getLogger("holdfast")
_OWNER = re.compile(r"(?P<host>\S+) pid (?P<pid>\d+)(?: \((?P<born>[\d.]+)\))? since .*")
LEASE_S = 30.0


class LeaseKeeper:
    """Holds one run's lease; a commit with its token is refused once somebody else has it."""

    def __init__(self, store: Store, run: str, *, owner: str, ttl_s: float = LEASE_S) -> None:
        self._store = store
        self._run = run
        self._owner = owner
        self._ttl_s = ttl_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.lease: Lease | None = None
        self.lost: LeaseLost | None = None

    def take(self) -> int:
        """Take the lease and keep renewing it; LeaseHeld names who has it. Return the token for commits."""
        try:
            self.lease = self._store.take_lease(self._run, owner=self._owner, ttl_s=self._ttl_s)
        except LeaseHeld as held:
            if not self._bury_owner(held.owner):
                raise
            self.lease = self._store.take_lease(self._run, owner=self._owner, ttl_s=self._ttl_s)
        self._thread = threading.Thread(target=self._renew, name=f"holdfast-lease-{self._run}", daemon=True)
        self._thread.start()
        return self.lease.token

    def give_back(self) -> None:
        """Let the lease go; one that was lost is fine, and one that the store cannot end now lapses by itself."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self.lease is not None and self.lost is None:
            try:
                self._store.end_lease(self.lease)
            except LeaseLost:
                pass
            except StoreError as error:  # the work is done, and must not end in this
                _log.warning("run %s: its lease could not be ended, and lapses by itself: %s", self._run, error)
        self.lease = None

    def _bury_owner(self, owner: str) -> bool:
        """End the lease of a process of this machine that is no more, so that nobody waits for it to lapse."""
        if not is_dead(owner):
            return False
        lease = self._store.lease(self._run)
        if lease is None or lease.owner != owner:
            return lease is None
        _log.warning("run %s: its owner %s is gone, and its lease is taken over", self._run, owner)
        self._store.end_lease(lease)
        return True

    def _renew(self) -> None:
        while not self._over.wait(self._ttl_s / 3):
            lease = self.lease
            if lease is None:
                return
            try:
                self.lease = self._store.renew_lease(lease, ttl_s=self._ttl_s)
            except LeaseLost as error:
                self.lost = error
                _log.error("%s", error)
                return
            except HoldfastError as error:  # the next try, or the next commit, shows whether it is lost
                _log.warning("run %s: its lease could not be renewed: %s", self._run, error)


def owner_name(now: str, entropy: Callable[[int], bytes]) -> str:
    """Return who this is, for people and for `is_dead`: host, process, since when, and which handle of it."""
    pid = os.getpid()
    born = _born(pid)
    return f"{socket.gethostname()} pid {pid}{f' ({born})' if born else ''} since {now} #{entropy(3).hex()}"


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
