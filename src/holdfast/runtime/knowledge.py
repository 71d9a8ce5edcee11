"""What a run was told and what it learned: each entry once, however often the run resumes.

What was learned is pending until a sink has taken it. A crash between the sink and the checkpoint hands an entry over
again, under the same id: the sink can tell.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from holdfast.capture.sections import typed
from holdfast.errors import UsageError
from holdfast.model.sections import Knowledge as KnowledgeSection
from holdfast.model.sections import KnowledgeEntry
from holdfast.model.triggers import Trigger
from holdfast.runtime.coroutines import result_of
from holdfast.runtime.host import Alone
from holdfast.runtime.recorded import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime.host import Host


class Knowledge:
    """The knowledge of a run, as a live section."""

    gives_typed = True

    def __init__(self, host: Host | None = None) -> None:
        self._host: Host = host or Alone()
        self._injected: dict[str, KnowledgeEntry] = {}
        self._captured: dict[str, KnowledgeEntry] = {}
        self._pending: dict[str, KnowledgeEntry] = {}
        self._flushing = threading.Lock()
        self.changes = 0

    @property
    def injected(self) -> tuple[KnowledgeEntry, ...]:
        """What the run was told."""
        return tuple(self._injected.values())

    @property
    def captured(self) -> tuple[KnowledgeEntry, ...]:
        """What it learned and a sink has taken."""
        return tuple(self._captured.values())

    @property
    def pending(self) -> tuple[KnowledgeEntry, ...]:
        """What it learned and no sink has taken yet."""
        return tuple(self._pending.values())

    def inject(self, content: Any, *, id: str | None = None, kind: str = "", source: str = "") -> str:  # noqa: A002
        """Note that the run was told something; return its id. The same again changes nothing."""
        entry = self._entry(content, id, kind, source)
        with self._host.lock:
            if entry.id not in self._injected:
                self._injected[entry.id] = entry
                self.changes += 1
        return entry.id

    def capture(self, content: Any, *, id: str | None = None, kind: str = "", source: str = "") -> str:  # noqa: A002
        """Keep something that was learned, once; return its id. It is pending until a sink has taken it."""
        entry = self._entry(content, id, kind, source)
        with self._host.lock:
            if entry.id not in self._pending and entry.id not in self._captured:
                self._pending[entry.id] = entry
                self.changes += 1
        return entry.id

    def flush(self, sink: Callable[[KnowledgeEntry], object]) -> list[KnowledgeEntry]:
        """Hand everything that is pending to a sink, one by one, save, and return what it took.

        What the sink took before it raised is saved as taken; the rest stays pending.
        """
        taken: list[KnowledgeEntry] = []
        with self._flushing:
            try:
                for entry in self.pending:
                    result_of(sink(entry), "the sink")
                    with self._host.lock:
                        self._captured[entry.id] = self._pending.pop(entry.id, entry)
                        self.changes += 1
                    taken.append(entry)
            finally:
                if taken:
                    self._host.save(Trigger.STEP_COMPLETE, f"{len(taken)} knowledge entries handed on")
        return taken

    def snapshot(self) -> KnowledgeSection:
        """Return all of it as a section."""
        return KnowledgeSection(
            injected=list(self._injected.values()),
            captured=list(self._captured.values()),
            pending=list(self._pending.values()),
        )

    def restore(self, value: Any) -> None:
        """Take a section back."""
        section: KnowledgeSection = typed("knowledge", value)
        with self._host.lock:
            self._injected = {entry.id: entry for entry in section.injected}
            self._captured = {entry.id: entry for entry in section.captured}
            self._pending = {entry.id: entry for entry in section.pending}
            self.changes += 1

    def _entry(self, content: Any, given: str | None, kind: str, source: str) -> KnowledgeEntry:
        name = given or digest_of([kind, content])
        if name is None:
            raise UsageError(
                f"a {type(content).__qualname__} has no stable content to name it by: give the entry an id"
            )
        own = name if given else f"k-{name}"
        return KnowledgeEntry(
            id=own,
            content=self._host.keep(content, f"knowledge {own!r}"),
            kind=kind,
            source=source,
            at=self._host.now(),
        )


def entry_facts(entry: KnowledgeEntry) -> dict[str, Any]:
    """Return an entry as an agent sees it."""
    return {"id": entry.id, "text": entry.content, "kind": entry.kind, "source": entry.source}
