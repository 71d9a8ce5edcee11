"""All task graphs of a run, by id: each phase may have one of its own, and the section holds them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.sections import typed
from holdfast.model import sections
from holdfast.runtime.graph import TaskGraph
from holdfast.runtime.host import Alone

if TYPE_CHECKING:
    from holdfast.runtime.host import Host


class Graphs:
    """The graphs of a run; the one that was asked for last is the section's own, the others stand beside it."""

    gives_typed = True

    def __init__(self, host: Host | None = None) -> None:
        self._host = host or Alone()
        self._graphs: dict[str, TaskGraph] = {}
        self._stored: dict[str, sections.Graph] = {}  # those that nobody has asked for yet
        self._current = "graph"
        self._changes = 0

    def graph(self, id: str = "graph") -> TaskGraph:  # noqa: A002 - the name that sections have
        """Return a graph, new or where it stood."""
        with self._host.lock:
            if self._current != id:
                self._current = id
                self._changes += 1
            if id not in self._graphs:
                graph = TaskGraph(self._host, id)
                if id in self._stored:
                    graph.restore(self._stored.pop(id))
                self._graphs[id] = graph
            return self._graphs[id]

    @property
    def changes(self) -> int:
        """How often anything changed."""
        return self._changes + sum(graph.changes for graph in self._graphs.values())

    def snapshot(self) -> sections.Graph:
        """Return where every task of every graph stands."""
        with self._host.lock:
            values = self._stored | {name: graph.snapshot() for name, graph in self._graphs.items()}
        current = values.pop(self._current, None) or sections.Graph(id=self._current)
        return msgspec.structs.replace(current, others=values)

    def restore(self, value: sections.Graph | dict[str, Any]) -> None:
        """Take every task's position back; a graph that is in use and not stored starts over."""
        section: sections.Graph = typed("graph", value)
        stored = section.others | {section.id: msgspec.structs.replace(section, others={})}
        with self._host.lock:
            for name, graph in self._graphs.items():
                graph.restore(stored.pop(name, sections.Graph(id=name)))
            self._stored = stored
            self._current = section.id
            self._changes += 1
