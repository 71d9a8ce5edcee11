"""Microsoft agent-framework: checkpoint storage on a Holdfast store.

A workflow (by its name) is a run, a checkpoint a checkpoint with the framework's id as its key; state, messages and
pending requests are sections. The framework logs a storage that fails and continues: `protection` says so, and since
when. See docs/adapters/agent-framework.md.
"""

from __future__ import annotations

import asyncio
import base64
import warnings
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_framework import WorkflowCheckpoint
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value
from agent_framework.exceptions import WorkflowCheckpointException

from holdfast.adapters.content_reader import ContentReader
from holdfast.adapters.framework_runs import Content, FrameworkRuns, RunsOwner, checked_key
from holdfast.adapters.packing import SectionMemory, ValuePacker, section_record
from holdfast.adapters.requirement import check_version
from holdfast.capture.protection import Protection, UnprotectedWarning, reason_of
from holdfast.encode.opaque import Opaque
from holdfast.encode.tree import Ref
from holdfast.encode.types import TypeAdapter, TypeRegistry
from holdfast.errors import NotFound
from holdfast.model.triggers import Trigger
from holdfast.retain.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from holdfast.adapters.framework_runs import FrameworkLine
    from holdfast.checkpoint import Checkpoint
    from holdfast.encode.chunks import ChunkWriter
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.workspace.spill import SpillingWriter

_PICKLED = "agent_framework.pickled"
_MARKER, _TYPE = "__pickled__", "__type__"
_CONTROL = "agent_framework"
_LARGE = {"state": "workflow:state", "messages": "workflow:messages", "pending_request_info_events": "workflow:pending"}


class _FrameworkTypes(TypeRegistry):
    """The registered types of a store; the framework's own encoding for all others, opaque."""

    def __init__(self, known: TypeRegistry, allowed: Iterable[str]) -> None:
        super().__init__()
        self._known = known
        self._allowed = frozenset(allowed)
        self._fallback = TypeAdapter(_PICKLED, object, self._take_apart, self._put_together)

    def for_class(self, cls: type) -> TypeAdapter | None:
        return self._known.for_class(cls) or self._fallback

    def for_name(self, name: str) -> TypeAdapter | None:
        return self._fallback if name == _PICKLED else self._known.for_name(name)

    def _take_apart(self, value: Any) -> list[Any]:
        encoded = encode_checkpoint_value(value)
        return [encoded[_TYPE], Opaque(base64.b64decode(encoded[_MARKER]))]

    def _put_together(self, stored: Any) -> Any:
        kind, data = stored
        encoded = {_TYPE: kind, _MARKER: base64.b64encode(bytes(data)).decode()}
        return decode_checkpoint_value(encoded, allowed_types=self._allowed)


