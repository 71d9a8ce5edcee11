"""OpenAI Agents: a session and its interrupted runs on a Holdfast store.

A session is a run of the store, an item a journal record; taking an item back and clearing are records, too, so
nothing is rewritten. A `RunState` is a checkpoint, its pending approvals are questions, and answers lie in the run's
inbox until the state is loaded. See docs/adapters/openai.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from agents import RunState
from agents.memory import SessionABC

from holdfast.adapters.content_reader import ContentReader
from holdfast.adapters.framework_runs import Content, FrameworkRuns, RunsOwner, run_id_of
from holdfast.adapters.packing import SectionMemory, ValuePacker, section_record
from holdfast.adapters.requirement import check_version
from holdfast.encode.chunks import ChunkWriter
from holdfast.encode.tree import Ref
from holdfast.encode.values import Packer
from holdfast.errors import NotFound, UsageError
from holdfast.model.triggers import Trigger
from holdfast.store.run_copy import copy_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agents import Agent
    from agents.items import ToolApprovalItem, TResponseInputItem

    from holdfast.adapters.framework_runs import FrameworkLine
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.workspace.spill import SpillingWriter

_ITEMS = "items"
_ITEM, _POPPED, _CLEARED = "openai.item", "openai.popped", "openai.cleared"
_STATE = "run_state"
_ANSWER = "openai.answer"
_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Question(NamedTuple):
    """A tool call that waits for a person's approval."""

    call_id: str
    tool: str
    arguments: str


