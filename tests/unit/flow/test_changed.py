"""A flow whose file changed since its run was last resumed."""

import os

import pytest

import holdfast
from holdfast.errors import UsageError
from holdfast.flow.digests import compare_flows, flow_digests
from holdfast.flow.load import bind_params, flow_from
from holdfast.flow.runner import preview
from holdfast.recovery.history import FileHistory
from recovery.recovery_kit import execute


def digests(data, **params):
    flow = flow_from(data)
    return flow_digests(flow, bind_params(flow, params), None)


def changes(old, new, *, before=None, after=None):
    return {
        one.phase: one.change
        for one in compare_flows(digests(old, **(before or {})), digests(new, **(after or {}))).phases
    }


BASE = {
    "flow": "f",
    "params": {"goal": "win", "other": 1},
    "agents": {"coder": "code $HOLDFAST_INPUT"},
    "phases": {
        "one": {"run": "echo $HOLDFAST_PARAMS_GOAL"},
        "two": {"tasks": {"a": {"agent": "coder", "input": "x"}, "b": {"run": "b", "needs": "a"}, "c": "c"}},
        "three": "use $HOLDFAST_PHASES_ONE_SUMMARY",
        "four": {"run": "x", "gates": ["g"]},
    },
}


def with_phase(name, value):
    return {**BASE, "phases": {**BASE["phases"], name: value}}


def test_what_is_the_same_is_the_same():
    assert compare_flows(digests(BASE), digests(BASE)).is_same


def test_a_changed_phase_changes_what_follows_it_and_nothing_before():
    """Proves F1: phases hand over files, so what comes after a changed one is done again."""
    assert changes(BASE, with_phase("two", "echo other")) == {
        "one": "same",
        "two": "changed",
        "three": "follows",
        "four": "follows",
    }


def test_a_changed_gate_changes_nothing_that_follows():
    """Proves F1: the work that was checked is the same."""
    new = with_phase("one", {**BASE["phases"]["one"], "gates": ["true"]})
    assert changes(BASE, new) == {"one": "changed", "two": "same", "three": "same", "four": "same"}


def test_a_parameter_changes_the_phases_that_use_it():
    found = changes(BASE, BASE, after={"goal": "lose"})
    assert found == {"one": "changed", "two": "follows", "three": "follows", "four": "follows"}
    assert changes(BASE, BASE, after={"other": 2}) == dict.fromkeys(BASE["phases"], "same")


def test_a_new_secret_is_no_other_work_and_its_digest_does_not_betray_it():
    """Proves E7."""

    def flow(key):
        return {
            "flow": "f",
            "env": {"API_KEY": key},
            "params": {"secret": key},
            "phases": {"one": "echo $HOLDFAST_PARAMS_SECRET"},
        }

    assert digests(flow("s3cret-1")) == digests(flow("other-2"))


def test_an_agent_changes_its_tasks_and_those_that_need_them():
    new = {**BASE, "agents": {"coder": "better $HOLDFAST_INPUT"}}
    found = compare_flows(digests(BASE), digests(new))
    assert found.which("changed") == ("two",)
    (two,) = [one for one in found.phases if one.phase == "two"]
    assert two.tasks == {"a": "changed", "b": "changed", "c": "same"}


def test_new_and_removed_phases_and_tasks_are_named():
    new = {
        **BASE,
        "phases": {
            "one": BASE["phases"]["one"],
            "two": {"tasks": {"a": {"agent": "coder", "input": "x"}, "d": "d"}},
            "five": "f",
        },
    }
    found = compare_flows(digests(BASE), digests(new))
    assert (found.which("new"), found.which("removed"), found.which("same")) == (("five",), ("three", "four"), ("one",))
    assert [one.tasks for one in found.phases if one.phase == "two"] == [
        {"a": "same", "d": "new", "b": "removed", "c": "removed"}
    ]
    assert "  d: new" in found.lines()


@pytest.mark.parametrize(
    "phase",
    [
        {"run": "x", "gates": ["g"], "retries": 4, "timeout": "3s"},
        {"run": "x", "gates": [{"run": "g", "description": "G"}], "approve": "ok?"},
    ],
)
def test_patience_and_questions_do_not_make_a_phase_another_one(phase):
    assert changes(BASE, with_phase("four", phase))["four"] == "same"


