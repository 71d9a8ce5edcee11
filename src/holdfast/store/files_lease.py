"""Leases and bells of a files store: one small file each in the run's folder; the clock is this machine's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.store.bell import CountedBell
from holdfast.store.lease import Lease, check_current, check_takeable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.store.bell import Bell
    from holdfast.store.files_disk import Disk
    from holdfast.store.files_names import Location

_LEASE, _RINGS = ".lease.json", ".rings"


class FileLeases:
    """The leases and bells below one base."""

    def __init__(self, disk: Disk, location: Location) -> None:
        self._disk = disk
        self._location = location

    def of(self, folder: Path) -> Lease | None:
        """Return the last lease of a run, running or not."""
        lease: Lease | None = read_small(folder / _LEASE, Lease)
        return lease

    def running(self, run: str) -> Lease | None:
        """Return the running lease of a run."""
        lease = self.of(self._location.of(run))
        return lease if lease is not None and lease.expires_at > datetime.now(UTC) else None

    def take(self, run: str, owner: str, ttl_s: float, next_token: Callable[[], int]) -> Lease:
        """Take a lease, LeaseHeld if another owner has it."""
        folder = self._location.of(run)
        self._disk.make_folder(folder)
        with self._disk.locked(folder, alone=True):
            now = datetime.now(UTC)
            check_takeable(self.of(folder), owner, now)
            lease = Lease(run=run, owner=owner, token=next_token(), expires_at=now + timedelta(seconds=ttl_s))
            self._disk.put(folder / _LEASE, msgspec.json.encode(lease))
            return lease

    def change(self, lease: Lease, ttl_s: float) -> Lease:
        """Set when a lease ends, LeaseLost if it is no longer the run's."""
        folder = self._location.of(lease.run)
        if not folder.is_dir():
            return check_current(None, lease.run, lease.token)
        with self._disk.locked(folder, alone=True):
            current = check_current(self.of(folder), lease.run, lease.token)
            changed = msgspec.structs.replace(current, expires_at=datetime.now(UTC) + timedelta(seconds=ttl_s))
            self._disk.put(folder / _LEASE, msgspec.json.encode(changed))
            return changed

    def end(self, lease: Lease) -> None:
        """Give a lease back, unless it was lost."""
        current = self.of(self._location.of(lease.run))
        if current is not None and current.token == lease.token:
            self.change(lease, 0)

    def ring(self, run: str) -> None:
        """Count one more ring for a run."""
        folder = self._location.of(run)
        self._disk.make_folder(folder)
        with self._disk.locked(folder, alone=True):
            self._disk.put(folder / _RINGS, str(_rings(folder) + 1).encode())

    def bell(self, run: str) -> Bell:
        """Return a bell for one run."""
        folder = self._location.of(run)
        return CountedBell(lambda: _rings(folder))


def read_small(path: Path, kind: Any) -> Any:
    """Return a small file's content, None if it is not there or broken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _rings(folder: Path) -> int:
    try:
        return int((folder / _RINGS).read_bytes())
    except (FileNotFoundError, ValueError):
        return 0
