"""Inspection of a whole store: rows, line ends and chunk names that are not as they were written; reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import IntegrityError, StoreCorrupt
from holdfast.store.codec import shown
from holdfast.store.envelopes import read_checkpoint
from holdfast.store.medium import first_cells
from holdfast.store.repeat import repeated
from holdfast.store.tables import CHECKPOINT, GAP, LINE, MAIN, META, RECORD, RUN, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.store import Store
    from holdfast.store.tables import Row


class Inspection:
    """Looks at everything in one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._medium = store.medium
        self._codec = store.codec

    def check(self) -> Iterator[str]:
        """Yield what the medium itself finds wrong, damaged rows, lines whose end was lost, and wrong names of chunks.

        Runs, checkpoints, main lines and the chains of journals are left to those who list and walk them.
        """
        yield from self._medium.check()
        for _, _, error in self.damaged_rows():
            yield str(error)
        yield from self.wrong_heads()
        yield from self.wrong_chunks()

    def wrong_chunks(self) -> Iterator[str]:
        """Yield what is wrong with the names of chunks, and the counts of who holds them."""
        for name, detail in self._medium.damaged_holds().items():
            yield f"chunk {name.hex()[:16]} {detail}"
        for stored in self._medium.chunk_ids():
            if self._codec.true_name(stored) is None:
                yield f"chunk {stored.hex()[:80]} has a name that this store does not give"

    def damaged_rows(self) -> Iterator[tuple[Table, Row, IntegrityError]]:
        """Yield the rows that are not as they were written, but for those that other lists find.

        Runs and checkpoints have lists of their own; a walk finds the records and gaps of a line that can be read.
        """
        lines: set[object] = set()
        for table in TABLES:
            if table is RUN or table is CHECKPOINT:
                continue
            is_of_line = table is RECORD or table is GAP
            for first in self._listed(table):
                if is_of_line and first in lines:
                    continue
                try:
                    rows = self._strays(table, first) if is_of_line else self._rows(table, first)
                except IntegrityError as error:  # a medium may refuse these rows of a run that it finds damaged
                    yield table, (first,), error
                    continue
                if is_of_line and rows:
                    detail = f"has {table.name}s of line {first}, which is not there or cannot be read"
                    yield table, (first,), StoreCorrupt(detail, self._store.url)
                codec = self._store.meta_codec(shown(first)) if table is META else self._codec
                for row in rows:
                    try:
                        value = codec.open(table, row)
                    except IntegrityError as error:
                        yield table, row, error
                    else:
                        lines.update([value.n] if table is LINE else [])

    def _rows(self, table: Table, first: object) -> list[Row]:
        with self._medium.read() as reader:
            return reader.scan(table, (first,))  # type: ignore[arg-type]

    def _strays(self, table: Table, line: object) -> list[Row]:
        """Return the rows of a line's journal if there is no such line; it may have begun since lines were listed."""
        with self._medium.read() as reader:
            rows = reader.scan(table, (line,))  # type: ignore[arg-type]
            owners = reader.scan(LINE, (line,), index="line_n")  # type: ignore[arg-type]
        return [] if any(self._codec.open_if_sound(LINE, row) for row in owners) else rows

    @repeated
    def runs_with_checkpoints(self) -> list[str]:
        """Return the runs that have a checkpoint, those included whose own row is damaged or lost."""
        return [shown(run) for run in self._listed(CHECKPOINT)]

    def stored_checkpoints(self, run: str) -> Iterator[CheckpointRecord | IntegrityError]:
        """Yield the checkpoints of all lines of a run as they are stored, whatever its row says; damage in place."""
        with self._medium.read() as reader:
            rows = reader.scan(CHECKPOINT, (run,))
        for row in rows:
            try:
                yield read_checkpoint(self._codec, row)
            except IntegrityError as error:
                yield error

    def _listed(self, table: Table) -> list[Any]:
        with self._medium.read() as reader:
            return list(first_cells(reader, table))

    def wrong_heads(self) -> Iterator[str]:
        """Compare every line but the main ones, which are listed, with what was witnessed of it."""
        heads = self._store.line_reader.heads
        if heads is None:
            return
        witnessed, damaged = heads.all()
        if damaged:
            yield f"{damaged} entries of {heads.path} are damaged; delete it, it is written again"
        for head in witnessed:
            if head.line != MAIN:
                try:
                    with self._medium.read() as reader:
                        self._store.line_reader.check_witnessed(reader, head)
                except IntegrityError as error:
                    yield str(error)
