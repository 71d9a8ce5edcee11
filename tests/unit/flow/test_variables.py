"""Facts as environment variables: which a command uses, and that a value is never more than data."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.flow.load import flow_from
from holdfast.flow.names import everywhere, known_names
from holdfast.flow.shell_text import rewritten, warnings_in
from holdfast.flow.template import TemplateError
from holdfast.flow.variables import Variables, given_facts, variable_of, variables_in

FLOW = flow_from(
    {
        "flow": "f",
        "params": {"n": 1, "log_file": "x", "a": {}, "a-b": 2},
        "phases": {"plan": "true", "1-first-part": {"tasks": {"t": "true"}}, "plan_b": "true"},
    }
)
NAMES = Variables(everywhere(known_names(FLOW), "plan"))


@pytest.mark.parametrize(
    ("variable", "name", "below", "is_file"),
    [
        ("FAILURE", "failure", "", False),
        ("PARAMS_N", "params.n", "", False),
        ("PHASES_PLAN_SUMMARY", "phases.plan.summary", "", False),
        ("PHASES_PLAN_B_SUMMARY", "phases.plan_b.summary", "", False),
        ("PHASES_1_FIRST_PART_TASKS_T_OUTPUT", "phases.1-first-part.tasks.t.output", "", False),
        ("PHASES_PLAN_RESULT_FILES_0", "phases.plan.result", "FILES_0", False),
        ("PHASES_PLAN_RESULT_FILE", "phases.plan.result", "", True),
        ("PHASES_PLAN_RESULT_X_FILE", "phases.plan.result", "X", True),
        ("PARAMS_LOG_FILE", "params.log_file", "", False),
        ("PARAMS_LOG_FILE_FILE", "params.log_file", "", True),
        ("PARAMS_A_B", "params.a-b", "", False),
        ("PARAMS_A_C", "params.a", "C", False),
        ("GATE_STDOUT_FILE", "gate.stdout", "", True),
        ("BUDGET_TOKENS_LEFT", "budget.tokens.left", "", False),
    ],
)
def test_a_variable_finds_its_fact(variable, name, below, is_file):
    fact = NAMES.find(f"HOLDFAST_{variable}")
    assert (fact.name, fact.below, fact.is_file) == (name, below, is_file)
    assert is_file or below or variable_of(name) == fact.variable


@pytest.mark.parametrize("variable", ["HOLDFAST_RUN", "HOLDFAST_KEY", "HOLDFAST_STORE", "HOLDFAST_PHASES_NO_SUMMARY"])
def test_what_is_no_fact_is_none(variable):
    assert NAMES.find(variable) is None


def test_the_facts_of_a_command_are_found_wherever_they_stand_in_it():
    text = 'x "$HOLDFAST_FAILURE" ${HOLDFAST_PARAMS_N:-1} $(printenv HOLDFAST_INPUT) MYHOLDFAST_FAILURE $HOLDFAST_TASK'
    assert NAMES.names_in(text) == ["failure", "params.n", "input"]
    assert NAMES.names_in(["sh", "-c", 'echo "$HOLDFAST_FAILURE"', "{params.n}"]) == ["failure", "params.n"]
    assert variables_in("HOLDFAST_ HOLDFAST_X_ holdfast_x") == ["HOLDFAST_X"]


def test_a_file_is_there_while_the_command_runs_and_gone_afterwards(tmp_path):
    big = "é" * 200_000
    with given_facts('cat "$HOLDFAST_FAILURE_FILE"', NAMES, lambda _: big, ["input"]) as env:
        assert sorted(env) == ["HOLDFAST_FAILURE_FILE", "HOLDFAST_INPUT_FILE"]
        done = subprocess.run(["sh", "-c", 'cat "$HOLDFAST_FAILURE_FILE"'], env=env, capture_output=True, check=True)
        assert done.stdout.decode() == big
    assert subprocess.run(["ls", env["HOLDFAST_FAILURE_FILE"]], capture_output=True, check=False).returncode != 0


def test_a_fact_that_is_too_large_for_a_variable_says_which_one_to_use():
    with (
        pytest.raises(TemplateError, match=r'"\$HOLDFAST_FAILURE_FILE"'),
        given_facts('echo "$HOLDFAST_FAILURE"', NAMES, lambda _: "x" * 200_000),
    ):
        pass


def test_data_is_gone_into_by_the_spelling_of_its_keys():
    data = {"files": [{"path-name": "a"}], "Left": 3}
    command = "$HOLDFAST_PHASES_PLAN_RESULT_FILES_0_PATH_NAME $HOLDFAST_PHASES_PLAN_RESULT_LEFT"
    with given_facts(command, NAMES, lambda _: data) as env:
        assert list(env.values()) == ["a", "3"]


@settings(max_examples=40, deadline=None)
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_a_value_is_only_ever_data(value):
    """Proves F4."""
    command = 'printf "%s." "$HOLDFAST_FAILURE"'
    with given_facts(command, NAMES, lambda _: value) as env:
        done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, check=True)
    assert done.stdout.decode() == f"{value}."


ROOTS = everywhere(known_names(FLOW), "plan")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fix {failure} now", 'fix "$HOLDFAST_FAILURE" now'),
        ('fix "why: {failure}!"', 'fix "why: ${HOLDFAST_FAILURE}!"'),
        ("fix 'why: {failure}!'", "fix 'why: '\"$HOLDFAST_FAILURE\"'!'"),
        ("fix {failure:raw}", 'fix "$HOLDFAST_FAILURE"'),
        ("sh -c 'fix {failure}'", "sh -c 'fix \"$HOLDFAST_FAILURE\"'"),
        ('sh -c "fix {failure}"', 'sh -c "fix \\"\\$HOLDFAST_FAILURE\\""'),
        ("cat <<EOF\n{failure}\nEOF\necho {input}", 'cat <<EOF\n${HOLDFAST_FAILURE}\nEOF\necho "$HOLDFAST_INPUT"'),
        ("x # it's\ny {failure}", 'x # it\'s\ny "$HOLDFAST_FAILURE"'),
        ('x "$(y {phases.plan.summary})"', 'x "$(y "$HOLDFAST_PHASES_PLAN_SUMMARY")"'),
        ("awk '{print $1}' ${failure} { failure } {other}", "awk '{print $1}' ${failure} { failure } {other}"),
    ],
)
def test_a_command_of_templates_is_rewritten_with_variables(old, new):
    assert rewritten(old, ROOTS) == new
    assert not warnings_in(new)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rm $HOLDFAST_INPUT", "is not quoted"),
        ("rm x${HOLDFAST_INPUT}y", "is not quoted"),
        ('rm "$(echo $HOLDFAST_INPUT)"', "is not quoted"),
        ('sh -c "rm $HOLDFAST_INPUT"', "run as code"),
        ("python3 -c \"print('$HOLDFAST_INPUT')\"", "run as code"),
        ('eval "$HOLDFAST_INPUT"', "run as code"),
    ],
)
def test_a_variable_that_is_not_safe_where_it_stands_is_warned_about(command, said):
    assert [said in warning for warning in warnings_in(command)] == [True]


@pytest.mark.parametrize(
    "command",
    ['rm "$HOLDFAST_INPUT"', "x=$HOLDFAST_INPUT; y", "echo '$HOLDFAST_INPUT'", "# $HOLDFAST_INPUT", "echo $HOME"],
)
def test_what_is_safe_is_not_warned_about(command):
    assert warnings_in(command) == []


HOSTILE = "-x; touch pwned $(touch pwned) `touch pwned` ' \" && touch pwned\n*"


def test_no_action_of_a_flow_makes_code_of_a_value(bench):
    """Proves F4: commands, agents, gates, fix and replan are given what a model wrote."""
    keep = 'printf %s "$HOLDFAST_PARAMS_X"'
    flow = {
        "flow": "f",
        "params": {"x": HOSTILE},
        "agents": {"text": 'printf %s "$HOLDFAST_INPUT" > agent', "argv": ["printf", "%s", "{input}"]},
        "phases": {
            "shell": f"{keep} > shell",
            "agent": {"agent": "text", "input": "{params.x}"},
            "list": {"agent": "argv", "input": "x{params.x}"},
            "gated": {
                "run": "true",
                "gates": [f"{keep} >&2; test -e fixed"],
                "fix": 'printf %s "$HOLDFAST_GATE_STDERR" > fix; printf %s "$HOLDFAST_FAILURE" > failure; touch fixed',
            },
            "planned": {
                "run": "test -e planned",
                "replan": {"run": ["sh", "-c", 'touch planned; printf %s "$2" > replan', "_", "--", "{params.x}"]},
            },
        },
    }
    result = bench.run(flow)
    assert result.status == "completed"
    there = {path.name: path.read_text() for path in bench.workspace.iterdir()}
    assert [there[name] for name in ("shell", "agent", "fix", "replan")] == [HOSTILE] * 4
    assert HOSTILE in there["failure"]
    assert result.results["list"] == f"x{HOSTILE}"
    assert "pwned" not in there


def test_an_option_out_of_a_value_fails_the_task_and_is_not_tried_again(bench):
    """Proves F4."""
    flow = {
        "flow": "f",
        "params": {"x": "--help"},
        "phases": {"a": {"run": ["ls", "{params.x}"], "retries": 3, "on_failure": "abort"}},
    }
    result = bench.run(flow)
    assert result.status == "failed"
    assert "put '--' before it" in result.detail
    assert not bench.kinds("task_retry")


def test_large_results_reach_a_command_in_a_file(bench):
    flow = {
        "flow": "f",
        "phases": {
            "big": {"call": "m:big"},
            "use": 'wc -c < "$HOLDFAST_PHASES_BIG_RESULT_FILE"; printf %s "$HOLDFAST_PHASES_BIG_RESULT_FILE" > where',
        },
    }
    result = bench.run(flow, functions={"m:big": lambda _: "x" * 300_000})
    assert result.results["use"] == 300_000
    assert not (bench.workspace / (bench.workspace / "where").read_text()).exists()
