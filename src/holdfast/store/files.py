"""The files medium: a log a run and a file a chunk, in one folder that any tool can copy.

    meta.jsonl, meta.witness    facts about the store itself
    runs/<run>/journal.jsonl    one line a transaction: the truth (files_log.py)
    witness/<run>               how far each log went, written after it and not synced
    index.jsonl                 runs in the order in which they were begun, with their numbers; never the truth
    chunks/ab/ab12...           codec, plain size, bytes
    wakes/<run>, lock, tmp/

A transaction changes the rows in memory (files_rows.py), makes its chunks durable, then writes one line and syncs it.
Writers take turns under one lock. Readers take none: they see a log up to its last whole line, and ask for the lock
only before they call something damaged.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, StoreUnavailable, UsageError
from holdfast.store.api import StoreTraits
from holdfast.store.files_disk import ChunkFiles, Disk, Lock, translated
from holdfast.store.files_log import LogChange, LogLine, Witness, drop_change, make_line, make_witness, put_change
from holdfast.store.files_rows import BY_LINE, STORE, UNKNOWN, Log, LogRows, integer, names_in, stamp, status_of
from holdfast.store.medium import Batch, MediumSizes, StaleError, apply_in
from holdfast.store.names import run_name
from holdfast.store.private_folder import PROJECT_FOLDER, check_not_linked, check_own_folders, check_private_folder
from holdfast.store.store import Store
from holdfast.store.tables import ACCOUNT, CHECKPOINT, FORMAT, INBOX, LINE, META, RECORD, RUN
from holdfast.store.wakeups import PolledWakeups

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast.encode.chunks import Chunk
    from holdfast.store.tables import Key, Row, Table
    from holdfast.store.wakeups import Wakeup

BUSY_TIMEOUT_S = 30.0
_FOLDERS = ("tmp", "wakes", "chunks", "runs", "witness")
_ROWS_A_LINE, _HOLDS_A_LINE = 256, 8192  # of a log that is rewritten
_WASTE_FROM = 64  # rows: smaller logs are not worth rewriting


class FilesMedium:
    """Rows and chunks as files below one folder."""

    traits = StoreTraits(checkpoint_bytes=1_050, durable=True, many_processes=True, many_runs=False)

    def __init__(self, folder: Path | str, *, busy_timeout_s: float = BUSY_TIMEOUT_S, disk: Disk | None = None) -> None:
        self._folder = Path(folder).absolute()
        self.folder: Path | None = self._folder
        self.own_paths: tuple[Path, ...] = (self._folder,)
        self.url = f"file://{self._folder}"
        self._disk = disk or Disk()
        self._lock = Lock(self._folder / "lock", self.url, busy_timeout_s)
        self._rows = LogRows(self._folder, self._lock)
        self._tmp, self._wakes = self._folder / "tmp", self._folder / "wakes"
        self._wakeups = PolledWakeups(self._wakes_of)
        self._chunks = ChunkFiles(self._folder / "chunks", self._tmp, self._disk)
        self._calls_lock = threading.RLock()
        self._depth = 0
        self._is_closed = False
        self._is_tidy = False
        self._is_swept = False
        with translated(self.url):
            check_not_linked(self._folder, self.url)
            self._disk.make_folder(self._folder)
            check_private_folder(self._folder, self.url)
            own = (place for place in self._folder.parents if place.name == PROJECT_FOLDER)
            self._no_links = [place for place in (self._folder, *own) if not place.is_symlink()]
            check_own_folders(self._folder, self.url, names=_FOLDERS, with_below=("chunks", "runs"))

    heads = None  # its own log and witnesses, or its server, answer for how far its lines had come

    def fresh(self) -> AbstractContextManager[_Reader]:
        """Look at the present moment, which every look is."""
        return self.read()

    @contextmanager
    def read(self) -> Iterator[_Reader]:
        """Look at one moment of each run."""
        with self._calls():
            yield _Reader(self._rows, self._chunks)

    @contextmanager
    def write(self, *, erase: bool = False) -> Iterator[_Transaction]:
        """Begin a transaction; it may change one run, or facts about the store."""
        with self._calls(), self._lock.hold(alone=True):
            if self._rows.is_locked:
                raise UsageError("a transaction is under way in this thread already")
            transaction = _Transaction(self._rows, self._chunks, erase=erase)
            self._rows.is_locked = True
            self._rows.expire()
            try:
                self._tidy()
                with self._rows.image.transaction():
                    yield transaction
                    self._commit(transaction)
            except BaseException as error:
                transaction.discard()
                self._is_tidy &= isinstance(error, (HoldfastError, StaleError))
                raise
            finally:
                self._rows.is_locked = False
            self._erase_unheld(transaction)

    def apply(self, batch: Batch) -> None:
        """Check the guards and write everything."""
        with self.write() as transaction:
            apply_in(transaction, batch)

    def now(self) -> float:
        """Return this machine's time."""
        return time.time()

    def in_order_begun(self, *, limit: int | None = None) -> list[Row]:
        """Return the rows of runs, the last begun first; for one that lost its row, one that cannot be opened."""
        found: list[Row] = []
        with self._calls():
            for run in sorted(self._rows.runs(), key=lambda run: self._rows.begun.get(run, 0), reverse=True):
                if limit is not None and len(found) >= limit:
                    break
                log = self._rows.refresh_one_of_many(run)
                row = self._rows.image.get(RUN, (run,))
                if row is None and log.damage is not None:
                    row = (run, 0, *[None] * (len(RUN.columns) - 1), b"", b"")
                if row is not None:
                    found.append(row)
        return found

    def chunk_ids(self) -> Iterator[bytes]:
        """Yield the id of every stored chunk."""
        with self._calls():
            names = list(self._chunks.names())
        yield from names

    def damaged_holds(self) -> Mapping[bytes, str]:
        """Return none: there is no count; the runs whose logs say so are the holders."""
        return {}

    def recount_holds(self) -> None:
        """Do nothing: there is no count that could be wrong."""

    def wake(self, run: str) -> None:
        """Add a byte to the run's file of wakes."""
        with self._calls():
            self._disk.make_folder(self._wakes)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._wakes / run_name(run), flags, 0o600)
            try:
                os.write(descriptor, b".")
            finally:
                os.close(descriptor)

    def listen(self, run: str) -> Wakeup:
        """Return what sees the run's file of wakes grow from now on."""
        return self._wakeups.open(run)

    def _wakes_of(self, runs: Collection[str]) -> dict[str, int]:
        with self._calls():
            found = {run: status_of(self._wakes / run_name(run)) for run in runs}
        return {run: status.st_size for run, status in found.items() if status}

    def migrate(self) -> list[int]:
        """Do nothing: every line says its format, and there is one so far."""
        with self._calls():
            return []

    def check(self) -> Iterator[str]:
        """Yield what is wrong with each log."""
        with self._calls():
            self._rows.refresh_all()
            logs = [self._rows.refresh(STORE), *self._rows.logs.values()]
            found = [(f"run {log.run!r}" if log.run else log.path.name, detail) for log in logs for detail in log.found]
        yield from (f"{name}: {detail}" for name, detail in found)

    def sizes(self) -> MediumSizes:
        """Count what is stored, in the bytes that it takes on the disk."""
        with self._calls():
            self._rows.refresh_all()
            chunks = [self._chunks.measured(name) for name in self._chunks.names()]
            rows = {name: len(table.rows) for name, table in self._rows.image.tables.items()}
            files = [status for path in self._folder.rglob("*") if (status := status_of(path)) and path.is_file()]
            return MediumSizes(
                engine="files", runs=rows[RUN.name], checkpoints=rows[CHECKPOINT.name], records=rows[RECORD.name],
                chunks=len(chunks), chunk_bytes=sum(plain for plain, _ in chunks),
                stored_bytes=sum(stored for _, stored in chunks), file_bytes=sum(file.st_size for file in files),
            )  # fmt: skip

    def reclaim(self) -> None:
        """Rewrite logs of which most is gone, and delete chunks that a killed writer left."""
        with self.write(erase=True) as transaction:
            transaction.is_sweep = not self._is_swept
            for log in list(self._rows.logs.values()):
                self._rows.refresh(log.run)
                if log.damage is None and self._is_wasteful(log):
                    self._rewrite(log)

    def close(self) -> None:
        """Refuse further calls."""
        with self._calls_lock:
            self._is_closed = True
            self._lock.close()

    @contextmanager
    def _calls(self) -> Iterator[None]:
        """Let one thread in at a time, with the disk's errors translated."""
        with self._calls_lock, translated(self.url):
            if self._is_closed:
                raise UsageError(f"store {self.url} is closed; open it again")
            for place in self._no_links:
                if place.is_symlink():
                    raise StoreUnavailable(self.url, f"{place} became a link, which is not followed: delete it")
            if not self._depth:
                self._rows.expire()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    # Writing

    def _tidy(self) -> None:
        """Remove what a killed writer left half written: nobody else writes now."""
        if not self._is_tidy:
            self._disk.make_folder(self._tmp)
            for name in names_in(self._tmp):
                self._disk.erase(self._tmp / name)
            self._is_tidy = True

    def _commit(self, transaction: _Transaction) -> None:
        """Make a transaction durable: its chunks, then one line."""
        run = transaction.run
        if run is None:
            return
        log = self._rows.refresh(run)
        if not transaction.is_repair:
            log.refuse()
        transaction.check_lines(log.lines)
        has_begun = transaction.has_begun and self._rows.number_of(run) is not None
        if has_begun:
            self._rows.read_index()
            log.begun = max(self._rows.begun.values(), default=0) + 1
        is_indexed = not has_begun and transaction.lines <= log.lines
        try:
            transaction.publish()
            if not is_indexed:
                self._rows.adopt(log)
            if transaction.has_dropped and next(self._rows.rows_of(log), None) is None:
                self._remove(log)
                return
            if run == STORE or log.damage is not None or transaction.is_erasing or (
                transaction.erase and self._is_wasteful(log)
            ):  # fmt: skip
                self._rewrite(log)
            else:
                self._append(log, transaction, log.begun if has_begun else 0)
        except BaseException:
            log.stamp = UNKNOWN
            raise
        if not is_indexed:
            self._write_index(log)

    def _append(self, log: Log, transaction: _Transaction, begun: int) -> None:
        held = self._rows.image.holds.get(transaction.holder, set())
        line = LogLine(
            holdfast=FORMAT, run=log.run, number=log.number + 1, prev=log.check, begun=begun,
            rows=[
                drop_change(table, prefix) if row is None else put_change(table, row)
                for table, row, prefix in transaction.changes
            ],
            holder=transaction.holder, hold=sorted(name.hex() for name in transaction.touched & held),
            release=sorted(name.hex() for name in transaction.touched - held),
        )  # fmt: skip
        data, check = make_line(line)
        is_new = log.stamp is None
        if is_new:
            self._disk.make_folder(log.path.parent)
        status = self._disk.append(log.path, data, log.end)
        if is_new:
            self._disk.sync_folder(log.path.parent)
        log.puts += len(line.rows)
        log.holders |= {line.holder} if line.holder else set()
        self._written(log, line.number, check, log.end + len(data), status)

    def _rewrite(self, log: Log) -> None:
        """Write a log again with what there is now; its numbers continue, so that an older copy is still noticed."""
        number = self._rows.number_of(log.run) if log.run else None
        for holder in log.holders - {number}:
            self._rows.end_holds(holder)
        rows = [put_change(table, row) for table, row in self._rows.rows_of(log)]
        held = sorted(name.hex() for name in self._rows.image.holds.get(number or 0, ()))
        parts: list[dict[str, Any]] = [{"rows": part} for part in _parts(rows, _ROWS_A_LINE)]
        parts += [{"holder": number, "hold": part} for part in _parts(held, _HOLDS_A_LINE)]
        parts[0]["begun"] = log.begun
        check, lines = log.check, []
        for at, part in enumerate(parts, log.number + 1):
            data, check = make_line(LogLine(holdfast=FORMAT, run=log.run, number=at, prev=check, **part))
            lines.append(data)
        whole = b"".join(lines)
        temporary = self._tmp / os.urandom(8).hex()
        self._disk.create(temporary, whole)
        self._disk.sync(temporary)
        self._disk.make_folder(log.path.parent)
        self._disk.replace(temporary, log.path)
        log.puts, log.damage, log.found = len(rows), None, []
        log.holders = set() if number is None else {number}
        self._written(log, log.number + len(parts), check, len(whole), status_of(log.path))

    def _written(self, log: Log, number: int, check: str, end: int, status: os.stat_result | None) -> None:
        """Note how far a log goes now, and bear witness; a disk that refuses that is not a failure of the call."""
        log.number, log.check, log.end = number, check, end
        log.stamp = None if status is None else stamp(status)
        data = make_witness(Witness(number, end, check, log.run))
        with suppress(OSError):
            try:
                self._disk.overwrite(log.witness, data)
            except FileNotFoundError:
                self._disk.make_folder(log.witness.parent)
                self._disk.overwrite(log.witness, data)

    def _remove(self, log: Log) -> None:
        """Delete a log of which nothing is left: first its witness, durably, so that it is not found missing."""
        if os.path.lexists(log.witness):
            self._disk.remove(log.witness)
            self._disk.sync_folder(log.witness.parent)
        if os.path.lexists(log.path):
            gone = self._tmp / os.urandom(8).hex()
            self._disk.rename(log.path, gone)
            self._disk.sync_folder(log.path.parent)
            self._disk.erase(gone)
            self._disk.remove_folder(log.path.parent)
        self._disk.remove(self._wakes / log.path.parent.name)
        self._rows.begun.pop(log.run, None)
        log.clear()

    def _write_index(self, log: Log) -> None:
        """Add a run to the index, or write all of it if it was broken; a disk that refuses that is not a failure."""
        self._rows.read_index()
        data, end = self._rows.index_update(log)
        try:
            if end is None:
                temporary = self._tmp / os.urandom(8).hex()
                self._disk.create(temporary, data)
                self._disk.rename(temporary, self._folder / "index.jsonl")
            else:
                self._disk.append(self._folder / "index.jsonl", data, end, sync=False)
            self._rows.index_written((end or 0) + len(data))
        except OSError:
            self._is_tidy = False

    def _is_wasteful(self, log: Log) -> bool:
        """Tell whether half of the rows that were written are gone."""
        return log.puts > _WASTE_FROM and log.puts > 2 * sum(1 for _ in self._rows.rows_of(log))

    def _erase_unheld(self, transaction: _Transaction) -> None:
        """Erase chunks that nobody holds any more; none while a log is damaged: it may hold them."""
        names = set(transaction.let_go)
        if not names and not transaction.is_sweep:
            return
        self._rows.refresh_all()
        if any(log.damage is not None for log in self._rows.logs.values()):
            return
        if transaction.is_sweep:
            names.update(self._chunks.names())
            self._is_swept = True
        is_tidy, self._is_tidy = self._is_tidy, False
        for name in sorted(names):
            if not self._rows.image.holders.get(name):
                self._chunks.erase(name)
        self._is_tidy = is_tidy


