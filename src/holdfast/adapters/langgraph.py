"""LangGraph: a checkpoint saver on a Holdfast store.

A thread is a run, a namespace a line, a checkpoint a checkpoint found by LangGraph's own id, a large channel a section.
Writes of tasks are records under the id of their checkpoint; they may come before it. See docs/adapters/langgraph.md.
"""

from __future__ import annotations

import asyncio
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.adapters.framework_runs import Content, FrameworkRuns, RunsOwner, checked_key, line_name_of, run_id_of
from holdfast.adapters.langgraph_state import StateCodec, StateMemory
from holdfast.adapters.langgraph_types import register_messages
from holdfast.adapters.requirement import check_version
from holdfast.errors import NotFound, UsageError
from holdfast.model.triggers import Trigger
from holdfast.retain.sweep import sweep
from holdfast.store.run_copy import copy_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
        PendingWrite,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from holdfast.adapters.framework_runs import FrameworkLine
    from holdfast.adapters.langgraph_state import Written
    from holdfast.checkpoint import Checkpoint as HoldfastCheckpoint
    from holdfast.encode.chunks import ChunkWriter
    from holdfast.engine import Holdfast
    from holdfast.model.checkpoint import CheckpointRecord
    from holdfast.store.tables import Scalar
    from holdfast.workspace.spill import SpillingWriter

WORKSPACE_KEY = "holdfast_workspace"
"""The entry of a graph's configuration that names a directory whose files are part of its checkpoints."""
_WRITES = "langgraph.writes"
_DELTAS = "counters_since_delta_snapshot"
_PAGE = 50
_LONGEST_ATTRIBUTE = 1_000
_MOST_ATTRIBUTES = 50
_TRIGGERS = {
    "input": Trigger.STATE_TRANSITION,
    "loop": Trigger.STEP_COMPLETE,
    "update": Trigger.MANUAL,
    "fork": Trigger.MANUAL,
}
_END = object()


