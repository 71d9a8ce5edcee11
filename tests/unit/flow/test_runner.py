"""Flows carried out with real commands, resumed, changed and refused."""

import json
import re
import sys
import threading

import pytest

import holdfast
from holdfast.errors import CannotResume, FlowInvalid, SubjectUnavailable, UsageError
from holdfast.flow.model import Flow, Phase
from holdfast.flow.runner import run_flow


def plan(**phases):
    return {"flow": "plan", "phases": phases}


def test_three_phases_run_in_their_order_and_their_results_are_kept(bench):
    """Proves B1."""
    result = bench.run(
        plan(
            research="echo found it",
            build="echo built",
            ship="echo $HOLDFAST_PHASES_RESEARCH_SUMMARY, $HOLDFAST_PHASES_BUILD_RESULT",
        )
    )
    assert result.status == "completed"
    assert result.phases == {"research": "completed", "build": "completed", "ship": "completed"}
    assert result.results == {"research": "found it", "build": "built", "ship": "found it, built"}
    with bench.open() as hf:
        phases = hf.latest("plan").section("phases").phases
        assert phases["research"].summary == "found it"
        assert hf.latest("plan").summary.status == "completed"


def test_a_task_that_ctrl_c_ended_has_not_failed_and_runs_in_the_next_process(bench):
    flow = plan(one=bench.say("one"), two=f"test -e again || kill -INT $$; {bench.say('two')}")
    with pytest.raises(KeyboardInterrupt):
        bench.run(flow)
    assert "task failed" not in [kind for kind, _ in bench.kinds()]
    (bench.workspace / "again").touch()
    assert bench.run(flow).status == "completed"
    assert bench.said == ["one", "two"]


def test_a_finished_run_says_so_and_nothing_runs_again(bench):
    """Proves B3."""
    flow = plan(one=bench.say("one"))
    bench.run(flow)
    with bench.open() as hf:
        head = hf.latest("plan").id
    result = bench.run(flow)
    assert (result.status, result.detail, result.phases) == ("completed", "it was over already", {"one": "completed"})
    assert result.results == {"one": ""}
    assert bench.said == ["one"]
    with bench.open() as hf:
        assert hf.latest("plan").id == head


def test_tasks_run_after_those_they_need_and_see_their_results(bench):
    tasks = {
        "c": {"run": "echo $HOLDFAST_TASKS_A_RESULT$HOLDFAST_TASKS_B_RESULT", "needs": ["a", "b"]},
        "a": "echo 1",
        "b": {"run": "echo 2", "needs": "a"},
    }
    result = bench.run(plan(p={"tasks": tasks, "parallel": 1}))
    assert result.results["p"] == {"c": 12, "a": 1, "b": 2}
    with bench.open() as hf:
        graph = hf.latest("plan").section("graph")
        assert graph.completed_batches == [1, 2, 3]
        assert {name: node.status for name, node in graph.tasks.items()} == dict.fromkeys(("c", "a", "b"), "completed")


def test_a_failed_task_holds_back_what_needs_it_and_nothing_else(bench):
    tasks = {"bad": "exit 3", "after": {"run": bench.say("after"), "needs": "bad"}, "other": bench.say("other")}
    result = bench.run({**plan(p={"tasks": tasks}), "on_failure": "abort"})
    assert result.status == "failed"
    assert "ended with 3" in result.detail
    assert "held back: after" in result.detail
    assert bench.said == ["other"]


def test_a_flow_that_failed_is_tried_again_from_the_failed_phase_by_the_same_call(bench):
    """Proves D8."""
    flow = {
        **plan(one=bench.say("one"), two=f"{bench.say('two')}; test -e ok", three=bench.say("three")),
        "on_failure": "abort",
    }
    assert bench.run(flow).status == "failed"
    (bench.workspace / "ok").touch()
    result = bench.run(flow)
    assert result.status == "completed"
    assert bench.said == ["one", "two", "two", "three"]
    assert result.tasks_kept == 1


def test_a_failed_phase_asks_a_person_and_retry_skip_and_abort_do_what_they_say(bench):
    """Proves B5."""
    flow = plan(one="false", two=bench.say("two"))
    result = bench.run(flow)
    assert (result.status, result.waits_for) == ("waiting", "failed:one:1")
    with bench.open() as hf:
        assert hf.latest("plan").section("phases").phases["one"].status == "failed"
        (wait,) = hf.control.waiting("plan")
        assert wait.options == ("retry", "skip", "abort")
        hf.control.answer("plan", "retry", by="ann")
    assert bench.run(flow).waits_for == "failed:one:2"
    with bench.open() as hf:
        hf.control.answer("plan", "abort")
    result = bench.run(flow)
    assert (result.status, result.phases["one"]) == ("failed", "failed")
    assert bench.run(flow).waits_for == "failed:one:3"
    with bench.open() as hf:
        hf.control.answer("plan", "skip")
    result = bench.run(flow)
    assert (result.status, result.phases) == ("completed", {"one": "skipped", "two": "completed"})
    assert bench.said == ["two"]


def test_asking_again_does_not_run_the_failed_phase_again(bench):
    flow = plan(one=f"{bench.say('one')}; false")
    for _ in range(3):
        assert bench.run(flow).waits_for == "failed:one:1"
    assert bench.said == ["one"]


def test_a_phase_may_be_retried_by_rule_then_skipped(bench):
    rule = {"do": "retry", "limit": 2, "then": "skip"}
    result = bench.run(plan(one={"run": f"{bench.say('x')}; false", "on_failure": rule}, two="true"))
    assert result.phases == {"one": "skipped", "two": "completed"}
    assert bench.said == ["x"] * 3


