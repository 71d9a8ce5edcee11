"""Copy of a run under another id in the same store: all lines, checkpoints and records; chunks are shared.

Checkpoints get ids of their own, so their envelopes are made again and linked again, oldest first. The copy has no
inbox and no budgets: what others said was said to the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import RunDiffers
from holdfast.model.ids import make_checkpoint_id
from holdfast.store import envelopes
from holdfast.store.import_rows import Import, import_line
from holdfast.store.medium import StaleError
from holdfast.store.repeat import repeated
from holdfast.store.tables import CHECKPOINT, GAP, LINE, MAIN, RECORD, TOMBSTONE, CheckpointRow, GapRow, TombstoneRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.store.medium import Transaction
    from holdfast.store.store import Store
    from holdfast.store.tables import LineRow, Record, Scalar

_ID_TIME = slice(3, 15)


@repeated
def copy_run(store: Store, source: str, target: str, *, attributes: Mapping[str, Scalar] | None = None) -> None:
    """Copy a run under another id, all or nothing; NotFound if there is none, RunDiffers if the target is a run.

    `attributes` are those of the copy; None takes over the original's.
    """
    lines, codec = store.line_reader, store.codec
    try:
        with store.medium.write() as transaction:
            for run in sorted({source, target}):
                transaction.lock(run)
            owner, main = lines.existing(transaction, source)
            if lines.read(transaction, target).run is not None:
                raise RunDiffers(target, store.url)
            copied = msgspec.structs.replace(
                owner, id=target, attributes=owner.attributes if attributes is None else dict(attributes), accounts=()
            )
            held = transaction.held(owner.n)
            rows = [codec.open(LINE, row) for row in transaction.scan(LINE, (source,))]
            others: list[LineRow] = [line for line in rows if line.name != MAIN]
            links = _Links(store, target)
            for line in (main, *others):
                import_line(
                    store,
                    transaction,
                    Import(
                        run=copied,
                        line=msgspec.structs.replace(line, run=target, consumed=0),
                        after=0,
                        after_seq=0,
                        pieces=_pieces(store, transaction, line),
                        history=links.history(transaction, line),
                        held=held,
                    ),
                )
                held = set()
    except StaleError:
        raise RunDiffers(target, store.url) from None
    lines.forget(target)


def _pieces(store: Store, transaction: Transaction, line: LineRow) -> list[Record | GapRow]:
    """Return the records of a line and the gaps between them, in order."""
    found: list[Record | GapRow] = [
        store.codec.open(table, row) for table in (RECORD, GAP) for row in transaction.scan(table, (line.n,))
    ]
    return sorted(found, key=lambda piece: piece.first if isinstance(piece, GapRow) else piece.number)


class _Links:
    """Checkpoints on their way into another run: what became of each id, and of the checksum a child names."""

    def __init__(self, store: Store, run: str) -> None:
        self._store = store
        self._run = run
        self._ids: dict[str, str] = {}
        self._checksums: dict[str, bytes] = {}

    def history(self, transaction: Transaction, line: LineRow) -> list[CheckpointRow | TombstoneRow]:
        """Return the checkpoints and tombstones of a line as they are in the copy."""
        found: list[CheckpointRow | TombstoneRow] = [
            self._store.codec.open(table, row)
            for table in (CHECKPOINT, TOMBSTONE)
            for row in transaction.scan(table, (line.run, line.name))
        ]
        return [
            self._tombstone(one) if isinstance(one, TombstoneRow) else self._checkpoint(one)
            for one in sorted(found, key=lambda one: one.seq)
        ]

    def _tombstone(self, row: TombstoneRow) -> TombstoneRow:
        return msgspec.structs.replace(row, run=self._run, id=self._new_id(row.id))

    def _checkpoint(self, row: CheckpointRow) -> CheckpointRow:
        envelope = envelopes.open_checkpoint(row).envelope
        parent = envelope.parent
        data, checksum = envelopes.seal(
            msgspec.structs.replace(
                envelope,
                id=self._new_id(row.id),
                run=self._run,
                parent=self._ids.get(parent, parent) if parent is not None else None,
                parent_checksum=self._checksums.get(parent or "", envelope.parent_checksum),
            )
        )
        self._checksums[row.id] = checksum
        return msgspec.structs.replace(row, run=self._run, id=self._ids[row.id], envelope=data)

    def _new_id(self, checkpoint: str) -> str:
        made = make_checkpoint_id(int(checkpoint[_ID_TIME], 16), self._store.line_reader.entropy(10))
        self._ids[checkpoint] = made
        return made
