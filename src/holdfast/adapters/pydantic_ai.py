"""pydantic-ai: a conversation store on a Holdfast store.

A conversation is a run. Its entries are journal records under their own ids, and so is each version of what the
framework keeps beside them: saving compares the revision and appends, all or nothing. A fork copies the entries that it
shares, so that it stays whole when the original is deleted. See docs/adapters/pydantic-ai.md.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter

from holdfast.adapters.framework_runs import FrameworkRuns, RunsOwner
from holdfast.adapters.packing import ValuePacker
from holdfast.adapters.requirement import check_version
from holdfast.encode.chunks import ChunkWriter
from holdfast.journal.entry import body_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.adapters.framework_runs import FrameworkLine
    from holdfast.engine import Holdfast
    from holdfast.store.commit import Draft

_ENTRY, _RECORD = "pydantic-ai.entry", "pydantic-ai.record"
_ENTRIES, _HEAD = "entries", "conversation"
_LARGEST_KEYED = 64 * 1024


class HoldfastConversationStore(RunsOwner, ConversationStore):
    """Keeps conversations and everything they branch from; for several threads and processes at once."""

    def __init__(self, place: Holdfast | str | Path | None = None, **options: Any) -> None:
        """Use a store: one that is open, or a URL or path to open with `options` of `holdfast.open`."""
        check_version("pydantic-ai-slim", tested="2.66")
        self._runs = FrameworkRuns(place, "pydantic-ai", **options)
        tools = self._runs.tools
        self._packer = ValuePacker(tools.types, tools.rules)
        self._records: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
        self._lock = threading.Lock()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return what is kept of a conversation beside its entries."""
        return await asyncio.to_thread(lambda: self._newest(self._runs.line(conversation_id)))

    def _newest(self, line: FrameworkLine) -> ConversationRecord | None:
        found = next(line.records(_HEAD, reverse=True), None)
        return None if found is None else self._records.validate_python(self._packer.unpack(found[1], _HEAD))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the conversations, or those of a scope, the last saved first."""
        return await asyncio.to_thread(self._all, scope, limit)

    def _all(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        found = (self._newest(self._runs.line(thread)) for thread, _ in self._runs.threads())
        wanted = [one for one in found if one is not None and (scope is None or one.scope == scope)]
        return sorted(wanted, key=lambda one: one.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries: durable when this returns, all of it or nothing."""
        line = self._runs.line(record.conversation_id)
        await asyncio.to_thread(line.repeat, lambda: self._write(line, record, new_entries, expected_revision))

    def _write(
        self,
        line: FrameworkLine,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        expected_revision: str | None,
    ) -> None:
        with line.lock:
            number = line.number
            stored = self._newest(line)
            if (stored.revision if stored is not None else None) != expected_revision:
                raise ConversationConflict(record.conversation_id)
            writer = ChunkWriter(self._runs.tools.compressor)
            drafts = self._brought(line, record, {entry.id for entry in new_entries}, writer)
            for entry in new_entries:
                message = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")[0]
                value = {"id": entry.id, "parent_id": entry.parent_id, "kind": entry.kind, "message": message}
                with self._lock:
                    packed = self._packer.pack(value, "entry").data
                drafts += self._entry_drafts(line, entry.id, packed, writer)
            about = self._records.dump_python(record, mode="json")
            drafts.append(line.draft(_RECORD, _HEAD, self._packer.plain.pack(about, _HEAD), writer))
            line.append(*drafts, chunks=writer.chunks.values(), after=number)

    def _entry_drafts(self, line: FrameworkLine, entry: str, packed: bytes, writer: ChunkWriter) -> list[Draft]:
        """Return an entry as records; one that is too large for a row has its bytes in a record beside it."""
        if len(packed) <= _LARGEST_KEYED:
            return [line.draft(_ENTRY, _ENTRIES, packed, writer, key=entry)]
        return [
            line.draft(_ENTRY, f"large:{entry}", packed, writer),
            line.draft(_ENTRY, _ENTRIES, b"", writer, key=entry),
        ]

    def _brought(
        self, line: FrameworkLine, record: ConversationRecord, new: set[str], writer: ChunkWriter
    ) -> list[Draft]:
        """Return the entries that a fork shares with another conversation, to be its own from now on."""
        drafts: list[Draft] = []
        wanted = [tip for tip in (record.head_id, *record.branches) if tip is not None and tip not in new]
        brought: set[str] = set()
        for tip in wanted:
            entry: str | None = tip
            while entry is not None and entry not in brought and not line.has(entry):
                data = self._data(entry)
                if data is None:  # a concurrent delete released it
                    raise ConversationConflict(record.conversation_id)
                brought.add(entry)
                drafts += self._entry_drafts(line, entry, data, writer)
                entry = self._packer.unpack(data, "entry")["parent_id"]
        return drafts

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its entries; forks have copies of theirs."""
        await asyncio.to_thread(self._delete, conversation_id, expected_revision)

    def _delete(self, conversation_id: str, expected_revision: str) -> None:
        line = self._runs.line(conversation_id)
        with line.lock:
            stored = self._newest(line)
            if stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            self._runs.delete(conversation_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry by its id; LookupError if there is none."""
        data = await asyncio.to_thread(self._data, entry_id)
        if data is None:
            raise LookupError(f"there is no entry {entry_id!r}")
        return self._entry(data)

    def _entry(self, data: bytes) -> ConversationEntry:
        value = self._packer.unpack(data, "entry")
        message = ModelMessagesTypeAdapter.validate_python([value["message"]])[0]
        return ConversationEntry(id=value["id"], parent_id=value["parent_id"], kind=value["kind"], message=message)

    def _data(self, entry: str) -> bytes | None:
        """Return the bytes of an entry, from whichever conversation has it."""
        store = self._runs.store
        for line in store.journal.lines_with(entry):
            record = store.journal.keyed(line, entry)
            if record is not None and record.kind == _ENTRY:
                large = None if record.body else store.journal.newest(line, f"large:{entry}")
                return body_of(large or record, store)
        return None

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to one of them, oldest first, or the last so many; read in one pass."""
        if head_id is None or limit is not None:
            return await super().read_history(head_id, limit=limit)
        return await asyncio.to_thread(self._history, head_id)

    def _history(self, head_id: str) -> list[ConversationEntry]:
        store = self._runs.store
        line = next(iter(store.journal.lines_with(head_id)), None)
        if line is None:
            raise LookupError(f"there is no entry {head_id!r}")
        known: dict[str, Any] = {}
        for record in store.journal.of_path(line, _ENTRIES):
            if record.key is not None:
                known[record.key] = record
        found: list[ConversationEntry] = []
        entry: str | None = head_id
        while entry is not None:
            here = known.get(entry)
            data = here.body if here is not None and here.body else self._data(entry)
            if data is None:
                raise LookupError(f"there is no entry {entry!r}")
            found.append(self._entry(data))
            entry = found[-1].parent_id
        return found[::-1]
