"""`on_interrupt` of a task: what becomes of files that it had half written when the process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PATIENCE_S = 60
FLOW = """\
flow: half
phases:
  one: {{run: echo one > one.txt}}
  two:
    run: |
      test -e ../go && test ! -e half.txt && echo whole > whole.txt && exit
      test -e ../go && exit 3
      echo half > half.txt; echo changed > one.txt; touch ../ready; sleep 100
    {policy}
    on_failure: abort
"""


def begin(place, *words):
    return subprocess.Popen(
        [BIN / "holdfast", *words], cwd=place, env=os.environ, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, text=True
    )


def holdfast(place, *words):
    process = begin(place, *words)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + err


@pytest.fixture
def killed(project):
    """Kill a flow whose task has half written something."""

    def kill(policy, settings=""):
        (project / "half.yaml").write_text(FLOW.format(policy=policy))
        if settings:
            (project / "holdfast.yaml").write_text(settings)
        process = begin(project, "run", "half.yaml", "--no-wait")
        end = time.monotonic() + PATIENCE_S
        while not (project.parent / "ready").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(1.3)  # a sign of life since: what changed before it is surely the process's own
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (project.parent / "go").touch()
        return project

    return kill


def test_rolled_back_the_task_starts_from_the_files_before_it(killed):
    """Proves C2."""
    project = killed("on_interrupt: roll_back")
    code, said = holdfast(project, "run", "half.yaml", "--no-wait")
    assert code == 0, said
    assert "rolled back" in said
    assert not (project / "half.txt").exists()
    assert (project / "one.txt").read_text() == "one\n"
    assert (project / "whole.txt").exists()


@pytest.mark.parametrize("policy", ["on_interrupt: keep", ""])
def test_kept_the_task_finds_what_it_had_written(killed, policy):
    project = killed(policy)
    code, said = holdfast(project, "run", "half.yaml", "--no-wait")
    assert (code, "kept" in said) == (8, True), said
    assert (project / "half.txt").exists()


def test_the_task_decides_before_the_settings(killed):
    project = killed("on_interrupt: keep", "recovery: {interrupted: roll_back}\n")
    assert holdfast(project, "run", "half.yaml", "--no-wait")[0] == 8
    assert (project / "half.txt").exists()


@pytest.mark.parametrize(("choice", "code"), [("roll_back", 0), ("keep", 8)])
def test_asked_a_person_decides(killed, choice, code):
    project = killed("on_interrupt: ask")
    first, said = holdfast(project, "run", "half.yaml", "--no-wait")
    assert (first, "half.txt" in said) == (9, True), said
    assert (project / "half.txt").exists()
    assert holdfast(project, "answer", choice, "half")[0] == 0
    again, said = holdfast(project, "run", "half.yaml", "--no-wait")
    assert again == code, said
    assert (project / "half.txt").exists() == (choice == "keep")


def test_resume_and_restore_follow_the_task_too(killed):
    project = killed("on_interrupt: roll_back")
    code, said = holdfast(project, "resume", "half", "--yes")
    assert code == 0, said
    assert not (project / "half.txt").exists()


def test_a_changed_policy_repeats_nothing(project, hf):
    (project / "f.yaml").write_text("flow: f\nphases: {a: {run: echo a >> ../log}, b: {run: 'true', approve: 'b?'}}\n")
    assert hf("run", "f.yaml", "--no-wait").code == 9
    text = (project / "f.yaml").read_text().replace("../log}", "../log, on_interrupt: roll_back}")
    (project / "f.yaml").write_text(text)
    assert hf("run", "f.yaml", "--no-wait").code == 9
    assert (project.parent / "log").read_text() == "a\n"
