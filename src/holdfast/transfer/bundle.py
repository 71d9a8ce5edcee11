"""A run as one file that can be mailed: a small store of its own, opened with the same distrust as any other.

Written beside its name and renamed when it is whole; one that was interrupted is resumed by the next export.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.encode.documents import open_regular
from holdfast.errors import HoldfastError, KeyRefused, NotFound, StoreCorrupt, StoreUnavailable, UsageError
from holdfast.store.keys import has_keys, keys_of, seal_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_file import fold_log, sync_directory
from holdfast.transfer.copy import Copied, copy_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.store.store import Store

_HEADER_BYTES = 100
_LARGEST_PAGE = 65_536


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
    for name in names:
        source.run(name)  # NotFound before anything is written
    part = target.with_name(f"{target.name}.part")
    with _translated(target):
        if os.path.lexists(target):
            raise UsageError(f"{target} is there already: choose another name, or remove it first")
        _remove_unless_ours(part, set(names), source)
    bundle = SQLiteStore(part)
    try:
        copied = copy_runs(source, bundle, names, progress=progress)
        bundle.reclaim()
    finally:
        bundle.close()
    with _translated(target):
        fold_log(part)
        try:
            os.link(part, target)  # unlike a rename, never in place of a file that came meanwhile
        except FileExistsError:
            raise UsageError(f"{target} is there by now: choose another name, or remove it first") from None
        part.unlink()
        sync_directory(target.parent)
    return copied


@contextmanager
def _translated(place: Path) -> Iterator[None]:
    """Give what the file system says of a bundle as an error of ours."""
    try:
        yield
    except OSError as error:
        detail = f"cannot be written or read as a bundle ({error.strerror}); choose another place"
        raise StoreUnavailable(str(place), detail) from error


def _remove_unless_ours(part: Path, names: set[str], source: Store) -> None:
    """Remove an interrupted bundle if it holds a run that nobody asks for now: it is to be mailed."""
    if not part.exists():
        return
    keys = keys_of(source)
    try:
        bundle: Store = SQLiteStore(part, read_only=True)
        try:
            listing = (bundle if keys is None else keys.over(bundle.medium)).runs()
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
    with _translated(place):
        if not place.is_file():
            raise NotFound("bundle", str(path))
        _refuse_more(place)
    try:
        bundle = SQLiteStore(place, read_only=True)
    except StoreUnavailable as error:
        raise StoreUnavailable(error.store, f"cannot be opened as a bundle ({error.detail})") from error
    try:
        if key is None and has_keys(bundle):
            raise KeyRefused(
                "it is of an encrypted or signed store: give one of that store's keys with key=", bundle.url
            )
        return copy_runs(seal_store(bundle, key, sign=None), target, runs, progress=progress)
    finally:
        bundle.close()


def _refuse_more(place: Path) -> None:
    """Refuse a file that is not a bundle, or has bytes after its end: whoever forwards it might look at them."""
    with os.fdopen(open_regular(place, follow=True).descriptor, "rb") as file:
        header = file.read(_HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    if not header.startswith(b"SQLite format 3\0"):
        raise StoreCorrupt(
            "it is not a file that `holdfast export` wrote: name one, or export the runs again", str(place)
        )
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    expected = (_LARGEST_PAGE if page == 1 else page) * pages
    if size > expected:
        raise StoreCorrupt(f"it has {size - expected:,} bytes after its end: export the runs again", str(place))
