"""Rows of a files store in memory, kept up to date with the logs that are their truth.

Before a row is used, the size and inode of its log tell whether others wrote; only what they appended is read. A log
that is damaged keeps what can be read of it, and says what is wrong with it; the others are not touched by that.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.errors import DocumentInvalid, IntegrityError, RunCorrupt, StoreCorrupt
from holdfast.store.files_log import (
    BROKEN,
    IndexLine,
    Witness,
    changes_of,
    index_line,
    open_log,
    read_index,
    read_lines,
    read_witness,
    tail_check,
)
from holdfast.store.medium import StaleError
from holdfast.store.memory import MemoryTables
from holdfast.store.names import run_name
from holdfast.store.tables import CHECKPOINT, GAP, LEASE, LINE, MAIN, META, RECORD, RUN, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from holdfast.store.files_disk import Lock
    from holdfast.store.files_log import LogChange, LogLine, WrittenLines
    from holdfast.store.tables import Cell, Key, Row, Table

STORE = ""
"""The name of the log of facts about the store itself."""
_EVERYWHERE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # not a matter of one file
UNKNOWN = (-1, -1, -1)
"""The stamp of a log that is to be read again, whatever is there."""
BY_LINE = (RECORD, GAP)
"""Tables whose keys begin with a line's number."""


def _route(table: Table, index: str | None) -> tuple[str, int]:
    """Return which cell of a key, or of an index, tells whose log has a row, and by what."""
    columns = next((one.columns for one in table.indexes if one.name == index), tuple(c.name for c in table.key))
    kinds = {"run": "run", "line": "line number", "id": "run" if table is RUN else "checkpoint"}
    kinds |= {"n": "run number" if table is RUN else "line number"}
    if table not in BY_LINE:
        del kinds["line"]
    if table is META:
        return "store", 0
    if index == "tombstone_id":
        return "run", len(columns)
    found = next((place for place, name in enumerate(columns) if name in kinds), None)
    return ("run", len(columns)) if found is None else (kinds[columns[found]], found)


_ROUTES = {(t.name, index): _route(t, index) for t in TABLES for index in (None, *(one.name for one in t.indexes))}


class Log:
    """One log, as far as it was read."""

    def __init__(self, run: str, path: Path, witness: Path) -> None:
        self.run = run
        self.path = path
        self.witness = witness
        self.clear()

    def clear(self) -> None:
        """Know nothing of it."""
        self.stamp: tuple[int, ...] | None = None
        self.number = 0
        self.check = ""
        self.end = 0
        self.begun = 0
        self.puts = 0
        self.lines: set[int] = set()
        self.holders: set[int] = set()
        self.damage: IntegrityError | None = None
        self.found: list[str] = []

    def refuse(self) -> None:
        """Raise what is wrong with it, if anything is."""
        if self.damage is not None:
            raise type(self.damage)(*self.damage.args)  # each time another, or its traceback would grow

    def harm(self, detail: str, error: IntegrityError | None = None) -> None:
        """Note what is wrong; readers are told the first of it."""
        self.found.append(detail)
        if self.damage is None:
            named = RunCorrupt(detail, self.run) if self.run else StoreCorrupt(detail, str(self.path))
            self.damage = error or named


