"""`holdfast run`: a flow is begun, resumed, waits, fails, starts fresh; lines, a live view, events for machines."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast.cli.commands.run import way_on
from holdfast.flow.events import Event

THREE = """\
flow: three
params: {who: world}
phases:
  one: echo one >> log; echo first
  two: echo two >> log; echo hello $HOLDFAST_PARAMS_WHO
  three: echo three >> log; cat from >> log
"""
ASKS = """\
flow: asks
phases:
  build: echo build >> log
  push: {run: echo push >> log, approve: push it?}
"""


@pytest.fixture
def flow(project):
    (project / "from").write_text("file\n")
    (project / "three.yaml").write_text(THREE)
    (project / "asks.yaml").write_text(ASKS)
    (project / "mine.py").write_text("def work(call):\n    return call.params\n")
    return project


def log(project):
    return (project / "log").read_text().split()


def test_a_flow_runs_to_its_end_and_says_each_phase(hf, flow):
    done = hf("run", "three.yaml")
    assert done.code == 0
    assert "phase done two" in done.out
    assert "hello world" in done.out
    assert done.out.endswith("completed three\n")
    assert "3 tasks done." in done.err
    assert log(flow) == ["one", "two", "three", "file"]
    assert (flow / ".holdfast" / "holdfast.db").exists()


def test_files_are_in_its_checkpoints_unless_they_are_not_wanted(hf, flow):
    hf("run", "three.yaml")
    assert hf("cat", "three:log").out == "one\ntwo\nthree\nfile\n"
    assert hf("run", "three.yaml", "--run-id", "bare", "--no-files").code == 0
    assert hf("cat", "bare:log").code == 2


def test_parameters_are_json_or_text(hf, flow):
    assert "hello ann" in hf("run", "three.yaml", "--param", "who=ann").out
    text = "flow: both\nparams: {n: 1, t: x}\nphases: {p: 'echo $HOLDFAST_PARAMS_N', q: 'echo $HOLDFAST_PARAMS_T'}\n"
    (flow / "both.yaml").write_text(text)
    done = hf("run", "both.yaml", "--param", "n=[1, 2]", "--param", "t=a=b", "--json")
    assert json.loads(done.out.splitlines()[-1])["results"] == {"p": [1, 2], "q": "a=b"}
    assert hf("run", "three.yaml", "--param", "who").code == 2
    unknown = hf("run", "three.yaml", "--run-id", "other", "--param", "whom=x")
    assert (unknown.code, "did you mean" in unknown.err or "who" in unknown.err) == (2, True)


def test_events_for_machines_are_one_a_line_and_the_result_is_the_last(hf, flow):
    done = hf("run", "three.yaml", "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-2:]) == ("flow_started", ["flow_done", "result"])
    assert kinds.count("phase_done") == 3
    assert "checkpoint" in kinds
    result = events[-1]
    assert (result["status"], result["exit_code"], result["tasks_done"]) == ("completed", 0, 3)
    assert done.err == ""


def test_quiet_says_only_how_it_ended(hf, flow):
    assert hf("run", "three.yaml", "-q") == (0, "completed three\n", "")


def test_verbose_shows_what_tasks_print_without_what_a_terminal_would_obey(hf, flow):
    (flow / "loud.yaml").write_text("flow: loud\nphases:\n  p: printf 'said \\033[2Jx'\n")
    out = hf("run", "loud.yaml", "-v").out
    assert "| said" in out
    assert "\x1b[2J" not in out


def test_a_terminal_gets_a_live_view_that_is_drawn_over_itself(hf, flow):
    done = hf("run", "three.yaml", terminal=True)
    assert done.code == 0
    assert "\x1b[2K" in done.out
    assert "✓ two" in done.out


def test_a_failed_flow_is_carried_on_by_the_same_line(hf, flow):
    (flow / "from").unlink()
    with holdfast.open():
        pass
    failed = hf("run", "three.yaml", "--no-wait")
    assert (failed.code, "waiting three" in failed.out) == (9, True)
    (flow / "from").write_text("fixed\n")
    assert hf("answer", "retry", "three").code == 0
    done = hf("run", "three.yaml")
    assert done.code == 0
    assert "Found a checkpoint" in done.err
    assert "2 of 3 phases done (one, two)" in done.err
    assert "2 kept from before" in done.err
    assert log(flow) == ["one", "two", "three", "three", "fixed"]


def test_a_flow_that_aborts_says_so_by_its_exit_code(hf, flow):
    (flow / "bad.yaml").write_text("flow: bad\non_failure: abort\nphases:\n  p: 'exit 3'\n")
    done = hf("run", "bad.yaml")
    assert done.code == 8
    assert "failed bad: stopped at phase p" in done.out


def test_a_person_is_asked_to_resume_and_what_the_run_waits_for(hf, flow):
    """Proves B3, B5 as a person sees them."""
    asked = hf("run", "asks.yaml", terminal=True, stdin=b"later\n")
    assert asked.code == 9
    assert "push it?" in asked.err
    done = hf("run", "asks.yaml", terminal=True, stdin=b"y\napprove\n")
    assert done.code == 0
    assert log(flow) == ["build", "push"]


def test_a_person_is_asked_for_the_amount_that_a_used_up_budget_is_raised_by(hf, flow):
    """Proves E6 as a person sees it."""
    text = """flow: spends\nbudget: {tokens: 100}\nphases: {a: cat a.json, b: cat a.json, c: cat a.json}\n"""
    (flow / "spends.yaml").write_text(text)
    (flow / "a.json").write_text('{"result": "x", "usage": {"total_tokens": 100}}')
    left = hf("run", "spends.yaml", terminal=True, stdin=b"raise\n\n")
    assert (left.code, "Raise tokens by how much?" in left.err) == (9, True)
    done = hf("run", "spends.yaml", "--resume", terminal=True, stdin=b"raise\nmuch\n50\nlimit\n1_000\n")
    assert done.code == 0
    assert "'much' is not an amount" in done.err
    assert "The new limit of tokens?" in done.err


@pytest.mark.parametrize("phase", ["{approve: 'Go?', run: 'true'}", "'false'"], ids=["approval", "failed"])
def test_without_a_terminal_a_run_that_needs_a_person_leaves_and_says_what_to_type(hf, flow, phase):
    """Proves F6."""
    (flow / "asks.yaml").write_text(f"flow: asks\nphases: {{a: {phase}}}\n")
    left = hf("run", "asks.yaml")
    assert left.code == 9
    command = next(line for line in left.err.splitlines() if line.startswith("`holdfast answer")).split("`")[1]
    assert hf(*command.split()[1:]).code == 0


def test_without_a_terminal_a_used_up_budget_leaves_and_says_what_to_type(hf, flow):
    """Proves F6."""
    (flow / "spends.yaml").write_text("flow: spends\nbudget: {tokens: 10}\nphases: {a: cat a.json, b: cat a.json}\n")
    (flow / "a.json").write_text('{"result": "x", "usage": {"total_tokens": 100}}')
    left = hf("run", "spends.yaml")
    assert (left.code, "`holdfast budget spends tokens+=MORE`" in left.err) == (9, True)


def test_without_a_terminal_a_time_is_waited_for(hf, flow):
    """Proves F6: a rate limit needs nobody."""
    limited = 'test -e asked || { touch asked; echo \'{"is_error": true, "result": "busy", "retry_after": 3}\'; }'
    (flow / "busy.yaml").write_text(json.dumps({"flow": "busy", "phases": {"a": {"run": limited, "retries": 1}}}))
    assert hf("run", "busy.yaml").code == 0


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"yes\n", 0), (b"n\n", 8)])
def test_yes_and_no_are_answers_to_a_question_on_a_terminal(hf, flow, answer, code):
    assert hf("run", "asks.yaml", terminal=True, stdin=answer).code == code


def test_a_run_that_is_told_to_wait_says_the_command_that_answers_it(hf, flow):
    """Proves E6 as a person sees it."""
    line = [sys.executable, "-m", "holdfast", "run", "asks.yaml", "--wait"]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = next(line.strip() for line in process.stdout if "holdfast answer" in line)
            assert said == "`holdfast answer approve asks` answers, or with reject."
            assert hf(*said.split("`")[1].split()[1:]).code == 0
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, log(flow)) == (0, ["build", "push"])


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"wait": "approve:p", "wait_kind": "approval", "options": ["approve", "reject"]},
         "`holdfast answer approve r` answers, or with reject."),
        ({"wait": "budget:tokens:1", "wait_kind": "budget", "options": ["raise"], "budget": "tokens"},
         "`holdfast budget r tokens+=MORE` raises it."),
        ({"wait": "step:p/t:1", "wait_kind": "uncertain", "options": ["retry", "skip", "stop"]},
         "`holdfast answer retry r --wait step:p/t:1` answers, or with skip or stop."),
        ({"wait": "pause:1", "wait_kind": "pause", "options": []}, "`holdfast resume r` lets it continue."),
        ({"wait": "cooldown:1", "wait_kind": "cooldown", "options": []}, ""),
    ],
)  # fmt: skip
def test_each_wait_has_its_way_on(event, said):
    assert way_on(Event(kind="waiting", at=datetime.now(UTC), data=event), "r") == said


def test_a_question_of_a_task_is_named_because_there_may_be_several():
    data = {"wait": "approve:p/a b", "wait_kind": "approval", "options": ["approve"]}
    asked = Event(kind="waiting", at=datetime.now(UTC), phase="p", task="a b", data=data)
    assert way_on(asked, "my run") == "`holdfast answer approve 'my run' --wait 'approve:p/a b'` answers."


def test_a_person_who_declines_starts_afresh_and_the_old_line_is_archived(hf, flow):
    """Proves B3: and is told so beforehand."""
    hf("run", "asks.yaml", "--no-wait")
    done = hf("run", "asks.yaml", terminal=True, stdin=b"n\napprove\n")
    assert "Resume it (n sets it aside and starts over)? [Y/n]" in done.err
    assert done.code == 0
    assert log(flow) == ["build", "build", "push"]
    with holdfast.open() as store:
        assert any(one.status == "archived" for one in store.checkpoints("asks", archived=True))


def test_what_a_process_did_before_it_asked_is_done_and_not_kept(hf, flow):
    """Proves B9 as a person sees it."""
    (flow / "twice.yaml").write_text(
        "flow: twice\nphases: {one: echo 1, two: {run: echo 2, approve: two?}, three: {run: echo 3, approve: three?}}\n"
    )
    done = hf("run", "twice.yaml", terminal=True, stdin=b"approve\napprove\n")
    assert done.code == 0
    assert "3 tasks done." in done.err
    assert "kept from before" not in done.err


def test_a_run_that_is_left_waiting_says_how_its_question_is_answered(hf, flow):
    """Proves E6 as a person sees it."""
    left = hf("run", "asks.yaml", "--no-wait")
    assert "`holdfast answer approve asks` answers, or with reject; then run it again." in left.err
    hf("pause", "asks")
    paused = hf("run", "asks.yaml", "--no-wait")
    assert "waiting paused by" in paused.out
    assert "`holdfast resume asks` continues it." in paused.err
    assert hf("resume", "asks").code == 9, "it continues, and waits for the approval"
    assert hf("approve", "asks").code == 0
    assert hf("run", "asks.yaml", "--no-wait").code == 0


def test_a_phase_that_is_done_is_shown_as_done_after_a_resume(hf, flow):
    """Proves B3 as a person sees it."""
    hf("run", "asks.yaml", "--no-wait")
    assert "= build  kept from before" in hf("run", "asks.yaml", "--resume", terminal=True, stdin=b"approve\n").out


def test_fresh_and_resume_do_not_ask(hf, flow):
    hf("run", "asks.yaml", "--no-wait")
    assert hf("run", "asks.yaml", "--no-wait", "--resume", terminal=True).code == 9
    assert log(flow) == ["build"]
    assert hf("run", "asks.yaml", "--no-wait", "--fresh", terminal=True).code == 9
    assert log(flow) == ["build", "build"]
    assert hf("run", "asks.yaml", "--fresh", "--resume").code == 2


@pytest.mark.parametrize("fresh", [("run", "three.yaml", "--fresh"), ("resume", "three", "--fresh", "--yes")])
def test_a_flow_that_starts_fresh_begins_again_and_stays_its_own(hf, flow, fresh):
    assert hf("run", "three.yaml").code == 0
    assert hf(*fresh).code == 0
    assert hf("run", "three.yaml", terminal=True).code == 0, "nothing is asked of a run that only begins"
    assert log(flow).count("one") == 2
    with holdfast.open() as store:
        store.recovery.start_fresh("three")
        tip = store.latest("three").id
    assert hf("run", "three.yaml", "--fresh").code == 0
    assert log(flow).count("one") == 3
    with holdfast.open() as store:
        assert tip in [one.id for one in store.checkpoints("three")], "what had not begun is not set aside"


def test_a_run_without_a_checkpoint_starts_fresh_too(hf, flow):
    (flow / "holdfast.yaml").write_text("automatic: false\n")
    assert hf("run", "asks.yaml", "--no-wait").code == 9
    assert hf("run", "asks.yaml", "--no-wait").code == 9
    assert log(flow) == ["build"]
    assert hf("run", "asks.yaml", "--no-wait", "--fresh").code == 9
    assert log(flow) == ["build", "build"]


def test_what_is_there_is_set_aside_only_for_a_flow_that_can_begin(hf, flow):
    (flow / "needs.yaml").write_text(
        "flow: needs\nparams: {who: {}}\nphases:\n  p: {run: 'false', approve: '{params.who}?'}\n"
    )
    run = ["run", "needs.yaml", "--no-wait", "--run-id", "needs"]
    assert hf(*run, "--param", "who=ann").code == 9
    assert hf(*run, "--fresh").code == 2
    assert hf(*run).code == 9
    with holdfast.open() as store:
        assert not [one for one in store.checkpoints("needs", archived=True) if one.status == "archived"]


def test_a_finished_run_has_nothing_left_to_do(hf, flow):
    hf("run", "three.yaml")
    again = hf("run", "three.yaml")
    assert (again.code, "it was over already" in again.out) == (0, True)
    assert "--fresh starts it again" in again.err
    assert log(flow) == ["one", "two", "three", "file"]


def test_a_cancelled_run_stays_so_until_it_starts_fresh(hf, flow):
    hf("run", "asks.yaml", "--no-wait")
    assert hf("cancel", "asks", "--yes").code == 0
    assert hf("run", "asks.yaml", "--no-wait").code == 10
    assert hf("run", "asks.yaml", "--no-wait", "--fresh").code == 9


def test_a_run_that_another_process_moves_is_left_alone(hf, flow):
    hf("run", "asks.yaml", "--no-wait")
    with holdfast.open() as store, store.run("asks", waiting="leave"):
        held = hf("run", "asks.yaml", "--no-wait")
    assert held.code == 4
    assert "pid" in held.err


def test_a_plan_in_markdown_runs_its_blocks_or_the_command_that_is_given(hf, flow):
    (flow / "plan.md").write_text(
        "# P\n\n## Phase 1: Read\n\n```sh\necho read >> log\n```\n\n## Phase 2: Write\n\nit\n"
    )
    refused = hf("run", "plan.md")
    assert (refused.code, "phase 2 has no" in refused.err) == (2, True)
    assert hf("run", "plan.md", "--agent", 'echo "$HOLDFAST_INPUT" | head -n 1 >> log').code == 0
    assert log(flow) == ["read", "Write"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flow: f\nphases:\n  p: {rum: x}\n", "did you mean 'run'"),
        ("flow: f\nphases: [\n", "bad.yaml"),
        ("flow: f\nphases:\n  p: {agent: nobody}\n", "nobody"),
    ],
)
def test_a_flow_that_cannot_be_followed_is_refused_before_anything_runs(hf, flow, text, said):
    (flow / "bad.yaml").write_text(text)
    done = hf("run", "bad.yaml")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_nothing_is_imported_because_a_flow_names_it(hf, flow):
    (flow / "calls.yaml").write_text("flow: calls\nphases: {p: {call: mine:work}}\n")
    done = hf("run", "calls.yaml")
    assert (done.code, done.out) == (2, "")
    assert "line 2, phases.p.call: 'mine:work': 'mine' is not imported" in done.err
    assert "holdfast run --import mine" in done.err


LOUD = """\
import subprocess, sys, threading

