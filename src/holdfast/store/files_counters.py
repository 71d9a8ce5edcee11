"""Numbers of a whole files store that never go back; lost, they are found again from what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import IntegrityError
from holdfast.store.files_lease import read_small

if TYPE_CHECKING:
    from holdfast.store.files_disk import Disk
    from holdfast.store.files_lease import FileLeases
    from holdfast.store.files_names import Location
    from holdfast.store.files_run import RunReader

_FILE = ".counters.json"


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that never go back: of the run begun last, and of the last lease."""

    runs: int = 0
    token: int = 0


class CounterFile:
    """The counters, in a file of their own."""

    def __init__(self, disk: Disk, location: Location, leases: FileLeases, reader: RunReader) -> None:
        self._disk = disk
        self._location = location
        self._leases = leases
        self._reader = reader

    def count(self, *, runs: int = 0, tokens: int = 0) -> Counters:
        """Move the store's counters on; lost, they are found again from what is there."""
        with self._disk.locked(self._location.base, alone=True):
            path = self._location.base / _FILE
            now = read_small(path, Counters) or self._recount()
            now = Counters(runs=now.runs + runs, token=now.token + tokens)
            self._disk.put(path, msgspec.json.encode(now))
        return now

    def _recount(self) -> Counters:
        numbers, tokens = [0], [0]
        for folder in self._location.all():
            lease = self._leases.of(folder)
            tokens.append(lease.token if lease else 0)
            try:
                state = self._reader.state(folder)
            except IntegrityError:
                continue
            numbers.append(state.number if state else 0)
        return Counters(runs=max(numbers), token=max(tokens))