class HoldfastSession(RunsOwner, SessionABC):
    """The history of one conversation, and the state of a run of it that waits for approvals."""

    def __init__(
        self,
        session_id: str,
        place: Holdfast | str | Path | None = None,
        *,
        workspace: str | Path | None = None,
        session_settings: Any = None,
        **options: Any,
    ) -> None:
        """Use a store: one that is open, or a URL or path to open with `options` of `holdfast.open`.

        With a workspace, every batch of items is a checkpoint that holds that directory's files.
        """
        check_version("openai-agents", tested="0.24")
        self.session_id = session_id
        self.session_settings = session_settings
        self._runs = FrameworkRuns(place, "openai-agents", **options)
        self._workspace = str(workspace) if workspace is not None else None
        self._line: FrameworkLine = self._runs.line(session_id)
        tools = self._runs.tools
        self._packer = ValuePacker(tools.types, tools.rules)
        self._exact = Packer(tools.types)
        self._heard = 0  # how far the inbox is read; taken in with the next state that is saved

    @property
    def run(self) -> str:
        """The run that this session is."""
        return self._line.run

    # History

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the history, or its last so many items, oldest first."""
        return await asyncio.to_thread(self._items, limit)

    def _items(self, limit: int | None = None) -> list[TResponseInputItem]:
        if limit is not None and limit <= 0:
            return []
        found: list[Any] = []
        for body in self._bodies():
            found.append(self._packer.unpack(body, _ITEMS))
            if len(found) == limit:
                break
        return found[::-1]

    def _bodies(self) -> Iterator[bytes]:
        """Yield the items that are in the history, newest first."""
        popped = 0
        for record, body in self._line.records(_ITEMS, reverse=True):
            if record.kind == _CLEARED:
                return
            if record.kind == _POPPED:
                popped += 1
            elif popped:
                popped -= 1
            else:
                yield body

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items: durable when this returns, all of them or none."""
        if items:
            await asyncio.to_thread(self._add, items)

    def _add(self, items: list[TResponseInputItem]) -> None:
        line = self._line
        with line.lock:
            bodies = [self._packer.pack(item, f"{_ITEMS}[{number}]").data for number, item in enumerate(items)]

            def make(writer: ChunkWriter | SpillingWriter) -> Content:
                return Content(
                    sections=(), trigger=Trigger.AGENT_COMPLETE, reason=f"{len(items)} items",
                    key=f"items {line.number + len(items):012}", parent=line.head,
                    records=[line.draft(_ITEM, _ITEMS, body, writer) for body in bodies],
                )  # fmt: skip

            if self._workspace is not None:
                line.commit(make, workspace=self._workspace)
                return
            writer = ChunkWriter(self._runs.tools.compressor)
            drafts = [line.draft(_ITEM, _ITEMS, body, writer) for body in bodies]
            line.append(*drafts, chunks=writer.chunks.values())

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out of the history and return it, None if there is none."""
        return await asyncio.to_thread(lambda: self._line.repeat(self._pop))

    def _pop(self) -> Any:
        line = self._line
        with line.lock:
            number = line.number
            body = next(self._bodies(), None)
            if body is None:
                return None
            line.append(line.draft(_POPPED, _ITEMS, b"", ChunkWriter(self._runs.tools.compressor)), after=number)
            return self._packer.unpack(body, _ITEMS)

    async def clear_session(self) -> None:
        """Begin an empty history; what was before stays in the journal until the session is deleted."""
        await asyncio.to_thread(self._line.record, _CLEARED, _ITEMS, b"")

    # Interrupted runs

    async def save_state(self, state: RunState[Any, Any]) -> None:
        """Store the state of a run exactly as it is; its pending approvals become questions."""
        await asyncio.to_thread(self._save_state, state)

    def _save_state(self, state: RunState[Any, Any]) -> None:
        line, data = self._line, self._exact.pack(state.to_json(), _STATE)
        asked = [_question(item) for item in state.get_interruptions()]

        def make(writer: ChunkWriter | SpillingWriter) -> Content:
            root = SectionMemory(lambda values: ([], values)).write(data, writer)
            return Content(
                sections=[section_record(_STATE, root, (), max_bytes=self._runs.tools.max_section_bytes)],
                trigger=Trigger.USER_APPROVAL if asked else Trigger.AGENT_COMPLETE,
                reason=", ".join(f"approve {question.tool}" for question in asked),
                key=f"state {line.number:012} {self._runs.tools.entropy(4).hex()}",
                attributes={"questions": len(asked)},
                parent=line.head,
                consumed=self._heard,
            )

        line.commit(make, workspace=self._workspace)

    async def load_state(self, agent: Agent[Any], **options: Any) -> RunState[Any, Any] | None:
        """Return the newest saved state with all answers applied, None if there is none.

        `options` are those of `RunState.from_json`.
        """
        stored = await asyncio.to_thread(self._stored_state)
        if stored is None:
            return None
        state = await RunState.from_json(agent, stored, **options)
        answers = await asyncio.to_thread(self._answers)
        for item in state.get_interruptions():
            answer = answers.get(_question(item).call_id)
            if answer is None:
                continue
            if answer["approved"]:
                state.approve(item)
            else:
                state.reject(item, rejection_message=answer["reason"] or None)
        return state

    def _stored_state(self) -> dict[str, Any] | None:
        for record in self._line.keyed():
            for section in record.envelope.sections:
                if section.name == _STATE:
                    reader = ContentReader(self._runs.tools.reader, max_bytes=self._runs.tools.max_section_bytes)
                    data = reader.read([Ref(section.kind, section.size, section.root)])[0]
                    found: dict[str, Any] = self._exact.unpack(data, _STATE)
                    return found
        return None

    async def questions(self, agent: Agent[Any], **options: Any) -> list[Question]:
        """Return the approvals that the newest saved state waits for and that nobody has answered."""
        state = await self.load_state(agent, **options)
        answers = await asyncio.to_thread(self._answers)
        asked = [_question(item) for item in state.get_interruptions()] if state is not None else []
        return [question for question in asked if question.call_id not in answers]

    async def answer(self, call_id: str, *, approved: bool, reason: str = "") -> None:
        """Approve or reject a tool call, in this process or another; the first answer counts."""
        if not isinstance(call_id, str) or not call_id:
            raise UsageError(f"{call_id!r:.80} is not a valid call id")
        body = _encode({"call_id": call_id, "approved": bool(approved), "reason": str(reason)})
        await asyncio.to_thread(self._runs.store.post, self.run, _ANSWER, body, key=f"{_ANSWER}:{call_id}")

    def _answers(self) -> dict[str, Any]:
        entries = self._runs.store.unread(self.run)
        self._heard = max((entry.number for entry in entries), default=self._heard)
        found = [_decode(entry.body) for entry in entries if entry.kind == _ANSWER]
        return {answer["call_id"]: answer for answer in found}

    # The session as a run

    async def fork(self, session_id: str) -> HoldfastSession:
        """Copy the session under another id, with its saved states; both continue from here."""
        about = self._runs.attributes(session_id)
        await asyncio.to_thread(copy_run, self._runs.store, self.run, run_id_of(session_id), attributes=about)
        return HoldfastSession(
            session_id, self.holdfast, workspace=self._workspace, session_settings=self.session_settings
        )

    def checkpoint_of(self) -> Checkpoint:
        """Return the newest checkpoint, for its files and for comparison; NotFound if there is none."""
        record = self._line.newest()
        if record is None:
            raise NotFound("checkpoint", self.session_id)
        return self.holdfast.internals.opened(record)

    async def delete(self) -> None:
        """Delete the session with all that it holds."""
        await asyncio.to_thread(self._runs.delete, self.session_id)


def _question(item: ToolApprovalItem) -> Question:
    raw: Any = item.raw_item
    fields = raw if isinstance(raw, dict) else vars(raw)
    call_id = fields.get("call_id") or fields.get("id") or ""
    return Question(str(call_id), str(item.tool_name or ""), str(fields.get("arguments") or ""))
