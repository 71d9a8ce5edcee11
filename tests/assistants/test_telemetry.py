"""OpenTelemetry: spans and metrics of runs, read back through in-memory exporters of its own SDK."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast.telemetry.facts import FeedFact
from holdfast.telemetry.observer import Observer, trace_of
from holdfast.telemetry.spans import SpanFold

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
KILLED = """
import os, signal
import holdfast
with holdfast.open() as store, store.run("work") as run:
    with run.phase("plan"):
        run.step("read", lambda: "a secret result")
    with run.phase("build"):
        run.step("compile", lambda: 1)
        os.kill(os.getpid(), signal.SIGKILL)
"""
RESUMED = """
import holdfast
with holdfast.open() as store, store.run("work") as run:
    with run.phase("plan"):
        run.step("read", lambda: "a secret result")
    with run.phase("build"):
        run.step("compile", lambda: 1)
        run.step("link", lambda: 2)
    run.complete()
"""


@pytest.fixture
def otel():
    """Providers whose spans and metrics stay in memory."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider(metric_readers=[reader])
    yield {"tracer_provider": tracers, "meter_provider": meters}, spans, reader
    tracers.shutdown()
    meters.shutdown()


def span_steps(run, facts):
    fold = SpanFold(run)
    return [*(step for fact in facts for step in fold.steps(fact)), *fold.end()]


def figures(reader):
    data = reader.get_metrics_data()
    found = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = sum(
                    point.value if hasattr(point, "value") else point.count for point in metric.data.data_points
                )
    return found


def test_a_killed_and_resumed_run_is_one_trace(project, otel):
    """Proves X9."""
    providers, exported, reader = otel
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -signal.SIGKILL
    with holdfast.open() as store:
        first = Observer(store, **providers)
        first.export()
        cursor = first.cursor
        first.close()
    subprocess.run([sys.executable, "-c", RESUMED], check=True)
    with holdfast.open() as store:
        Observer(store, after=cursor, **providers).close()
    spans = exported.get_finished_spans()
    assert {span.context.trace_id for span in spans} == {trace_of("work").trace_id}
    runs = [span for span in spans if span.name == "invoke_workflow work"]
    assert len(runs) == 2
    calls = [(span.attributes["holdfast.path"], span) for span in spans if span.name == "holdfast.call"]
    assert [path for path, _ in calls] == ["read", "compile", "link"]
    by_id = {span.context.span_id: span for span in spans}
    link = dict(calls)["link"]
    assert by_id[link.parent.span_id].attributes["holdfast.name"] == "build"
    assert by_id[by_id[link.parent.span_id].parent.span_id] is runs[1]
    told = figures(reader)
    assert told["holdfast.calls"] == 3
    assert told["holdfast.checkpoints"] == sum(span.name == "holdfast.checkpoint" for span in spans)
    assert told["holdfast.resumes"] == 1


def test_an_observer_that_sees_it_all_at_once_marks_the_killed_life_as_interrupted(project, otel):
    providers, exported, _ = otel
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    subprocess.run([sys.executable, "-c", RESUMED], check=True)
    with holdfast.open() as store:
        Observer(store, **providers).close()
    runs = [span for span in exported.get_finished_spans() if span.name == "invoke_workflow work"]
    assert [(span.status.description, span.attributes.get("holdfast.resumed")) for span in runs] == [
        ("interrupted", None),
        (None, 1),
    ]
    assert runs[0].end_time <= runs[1].start_time


def _telling(store):
    with store.run("work") as run:
        run.step("one", lambda: "content-result")
        run.step("a name that is a whole content-sentence", lambda: 1)
        run.checkpoint(reason="content-reason", state={"content-key": "content-value"}, label="content-label")
        raise RuntimeError("content-error")


def test_nothing_but_ids_is_told(project, otel):
    providers, exported, _ = otel
    with holdfast.open() as store:
        with pytest.raises(RuntimeError):
            _telling(store)
        Observer(store, **providers).close()
    spans = exported.get_finished_spans()
    assert len(spans) > 3
    told = json.dumps([json.loads(span.to_json()) for span in spans])
    assert "content-" not in told
    assert any(span.status.description == "failed" for span in spans)