class FilesStore(Store):
    """A store in a folder of files; the options are those of `FilesMedium`."""

    def __init__(self, folder: Path | str, **options: Any) -> None:
        super().__init__(FilesMedium(folder, **options))


class _Reader:
    """Looks at rows in memory that were brought up to date first."""

    _refuses = True

    def __init__(self, rows: LogRows, chunks: ChunkFiles) -> None:
        self._rows = rows
        self._image = rows.image
        self._chunks = chunks

    def get(self, table: Table, key: Key) -> Row | None:
        """Return the row with this key; IntegrityError if it says where a run stands and its log is damaged."""
        log = self._rows.focus(table, key)
        if log is not None and table in (RUN, LINE, ACCOUNT, INBOX, META):
            log.refuse()
        return self._image.get(table, key)

    def scan(
        self,
        table: Table,
        prefix: Key = (),
        *,
        index: str | None = None,
        low: object = None,
        high: object = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[Row]:
        """Return rows in order; of a damaged log, too, what stands for itself: lines, checkpoints, records."""
        log = self._rows.focus(table, prefix, index)
        if log is not None and table in (ACCOUNT, INBOX) and self._refuses:
            log.refuse()
        return self._image.scan(table, prefix, index=index, low=low, high=high, reverse=reverse, limit=limit)

    def fetch(self, ids: Sequence[bytes]) -> dict[bytes, Chunk]:
        """Return those of these chunks that are there."""
        return {name: chunk for name in ids if (chunk := self._chunks.get(name)) is not None}

    def held(self, run: int) -> set[bytes]:
        """Return the ids of the chunks that a run holds."""
        self._rows.focus(RUN, (run,), "run_n")
        return self._image.held(run)


class _Transaction(_Reader):
    """Changes of one log: done to the rows in memory at once, written at the end."""

    _refuses = False  # a repair looks at all that is there; whoever writes asks for the line first, which refuses

    def __init__(self, rows: LogRows, chunks: ChunkFiles, *, erase: bool) -> None:
        super().__init__(rows, chunks)
        self.erase = erase
        self.run: str | None = None
        self.has_begun = False
        self.changes: list[LogChange] = []
        self.holder = 0
        self.touched: set[bytes] = set()  # chunks that the holder holds now and did not before, or the other way round
        self.let_go: set[bytes] = set()
        self.is_sweep = False
        self._brought: dict[bytes, Path] = {}
        self._published: list[Path] = []

    @property
    def lines(self) -> set[int]:
        """The numbers of the lines that this puts."""
        return {integer(one.row[2]) for one in self.changes if one.table is LINE and one.row is not None}

    @property
    def has_dropped(self) -> bool:
        """Whether there may be nothing left."""
        return any(change.row is None for change in self.changes)

    @property
    def is_repair(self) -> bool:
        """Whether this writes the run's own rows, whatever they were before, or drops them."""
        if any(change.table is RUN and change.row is None for change in self.changes):
            return True
        return {RUN.name, LINE.name} <= {change.table.name for change in self.changes if change.row is not None}

    @property
    def is_erasing(self) -> bool:
        """Whether rows are to be gone from the disk as well."""
        return self.erase and any(change.table in (RECORD, RUN) for change in self.changes if change.row is None)

    def lock(self, run: str) -> None:
        """Do nothing: a transaction is alone."""

    def insert(self, table: Table, *rows: Row) -> None:
        """Add rows; StaleError if there is one with the key of one of them."""
        for row in rows:
            self._turn_to(table, row)
            if self._image.get(table, row[: len(table.key)]) is not None:
                raise StaleError(table.name)
            self._put(table, row)

    def put(self, table: Table, row: Row) -> None:
        """Add a row, or replace the one with its key."""
        self._turn_to(table, row)
        self._put(table, row)

    def _put(self, table: Table, row: Row) -> None:
        if table is RUN or table is LINE:
            if self._rows.is_taken(table, row):
                raise StaleError(table.name)
            self.has_begun |= table is RUN and self._image.get(RUN, row[:1]) is None
        self._image.put(table, row)
        self.changes.append(LogChange(table, row))

    def drop(self, table: Table, prefix: Key) -> None:
        """Delete the rows whose key begins with this."""
        self._turn_to(table, prefix)
        self._image.drop(table, prefix)
        self.changes.append(LogChange(table, None, prefix))

    def hold(self, run: int, chunks: Iterable[Chunk]) -> None:
        """Store chunks and let a run hold them."""
        for chunk in chunks:
            if chunk.id not in self._brought:
                path = self._chunks.write(chunk)
                if path is not None:
                    self._brought[chunk.id] = path
            self._hold(run, chunk.id)

    def hold_ids(self, run: int, ids: Collection[bytes]) -> None:
        """Let a run hold chunks that are there."""
        for name in ids:
            if name in self._brought or os.path.lexists(self._chunks.path(name)):
                self._hold(run, name)

    def release(self, run: int, ids: Collection[bytes] | None) -> None:
        """End a run's hold on chunks; those that nobody holds are erased once this is committed."""
        mine = self.held(run)
        gone = mine if ids is None else mine & set(ids)
        for name in gone:
            self._image.end_hold(run, name)
        self.holder = run
        self.touched |= gone
        self.let_go |= mine if ids is None else set(ids)
        self.is_sweep |= ids is None
        owner = self._rows.owner(RUN, (run,), "run_n")
        if gone and owner is not None:
            self._turn_to(RUN, (owner,))

    def check_lines(self, numbers: set[int]) -> None:
        """Refuse records of a line that is not one of the run's."""
        changed = {(change.row or change.prefix)[0] for change in self.changes if change.table in BY_LINE}
        if not changed <= numbers | self.lines:
            raise UsageError("a transaction of a files store changes the records of one run only")

    def publish(self) -> None:
        """Make the chunks durable under their names."""
        self._chunks.publish(self._brought, self._published)

    def discard(self) -> None:
        """Remove the chunks that this brought, unless its line may be there: then they are needed, or swept later."""
        with suppress(OSError, HoldfastError):
            for path in self._brought.values():
                path.unlink(missing_ok=True)
            if self.run is None or self._rows.is_as_read(self._rows.log_of(self.run)):
                for path in self._published:
                    path.unlink(missing_ok=True)

    def _hold(self, run: int, name: bytes) -> None:
        if name not in self._image.holds.get(run, ()):
            self._image.add_hold(run, name)
            self.touched.add(name)
        self.holder = run

    def _turn_to(self, table: Table, cells: Key) -> None:
        """Bring the log of these cells up to date; UsageError if it is another than that of earlier changes."""
        run = self._rows.owner(table, cells)
        if run is None:
            if table in BY_LINE:
                return  # a new line: its row follows
            raise UsageError("a transaction of a files store cannot change all runs at once")
        if self.run not in (None, run):
            raise UsageError(f"a transaction of a files store changes one run, not {self.run!r} and {run!r}")
        self.run = run
        self._rows.focus(table, cells)


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
