"""Runs from one store to another, or into a file: what `hf.transfer` offers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from holdfast.lazy import lazily
from holdfast.store.open import open_store

with lazily():
    from holdfast.transfer import bundle, copy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.store.store import Store
    from holdfast.transfer.copy import Copied


class OpenStore(Protocol):
    """What has a store open: a `Holdfast`."""

    store: Store


class Transfer:
    """Copies runs out of one store and into it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def copy_to(
        self,
        target: OpenStore | Store | str | Path,
        *runs: str,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Copied]:
        """Copy runs (all, unless some are named) to another store; verified, resumable, ids and lineage kept."""
        if not isinstance(target, (str, os.PathLike)):
            known: Store = getattr(target, "store", target)  # type: ignore[arg-type]
            return copy.copy_runs(self._store, known, runs or None, progress=progress)
        opened = open_store(target)
        try:
            return copy.copy_runs(self._store, opened, runs or None, progress=progress)
        finally:
            opened.close()

    def export(
        self, path: str | Path, *runs: str, progress: Callable[[str, int, int], None] | None = None
    ) -> list[Copied]:
        """Write runs with their checkpoints and files into one file that can be imported elsewhere."""
        return bundle.export_runs(self._store, runs, path, progress=progress)

    def import_from(
        self,
        path: str | Path,
        *runs: str,
        key: str | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Copied]:
        """Take over the runs of an exported file (all, unless some are named); everything is verified on the way.

        Runs of an encrypted store stay encrypted: give its key, and import into an empty store, or one with a key.
        """
        return bundle.import_runs(path, self._store, runs or None, key=key, progress=progress)
