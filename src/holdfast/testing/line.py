"""One writer on one line of a store, for contract tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.encode.chunks import Chunk
from holdfast.encode.tree import LEAF, Ref, leaf_id
from holdfast.model.checkpoint import FORMAT_VERSION, CheckpointRecord, Envelope, Marks, SectionRecord, Summary
from holdfast.model.ids import make_checkpoint_id
from holdfast.model.recovery import RecoveryInfo
from holdfast.store.commit import CheckpointDraft, Commit
from holdfast.store.envelopes import seal
from holdfast.store.tables import MAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.store import Store
    from holdfast.store.tables import Scalar

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def chunk_of(text: str) -> Chunk:
    """Return a leaf, stored as it is."""
    data = text.encode()
    return Chunk(leaf_id(data), 0, len(data), data)


class Line:
    """One writer on one run, which knows where it stands and numbers its checkpoints itself."""

    def __init__(self, store: Store, run: str = "run", *, name: str = MAIN, at: datetime = NOON) -> None:
        self.store = store
        self.run = run
        self.name = name
        self.at = at
        self.head: CheckpointRecord | None = None
        self.seq = 0

    def envelope(self, chunks: Sequence[Chunk], **changes: Any) -> Envelope:
        """Return the envelope that this writer would commit next."""
        refs = [Ref(LEAF, chunk.size, chunk.id) for chunk in chunks]
        entropy = leaf_id(f"{self.run} {self.name} {self.seq} {id(self)}".encode())
        envelope = Envelope(
            format_version=FORMAT_VERSION,
            id=make_checkpoint_id(int(self.at.timestamp() * 1000), entropy),
            run=self.run,
            seq=self.seq + 1,
            parent=self.head.envelope.id if self.head else None,
            parent_checksum=self.head.checksum if self.head else None,
            trigger="manual",
            reason="",
            created_at=self.at,
            program_version="0",
            sections=tuple(SectionRecord(f"s{n}", ref.kind, ref.id, ref.size) for n, ref in enumerate(refs)),
            stored_bytes=sum(chunk.size for chunk in chunks),
            codec="none",
            recovery=RecoveryInfo(),
            summary=Summary(state="S", agents={"running": 1}, budget_used={"tokens": 7}),
        )
        return msgspec.structs.replace(envelope, **changes)

    def envelopes(self, *groups: Sequence[Chunk]) -> list[Envelope]:
        """Return the envelopes of checkpoints that this writer would commit next, each taken on the one before."""
        found: list[Envelope] = []
        for chunks in groups:
            number = self.seq + len(found)
            entropy = leaf_id(f"{self.run} {self.name} {number} {id(self)}".encode())
            link = {"parent": found[-1].id, "parent_checksum": seal(found[-1])[1]} if found else {}
            name = make_checkpoint_id(int(self.at.timestamp() * 1000), entropy)
            found.append(self.envelope(chunks, id=name, seq=number + 1, **link))
        return found

    def commit(
        self,
        *chunks: Chunk,
        marks: Marks | None = None,
        key: str | None = None,
        attributes: dict[str, Scalar] | None = None,
    ) -> CheckpointRecord:
        """Commit these chunks as the next checkpoint."""
        head = self.head.envelope.id if self.head else None
        if self.name == MAIN and key is None:
            record = self.store.commit(self.envelope(chunks), marks or Marks(), chunks, expected_head=head)
        else:
            commit = Commit(
                run=self.run, line=self.name, chunks=chunks, expected_head=head,
                checkpoints=[CheckpointDraft(self.envelope(chunks), marks or Marks(), key, attributes)],
            )  # fmt: skip
            made = self.store.write(commit).checkpoint
            assert made is not None
            record = made
        self.head, self.seq = record, record.envelope.seq
        return record

    def follow(self) -> None:
        """Go to the run's head as the store has it."""
        record = self.store.run(self.run, line=self.name)
        self.seq = record.last_seq
        self.head = None if record.head is None else self.store.checkpoint(record.head)