def test_a_task_is_retried_and_a_missing_command_is_not(bench):
    result = bench.run(
        plan(one={"run": f"{bench.say('t')}; test $(wc -l < '{bench.log}') -ge 3", "retries": 5, "backoff": 0})
    )
    assert result.status == "completed"
    assert bench.said == ["t"] * 3
    result = bench.run(
        {"flow": "other", "phases": {"one": {"run": "no-such-command-here", "retries": 5, "on_failure": "abort"}}}
    )
    assert result.status == "failed"
    assert "ended with 127" in result.detail
    assert "not found" in result.detail
    assert not bench.kinds("task_retry")


def test_a_command_that_takes_too_long_is_ended_and_said(bench):
    result = bench.run(plan(one={"run": "sleep 60", "timeout": "200ms", "on_failure": "abort"}))
    assert result.status == "failed"
    assert "longer than 0.2 s" in result.detail


def test_approval_is_waited_for_and_a_no_ends_the_run_until_it_is_asked_anew(bench):
    flow = plan(one=bench.say("one"), ship={"approve": "Push {phases.one.status}?", "run": bench.say("push")})
    result = bench.run(flow)
    assert (result.status, result.detail, result.waits_for) == ("waiting", "Push completed?", "approve:ship")
    with bench.open() as hf:
        hf.control.answer("plan", "reject", by="ann")
    result = bench.run(flow)
    assert result.status == "failed"
    assert "rejected by ann" in result.detail
    assert bench.run(flow).waits_for == "approve:ship:2"
    with bench.open() as hf:
        hf.control.answer("plan", "approve")
    assert bench.run(flow).status == "completed"
    assert bench.said == ["one", "push"]


def test_a_task_that_is_rejected_may_be_left_out(bench):
    task = {"approve": {"question": "Sure?", "on_reject": "skip"}, "run": bench.say("done")}
    flow = plan(
        p={"tasks": {"ask": task, "other": bench.say("other")}},
        q="echo $HOLDFAST_PHASES_P_TASKS_ASK_STATUS $HOLDFAST_PHASES_P_TASKS_OTHER_STATUS",
        r={"run": bench.say("r"), "when": "phases.p.tasks.ask.status == 'skipped'"},
    )
    assert bench.run(flow).waits_for == "approve:p/ask"
    with bench.open() as hf:
        hf.control.answer("plan", "reject")
    result = bench.run(flow)
    assert (result.status, result.results["q"]) == ("completed", "skipped completed")
    assert bench.said == ["other", "r"]


def test_a_phase_is_planned_anew_within_its_limit(bench):
    """Proves B6."""
    flow = plan(
        build={
            "run": f"{bench.say('build')}; false",
            "replan": {"run": f"{bench.say('replan')}; echo $HOLDFAST_FAILURE > plan.md", "limit": 2},
            "on_failure": "abort",
        }
    )
    result = bench.run(flow)
    assert result.status == "failed"
    assert "replanned 2 times already" in result.detail
    assert bench.said == ["build", "replan", "build", "replan", "build"]
    assert "ended with 1" in (bench.workspace / "plan.md").read_text()
    with bench.open() as hf:
        assert [one.phase for one in hf.latest("plan").section("phases").replans] == ["build", "build"]


def test_a_replanned_phase_does_all_its_tasks_anew(bench):
    flow = plan(
        p={
            "tasks": {"a": bench.say("a"), "b": {"run": f"{bench.say('b')}; test -e ok", "needs": "a"}},
            "replan": "touch ok",
        }
    )
    assert bench.run(flow).status == "completed"
    assert bench.said == ["a", "b", "a", "b"]


def test_routes_lead_by_their_conditions_and_back(bench):
    """Proves A4."""
    flow = {
        "flow": "review",
        "start": "write",
        "phases": {
            "write": {"run": f"{bench.say('write')}; wc -l < '{bench.log}'", "next": "check"},
            "check": {
                "run": f"{bench.say('check')}; wc -l < '{bench.log}'",
                "next": [{"to": "write", "when": "phases.check.result < 5"}, "end"],
            },
        },
    }
    result = bench.run(flow)
    assert result.status == "completed"
    assert bench.said == ["write", "check"] * 3
    with bench.open() as hf:
        triggers = [one.trigger for one in hf.checkpoints("review")]
        assert triggers.count("loop_complete") == 2


def test_a_circle_that_does_not_end_by_itself_ends_at_its_limit(bench):
    flow = {
        "flow": "x",
        "phases": {
            "a": {"run": "true", "max_visits": 3, "next": "b"},
            "b": {"run": "true", "next": [{"to": "a", "when": "true"}, "end"]},
        },
    }
    result = bench.run(flow)
    assert (result.status, result.phases["a"]) == ("failed", "completed")
    assert "visited 3 times" in result.detail


def test_a_phase_repeats_until_its_condition_holds(bench):
    flow = plan(
        loop={
            "run": f"{bench.say('x')}; wc -l < '{bench.log}'",
            "repeat": {"until": "phases.loop.result >= 4", "limit": 10},
        }
    )
    assert bench.run(flow).status == "completed"
    assert bench.said == ["x"] * 4
    flow = {
        "flow": "b",
        "phases": {"loop": {"run": "echo 1", "repeat": {"until": "tasks.loop.result > 1", "limit": 3}}},
    }
    assert "after 3 rounds" in bench.run(flow).detail


