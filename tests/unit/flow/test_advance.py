"""Runs that are resumed from the store alone."""

import threading

import pytest

from holdfast.errors import FlowInvalid, UsageError
from holdfast.flow.advance import advance, stored_flow


def test_a_run_is_carried_on_from_the_store_until_it_waits_or_ends(bench):
    flow = {
        "flow": "p",
        "params": {"x": "1"},
        "phases": {"one": bench.say("one"), "ask": {"approve": "ok?"}, "two": bench.say("two-$HOLDFAST_PARAMS_X")},
    }
    assert bench.run(flow, params={"x": "7"}).status == "waiting"
    with bench.open() as hf:
        assert advance(hf, "p", workspace=bench.workspace).status == "waiting"
        hf.control.answer("p", "approve")
        assert advance(hf, "p", workspace=bench.workspace).status == "completed"
        assert advance(hf, "p", workspace=bench.workspace).status == "completed"
    assert bench.said == ["one", "two-7"]


def test_a_run_is_carried_on_elsewhere_with_its_files(bench):
    """Proves X1."""
    flow = {
        "flow": "p",
        "phases": {
            "one": "mkdir sub; echo hi > sub/a; chmod +x sub/a",
            "ask": {"approve": "ok?"},
            "two": "cat sub/a; test -x sub/a",
        },
    }
    bench.run(flow)
    with bench.open() as hf:
        hf.control.answer("p", "approve")
        result = advance(hf, "p", workspace=bench.folder / "other" / "place")
    assert (result.status, result.results["two"]) == ("completed", "hi")


def test_a_run_that_another_process_moves_is_left_to_it(bench):
    entered, leave = threading.Event(), threading.Event()

    def hold(call):
        entered.set()
        leave.wait(20)

    flow = {"flow": "p", "phases": {"one": {"call": "my:hold"}}}
    first = threading.Thread(target=bench.run, args=(flow,), kwargs={"functions": {"my:hold": hold}})
    first.start()
    assert entered.wait(20)
    with bench.open() as hf:
        result = advance(hf, "p", workspace=bench.workspace, functions={"my:hold": hold})
    leave.set()
    first.join()
    assert result.status == "elsewhere"


def test_functions_of_a_stored_flow_are_only_those_that_are_given(bench):
    flow = {"flow": "p", "phases": {"ask": {"approve": "ok?"}, "one": {"call": "os:getcwd"}}}
    bench.run(flow)
    with bench.open() as hf:
        with pytest.raises(FlowInvalid, match="not looked for"):
            advance(hf, "p")
        hf.control.answer("p", "approve")
        assert (
            advance(hf, "p", workspace=bench.workspace, functions={"os:getcwd": lambda _: "here"}).results["one"]
            == "here"
        )


def test_a_run_without_a_flow_cannot_be_carried_on(bench):
    with bench.open() as hf:
        hf.run("plain").checkpoint(state=1)
        with pytest.raises(UsageError, match="follows no flow"):
            advance(hf, "plain")


def test_the_flow_of_a_run_can_be_read_back(bench):
    flow = {"flow": "p", "params": {"x": 1}, "phases": {"one": "true"}}
    bench.run(flow, params={"x": 2})
    with bench.open() as hf:
        stored, params = stored_flow(hf, "p")
    assert (stored.name, list(stored.phases), params) == ("p", ["one"], {"x": 2})