class LogRows:
    """The rows and holds of all logs that were read, and which runs there are."""

    def __init__(self, folder: Path, lock: Lock) -> None:
        self.image = MemoryTables()
        self.logs: dict[str, Log] = {}
        self.begun: dict[str, int] = {}
        self.is_locked = False  # whether this process is the one that writes now
        self._lock = lock
        self._runs, self._witnesses = folder / "runs", folder / "witness"
        self._meta = Log(STORE, folder / "meta.jsonl", folder / "meta.witness")
        self._index, self._index_end = folder / "index.jsonl", 0
        self._is_indexed = True
        self._folders: dict[str, str] = {}
        self._run_numbers: dict[int, str] = {}
        self._line_numbers: dict[int, str] = {}
        self._fresh: set[str] = set()
        self._is_index_fresh = self._is_all_fresh = False

    def expire(self) -> None:
        """Look at the disk again before the next use."""
        self._fresh.clear()
        self._is_index_fresh = self._is_all_fresh = False

    # Which log has which rows

    def owner(self, table: Table, cells: Key, index: str | None = None) -> str | None:
        """Return the run whose log has all rows whose key, or index, begins with these cells, as far as is known."""
        kind, place = _ROUTES[table.name, index]
        if kind == "store":
            return STORE
        cell = cells[place] if place < len(cells) else None
        if kind == "run":
            return None if cell is None else str(cell)
        if kind == "checkpoint":
            rows = self.image.scan(CHECKPOINT, (cell,), index=index, limit=1)
            return str(rows[0][0]) if rows else None
        return self._owner_of(self._run_numbers if kind == "run number" else self._line_numbers, cell)

    def _owner_of(self, numbers: dict[int, str], number: Cell) -> str | None:
        if not isinstance(number, int):
            return None
        if number not in numbers:
            self.read_index()
        return numbers.get(number)

    def is_taken(self, table: Table, row: Row) -> bool:
        """Tell whether another run has the number of this row, also one whose log was not read."""
        numbers, number = (self._run_numbers, row[1]) if table is RUN else (self._line_numbers, row[2])
        return self._owner_of(numbers, number) not in (None, row[0])

    def focus(self, table: Table, cells: Key, index: str | None = None) -> Log | None:
        """Bring the rows that may be meant up to date; return the log that has them all, if one has."""
        run = self.owner(table, cells, index)
        if run is not None:
            log = self.refresh(run)
            if _ROUTES[table.name, index][0] in ("run", "store"):
                return log
            if self.owner(table, cells, index) == run and not self._is_misled(table, cells, index, log):
                return log
        self.refresh_all()
        run = self.owner(table, cells, index)
        return None if run is None else self.refresh(run)

    def _is_misled(self, table: Table, cells: Key, index: str | None, log: Log) -> bool:
        """Tell whether the index named a log that does not have this line; it is not asked again."""
        kind, place = _ROUTES[table.name, index]
        if kind != "line number" or cells[place] in log.lines:
            return False
        self._line_numbers.pop(integer(cells[place]), None)
        return True

    def log_of(self, run: str) -> Log:
        """Return what is known of a run's log."""
        if run == STORE:
            return self._meta
        if run not in self.logs:
            name = run_name(run)
            self._folders[name] = run
            self.logs[run] = Log(run, self._runs / name / "journal.jsonl", self._witnesses / name)
        return self.logs[run]

    def rows_of(self, log: Log) -> Iterator[tuple[Table, Row]]:
        """Yield the rows that a log has."""
        for table in TABLES:
            prefixes: list[Key] = [] if (table is META) != (log.run == STORE) else [(log.run,)]
            if table is META and prefixes:
                prefixes = [()]
            elif table in BY_LINE and prefixes:
                prefixes = [(number,) for number in sorted(log.lines)]
            for prefix in prefixes:
                yield from ((table, row) for row in self.image.scan(table, prefix))

    def adopt(self, log: Log) -> None:
        """Note the numbers and the place of a run as its rows in memory have them."""
        for row in self.image.scan(LINE, (log.run,)) if log.run else ():
            log.lines.add(integer(row[2]))
            self._line_numbers[integer(row[2])] = log.run
        number = self.number_of(log.run)
        if number is not None:
            self._run_numbers[number] = log.run
        if log.begun:
            self.begun[log.run] = log.begun

    def number_of(self, run: str) -> int | None:
        """Return the number that a run's holds go by."""
        row = self.image.get(RUN, (run,))
        return None if row is None else integer(row[1])

    # Reading logs

    def refresh(self, run: str) -> Log:
        """Read what others wrote to a log since it was read last."""
        log = self.log_of(run)
        if run in self._fresh:
            return log
        self._fresh.add(run)
        status = status_of(log.path)
        if status is None:
            if log.stamp is None and log.damage is None and not os.path.lexists(log.witness):
                return log  # there is none, as before
        elif log.stamp == stamp(status) and (not self.is_locked or self._ends_as_read(log)):
            return log
        try:
            with suppress(_RetryError):
                self._read(log, is_settled=self.is_locked)
                return log
            with self._settled():
                self._read(log, is_settled=True)
        except BaseException:
            self.unload(log)
            self._fresh.discard(run)
            raise
        return log

    def refresh_all(self) -> None:
        """Read what others wrote to any log."""
        if not self._is_all_fresh:
            self._is_all_fresh = True
            for run in self.runs():
                self.refresh_one_of_many(run)

    def refresh_one_of_many(self, run: str) -> Log:
        """Read what others wrote to a log; if the disk refuses, that is damage of this one, and hides no other."""
        try:
            return self.refresh(run)
        except OSError as error:
            if error.errno in _EVERYWHERE:
                raise
            log = self.log_of(run)
            log.harm(f"its journal cannot be read ({error.strerror})")
            return log

    def runs(self) -> list[str]:
        """Return every run that has a log or a witness: folders tell, the index only says whose they are."""
        self.read_index()
        names = {*names_in(self._runs), *names_in(self._witnesses)}
        names |= {log.path.parent.name for log in self.logs.values() if log.stamp is not None or log.damage is not None}
        return [self._folders.get(name) or self._discovered(name) for name in sorted(names)]

    def is_as_read(self, log: Log) -> bool:
        """Tell whether a log ends where it was read to, so that nothing was written since."""
        status = status_of(log.path)
        return log.end == (0 if status is None else status.st_size) and self._ends_as_read(log)

    def unload(self, log: Log) -> None:
        """Forget what was read of a log."""
        for table, row in list(self.rows_of(log)):
            self.image.tables[table.name].drop(row[: len(table.key)])
        for holder in log.holders:
            self.end_holds(holder)
        log.clear()

    def end_holds(self, holder: int) -> None:
        """Forget the holds of a run's number."""
        for name in self.image.holds.pop(holder, set()):
            self.image.holders.get(name, set()).discard(holder)

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Wait until no writer is at work; who may only read this folder does without."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock.hold(alone=False))
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                    raise
            yield

    def _ends_as_read(self, log: Log) -> bool:
        """Tell whether a log still ends with the line that was read last: a size alone may be a coincidence."""
        opened = open_log(log.path)
        if opened is None:
            return not log.end
        try:
            return not log.end or tail_check(opened.descriptor, log.end) == log.check
        finally:
            os.close(opened.descriptor)

    def _read(self, log: Log, *, is_settled: bool) -> None:
        """Read a log, only its new lines if it has grown; _RetryError for what may be a writer at work."""
        witness = read_witness(log.witness, log.run)  # before the log: so it never leads
        try:
            opened = open_log(log.path)
        except DocumentInvalid as error:
            self.unload(log)
            log.harm(f"its journal cannot be read: {error}")
            return
        if opened is None:
            self.unload(log)
            if witness is not None:
                if not is_settled:
                    raise _RetryError
                log.harm("its journal vanished" + (f"; it had {witness.number:,} lines" if witness.number > 0 else ""))
            return
        descriptor, status = opened
        try:
            has_grown = log.stamp is not None and log.stamp[0] == status.st_ino and log.stamp[1] < status.st_size
            if log.damage is not None or not has_grown or tail_check(descriptor, log.end) != log.check:
                self.unload(log)
            _Reading(self, log, witness).take(read_lines(descriptor, log.end))
        finally:
            os.close(descriptor)
        if log.damage is not None and not is_settled:
            self.unload(log)
            raise _RetryError
        log.stamp = stamp(status)
        self.adopt(log)

    def take_line(self, log: Log, line: LogLine, changes: Sequence[LogChange]) -> None:
        """Do to the rows in memory what a line says."""
        for table, row, prefix in changes:
            rows = self.image.tables[table.name]
            if row is not None:
                self.take_row(log, table, row)
            else:
                for old in rows.scan(prefix, None, None, None):
                    rows.drop(old[: len(table.key)])
        self.take_holds(log, line)
        held = self.image.holds.get(line.holder, set())
        for name in map(bytes.fromhex, line.release):
            held.discard(name)
            self.image.holders.get(name, set()).discard(line.holder)
        log.begun = line.begun or log.begun

    def take_row(self, log: Log, table: Table, row: Row) -> None:
        """Put a row that a line has; StaleError if another run has its number or id."""
        self.image.tables[table.name].put(row)
        log.puts += 1
        if table is LINE:
            log.lines.add(integer(row[2]))

    def take_holds(self, log: Log, line: LogLine) -> None:
        """Let a run hold the chunks that a line names."""
        if line.hold or line.release:
            log.holders.add(line.holder)
        for name in map(bytes.fromhex, line.hold):
            self.image.holds.setdefault(line.holder, set()).add(name)
            self.image.holders.setdefault(name, set()).add(line.holder)

    def _discovered(self, name: str) -> str:
        """Return whose folder this is, as its witness or its log says."""
        witness = read_witness(self._witnesses / name)
        run = witness.run if witness else ""
        with suppress(DocumentInvalid, PermissionError):
            opened = None if run else open_log(self._runs / name / "journal.jsonl")
            if opened is not None:
                lines = (written.line for written in read_lines(opened.descriptor))
                run = next((line.run for line in lines if line is not None), "")
                os.close(opened.descriptor)
        if run_name(run) != name:
            run = name  # whatever lies there is not a run of that name: reading it says so
        self._folders[name] = run
        self.refresh_one_of_many(run)
        return run

    # The index

    def read_index(self) -> None:
        """Read what was added to the index; if it is missing or broken, read every log instead."""
        if self._is_index_fresh:
            return
        self._is_index_fresh = True
        found, end = read_index(self._index, self._index_end)
        if end is None and self._index_end:
            found, end = read_index(self._index, 0)
        self._index_end, self._is_indexed = end or 0, end is not None
        for entry in found:
            log = self.logs.get(entry.run)
            self.begun[entry.run] = log.begun if log is not None and log.begun else entry.begun
            self._folders[run_name(entry.run)] = entry.run
            for number in entry.numbers:
                self._run_numbers.setdefault(number, entry.run)
            for number in entry.lines:
                self._line_numbers.setdefault(number, entry.run)
        if not self._is_indexed:
            self.refresh_all()

    def index_update(self, log: Log) -> tuple[bytes, int | None]:
        """Return what to write so that the index has this log, and where: None for the whole index."""
        if self._is_indexed:
            return self._index_line(log), self._index_end
        logs = sorted((one for one in self.logs.values() if one.begun), key=lambda one: one.begun)
        return b"".join(map(self._index_line, logs)), None

    def index_written(self, end: int) -> None:
        """Note that the index is whole up to a position."""
        self._index_end, self._is_indexed = end, True

    def _index_line(self, log: Log) -> bytes:
        number = self.number_of(log.run)
        return index_line(IndexLine(log.run, log.begun, [] if number is None else [number], sorted(log.lines)))