def test_a_phase_whose_condition_does_not_hold_is_left_out(bench):
    flow = {
        "flow": "p",
        "params": {"ship": False},
        "phases": {"a": "true", "b": {"run": bench.say("b"), "when": "params.ship"}},
    }
    assert bench.run(flow).phases == {"a": "completed", "b": "skipped"}
    assert bench.run(flow, run_id="p2", params={"ship": True}).phases["b"] == "completed"
    assert bench.said == ["b"]


def test_gates_are_passed_in_order_and_a_failed_one_is_mended(bench):
    """Proves D7."""
    flow = plan(
        code={
            "run": f"{bench.say('code')}; echo 0 > n",
            "gates": [
                f"{bench.say('g1')}",
                {
                    "run": f"{bench.say('g2')}; test $(cat n) = 1 || {{ echo it is $(cat n); false; }}",
                    "description": "n is 1",
                },
            ],
            "fix": f'{bench.say("fix")}; echo "$HOLDFAST_FAILURE" > why; echo 1 > n',
        }
    )
    result = bench.run(flow)
    assert result.status == "completed"
    assert bench.said == ["code", "g1", "g2", "fix", "g1", "g2"]
    assert "it is 0" in (bench.workspace / "why").read_text()
    with bench.open() as hf:
        task = hf.latest("plan").section("gates").tasks["code/code"]
        assert (task.stage, task.fix_attempt, len(task.gate_results)) == ("complete", 1, 2)


def test_fixes_end_at_their_limit(bench):
    flow = plan(code={"run": "true", "gates": "false", "fix": bench.say("fix"), "max_fixes": 2, "on_failure": "abort"})
    result = bench.run(flow)
    assert result.status == "failed"
    assert "gate 1 (false) failed after 2 fixes" in result.detail
    assert bench.said == ["fix", "fix"]


def test_a_gate_that_hangs_is_ended_and_fails(bench):
    flow = plan(code={"run": "true", "gates": [{"run": "sleep 60", "timeout": "200ms"}], "on_failure": "abort"})
    result = bench.run(flow)
    assert result.status == "failed"
    assert "longer than 0.2 s" in result.detail


def test_after_a_failed_gate_the_worker_is_not_called_again(bench):
    """Proves D8."""
    flow = plan(code={"run": bench.say("code"), "gates": [bench.say("gate1"), f"{bench.say('gate2')}; test -e ok"]})
    assert bench.run(flow).status == "waiting"
    (bench.workspace / "ok").touch()
    with bench.open() as hf:
        hf.control.answer("plan", "retry")
    assert bench.run(flow).status == "completed"
    assert bench.said == ["code", "gate1", "gate2", "gate1", "gate2"]


def test_output_that_is_no_utf8_is_kept_and_shown(bench):
    result = bench.run(plan(one=r"printf 'a\377b\n'"))
    assert result.results["one"] == r"a\xffb"


def test_a_gigantic_output_is_streamed_in_whole_and_kept_in_part(bench):
    size = 0

    def watch(event):
        nonlocal size
        size += len(event.text) if event.kind == "task_output" else 0

    result = bench.run(plan(one="head -c 30000000 /dev/zero | tr '\\0' x; echo; echo end"), observer=watch)
    assert size > 30_000_000
    assert len(result.results["one"]) < 100_000
    gap = re.search(r"\n\[\.\.\. ([0-9,]+) bytes left out \.\.\.\]\n", result.results["one"])
    kept = len(result.results["one"]) - len(gap[0])
    assert int(gap[1].replace(",", "")) + kept == 30_000_000 + len("\nend")
    with bench.open() as hf:
        assert hf.latest("plan").size_bytes < 500_000


def test_json_output_becomes_the_result_and_what_it_cost_is_counted(bench):
    usage = {"input_tokens": 30, "output_tokens": 12, "tool_calls": 2}
    said = {"result": {"done": True}, "usage": usage, "total_cost_usd": 0.25}
    (bench.workspace / "said.json").write_text(json.dumps(said))
    flow = {
        "flow": "p",
        "budget": {"tokens": 1000},
        "phases": {
            "one": {"agent": "coder", "run": "cat said.json"},
            "two": {"run": "true", "when": "phases.one.result.done"},
        },
    }
    result = bench.run(flow)
    assert result.phases["two"] == "completed"
    with bench.open() as hf:
        head = hf.latest("p")
        spending = head.section("budget").spending
        assert (spending["tokens"].used, spending["subcalls"].used, spending["tool_calls"].used) == (42, 1, 2)
        assert float(spending["money"].used) == 0.25
        (agent,) = head.section("agents")
        assert (agent.id, agent.status, agent.tokens.input, agent.tokens.output) == ("coder", "completed", 30, 12)


@pytest.mark.parametrize(
    ("printed", "result", "summary"),
    [
        ("5", 5, "5"),
        ("true", True, "true"),
        ('["a", 1]', ["a", 1], '["a",1]'),
        ("hello\n5", "hello\n5", "5"),
        ("hello\n[1]", "hello\n[1]", "[1]"),
        ('hello\n{"result": "x"}', "x", "x"),
    ],
)
def test_what_is_printed_is_json_as_a_whole_or_an_object_on_its_last_line(bench, printed, result, summary):
    (bench.workspace / "said").write_text(printed)
    assert bench.run(plan(one="cat said")).results["one"] == result
    assert [event.text for event in bench.events if event.kind == "task_done"] == [summary]


