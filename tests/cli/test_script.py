"""For shell scripts: begin, phase, replan, save, load, status; and a whole script, killed and resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.plan_file import phase_named, read_plan, run_of

BIN = Path(sys.executable).parent
PLAN = """# Add a login

## Phase 1: Research
Look at the libraries.
```
## Phase 9: an example in a code block
```
## Phase 2 - Implement
## Phase 3: Ship it
"""


@pytest.fixture
def plan(project):
    (project / "PLAN.md").write_text(PLAN)
    return project


def test_headings_name_the_phases(tmp_path):
    """Proves B1 in part."""
    (tmp_path / "PLAN.md").write_text(PLAN)
    assert read_plan(tmp_path / "PLAN.md") == {
        "1-research": "Research",
        "2-implement": "Implement",
        "3-ship-it": "Ship it",
    }
    (tmp_path / "NONE.md").write_text("# Phases\ntext\n")
    assert read_plan(tmp_path / "NONE.md") == {}


def test_the_same_plan_finds_its_own_run(tmp_path, monkeypatch):
    """Proves B4: the run follows from the plan's place in its project, not from where the project lies."""
    for project in ("one", "two"):
        (tmp_path / project / "docs").mkdir(parents=True)
        (tmp_path / project / "docs" / "My Plan.md").touch()
    one, two = (run_of(tmp_path / name / "docs" / "My Plan.md", tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert one.startswith("my-plan-")
    monkeypatch.chdir(tmp_path / "one" / "docs")
    assert run_of(Path("My Plan.md"), tmp_path / "one") == one
    assert run_of(Path("../docs/My Plan.md"), tmp_path / "one") == one
    assert run_of(tmp_path / "one" / "docs" / "My Plan.md", tmp_path) != one


def test_a_phase_is_called_by_name_number_or_beginning():
    order = ["1-research", "2-implement", "2_1-implement-tests", "4-ship"]
    assert phase_named("1-research", order, []) == "1-research"
    assert phase_named("2", order, []) == "2-implement"
    assert phase_named("2.1", order, []) == "2_1-implement-tests"
    assert phase_named("4", order, []) == "4-ship", "by its own number, not by its place"
    assert phase_named("Implement", order, []) == "2-implement"
    assert phase_named("res", order, []) == "1-research"
    assert phase_named("anything", [], []) == "anything"
    for name in ("imp", "test", "9", "", " "):
        with pytest.raises(holdfast.UsageError):
            phase_named(name, order, [])


def test_begin_says_what_is_done_and_what_is_next(hf, plan):
    """Proves B3, B7 as a script sees them."""
    first = hf("begin", "PLAN.md")
    run = first.out.strip()
    assert run.startswith("plan-")
    assert "Next is 1-research." in first.err
    hf("phase", "start", "research")
    (plan / "notes.md").write_text("notes")
    done = hf("phase", "done", "research", "--summary", "use a library", "--artifact", "notes.md")
    assert "Next is 2-implement." in done.err
    again = hf("begin", "PLAN.md")
    assert again.out == first.out
    assert "1 of 3 phases done" in again.err
    assert "There is no terminal to ask on, so the run is resumed" in again.err
    assert "done    1-research" in again.err
    assert hf("begin", "PLAN.md", "-q") == (0, first.out, "")
    status = hf("status", "--json").json
    assert (status["run"], status["done"], status["next"]) == (run, ["1-research"], "2-implement")
    research = status["phases"]["1-research"]
    assert (research["status"], research["summary"]) == ("completed", "use a library")
    assert research["artifacts"][0]["path"] == "notes.md"


def test_a_phase_that_is_done_is_not_started_again(hf, plan):
    """Proves B3: a resume skips what is done."""
    hf("begin", "PLAN.md")
    hf("phase", "done", "1")
    assert hf("phase", "start", "1").code == 13
    assert hf("status", "--left").out == "2-implement\n3-ship-it\n"
    hf("phase", "skip", "implement", "--reason", "not needed")
    assert hf("phase", "start", "implement").code == 13
    assert hf("phase", "retry", "implement").code == 0
    assert hf("phase", "start", "implement").code == 0


def test_a_person_is_asked_whether_to_resume(hf, plan):
    """Proves B3: yes continues, no sets the old run aside with its time and starts fresh."""
    hf("begin", "PLAN.md")
    hf("phase", "done", "1")
    yes = hf("begin", "PLAN.md", stdin=b"\n", terminal=True)
    assert "Resume it (n sets it aside and starts over)? [Y/n]" in yes.err
    assert hf("status", "--left").out.startswith("2-implement")
    no = hf("begin", "PLAN.md", stdin=b"n\n", terminal=True)
    assert "set aside" in no.err
    assert hf("status", "--left").out.startswith("1-research")
    labels = [one["label"] for one in hf("log", no.out.strip(), "--archived", "--json").json["checkpoints"]]
    assert any(label and label.startswith("archived-") for label in labels)


def test_a_finished_plan_says_so(hf, plan):
    """Proves B3 in part."""
    run = hf("begin", "PLAN.md").out.strip()
    for phase in ("1", "2", "3"):
        hf("phase", "start", phase)
        hf("phase", "done", phase)
    assert hf("ls", "--json").json["runs"][0]["status"] == "completed"
    again = hf("begin", "PLAN.md")
    assert f"All of {run} is done" in again.err
    assert hf("ls", "--json").json["runs"][0]["status"] == "completed"
    assert "Next is 1-research." in hf("begin", "PLAN.md", "--fresh").err


def test_a_failed_phase_is_recorded_and_the_person_chooses(hf, plan):
    """Proves B5: retry, skip or abort."""
    hf("begin", "PLAN.md")
    hf("phase", "start", "1")
    assert hf("phase", "fail", "1", "--error", "exit 1", "--code", "1").code == 0
    state = hf("status", "--json").json["phases"]["1-research"]
    assert (state["status"], state["error"]["message"], state["error"]["code"]) == ("failed", "exit 1", "1")
    assert hf("begin", "PLAN.md", "--resume", stdin=b"abort\n", terminal=True).code == 12
    assert hf("begin", "PLAN.md", "--resume", stdin=b"retry\n", terminal=True).code == 0
    assert hf("status", "--left").out.startswith("1-research")
    assert hf("begin", "PLAN.md", "--resume", stdin=b"skip\n", terminal=True).code == 0
    assert hf("status", "--left").out.startswith("2-implement")


def test_replanning_is_limited(hf, plan):
    """Proves B6, B7: the exit code says when the limit is reached."""
    hf("begin", "PLAN.md")
    assert hf("replan", "implement", "--reason", "wrong library").code == 0
    assert hf("replan", "implement", "--reason", "again", "--json").json["left"] == 0
    refused = hf("replan", "implement", "--reason", "once more")
    assert refused.code == 11
    assert "wrong library" in refused.err
    assert hf("replan", "implement").code == 2
    assert len(hf("status", "--json").json["replans"]) == 2


def test_replans_may_be_allowed_more_often(hf, plan):
    hf("begin", "PLAN.md", "--replans", "3")
    codes = [hf("replan", "1", "--reason", f"r{i}").code for i in range(4)]
    assert codes == [0, 0, 0, 11]


def test_state_is_saved_and_loaded(hf, plan):
    hf("begin", "PLAN.md")
    assert hf("load").code == 3
    assert hf("save", "--state", "-", stdin=b'{"count": 1, "text": "\\u001b\\u007f"}').code == 0
    assert hf("load").json == {"count": 1, "text": "\x1b\x7f"}
    (plan / "notes.json").write_text("[1]")
    assert hf("save", "--section", "notes=notes.json").code == 0
    assert hf("load", "--section", "notes").json == [1]
    assert hf("load").json["count"] == 1
    assert hf("load", "--section", "none").code == 3
    assert hf("save", "--state", "nowhere.json").code == 3


def test_the_run_is_named_by_option_variable_or_begin(hf, plan, monkeypatch):
    assert hf("status").code == 3
    (plan / "OTHER.md").write_text("## Phase 1: other\n")
    one, other = hf("begin", "PLAN.md", "-q").out.strip(), hf("begin", "OTHER.md", "-q").out.strip()
    assert hf("status", "--json").json["run"] == other
    assert hf("status", one, "--json").json["run"] == one
    monkeypatch.setenv("HOLDFAST_RUN", one)
    assert hf("phase", "done", "research", "--json").json["run"] == one
    assert hf("phase", "done", "1", "--run", other, "--json").json["phase"] == "1-other"
    assert hf("status", "--run", "nobody").code == 2
    assert hf("status", "nobody").code == 3


def test_what_cannot_be_a_plan_is_said(hf, project):
    assert hf("begin", "NONE.md").code == 3
    assert hf("begin", ".").code == 2
    (project / "EMPTY.md").write_text("nothing\n")
    assert "names no phases" in hf("begin", "EMPTY.md").err
    assert hf("phase", "start", "anything").code == 0
    assert hf("phase", "done", "x", "--artifact", "none.txt").code == 2


def test_files_belong_to_the_run_when_asked_for(hf, plan):
    hf("begin", "PLAN.md", "--workspace")
    (plan / "code.py").write_text("x = 1\n")
    run = hf("phase", "done", "1", "--json").json["run"]
    assert hf("cat", f"{run}:code.py").out == "x = 1\n"


def test_a_phase_stops_for_a_pause_and_a_cancellation_from_outside(hf, plan):
    run = hf("begin", "PLAN.md", "-q").out.strip()
    store = holdfast.open()
    store.control.pause(run, by="ann")
    assert hf("phase", "start", "1").code == 9
    store.control.unpause(run)
    assert hf("phase", "start", "1").code == 0
    store.control.cancel(run, by="ann", note="enough")
    store.close()
    stopped = hf("phase", "done", "1")
    assert stopped.code == 10
    assert "enough" in stopped.err


def test_phases_that_end_at_the_same_moment_are_all_kept(plan):
    """Proves D10 for scripts: each command gets its turn."""
    (plan / "MANY.md").write_text("".join(f"## Phase {i}: p{i}\n" for i in range(1, 6)))
    subprocess.run([BIN / "holdfast", "begin", "MANY.md", "-q"], check=True, capture_output=True)
    ending = [
        subprocess.Popen([BIN / "holdfast", "phase", "done", str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in range(1, 6)
    ]
    for one in ending:
        _, errors = one.communicate(timeout=60)
        assert one.returncode == 0, errors
    left = subprocess.run([BIN / "holdfast", "status", "--left"], check=True, capture_output=True, text=True)
    assert left.stdout == ""


CLAUDE = """\
#!/bin/bash
echo "$2" >> ran.txt
if [ "$2" = @prompts/2-implement.md ] && [ ! -e killed ]; then touch killed; kill -KILL 0; fi
echo "notes on $2"
"""
PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"


def test_the_script_of_the_reference_is_killed_and_goes_on_where_it_was(plan):
    """Proves B2, B7, B8 with the script in docs/CLI.md: no finished phase is done, or paid for, again."""
    script = re.search(r"^```bash\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]
    assert len(script.splitlines()) <= 10
    (plan / "bin").mkdir()
    (plan / "notes").mkdir()
    (plan / "bin" / "claude").write_text(CLAUDE)
    (plan / "bin" / "claude").chmod(0o755)
    environment = {**os.environ, "PATH": f"{plan / 'bin'}:{BIN}:{os.environ['PATH']}"}

    def run_script():
        line = ["bash", "-euc", script]
        return subprocess.run(
            line, env=environment, capture_output=True, text=True, check=False, start_new_session=True
        )

    assert run_script().returncode == -signal.SIGKILL
    first, second, third = (f"@prompts/{name}.md\n" for name in ("1-research", "2-implement", "3-ship-it"))
    assert (plan / "ran.txt").read_text() == first + second
    again = run_script()
    assert again.returncode == 0, again.stderr
    assert (plan / "ran.txt").read_text() == first + second + second + third
    store = holdfast.open()
    (run,) = store.runs()
    book = store.latest(run.id).section("phases")
    store.close()
    assert [state.status for state in book.phases.values()] == ["completed"] * 3
    assert (book.phases["2-implement"].resumes, book.phases["2-implement"].attempt) == (1, 1)
    assert book.phases["3-ship-it"].artifacts[0].path == "notes/3-ship-it.md"
