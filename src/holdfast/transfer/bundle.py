"""A run as one file that can be mailed: a small store of its own, opened with the same distrust as any other.

Written beside its name and renamed when it is whole; a bundle that was broken off is carried on by the next export.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, KeyRefused, NotFound, StoreUnavailable, UsageError
from holdfast.store.sealed import read_slots, seal_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_file import fold_log, sync_directory
from holdfast.transfer.copy import Copied, copy_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.store.api import Store

SUFFIX = ".holdfast"


def export_runs(
    source: Store,
    runs: Iterable[str],
    path: Path | str,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Copied]:
    """Write runs with all their checkpoints and files into one file; refuses to overwrite one that is there."""
    target = Path(path).absolute()
    names = list(runs)
    if not names:
        raise UsageError("name at least one run to export")
    if target.exists():
        raise UsageError(f"{target} is there already: choose another name, or remove it first")
    for name in names:
        source.run(name)  # NotFound before anything is written
    part = target.with_name(f"{target.name}.part")
    _begin_anew_unless_ours(part, set(names))
    bundle = SQLiteStore(part)
    try:
        copied = copy_runs(source, bundle, names, progress=progress)
        bundle.reclaim()
    finally:
        bundle.close()
    fold_log(part)
    os.link(part, target)  # unlike a rename, never in place of a file that came meanwhile
    part.unlink()
    sync_directory(target.parent)
    return copied


def _begin_anew_unless_ours(part: Path, names: set[str]) -> None:
    """Throw a bundle that was broken off away if it holds a run that nobody asks for now: it is to be mailed."""
    if not part.exists():
        return
    try:
        bundle = SQLiteStore(part, read_only=True)
        try:
            listing = bundle.runs()
        finally:
            bundle.close()
        is_ours = not listing.damaged and {run.id for run in listing} <= names
    except HoldfastError:
        is_ours = False
    if not is_ours:
        for suffix in ("-wal", "-shm", ""):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def import_runs(
    path: Path | str,
    target: Store,
    runs: Iterable[str] | None = None,
    *,
    key: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Copied]:
    """Copy the runs of a bundle (all, unless some are named) into a store; everything in it is verified on the way.

    A bundle of an encrypted store is opened with one of that store's keys, and its runs stay encrypted.
    """
    place = Path(path).absolute()
    if not place.is_file():
        raise NotFound("bundle", str(path))
    try:
        bundle = SQLiteStore(place, read_only=True)
    except StoreUnavailable as error:
        raise StoreUnavailable(error.store, f"cannot be opened as a bundle ({error.detail})") from error
    try:
        return copy_runs(_unlocked(bundle, key), target, runs, progress=progress)
    finally:
        bundle.close()


def _unlocked(bundle: Store, key: str | None) -> Store:
    if key is None and read_slots(bundle) is not None:
        raise KeyRefused("it is of an encrypted or signed store: give one of that store's keys with key=", bundle.url)
    return seal_store(bundle, key)