def test_of_a_failed_command_the_end_of_both_streams_is_kept_below_the_line_that_says_most(bench):
    """Proves D3."""
    failing = "echo 4 passed, 1 failed; printf 'Traceback:\n  somewhere\nValueError: bad\n\n' >&2; exit 1"
    flow = plan(
        one={
            "run": failing,
            "replan": {"run": 'printf %s "$HOLDFAST_FAILURE" > told', "limit": 1},
            "on_failure": "skip",
        }
    )
    assert bench.run(flow).status == "completed"
    failed = next(event.text for event in bench.events if event.kind == "task_failed")
    head, *below = failed.splitlines()
    assert head.endswith("ended with 1: ValueError: bad")
    assert below == [
        "standard output:", "4 passed, 1 failed", "standard error:", "Traceback:", "  somewhere", "ValueError: bad",
    ]  # fmt: skip
    assert (bench.workspace / "told").read_text().splitlines()[1:] == below
    with bench.open() as hf:
        recorded = [one for one in hf.latest("plan").section("steps") if one["event"] == "failed"]
    assert recorded[0]["error"]["message"] == failed


def test_two_failed_tasks_are_told_on_one_line_and_what_they_printed_below(bench):
    failing = "echo said; echo {} >&2; exit 1"
    tasks = {"a": failing.replace("{}", "first"), "b": failing.replace("{}", "second")}
    bench.run(plan(one={"tasks": tasks, "on_failure": "abort"}))
    text = next(event.text for event in bench.events if event.kind == "phase_failed")
    head = text.splitlines()[0]
    assert "task a: " in head
    assert "ended with 1: first; task b: " in head
    assert text.count("said") == 2 + head.count("said")


def test_a_function_that_calls_exit_has_failed(bench):
    def leave(call):
        sys.exit(3)

    flow = plan(one={"call": "my:leave", "on_failure": "skip"}, two=bench.say("two"))
    assert bench.run(flow, functions={"my:leave": leave}).status == "completed"
    failed = next(event.text for event in bench.events if event.kind == "task_failed")
    assert failed == "'my:leave' ended with 3: it called sys.exit: a function returns its result, or raises"
    assert bench.said == ["two"]


def test_a_function_that_returns_what_cannot_be_stored_is_told_what_to_return(bench):
    flow = plan(one={"call": "my:odd", "on_failure": "abort"})
    result = bench.run(flow, functions={"my:odd": lambda _: {"a": object()}})
    assert "my:odd returned what cannot be stored" in result.detail
    assert "Return plain data" in result.detail
    assert "store=" not in result.detail


def test_what_a_function_says_is_its_output_and_its_streams_are_left_alone(bench, capsys):
    def work(call):
        call.print("half")
        print("on the terminal")
        call.print("whole")
        return {"n": 1}

    flow = plan(one={"call": "my:work"}, two='printf %s "$HOLDFAST_PHASES_ONE_TASKS_ONE_OUTPUT" > out')
    assert bench.run(flow, functions={"my:work": work}).status == "completed"
    assert (bench.workspace / "out").read_text() == "half\nwhole\n"
    assert capsys.readouterr().out == "on the terminal\n"


def test_what_is_no_flow_is_refused_with_the_way_to_make_one(bench):
    with bench.open() as hf, pytest.raises(UsageError, match="load_flow"):
        run_flow(hf, "flow: x")


def test_a_result_that_was_to_be_json_and_is_not_fails(bench):
    result = bench.run(plan(one={"run": "echo hi", "output": "json", "on_failure": "abort"}))
    assert "was to print JSON" in result.detail


def test_an_agent_that_reports_an_error_has_failed(bench):
    (bench.workspace / "a.json").write_text('{"is_error": true, "result": "overloaded"}')
    assert "overloaded" in bench.run(plan(one={"run": "cat a.json", "on_failure": "abort"})).detail


def test_a_budget_that_is_used_up_waits_after_the_result_is_kept(bench):
    """Proves E6."""
    (bench.workspace / "a.json").write_text('{"result": "x", "usage": {"input_tokens": 60, "output_tokens": 0}}')
    flow = {
        "flow": "p",
        "budget": {"tokens": 100},
        "phases": {name: f"{bench.say(name)}; cat a.json" for name in ("one", "two", "three")},
    }
    result = bench.run(flow)
    assert result.status == "waiting"
    assert "used up" in result.detail
    assert bench.said == ["one", "two"]
    with bench.open() as hf:
        hf.control.raise_budget("p", {"tokens": 500}, by="ann")
    assert bench.run(flow).status == "completed"
    assert bench.said == ["one", "two", "three"]


def test_a_run_that_ended_waits_for_nothing_also_if_its_limit_was_raised_in_the_file(bench):
    """Proves E6."""
    (bench.workspace / "a.json").write_text('{"result": "x", "usage": {"input_tokens": 60, "output_tokens": 0}}')

    def flow(tokens):
        return {"flow": "p", "budget": {"tokens": tokens}, "phases": {"one": "cat a.json", "two": "cat a.json"}}

    assert bench.run(flow(50)).status == "waiting"
    assert bench.run(flow(500)).status == "completed"
    with bench.open() as hf:
        assert hf.control.waiting("p") == []


