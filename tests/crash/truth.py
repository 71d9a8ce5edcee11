"""What a store held before it was damaged, and the examination of every reading call against it afterwards."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from holdfast.engine import DamageWarning, Holdfast
from holdfast.errors import ChunkCorrupt, HoldfastError
from holdfast.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.checkpoint import Checkpoint
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
        with self._reading("stats"):
            stats = hf.stats()
            counts = (stats.runs, stats.checkpoints, stats.chunks, stats.chunk_bytes, stats.stored_bytes)
            if counts != self.truth.counts:
                self.failed.append("stats: other counts")
        if self.failed:
            with self._reading("verify"):
                report = hf.verify()
                if report.sound:
                    self.complaints.append(f"verify finds nothing, though {self.failed}")
                self.faults = report.faults
        if not any(fault.kind == "store" for fault in self.faults):
            # Where the file's own order is damaged, a search may miss what a list still shows.
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
