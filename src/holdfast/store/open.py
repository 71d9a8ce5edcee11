"""From a URL or path to a store; its driver is imported only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.store.store import Store

FOLDER = ".holdfast"
FILE = "holdfast.db"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # two letters at least: C: is a drive


def open_store(place: str | Path | None = None, **options: Any) -> Store:
    """Open the store at a URL or path; None means `.holdfast/` in this directory.

    URLs: `sqlite:///path`, `file:///folder`, `postgresql://user@host/database` (with `?tenant=`, `?schema=` and
    `?chunks=s3://bucket/prefix` of ours), `memory:`. A path that ends in `.db` is the file itself, any other is the
    folder that holds it.
    """
    if place is None:
        return _sqlite(Path.cwd() / FOLDER, options)
    if not isinstance(place, (str, Path)) or str(place) in {"", ":memory:"} or "\0" in unquote(str(place)):
        raise UsageError(f"{str(place)!r} is not a place for a store: give a path, sqlite:///path or memory:")
    if isinstance(place, Path) or not _URL.match(place):
        return _sqlite(Path(place), options)
    if place == "memory:":
        from holdfast.store.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore()
    try:
        url = urlsplit(place)
    except ValueError as error:
        raise UsageError(f"{_shown(place)!r} is not a valid URL ({error})") from None
    if url.scheme == "sqlite":
        if url.netloc or url.query or url.fragment or not url.path.startswith("/") or url.path == "/":
            raise UsageError(f"{_shown(place)!r}: write it as sqlite:///absolute/path or pass a path")
        return _sqlite(Path(unquote(url.path)), options)
    if url.scheme == "file":
        return _files(place, options)
    if url.scheme in ("postgresql", "postgres"):
        return _postgres(place, options)
    known = "sqlite:///path, file:///folder, postgresql://host/database or memory:"
    raise UsageError(f"{_shown(place)!r}: no store for {url.scheme!r}; use a path, {known}")


def _shown(place: str) -> str:
    """Return a URL without its password."""
    return re.sub(r"//[^/@]*@", "//...@", place)


def _sqlite(path: Path, options: dict[str, Any]) -> Store:
    from holdfast.store.sqlite import SQLiteStore  # noqa: PLC0415

    return SQLiteStore(path if path.suffix == ".db" else path / FILE, **options)


def _files(place: str, options: dict[str, Any]) -> Store:
    from holdfast.store.files import FilesStore  # noqa: PLC0415

    url = urlsplit(place)
    if url.netloc not in ("", "localhost") or url.fragment or not url.path.startswith("/") or url.path == "/":
        raise UsageError(f"{_shown(place)!r}: write it as file:///absolute/folder")
    if url.path.endswith(".db"):
        raise UsageError(f"{_shown(place)!r}: a store of files is a folder; a SQLite file is sqlite://{url.path}")
    if url.query:
        known = "compression is a setting of its own, and readable documents are the mirror's"
        raise UsageError(f"{_shown(place)!r}: a file URL has no options; {known}")
    return FilesStore(unquote(url.path), **options)


def _postgres(place: str, options: dict[str, Any]) -> Store:
    try:
        from holdfast.store.postgres import PostgresStore  # noqa: PLC0415
        from holdfast.store.postgres_url import PostgresPlace  # noqa: PLC0415
    except ImportError as error:
        if error.name != "psycopg":
            raise
        raise UsageError("PostgreSQL needs the extra: pip install 'holdfast[postgres]'") from None
    options = dict(options)
    chunks = options.pop("chunks", None) or PostgresPlace.parse(place).chunks
    chunk_options = options.pop("chunk_options", {})
    if chunks:
        from holdfast.store.objects import ObjectShelf  # noqa: PLC0415

        options["shelf"] = ObjectShelf(chunks, **chunk_options)
    return PostgresStore(place, **options)
