"""What resuming a flow will do with each phase is said before it is done, and it is what is done then."""

import pytest

from holdfast.errors import UsageError
from holdfast.flow.load import flow_from
from holdfast.flow.runner import preview


def lines(bench, data, **options):
    with bench.open() as hf:
        return preview(hf, flow_from(data), root=bench.workspace, **options).lines()


def foretold(bench, data):
    """Return what a preview says, and check that a changed flow says the same when it is resumed."""
    said = lines(bench, data)
    bench.run(data)
    (changed,) = [event.text for event in bench.events if event.kind == "flow_changed"]
    assert changed == "; ".join(said)
    return said


def test_a_run_that_was_never_begun_runs_all(bench):
    assert lines(bench, {"flow": "p", "phases": {"one": "true", "two": "true"}}) == [
        "one: new, it runs",
        "two: new, it runs",
    ]


@pytest.mark.parametrize(
    ("rule", "said"),
    [("ask", "two: unchanged, it failed, and on_failure decides"), ("abort", "two: unchanged, it runs again")],
)
def test_what_failed_and_what_never_ran_is_not_called_kept(bench, rule, said):
    flow = {"flow": "p", "on_failure": rule, "phases": {"one": "true", "two": "false", "three": "true"}}
    bench.run(flow)
    assert lines(bench, flow) == ["one: unchanged, its results are kept", said, "three: unchanged, it runs"]


def test_what_was_under_way_goes_on(bench):
    flow = {
        "flow": "p",
        "phases": {"one": {"tasks": {"a": "true", "b": {"run": "true", "approve": "b?", "needs": "a"}}}},
    }
    bench.run(flow)
    assert lines(bench, flow) == ["one: unchanged, it continues where it was"]


def test_a_phase_of_which_only_a_gate_changed_runs_only_its_gates(bench):
    def flow(*gates):
        return {"flow": "p", "phases": {"one": {"run": bench.say("work"), "gates": list(gates)}, "two": "true"}}

    bench.run(flow("true"))
    said = foretold(bench, flow("true", "test 1 = 1"))
    assert said == ["one: changed, only its gates run again (`gates` changed)", "two: unchanged, its results are kept"]
    assert foretold(bench, flow())[0] == "one: changed, its results are kept (`gates` changed)"
    assert bench.said == ["work"]


def test_a_changed_gate_of_work_that_was_never_done_runs_the_work(bench):
    def flow(gate):
        return {"flow": "p", "on_failure": "abort", "phases": {"one": {"run": "false", "gates": [gate]}, "two": "true"}}

    bench.run(flow("true"))
    said = foretold(bench, flow("test 1 = 1"))
    assert said == ["one: changed, it runs again (`gates` changed)", "two: unchanged, it runs"]


def test_each_task_of_a_changed_phase_is_told(bench):
    def flow(**more):
        tasks = {"a": "true", "b": {"run": "true", "gates": ["true"]}, "c": {"run": "false", "needs": "a"}, **more}
        return {"flow": "p", "on_failure": "abort", "phases": {"one": {"tasks": tasks}}}

    bench.run(flow(gone="true", never={"run": "true", "needs": "c"}))
    new = flow(d="true", b={"run": "true", "gates": ["test 1 = 1"]}, never={"run": "echo 1", "needs": "c"})
    assert foretold(bench, new) == [
        "one: changed, it runs again",
        "  a: unchanged, its results are kept",
        "  b: changed, only its gates run again (`gates` changed)",
        "  c: unchanged, it runs again",
        "  d: new, it runs",
        "  never: changed, it runs (`run` changed)",
        "  gone: no longer in the flow, its results stay in the record",
    ]


def test_a_changed_phase_that_never_ran_runs_and_one_that_is_gone_never_ran(bench):
    flow = {"flow": "p", "phases": {"one": {"approve": "ok?"}, "two": "true", "three": "true"}}
    bench.run(flow)
    new = {"flow": "p", "phases": {"one": {"approve": "ok?"}, "two": "echo 2"}}
    assert foretold(bench, new) == [
        "one: unchanged, it runs",
        "two: changed, it runs (`run` changed)",
        "three: no longer in the flow, it never ran",
    ]


