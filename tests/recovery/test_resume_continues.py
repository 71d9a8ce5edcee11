"""`resume` continues: a flow continues in the run's own directory, a program's run says what to start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

import holdfast

FLOW = """flow: f
params: {n: {default: 1}}
phases:
  one: {run: 'echo $HOLDFAST_PARAMS_N > one.txt'}
  two: {run: 'test -e go || exit 1; echo two > two.txt', on_failure: abort}
"""


def cli(place, *words):
    line = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(line, cwd=place, check=False, timeout=120, capture_output=True, text=True)


def git(project, *arguments):
    named = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(named, cwd=project, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "f.yaml").write_text(FLOW)
    (root / ".gitignore").write_text(".holdfast/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def test_resume_continues_the_flow_with_what_it_was_started_with(project):
    """Proves F5: parameters are kept, done phases are not repeated, the exit code is the flow's."""
    assert cli(project, "run", "f.yaml", "--param", "n=42", "--run-id", "r").returncode == 8
    (project / "go").write_text("")
    (project / "one.txt").write_text("42\n")
    done = cli(project, "resume", "r", "--yes")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "completed" in done.stdout
    assert ((project / "one.txt").read_text(), (project / "two.txt").read_text()) == ("42\n", "two\n")
    with holdfast.open(project / ".holdfast") as hf:
        assert hf.latest("r").summary.status == "completed"
    assert "nothing to resume" in cli(project, "resume", "r").stdout


@pytest.mark.parametrize(("prompt", "code"), [("brief", 0), ("long", 12)], ids=["same", "edited"])
def test_resume_asks_about_a_flow_only_if_it_or_its_inputs_changed(project, prompt, code):
    """Proves F1 and F5: declared input files count as the run has them, in its own directory."""
    (project / "f.yaml").write_text(FLOW.replace("one.txt'}", "one.txt', inputs: [prompt.md]}"))
    (project / "prompt.md").write_text("brief")
    assert cli(project, "run", "f.yaml", "--run-id", "r").returncode == 8
    (project / "go").write_text("")
    (project / "prompt.md").write_text(prompt)
    done = cli(project, "resume", "r")
    assert done.returncode == code, done.stderr + done.stdout
    assert (project / "two.txt").exists() == (code == 0)


def test_modules_are_imported_again(project):
    (project / "f.yaml").write_text(
        "flow: f\nphases:\n  one: {run: 'test -e go', on_failure: abort}\n  two: {call: 'mine:third'}\n"
    )
    (project / "mine.py").write_text("def third(task):\n    open('three.txt', 'w').write('3')\n")
    assert cli(project, "run", "f.yaml", "--import", "mine", "--run-id", "r").returncode == 8
    (project / "go").write_text("")
    done = cli(project, "resume", "r", "--yes")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (project / "three.txt").read_text() == "3"


def test_resume_that_is_not_to_run_puts_back_and_says_what_continues(project):
    cli(project, "run", "f.yaml", "--run-id", "r")
    done = cli(project, "resume", "r", "--yes", "--no-run")
    assert done.returncode == 0
    assert "holdfast run f.yaml --run-id r" in done.stderr
    (project / "f.yaml").unlink()
    gone = cli(project, "resume", "r", "--yes")
    assert gone.returncode == 14
    assert "f.yaml is not in" in gone.stderr


def test_resume_from_another_directory_names_the_line_that_works(project, tmp_path):
    store = ("--store", f"sqlite://{tmp_path}/shared.db")
    cli(project, *store, "run", "f.yaml", "--run-id", "r")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = cli(elsewhere, *store, "resume", "r", "--yes")
    assert done.returncode == 14
    assert f"`holdfast -C {project} {' '.join(store)} resume r` continues it" in done.stderr


def test_a_run_of_a_program_says_that_its_program_is_to_be_started(project):
    with holdfast.open(project / ".holdfast") as hf, hf.run("r", workspace=project) as run:
        run.checkpoint(state=1)
    done = cli(project, "resume", "r", "--yes")
    assert done.returncode == 14
    assert "Start the program of r again" in done.stderr
    shown = cli(project, "resume", "r", "--yes", "--json")
    assert (shown.returncode, json.loads(shown.stdout)["recovered"]) == (14, False)


@pytest.mark.parametrize("where", ["original", "fork"])
@pytest.mark.parametrize("words", [("resume", "other", "--yes"), ("run", "f.yaml", "--run-id", "other")])
def test_a_fork_continues_in_its_own_directory_from_wherever_it_is_typed(project, where, words):
    """Proves F5: from the fork's folder and from the original's."""
    cli(project, "run", "f.yaml", "--run-id", "r")
    forked = cli(project, "fork", "r", "other")
    assert forked.returncode == 0, forked.stderr
    fork = project.with_name("project-other")
    (fork / "go").write_text("")
    done = cli(project if where == "original" else fork, *words)
    assert done.returncode == 0, done.stderr + done.stdout
    assert (fork / "two.txt").exists()
    assert not (project / "two.txt").exists()
    with holdfast.open(project / ".holdfast") as hf:
        assert hf.latest("other").summary.status == "completed"
        assert {run.id for run in hf.runs()} == {"r", "other"}


def test_in_a_forks_directory_its_run_is_meant_and_a_copy_of_the_directory_is_not_believed(project):
    cli(project, "run", "f.yaml")
    assert cli(project, "fork", "f", "other").returncode == 0
    fork = project.with_name("project-other")
    (fork / "go").write_text("")
    copy = project.with_name("copy")
    shutil.copytree(fork, copy, symlinks=True)
    assert cli(copy, "status", "other").returncode == 3, "no store names this directory"
    assert cli(fork, "run", "f.yaml").returncode == 0
    assert (fork / "two.txt").exists()
    assert not (project / "two.txt").exists()


def test_a_store_from_elsewhere_names_nothing_that_is_run(tmp_path):
    """Threat 1: `resume` in a folder that came with its store runs neither its agent nor its modules."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    (theirs / "PLAN.md").write_text("# Plan\n\n## Phase 1: Look\n")
    line = [sys.executable, "-m", "holdfast"]
    env = {**os.environ, "HOME": str(tmp_path / "their-home"), "XDG_STATE_HOME": str(tmp_path / "their-home")}
    agent = f"touch {tmp_path}/ran; exit 1"
    subprocess.run([*line, "run", "PLAN.md", "--agent", agent, "--no-wait"], cwd=theirs, env=env, check=False)
    (tmp_path / "ran").unlink()
    theirs.rename(mine)
    env["HOME"] = str(tmp_path / "my-home")
    done = subprocess.run(
        [*line, "resume", "--yes"],
        cwd=mine,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 14
    assert "You did not start it in this folder" in done.stderr + done.stdout
    assert not (tmp_path / "ran").exists()
