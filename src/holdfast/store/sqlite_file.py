"""Opening a SQLite file as a Holdfast store: private, durable, and believed only after its schema was compared.

Knows nothing of runs or checkpoints; refuses symbolic links, other owners' files, foreign schemas and old libraries.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

import apsw

from holdfast.errors import (
    FormatTooNew,
    HoldfastError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from holdfast.lazy import lazily
from holdfast.store.owner import lock_advice
from holdfast.store.private_folder import PROJECT_FOLDER, check_not_linked, check_private_folder

with lazily():  # what only reads changes nothing of the file
    import ctypes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

APPLICATION_ID = 0x484F4C32  # "HOL2": format 2; the first format had another
OLDEST_SQLITE = 3_051_003  # before it two connections that checkpoint at once could corrupt the file
BUSY_TIMEOUT_MS = 60_000
_LARGEST_VALUE = 16 * 1024 * 1024
_STEPS = Path(__file__).with_name("sql") / "sqlite"
_FIRST_FORMAT = 0x484F4C44  # "HOLD"

Durability = Literal["power", "process"]


@contextmanager
def translated(store: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise translation(error, store) from error


def translation(error: Exception, store: str) -> HoldfastError:
    """Return the error of ours for one of the driver's, with what to do next."""
    match error:
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError() | UnicodeDecodeError():
            return StoreCorrupt(
                f"the file is damaged or is not a SQLite database ({error}): restore it from a copy or a bundle", store
            )
        case apsw.FullError():
            return StoreFull(store, "no space left; nothing was written. Free some space, then repeat")
        case apsw.BusyError() | apsw.LockedError():
            path = unquote(store.removeprefix("sqlite://"))
            return StoreBusy(store, lock_advice(f"{path}-shm", path))
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreUnavailable(store, f"it cannot be written ({error}); check the permissions of its folder")
        case apsw.CantOpenError() | apsw.IOError():
            return StoreUnavailable(store, f"the disk refused ({error}); nothing was acknowledged")
        case apsw.TooBigError():
            return StoreCorrupt(f"a stored value is larger than any that is ever written ({error})", store)
        case _:
            return StoreError(store, f"SQLite refused ({type(error).__name__}: {error})")


def connect(
    path: Path, *, durability: Durability, read_only: bool, vfs: str | None = None
) -> tuple[apsw.Connection, list[int]]:
    """Return a connection to the store in this file, made first if it is not there, and the migrations applied."""
    store = str(path)
    if apsw.apsw_version() and apsw.sqlite_lib_version() and _library_version() < OLDEST_SQLITE:
        raise StoreUnavailable(store, f"SQLite {apsw.sqlite_lib_version()} can corrupt it: install a newer apsw")
    if not read_only:
        _make_private_file(path, store)
    _check_owner(path, store)
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    with translated(store):
        while True:
            connection = _open(path, read_only=read_only, vfs=vfs)
            try:
                _harden(connection)
                applied = _settle_schema(connection, store, read_only=read_only)
                if not read_only:
                    _make_durable(connection, durability, store)
            except apsw.BusyError:
                # Of those who turn the log on at the same moment SQLite refuses some at once, without waiting.
                connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            except BaseException:
                connection.close()
                raise
            else:
                return connection, applied


def recreate(
    path: Path,
    source: apsw.Connection,
    store: str,
    identity: tuple[int, int] | None,
    *,
    close: Callable[[], object],
) -> None:
    """Put a store that was deleted back under its name, whole and durable, from a connection that still has it open.

    Its own connections are closed by `close` before the name is there. The file that they have open, `identity`, is
    replaced if only its log is gone. StoreUnavailable if another has taken the name meanwhile; that is not touched.
    """
    copy = path.with_suffix(f".{os.getpid()}")
    copy.unlink(missing_ok=True)  # of a killed process, or a link that somebody put there
    _make_private_file(copy, store)
    try:
        target = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with target.backup("main", source, "main") as backup:
                backup.step(-1)
            target.execute("PRAGMA journal_mode = DELETE").fetchall()
        finally:
            target.close()
        close()
        descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path.parent.name == PROJECT_FOLDER:
            _hide_from_git(path.parent)
        for end in ("-wal", "-shm"):  # of the deleted file: who has that open still writes to them without a name
            Path(f"{path}{end}").unlink(missing_ok=True)
        if identity is not None and identity_of(path) == identity:
            copy.replace(path)
        else:
            os.link(copy, path)
        _sync_ancestors(path)
    except OSError as error:
        raise StoreUnavailable(store, f"it was deleted while it was open, and cannot be put back ({error})") from error
    finally:
        copy.unlink(missing_ok=True)


