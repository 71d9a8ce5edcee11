"""Lease of a run, kept for as long as its block is open: taken, renewed by a thread, given back.

Where another machine can reach the store, a process that cannot renew its lease stops its commands before the lease can
lapse (self-fencing), by its own clock: the next owner may begin at that moment.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, LeaseHeld, LeaseLost, StoreError
from holdfast.store.owner import end_dead_lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.lease import Lease
    from holdfast.store.store import Store

_log = logging.getLogger("holdfast")
LEASE_S = 30.0
_SAFE_SHARE = 0.8  # of the lease: what is left is for commands to end before anybody else may begin


class LeaseKeeper:
    """Holds one run's lease; a commit with its token is refused once somebody else has it."""

    def __init__(
        self,
        store: Store,
        run: str,
        *,
        owner: str,
        ttl_s: float = LEASE_S,
        lost: Callable[[LeaseLost], object] = lambda _error: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without the lease; `lost` hears, on a thread, that it is lost or about to lapse."""
        self._tell_lost = lost
        self._monotonic = monotonic
        self._renewed_at = 0.0
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
        self._renewed_at = self._monotonic()
        try:
            self.lease = self._store.leases.take(self._run, owner=self._owner, ttl_s=self._ttl_s)
        except LeaseHeld as held:
            if not end_dead_lease(self._store, self._run, held.owner):
                raise
            self.lease = self._store.leases.take(self._run, owner=self._owner, ttl_s=self._ttl_s)
        self._thread = threading.Thread(target=self._renew, name=f"holdfast-lease-{self._run}", daemon=True)
        self._thread.start()
        return self.lease.token

    def give_back(self) -> None:
        """Let the lease go; one that was lost is fine, and one that the store cannot end now lapses by itself."""
        self._over.set()
        if self._thread is not None and self._thread.is_alive():  # not yet, if a signal interrupted its start
            self._thread.join()
        if self.lease is not None and self.lost is None:
            try:
                self._store.leases.end(self.lease)
            except LeaseLost:
                pass
            except StoreError as error:  # the work is done, and must not end in this
                _log.warning("run %s: its lease could not be ended, and lapses by itself: %s", self._run, error)
        self.lease = None

    def _renew(self) -> None:
        pause_s = self._ttl_s / 3
        while not self._over.wait(pause_s):
            lease = self.lease
            if lease is None:
                return
            asked_at = self._monotonic()
            try:
                self.lease = self._store.leases.renew(lease, ttl_s=self._ttl_s)
                self._renewed_at, pause_s = asked_at, self._ttl_s / 3
            except LeaseLost as error:
                self._is_lost(error)
                return
            except HoldfastError as error:  # the next attempt, or the next commit, shows whether it is lost
                _log.warning("run %s: its lease could not be renewed: %s", self._run, error)
                left_s = self._renewed_at + self._ttl_s * _SAFE_SHARE - self._monotonic()
                if left_s <= 0 and self._store.traits.many_machines:
                    self._is_lost(LeaseLost(self._run, lease.token, None))
                    return
                pause_s = max(0.05, min(self._ttl_s / 10, left_s))

    def _is_lost(self, error: LeaseLost) -> None:
        self.lost = error
        _log.error("%s", error)
        self._tell_lost(error)
