"""Spans: which ones facts start and end. Pure: what a tracer does with it is elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.telemetry.facts import FeedFact

RUN = "run"
_OVER = {"ended": None, "completed": None, "failed": "failed", "cancelled": "cancelled", "interrupted": "interrupted"}


class SpanStep(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a span, or its end; `key` names it among those of its run that are open, `parent` another one."""

    key: str
    at: datetime
    starts: bool
    name: str = ""
    parent: str | None = None
    error: str | None = None
    attributes: dict[str, str | int] = {}


class SpanFold:
    """What is open in one run; each fact makes steps. A process that died left spans open: the next one ends them."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._open: dict[str, datetime] = {}
        self._last: datetime | None = None

    def steps(self, fact: FeedFact) -> Iterator[SpanStep]:
        """Yield the steps that a fact makes."""
        before, self._last = self._last, max(fact.at, self._last or fact.at)
        if fact.what == "run":
            yield from self._run_steps(fact, before)
            return
        if fact.what == "phase":
            yield from self._phase_steps(fact)
        elif fact.what == "call":
            yield from self._call_steps(fact)
        else:
            key = f"{fact.what}:{fact.name}"
            name = f"holdfast.{_VERBS[fact.what]}"
            yield self._start(key, fact.at, name, parent=self._parent(RUN), attributes=fact.attributes)
            yield self._end(key, fact.at)

    def end(self, error: str | None = None) -> Iterator[SpanStep]:
        """End what is open, at the last sign of life."""
        at = self._last
        for key in reversed(list(self._open)):
            yield self._end(key, max(at or self._open[key], self._open[key]), error)

    def _run_steps(self, fact: FeedFact, before: datetime | None) -> Iterator[SpanStep]:
        if fact.event in ("began", "resumed"):
            if RUN in self._open:
                self._last = before
                yield from self.end("interrupted")
                self._last = fact.at
            given: dict[str, str | int] = {"resumed": 1} if fact.event == "resumed" else {}
            yield self._start(RUN, fact.at, f"invoke_workflow {self._run}", attributes=given)
        elif RUN in self._open:
            yield from self.end(_OVER.get(fact.event))

    def _phase_steps(self, fact: FeedFact) -> Iterator[SpanStep]:
        key = f"phase:{fact.name}"
        if key in self._open:
            yield self._end(key, fact.at)
        if fact.event == "began":
            yield self._start(key, fact.at, "holdfast.phase", parent=self._parent(RUN), attributes={"name": fact.name})

    def _call_steps(self, fact: FeedFact) -> Iterator[SpanStep]:
        key, parent = f"call:{fact.name}", f"phase:{fact.phase}"
        if fact.event == "began":
            if key in self._open:
                yield self._end(key, fact.at, "interrupted")
            yield self._start(key, fact.at, _name(fact), parent=self._parent(parent), attributes=_call(fact))
            return
        if key not in self._open:
            began = fact.at - timedelta(seconds=fact.duration_s or 0)
            yield self._start(key, began, _name(fact), parent=self._parent(parent), attributes=_call(fact))
        yield self._end(key, fact.at, "failed" if fact.event == "failed" else None)

    def _parent(self, wanted: str) -> str | None:
        """Return an open span; None hangs on the trace: nothing is open, or an observer came later."""
        return next((key for key in (wanted, RUN) if key in self._open), None)

    def _start(
        self,
        key: str,
        at: datetime,
        name: str,
        *,
        parent: str | None = None,
        attributes: dict[str, str | int] | None = None,
    ) -> SpanStep:
        self._open[key] = at
        given = {"run": self._run, **(attributes or {})}
        return SpanStep(key=key, at=at, starts=True, name=name, parent=parent, attributes=given)

    def _end(self, key: str, at: datetime, error: str | None = None) -> SpanStep:
        self._open.pop(key, None)
        return SpanStep(key=key, at=at, starts=False, error=error)


_VERBS = {"checkpoint": "checkpoint", "recovery": "recover"}


def _name(fact: FeedFact) -> str:
    return f"invoke_agent {fact.name}" if fact.attributes.get("kind") == "agent" else "holdfast.call"


def _call(fact: FeedFact) -> dict[str, str | int]:
    phase: dict[str, str | int] = {"phase": fact.phase} if fact.phase is not None else {}
    return {"path": fact.name, **phase, **{name: value for name, value in fact.attributes.items() if value}}