def test_functions_are_called_with_all_they_may_know(bench):
    seen = []

    def research(call):
        seen.append(call)
        call.print("looking")
        return {"summary": "found", "n": 5, "usage": {"input_tokens": 3, "output_tokens": 4}}

    flow = {
        "flow": "p",
        "params": {"goal": "win"},
        "agents": {"r": {"call": "my:research"}},
        "phases": {
            "one": {"agent": "r", "input": {"about": "{params.goal}"}},
            "two": "echo $HOLDFAST_PHASES_ONE_RESULT_N $HOLDFAST_PHASES_ONE_SUMMARY",
        },
    }
    result = bench.run(flow, functions={"my:research": research})
    assert result.results["two"] == "5 found"
    (call,) = seen
    assert (call.input, call.params, call.phase, call.workspace) == (
        {"about": "win"},
        {"goal": "win"},
        "one",
        bench.workspace,
    )
    assert ("task_output", "one/one") in bench.kinds()


def test_functions_that_are_not_there_are_all_named_before_anything_runs(bench):
    flow = plan(one=bench.say("x"), two={"call": "no.such:thing"}, three={"call": "os.path:jion"})
    with pytest.raises(FlowInvalid) as caught:
        bench.run(flow)
    assert "phases.two.call: 'no.such:thing': 'no.such' is not imported" in str(caught.value)
    assert "holdfast run --import no.such" in str(caught.value)
    assert "did you mean 'join'?" in str(caught.value)
    assert bench.said == []


def test_a_scripted_agent_gives_its_answers_in_turn_over_lives(bench):
    flow = {
        "flow": "p",
        "agents": {
            "fake": {
                "script": [
                    "first",
                    {
                        "output": "second",
                        "files": {"made/x.txt": "hello"},
                        "usage": {"input_tokens": 1, "output_tokens": 1},
                    },
                    {"fail": "no"},
                ]
            }
        },
        "phases": {
            "one": {"agent": "fake"},
            "wait": {"approve": "Continue?"},
            "two": {"agent": "fake"},
            "three": {"agent": "fake", "on_failure": "abort"},
        },
    }
    assert bench.run(flow).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    result = bench.run(flow)
    assert result.results == {"one": "first", "wait": {}, "two": "second"}
    assert (bench.workspace / "made" / "x.txt").read_text() == "hello"
    assert "no" in result.detail


def test_artifacts_are_kept_with_their_phase_and_a_missing_one_is_a_failure(bench):
    result = bench.run(
        plan(
            one={
                "run": "mkdir out; echo a > out/a.md; echo b > out/b.md",
                "artifacts": ["out/*.md"],
                "summary": "wrote {result}{tasks.one.exit_code}",
            }
        )
    )
    assert result.status == "completed"
    with bench.open() as hf:
        state = hf.latest("plan").section("phases").phases["one"]
        assert [one.path for one in state.artifacts] == ["out/a.md", "out/b.md"]
        assert state.summary == "wrote 0"
    result = bench.run({"flow": "b", "phases": {"one": {"run": "true", "artifacts": "no.md", "on_failure": "abort"}}})
    assert "was to make 'no.md'" in result.detail


@pytest.mark.parametrize("gates", [[], ["true"]])
@pytest.mark.parametrize("agent", [None, "coder"])
def test_a_missing_artifact_is_a_failed_try_like_any_other(bench, gates, agent):
    task = {
        "run": f"{bench.say('try')}; test $(wc -l < '{bench.log}') -lt 3 || touch made",
        "artifacts": "made",
        "retries": 2,
        "backoff": 0,
        "gates": gates,
    }
    result = bench.run(plan(one=task if agent is None else {**task, "agent": agent}))
    assert (result.status, bench.said) == ("completed", ["try"] * 3)
    assert len(bench.kinds("task_retry")) == 2
    result = bench.run({"flow": "b", "phases": {"one": {**task, "artifacts": "no.md", "on_failure": "abort"}}})
    assert "was to make 'no.md'" in result.detail
    assert len(bench.kinds("task_retry")) == 2


def test_environment_and_folder_are_those_of_the_task(bench):
    (bench.workspace / "sub").mkdir()
    flow = {
        "flow": "p",
        "env": {"A": "flow", "B": "flow"},
        "phases": {
            "one": {
                "run": 'echo "$A $B $C $(basename "$PWD") $HOLDFAST_PHASE"',
                "env": {"B": "task", "C": "{run.id} $(x)"},
                "cwd": "sub",
            }
        },
    }
    assert bench.run(flow).results["one"] == "flow task p $(x) sub one"


class Died(BaseException):
    """The end of a process, as far as one process can show it."""


def test_a_step_with_an_effect_whose_end_is_not_known_is_asked_about(bench):
    def die(call):
        raise Died

    flow = plan(one={"call": "my:die", "effect": "mail sent"})
    with pytest.raises(Died):
        bench.run(flow, functions={"my:die": die})
    result = bench.run(flow, functions={"my:die": lambda _: "ok"})
    assert result.status == "waiting"
    assert "mail sent" in result.detail
    with bench.open() as hf:
        hf.control.answer("plan", "retry")
    assert bench.run(flow, functions={"my:die": lambda _: "ok"}).results["one"] == "ok"


@pytest.mark.parametrize("alone", [True, False])
def test_a_step_that_happened_is_skipped_with_what_the_person_knows_of_it(bench, alone):
    def die(call):
        raise Died

    task = {"call": "my:die", "effect": "mail sent"}
    flow = plan(
        one=task if alone else {"tasks": {"one": task, "other": "true"}},
        two="echo $HOLDFAST_PHASES_ONE_TASKS_ONE_RESULT",
    )
    with pytest.raises(Died):
        bench.run(flow, functions={"my:die": die})
    bench.run(flow, functions={"my:die": die})
    with bench.open() as hf:
        hf.control.answer("plan", "skip", value="message 7")
    result = bench.run(flow, functions={"my:die": die})
    assert (result.results["two"], result.phases["one"]) == ("message 7", "completed")
    said = [kind for kind, place in bench.kinds() if place == "one/one" and kind.startswith("task_")]
    assert (said, result.tasks_done) == (["task_skipped"], len(bench.kinds("task_done")))