def work(call):
    sys.stdout.write(f"{call.task} beg")
    print("un", flush=True)
    print("oh", file=sys.stderr)
    sys.stdout.buffer.write(b"bytes\\n")
    thread = threading.Thread(target=print, args=("beside",))
    thread.start()
    thread.join()
    print("no end", end="")
    return len(call.task)

def leave(call):
    sys.exit(3)
"""


def test_what_functions_print_is_told_by_task_and_kept(hf, flow):
    """Proves D3."""
    (flow / "loud.py").write_text(LOUD)
    both = "{one: {call: loud:work}, second: {call: loud:work}}"
    check = 'printf %s "$HOLDFAST_PHASES_P_TASKS_SECOND_OUTPUT" > kept'
    (flow / "loud.yaml").write_text(f"flow: loud\nphases: {{p: {{tasks: {both}}}, q: '{check}'}}\n")
    done = hf("run", "loud.yaml", "--import", "loud", "--json", "--no-files")
    assert done.code == 0
    events = [json.loads(line) for line in done.out.splitlines()]
    for task in ("one", "second"):
        said = [event for event in events if event["kind"] == "task_output" and event["task"] == task]
        assert f"{task} begun\n" in [event["text"] for event in said]
        assert [event["text"] for event in said if event["data"]["stream"] == "stderr"] == ["oh\n"]
    beside = sum(event.get("text") == "beside\n" for event in events)  # of a thread that is of no task: of the only one
    assert done.err == "beside\n" * (2 - beside)
    assert (flow / "kept").read_text().startswith("second begun\nbytes\n")
    assert (flow / "kept").read_text().endswith("no end")


def test_a_function_that_calls_exit_is_a_failed_task(hf, flow):
    (flow / "loud.py").write_text(LOUD)
    (flow / "leaves.yaml").write_text("flow: leaves\nphases: {p: {call: loud:leave, on_failure: skip}, q: echo on}\n")
    done = hf("run", "leaves.yaml", "--import", "loud")
    assert done.code == 0
    assert "it called sys.exit" in done.out
    assert "phase done q" in done.out


def test_a_person_names_the_modules_whose_functions_are_called(hf, flow):
    (flow / "calls.yaml").write_text("flow: calls\nparams: {n: 1, t: x}\nphases: {p: {call: mine:work}}\n")
    done = hf("run", "calls.yaml", "--param", "n=[1, 2]", "--param", "t=a=b", "--json", "--import", "mine")
    assert json.loads(done.out.splitlines()[-1])["results"] == {"p": {"n": [1, 2], "t": "a=b"}}
    assert hf("run", "calls.yaml", "--import", "no_such_module").code == 2


def test_what_is_not_there_is_said(hf, flow):
    assert hf("run", "no.yaml").code == 3
    assert "store" not in hf("run", "no.yaml").err
    assert hf("run", "no.md").code == 3
    assert hf("run", "three.yaml", "--agent", "x").code == 2
    assert hf("run", "three.yaml", "--workspace", "nowhere").code != 0


def test_resume_says_that_the_flow_is_not_what_it_was(hf, flow):
    """Proves C15."""
    (flow / "wait.yaml").write_text("flow: wait\nphases: {a: 'true', b: {approve: 'Go?', run: 'true'}}\n")
    assert hf("run", "wait.yaml", "--no-wait").code == 9
    assert "definition" not in hf("resume", "wait", "--dry-run").out
    (flow / "wait.yaml").write_text("flow: wait\nphases: {a: 'true', b: {approve: 'Go?', run: 'false'}}\n")
    assert "the flow's definition is not the one" in hf("resume", "wait", "--dry-run").out


def test_a_dry_run_says_what_a_changed_flow_would_do_and_does_nothing(hf, flow):
    (flow / "wait.yaml").write_text("flow: wait\nphases: {a: 'true', b: {approve: 'Go?', run: 'true'}}\n")
    assert "a: new, it runs" in hf("run", "wait.yaml", "--dry-run").out
    for store in ("other.db", "file:files"):
        assert "a: new, it runs" in hf("--store", store, "run", "wait.yaml", "--dry-run").out
    assert sorted(one.suffix for one in flow.iterdir()) == sorted([".yaml"] * 3 + [".py", ""])
    hf("run", "wait.yaml", "--no-wait")
    (flow / "wait.yaml").write_text("flow: wait\nphases: {a: 'true', c: 'true', b: {approve: 'Go?', run: 'false'}}\n")
    done = hf("run", "wait.yaml", "--dry-run")
    assert done.code == 0
    assert done.out.splitlines() == [
        "a: unchanged, its results are kept",
        "c: new, it runs",
        "b: changed, it runs (`run` changed)",
    ]
    phases = hf("run", "wait.yaml", "--dry-run", "--json").json["phases"]
    assert [(one["phase"], one["will"]) for one in phases] == [("a", "kept"), ("c", "runs"), ("b", "runs")]


def test_a_parameter_that_was_kept_out_of_the_store_is_asked_for(hf, flow):
    """Proves E7."""
    (flow / "key.yaml").write_text(
        "flow: key\nparams: {key: none}\nphases: {a: {approve: 'ok?'}, b: 'echo $HOLDFAST_PARAMS_KEY'}\n"
    )
    hf("run", "key.yaml", "--no-wait", "--param", "key=AKIAIOSFODNN7EXAMPLE")
    hf("approve", "key")
    refused = hf("run", "key.yaml", "--no-wait", "--resume")
    assert (refused.code, "give it again (--param key=VALUE)" in refused.err) == (2, True)
    assert hf("run", "key.yaml", "--resume", "--param", "key=AKIAIOSFODNN7EXAMPLE").code == 0


@pytest.mark.parametrize("named", [[], ["--run-id", "x"]])
def test_resume_continues_this_run_and_leaves_as_the_flow_does(hf, flow, named):
    hf("run", "asks.yaml", "--no-wait", *named)
    run = named[-1] if named else "asks"
    resumed = hf("resume", run, "--yes")
    assert (resumed.code, log(flow)) == (9, ["build"])
    hf("approve", run)
    assert hf("resume", run, "--yes").code == 0


def test_resume_continues_a_plan_with_its_agent(hf, flow):
    (flow / "plan.md").write_text("## Phase 1: one\n```sh\ntest -e go\n```\n## Phase 2: two\n")
    hf("run", "plan.md", "--no-wait", "--agent", "touch by-agent")
    (flow / "go").write_text("")
    hf("answer", "retry", *[run["id"] for run in hf("ls", "--json").json["runs"]])
    resumed = hf("resume", "--yes")
    assert (resumed.code, (flow / "by-agent").exists()) == (0, True), resumed


@pytest.mark.parametrize("on_failure", ["abort", "ask"])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_failure_is_said_once(hf, flow, on_failure, terminal):
    text = f"flow: bad\non_failure: {on_failure}\nphases: {{p: {{tasks: {{a: 'cat nothing-there', b: 'true'}}}}}}\n"
    (flow / "bad.yaml").write_text(text)
    done = hf("run", "bad.yaml", "--no-wait", terminal=terminal)
    shown = done.out.rpartition("\x1b[2K")[0].rpartition("bad · run bad")[2] if terminal else done.out
    closing = done.out.splitlines()[-1] if terminal else ""
    said = [line for line in (*shown.splitlines(), closing) if "ended with 1" in line]
    assert len(said) == 1, said
    assert "a" in said[0]