def test_a_changed_gate_leaves_the_action_as_it_was():
    old, new = digests(BASE), digests(with_phase("four", {"run": "x", "gates": ["g", "h"]}))
    assert old.phases["four"].tasks != new.phases["four"].tasks
    assert old.phases["four"].actions == new.phases["four"].actions


def test_unchanged_phases_keep_their_results_and_changed_and_new_ones_run(bench):
    def flow(**more):
        return {
            "flow": "p",
            "phases": {"one": bench.say("one"), "two": bench.say("two"), "wait": {"approve": "ok?"}, **more},
        }

    assert bench.run(flow(last=bench.say("last"))).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    changed = flow(last=bench.say("last"))
    changed["phases"]["two"] = bench.say("two-again")
    assert bench.run(changed).status == "waiting"  # proves F1: the yes was for other work
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    changed["phases"]["new"] = bench.say("new")
    result = bench.run(changed)
    assert result.status == "completed"
    assert bench.said == ["one", "two", "two-again", "last", "new"]
    assert (result.changes.which("changed"), result.changes.which("new")) == ((), ("new",))
    assert ("phase_kept", "one") in bench.kinds("phase_kept")
    assert bench.kinds("flow_changed")


def test_what_a_changed_flow_would_do_is_said_before_it_is_done(bench):
    bench.run({"flow": "p", "phases": {"one": "true", "two": "true"}})
    with bench.open() as hf:
        head = hf.latest("p").id
        found = preview(hf, flow_from({"flow": "p", "phases": {"one": "true", "three": "true"}}))
        assert found.lines() == [
            "one: unchanged, its results are kept",
            "three: new, it runs",
            "two: no longer in the flow, its results stay in the record",
        ]
        assert hf.latest("p").id == head
        assert preview(hf, flow_from({"flow": "q", "phases": {"one": "true"}})).which("new") == ("one",)


def test_a_finished_run_goes_on_with_what_was_added(bench):
    bench.run({"flow": "p", "phases": {"one": bench.say("one")}})
    result = bench.run({"flow": "p", "phases": {"one": bench.say("one"), "two": bench.say("two")}})
    assert (result.status, bench.said) == ("completed", ["one", "two"])
    with bench.open() as hf:
        assert hf.control.waiting("p") == []


def test_what_was_done_by_an_earlier_definition_is_not_counted_as_kept(bench):
    """Proves B9."""
    (bench.workspace / "a.json").write_text('{"result": "x", "usage": {"input_tokens": 7, "output_tokens": 0}}')
    bench.run({"flow": "p", "phases": {"one": "cat a.json", "two": "cat a.json", "gone": "cat a.json"}})
    for number, kept in ((1, 1), (2, 1), (3, 1)):
        phases = {"one": "cat a.json", "two": f": {number}; cat a.json", "three": "true"}
        result = bench.run({"flow": "p", "phases": phases})
        assert (result.status, result.tasks_kept, result.saved_tokens) == ("completed", kept, 7)


def test_removed_phases_are_reported_and_stay_in_the_record(bench):
    bench.run({"flow": "p", "phases": {"one": bench.say("one"), "two": "false"}})
    result = bench.run({"flow": "p", "phases": {"one": bench.say("one"), "three": bench.say("three")}})
    assert (result.status, bench.said) == ("completed", ["one", "three"])
    assert result.changes.which("removed") == ("two",)
    with bench.open() as hf:
        assert hf.latest("p").section("phases").phases["two"].status == "failed"


def test_in_a_changed_phase_only_changed_tasks_run_again(bench):
    def flow(b):
        tasks = {
            "a": bench.say("a"),
            "b": bench.say(b),
            "c": {"run": bench.say("c"), "needs": "a"},
            "d": {"run": bench.say("d"), "needs": "b"},
        }
        return {"flow": "p", "phases": {"one": {"tasks": tasks, "parallel": 1}}}

    bench.run(flow("b1"))
    bench.log.unlink()
    result = bench.run(flow("b2"))
    assert result.status == "completed"
    assert bench.said == ["b2", "d"]
    assert (result.tasks_done, result.tasks_kept) == (2, 2)
    (done,) = [event.data for event in bench.events if event.kind == "flow_done"]
    assert (done["done"], done["kept"]) == (2, 2)


def test_a_new_gate_checks_what_was_done_and_the_worker_is_not_called_again(bench):
    """Proves D8."""

    def flow(*gates):
        return {"flow": "p", "phases": {"one": {"run": bench.say("work"), "gates": list(gates)}}}

    bench.run(flow(bench.say("g1")))
    assert bench.run(flow(bench.say("g1"), bench.say("g2"))).status == "completed"
    assert bench.said == ["work", "g1", "g2"]