def test_a_checkpoint_stands_before_a_destructive_task(bench):
    """Proves A1."""
    bench.run(plan(push={"run": "true", "destructive": "git_push"}))
    with bench.open() as hf:
        assert "before_destructive" in [one.trigger for one in hf.checkpoints("plan")]


def test_files_that_a_task_wrote_are_in_the_checkpoint_of_its_result(bench):
    """Proves X1."""
    bench.run(plan(one="echo hello > a.txt", two="echo bye > a.txt"))
    with bench.open() as hf:
        (done,) = [one for one in hf.checkpoints("plan") if one.reason == "step one/one done"]
        assert done.read("a.txt") == b"hello\n"


def test_a_run_id_of_another_flow_is_refused(bench):
    bench.run(plan(one="true"), run_id="r1")
    with pytest.raises(UsageError, match="run 'r1' belongs to flow 'plan', not 'other'"):
        bench.run({"flow": "other", "phases": {"one": "true"}}, run_id="r1")
    with bench.open() as hf:
        hf.run("r2").checkpoint(state=1)
    with pytest.raises(UsageError, match="was not begun by a flow"):
        bench.run(plan(one="true"), run_id="r2")


def test_parameters_are_bound_once_and_kept_over_lives(bench):
    flow = {
        "flow": "p",
        "params": {"goal": None, "n": 3},
        "phases": {"ask": {"approve": "ok?"}, "one": "echo $HOLDFAST_PARAMS_GOAL $HOLDFAST_PARAMS_N"},
    }
    with pytest.raises(FlowInvalid, match=r"params.goal: it has no default"):
        bench.run(flow)
    with pytest.raises(FlowInvalid, match="did you mean 'goal'"):
        bench.run(flow, params={"gaol": 1})
    assert bench.run(flow, params={"goal": "a; b"}).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    assert bench.run(flow).results["one"] == "a; b 3"


def test_an_observer_that_fails_does_not_stop_the_work(bench):
    def broken(event):
        raise BrokenPipeError

    assert bench.run(plan(one="echo hi"), observer=broken).status == "completed"


def test_a_cancelled_run_ends_and_stays_so(bench):
    flow = plan(one="sleep 0.4", two="sleep 0.4", three=bench.say("three"))

    def cancel(event):
        if event.kind == "phase_done" and event.phase == "one":
            with bench.open() as hf:
                hf.control.cancel("plan", by="ann")

    result = bench.run(flow, observer=cancel)
    assert result.status == "cancelled"
    assert bench.run(flow).status == "cancelled"
    assert bench.said == []


def test_a_flow_made_in_python_is_checked_like_a_file(bench):
    with bench.open() as hf:
        result = run_flow(hf, Flow(name="p", phases={"one": Phase(run="echo hi")}))
        assert result.results == {"one": "hi"}
        with pytest.raises(FlowInvalid, match=r"there is no 'nothing\.here'"):
            run_flow(hf, Flow(name="q", phases={"one": Phase(run=["echo", "{nothing.here}"])}))


def test_a_flow_with_routes_stands_in_states_with_a_history(bench):
    """Proves A4."""
    flow = {
        "flow": "p",
        "phases": {
            "PLANNING": {"run": "true", "next": "WORKING"},
            "WORKING": {"run": "true", "next": [{"to": "PLANNING", "when": "phases.WORKING.visits < 2"}, "REVIEW"]},
            "REVIEW": {"approve": "ok?", "next": "end"},
        },
    }
    assert bench.run(flow).status == "waiting"
    with bench.open() as hf:
        workflow = hf.latest("p").section("workflow")
        assert (workflow.current_state, workflow.previous_state) == ("REVIEW", "WORKING")
        assert [one.state for one in workflow.history] == ["PLANNING", "WORKING", "PLANNING", "WORKING", "REVIEW"]
        hf.control.answer("p", "approve")
    assert bench.run(flow).status == "completed"
    with bench.open() as hf:
        assert hf.latest("p").section("workflow").current_state == "COMPLETE"
        assert "state_transition" in [one.trigger for one in hf.checkpoints("p")]


def test_the_subject_is_read_at_the_start_of_each_life_and_its_changes_are_said(bench):
    """Proves C2."""
    issue = bench.folder / "issue.json"
    issue.write_text('{"title": "Login", "body": "do it", "labels": ["a"]}')
    flow = {
        "flow": "p",
        "subject": {"issue": 42, "read": f"cat '{issue}'"},
        "phases": {"ask": {"approve": "ok?"}, "one": "echo $HOLDFAST_SUBJECT_TITLE $HOLDFAST_SUBJECT_ISSUE"},
    }
    bench.run(flow)
    issue.write_text('{"title": "Login!", "body": "do it", "labels": ["b"]}')
    with bench.open() as hf:
        assert hf.latest("p").section("subject").labels == ["a"]
        hf.control.answer("p", "approve")
    assert bench.run(flow).results["one"] == "Login! 42"
    (changed,) = [event for event in bench.events if event.kind == "subject_changed"]
    assert changed.data == {"fields": ["title", "labels"]}
    issue.unlink()
    with pytest.raises(SubjectUnavailable):
        bench.run({**flow, "flow": "q"}, run_id="q")


