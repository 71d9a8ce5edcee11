"""`flow` and `logs`: a flow file is checked without running it, and a task's output is read from any process."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from holdfast.flow.events import Event
from holdfast.flow.redaction import EventRedactor
from holdfast.flow.task_output import OutputFiles, Tail, outputs_in

AWS_KEY = "AKIAIOSFODNN7EXAMPLE"


def test_a_flow_is_checked_without_running_it_and_unquoted_facts_are_warned_about(hf, project):
    """Proves F4."""
    (project / "f.yaml").write_text(
        'flow: f\nparams: {x: 1}\nphases:\n  a: touch x\n  b: echo $HOLDFAST_PARAMS_X\n  c: echo "$HOLDFAST_PARAMS_X"\n'
    )
    done = hf("flow", "check", "f.yaml")
    assert done.code == 0
    assert done.out.splitlines() == [
        (
            "warning: line 5, phases.b.run: $HOLDFAST_PARAMS_X is not quoted, so the shell splits it into words: write "
            '"$HOLDFAST_PARAMS_X"'
        ),
        "f: 3 phases, 1 warning",
    ]
    assert len(hf("flow", "check", "f.yaml", "--json").json["problems"]) == 1
    assert not (project / "x").exists()
    (project / "f.yaml").write_text("flow: f\nphases: {a: 'echo {run.id}'}\n")
    refused = hf("flow", "check", "f.yaml")
    assert refused.code == 2
    assert 'echo "$HOLDFAST_RUN_ID"' in refused.err
    assert hf("flow", "check", "nothing.yaml").code == 3


def test_a_plan_is_checked_too(hf, project):
    (project / "plan.md").write_text("## Phase 1: One\n\n```sh\ntrue\n```\n\n## Phase 2: Two\n")
    assert hf("flow", "check", "plan.md").out == "plan: 2 phases, 0 warnings\n"


def test_the_schema_is_printed(hf, project):
    assert json.loads(hf("flow", "schema").out)["title"] == "Holdfast flow"


def test_output_is_shown_afterwards_by_task_without_secrets(hf, project):
    """Proves F7."""
    flow = {
        "flow": "f",
        "phases": {
            "a": {"tasks": {"t": "echo one; echo oh >&2", "u": f"echo {AWS_KEY}; printf unended"}},
            "b": {"run": "exit 3", "on_failure": "skip"},
        },
    }
    (project / "f.yaml").write_text(json.dumps(flow))
    assert hf("run", "f.yaml").code == 0
    shown = hf("logs", "f").out
    assert AWS_KEY not in shown
    assert {"a/t:", "one", "oh", "a/u:", "unended"} <= set(shown.splitlines())
    alone = hf("logs", "f", "u").out.splitlines()
    assert "one" not in alone
    assert hf("logs", "f", "a/u", "-n", "1").out == "unended\n"
    assert sorted(one["task"] for one in hf("logs", "f", "--json").json["tasks"]) == ["a/t", "a/u"]
    assert hf("logs", "f", "nothing").code == 3


def test_output_is_read_by_another_process_while_the_task_runs(hf, project):
    """Proves F7."""
    (project / "f.yaml").write_text(
        "flow: f\nphases: {a: 'echo begun; while ! test -e go; do sleep 0.05; done; echo end'}\n"
    )
    line = [sys.executable, "-m", "holdfast"]
    with subprocess.Popen([*line, "run", "f.yaml"], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as run:
        try:
            deadline = time.monotonic() + 60
            while not hf("ls", "--json").json.get("runs") and time.monotonic() < deadline:
                time.sleep(0.1)
            with subprocess.Popen([*line, "logs", "f", "-f"], stdout=subprocess.PIPE, text=True) as follow:
                try:
                    seen = [follow.stdout.readline(), follow.stdout.readline()]
                    assert seen[1] == "a/a | begun\n"
                    assert run.poll() is None, "it is read while the task runs"
                    (project / "go").touch()
                    assert follow.stdout.read() == "a/a | end\n"
                    assert follow.wait(60) == 0
                finally:
                    follow.kill()
        finally:
            run.kill()


def test_no_output_is_written_beside_an_encrypted_store(hf, project, tmp_path):
    key = tmp_path / "k.key"
    key.write_text("a" * 64)
    (project / "holdfast.yaml").write_text(f"encryption: {{key_file: {key}}}\n")
    (project / "f.yaml").write_text("flow: f\nphases: {a: 'echo printed-words'}\n")
    assert hf("trust", "-y").code == 0
    assert hf("run", "f.yaml").code == 0
    assert "encrypted" in hf("logs", "f").err
    found = subprocess.run(["grep", "-rl", "printed-words", ".holdfast"], capture_output=True, text=True, check=False)
    assert found.stdout == ""


class Printed:
    """What a task prints, as events."""

    def __init__(self, folder, keep_bytes):
        self.files = OutputFiles(folder, keep_bytes)
        self._redactor = EventRedactor(lambda text: text.replace("-----BEGIN PRIVATE\nKEY\n-----END", "<key>"))

    def __call__(self, text):
        event = Event(kind="task_output", at=datetime.now(UTC), phase="p", task="t", text=text)
        for one in self._redactor.take(event):
            self.files.take(one)


@pytest.fixture
def printed(tmp_path):
    return Printed(tmp_path / "out", 1000)


def test_the_file_of_a_task_is_bounded_and_a_follower_misses_nothing_but_the_middle(printed, tmp_path):
    """Proves F7."""
    printed("0\n")
    (found,) = outputs_in(tmp_path / "out")
    tail = Tail(found.path)
    seen = tail.lines()
    for number in range(1, 2000):
        printed(f"{number}\n")
        if number % 7 == 0:
            seen += tail.lines()
    printed.files.close()
    seen += tail.lines(is_last=True)
    assert found.path.stat().st_size < 2200
    assert seen == [str(number) for number in range(2000)]
    late = Tail(found.path).lines(is_last=True)
    assert (late[0], late[-1]) == ("0", "1999")
    assert any("bytes left out" in line for line in late)


def test_a_secret_of_several_lines_is_known_as_a_whole(printed, tmp_path):
    for piece in ("-----BEGIN PRIVATE\n", "KEY\n", "-----END\n", "after\n"):
        printed(piece)
    printed.files.close()
    (found,) = outputs_in(tmp_path / "out")
    assert found.path.read_text() == "<key>\nafter\n"


def test_status_shows_limits_and_what_a_checkpoint_protects(hf, project):
    """Proves F6: used and limit of each budget, and what could be put back."""
    (project / "kept.txt").write_text("x\n")
    (project / ".holdfastignore").write_text("left.txt\n")
    (project / "left.txt").write_text("x\n")
    (project.parent / "said").write_text('{"result": "ok", "cost_usd": 0.25, "usage": {"input_tokens": 40}}')
    (project / "f.yaml").write_text(
        "flow: f\nagents: {a: cat ../said}\nbudget: {tokens: 100, money: 0.5, time: 1h}\n"
        "phases:\n  p: {agent: a, input: x, budget: {tokens: 50}}\n"
    )
    assert hf("run", "f.yaml").code == 0
    told = hf("status", "f", "--json").json
    assert told["budget"]["tokens"] == {"used": 40, "limit": 100}
    assert told["budget"]["money"] == {"used": 0.25, "limit": 0.5}
    assert told["budget"]["time_s"]["limit"] == 3600
    assert told["budget"]["phase:p/tokens"] == {"used": 40, "limit": 50}
    assert told["protection"]["files"] == 3
    assert told["protection"]["not_captured"] == {"ignored by .holdfastignore": 1}
    assert told["protection"]["age_s"] >= 0
    shown = hf("status", "f").out
    assert "40 of 100" in shown
    assert "0.25 of 0.5" in shown
    assert "3 files" in shown
    assert "ignored by .holdfastignore" in shown


def test_a_limit_is_raised_without_the_name_of_the_only_run(hf, project):
    """Proves E6."""
    (project / "f.yaml").write_text("flow: f\nbudget: {retries: 0}\nphases: {a: {run: 'false', retries: 2}}\n")
    assert hf("run", "f.yaml", "--no-wait").code == 9
    assert hf("budget", "retries+=3").code == 0
    assert hf("run", "f.yaml", "--no-wait", "--run-id", "g").code == 9
    refused = hf("budget", "retries+=3")
    assert refused.code == 2
    assert refused.err.partition("These wait: ")[2].strip() in ("g", "f, g", "g, f")