def test_a_first_gate_and_no_gate_any_more_do_not_call_the_worker_again(bench):
    """Proves D8."""

    def flow(*gates):
        return {"flow": "p", "phases": {"one": {"run": f"{bench.say('work')}; echo result", "gates": list(gates)}}}

    for gates in ([], [bench.say("g1")], [], [bench.say("g2")]):
        result = bench.run(flow(*gates))
        assert (result.status, result.results) == ("completed", {"one": "result"})
    assert bench.said == ["work", "g1", "g2"]


def test_a_changed_worker_is_called_again_and_its_gates_too(bench):
    def flow(work):
        return {"flow": "p", "phases": {"one": {"run": bench.say(work), "gates": [bench.say("g")]}}}

    bench.run(flow("w1"))
    assert bench.run(flow("w2")).status == "completed"
    assert bench.said == ["w1", "g", "w2", "g"]


def test_changing_back_and_forth_runs_each_change(bench):
    def flow(text):
        return {"flow": "p", "phases": {"one": bench.say(text), "two": bench.say("two")}}

    for text in ("a", "b", "a"):
        assert bench.run(flow(text)).status == "completed"
    assert bench.said == ["a", "two", "b", "two", "a", "two"]


def test_a_failed_phase_that_was_mended_in_the_file_is_tried_again(bench):
    flow = {"flow": "p", "on_failure": "abort", "phases": {"one": bench.say("one"), "two": "exit 1"}}
    assert bench.run(flow).status == "failed"
    flow["phases"]["two"] = bench.say("two")
    assert bench.run(flow).status == "completed"
    assert bench.said == ["one", "two"]


def test_a_failed_phase_that_waits_for_a_person_is_tried_again_when_it_is_mended_in_the_file(bench):
    assert bench.run({"flow": "p", "phases": {"one": bench.say("one"), "two": "exit 1"}}).status == "waiting"
    result = bench.run({"flow": "p", "phases": {"one": bench.say("one"), "two": bench.say("two")}})
    assert (result.status, bench.said) == ("completed", ["one", "two"])


def test_a_parameter_given_anew_runs_what_uses_it(bench):
    flow = {
        "flow": "p",
        "params": {"goal": "a"},
        "phases": {"one": bench.say("$HOLDFAST_PARAMS_GOAL"), "two": bench.say("two")},
    }
    bench.run(flow)
    assert bench.run(flow, params={"goal": "b"}).status == "completed"
    assert bench.said == ["a", "two", "b", "two"]


def test_untested_work_is_not_shipped_with_an_old_yes(bench):
    """Proves F1: implement, test, ship; after a change the tests run again, and their failure stops it."""

    def flow(version):
        return {
            "flow": "p",
            "on_failure": "abort",
            "phases": {
                "implement": f"echo {version} > x.txt",
                "test": "grep -q v1 x.txt",
                "ship": {"run": f"cp x.txt '{bench.folder}/shipped'", "approve": "ship it?"},
            },
        }

    assert bench.run(flow("v1")).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    assert bench.run(flow("v2")).status == "failed"
    assert not (bench.folder / "shipped").exists()


def test_a_changed_input_file_makes_its_task_and_what_follows_run_again(bench):
    """Proves F1."""
    prompt = bench.workspace / "prompts" / "plan.md"
    prompt.parent.mkdir()
    prompt.write_text("first")
    one = {"run": bench.say("one"), "inputs": ["prompts/*.md"]}
    flow = {"flow": "p", "phases": {"zero": bench.say("zero"), "one": one, "two": bench.say("two")}}
    for _ in range(2):
        assert bench.run(flow).status == "completed"
    prompt.write_text("second")
    assert bench.run(flow).status == "completed"
    assert bench.said == ["zero", "one", "two", "one", "two"]


def as_link(place, outside):
    place.parent.mkdir()
    place.symlink_to(outside / "plan.md")


def behind_link(place, outside):
    place.parent.symlink_to(outside)


def as_pipe(place, outside):
    place.parent.mkdir()
    os.mkfifo(place)


def as_huge(place, outside):
    place.parent.mkdir()
    with place.open("wb") as file:
        file.truncate(3 << 40)


