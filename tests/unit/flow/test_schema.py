import json
from pathlib import Path

import jsonschema
import pytest

from holdfast.errors import FlowInvalid
from holdfast.flow.load import flow_from, load_flow
from holdfast.flow.schema import flow_schema, schema_text
from holdfast.flow.text import read_text

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").rglob("*.yaml") if path.read_text().lstrip("# \n").find("phases:") >= 0
)
VALIDATOR = jsonschema.Draft202012Validator(flow_schema())

GOOD = [
    {"flow": "x", "phases": {"a": "run"}},
    {"flow": "x", "phases": [{"a": "run"}, {"b": {"run": "y", "timeout": "2h", "backoff": 0}}]},
    {
        "flow": "x",
        "params": {"a": None, "b": 5, "c": [1], "d": {"default": {"x": 1}, "description": "d"}},
        "phases": {"a": "x"},
    },
    {
        "flow": "x",
        "agents": {"c": "cmd $HOLDFAST_INPUT", "l": ["cmd", "{input}"], "s": {"script": ["a", {"output": 1}]}},
        "phases": {"a": {"agent": "c", "input": {"any": ["thing"]}}, "b": {"agent": "s"}},
    },
    {
        "flow": "x",
        "phases": {"a": {"tasks": [{"t": "x"}, {"u": {"run": "y", "needs": "t", "gates": "g", "fix": "f"}}]}},
    },
    {
        "flow": "x",
        "on_failure": "skip",
        "phases": {
            "a": {"run": "x", "approve": "ok?", "replan": "r", "next": "end", "on_failure": {"do": "retry", "limit": 3}}
        },
    },
    {
        "flow": "x",
        "phases": {
            "a": {
                "run": "x",
                "next": [{"to": "a", "when": "round < 3"}, "end"],
                "repeat": {"until": "true", "limit": 2},
            }
        },
    },
    {"flow": "x", "budget": {"time": 30, "other": {"turns": 3}}, "phases": {"a": {"approve": "ok?"}}},
]
BAD = [
    {"flow": "x"},
    {"flow": "x", "phases": {}},
    {"flow": "x", "phases": {"a": {"rnu": "x"}}},
    {"flow": "x", "phases": {"a b": "x"}},
    {"flow": "x", "phases": {"a": {"run": "x", "timeout": "2x"}}},
    {"flow": "x", "phases": {"a": {"run": "x", "retries": -1}}},
    {"flow": "x", "phases": {"a": {"run": "x", "on_failure": "explode"}}},
    {"flow": "x", "phases": {"a": {"tasks": {"t": {"run": 5}}}}},
    {"flow": "x y", "phases": {"a": "x"}},
]


def test_the_schema_is_up_to_date():
    """Run `python -c "from holdfast.flow.schema import *; print(schema_text(), end='')" > docs/flow.schema.json`."""
    assert (ROOT / "docs" / "flow.schema.json").read_text() == schema_text()


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text()))


@pytest.mark.parametrize("data", GOOD)
def test_what_the_reader_takes_the_schema_takes(data):
    flow_from(data)
    VALIDATOR.validate(data)


@pytest.mark.parametrize("data", BAD)
def test_shapes_that_the_reader_refuses_the_schema_refuses(data):
    with pytest.raises(FlowInvalid):
        flow_from(data)
    assert not VALIDATOR.is_valid(data)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_examples_are_flows_and_fit_the_schema(path):
    load_flow(path)
    VALIDATOR.validate(read_text(path.read_bytes(), path.name).data)