def test_a_thread_follows_while_a_run_moves(project, otel):
    providers, exported, reader = otel
    with holdfast.open() as store:
        with Observer(store, "work", **providers) as observer, store.run("work") as run:
            for number in range(3):
                run.step(f"step-{number}", lambda: 1)
        assert observer.failure is None
    assert figures(reader)["holdfast.calls"] == 3
    assert all(span.end_time is not None for span in exported.get_finished_spans())


def test_a_recovery_is_a_span_and_is_counted(project, otel):
    providers, exported, reader = otel
    with holdfast.open() as store:
        run = store.run("work")
        run.checkpoint(state={"n": 1})
        run.checkpoint(state={"n": 2})
        assert store.recover("work@1").success
        Observer(store, **providers).close()
    assert "holdfast.recover" in {span.name for span in exported.get_finished_spans()}
    assert figures(reader)["holdfast.recoveries"] >= 1


def test_nothing_of_it_is_loaded_by_the_program_itself(project):
    code = (
        "import sys, holdfast\n"
        "with holdfast.open() as store, store.run('r') as run:\n    run.step('a', lambda: 1)\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or 'telemetry' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def _spend(run, tokens):
    run.budget.spend(tokens=tokens)
    return "done"


def _first_process():
    with holdfast.open() as store, store.run("work") as run:
        run.step("plan", lambda: _spend(run, 100))
        run.step("build", lambda: _spend(run, 20))
        with pytest.raises(RuntimeError):
            run.step("check", lambda: _fail(run))
        raise RuntimeError("the process ends")


def _fail(run):
    run.budget.spend(tokens=7)
    raise RuntimeError("it is not whole")


def test_tokens_of_kept_results_are_counted_when_a_resumed_run_is_complete(project, otel):
    """Proves X9: what was spent by an earlier process, and not again; a call that failed is not kept."""
    providers, _, reader = otel
    with pytest.raises(RuntimeError, match="process ends"):
        _first_process()
    with holdfast.open() as store:
        first = Observer(store, **providers)
        first.close()
        assert "holdfast.tokens.saved" not in figures(reader)
        with store.run("work") as run:
            run.step("plan", lambda: _spend(run, 100))
            run.step("build", lambda: _spend(run, 20))
            run.step("check", lambda: _spend(run, 7))
            run.step("publish", lambda: _spend(run, 3))
            run.complete()
        Observer(store, after=first.cursor, **providers).close()
    told = figures(reader)
    assert told["holdfast.calls.kept"] == 2
    assert told["holdfast.tokens.saved"] == 120


def test_a_run_that_nobody_resumed_saved_nothing(project, otel):
    providers, _, reader = otel
    with holdfast.open() as store:
        with store.run("work") as run:
            run.step("plan", lambda: _spend(run, 100))
            run.complete()
        Observer(store, **providers).close()
    assert "holdfast.calls.kept" not in figures(reader)


def test_how_long_checkpoints_took_is_recorded_while_an_observer_hears(project, otel):
    providers, _, reader = otel
    with holdfast.open() as store:
        run = store.run("work")
        run.checkpoint(state=1)
        with Observer(store, "work", **providers):
            run.checkpoint(state=2)
            run.checkpoint(state=3)
            store.run("other").checkpoint(state=1)
        run.checkpoint(state=4)
    assert figures(reader)["holdfast.checkpoint.duration"] == 2


def test_a_failed_checkpoint_is_counted_and_its_run_is_unprotected_until_one_is_stored(project, otel):
    providers, _, reader = otel
    with holdfast.open() as store:
        run = store.run("work")
        with Observer(store, **providers) as observer:
            run.checkpoint(state=1)
            assert "holdfast.unprotected" not in figures(reader)
            for _ in range(2):
                with pytest.raises(holdfast.ValueRefused):
                    run.checkpoint(state=object())
            assert (figures(reader)["holdfast.checkpoint.failures"], points(reader)) == (2, {"work": 1})
            run.checkpoint(state=2)
            assert (figures(reader)["holdfast.checkpoint.failures"], points(reader)) == (2, {"work": 0})
        assert observer.failure is None


def points(reader):
    """Return `holdfast.unprotected` of each run."""
    data = reader.get_metrics_data()
    metrics = [metric for one in data.resource_metrics[0].scope_metrics for metric in one.metrics]
    found = next(metric for metric in metrics if metric.name == "holdfast.unprotected")
    return {point.attributes["run"]: point.value for point in found.data.data_points}


def _lose(store, run):
    run.step("a", lambda: 1)
    store.store.leases.end(store.store.leases.running("work"))
    store.store.leases.take("work", owner="somebody else", ttl_s=60)
    run.step("b", lambda: 2)


def test_a_lease_that_went_to_another_owner_is_counted_once(project, otel):
    providers, _, reader = otel
    with (
        holdfast.open() as store,
        holdfast.open() as other,
        Observer(store, **providers),
        pytest.raises(holdfast.LeaseLost),
        store.run("work") as run,
    ):
        _lose(other, run)
    assert figures(reader)["holdfast.lease.lost"] == 1


def test_restores_and_verifications_of_this_process_are_spans(project, otel):
    """Proves X9: a restore is in the trace of its run; a verification is of the whole store."""
    providers, exported, _ = otel
    work = project / "work"
    work.mkdir()
    (work / "notes.txt").write_text("before")
    with holdfast.open() as store:
        run = store.run("work", workspace=work)
        saved = run.checkpoint()
        with Observer(store, **providers):
            (work / "notes.txt").unlink()
            assert run.workspace.restore(run.workspace.plan(saved)).verified
            (work / "notes.txt").unlink()
            assert store.recover(saved.id, workspace=work).success
            assert store.verify().sound
            assert not store.verify("cp_" + "0" * 32).sound
    spans = exported.get_finished_spans()
    restores = [span for span in spans if span.name == "holdfast.restore"]
    assert [(span.context.trace_id, span.status.description) for span in restores] == [
        (trace_of("work").trace_id, None)
    ] * 2
    checks = [span for span in spans if span.name == "holdfast.verify"]
    assert [span.status.description for span in checks] == [None, "failed"]
    assert all(span.start_time <= span.end_time for span in [*restores, *checks])
    assert (work / "notes.txt").read_text() == "before"
    assert "notes.txt" not in json.dumps([json.loads(span.to_json()) for span in spans])


def test_nothing_is_heard_after_the_block(project, otel):
    providers, exported, _ = otel
    with holdfast.open() as store:
        with Observer(store, **providers):
            pass
        store.verify()
        assert store.internals.listeners == []
    assert exported.get_finished_spans() == ()


# The source of spans: a pure function of facts


def fact(what, event, second, **given):
    return FeedFact(what=what, event=event, at=NOON + timedelta(seconds=second), **given)


def test_every_span_that_is_started_is_ended_once_and_never_before_its_start():
    facts = [
        fact("checkpoint", "ended", 0, name="cp", attributes={"trigger": "manual"}),
        fact("run", "began", 1),
        fact("phase", "began", 2, name="p"),
        fact("call", "began", 3, name="c", phase="p"),
        fact("run", "resumed", 9),
        fact("call", "began", 10, name="c"),
        fact("call", "began", 11, name="c"),
        fact("call", "failed", 12, name="c"),
        fact("phase", "ended", 13, name="never began"),
        fact("run", "failed", 14),
        fact("run", "ended", 15),
        fact("call", "ended", 16, name="late", duration_s=2.0),
    ]
    started, ended = {}, 0
    for step in span_steps("r", facts):
        if step.starts:
            assert step.key not in started
            assert step.parent is None or step.parent in started
            started[step.key] = step.at
        else:
            assert step.at >= started.pop(step.key)
            ended += 1
    assert started == {}
    assert ended == 8


def test_an_agents_call_is_named_as_the_conventions_have_it():
    steps = span_steps("r", [fact("call", "ended", 1, name="coder", attributes={"kind": "agent", "attempts": 1})])
    assert [step.name for step in steps if step.starts] == ["invoke_agent coder"]
