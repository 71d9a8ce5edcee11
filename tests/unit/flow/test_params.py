"""Parameters that are kept out of the store have to be given again; no other value takes their place."""

import pytest

from holdfast.errors import FlowInvalid
from holdfast.flow.advance import advance
from holdfast.flow.load import flow_from
from holdfast.flow.runner import preview

KEY = "AKIAIOSFODNN7EXAMPLE"


def flow(bench, param):
    phases = {"ask": {"approve": "ok?"}, "one": bench.say("using $HOLDFAST_PARAMS_KEY")}
    return {"flow": "p", "params": {"key": param}, "phases": phases}


@pytest.mark.parametrize("param", ["none", None, {"default": ""}, {"description": "a key"}])
def test_a_parameter_that_was_kept_out_of_the_store_is_asked_for(bench, param):
    """Proves E7."""
    data = flow(bench, param)
    assert bench.run(data, params={"key": KEY}).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "approve")
        with pytest.raises(FlowInvalid, match="--param key=") as refused:
            preview(hf, flow_from(data))
        with pytest.raises(FlowInvalid, match="--param key="):
            advance(hf, "p")
    assert "kept out of the store" in str(refused.value)
    with pytest.raises(FlowInvalid, match="kept out of the store"):
        bench.run(data)
    assert bench.run(data, params={"key": KEY}).status == "completed"
    assert bench.said == [f"using {KEY}"]


def test_a_secret_default_of_the_file_is_not_asked_for(bench):
    data = flow(bench, KEY)
    assert bench.run(data).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    assert (bench.run(data).status, bench.said) == ("completed", [f"using {KEY}"])
