"""A person's yes holds for the question and the work that it was given for, in every process, and for nothing else."""

import pytest

AWS_KEY = "AKIAIOSFODNN7EXAMPLE"


def ship(bench, run="pushed-$HOLDFAST_PARAMS_BR", question="Push {params.br}?", **more):
    phase = {"approve": question, "run": bench.say(run), **more}
    return {"flow": "p", "params": {"br": "dev"}, "on_failure": "abort", "phases": {"ship": phase, "b": "true"}}


def task(bench, run="pushed-$HOLDFAST_PARAMS_BR", question="Push {params.br}?"):
    tasks = {"ship": {"approve": question, "run": bench.say(run)}, "other": "true"}
    return {"flow": "p", "params": {"br": "dev"}, "phases": {"both": {"tasks": tasks}}}


def approve(bench, choice="approve"):
    with bench.open() as hf:
        return hf.control.answer("p", choice).id


def waits(bench):
    with bench.open() as hf:
        return [(wait.id, wait.question) for wait in hf.control.waiting("p")]


@pytest.mark.parametrize("flow", [ship, task])
@pytest.mark.parametrize(
    "change",
    [{"params": {"br": "production"}}, {"run": "other"}],
    ids=["parameter", "command"],
)
def test_a_yes_that_was_used_is_no_yes_to_other_work(bench, flow, change):
    """Proves A1: user approval."""
    assert bench.run(flow(bench)).status == "waiting"
    approve(bench)
    assert (bench.run(flow(bench)).status, bench.said) == ("completed", ["pushed-dev"])
    params = change.get("params")
    change = {"run": change["run"]} if "run" in change else {}
    assert bench.run(flow(bench, **change), params=params).status == "waiting"
    assert bench.said == ["pushed-dev"]
    approve(bench)
    assert bench.run(flow(bench, **change)).status == "completed"
    assert bench.said == ["pushed-dev", "pushed-production" if params else "other"]


@pytest.mark.parametrize("flow", [ship, task])
@pytest.mark.parametrize("change", [{"question": "Push it, really?"}, {"run": "other"}])
def test_a_yes_that_was_not_used_yet_is_no_yes_to_what_was_changed_meanwhile(bench, flow, change):
    bench.run(flow(bench))
    approve(bench)
    assert bench.run(flow(bench, **change)).status == "waiting"
    assert (len(waits(bench)), bench.said) == (1, [])
    approve(bench)
    assert bench.run(flow(bench, **change)).status == "completed"
    assert bench.said == [change.get("run", "pushed-dev")]


@pytest.mark.parametrize("flow", [ship, task])
def test_a_question_that_was_reworded_stands_in_the_place_of_the_old_one(bench, flow):
    bench.run(flow(bench))
    bench.run(flow(bench, question="Really?"))
    assert [question for _, question in waits(bench)] == ["Really?"]


def test_a_result_that_the_question_names_makes_it_another_question(bench):
    def flow(said):
        return {"flow": "p", "phases": {"one": f"echo {said}", "ship": {"approve": "Ship {phases.one.result}?"}}}

    bench.run(flow("a"))
    approve(bench)
    assert bench.run(flow("b")).status == "waiting"
    assert [question for _, question in waits(bench)] == ["Ship b?"]


def test_a_yes_holds_when_the_run_dies_or_fails_after_it_and_when_something_else_changed(bench):
    """Proves E6: a person's approval."""

    def die(event):
        if event.kind == "phase_started":
            raise SystemExit

    flow = ship(bench, gates=["test -e ok"])
    bench.run(flow)
    approve(bench)
    with pytest.raises(SystemExit):
        bench.run(flow, observer=die)
    assert bench.run(flow).status == "failed"
    flow["phases"]["b"] = "echo other"
    assert bench.run(flow).status == "failed"
    (bench.workspace / "ok").touch()
    assert (bench.run(flow).status, bench.said) == ("completed", ["pushed-dev"])


@pytest.mark.parametrize(
    "question",
    [
        "Push after {phases.first.summary}?",
        "{budget.time.used} of {budget.time.limit} s, continue?",
        "In {run.workspace}?",
    ],
)
def test_what_only_looks_different_in_the_next_life_is_the_same_question(bench, question):
    flow = {
        "flow": "p",
        "budget": {"time": "1h"},
        "phases": {"first": f"echo key {AWS_KEY}", "ask": {"approve": question}},
    }
    bench.run(flow)
    approve(bench)
    assert bench.run(flow).status == "completed"


def test_what_is_kept_of_a_question_does_not_betray_a_secret(bench):
    """Proves E7."""
    flow = {
        "flow": "p",
        "params": {"key": "none"},
        "phases": {"ask": {"approve": "Use {params.key}?"}},
    }
    kept = []
    for key in (AWS_KEY, AWS_KEY[:-1] + "X"):
        assert bench.run(flow, params={"key": key}, run_id=key[-1]).status == "waiting"
        with bench.open() as hf:
            (asked,) = [one for one in hf.latest(key[-1]).calls if one["event"] == "asked"]
            assert key not in repr(asked)
            kept.append(asked["input"])
    assert kept[0] == kept[1]