class _Reading:
    """Takes the lines of one log in, and tells torn from damaged."""

    def __init__(self, rows: LogRows, log: Log, witness: Witness | None) -> None:
        self._rows = rows
        self._log = log
        self._witness = witness
        self._is_first = not log.number
        self._doubtful: list[tuple[WrittenLines, str]] = []
        self._left: list[LogChange] = []

    def take(self, lines: Iterable[WrittenLines]) -> None:
        """Take all lines from where the log was read to."""
        log, witness = self._log, self._witness
        for written in lines:
            try:
                line, changes = self._judged(written)
            except ValueError as error:
                self._doubtful.append((written, str(error)))
                continue
            self._give_up_doubtful()  # what follows them was written, so they were
            self._compare(line, written.check)
            try:
                self._rows.take_line(log, line, changes)
            except StaleError:
                log.harm(f"line {line.number} of its journal has a number or id of another run")
            log.number, log.check, log.end, self._is_first = line.number, written.check, written.end, False
        is_witnessed = witness is not None and (witness is BROKEN or witness.number > log.number)
        if is_witnessed or any(written.matches for written, _ in self._doubtful):
            self._give_up_doubtful()  # else a crash tore the last line, before it was acknowledged
        if witness and witness.number > log.number and log.damage is None:
            lost, size = witness.number - log.number, max(0, witness.size - log.end)
            log.harm(f"the newest {lost:,} lines of its journal are missing ({size:,} bytes)")
        self._take_left()

    def _judged(self, written: WrittenLines) -> tuple[LogLine, list[LogChange]]:
        """Return a line and its changes; ValueError if it is not one that belongs where it stands."""
        log, line = self._log, written.line
        if written.error is not None or line is None:
            raise ValueError(str(written.error))
        if line.run != log.run:
            raise ValueError(f"belongs to {f'run {line.run!r:.80}' if line.run else 'the store itself'}")
        if self._doubtful or log.damage is not None:
            follows = line.number > log.number
        else:
            follows = self._is_first or (line.number == log.number + 1 and line.prev == log.check)
        if not follows:
            raise ValueError("does not follow the one before it")
        return line, self._changes(line)

    def _changes(self, line: LogLine) -> list[LogChange]:
        """Return what a line changes; ValueError if that is not all its own run's."""
        log, changes = self._log, list(changes_of(line))
        numbers = log.lines | {row[2] for table, row, _ in changes if row is not None and table is LINE}
        for table, row, prefix in changes:
            cells = prefix if row is None else row
            if (table is META) != (log.run == STORE) or not cells:
                raise ValueError(f"changes {table.name}, which is not in such a log")
            if table is not META and (cells[0] not in numbers if table in BY_LINE else cells[0] != log.run):
                raise ValueError(f"changes {table.name} of another run")
        if not all(map(is_hex, (*line.hold, *line.release))):
            raise ValueError("names a chunk that can be none")
        return changes

    def _compare(self, line: LogLine, check: str) -> None:
        """Compare a line with what the witness says of it."""
        witness = self._witness
        if witness is not None and (
            (line.number == witness.number and check != witness.check)
            or (self._is_first and line.number == witness.number + 1 and line.prev != witness.check)
        ):
            self._log.harm(f"line {line.number} of its journal is not the one that was written")

    def _give_up_doubtful(self) -> None:
        """Note the doubtful lines as damage, and what can still be read of them: each row has a seal of its own."""
        log = self._log
        for number, (written, detail) in enumerate(self._doubtful, log.number + 1):
            error = written.error if written.matches and type(written.error) is not IntegrityError else None
            log.harm(f"line {number} of its journal {detail}", error)
            if written.line is not None and written.line.run == log.run:
                with suppress(ValueError):
                    self._left += self._changes(written.line)
                    self._rows.take_holds(log, written.line)
        self._doubtful = []

    def _take_left(self) -> None:
        """Take rows of damaged lines where no sound line has one; a name that may be garbled begins no line."""
        log = self._log
        for table, row, _ in sorted(self._left, key=lambda change: change.table is not LINE):
            is_known = row is not None and (table not in (LINE, LEASE) or row[1] == MAIN)
            if row is None or not is_known or (table in BY_LINE and row[0] not in log.lines):
                continue
            if self._rows.image.get(table, row[: len(table.key)]) is None:
                with suppress(StaleError):
                    self._rows.take_row(log, table, row)


class _RetryError(Exception):
    """What was read may be a writer at work."""


def stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return what tells whether a file is as it was."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def status_of(path: Path) -> os.stat_result | None:
    """Return a file's status, None if there is none."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, none if there is none."""
    try:
        return [entry.name for entry in os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_hex(text: str) -> bool:
    """Tell whether this is how a chunk's name is written."""
    try:
        return bytes.fromhex(text).hex() == text != ""
    except ValueError:
        return False


def integer(cell: Cell) -> int:
    """Return a cell that holds a whole number."""
    assert isinstance(cell, int)
    return cell