@pytest.mark.parametrize("answer", ["resume", "stop"])
def test_a_subject_whose_text_changed_is_asked_about_before_a_flow_continues(bench, answer):
    """Proves C15: the verdict on a flow's own subject is the one that every resume has."""
    issue = bench.folder / "issue.json"
    issue.write_text('{"title": "Login", "body": "OAuth"}')
    flow = {
        "flow": "p",
        "subject": {"issue": 42, "read": f"cat '{issue}'"},
        "phases": {"ask": {"approve": "ok?"}, "one": "echo $HOLDFAST_SUBJECT_ISSUE"},
    }
    bench.run(flow)
    with bench.open() as hf:
        hf.control.answer("p", "approve")
    issue.write_text('{"title": "Login", "body": "SAML"}')
    asked = bench.run(flow)
    assert asked.status == "waiting"
    with bench.open() as hf:
        [wait] = hf.control.waiting("p")
        assert "the text of '42' changed" in wait.question
        assert hf.latest("p").section("subject").body == "OAuth", "it is taken over when that was decided"
        hf.control.answer("p", answer, wait=wait.id)
    if answer == "stop":
        with pytest.raises(CannotResume, match="the text of '42' changed"):
            bench.run(flow)
        return
    assert bench.run(flow).results["one"] == 42
    with bench.open() as hf:
        assert hf.latest("p").section("subject").body == "SAML"


def test_a_team_is_kept_in_step_with_what_its_members_do(bench):
    """Proves C3."""
    flow = {
        "flow": "p",
        "team": {"members": {"ann": "coder", "bob": "reviewer"}},
        "phases": {"one": {"agent": "ann", "run": "true"}},
    }
    bench.run(flow)
    with bench.open() as hf:
        members = {one.agent: (one.role, one.tasks_completed) for one in hf.latest("p").section("team").members}
    assert members == {"ann": ("coder", 1), "bob": ("reviewer", 0)}


def test_a_budget_of_a_phase_stops_that_phase(bench):
    (bench.workspace / "a.json").write_text('{"result": "x", "usage": {"input_tokens": 60, "output_tokens": 0}}')
    tasks = {
        name: {"run": f"{bench.say(name)}; cat a.json", **need}
        for name, need in (("a", {}), ("b", {"needs": "a"}), ("c", {"needs": "b"}))
    }
    flow = plan(cheap={"tasks": tasks, "budget": {"tokens": 100}}, rest=bench.say("rest"))
    result = bench.run(flow)
    assert result.status == "waiting"
    assert "phase:cheap/tokens is used up" in result.detail
    assert bench.said == ["a", "b"]
    assert bench.run(flow).status == "waiting"
    assert bench.said == ["a", "b"]
    with bench.open() as hf:
        hf.control.raise_budget("plan", {"tokens": 100})
    assert bench.run(flow).status == "completed"


def test_a_budget_warning_asks_a_person_if_the_flow_says_so(bench):
    """Proves E6."""
    (bench.workspace / "a.json").write_text('{"result": "x", "usage": {"input_tokens": 90, "output_tokens": 0}}')
    flow = {
        "flow": "p",
        "budget": {"tokens": 100, "on_warning": "ask"},
        "phases": {"one": "cat a.json", "two": bench.say("two")},
    }
    result = bench.run(flow)
    assert "nearly used up" in result.detail
    assert bench.kinds("budget_warning")
    with bench.open() as hf:
        hf.control.answer("p", "continue")
    assert bench.run(flow).status == "completed"


@pytest.mark.parametrize("gates", [[], ["true"]])
def test_retries_are_counted(bench, gates):
    work = f"{bench.say('t')}; test $(wc -l < '{bench.log}') -ge 3"
    bench.run(plan(one={"run": work, "retries": 5, "backoff": 0, "gates": gates}))
    with bench.open() as hf:
        assert hf.latest("plan").section("budget").spending["retries"].used == 2


def test_names_that_sound_like_secrets_do_not_break_a_resume(bench):
    """Proves E7."""
    tasks = {"token-refresh": "echo a", "sign": {"run": "echo b", "gates": ["true"]}, "session-key": "echo c"}
    flow = {
        "flow": "auth",
        "phases": {
            "auth": {"tasks": tasks},
            "api-keys": {"approve": "ok?"},
            "jwt": "echo $HOLDFAST_PHASES_AUTH_TASKS_SIGN_RESULT",
        },
    }
    assert bench.run(flow).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("auth", "approve")
    result = bench.run(flow)
    assert (result.status, result.changes.is_same, result.results["jwt"]) == ("completed", True, "b")
    with pytest.raises(FlowInvalid, match="kept out of checkpoints"):
        bench.run({"flow": "x", "phases": {"credentials": "true"}})


def test_a_secret_parameter_is_not_stored_and_has_to_be_given_again(bench):
    """Proves E7."""
    flow = {
        "flow": "p",
        "params": {"api_key": None},
        "phases": {"ask": {"approve": "ok?"}, "one": {"run": "echo ${#K}", "env": {"K": "{params.api_key}"}}},
    }
    assert bench.run(flow, params={"api_key": "s3cr3t-value"}).status == "waiting"
    with bench.open() as hf:
        assert "s3cr3t" not in repr(hf.latest("p").section("flow"))
        hf.control.answer("p", "approve")
    with pytest.raises(FlowInvalid, match="give it again"):
        bench.run(flow)
    assert bench.run(flow, params={"api_key": "s3cr3t-value"}).results["one"] == 12


