"""Claude Agent SDK: a session store on a Holdfast store, with the files that a session works on.

A session is a run, a sub-agent's transcript a line, an entry a journal record with its uuid as key. The summary that
the SDK keeps of a session is an attribute of the run. See docs/adapters/claude.md.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from blake3 import blake3
from claude_agent_sdk import SessionStore, fold_session_summary

from holdfast.adapters.framework_runs import Content, FrameworkRuns, RunsOwner
from holdfast.adapters.requirement import check_version
from holdfast.encode.chunks import ChunkWriter
from holdfast.encode.values import Packer
from holdfast.errors import NotFound
from holdfast.model.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

    from holdfast.adapters.framework_runs import FrameworkLine
    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast
    from holdfast.store.commit import Draft
    from holdfast.store.tables import Scalar
    from holdfast.workspace.spill import SpillingWriter

_ENTRY = "claude.entry"
_PATH = "transcript:"
_PROJECT, _SESSION, _SUMMARY, _MTIME = "project", "session", "summary", "mtime"
_TURNS = frozenset({"user", "assistant"})


class HoldfastSessionStore(RunsOwner, SessionStore):
    """Keeps the transcripts of Claude sessions; with a workspace, the files as they were at each batch of entries."""

    def __init__(
        self, place: Holdfast | str | Path | None = None, *, workspace: str | Path | None = None, **options: Any
    ) -> None:
        """Use a store: one that is open, or a URL or path to open with `options` of `holdfast.open`."""
        check_version("claude-agent-sdk", tested="0.2.183")
        self._runs = FrameworkRuns(place, "claude", **options)
        self._workspace = str(workspace) if workspace is not None else None
        self._packer = Packer()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add transcript entries, those with a uuid once: durable when this returns."""
        if entries:
            await asyncio.to_thread(self._append, key, entries)

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        line = self._line(key)
        with line.lock:
            line.repeat(lambda: self._try_append(line, key, entries))

    def _try_append(self, line: FrameworkLine, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append what is not there yet, with the summary that follows; HeadMoved if others appended meanwhile."""
        number = line.number
        new = [entry for entry in entries if not entry.get("uuid") or not line.has(str(entry["uuid"]))]
        if not new:
            return
        is_main = key.get("subpath") is None
        about = self._summed_up(line, key, new) if is_main else None
        is_turn = any(entry.get("type") in _TURNS for entry in new)
        if self._workspace is None or not is_main or not is_turn:
            writer = ChunkWriter(self._runs.tools.compressor)
            drafts = self._drafts(line, key, new, writer)
            line.append(*drafts, chunks=writer.chunks.values(), after=number, about=about)
            return
        named = next((str(entry["uuid"]) for entry in reversed(new) if entry.get("uuid")), f"#{number}")

        def make(writer: ChunkWriter | SpillingWriter) -> Content:
            return Content(
                sections=(), trigger=Trigger.AGENT_COMPLETE, reason=f"{len(new)} entries", key=named,
                parent=line.head, records=self._drafts(line, key, new, writer), after=number, about=about,
            )  # fmt: skip

        line.commit(make, workspace=self._workspace, tries=1)

    def _drafts(
        self, line: FrameworkLine, key: SessionKey, entries: Sequence[SessionStoreEntry], writer: Any
    ) -> list[Draft]:
        path = _PATH + (key.get("subpath") or "")
        return [
            line.draft(_ENTRY, path, self._packer.pack(entry, "entry"), writer, key=entry.get("uuid"))
            for entry in entries
        ]

    def _summed_up(self, line: FrameworkLine, key: SessionKey, entries: list[SessionStoreEntry]) -> dict[str, Scalar]:
        """Return what the row of a session's run says after these entries: whose it is, its summary, its time."""
        before = self._runs.about(line.run)
        known: Any = None
        if _SUMMARY in before:
            known = _summary(before)
        folded = fold_session_summary(known, key, entries)
        return {
            _PROJECT: key["project_key"],
            _SESSION: key["session_id"],
            _SUMMARY: json.dumps(folded["data"]),
            _MTIME: int(self._runs.tools.clock() * 1000),
        }

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript as they were appended, None if there are none."""
        return await asyncio.to_thread(self._load, key)

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        found: list[Any] = []
        seen: set[str] = set()
        for _, body in self._line(key).records(_PATH + (key.get("subpath") or "")):
            entry = self._packer.unpack(body, "entry")
            uuid = entry.get("uuid")
            if not uuid or uuid not in seen:
                found.append(entry)
            if uuid:
                seen.add(uuid)
        return found or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project with the time of their last entry."""
        return [
            {"session_id": str(about[_SESSION]), "mtime": int(about[_MTIME] or 0)}
            for about in await asyncio.to_thread(self._sessions, project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions, without reading a transcript."""
        return [_summary(about) for about in await asyncio.to_thread(self._sessions, project_key)]

    def _sessions(self, project: str) -> list[Any]:
        return [about for _, about in self._runs.rows() if about.get(_PROJECT) == project and _SUMMARY in about]

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with the transcripts of its sub-agents, or one of those."""
        await asyncio.to_thread(self._delete, key)

    def _delete(self, key: SessionKey) -> None:
        if key.get("subpath") is None:
            self._runs.delete(_thread(key))
        else:
            self._line(key).clear()

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the sub-agents' transcripts of a session."""
        return await asyncio.to_thread(self._subkeys, key)

    def _subkeys(self, key: Any) -> list[str]:
        thread = _thread(key)
        run = self._runs.line(thread).run
        found = [self._runs.named_line(thread, run, name).first_path() for name in self._runs.store.line_names(run)]
        return [path.removeprefix(_PATH) for path in found if path is not None and path != _PATH]

    def checkpoint_of(self, key: SessionKey, uuid: str | None = None) -> Checkpoint:
        """Return the checkpoint that was taken with the entry of this uuid, or the newest, for the files it holds."""
        line = self._line({**key, "subpath": None})  # type: ignore[typeddict-item]
        record = line.by_key(uuid) or line.with_record(uuid) if uuid is not None else line.newest()
        if record is None:
            raise NotFound("checkpoint", uuid or key["session_id"])
        return self.holdfast.internals.opened(record)

    def run_of(self, key: SessionKey) -> str:
        """Return the run that a session is."""
        return self._line(key).run

    def _line(self, key: Any) -> FrameworkLine:
        return self._runs.line(_thread(key), key.get("subpath") or "")


def _thread(key: Any) -> str:
    """Return a session's name in the store: sessions of two projects may have one id."""
    return f"{key['session_id']}.{blake3(key['project_key'].encode()).hexdigest(4)}"


def _summary(about: Any) -> SessionSummaryEntry:
    return {
        "session_id": str(about[_SESSION]), "mtime": int(about[_MTIME]), "data": json.loads(str(about[_SUMMARY])),
    }  # fmt: skip
