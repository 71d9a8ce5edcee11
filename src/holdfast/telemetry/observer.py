"""The observer: follows a feed and gives its facts to OpenTelemetry, as spans and metrics."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from blake3 import blake3
from opentelemetry import metrics, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from holdfast.errors import NotFound
from holdfast.telemetry.facts import facts_of, kept_at
from holdfast.telemetry.spans import RUN, SpanFold
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from types import TracebackType

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from holdfast.engine import Holdfast
    from holdfast.internals import LocalEvent
    from holdfast.journal.feed import Feed
    from holdfast.telemetry.facts import FeedFact
    from holdfast.telemetry.spans import SpanStep

_NAME = "holdfast"
_LOOK_EVERY_S = 0.2


class Observer:
    """Tells OpenTelemetry what is committed to a store; `cursor` is where another observer would continue.

    Use `export()` for what is there by now, or a `with` block for a thread that follows until the block ends. The block
    also hears what `hf` does meanwhile and no commit tells: how long checkpoints took, which failed, restores, ...
    """

    def __init__(
        self,
        hf: Holdfast,
        runs: str | Iterable[str] | None = None,
        after: str | None = None,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._hf = hf
        self._runs = {runs} if isinstance(runs, str) else None if runs is None else set(runs)
        self._feed: Feed = hf.follow(self._runs, after)
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, __version__, meter_provider=meter_provider)
        self._checkpoints = meter.create_counter("holdfast.checkpoints", description="Checkpoints taken.")
        self._bytes = meter.create_counter("holdfast.checkpoint.stored", unit="By", description="New bytes stored.")
        self._calls = meter.create_counter("holdfast.calls", description="Calls that ended, by outcome.")
        self._durations = meter.create_histogram("holdfast.call.duration", unit="s", description="How long calls took.")
        self._recoveries = meter.create_counter(
            "holdfast.recoveries", description="Runs that went back or were forked."
        )
        self._resumes = meter.create_counter("holdfast.resumes", description="Runs that another process resumed.")
        self._kept = meter.create_counter("holdfast.calls.kept", description="Calls that a resumed run did not repeat.")
        self._saved = meter.create_counter("holdfast.tokens.saved", unit="{token}", description="What these had spent.")
        self._took = meter.create_histogram(
            "holdfast.checkpoint.duration", unit="s", description="How long commits with checkpoints took."
        )
        self._failures = meter.create_counter("holdfast.checkpoint.failures", description="Commits that failed.")
        self._is_unprotected = meter.create_gauge("holdfast.unprotected", description="1 while a run is unprotected.")
        self._leases = meter.create_counter("holdfast.lease.lost", description="Leases that went to another owner.")
        self._troubled: set[tuple[str | None, str]] = set()
        self._folds: dict[str, SpanFold] = {}
        self._spans: dict[tuple[str, str], Span] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """What ended following, if something did: telemetry never stops a run."""

    @property
    def cursor(self) -> str:
        """What was told so far."""
        return self._feed.cursor

    def export(self) -> int:
        """Tell what is committed by now, and return how many facts that were; spans of runs under way stay open."""
        told = 0
        for run, fact in facts_of(self._feed.ready(), self._hf.store, self._hf.internals.journal_packer()):
            self._tell(run, fact)
            told += 1
        return told

    def close(self) -> None:
        """Stop following, tell what is left, and end the spans of runs that are under way."""
        self._stopped.set()
        if self._hear in self._hf.internals.listeners:
            self._hf.internals.listeners.remove(self._hear)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.failure is None:
            self.export()
        for run, fold in self._folds.items():
            for step in fold.end():
                self._step(run, step)
        self._folds.clear()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._follow, name="holdfast-telemetry", daemon=True)
        self._thread.start()
        self._hf.internals.listeners.append(self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, found: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self.export()
            except Exception as error:  # noqa: BLE001 - kept for who asks; a run continues without telemetry
                self.failure = error
                return
            self._stopped.wait(_LOOK_EVERY_S)

    def _hear(self, event: LocalEvent) -> None:
        if self._runs is not None and event.run is not None and event.run not in self._runs:
            return
        try:
            if event.what in ("restored", "verified"):
                self._show(event)
            else:
                self._protection(event)
        except Exception as error:  # noqa: BLE001 - kept for who asks; a run continues without telemetry
            self.failure = error

    def _protection(self, event: LocalEvent) -> None:
        place = (event.run, event.what)
        if event.what == "saved":
            if event.took_s is not None:
                self._took.record(event.took_s)
            if (event.run, "failed") in self._troubled:
                self._is_unprotected.set(0, {"run": str(event.run)})
            self._troubled -= {(event.run, "failed"), (event.run, "lost")}
        elif event.what == "failed":
            self._failures.add(1)
            self._is_unprotected.set(1, {"run": str(event.run)})
        elif place not in self._troubled:  # the thread that renews it and the next commit both find out
            self._leases.add(1)
        if event.what != "saved":
            self._troubled.add(place)

    def _show(self, event: LocalEvent) -> None:
        """Make a span of what is over; of a run, it is in the run's trace."""
        ended = time.time_ns()
        around, attributes = None, {}
        if event.run is not None:
            parent = self._spans.get((event.run, RUN)) or NonRecordingSpan(trace_of(event.run))
            around, attributes = trace.set_span_in_context(parent), {"holdfast.run": event.run}
        name = "holdfast.restore" if event.what == "restored" else "holdfast.verify"
        began = ended - int((event.took_s or 0) * 1e9)
        span = self._tracer.start_span(name, context=around, attributes=attributes, start_time=began)
        if not event.is_good:
            span.set_status(Status(StatusCode.ERROR, "failed"))
        span.end(ended)

    def _tell(self, run: str, fact: FeedFact) -> None:
        self._count(fact)
        if fact.what == "run" and fact.event == "completed":
            self._count_kept(run, fact.at)
        fold = self._folds.setdefault(run, SpanFold(run))
        for step in fold.steps(fact):
            self._step(run, step)

    def _count(self, fact: FeedFact) -> None:
        if fact.what in ("checkpoint", "recovery"):
            self._checkpoints.add(1, {"trigger": str(fact.attributes["trigger"])})
            self._bytes.add(int(fact.attributes["stored_bytes"]))
            if fact.what == "recovery":
                self._recoveries.add(1)
        elif fact.what == "call" and fact.event != "began":
            self._calls.add(1, {"kind": str(fact.attributes["kind"]), "outcome": fact.event})
            if fact.duration_s is not None:
                self._durations.record(fact.duration_s, {"kind": str(fact.attributes["kind"])})
        elif fact.what == "run" and fact.event == "resumed":
            self._resumes.add(1)

    def _count_kept(self, run: str, completed: datetime) -> None:
        try:
            stood = self._hf.internals.present_of(run)
            kept = kept_at(completed, stood.notes, stood.calls)
        except NotFound:
            return  # deleted meanwhile
        if kept:
            self._kept.add(len(kept))
            self._saved.add(sum(kept))

    def _step(self, run: str, step: SpanStep) -> None:
        """Start or end one span; one whose parent was ended or never seen hangs on the trace of its run."""
        if not step.starts:
            span = self._spans.pop((run, step.key), None)
            if span is not None:
                if step.error is not None:
                    span.set_status(Status(StatusCode.ERROR, step.error))
                span.end(_ns(step.at))
            return
        parent = self._spans.get((run, step.parent or ""))
        around = trace.set_span_in_context(parent or NonRecordingSpan(trace_of(run)))
        attributes = {f"holdfast.{name}": value for name, value in step.attributes.items()}
        if step.name.startswith("invoke_"):
            attributes["gen_ai.operation.name"] = step.name.partition(" ")[0]
        self._spans[run, step.key] = self._tracer.start_span(
            step.name, context=around, kind=SpanKind.INTERNAL, attributes=attributes, start_time=_ns(step.at)
        )


def trace_of(run: str) -> SpanContext:
    """Return the trace of a run: the same for every process and observer, because it follows from the run's id."""
    digest = blake3(run.encode(), derive_key_context="holdfast 2026 trace of a run").digest()
    ids: dict[str, Any] = {
        "trace_id": int.from_bytes(digest[:16], "big"),
        "span_id": int.from_bytes(digest[16:24], "big"),
    }
    return SpanContext(**ids, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
