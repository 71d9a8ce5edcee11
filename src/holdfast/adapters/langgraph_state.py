"""State of a LangGraph checkpoint as sections: one for each large channel, and one for the rest.

The section `langgraph` holds what LangGraph keeps of a checkpoint beside its values, and the values of small channels.
A channel whose version did not change since the parent is carried over and costs nothing.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blake3 import blake3

from holdfast.adapters.content_reader import ContentReader, joined
from holdfast.adapters.langgraph_types import (
    Serialized,
    SerializedTypes,
    SerializerOnly,
    look,
    make_messages,
    stored_messages,
)
from holdfast.adapters.packing import Packed, SectionMemory, ValuePacker, section_record
from holdfast.encode.tree import Ref
from holdfast.encode.values import Packer, array_header, map_header
from holdfast.errors import IntegrityError, InvalidId
from holdfast.model.ids import check_section_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from holdfast.adapters.langgraph_types import StoredMessage
    from holdfast.capture.tools import Tools
    from holdfast.encode.chunks import ChunkSink
    from holdfast.encode.tree import Entry
    from holdfast.model.checkpoint import CheckpointRecord, SectionRecord
    from holdfast.model.redaction import Redaction

CONTROL = "langgraph"
_CHANNEL = "channel:"
_INLINE = 512
_FIXMAP, _MAP16, _MAP32 = 0x80, 0xDE, 0xDF
_FIXARRAY, _FIXSTR = 0x90, 0xA0
_ARRAY_WIDTHS = {0xDC: 2, 0xDD: 4}
_KEPT_BYTES = 16 * 1024 * 1024
_READ_AHEAD = 8 * 1024 * 1024


class StoredChannel(NamedTuple):
    """A channel in a checkpoint: the version it had, and its bytes or its section."""

    version: Any
    data: Packed | None
    section: SectionRecord | None


class StateMemory(NamedTuple):
    """What the head of a line holds, for the next checkpoint to build on."""

    key: str
    codec: StateCodec
    channels: dict[str, StoredChannel]
    memories: dict[str, SectionMemory]


class Written(NamedTuple):
    """One write of a task, as it was put."""

    path: str
    task: str
    place: int
    channel: str
    value: Any


class StateCodec:
    """Encodes and decodes the state of one saver, with its serializer; threads take turns."""

    def __init__(self, tools: Tools, serializer: SerializerProtocol, *, is_native: bool) -> None:
        types = (SerializedTypes if is_native else SerializerOnly)(tools.types, serializer)
        self.serializer = serializer
        self._is_native = is_native
        self._packer = ValuePacker(types, tools.rules)
        self._plain = Packer(types)
        self._max_bytes = tools.max_section_bytes
        self._reader = ContentReader(tools.reader, max_bytes=tools.max_section_bytes)
        self._groups: OrderedDict[bytes, tuple[int, Sequence[StoredMessage]]] = OrderedDict()
        self._kept = 0
        self._lock = threading.RLock()

    def clean(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return metadata without secrets; LangGraph copies configuration into it."""
        with self._lock:
            packed = self._packer.pack(metadata, "metadata")
            return self._packer.unpack(packed.data, "metadata") if packed.found else metadata

    def encode(
        self,
        control: dict[str, Any],
        values: dict[str, Any],
        changed: Sequence[str],
        before: StateMemory | None,
        writer: ChunkSink,
    ) -> tuple[list[SectionRecord], StateMemory]:
        """Return the sections of a checkpoint, and what the next one can build on."""
        with self._lock:
            channels: dict[str, StoredChannel] = {}
            memories: dict[str, SectionMemory] = {}
            for channel, version in control["channel_versions"].items():
                known = before.channels.get(channel) if before is not None else None
                memory = before.memories.get(channel) if before is not None else None
                if known is not None and known.version == version and channel not in changed:
                    channels[channel] = known
                elif channel in values:
                    memory = memory or SectionMemory(look)
                    channels[channel] = self._encode_channel(channel, version, values[channel], memory, writer)
                else:
                    continue
                if memory is not None and channels[channel].section is not None:
                    memories[channel] = memory
            found: list[Redaction] = []
            inline: list[bytes] = []
            sections: dict[str, str] = {}
            records: list[SectionRecord] = []
            for channel, stored in channels.items():
                if stored.section is not None:
                    sections[channel] = stored.section.name
                    records.append(stored.section)
                elif stored.data is not None:
                    inline += [self._plain.pack(channel, CONTROL), stored.data.data]
                    found += stored.data.found
            fields = self._plain.pack({**control, "sections": sections}, CONTROL)
            body = _with_field(fields, self._plain.pack("values", CONTROL), map_header(len(inline) // 2), inline)
            root = writer.leaf(body) if len(body) <= _LARGEST_CONTROL else SectionMemory(look).write(body, writer)
            records.insert(0, section_record(CONTROL, root, found, max_bytes=self._max_bytes))
            return records, StateMemory(control["id"], self, channels, memories)

    def _encode_channel(
        self, channel: str, version: Any, value: Any, memory: SectionMemory, writer: ChunkSink
    ) -> StoredChannel:
        if self._is_native and type(value) is list:
            items = memory.packed_list(value, channel, self._packer)
            if items.size > _INLINE:
                return self._section(channel, version, memory.write_list(items, channel, writer), items.redactions)
            packed = Packed(items.data, tuple(items.redactions))
        else:
            packed = self._packer.pack(value if self._is_native else Serialized(value), channel)
        if len(packed.data) <= _INLINE:
            return StoredChannel(version, packed, None)
        return self._section(channel, version, memory.write(packed.data, writer), packed.found)

    def _section(self, channel: str, version: Any, root: Ref, found: Sequence[Redaction]) -> StoredChannel:
        return StoredChannel(
            version, None, section_record(_section_name(channel), root, found, max_bytes=self._max_bytes)
        )

    def control(self, record: CheckpointRecord) -> dict[str, Any]:
        """Return what a checkpoint keeps beside its large channels."""
        return self._control(record, self._reader.read([_control_of(record)])[0])

    def decode(self, record: CheckpointRecord) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a checkpoint keeps beside its values, and the values of all channels."""
        return next(self.decode_all([record]))

    def decode_all(self, records: Sequence[CheckpointRecord]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield what `decode` returns for each of these checkpoints; what they share is read and decoded once."""
        wanted = [
            [
                section
                for section in record.envelope.sections
                if section.name == CONTROL or section.name.startswith(_CHANNEL)
            ]
            for record in records
        ]
        roots = [Ref(section.kind, section.size, section.root) for row in wanted for section in row]
        parts = iter(self._reader.parts(roots))
        below = [{section.name: next(parts) for section in row} for row in wanted]
        self._read_ahead([part for row in below for entries in row.values() for part in entries])
        for record, sections in zip(records, below, strict=True):
            yield self._decode(record, sections)

    def _read_ahead(self, parts: Sequence[Entry]) -> None:
        """Read leaves together, as many as can be kept for a while; messages are kept decoded."""
        some: list[Ref] = []
        size = 0
        for part in dict.fromkeys(part for part in parts if isinstance(part, Ref) and part.id not in self._groups):
            size += part.size
            if size > _READ_AHEAD:
                break
            some.append(part)
        with _collector_paused():
            for ref, data in self._reader.each(some):
                if self._kept_group(ref, data) is None:
                    self._reader.keep(ref, data)

    def _decode(
        self, record: CheckpointRecord, sections: dict[str, list[Entry]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if CONTROL not in sections:
            raise IntegrityError(f"checkpoint {record.envelope.id}: section {CONTROL!r} is missing")
        control = self._control(record, self._joined(sections[CONTROL]))
        values = control["values"]
        for channel, name in control["sections"].items():
            if name not in sections:
                raise IntegrityError(
                    f"checkpoint {record.envelope.id}: section {name!r} of channel {channel!r} is missing"
                )
            with _collector_paused():
                messages = self._messages(sections[name])
            values[channel] = (
                messages if messages is not None else self._packer.unpack(self._joined(sections[name]), channel)
            )
        return control, values

    def _joined(self, parts: Sequence[Entry]) -> bytes:
        return joined(parts, self._reader.leaves(part for part in parts if isinstance(part, Ref)))

    def _messages(self, parts: Sequence[Entry]) -> list[Any] | None:
        """Return a list of messages; None if the value is anything else. A group of them is decoded once."""
        if len(parts) == 1:
            data = self._joined(parts)
            count, start = _list_head(data)
            short = stored_messages(data[start:]) if count else None
            return make_messages(short) if short is not None and len(short) == count else None
        head = parts[0] if parts and isinstance(parts[0], bytes) else b""
        count, start = _list_head(head)
        if not count or start != len(head):
            return None
        groups: list[Sequence[StoredMessage]] = []
        for place, part in enumerate(parts[1:], 1):
            if not isinstance(part, Ref):
                return None
            group = self._group(part)
            if group is None:  # a piece of the open end of a list, which is not cut between messages
                rest = stored_messages(self._joined(parts[place:]))
                if rest is None:
                    return None
                groups.append(rest)
                break
            groups.append(group)
        found = make_messages(chain.from_iterable(groups))
        return found if len(found) == count else None

    def _group(self, ref: Ref) -> Sequence[StoredMessage] | None:
        """Return the messages of one leaf, None if it is anything but whole messages."""
        with self._lock:
            known = self._groups.get(ref.id)
            if known is not None:
                self._groups.move_to_end(ref.id)
                return known[1]
        return self._kept_group(ref, self._reader.leaves([ref])[ref.id])

    def _kept_group(self, ref: Ref, data: bytes) -> Sequence[StoredMessage] | None:
        found = stored_messages(data)
        if found is not None:
            with self._lock:
                self._kept += ref.size if ref.id not in self._groups else 0
                self._groups[ref.id] = ref.size, found
                while self._kept > _KEPT_BYTES:
                    self._kept -= self._groups.popitem(last=False)[1][0]
        return found

    def _control(self, record: CheckpointRecord, data: bytes) -> dict[str, Any]:
        control = self._packer.unpack(data, CONTROL)
        if not isinstance(control, dict) or not {"id", "channel_versions", "values", "sections"} <= control.keys():
            raise IntegrityError(f"checkpoint {record.envelope.id}: its section {CONTROL!r} is not one of LangGraph's")
        return control

    def pack_writes(self, task_path: str, task: str, writes: Sequence[tuple[int, str, Any]]) -> bytes:
        """Return the body of a record of writes."""
        with self._lock:
            pack = self._plain.pack
            parts = [array_header(3), pack(task_path, "task"), pack(task, "task"), array_header(len(writes))]
            for index, channel, value in writes:
                given = value if self._is_native else Serialized(value)
                parts += [array_header(3), pack(index, "task"), pack(channel, "task")]
                parts.append(self._packer.pack(given, channel).data)
            return b"".join(parts)

    def unpack_writes(self, data: bytes) -> list[Written]:
        """Return the writes of a record."""
        path, task, writes = self._packer.unpack(data, "writes")
        return [Written(path, task, place, channel, value) for place, channel, value in writes]


_LARGEST_CONTROL = 64 * 1024


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Let no garbage collection begin: making 50 lists of 1,000 messages took 0.55 s with it and 0.21 s without."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _control_of(record: CheckpointRecord) -> Ref:
    for section in record.envelope.sections:
        if section.name == CONTROL:
            return Ref(section.kind, section.size, section.root)
    raise IntegrityError(f"checkpoint {record.envelope.id}: section {CONTROL!r} is missing")


def _section_name(channel: str) -> str:
    """Return the name of a channel's section; LangGraph allows names that a section cannot have."""
    name = _CHANNEL + channel
    try:
        return check_section_name(name)
    except InvalidId:
        return f"{_CHANNEL}={blake3(channel.encode('utf-8', 'surrogatepass')).hexdigest(16)}"


def _with_field(fields: bytes, name: bytes, header: bytes, parts: list[bytes]) -> bytes:
    """Return a packed mapping with one more field, whose value is packed already."""
    first = fields[0]
    if _FIXMAP <= first < _FIXARRAY:
        count, start = first & 0x0F, 1
    elif first == _MAP16:
        count, start = int.from_bytes(fields[1:3], "big"), 3
    else:
        raise IntegrityError("the control data of a checkpoint is not a mapping")
    return b"".join([map_header(count + 1), fields[start:], name, header, *parts])


def _list_head(data: bytes) -> tuple[int, int]:
    """Return the number of items of a packed list, and where the first begins; no items for anything else."""
    first = data[0] if data else 0
    if _FIXARRAY <= first < _FIXSTR:
        return first & 0x0F, 1
    start = 1 + _ARRAY_WIDTHS.get(first, 0)
    return int.from_bytes(data[1:start], "big"), start