def fold_log(path: Path) -> None:
    """Make a store that nobody has open one file, which can be read without another beside it."""
    with translated(str(path)):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        finally:
            connection.close()
    Path(f"{path}-heads").unlink(missing_ok=True)


def can_be_written(path: Path) -> bool:
    """Tell whether the file and the folder, where its log goes, may be written."""
    return os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _library_version() -> int:
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split("."))
    return major * 1_000_000 + minor * 1_000 + patch


def _make_private_file(path: Path, store: str) -> None:
    """Create file and folders for their owner only, durably named before anything is written."""
    check_not_linked(path.parent, store)
    try:
        for folder in reversed((path.parent, *path.parent.parents)):
            if not folder.exists():
                _make_private_folder(folder)
        check_private_folder(path.parent, store)
        if path.parent.name == PROJECT_FOLDER and not path.exists():
            _hide_from_git(path.parent)
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if path.lstat().st_size:
                return
        else:
            os.fchmod(descriptor, 0o600)
            os.close(descriptor)
        _sync_ancestors(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(store, "no space left; nothing was written. Free some space, then repeat") from error
        raise StoreUnavailable(
            store, f"cannot be created ({error.strerror}); choose another place with holdfast.open(path)"
        ) from error


def _make_private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    folder.chmod(0o700)  # a umask may have taken the owner's rights too


def _hide_from_git(folder: Path) -> None:
    """Let git ignore the folder: it would commit the store with `add -A`, and delete it with `clean -fd`."""
    try:
        descriptor = os.open(folder / ".gitignore", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    try:
        os.write(descriptor, b"*\n")
    finally:
        os.close(descriptor)


def _sync_ancestors(path: Path) -> None:
    """Make every name on the way to a file durable: who made a folder may have been killed before syncing it.

    Done by all who find the file empty, so once it has a first page nobody needs to do it again.
    """
    device = path.parent.stat().st_dev
    for folder in path.parents:
        if folder.stat().st_dev != device:
            return
        try:
            sync_directory(folder)
        except OSError as error:
            if folder == path.parent or error.errno not in (errno.EACCES, errno.EINVAL):
                raise


def _check_owner(path: Path, store: str) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise StoreUnavailable(store, "there is no store here; open it without read_only to begin one") from None
    except OSError as error:
        raise StoreUnavailable(store, f"cannot be reached ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnavailable(store, "is not a regular file; a store is never opened through a link")
    if status.st_size == 1:
        # SQLite takes a single byte for an empty file, and would begin a new store over it.
        raise StoreCorrupt("the file was cut short: it holds a single byte", store)
    if status.st_uid != os.geteuid():
        raise StoreUnavailable(store, f"belongs to user {status.st_uid}, not to you; copy it to a place of your own")


def _open(path: Path, *, read_only: bool, vfs: str | None) -> apsw.Connection:
    if not read_only:
        if not os.access(path, os.R_OK | os.W_OK):
            # SQLite would fall back to reading, and leave a log with the same permissions, which blocks later writers.
            raise apsw.PermissionsError("no permission to read and write the file")
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    # A writer that is there has an index and a log, which is empty until it commits.
    if can_be_written(path) or (index.exists() and log.exists()):
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    if log.exists() and log.stat().st_size > 0:
        raise StoreUnavailable(
            str(path), f"its last commits are in {log.name}, which cannot be read here: copy both to another place"
        )
    # Without a log there is nothing to replay, and an immutable file can be read where nothing may be written.
    uri = path.absolute().as_uri() + "?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)


def _harden(connection: apsw.Connection) -> None:
    """Keep anything that a hostile file holds from running, and bound what it can make us allocate."""
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    # A page that is split or emptied keeps no copy of what was on it: what is deleted later would stay there.
    connection.execute("PRAGMA secure_delete = FAST").fetchall()


def _settle_schema(connection: apsw.Connection, store: str, *, read_only: bool) -> list[int]:
    """Create or migrate the schema, compare it with ours, and return the versions that were applied."""
    applied: list[int] = []
    if not read_only and not _schema(connection):
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        with _immediate(connection):
            if not _schema(connection):
                _apply(connection, 0)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    version, newest = _known_version(connection, store), len(_steps())
    if version < newest:
        if read_only:
            raise StoreUnavailable(store, "its tables are of an older version: open it once without read_only")
        with _immediate(connection):
            version = _pragma(connection, "user_version")
            if _schema(connection) != _expected(version):
                raise StoreCorrupt("its tables are not those of a Holdfast store: it was altered or damaged", store)
            applied = _apply(connection, version)
    if _schema(connection) != _expected(newest):
        raise StoreCorrupt("its tables are not those of a Holdfast store: it was altered or damaged", store)
    return applied


def _known_version(connection: apsw.Connection, store: str) -> int:
    """Return the version of a file's tables; StoreCorrupt or FormatTooNew unless it is one of ours."""
    found, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if found == _FIRST_FORMAT:
        raise StoreCorrupt(
            "is a store of the first format, which this version does not read; choose another file", store
        )
    if found != APPLICATION_ID:
        raise StoreCorrupt("is not a Holdfast store; choose another file", store)
    if version > len(_steps()):
        raise FormatTooNew(f"store {store}", version, len(_steps()))
    if version < 1:
        raise StoreCorrupt(f"its version ({version}) was never given: it was altered or damaged", store)
    return version


def _apply(connection: apsw.Connection, version: int) -> list[int]:
    """Apply the steps after a version, inside a transaction, and return their numbers."""
    applied = []
    for number, statements in enumerate(_steps(), 1):
        if number > version:
            for statement in statements:
                connection.execute(statement)
            applied.append(number)
    connection.execute(f"PRAGMA user_version = {len(_steps())}")
    return applied


def identity_of(path: str | Path) -> tuple[int, int] | None:
    """Return which file a path leads to, None if to none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a text: 3 us less than a Path in every commit
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_same_file(path: str, identity: tuple[int, int] | None) -> bool:
    """Tell whether a path still leads to the file that was opened there."""
    return identity is not None and identity_of(path) == identity


def leave_log(connection: apsw.Connection) -> None:
    """Let a connection leave the log alone when it closes: its name may be another file's by now.

    The last connection to close removes the log by its name. If the store was deleted or replaced under it, that name
    is the new store's, and what its writers had committed would be gone.
    """
    wanted = ctypes.c_int(1)
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(wanted))


def is_deleted(identity: tuple[int, int] | None) -> bool:
    """Tell whether a file that this process has open has no name left; False if it was moved, or nobody can tell.

    The file is not opened for it: closing it again would end the locks that SQLite holds.
    """
    with suppress(OSError):
        for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
            with suppress(OSError):
                status = os.stat(f"/proc/self/fd/{number}")  # noqa: PTH116
                if (status.st_dev, status.st_ino) == identity:
                    return status.st_nlink == 0
    return False


def _make_durable(connection: apsw.Connection, durability: Durability, store: str) -> None:
    """Write ahead, and (unless only process crashes matter) sync the log once a commit."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if mode != "wal":
        raise StoreUnavailable(store, f"this file system allows no write-ahead log (got {mode!r}); use a local disk")
    connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    # A log of 2 MB instead of 4: disk while open / closed 1.68 to 1.36 after 1,000 checkpoints, for 3% more bytes.
    connection.execute("PRAGMA wal_autocheckpoint = 500").fetchall()


@contextmanager
def _immediate(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _schema(connection: apsw.Connection) -> set[str]:
    """Return the text of every table, index, view and trigger in the file; implied indexes have none."""
    rows = connection.execute("SELECT sql, name FROM sqlite_schema").fetchall()
    return {f"without text: {name}" if sql is None else str(sql) for sql, name in rows if not _is_implied(sql, name)}


def _is_implied(sql: object, name: object) -> bool:
    return sql is None and isinstance(name, str) and name.startswith("sqlite_autoindex_")


@cache
def _steps() -> tuple[tuple[str, ...], ...]:
    """Return the statements of every step, oldest first: a new file goes through all of them."""
    texts = [file.read_text() for file in sorted(_STEPS.glob("*.sql"))]
    return tuple(tuple(part.strip() for part in text.split(";") if part.strip()) for text in texts)


@cache
def _expected(version: int) -> frozenset[str]:
    """Return the schema that the steps up to a version make."""
    connection = apsw.Connection(":memory:")
    try:
        for statements in _steps()[:version]:
            for statement in statements:
                connection.execute(statement)
        return frozenset(_schema(connection))
    finally:
        connection.close()


def _pragma(connection: apsw.Connection, name: str) -> int:
    value = connection.execute(f"PRAGMA {name}").fetchall()[0][0]
    return value if isinstance(value, int) else -1
