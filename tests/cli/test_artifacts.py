"""Declared artifacts of kept tasks: gone or changed by somebody else, their task runs again, and all that follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FLOW = """\
flow: made
phases:
  plan: {run: "echo plan >> ../log; echo the plan > plan.md; echo other > notes.md", artifacts: [plan.md]}
  build: {run: "echo build >> ../log; echo done >> plan.md; echo out > out.txt", artifacts: [out.txt]}
  ship: {run: echo ship >> ../log, approve: "ship?"}
"""


@pytest.fixture
def made(hf, project):
    """A flow that waits after two tasks; the second changed an artifact of the first, on purpose."""
    (project / "made.yaml").write_text(FLOW)
    assert hf("run", "made.yaml", "--no-wait").code == 9
    return project


def log(project):
    return (project.parent / "log").read_text().split()


@pytest.mark.parametrize(("file", "again"), [("plan.md", ["plan", "build"]), ("out.txt", ["build"]), ("notes.md", [])])
@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_a_changed_or_missing_artifact_makes_its_task_run_again(hf, made, file, again, change):
    """Proves F2."""
    if change == "edited":
        (made / file).write_text("by hand\n")
    else:
        (made / file).unlink()
    done = hf("run", "made.yaml", "--no-wait", "--resume")
    assert (done.code, log(made)) == (9, ["plan", "build", *again])
    assert (f"{2 - len(again)} kept from before" in done.out + done.err) == (len(again) < 2), (
        done
    )  # what runs is not kept
    assert (f"its file {file} " in done.out) == bool(again)
    assert hf("run", "made.yaml", "--no-wait", "--resume").code == 9
    assert log(made) == ["plan", "build", *again]  # once


def test_what_a_later_task_made_of_an_artifact_is_no_change(hf, made):
    """Proves F2."""
    assert (made / "plan.md").read_text() == "the plan\ndone\n"
    for _ in range(2):
        assert hf("run", "made.yaml", "--no-wait", "--resume").code == 9
    assert log(made) == ["plan", "build"]


def test_an_answer_given_before_the_artifact_changed_lapses(hf, made):
    """Proves F1, F2."""
    assert hf("approve", "made").code == 0
    (made / "plan.md").write_text("by hand\n")
    done = hf("run", "made.yaml", "--no-wait", "--resume")
    assert (done.code, log(made)) == (9, ["plan", "build", "plan", "build"]), done


@pytest.mark.parametrize("option", [("--redo", "plan"), ("--from", "build")])
def test_what_runs_again_by_hand_is_asked_about_again(hf, made, option):
    """Proves F1, F2."""
    hf("approve", "made")
    assert hf("run", "made.yaml", "--resume", "--no-wait").code == 0
    again = hf("run", "made.yaml", "--resume", "--no-wait", *option)
    assert (again.code, log(made).count("ship")) == (9, 1)
    hf("approve", "made")
    assert hf("run", "made.yaml", "--resume", "--no-wait").code == 0
    assert log(made).count("ship") == 2


@pytest.mark.parametrize(("file", "again"), [("plan.md", ["plan", "build"]), ("out.txt", ["build"]), ("notes.md", [])])
@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_the_preview_names_what_runs_again_for_a_lost_artifact(hf, made, file, again, change):
    """Proves F2: `run -n` foresees what `run` does, and says which file it is about."""
    if change == "edited":
        (made / file).write_text("by hand\n")
    else:
        (made / file).unlink()
    shown, phases = hf("run", "made.yaml", "-n").out, hf("run", "made.yaml", "-n", "--json").json["phases"]
    assert [one["phase"] for one in phases if one["will"] == "again" and one["phase"] != "ship"] == again
    assert (file in shown) == bool(again)
    assert log(made) == ["plan", "build"]
    assert hf("run", "made.yaml", "--no-wait", "--resume").code == 9
    assert log(made) == ["plan", "build", *again]


def test_the_preview_does_not_wait_for_a_pipe_in_an_artifacts_place(made):
    (made / "out.txt").unlink()
    os.mkfifo(made / "out.txt")
    line = [sys.executable, "-m", "holdfast", "run", "made.yaml", "-n", "--json"]
    shown = subprocess.run(line, cwd=made, check=False, capture_output=True, timeout=60)
    phases = json.loads(shown.stdout)["phases"]
    assert [one["phase"] for one in phases if one["will"] == "again"][:1] == ["build"]


MOVER = """\
flow: mover
phases:
  draft: {run: "echo draft >> ../log; echo text > draft.md", artifacts: [draft.md]}
  publish:
    tasks:
      page: {run: "echo page >> ../log; echo page > page.md", artifacts: [page.md]}
      move: {run: "echo move >> ../log; mkdir -p out; mv draft.md page.md out", needs: page, effect: publishes}
  ship: {run: echo ship >> ../log, approve: "ship?"}
"""


def test_what_a_later_task_moved_is_said_and_repeats_nothing(hf, project):
    """Proves F2: otherwise each start would run the tasks again, and no yes would ever hold."""
    (project / "mover.yaml").write_text(MOVER)
    first = hf("run", "mover.yaml", "--no-wait")
    assert (first.code, log(project)) == (9, ["draft", "page", "move"]), first
    told = [line for line in first.out.splitlines() if "artifact gone" in line]
    assert [file for file in ("draft.md", "page.md") if any(file in line for line in told)] == ["draft.md", "page.md"]
    assert "unchanged, it runs again" not in hf("run", "mover.yaml", "-n").out
    again = hf("run", "mover.yaml", "--no-wait", "--resume")
    assert (again.code, "artifact gone" in again.out) == (9, False)
    hf("approve", "mover")
    assert hf("run", "mover.yaml", "--no-wait", "--resume").code == 0
    assert log(project) == ["draft", "page", "move", "ship"]
    (project / "out/draft.md").unlink()  # no artifact, and what is there of the others is as the run left it
    assert hf("run", "mover.yaml", "--no-wait", "--resume").code == 0
    assert log(project) == ["draft", "page", "move", "ship"]
