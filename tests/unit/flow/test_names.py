"""The names of templates and conditions: those that are documented are those that there are."""

import re

from holdfast.flow.load import flow_from
from holdfast.flow.names import ANY, GATE_FAILURE, NAME_WORDS, TASK_FACTS, VARIABLE_WORDS, find, known_names, leaves

FLOW = flow_from({"flow": "f", "subject": {"id": 1}, "params": {"p": 1}, "phases": {"a": "true"}})
ONLY_SOMEWHERE = {"input": None, "result": ANY, "output": None, "tasks": {"a": TASK_FACTS}, **GATE_FAILURE}


def test_every_name_is_documented_and_every_documented_name_is_there():
    tree = {**known_names(FLOW), **ONLY_SOMEWHERE}
    documented = {
        re.sub(r"^params\.NAME", "params.p", re.sub(r"^budget\.NAME", "budget.tokens", name)).replace("NAME", "a")
        for name in NAME_WORDS
    } - {"subject.FIELD"}
    for name in documented:
        find(tree, name)
    there = {re.sub(r"^budget\.\w+", "budget.tokens", name) for name in leaves(tree)}
    missing = {name for name in there - documented if not name.startswith(("subject.", "phases.a.tasks."))}
    assert missing == set()
    assert set(NAME_WORDS["subject.FIELD"].split(", ")) == set(tree["subject"])


def test_commands_have_the_variables_that_are_documented_and_the_number_of_the_try(bench):
    run = "env | grep ^HOLDFAST_ | cut -d= -f1 | sort; test $HOLDFAST_ATTEMPT = 2"
    result = bench.run({"flow": "f", "phases": {"a": {"run": run, "retries": 1, "backoff": 0}}})
    assert result.status == "completed"
    assert result.results["a"].split() == sorted(VARIABLE_WORDS)


def test_a_replan_has_no_gate(bench):
    flow = {
        "flow": "f",
        "phases": {
            "a": {"run": "false", "replan": 'echo "$HOLDFAST_FAILURE" $HOLDFAST_ATTEMPT', "on_failure": "abort"}
        },
    }
    assert bench.run(flow).status == "failed"
    assert [event.text for event in bench.events if event.kind == "replan"]
