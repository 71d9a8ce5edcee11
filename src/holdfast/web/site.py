"""A site: one store as the page sees it, with handles for its threads and redaction over what leaves."""

from __future__ import annotations

import os
import queue
import threading
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.capture.redact import RedactingPacker
from holdfast.documents import without_secrets
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    from holdfast.checkpoint import Checkpoint
    from holdfast.engine import Holdfast

HANDLES = 4  # one handle serves one thread at a time: a long list must not make a short look wait
_KEPT_VALUES = 4


class RequestRefused(Exception):
    """A request that is answered with a status of its own and a sentence."""

    def __init__(self, status: int, kind: str, sentence: str, *, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.kind = kind
        self.hint = hint


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: the parts of the path, the query, and the JSON body of a POST."""

    path: dict[str, str] = {}
    query: dict[str, str] = {}
    body: dict[str, Any] = {}

    def text(self, name: str, default: str = "") -> str:
        """Return a word of the query."""
        return self.query.get(name, default)

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a number of the query, from 0 to a most; UsageError if it is not one."""
        given = self.query.get(name)
        if given is None:
            return default
        if not given.isascii() or not given.isdigit() or len(given) > 15:  # noqa: PLR2004 - digits of 2 ** 48
            raise UsageError(f"{name}={given[:40]!r}: give a number from 0 up")
        return min(int(given), most)

    def given(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a field of the body if it has this type; UsageError names the field otherwise."""
        value = self.body.get(name, default)
        if value is not default and not isinstance(value, kind):
            raise UsageError(f"{name}: give {kind.__name__}")
        return value


class KeptSections(OrderedDict["Hashable", Any]):
    """The values that were used last; safe for several threads."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._lock = threading.Lock()

    def of(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of a key, made if it is not there."""
        with self._lock:
            if key in self:
                self.move_to_end(key)
                return self[key]
        value = make()
        with self._lock:
            self[key] = value
            while len(self) > self._most:
                self.popitem(last=False)
        return value


@dataclass(slots=True, eq=False)
class Handle:
    """One thread's way into the store."""

    hf: Holdfast
    _packer: Any = None

    def clean(self, value: Any, where: str = "web") -> Any:
        """Return stored data as plain JSON values, without what the redaction rules of today take out."""
        if self._packer is None:
            self._packer = self.hf.internals.journal_packer()
        return without_secrets(self._packer, value, where)

    def clean_text(self, text: str) -> str:
        """Return text without what the redaction rules take out."""
        if self._packer is None:
            self._packer = self.hf.internals.journal_packer()
        return self._packer.text(text) if isinstance(self._packer, RedactingPacker) else text


class Handles:
    """A few handles for reading, opened when they are first needed, and one for writing."""

    def __init__(self, open_one: Callable[[bool], Holdfast]) -> None:
        self._open = open_one
        self._free: queue.LifoQueue[Handle | None] = queue.LifoQueue()
        for _ in range(HANDLES):
            self._free.put(None)
        self._all: list[Handle] = []
        self._writing = threading.Lock()
        self._writer: Handle | None = None

    @contextmanager
    def read(self) -> Iterator[Handle]:
        """Give a handle that nobody else uses meanwhile."""
        handle = self._free.get()
        try:
            if handle is None:
                handle = Handle(self._open(False))
                handle.hf.internals.types.show_unknown()  # classes of frameworks: the page shows their fields
                self._all.append(handle)
            yield handle
        finally:
            self._free.put(handle)

    @contextmanager
    def write(self) -> Iterator[Handle]:
        """Give the handle that may write; one at a time."""
        with self._writing:
            if self._writer is None:
                self._writer = Handle(self._open(True))
                self._all.append(self._writer)
            yield self._writer

    def close(self) -> None:
        """Close what was opened."""
        while self._all:
            self._all.pop().hf.close()


@dataclass(slots=True, eq=False)
class Site:
    """What handlers work with."""

    handles: Handles
    writes: bool = False
    workspace: Path | None = None
    """The directory that "now" means, and that recoveries put files back into."""
    user: str = ""
    """Who answers and recovers, for the record."""
    values: KeptSections = field(default_factory=lambda: KeptSections(_KEPT_VALUES))
    looks: KeptSections = field(default_factory=lambda: KeptSections(32))

    def section(self, checkpoint: Checkpoint, name: str) -> Any:
        """Return a section as it is stored, not yet redacted: what leaves is cleaned first. The last few are kept."""
        key = ("section", checkpoint.id, checkpoint.number, name)
        return self.values.of(key, lambda: checkpoint.plain_section(name))


def short_place(place: str) -> str:
    """Return a path or URL as people write it: what lies below their home begins with ~."""
    home = os.path.expanduser("~")  # noqa: PTH111 - text, which may be part of a URL
    return place.replace(f"{home}/", "~/", 1) if home not in ("", "/", "~") else place


def found(handle: Handle, spec: str) -> Checkpoint:
    """Return the checkpoint that a spec names: an id, RUN (with its journal), RUN@7; NotFound."""
    return handle.hf.find(spec, sound=False)