def test_a_changed_condition_keeps_the_tasks(bench):
    def flow(when):
        return {"flow": "p", "phases": {"one": {"run": bench.say("x"), "when": when}}}

    bench.run(flow("1 == 1"))
    said = ["one: changed, its tasks are kept, its conditions are looked at again"]
    assert foretold(bench, flow("2 == 2")) == said
    assert bench.said == ["x"]


def test_a_change_that_was_not_carried_out_yet_is_still_told(bench):
    def flow(run):
        return {"flow": "p", "phases": {"one": "true", "ask": {"approve": "ok?", "run": run}, "two": run}}

    bench.run(flow("echo a"))
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    assert bench.run(flow("echo a")).status == "completed"
    assert bench.run(flow("echo b")).status == "waiting"
    assert lines(bench, flow("echo b")) == [
        "one: unchanged, its results are kept",
        "ask: unchanged, it runs again",
        "two: unchanged, it runs again",
    ]


def test_steps_of_every_process_are_known(bench):
    def flow(**gated):
        two = {"tasks": {"a": "true", "b": {"run": "true", **gated}}}
        return {"flow": "p", "phases": {"one": "true", "stop": {"run": "true", "approve": "go?"}, "two": two}}

    bench.run(flow(gates=["true"]))
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    assert bench.run(flow(gates=["true"])).status == "completed"
    assert foretold(bench, flow(gates=["test 1 = 1"]))[2] == "two: changed, only its gates run again"


def effects(word="a"):
    """Return a flow whose second phase takes effect outside."""
    ship = {"run": "echo shipped >> shipped.log", "effect": "ships it"}
    make = {"run": f"echo {word} > made.txt", "artifacts": "made.txt"}
    return {"flow": "p", "phases": {"make": make, "ship": ship, "tell": "true"}}


def test_an_effect_that_happens_again_is_said_before_and_when_it_does(bench):
    bench.run(effects())
    said = foretold(bench, effects("b"))
    assert [("ships it" in line) for line in said] == [False, True, False]
    (begun,) = [event for event in bench.events if event.kind == "task_started" and event.task == "ship"]
    assert "ships it" in begun.text


def test_work_that_runs_again_because_its_file_is_gone_is_not_called_kept(bench):
    bench.run(effects())
    (bench.workspace / "made.txt").unlink()
    with bench.open() as hf:
        wills = [one.will for one in preview(hf, flow_from(effects()), root=bench.workspace).phases]
    assert wills == ["again"] * 3
    changed = effects()
    changed["phases"]["tell"] = "true again"
    bench.run(changed)
    (last,) = [event for event in bench.events if event.kind == "flow_changed" and event.data]
    assert [one["will"] for one in last.data["phases"]] == ["again"] * 3


def test_a_preview_says_what_somebody_wants_to_run_again(bench):
    bench.run(effects())
    with bench.open() as hf:
        changes = preview(hf, flow_from(effects()), root=bench.workspace, from_phase="ship")
        assert [one.will for one in changes.phases] == ["kept", "again", "again"]
        assert "ships it" in changes.phases[1].line()
        with pytest.raises(UsageError, match="nowhere"):
            preview(hf, flow_from(effects()), redo=["nowhere"])


def test_what_changed_is_named(bench):
    """Proves F1: parameter, agent, prompt file, environment, or the task's own words."""

    def flow(word="a", agent="true", env="x"):
        tasks = {
            "one": {"run": "true $HOLDFAST_PARAMS_N", "inputs": ["prompt.md"]},
            "two": {"agent": "coder", "input": word},
            "three": {"run": "true", "env": {"E": env}},
        }
        return {"flow": "p", "params": {"n": 1}, "agents": {"coder": agent}, "phases": {"work": {"tasks": tasks}}}

    prompt = bench.workspace / "prompt.md"
    prompt.write_text("first\n")
    bench.run(flow())
    assert lines(bench, flow(), params={"n": 2}, run_id="p")[1:] == [
        "  one: changed, it runs again (parameter n changed)",
        "  two: unchanged, its results are kept",
        "  three: unchanged, its results are kept",
    ]
    prompt.write_text("second\n")
    assert foretold(bench, flow("b", "echo", "y"))[1:] == [
        "  one: changed, it runs again (prompt.md changed)",
        "  two: changed, it runs again (`input` changed, agent coder changed)",
        "  three: changed, it runs again (`env` changed)",
    ]
    prompt.unlink()
    assert "prompt.md changed" in lines(bench, flow("b", "echo", "y"))[1]
