"""Facts: what a feed tells that telemetry may show; everything that could be content is left behind here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.journal.call_record import call_lines, is_work
from holdfast.journal.entry import SAVED, notes_of, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast.encode.values import Packer
    from holdfast.journal.feed import FeedItem
    from holdfast.store.store import Store

What = Literal["run", "phase", "call", "checkpoint", "recovery"]
_LONGEST_NAME = 200
_RESUMED = "resumed"
_PHASES = {"phase_transition": "began", "phase_complete": "ended"}
_ENDS = {"shutdown": "ended", "session_end": "ended", "error_occurred": "failed", "user_interrupt": "interrupted"}
_SEEN = {"done": "ended", "failed": "failed", "skipped": "skipped", "started": "began"}


class FeedFact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened: what it is about, which one, what became of it, when, and how long it took."""

    what: What
    event: str
    at: datetime
    name: str = ""
    phase: str | None = None
    duration_s: float | None = None
    attributes: dict[str, str | int] = {}


def facts_of(items: Iterable[FeedItem], store: Store, packer: Packer) -> Iterator[tuple[str, FeedFact]]:
    """Yield the facts that items of a feed tell, each with its run."""
    for item in items:
        if item.checkpoint is not None:
            yield item.run, _checkpoint(item.checkpoint)
        elif item.record is not None and item.record.kind == SAVED:
            entry = read_entry(item.record, store)
            at = datetime.fromtimestamp(item.record.at, UTC)
            if item.number == 1:
                yield item.run, FeedFact(what="run", event="began", at=at)
            lines = notes_of([entry], packer)
            found = [fact for line in lines if isinstance(line, dict) and (fact := fact_of_line(line)) is not None]
            yield from ((item.run, fact) for fact in sorted(found, key=lambda one: one.at))
            if entry.trigger in _ENDS:
                yield item.run, FeedFact(what="run", event=_ENDS[entry.trigger], at=at)
        elif item.record is not None:
            for line in call_lines([item.record], store, packer):
                if (fact := fact_of_line(line)) is not None:
                    yield item.run, fact


def fact_of_line(line: Mapping[str, Any]) -> FeedFact | None:
    """Return the fact in a line of a run's journal or of its steps and calls; None if it is of another kind."""
    at = line.get("at")
    if not isinstance(at, datetime):
        return None
    phase = line.get("phase")
    phase = _named(phase) if isinstance(phase, str) else None
    if "step" in line:
        if line.get("kind") == "phase":
            return None  # told by what was noted of it
        event = _SEEN.get(str(line.get("event")))
        if event is None:
            return None
        took = line.get("duration_s")
        return FeedFact(
            what="call", event=event, at=at, name=_named(line["step"]), phase=phase,
            duration_s=float(took) if isinstance(took, (int, float)) else None,
            attributes={"kind": _named(line.get("kind", "step")), "attempts": _count(line.get("attempts"))},
        )  # fmt: skip
    kind = line.get("kind")
    if kind == _RESUMED:
        return FeedFact(what="run", event="resumed", at=at)
    if kind in ("completed", "cancelled"):
        return FeedFact(what="run", event=str(kind), at=at)
    if kind in _PHASES and phase is not None:
        return FeedFact(what="phase", event=_PHASES[str(kind)], at=at, name=phase)
    return None


def kept_at(completed: datetime, notes: Iterable[Mapping[str, Any]], calls: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the tokens of each result that earlier processes left and that a run had when it was completed."""
    resumed = max((one["at"] for one in notes if one["kind"] == _RESUMED and one["at"] <= completed), default=None)
    if resumed is None:
        return []
    newest = {line["step"]: line for line in calls if line["at"] <= completed}
    kept = [line for line in newest.values() if line["event"] == "done" and line["at"] <= resumed and is_work(line)]
    return [int(line.get("spent", {}).get("tokens", 0)) for line in kept]


def _checkpoint(record: Any) -> FeedFact:
    envelope = record.envelope
    attributes: dict[str, str | int] = {
        "id": envelope.id, "seq": envelope.seq, "trigger": envelope.trigger, "stored_bytes": envelope.stored_bytes,
    }  # fmt: skip
    what: What = "recovery" if envelope.trigger == "recovery" else "checkpoint"
    return FeedFact(what=what, event="ended", at=envelope.created_at, name=envelope.id, attributes=attributes)


def _named(value: Any) -> str:
    """Return a name that a program chose; one that is long or has odd characters may be content, and is left out."""
    text = str(value)
    is_name = 0 < len(text) <= _LONGEST_NAME and text.isprintable() and " " not in text
    return text if is_name else "(unnamed)"


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
