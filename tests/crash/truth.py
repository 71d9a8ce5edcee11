"""What a store held before it was damaged, and the examination of every reading call against it afterwards."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from holdfast.engine import DamageWarning, Holdfast
from holdfast.errors import ChunkCorrupt, HoldfastError, NotFound
from holdfast.store.codec import RowCodec
from holdfast.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import msgspec

    from holdfast.checkpoint import Checkpoint
    from holdfast.store.store import Store
    from holdfast.store.tables import Table
    from holdfast.verify.check import Fault


class Truth:
    """All that is in a sound store, by id; `examine` compares a damaged copy of it."""

    def __init__(self, path: Path) -> None:
        with Holdfast(SQLiteStore(path)) as hf:
            self.runs = list(hf.runs())
            self.lines = {run.id: [cp.id for cp in hf.checkpoints(run.id)] for run in self.runs}
            self.records = {cp.id: cp.record for run in self.runs for cp in hf.checkpoints(run.id)}
            self.values = {
                (cp.id, name): cp.section(name)
                for run in self.runs
                for cp in hf.checkpoints(run.id)
                for name in cp.sections
            }
            self.journals = {run.id: journal(hf.store, run.id) for run in self.runs}
            self.newest = {
                (run.id, record.path): hf.store.journal.newest(_line(hf.store, run.id), record.path)
                for run in self.runs
                for record in self.journals[run.id]["records"]
            }
            stats = hf.stats()
            self.counts = (stats.runs, stats.checkpoints, stats.chunks, stats.chunk_bytes, stats.stored_bytes)


class Examination:
    """One damaged store: what failed, and what is wrong with how it failed."""

    def __init__(self, path: Path, truth: Truth) -> None:
        self.truth = truth
        self.failed: list[str] = []
        self.readable: set[str] = set()
        self.complaints: list[str] = []
        self.refused = False
        self.faults: tuple[Fault, ...] = ()
        self._unless_out_of_order: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            try:
                hf = Holdfast(SQLiteStore(path))
            except HoldfastError as error:
                self.refused = True
                self.failed.append(f"open: {type(error).__name__}")
                return
            except Exception as error:  # noqa: BLE001 - the examination is whether such a thing gets out
                self.complaints.append(f"open raised {type(error).__name__}: {error}")
                return
            with hf:
                self._examine(hf)

    def _examine(self, hf: Holdfast) -> None:
        self._listing("runs", hf.runs, self.truth.runs, lambda found: found)
        for run, line in self.truth.lines.items():
            listed = self._listing(
                f"checkpoints({run})", lambda run=run: hf.checkpoints(run), line, lambda found: found.id
            )
            self._latest(hf, run, line)
            for checkpoint in line:
                if self._get(hf, checkpoint) and checkpoint in listed:
                    self.readable.add(checkpoint)
            self._latest_sound(hf, run, line)
            self._journal(hf.store, run)
        with self._reading("stats"):
            stats = hf.stats()
            counts = (stats.runs, stats.checkpoints, stats.chunks, stats.chunk_bytes, stats.stored_bytes)
            if counts != self.truth.counts:
                self.failed.append("stats: other counts")
        if self.failed or self._unless_out_of_order:
            with self._reading("verify"):
                report = hf.verify()
                if report.sound:
                    self.complaints.append(f"verify finds nothing, though {self.failed}")
                self.faults = report.faults
        if not any(fault.kind in ("store", "journal") for fault in self.faults):
            # Where the file's own order, or a journal, is damaged, a search may miss what a list still shows.
            self.complaints += self._unless_out_of_order

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except HoldfastError as error:
            self.failed.append(f"{what}: {type(error).__name__}")
            if what == "verify":
                self.complaints.append(f"verify raised {error}")
        except Exception as error:  # noqa: BLE001 - the examination is whether such a thing gets out
            self.failed.append(f"{what}: {type(error).__name__}")
            self.complaints.append(f"{what} raised {type(error).__name__}: {error}")

    def _listing(self, what: str, read: Callable[[], Any], truth: list[Any], key: Callable[[Any], Any]) -> list[Any]:
        with self._reading(what):
            listing = read()
            found = [key(row) for row in listing]
            if listing.damaged:
                self.failed.append(f"{what}: damaged")
            if found != [row for row in truth if row in found]:
                self.complaints.append(f"{what} has rows that were never written, twice, or in another order")
            elif len(found) < len(truth) and not listing.damaged:
                self.complaints.append(f"{what} is silently shorter")
            return found
        return []

    def _journal(self, store: Store, run: str) -> None:
        for what, read in _JOURNAL_READS.items():
            with self._reading(f"{what}({run})"):
                if read(store, run) != self.truth.journals[run][what]:
                    # What was removed, given or left is not counted anywhere else: verify finds what it breaks.
                    found = self.complaints if what == "records" else self._unless_out_of_order
                    found.append(f"{what}({run}) are not what was written")
        with self._reading(f"chain({run})"):
            if broken := [step.fault for step in store.journal.walk(_line(store, run)) if step.fault]:
                self.failed.append(f"chain({run}): {broken[0]}")
        for (of, path), truth in self.truth.newest.items():
            with self._reading(f"newest({of}, {path})"):
                if of == run and store.journal.newest(_line(store, run), path) != truth:
                    self._unless_out_of_order.append(f"newest({run}, {path}) is another record")

    def _get(self, hf: Holdfast, checkpoint: str) -> bool:
        before = len(self.failed)
        with self._reading(f"get({checkpoint})"):
            found = hf.get(checkpoint)
            self._compare(f"get({checkpoint})", found, checkpoint)
            for name in found.sections:
                self._section(found, name)
        return len(self.failed) == before

    def _section(self, found: Checkpoint, name: str) -> None:
        what = f"section({found.id}, {name})"
        with self._reading(what):
            try:
                value = found.section(name)
            except HoldfastError as error:
                if not isinstance(error, ChunkCorrupt) or (error.checkpoint, error.section) != (found.id, name):
                    self.complaints.append(f"{what} does not name checkpoint and section: {error!r}")
                raise
            if value != self.truth.values[found.id, name]:
                self.complaints.append(f"{what} has another value")

    def _compare(self, what: str, found: Checkpoint, checkpoint: str) -> None:
        if found.record != self.truth.records[checkpoint]:
            self.complaints.append(f"{what} has another record")

    def _latest(self, hf: Holdfast, run: str, line: list[str]) -> None:
        with self._reading(f"latest({run})"):
            self._compare(f"latest({run})", hf.latest(run), line[0])

    def _latest_sound(self, hf: Holdfast, run: str, line: list[str]) -> None:
        with self._reading(f"latest({run}, sound)"):
            found = hf.latest(run, sound=True)
            self._compare(f"latest({run}, sound)", found, found.id)
            newer = line[: line.index(found.id)]
            for name in found.sections:
                self._section(found, name)
            if any(checkpoint in self.readable for checkpoint in newer):
                self.complaints.append(f"latest({run}, sound) skipped a sound one")
            if len(found.skipped) < len(newer):
                self.complaints.append(f"latest({run}, sound) does not say what it skipped: {found.skipped}")
            return
        if self.readable & set(line):
            self._unless_out_of_order.append(
                f"latest({run}, sound) finds none, though {len(self.readable & set(line))} are sound"
            )


def _line(store: Store, run: str) -> Any:
    line = store.line(run)
    if line is None:
        raise NotFound("line", run)
    return line


_JOURNAL_READS: dict[str, Callable[[Store, str], Any]] = {
    "records": lambda store, run: store.journal.records(_line(store, run)),
    "gaps": lambda store, run: store.journal.gaps(_line(store, run)),
    "accounts": lambda store, run: store.accounts(run),
    "inbox": lambda store, run: store.inbox(run),
}


def journal(store: Store, run: str) -> dict[str, Any]:
    """Read all that a run has beside its checkpoints."""
    return {what: read(store, run) for what, read in _JOURNAL_READS.items()}


def stored(path: Path, table: Table, where: str) -> Any:
    """Return a row behind the store's back, opened."""
    columns = ", ".join(column.name for column in table.all_columns)
    return RowCodec().open(table, sql(path, f"SELECT {columns} FROM {table.name} WHERE {where}")[0])


def forge(path: Path, table: Table, value: msgspec.Struct) -> None:
    """Put a row behind the store's back, sealed as if the store had written it."""
    row = RowCodec().close(table, value)
    names = [column.name for column in table.all_columns]
    sets = ", ".join(f"{name} = ?" for name in names)
    wheres = " AND ".join(f"{column.name} = ?" for column in table.key)
    sql(path, (f"UPDATE {table.name} SET {sets} WHERE {wheres}", (*row, *row[: len(table.key)])))


def sql(path: Path, *statements: str | tuple[str, tuple[Any, ...]]) -> list[Any]:
    """Change a store behind its back."""
    connection = apsw.Connection(str(path))
    rows: list[Any] = []
    for statement in statements:
        text, values = statement if isinstance(statement, tuple) else (statement, ())
        rows = connection.execute(text, values).fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return rows