class HoldfastSaver(RunsOwner, BaseCheckpointSaver[int]):
    """Keeps the threads of LangGraph graphs in a Holdfast store; for several threads and processes at once."""

    def __init__(
        self,
        place: Holdfast | str | Path | None = None,
        *,
        serde: SerializerProtocol | None = None,
        workspace: str | Path | None = None,
        **options: Any,
    ) -> None:
        """Use a store: one that is open, or a URL or path to open with `options` of `holdfast.open`.

        With a workspace, every checkpoint holds that directory's files; a graph's configuration may name another one
        under `holdfast_workspace`.
        """
        super().__init__(serde=serde)
        check_version("langgraph-checkpoint", tested="4.3")
        self._runs = FrameworkRuns(place, "langgraph", **options)
        self._workspace = str(workspace) if workspace is not None else None
        register_messages(self._runs.tools.types)
        self._codecs: dict[int, StateCodec] = {}

    @property
    def _codec(self) -> StateCodec:
        """The codec of the present serializer, which may be set from outside at any time."""
        codec = self._codecs.get(id(self.serde))
        if codec is None or codec.serializer is not self.serde:
            is_native = type(self.serde) is JsonPlusSerializer  # a subclass may encode in its own way
            codec = self._codecs[id(self.serde)] = StateCodec(self._runs.tools, self.serde, is_native=is_native)
        return codec

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: durable when this returns, at the cost of what changed since its parent."""
        configurable = config["configurable"]
        thread, namespace = str(configurable["thread_id"]), configurable.get("checkpoint_ns", "")
        parent = configurable.get("checkpoint_id")
        key = checked_key(checkpoint["id"])
        codec, line = self._codec, self._runs.line(thread, namespace)
        told = codec.clean(dict(get_serializable_checkpoint_metadata(config, metadata)))
        attributes = _attributes(told)
        control = {
            **{name: value for name, value in checkpoint.items() if name != "channel_values"},
            "namespace": namespace,
            "parent": parent,
            "metadata": {name: value for name, value in told.items() if name not in attributes},
        }

        def make(writer: ChunkWriter | SpillingWriter) -> Content:
            memory = line.memory
            before = memory if isinstance(memory, StateMemory) and memory.codec is codec else None
            is_next = before is not None and before.key == parent
            sections, line.memory = codec.encode(
                control, checkpoint["channel_values"], list(new_versions), before if is_next else None, writer
            )
            source = str(told.get("source", ""))
            return Content(
                sections=sections,
                trigger=_TRIGGERS.get(source, Trigger.STEP_COMPLETE),
                reason=f"{source} {told.get('step', '')}".strip(),
                key=key,
                parent=line.head if is_next else line.by_key(parent) if parent else None,
                attributes=attributes,
                steps=max(0, step) if isinstance(step := told.get("step"), int) else 0,
            )

        line.commit(make, workspace=configurable.get(WORKSPACE_KEY) or self._workspace)
        return _config(thread, namespace, key)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, under a checkpoint that is there or comes later: durable when this returns."""
        configurable = config["configurable"]
        line = self._runs.line(str(configurable["thread_id"]), configurable.get("checkpoint_ns", ""))
        numbered = [
            (WRITES_IDX_MAP.get(channel, index), channel, value) for index, (channel, value) in enumerate(writes)
        ]
        body = self._codec.pack_writes(task_path, task_id, numbered)
        line.record(_WRITES, checked_key(configurable["checkpoint_id"]), body)

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint by its id, or the latest of a thread and namespace: that with the greatest id."""
        configurable = config["configurable"]
        thread, namespace = str(configurable["thread_id"]), configurable.get("checkpoint_ns", "")
        line = self._runs.line(thread, namespace)
        record = _found(line, config)
        return None if record is None else next(self._tuples([(thread, line, record)]))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, greatest id first; a paused iterator holds nothing open."""
        below = get_checkpoint_id(before) if before else None
        if limit is not None and limit <= 0:
            return
        page = _PAGE if limit is None or filter else min(limit, _PAGE)
        found = self._listed(config, below, page)
        matching = (one for one in found if not filter or self._matches(one[2], filter))
        left, size = limit, 1
        while some := list(islice(matching, size if left is None else min(size, left))):
            yield from self._tuples(some)
            left = None if left is None else left - len(some)
            size = min(_PAGE, size * 4)  # who wants but the first pays for no more; all others are read together

    def _listed(
        self, config: RunnableConfig | None, below: str | None, page: int
    ) -> Iterator[tuple[str, FrameworkLine, CheckpointRecord]]:
        configurable = config["configurable"] if config else {}
        thread, wanted = configurable.get("thread_id"), get_checkpoint_id(config) if config else None
        threads = [(str(thread), run_id_of(str(thread)))] if thread is not None else list(self._runs.threads())
        rows = []
        for name, run in threads:
            namespace = configurable.get("checkpoint_ns")
            lines = [line_name_of(namespace)] if namespace is not None else self._runs.store.line_names(run)
            rows += [(name, self._runs.named_line(name, run, line)) for line in lines]
        if wanted:
            for name, line in rows:
                record = line.by_key(wanted)
                if record is not None and (below is None or wanted < below):
                    yield name, line, record
            return
        yield from merge(
            *(self._pages(name, line, below, page) for name, line in rows),
            key=lambda found: found[2].key or "",
            reverse=True,
        )

    def _pages(
        self, thread: str, line: FrameworkLine, below: str | None, size: int
    ) -> Iterator[tuple[str, FrameworkLine, CheckpointRecord]]:
        while records := line.keyed(below=below, limit=size):
            for record in records:
                yield thread, line, record
            below = records[-1].key

    def _matches(self, record: CheckpointRecord, wanted: dict[str, Any]) -> bool:
        """Tell whether the metadata of a checkpoint has these values; its payload is read only if it must be."""
        known = record.attributes
        if any(name in known and known[name] != value for name, value in wanted.items()):
            return False
        others = {name: value for name, value in wanted.items() if name not in known}
        if not others:
            return True
        metadata = self._codec.control(record)["metadata"]
        return all(value == metadata.get(name) for name, value in others.items())

    def _tuples(self, found: Sequence[tuple[str, FrameworkLine, CheckpointRecord]]) -> Iterator[CheckpointTuple]:
        """Yield checkpoints as LangGraph has them; what they share is read once."""
        writes = {
            line: self._writes(line, [str(record.key) for _, own, record in found if own is line])
            for line in dict.fromkeys(line for _, line, _ in found)
        }
        decoded = self._codec.decode_all([record for _, _, record in found])
        for (thread, line, record), (control, values) in zip(found, decoded, strict=True):
            namespace, parent = control.pop("namespace", ""), control.pop("parent", None)
            metadata = {**control.pop("metadata", {}), **record.attributes}
            del control["sections"], control["values"]
            yield CheckpointTuple(
                config=_config(thread, namespace, control["id"]),
                checkpoint={**control, "channel_values": values},  # type: ignore[typeddict-item]
                metadata=metadata,  # type: ignore[arg-type]
                parent_config=_config(thread, namespace, parent) if parent else None,
                pending_writes=[(write.task, write.channel, write.value) for write in writes[line][str(record.key)]],
            )

    def _writes(self, line: FrameworkLine, keys: Sequence[str]) -> dict[str, Sequence[Written]]:
        """Return the writes under checkpoints in LangGraph's order; ordinary ones count once, special ones last."""
        ordered: dict[str, Sequence[Written]] = {}
        for key, records in line.records_of(keys).items():
            found: dict[tuple[str, int], Written] = {}
            for record, body in records:
                if record.kind != _WRITES:
                    continue
                for write in self._codec.unpack_writes(body):
                    place = write.task, write.place
                    if write.place < 0 or place not in found:
                        found[place] = write
            ordered[key] = sorted(found.values(), key=lambda write: (write.path, write.task, write.place))
        return ordered

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what each channel was written on the way to a checkpoint, back to the nearest stored value."""
        configurable = config["configurable"]
        line = self._runs.line(str(configurable["thread_id"]), configurable.get("checkpoint_ns", ""))
        record = _found(line, config)
        writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        remaining = set(channels)
        parent = self._codec.control(record)["parent"] if record is not None and remaining else None
        while parent is not None and remaining:
            ancestor = line.by_key(parent)
            if ancestor is None:
                break
            for write in reversed(self._writes(line, [parent])[parent]):
                if write.channel in remaining:
                    writes[write.channel].append((write.task, write.channel, write.value))
            control = self._codec.control(ancestor)
            here = {channel for channel in remaining if channel in control["values"] or channel in control["sections"]}
            if here:
                values = self._codec.decode(ancestor)[1]
                seeds.update({channel: values[channel] for channel in here})
                remaining -= here
            parent = control["parent"]
        return {
            channel: {"writes": writes[channel][::-1], **({"seed": seeds[channel]} if channel in seeds else {})}
            for channel in channels
        }  # type: ignore[return-value]

    def checkpoint_of(self, config: RunnableConfig) -> HoldfastCheckpoint:
        """Return a checkpoint as Holdfast has it, for its files, sections and comparison; NotFound if there is none."""
        configurable = config["configurable"]
        line = self._runs.line(str(configurable["thread_id"]), configurable.get("checkpoint_ns", ""))
        record = _found(line, config)
        if record is None:
            raise NotFound("checkpoint", str(get_checkpoint_id(config) or configurable["thread_id"]))
        return self.holdfast.internals.opened(record)

    # Removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its namespaces, checkpoints and writes; its space is given back."""
        self._runs.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these LangGraph runs made, but for what later ones are rebuilt from."""
        doomed = set(map(str, run_ids))
        for thread, run in list(self._runs.threads()) if doomed else ():
            self._remove(
                thread, run, lambda records: [one for one in records if one.attributes.get("run_id") in doomed]
            )

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all checkpoints of threads (`delete`), or all but the latest of each namespace (`keep_latest`).

        What the latest one of a thread with delta channels is rebuilt from stays.
        """
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"strategy={strategy!r}: use 'keep_latest' or 'delete'")
        for thread in map(str, thread_ids):
            run = run_id_of(thread)
            if strategy == "delete":
                self._runs.delete(thread)
            elif self._runs.exists(run):
                self._remove(thread, run, lambda records: records[1:])

    def _remove(
        self, thread: str, run: str, choose: Callable[[Sequence[CheckpointRecord]], Sequence[CheckpointRecord]]
    ) -> None:
        removed = False
        for name in self._runs.store.line_names(run):
            line = self._runs.named_line(thread, run, name)
            records = line.keyed()
            doomed = {record.key: record for record in choose(records)}
            for needed in self._needed([record for record in records if record.key not in doomed], records):
                doomed.pop(needed, None)
            line.remove(list(doomed.values()), [key for key in doomed if key is not None])
            removed = removed or bool(doomed)
        if removed:
            self._runs.forget(run)
            sweep(self._runs.store, run)
            self._runs.store.reclaim()

    def _needed(self, kept: Sequence[CheckpointRecord], records: Sequence[CheckpointRecord]) -> set[str]:
        """Return the ancestors that delta channels of these checkpoints are rebuilt from."""
        known = {record.key: record for record in records}
        needed: set[str] = set()
        for record in kept:
            control = self._codec.control(record)
            remaining = set(control["metadata"].get(_DELTAS, ()))
            while True:
                remaining -= control["values"].keys() | control["sections"].keys()
                ancestor = known.get(control["parent"])
                if not remaining or ancestor is None or ancestor.key in needed:
                    break
                needed.add(str(ancestor.key))
                control = self._codec.control(ancestor)
        return needed

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its namespaces, checkpoints and writes; chunks are shared, not copied."""
        source, target = run_id_of(str(source_thread_id)), run_id_of(str(target_thread_id))
        if self._runs.exists(source):
            copy_run(self._runs.store, source, target, attributes=self._runs.attributes(str(target_thread_id)))

    def get_next_version(self, current: Any, channel: None = None) -> Any:  # noqa: ARG002 - LangGraph passes it
        """Return the version after this one; texts of other savers continue as texts."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}"
        return 1 if current is None else current + 1

    # The same, without blocking the loop

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name for it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, greatest id first."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, _END)) is not _END:
            yield one  # type: ignore[misc]

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what each channel was written on the way to a checkpoint."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these LangGraph runs made."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)


def _found(line: FrameworkLine, config: RunnableConfig) -> CheckpointRecord | None:
    """Return the checkpoint that a configuration names, or the latest: that with the greatest id."""
    wanted = get_checkpoint_id(config)
    return line.by_key(wanted) if wanted else next(iter(line.keyed(limit=1)), None)


def _config(thread: str, namespace: str, key: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": key}}


def _attributes(metadata: dict[str, Any]) -> dict[str, Scalar]:
    """Return what of a checkpoint's metadata is found without reading its payload: short texts and numbers."""
    found: dict[str, Scalar] = {}
    for name, value in metadata.items():
        if isinstance(value, str):
            fits = len(value) <= _LONGEST_ATTRIBUTE and value.isprintable()
        else:
            fits = value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 1 << 63)
        if fits and name.isprintable() and len(found) < _MOST_ATTRIBUTES:
            found[name] = value
    return found