def test_a_blocking_run_goes_on_when_somebody_answers(bench):
    def answer(event):
        if event.kind == "waiting":
            threading.Thread(target=lambda: answering(bench)).start()

    def answering(bench):
        with bench.open() as hf:
            while not hf.has("plan") or not hf.control.waiting("plan"):
                threading.Event().wait(0.01)
            hf.control.answer("plan", "approve", by="ann")

    result = bench.run(
        plan(one="true", ship={"approve": "Push?", "run": bench.say("push")}), observer=answer, waiting="block"
    )
    assert (result.status, bench.said) == ("completed", ["push"])


def test_each_visit_of_a_phase_has_rounds_of_its_own(bench):
    flow = {
        "flow": "p",
        "phases": {
            "loop": {
                "run": f"{bench.say('x')}; echo $HOLDFAST_ROUND",
                "repeat": {"until": "round in [2, 4]", "limit": 2},
            },
            "back": {"run": "true", "next": [{"to": "loop", "when": "phases.loop.visits < 2"}, "end"]},
        },
    }
    assert bench.run(flow).status == "completed"
    assert bench.said == ["x"] * 4


def test_a_condition_that_does_not_fit_what_it_meets_stops_the_run_and_says_why(bench):
    flow = plan(one="echo text", two={"run": "true", "when": "phases.one.result.done"})
    result = bench.run(flow)
    assert result.status == "failed"
    assert "there is no 'phases.one.result.done': phases.one.result is a plain value" in result.detail
    flow["phases"]["two"]["when"] = "phases.one.result == 'text'"
    assert bench.run(flow).status == "completed"


def test_an_artifact_that_is_gone_is_made_again_by_a_resume(bench):
    """Proves F2."""
    tasks = {"a": {"run": "touch made", "artifacts": "made"}, "b": {"run": "test -e ok", "needs": "a"}}
    flow = {**plan(p={"tasks": tasks}), "on_failure": "abort"}
    assert bench.run(flow).status == "failed"
    (bench.workspace / "made").unlink()
    (bench.workspace / "ok").touch()
    assert bench.run(flow).status == "completed"
    assert (bench.workspace / "made").exists()


def test_without_checkpoints_a_flow_still_runs(bench):
    with holdfast.open(bench.store, enabled=False) as hf:
        assert bench.run(plan(one="echo hi", two="echo $HOLDFAST_PHASES_ONE_RESULT"), hf=hf).results["two"] == "hi"
        assert not hf.has("plan")


@pytest.mark.parametrize("gates", [[], ["true"]])
def test_an_agent_whose_work_was_not_what_it_was_to_be_is_asked_once_more(bench, gates):
    script = [{"output": "forgot it"}, {"output": "made it", "files": {"made": "x"}}]
    flow = {
        "flow": "p",
        "agents": {"fake": {"script": script}},
        "phases": {"one": {"agent": "fake", "artifacts": "made", "gates": gates, "on_failure": {"do": "retry"}}},
    }
    assert bench.run(flow).results == {"one": "made it"}


def test_a_fix_by_an_agent_is_done_anew_when_the_failed_task_is_tried_again(bench):
    fix = {"agent": "fixer", "input": "go"}
    flow = {
        "flow": "p",
        "agents": {
            "fixer": f"{bench.say('fix')}; test $(wc -l < '{bench.log}') -lt 2 || touch fixed; : $HOLDFAST_INPUT"
        },
        "phases": {
            "one": {"run": "true", "gates": ["test -e fixed"], "fix": fix, "max_fixes": 1, "on_failure": "abort"}
        },
    }
    assert bench.run(flow).status == "failed"
    assert (bench.run(flow).status, bench.said) == ("completed", ["fix", "fix"])


def test_what_a_failed_agent_spent_is_counted(bench):
    said = {"is_error": True, "result": "overloaded", "usage": {"input_tokens": 7, "output_tokens": 0}}
    (bench.workspace / "a.json").write_text(json.dumps(said))
    bench.run(plan(one={"agent": "a", "run": "cat a.json", "on_failure": "abort"}, two={"run": "true"}))
    with bench.open() as hf:
        assert hf.latest("plan").section("budget").spending["tokens"].used == 7


def test_a_person_may_stop_a_run_at_its_budget_and_carry_it_on_later(bench):
    (bench.workspace / "a.json").write_text('{"result": "x", "usage": {"input_tokens": 60, "output_tokens": 0}}')
    flow = {"flow": "p", "budget": {"tokens": 50}, "phases": {"one": "cat a.json", "two": bench.say("two")}}
    assert bench.run(flow).status == "waiting"
    with bench.open() as hf:
        hf.control.answer("p", "stop")
    result = bench.run(flow)
    assert (result.status, bench.said) == ("failed", [])
    assert "tokens used 60 of 50" in result.detail
    assert bench.run(flow).status == "waiting"
    with bench.open() as hf:
        hf.control.raise_budget("p", {"tokens": 100})
    assert bench.run(flow).status == "completed"


@pytest.mark.parametrize("output", ["", ">/dev/null 2>&1"], ids=["holds its output", "closed its output"])
def test_what_a_task_leaves_in_the_background_ends_with_it_and_that_is_said(bench, output):
    result = bench.run(plan(one=f"sleep 60 {output} & echo begun"))
    assert result.results == {"one": "begun"}
    (told,) = [event for event in bench.events if event.kind == "background_ended"]
    assert (told.phase, told.task) == ("one", "one")
    assert told.text.startswith("sleep still ran")


def test_a_task_that_leaves_nothing_behind_says_nothing_of_it(bench):
    bench.run(plan(one="sleep 0.01 & wait; yes | head -n 1", two="true"))
    assert not bench.kinds("background_ended")
