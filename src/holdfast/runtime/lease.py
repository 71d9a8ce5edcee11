"""Leases of the runs that this process moves: taken, renewed by one thread for all of them, given back.

Where another machine can reach the store, a process that cannot renew a lease stops its commands before the lease can
lapse (self-fencing), by its own clock and on a thread that asks nobody: the next owner may begin at that moment. On a
local store the owner is its process, so a store that cannot be written ends no command.
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
_SOONEST_S = 0.05
_LONGEST_WAIT_S = 3_600.0


class LeaseRenewer:
    """Renews every lease that a process holds in one store: one thread, and one that watches the deadlines."""

    def __init__(self, *, has_deadlines: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._has_deadlines = has_deadlines
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._held: set[LeaseKeeper] = set()
        self._threads: list[threading.Thread] = []

    def add(self, keeper: LeaseKeeper) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._held.add(keeper)
            if not self._threads:
                self._start("holdfast-leases", lambda one: one.renews_at, LeaseKeeper.renew)
                if self._has_deadlines:
                    self._start("holdfast-fence", lambda one: one.lapses_at, LeaseKeeper.fence)
            self._changed.notify_all()

    def remove(self, keeper: LeaseKeeper) -> None:
        """Renew it no longer; after the last one no thread is left."""
        with self._changed:
            self._held.discard(keeper)
            left, self._threads = ([], self._threads) if self._held else (self._threads, [])
            self._changed.notify_all()
        for thread in left:
            if thread is not threading.current_thread() and thread.is_alive():  # not yet, if a signal interrupted us
                thread.join()

    def _start(self, name: str, due_at: Callable[[LeaseKeeper], float], act: Callable[[LeaseKeeper], None]) -> None:
        thread = threading.Thread(target=self._run, args=(due_at, act), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, due_at: Callable[[LeaseKeeper], float], act: Callable[[LeaseKeeper], None]) -> None:
        while True:
            with self._changed:
                if threading.current_thread() not in self._threads:
                    return
                first = min(self._held, key=due_at)
                left_s = due_at(first) - self._monotonic()
                if left_s > 0:
                    self._changed.wait(min(left_s, _LONGEST_WAIT_S))
                    continue
            act(first)


class LeaseKeeper:
    """Holds one run's lease; a commit with its token is refused once somebody else has it."""

    def __init__(
        self,
        store: Store,
        run: str,
        *,
        owner: str,
        renewer: LeaseRenewer,
        ttl_s: float = LEASE_S,
        lost: Callable[[LeaseLost], object] = lambda _error: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without the lease; `lost` hears, on a thread, that it is lost or about to lapse."""
        self._tell_lost = lost
        self._monotonic = monotonic
        self._store = store
        self._run = run
        self._owner = owner
        self._renewer = renewer
        self._ttl_s = ttl_s
        self._renewing = threading.Lock()
        self.lease: Lease | None = None
        self.lost: LeaseLost | None = None
        self.renews_at = self.lapses_at = 0.0
        """When it is to be renewed, and when this process must have stopped if it was not."""

    def take(self) -> int:
        """Take the lease and keep renewing it; LeaseHeld names who has it. Return the token for commits."""
        asked_at = self._monotonic()
        try:
            self.lease = self._store.leases.take(self._run, owner=self._owner, ttl_s=self._ttl_s)
        except LeaseHeld as held:
            if not end_dead_lease(self._store, self._run, held.owner):
                raise
            asked_at = self._monotonic()
            self.lease = self._store.leases.take(self._run, owner=self._owner, ttl_s=self._ttl_s)
        self._is_held_since(asked_at)
        self._renewer.add(self)
        return self.lease.token

    def give_back(self) -> None:
        """Let the lease go; one that was lost is fine, and one that the store cannot end now lapses by itself."""
        self._renewer.remove(self)
        with self._renewing:
            lease, self.lease = self.lease, None
        if lease is None or self.lost is not None:
            return
        try:
            self._store.leases.end(lease)
        except LeaseLost:
            pass
        except StoreError as error:  # the work is done, and must not end in this
            _log.warning("run %s: its lease could not be ended, and lapses by itself: %s", self._run, error)

    def renew(self) -> None:
        """Keep the lease for longer."""
        with self._renewing:
            lease = self.lease
            if lease is None or self.lost is not None:
                return
            asked_at = self._monotonic()
            try:
                self.lease = self._store.leases.renew(lease, ttl_s=self._ttl_s)
            except LeaseLost as error:
                self._is_lost(error)
            except HoldfastError as error:  # the next attempt, or the next commit, shows whether it is lost
                _log.warning("run %s: its lease could not be renewed: %s", self._run, error)
                self.renews_at = self._monotonic() + max(_SOONEST_S, self._ttl_s / 10)
            else:
                self._is_held_since(asked_at)

    def fence(self) -> None:
        """Stop what runs under a lease that is about to lapse, even if the store has not answered yet."""
        lease = self.lease
        if lease is not None and self.lost is None and self._monotonic() >= self.lapses_at:
            self._is_lost(LeaseLost(self._run, lease.token, None))

    def _is_held_since(self, moment: float) -> None:
        self.renews_at = moment + self._ttl_s / 3
        self.lapses_at = moment + self._ttl_s * _SAFE_SHARE

    def _is_lost(self, error: LeaseLost) -> None:
        self.lost = error
        self.renews_at = self.lapses_at = float("inf")
        _log.error("%s", error)
        self._tell_lost(error)
