"""From a URL or path to a store; its driver is imported only then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.store.api import Store

FOLDER = ".holdfast"
FILE = "holdfast.db"


def open_store(place: str | Path | None = None, **options: Any) -> Store:
    """Open the store at a URL (`sqlite:///path`, `memory:`) or path; None means `.holdfast/` in this directory.

    A path that ends in `.db` is the file itself, any other is the folder that holds it.
    """
    if place is None:
        return _sqlite(Path.cwd() / FOLDER, options)
    if isinstance(place, Path) or ("://" not in place and place != "memory:"):
        if not str(place) or "\0" in str(place):
            raise UsageError(f"{str(place)!a} is no place for a store: give a path or a URL")
        return _sqlite(Path(place), options)
    if place == "memory:":
        from holdfast.store.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore()
    url = urlsplit(place)
    if url.scheme == "sqlite":
        if url.netloc or url.query or url.fragment or len(url.path) < 2:  # noqa: PLR2004 - "/" names no file
            raise UsageError(f"{place!a}: write it as sqlite:///absolute/path or pass a path")
        return _sqlite(Path(unquote(url.path)), options)
    raise UsageError(f"{place!a}: no store for {url.scheme!a}; use a path, sqlite:///path or memory:")


def _sqlite(path: Path, options: dict[str, Any]) -> Store:
    from holdfast.store.sqlite import SQLiteStore  # noqa: PLC0415

    return SQLiteStore(path if path.suffix == ".db" else path / FILE, **options)
