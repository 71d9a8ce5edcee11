"""Flow files: small ones stay small, and everything wrong with one is said at once."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import FlowInvalid
from holdfast.flow.load import check_flow, flow_from, load_flow, parse_flow
from holdfast.flow.model import Agent, Flow, Phase, Task

SKETCH = """\
flow: add-login
subject: {issue: 42}
budget: {tokens: 200000, time: 2h, warn_at: 0.8}
phases:
  research:
    tasks:
      oauth:    {agent: researcher, run: "claude -p @prompts/oauth.md > notes/oauth.md"}
      security: {agent: reviewer,   run: "claude -p @prompts/security.md > notes/security.md"}
  implement:
    replan: {run: "claude -p @prompts/replan.md", limit: 2}
    tasks:
      code:
        agent: coder
        run: "claude -p @prompts/implement.md"
        gates: ["ruff check .", "mypy src", "pytest -q", "pytest -q tests/e2e"]
        fix: 'claude -p "Repair this: $HOLDFAST_FAILURE"'
        max_fixes: 3
  ship:
    approve: "Push to main?"
    tasks: {push: {run: git push, destructive: git_push}}
"""


def problems(text):
    with pytest.raises(FlowInvalid) as caught:
        parse_flow(text, "flow.yaml")
    return list(caught.value.problems)


def test_the_sketch_of_the_design_is_a_flow():
    flow = parse_flow(SKETCH)
    assert list(flow.phases) == ["research", "implement", "ship"]
    assert flow.budget.limits == {"tokens": 200000, "time": 7200.0}
    code = flow.phases["implement"].tasks["code"]
    assert [gate.run for gate in code.gates][2:] == ["pytest -q", "pytest -q tests/e2e"]
    assert (code.fix.run, code.max_fixes) == ('claude -p "Repair this: $HOLDFAST_FAILURE"', 3)
    assert flow.phases["ship"].approve.question == "Push to main?"


def test_a_plan_of_three_phases_is_five_lines():
    flow = parse_flow("flow: small\nphases:\n  research: claude -p research\n  build: make\n  ship: git push\n")
    assert {name: list(phase.work(name)) for name, phase in flow.phases.items()} == {
        "research": ["research"],
        "build": ["build"],
        "ship": ["ship"],
    }


def test_phases_and_tasks_may_be_lists_of_one_name_each():
    flow = parse_flow("flow: x\nphases:\n- a: one\n- b:\n    tasks:\n    - t: two\n    - u: {run: three, needs: t}\n")
    assert list(flow.phases) == ["a", "b"]
    assert flow.phases["b"].tasks["u"].needs == ["t"]


def test_json_is_as_good_as_yaml():
    assert parse_flow(json.dumps(msgspec.to_builtins(parse_flow(SKETCH)))) == parse_flow(SKETCH)


def test_the_same_flow_in_python():
    made = Flow(
        name="x",
        agents={"coder": Agent(run="code $HOLDFAST_INPUT")},
        phases={"a": Phase(tasks={"t": Task(agent="coder", input="do it"), "u": Task(run="u", needs=["t"])})},
    )
    assert check_flow(made) == flow_from(
        {
            "flow": "x",
            "agents": {"coder": "code $HOLDFAST_INPUT"},
            "phases": {"a": {"tasks": {"t": {"agent": "coder", "input": "do it"}, "u": {"run": "u", "needs": "t"}}}},
        }
    )


def test_all_problems_are_said_at_once_with_line_path_and_nearest_key():
    found = problems(
        "flow: x\n"
        "bugdet: {tokens: 5}\n"
        "budget: {time: 2x, warn_at: 3}\n"
        "agents: {coder: {run: 'x $HOLDFAST_INPUT', call: a.b}}\n"
        "phases:\n"
        "  one:\n"
        "    tasks:\n"
        "      a: {agent: codr, input: x, needs: [b, zz]}\n"
        "      b: {run: 'echo $HOLDFAST_TASKS_A_RESLT', needs: [a], timeout: -3}\n"
        "  two:\n"
        "    run: echo $HOLDFAST_PHASES_OEN_SUMMARY $HOLDFAST_PHASES_THREE_SUMMARY\n"
        "    retrys: 3\n"
        "    next: [{to: thre}]\n"
        "  three:\n"
    )
    assert found == [
        "line 2, bugdet: there is no 'bugdet' here; did you mean 'budget'?",
        "line 3, budget.time: '2x' is not a duration: write 30s, 5m, 2h or 1h30m",
        "line 3, budget.warn_at: Expected float <= 1.0 for 3",
        "line 4, agents.coder: an agent has one of run, call and script, not run and call",
        "line 4, agents.coder.call: 'a.b' is not a function: write module:function",
        "line 8, phases.one.tasks.a.needs[1]: there is no task 'zz'; known are b",
        "line 8, phases.one.tasks.a.needs: tasks need each other in a circle: a -> b -> a",
        "line 8, phases.one.tasks.a.agent: there is no agent 'codr'; did you mean 'coder'?",
        "line 9, phases.one.tasks.b.timeout: Expected float > 0.0 for -3",
        (
            "line 9, phases.one.tasks.b.run: there is no fact for $HOLDFAST_TASKS_A_RESLT; did you mean "
            "'HOLDFAST_TASKS_A_RESULT'?"
        ),
        (
            "line 11, phases.two.run: there is no fact for $HOLDFAST_PHASES_OEN_SUMMARY; did you mean "
            "'HOLDFAST_PHASES_ONE_SUMMARY'?"
        ),
        "line 12, phases.two.retrys: there is no 'retrys' here; did you mean 'retries'?",
        "line 13, phases.two.next[0]: there is no phase 'thre'; did you mean 'three'?",
        "line 14, phases.three: it has nothing to do: give it run, call, agent or tasks",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty; the least is"),
        ("[]", "this is a mapping"),
        ("flow: x", "'phases' is missing"),
        ("phases: {a: b}", "'flow' is missing"),
        ("flow: x\nphases: {}", "at least one phase"),
        ("flow: x\nphases: 3", "a mapping of names, not a number"),
        ("flow: x\nphases: [a, b]", "each item of this list is one name"),
        ("flow: x\nphases: [{a: b}, {a: c}]", "'a' is there twice"),
        ("flow: x y\nphases: {a: b}", "cannot be a name"),
        ("flow: x\nphases: {'a b': c}", "'a b' cannot be a name"),
        ("flow: x\nphases: {end: c}", "no phase can be called that"),
        ("flow: x\nstart: b\nphases: {a: c}", "there is no phase 'b'"),
        ("flow: x\nphases: {a: {run: b, tasks: {c: d}}}", "a phase with tasks has no run of its own"),
        ("flow: x\nphases: {a: {run: b, call: 'm:f'}}", "give run or call, not both"),
        ("flow: x\nphases: {a: {agent: coder}}", "declare it under agents, or give run"),
        ("flow: x\nteam: {members: {bob: coder}}\nphases: {a: {agent: bbo, run: x}}", "did you mean 'bob'?"),
        ("flow: x\nphases: {a: {run: b, fix: c}}", "there are no gates"),
        ("flow: x\nphases: {a: {run: b, gates: g, fix: c, max_fixes: 0}}", "a fix that may never run"),
        ("flow: x\nphases: {a: {run: 'x $HOLDFAST_INPUT'}}", "none is given: add input"),
        ("flow: x\nphases: {a: {run: x, cwd: ../y}}", "leads out of the workspace"),
        ("flow: x\nphases: {a: {run: x, artifacts: /etc/passwd}}", "leads out of the workspace"),
        ("flow: x\nphases: {a: {run: x, env: {A-B: y}}}", "cannot be the name of an environment variable"),
        ("flow: x\nphases: {a: {run: x, env: {A: 5}}}", "Expected str, got int"),
        ("flow: x\nphases: {a: {run: [echo, '${params}']}}", "is a variable of a shell"),
        ("flow: x\nphases: {a: {run: [awk, '{print $1}']}}", "write {{ for a plain brace"),
        ("flow: x\nphases: {a: {run: ['{run.id}', x]}}", "phases.a.run[0]: the program of a command is a plain name"),
        ("flow: x\nphases: {a: {run: []}}", "Expected array of length >= 1"),
        ("flow: x\nphases: {a: {run: [sleep, 5]}}", "put numbers and words like true in quotes"),
        ("flow: x\nphases: {a: 'echo $HOLDFAST_PHASES_B_SUMMARY', b: y}", "comes after 'a'"),
        ("flow: x\nphases: {a: {tasks: {t: x, u: 'echo $HOLDFAST_TASKS_T_RESULT'}}}", "add 't' to needs first"),
        ("flow: x\nphases: {a: {run: x, when: 'b ='}}", "'=' is not understood"),
        ("flow: x\nphases: {a: {run: x, when: 'nothing.there'}}", "there is no 'nothing.there'"),
        ("flow: x\nphases: {a: {run: x, on_failure: askk}}", "did you mean 'ask'?"),
        ("flow: x\nphases: {a: {run: x, next: [b, end]}, b: y}", "never reached"),
        ("flow: x\nphases: {a: {run: x, next: end}, b: y}", "no way leads here from 'a'"),
        ("flow: x\nphases: {a: {run: x, next: b}, b: {run: y, next: a}}", "this never ends: a -> b -> a"),
        ("flow: x\nphases: {a: {run: x, repeat: {until: 'true'}}}", "'limit' is missing"),
        ("flow: x\nsubject: {title: y}\nphases: {a: b}", "give an id or an issue"),
        ("flow: x\nagents: {a: {script: []}}\nphases: {a: b}", "at least one answer"),
        ("flow: x\nagents: {a: {run: [x, '{nope}']}}\nphases: {a: {agent: a}}", "agent a: there is no 'nope'"),
        ("flow: x\nphases: {a: {tasks: {t: {run: x, needs: t}}}}", "in a circle: t -> t"),
        ("flow: x\nphases: {a: 'echo {run.id}'}", 'Write\n    echo "$HOLDFAST_RUN_ID"\n'),
        ("flow: x\nphases: {a: {run: x, summary: '{reslt}'}}", "did you mean 'result'?"),
        ("flow: x\nphases: {a: 'echo $HOLDFAST_PHASES'}", "phases.a.run: {phases} is every phase at once: name one"),
        ("flow: x\nphases: {a: {run: x, when: phases}}", "name one, as phases.a.summary"),
        ("flow: x\nphases: {a: 'echo $HOLDFAST_TASKS_A_OUTPUT'}", "that is this task itself"),
        ("flow: x\nphases: {a: {tasks: {t: 'echo $HOLDFAST_TASKS_T_OUTPUT', u: x}}}", "that is this task itself"),
        (
            "flow: x\nphases: {a: {tasks: {t: 'echo $HOLDFAST_TASKS_U_OUTPUT', u: {run: x, needs: t}}}}",
            "'u' needs 't', so",
        ),
        ("flow: x\nphases: {a: {when: tasks.t.output, tasks: {t: x, u: y}}}", "before the phase begins"),
        ("flow: x\nphases:\n  a: {rnu: x}\n  a: y\n  b: {rnu: z}", "line 4, phases.a: 'a' is there twice"),
        ("flow: x\nphases:\n  a: y\n  a: {rnu: x}\n  b: {rnu: z}", "line 5, phases.b.rnu: there is no 'rnu'"),
        ("flow: x\nphases: {ünïcode: y}", "phases.ünïcode: 'ünïcode' cannot be a name: a-z, A-Z, 0-9"),
        (f"flow: x\nphases: {{{'n' * 90}: y}}", f"'{'n' * 57}...' cannot be a name"),
        ("flow: x\nagents: {f: {script: [a, {outptu: x}]}}\nphases: {a: y}", "agents.f.script[1].outptu: there is no"),
        ("flow: x\nagents: {f: {script: [{usage: lots}]}}\nphases: {a: y}", "a mapping of numbers, not 'lots'"),
        ("flow: x\nagents: {f: {script: [{usage: {input: -1}}]}}\nphases: {a: y}", "a number from 0, not '-1'"),
        ("flow: x\nagents: {f: {script: [{usage: {inptu: 1}}]}}\nphases: {a: y}", "did you mean 'input'?"),
        ("flow: x\nagents: {f: {script: [{files: {../x: y}}]}}\nphases: {a: y}", "leads out of the workspace"),
        ("flow: x\nparams: {n: 1, N: 2}\nphases: {a: 'echo $HOLDFAST_PARAMS_N'}", "could be params.N and params.n"),
        ("flow: x\nphases: {a: {run: x, gates: 'echo $HOLDFAST_INPUT'}}", "there is no 'input'"),
        ("flow: x\nphases: {a: 'echo \"$HOLDFAST_FAILURE\"'}", "there is no 'failure'"),
    ],
)
def test_what_does_not_fit_together_is_said(text, said):
    assert any(said in problem for problem in problems(text)), problems(text)


def test_a_flow_with_a_hundred_problems_says_how_many_more_there_are():
    found = problems("flow: x\nphases:\n" + "".join(f"  p{n}: {{rnu: x}}\n" for n in range(100)))
    assert len(found) == 51
    assert found[-1] == "and 50 more"


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(FlowInvalid, match="cannot be read"):
        load_flow(tmp_path / "no.yaml")
    with pytest.raises(FlowInvalid, match="not a regular file"):
        load_flow(tmp_path)


def test_a_large_flow_is_read_without_ado():
    text = "flow: big\nphases:\n  p:\n    tasks:\n" + "".join(
        f"      t{n}: {{run: 'echo $HOLDFAST_TASKS_T{n - 1}_RESULT', needs: t{n - 1}}}\n" if n else "      t0: echo 0\n"
        for n in range(1000)
    )
    assert len(parse_flow(text).phases["p"].tasks) == 1000


def trees():
    keys = st.sampled_from(
        [
            "flow",
            "phases",
            "run",
            "tasks",
            "agents",
            "gates",
            "needs",
            "next",
            "when",
            "budget",
            "fix",
            "input",
            "a",
            "b",
        ]
    )
    leaves = st.sampled_from(["x", "a", "{a}", "echo {params.x}", 1, 0.5, None, True, "2h", "a == b", "end"])
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5), max_leaves=25
    )


@given(trees(), trees())
def test_any_data_is_a_flow_or_refused_with_problems(phases, rest):
    data = {"flow": "x", "phases": phases, **(rest if isinstance(rest, dict) else {})}
    try:
        flow_from(data)
    except FlowInvalid as error:
        assert error.problems  # noqa: PT017 - either way is fine, but not without a reason


def test_thousands_of_wrong_names_are_told_without_comparing_each_with_all():
    tasks = {f"t{number}": {"run": "true", "needs": [f"u{number}"]} for number in range(1500)}
    with pytest.raises(FlowInvalid, match="1500 problems") as refused:
        flow_from({"flow": "f", "phases": {"p": {"tasks": tasks}}})
    assert "did you mean" not in str(refused.value)