@pytest.mark.parametrize("odd", [as_link, behind_link, as_pipe, as_huge])
def test_an_input_that_is_not_a_plain_file_of_the_workspace_is_refused(bench, tmp_path, odd):
    """Nothing outside is read, no pipe is waited for, and a change that would not be noticed is not promised."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "plan.md").write_text("a key")
    odd(bench.workspace / "prompts" / "plan.md", outside)
    flow = {"flow": "p", "phases": {"one": {"run": bench.say("one"), "inputs": ["prompts/*.md"]}}}
    with pytest.raises(UsageError, match=r"input 'prompts/plan\.md' "):
        bench.run(flow)
    assert bench.said == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"from_phase": "two"}, ["a", "b", "three"]),
        ({"redo": ["two/b"]}, ["b", "three"]),
        ({"redo": ["three"]}, ["three"]),
    ],
)
def test_phases_and_tasks_can_be_run_again(bench, options, said):
    """Proves F2."""
    two = {"tasks": {"a": bench.say("a"), "b": bench.say("b")}, "parallel": 1}
    flow = {"flow": "p", "phases": {"one": bench.say("one"), "two": two, "three": bench.say("three")}}
    bench.run(flow)
    bench.log.unlink()
    assert bench.run(flow, **options).status == "completed"
    assert bench.said == said
    with pytest.raises(UsageError, match="there is no phase 'tow'"):
        bench.run(flow, redo=["tow"])


def test_a_run_without_a_checkpoint_is_resumed_like_any_other(bench):
    """Proves A14, F2: parameters, work to do again, lost files, changes and the preview."""
    bench.settings = holdfast.Settings(automatic=False)
    (bench.workspace / "other.txt").write_text("an empty directory would be filled on entry")
    one = {"run": bench.say("one-$HOLDFAST_PARAMS_V"), "artifacts": ["made.txt"]}
    one["run"] += "; echo x > made.txt"
    asks = {"run": bench.say("two-$HOLDFAST_PARAMS_V"), "approve": "ok?"}
    flow = {"flow": "p", "params": {"v": "default"}, "phases": {"one": one, "two": asks}}
    assert bench.run(flow, params={"v": "GIVEN"}).status == "waiting"
    with bench.open() as hf:
        assert list(hf.checkpoints("p")) == []
        assert preview(hf, flow_from(flow), run_id="p", root=bench.workspace).phases[0].will == "kept"
        with pytest.raises(UsageError, match="belongs to flow 'p'"):
            preview(hf, flow_from({**flow, "flow": "q"}), run_id="p")
    assert bench.run(flow, redo=["one"]).status == "waiting"
    assert bench.said == ["one-GIVEN", "one-GIVEN"]
    (bench.workspace / "made.txt").unlink()
    assert bench.run(flow).status == "waiting"
    changed = {**flow, "phases": {"one": {**one, "run": one["run"] + "; true"}, "two": bench.say("$HOLDFAST_PARAMS_V")}}
    done = bench.run(changed)
    assert (done.status, [phase.change for phase in done.changes.phases]) == ("completed", ["changed", "changed"])
    assert bench.said == [*["one-GIVEN"] * 4, "GIVEN"]
    assert bench.run(changed).detail == "it was over already"
    with bench.open() as hf:
        assert list(hf.checkpoints("p")) == []
        hf.run("plain").step("s", lambda: 1)
    with pytest.raises(UsageError, match="was not begun by a flow"):
        bench.run(flow, run_id="plain")


@pytest.mark.parametrize("gates", [[], ["true"]])
def test_a_task_whose_artifact_is_lost_runs_again(bench, gates):
    """Proves F2: also in a run that is complete."""
    (bench.workspace / "other.txt").write_text("an empty directory would be filled on entry")
    made = f"{bench.say('made')}; echo x > made.txt"
    one = {"run": made, "artifacts": ["made.txt"], "gates": gates}
    flow = {"flow": "p", "phases": {"one": one, "two": bench.say("two")}}
    bench.run(flow)
    assert bench.run(flow).detail == "it was over already"
    (bench.workspace / "made.txt").unlink()
    assert bench.run(flow).status == "completed"
    assert (bench.workspace / "made.txt").exists()
    assert bench.said == ["made", "two", "made", "two"]


def test_an_artifact_whose_history_is_damaged_counts_as_lost(bench):
    """Proves F2."""
    (bench.workspace / "other.txt").write_text("an empty directory would be filled on entry")
    one = {"run": f"{bench.say('made')}; echo x > made.txt", "artifacts": ["made.txt"]}
    flow = {"flow": "p", "phases": {"one": one, "two": "echo y > two.txt"}}
    assert bench.run(flow).status == "completed"
    with bench.open() as hf:
        trees = [one.snapshot.root for one in FileHistory(hf, "p").moments]
    assert len(set(trees)) > 1
    execute(bench.folder, "UPDATE chunk SET data = x'00' WHERE id = ?", trees[0].id)
    (bench.workspace / "made.txt").unlink()
    assert bench.run(flow).status == "completed"
    assert bench.said == ["made", "made"]


def test_an_empty_artifact_is_not_moved_where_another_empty_file_appears(bench):
    """Proves F2."""
    (bench.workspace / "other.txt").write_text("an empty directory would be filled on entry")
    one = {"run": f"{bench.say('made')}; : > made.txt", "artifacts": ["made.txt"]}
    flow = {"flow": "p", "phases": {"one": one, "two": "rm -f made.txt; : > two.txt"}}
    assert bench.run(flow).status == "completed"
    assert bench.run(flow).detail == ""
    assert bench.said == ["made", "made"]


def test_other_parameters_are_another_run(bench):
    """Proves F3."""
    flow = {"flow": "p", "params": {"n": 1}, "phases": {"one": bench.say("$HOLDFAST_PARAMS_N")}}
    runs = [bench.run(flow, run_id=None, params=params).run for params in ({}, {"n": 42}, {"n": 43}, {"n": 42})]
    assert bench.said == ["1", "42", "43"]
    assert (runs[0], runs[1], len(set(runs))) == ("p", runs[3], 3)
    named = {**flow, "run_id": "issue-{params.n}"}
    assert bench.run(named, run_id=None, params={"n": 7}).run == "issue-7"


def test_a_phase_that_was_moved_before_the_one_under_way_is_not_left_out(bench):
    one, two = bench.say("one"), bench.say("two")
    broken = bench.say("broken") + f"; test $(grep -c broken '{bench.log}') -gt 1"
    flow = {"flow": "f", "on_failure": "abort", "phases": {"one": one, "broken": broken, "two": two}}
    assert bench.run(flow).status == "failed"
    moved = {**flow, "phases": {"one": one, "two": two, "broken": broken}}
    assert bench.run(moved).status == "completed"
    assert bench.said == ["one", "broken", "two", "broken"]


def test_a_loop_that_was_mended_in_the_file_goes_on_in_its_lap(bench):
    code = bench.say("code") + f"; test $(grep -c code '{bench.log}') -ne 2"
    verdict = f"{bench.say('check')}; test $(grep -c code '{bench.log}') -lt 3 && echo bad || echo good"
    ways = [{"to": "end", "when": "phases.check.result == 'good'"}, "code"]
    flow = {"flow": "f", "on_failure": "abort", "phases": {"code": code, "check": {"run": verdict, "next": ways}}}
    assert bench.run(flow).status == "failed"
    assert bench.said == ["code", "check", "code"]
    fixed = {**flow, "phases": {**flow["phases"], "code": code + "; true"}}
    assert bench.run(fixed).status == "completed"
    assert bench.said == ["code", "check", "code", "code", "check"]


def test_a_task_that_needs_one_that_runs_again_runs_again(bench):
    """Proves F2."""
    tasks = {"a": bench.say("a"), "b": {"run": bench.say("b"), "needs": ["a"]}, "c": bench.say("c")}
    flow = {"flow": "p", "phases": {"one": {"tasks": tasks, "parallel": 1}, "two": bench.say("two")}}
    bench.run(flow)
    bench.log.unlink()
    assert bench.run(flow, redo=["one/a"]).status == "completed"
    assert bench.said == ["a", "b", "two"]


def test_what_follows_a_task_that_comes_to_the_same_again_is_kept(bench):
    """Proves F2: of a task that writes no files, the result is all there is."""
    flow = {"flow": "p", "phases": {"one": {"run": bench.say("a"), "writes": False}, "two": bench.say("two")}}
    bench.run(flow)
    bench.log.unlink()
    assert bench.run(flow, redo=["one"]).status == "completed"
    assert bench.said == ["a"]


def test_a_command_that_changed_as_its_gates_went_runs(bench):
    """Proves F2."""
    bench.run({"flow": "p", "phases": {"one": {"run": bench.say("old"), "gates": ["true"]}}})
    bench.log.unlink()
    bench.run({"flow": "p", "phases": {"one": bench.say("new")}})
    assert bench.said == ["new"]
