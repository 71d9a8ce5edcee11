"""Redaction of events: whoever watches, prints or keeps them gets none of the secrets that the store leaves out.

What a task prints is handed on in whole lines, each stream by itself: a credential that comes in two pieces, or with an
error message between them, is known only as a whole. A question has no end of line: once its stream is quiet, what
cannot be the beginning of a credential is handed on, and the rest when it is whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.flow.events import Event

_LONGEST_LINE = 64 << 10  # what has no end of line by then is handed on
_HELD_BACK = 1 << 10  # of a line that continues: longer than most credentials with the words before them
# A private key of several lines is known only as a whole; a certificate or a public key is no secret.
_QUESTION = re.compile(r"[\w.,()/-]{0,40}[\])}]?[:?>$#%]")
_KEY_BEGINS, _KEY_ENDS = re.compile(r"-----BEGIN[^\r\n]{0,80}?PRIVATE"), "-----END"


class EventRedactor:
    """Takes secrets out of the events of one run; it is called by one thread at a time, in the events' order."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._open: dict[tuple[str | None, ...], Event] = {}  # of each stream, what has no end of line yet
        self._said: dict[tuple[str | None, ...], str] = {}  # and what of it was handed on already, cleaned
        self.pieces = 0
        """How many pieces of output have come: as long as it stands, the streams are quiet."""
        self._asked_at = 0

    def take(self, event: Event) -> list[Event]:
        """Return what may be said now: the event, and before it what its task printed without an end of line."""
        if event.kind != "task_output":
            ended = [key for key in self._open if key[:2] == (event.phase, event.task)]
            return [*self._ended(ended), self._cleaned(event)]
        self.pieces += 1
        key = (event.phase, event.task, event.gate, event.data.get("stream"))
        before = self._open.pop(key, None)
        text = event.text if before is None else before.text + event.text
        size = _whole(text)
        if size < len(text):
            self._open[key] = msgspec.structs.replace(event, text=text[size:])
        return [self._rest(key, msgspec.structs.replace(event, text=text[:size]))] if size else []

    @property
    def is_holding(self) -> bool:
        """Whether a stream has text without an end of line that came since `quiet` was last asked."""
        return bool(self._open) and self._asked_at != self.pieces

    def quiet(self) -> list[Event]:
        """Return what may be said of lines that have no end yet, as nothing has followed for a while: a question."""
        self._asked_at = self.pieces
        found: list[Event] = []
        for key, event in self._open.items():
            said = self._said.get(key, "")
            cleaned = self._cleaned(msgspec.structs.replace(event, text=event.text[: _question_end(event.text)]))
            if cleaned.text.startswith(said):
                self._said[key] = cleaned.text
                found += (
                    [msgspec.structs.replace(cleaned, text=cleaned.text[len(said) :])] if cleaned.text != said else []
                )
        return found

    def end(self) -> list[Event]:
        """Return what is left at the end."""
        return self._ended(list(self._open))

    def _ended(self, keys: Iterable[tuple[str | None, ...]]) -> list[Event]:
        return [self._rest(key, self._open.pop(key)) for key in keys]

    def _rest(self, key: tuple[str | None, ...], event: Event) -> Event:
        """Return a line that is whole now, without what was handed on of it; all of it if that is not its beginning."""
        said, cleaned = self._said.pop(key, ""), self._cleaned(event)
        is_begun = cleaned.text.startswith(said)
        return msgspec.structs.replace(cleaned, text=cleaned.text[len(said) :] if is_begun else f"\n{cleaned.text}")

    def _cleaned(self, event: Event) -> Event:
        gate = event.gate if event.gate is None else self._clean(event.gate)
        text = self._clean(event.text) if event.text else ""
        return msgspec.structs.replace(event, gate=gate, text=text, data=self._plain(event.data))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._clean(value)
        if isinstance(value, dict):
            return {name: self._plain(item) for name, item in value.items()}
        return [self._plain(item) for item in value] if isinstance(value, list | tuple) else value


def _whole(text: str) -> int:
    """Return how much of a stream's text can be looked at: whole lines, and no key of several lines without its end."""
    size = _line_end(text, len(text))
    begins = max((found.start() for found in _KEY_BEGINS.finditer(text, 0, size)), default=-1)
    if begins > text.rfind(_KEY_ENDS, 0, size) and len(text) < _LONGEST_LINE:
        return _line_end(text, begins)
    return size if size or len(text) < _LONGEST_LINE else _word_end(text)


def _question_end(text: str) -> int:
    """Return how much of a line without an end can be no part of a credential that continues: all but its last word.

    A last word that ends as questions do is said, too, unless it may be an address with a password to come.
    """
    if "-----" in text or len(text) > _HELD_BACK:
        return 0
    end = max(text.rfind(mark) for mark in " \t") + 1
    return len(text) if _QUESTION.fullmatch(text, end) else end


def _line_end(text: str, before: int) -> int:
    """Return where the last whole line ends; a carriage return ends one, too, as progress and menus are printed."""
    return max(text.rfind("\n", 0, before), text.rfind("\r", 0, before)) + 1


def _word_end(text: str) -> int:
    """Return where to cut a line that continues: between two words, so that no credential is cut in two."""
    last = len(text) - _HELD_BACK
    found = max(text.rfind(mark, 0, last) for mark in " \t\"',;")
    return found + 1 if found > 0 else last