class HoldfastCheckpointStorage(RunsOwner):
    """Keeps the checkpoints of workflows; each costs what changed since the one before."""

    def __init__(
        self,
        place: Holdfast | str | Path | None = None,
        *,
        workspace: str | Path | None = None,
        allowed_checkpoint_types: Iterable[str] = (),
        **options: Any,
    ) -> None:
        """Use a store: one that is open, or a URL or path to open with `options` of `holdfast.open`.

        `allowed_checkpoint_types` are the classes of yours that the framework may load ("module:Class"), beside its
        own; a class that the store knows (`types=[…]`) is stored by its fields instead. With a workspace, every
        checkpoint holds that directory's files.
        """
        check_version("agent-framework-core", tested="1.23")
        self._runs = FrameworkRuns(place, "agent-framework", **options)
        self._workspace = str(workspace) if workspace is not None else None
        tools = self._runs.tools
        tools.types.show(_PICKLED)
        self._packer = ValuePacker(_FrameworkTypes(tools.types, allowed_checkpoint_types), tools.rules)
        self._reader = ContentReader(tools.reader, max_bytes=tools.max_section_bytes)
        self.protection = Protection()
        """Whether the last checkpoint was stored; if not, since when none is, and why."""

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint and return its id: durable when this returns."""
        try:
            await asyncio.to_thread(self._save, checkpoint)
        except Exception as error:
            self.protection = self.protection.failed(
                reason_of(error), datetime.fromtimestamp(self._runs.tools.clock(), UTC)
            )
            said = self.protection.sentence(checkpoint.workflow_name)
            warnings.warn(said, UnprotectedWarning, stacklevel=2)
            raise
        self.protection = Protection()
        return checkpoint.checkpoint_id

    def _save(self, checkpoint: WorkflowCheckpoint) -> None:
        line = self._runs.line(checkpoint.workflow_name)
        key, before = checked_key(checkpoint.checkpoint_id), checkpoint.previous_checkpoint_id
        parts = {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}

        def make(writer: ChunkWriter | SpillingWriter) -> Content:
            memories: dict[str, SectionMemory] = line.memory or {}
            sections = []
            for name, value in (
                (_CONTROL, {field: part for field, part in parts.items() if field not in _LARGE}),
                *((section, parts[field]) for field, section in _LARGE.items()),
            ):
                packed = self._packer.pack(value, name)
                memory = memories.setdefault(name, SectionMemory(lambda values: ([], values)))
                root = memory.write(packed.data, writer)
                limit = self._runs.tools.max_section_bytes
                sections.append(section_record(name, root, packed.found, max_bytes=limit))
            line.memory = memories
            return Content(
                sections=sections,
                trigger=Trigger.STEP_COMPLETE,
                reason=f"superstep {checkpoint.iteration_count}",
                key=key,
                parent=line.by_key(before) if before else None,
                attributes={"iteration": checkpoint.iteration_count, "timestamp": checkpoint.timestamp},
                steps=checkpoint.iteration_count,
            )

        with line.lock:
            line.commit(make, workspace=self._workspace)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint by its id; WorkflowCheckpointException if there is none."""
        return await asyncio.to_thread(self._load, checkpoint_id)

    def _load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        found = self._find(checkpoint_id)
        if found is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._decode(found[1])

    def _find(self, checkpoint_id: str) -> tuple[FrameworkLine, CheckpointRecord] | None:
        for thread, _ in self._runs.threads():
            line = self._runs.line(thread)
            record = line.by_key(checkpoint_id)
            if record is not None:
                return line, record
        return None

    def _decode(self, record: CheckpointRecord) -> WorkflowCheckpoint:
        sections = {one.name: Ref(one.kind, one.size, one.root) for one in record.envelope.sections}
        names = [_CONTROL, *_LARGE.values()]
        data = dict(zip(names, self._reader.read([sections[name] for name in names]), strict=True))
        parts = {field: self._packer.unpack(data[name], name) for field, name in _LARGE.items()}
        return WorkflowCheckpoint(**self._packer.unpack(data[_CONTROL], _CONTROL), **parts)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first."""
        return await asyncio.to_thread(lambda: [self._decode(one) for one in self._records(workflow_name)])

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints, oldest first, without reading a payload."""
        return await asyncio.to_thread(lambda: [str(one.key) for one in self._records(workflow_name)])

    def _records(self, workflow: str) -> Iterator[CheckpointRecord]:
        """Yield the checkpoints of a workflow in the order they were saved."""
        found = self._runs.line(workflow).keyed()
        return iter(sorted(found, key=lambda record: record.envelope.seq))

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint that was saved last, whatever the clocks say; None if there is none."""
        return await asyncio.to_thread(self._latest, workflow_name)

    def _latest(self, workflow: str) -> WorkflowCheckpoint | None:
        records = list(self._records(workflow))
        return self._decode(records[-1]) if records else None

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint and give its space back; tell whether there was one."""
        return await asyncio.to_thread(self._delete, checkpoint_id)

    def _delete(self, checkpoint_id: str) -> bool:
        found = self._find(checkpoint_id)
        if found is None:
            return False
        line, record = found
        line.remove([record], [])
        sweep(self._runs.store, line.run)
        return True

    def checkpoint_of(self, checkpoint_id: str) -> Checkpoint:
        """Return a checkpoint as Holdfast has it, for its files and for comparison; NotFound if there is none."""
        found = self._find(checkpoint_id)
        if found is None:
            raise NotFound("checkpoint", checkpoint_id)
        return self.holdfast.internals.opened(found[1])
