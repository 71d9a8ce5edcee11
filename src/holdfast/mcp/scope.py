"""Scope: the one store, directory and set of runs that a server may show, fixed when it starts."""

from __future__ import annotations

from contextlib import contextmanager
from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import RunRecord

_ONE_AT_A_TIME = Lock()


class Grants(NamedTuple):
    """What the person who starts a server allows besides looking."""

    write: bool = False
    restore: bool = False


class Scope(NamedTuple):
    """What a server may reach; `runs` are patterns of run ids, none for every run of the store."""

    root: Path
    open: Callable[[bool], Holdfast]
    """Opens the store: for reading only, or for writing."""
    runs: tuple[str, ...] = ()
    grants: Grants = Grants()

    @contextmanager
    def reading(self) -> Iterator[Holdfast]:
        """Open the store for one look."""
        with _ONE_AT_A_TIME, self.open(False) as hf:
            yield hf

    @contextmanager
    def writing(self) -> Iterator[Holdfast]:
        """Open the store for one change."""
        with _ONE_AT_A_TIME, self.open(True) as hf:
            yield hf

    def has(self, run: str) -> bool:
        """Tell whether a run may be seen."""
        return not self.runs or any(fnmatchcase(run, pattern) for pattern in self.runs)

    def list_runs(self, hf: Holdfast, limit: int) -> list[RunRecord]:
        """Return the runs that may be seen, the last begun first."""
        return [record for record in hf.runs() if self.has(record.id)][:limit]

    def run(self, hf: Holdfast, run: str) -> str:
        """Return a run that may be seen; one that may not is not found, as if there were none."""
        if not self.has(run):
            raise NotFound("run", run)
        hf.store.run(run)
        return run

    def checkpoint(self, hf: Holdfast, spec: str) -> Checkpoint:
        """Return a checkpoint of a run that may be seen."""
        found = hf.find(spec)
        if not self.has(found.run):
            raise NotFound("checkpoint", spec)
        return found
