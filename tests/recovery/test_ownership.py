"""Who changed a file is a fact: an interrupted process, a person, or nobody knows; each is treated as what it is."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest

import holdfast
from holdfast.workspace.decide import Decisions
from recovery.recovery_kit import damage_section, tree

PROGRAM = """
import os, sys, time
import holdfast
from pathlib import Path

def work(hf, mode):
    with hf.run("job", workspace=".") as run:
        def write():
            Path("a.txt").write_text("whole\\n")
            Path("b.txt").write_text("b\\n")
        run.step("write", write, wrote_files=True)
        if mode == "end":
            return
        def code():
            Path("a.txt").write_text("half-written\\n")
            Path("b.txt").unlink()
            Path("made.txt").write_text("half\\n")
            time.sleep(2.5 if mode == "kill" else 0)
            os._exit(9)
        run.step("code", code)

with holdfast.open("../store") as hf:
    work(hf, sys.argv[1])
"""


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "src" / "one.py").write_text("one\n")
    (root / "keep.txt").write_text("keep\n")
    return root


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


def program(project, mode):
    """Let a program work in the project until it ends, or ends itself in the middle."""
    script = project.parent / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    subprocess.run([sys.executable, script, mode], cwd=project, check=False, timeout=60)


def cli(project, *words, answers=None):
    line = [sys.executable, "-m", "holdfast", "--store", "../store", *words]
    return subprocess.run(line, cwd=project, check=False, timeout=60, capture_output=True, text=True, input=answers)


def later(path, text=None):
    """Change or delete a file as a person does it, well after the process's last sign of life."""
    time.sleep(1.5)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)


def test_what_an_interrupted_call_had_changed_is_its_own_and_is_warned_about(project, hf):
    """Proves F9: half-written files are told apart from a person's, and never kept in silence."""
    program(project, "kill")
    later(project / "src" / "one.py")
    (project / "docs" / "mine.txt").write_text("by hand\n")
    plan = hf.plan("job", workspace=project)
    owners = {item.path: item.owner for item in plan.files.items}
    assert owners == {
        "a.txt": "interrupted",
        "b.txt": "interrupted",
        "made.txt": "interrupted",
        "docs/mine.txt": "person",
        "src/one.py": "person",
    }
    assert "code was interrupted and had changed 3 files: kept" in str(plan)
    assert "you deleted 1 file: kept deleted; `--take` restores" in str(plan)
    result = hf.recover(plan)
    assert result.success
    assert any("code was interrupted" in warning for warning in result.warnings)
    assert any("you deleted 'src/one.py'" in warning for warning in result.warnings)


@pytest.mark.parametrize("stays", [True, False])
def test_what_an_interrupted_call_deleted_is_its_own_whatever_happens_in_the_directory_later(project, hf, stays):
    """Proves F9: a directory has one time of change, and somebody's next file in it moves that."""
    program(project, "kill")
    later(project / "mine.txt", "by hand\n")
    if not stays:
        (project / "mine.txt").unlink()
    plan = hf.plan("job", workspace=project)
    assert next(item.owner for item in plan.files.items if item.path == "b.txt") == "interrupted"
    assert not any("deleted" in warning for warning in plan.warnings)
    assert hf.recover("job", workspace=project, interrupted="roll_back").success
    assert (project / "b.txt").read_text() == "b\n"


def test_an_interrupted_call_is_rolled_back_by_policy_and_that_can_be_undone(project, hf):
    program(project, "kill")
    later(project / "docs" / "mine.txt", "by hand\n")
    before = tree(project)
    result = hf.recover("job", workspace=project, interrupted="roll_back")
    assert result.success, result.errors
    assert (project / "a.txt").read_text() == "whole\n"
    assert (project / "b.txt").read_text() == "b\n"
    assert not (project / "made.txt").exists()
    assert (project / "docs" / "mine.txt").read_text() == "by hand\n"
    assert hf.undo("job").success
    assert tree(project) == before


def test_a_setting_rolls_back_when_the_program_is_started_again(project, tmp_path):
    (tmp_path / "holdfast.yaml").write_text("recovery: {interrupted: roll_back}\n")
    program(project, "kill")
    with (
        holdfast.open(tmp_path / "store", settings=tmp_path / "holdfast.yaml") as hf,
        hf.run("job", workspace=project) as run,
    ):
        assert (project / "a.txt").read_text() == "whole\n"
        assert (project / "b.txt").read_text() == "b\n"
        assert not (project / "made.txt").exists()
        kept = {record.path for each in hf.checkpoints("job") if each.trigger != "recovery" for record in each.files()}
        assert "made.txt" in kept, "what is rolled back can be brought back"
        run.complete()


def test_what_changed_within_a_second_of_the_end_is_nobody_s_and_kept(project, hf):
    program(project, "crash")
    plan = hf.plan("job", workspace=project)
    assert {item.owner for item in plan.files.items} <= {"unknown", "interrupted"}
    assert not plan.files.changes
    assert hf.recover(plan).warnings


def test_a_person_s_file_that_was_captured_in_passing_is_not_deleted(project, hf):
    """D2 of the findings: the program captured it at its next start, so it passed for the run's own."""
    program(project, "end")
    first = hf.latest("job")
    later(project / "my_notes.txt", "mine\n")
    (project / "src" / "one.py").write_text("my fix\n")
    (project / "keep.txt").unlink()
    program(project, "end")
    assert {record.path for record in hf.latest("job").files()} >= {"my_notes.txt"}
    plan = hf.plan(first.id, workspace=project)
    assert {item.path: (item.owner, item.action) for item in plan.files.items} == {
        "my_notes.txt": ("person", "keep"),
        "src/one.py": ("person", "keep"),
        "keep.txt": ("person", "keep"),
    }
    assert hf.recover(plan).success
    assert (project / "my_notes.txt").read_text() == "mine\n"
    again = hf.plan(first.id, workspace=project)
    assert {item.owner for item in again.files.items} == {"person"}, "it stays theirs in the line that begins there"
    taken = hf.recover(first.id, workspace=project, decisions=Decisions(edits="take"))
    assert taken.success
    assert (project / "src" / "one.py").read_text() == "one\n"
    assert (project / "keep.txt").read_text() == "keep\n"
    assert (project / "my_notes.txt").exists(), "what a person created goes only if it is named"


def test_what_a_person_deletes_after_a_recovery_is_not_the_interrupted_call_s(project, hf):
    """Proves F9: the sign of life names what was gone then, and says nothing of what goes after the next capture."""
    program(project, "kill")
    assert hf.recover("job", workspace=project, interrupted="roll_back").success
    later(project / "b.txt")
    plan = hf.plan("job", workspace=project)
    assert {item.path: item.owner for item in plan.files.items} == {"b.txt": "person"}
    done = cli(project, "--yes", "restore", "job")
    assert done.returncode == 0, done.stderr
    assert (project / "b.txt").read_text() == "b\n"


BESIDE = """
import os, time
import holdfast
from pathlib import Path

def code():
    Path("a.txt").write_text("half-written\\n")
    os.unlink("keep.txt")
    time.sleep(30)

def test():
    time.sleep(0.5)
    Path("report.txt").write_text("fine\\n")

def kill():
    while not Path("report.txt").exists():
        time.sleep(0.1)
    time.sleep(2.5)
    os._exit(9)

with holdfast.open("../store") as hf, hf.run("job", workspace=".") as run:
    import threading
    run.step("begin", lambda: Path("a.txt").write_text("whole\\n"), wrote_files=True)
    threading.Thread(target=kill, daemon=True).start()
    run.parallel({"code": code, "test": test}, wrote_files=True)
"""


def test_what_a_parallel_call_captured_of_an_interrupted_one_is_said(project, hf):
    """Proves F9: a capture at the end of one call holds what another, interrupted later, had half written."""
    script = project.parent / "beside.py"
    script.write_text(textwrap.dedent(BESIDE))
    subprocess.run([sys.executable, script], cwd=project, check=False, timeout=60)
    plan = hf.plan("job", workspace=project)
    (told,) = [one for one in plan.warnings if "half written" in one]
    assert "while code worked" in told
    assert "'a.txt', 'keep.txt', 'report.txt'" in told
    command = told.split("`")[1].replace("PATH", "keep.txt").split()[1:]
    done = cli(project, "--yes", *command)
    assert done.returncode == 0, done.stderr
    assert (project / "keep.txt").read_text() == "keep\n"
    assert "'a.txt', 'report.txt' may be half written" in done.stderr, "it is captured now, and said no more"


@pytest.mark.parametrize("gone", ["the parents", "all before"])
def test_what_was_captured_beside_is_said_where_checkpoints_are_gone(project, hf, gone):
    """Proves F9: the checkpoint from before is the newest that is left, however many came after it."""
    script = project.parent / "beside.py"
    each = "[run.checkpoint(state=n) for n in range(102)]"
    script.write_text(textwrap.dedent(BESIDE).replace("time.sleep(0.5)", f"time.sleep(0.5); {each}"))
    subprocess.run([sys.executable, script], cwd=project, check=False, timeout=60)
    (told,) = [one for one in hf.plan("job", workspace=project).warnings if "half written" in one]
    before = int(told.split("restore job@")[1].split()[0])
    assert hf.latest("job").seq - before > 100
    older = hf.checkpoints("job", archived=True)[1:]
    hf.delete(*(one.id for one in older if one.seq > before or gone == "all before"))
    (told,) = [one for one in hf.plan("job", workspace=project).warnings if "half written" in one]
    assert "while code worked" in told
    is_left = gone == "the parents"
    assert ("'a.txt', 'keep.txt', 'report.txt'" in told) == (f"restore job@{before} " in told) == is_left
    assert ("no checkpoint from before it is left" in told) == (not is_left)


def killed_in(project, place):
    """Kill a run between a call's work, which was captured, and its end."""
    if place == "a gate":
        text = "flow: job\nphases:\n  one:\n    tasks:\n      code: {run: echo whole > a.txt, gates: [sleep 30]}\n"
        (project / "job.yaml").write_text(text)
        line = [sys.executable, "-m", "holdfast", "--store", "../store", "run", "job.yaml", "--no-wait"]
    else:
        (project.parent / "nested.py").write_text(NESTED)
        line = [sys.executable, "../nested.py"]
    with subprocess.Popen(line, cwd=project, stdout=-3, stderr=-3) as process:
        for _ in range(600):
            if any(b':1":' in each.read_bytes() for each in (project.parent / "store").rglob("*.alive")):
                break
            time.sleep(0.1)
        process.kill()


NESTED = """
import time
import holdfast
from pathlib import Path

with holdfast.open("../store") as hf, hf.run("job", workspace=".") as run:
    def code():
        run.step("write", lambda: Path("a.txt").write_text("whole\\n"), wrote_files=True)
        run.step("look:1", time.sleep, 30)
    run.step("code", code)
"""


@pytest.mark.parametrize("place", ["a gate", "a nested step"])
def test_finished_work_around_an_interrupted_call_is_not_called_half_written(project, hf, place):
    """Proves F9: what a gate was killed over is whole, and no advice leads to undoing it."""
    killed_in(project, place)
    assert "a.txt" in {record.path for record in hf.latest("job").files()}
    assert not [one for one in hf.plan("job", workspace=project).warnings if "half written" in one]


@pytest.mark.parametrize("way", ["checkpoint", "restore"])
def test_what_a_command_captures_of_an_interrupted_call_is_said(project, hf, way):
    """Proves F9: half-written files become a part of a checkpoint, but not in silence."""
    program(project, "kill")
    later(project / "my_notes.txt", "mine\n")
    (project / "keep.txt").unlink()
    before = hf.latest("job").seq
    line = {"checkpoint": ["checkpoint", "job", "--workspace"], "restore": ["--yes", "restore", "job", "keep.txt"]}[way]
    done = cli(project, *line)
    assert done.returncode == 0, done.stderr
    told = "captured after code was interrupted: 'a.txt', 'b.txt', 'made.txt' may be half written, and count as done"
    assert f"{told}; `holdfast restore job@{before} PATH`" in done.stderr
    assert told in str(hf.latest("job").log("journal"))
    done = cli(project, "--yes", "restore", f"job@{before}", "a.txt", "b.txt")
    assert done.returncode == 0, done.stderr
    assert "half written" not in done.stderr
    assert (project / "a.txt").read_text() == "whole\n"


def test_what_is_restored_next_is_not_called_half_written(project, hf):
    """Proves F9: the capture before a restore holds what a killed call left, and the one after it what stays of it."""
    program(project, "kill")
    done = cli(project, "--yes", "restore", "job", "a.txt", "b.txt")
    assert done.returncode == 0, done.stderr
    assert "captured after code was interrupted: 'made.txt' may be half written, and counts as done" in done.stderr


@pytest.mark.parametrize("way", ["checkpoint", "restore"])
def test_a_person_s_file_that_a_command_captured_is_not_deleted(project, hf, way):
    """Proves F9: `checkpoint` and `restore` take the whole directory along; whose the files are stays as it was."""
    program(project, "end")
    first = hf.latest("job")
    later(project / "my_notes.txt", "mine\n")
    (project / "src" / "one.py").write_text("my fix\n")
    (project / "keep.txt").unlink()
    line = {"checkpoint": ["checkpoint", "job", "--workspace"], "restore": ["--yes", "restore", "job"]}[way]
    done = cli(project, *line)
    assert done.returncode == 0, done.stderr
    assert {record.path for record in hf.latest("job").files()} >= {"my_notes.txt"}
    plan = hf.plan(first.id, workspace=project)
    assert {item.path: (item.owner, item.action) for item in plan.files.items if item.path != "keep.txt"} == {
        "my_notes.txt": ("person", "keep"),
        "src/one.py": ("person", "keep"),
    }
    assert hf.recover(plan).success
    assert (project / "my_notes.txt").read_text() == "mine\n"
    assert (project / "keep.txt").exists() == (way == "restore")


def test_what_the_run_did_after_a_person_s_change_is_the_run_s(project, hf):
    program(project, "end")
    first = hf.latest("job")
    later(project / "src" / "one.py", "my fix\n")
    with hf.run("job", workspace=project) as run:
        (project / "src" / "one.py").write_text("the run's\n")
        run.checkpoint(state=2)
    plan = hf.plan(first.id, workspace=project)
    assert [(item.path, item.owner, item.action) for item in plan.files.items] == [("src/one.py", "run", "replace")]


def test_the_first_checkpoint_of_a_run_holds_the_files(project, hf):
    """Proves A6; before the first phase means with the files of that moment."""
    with hf.run("r", workspace=project) as run, run.phase("wipe"):
        (project / "src" / "one.py").unlink()
    first = hf.checkpoints("r")[-1]
    assert first.read("src/one.py") == b"one\n"
    assert hf.find("r:before:wipe").read("src/one.py") == b"one\n"
    assert hf.recover("r:before:wipe", workspace=project).success
    assert (project / "src" / "one.py").read_text() == "one\n"


def test_entering_a_run_again_captures_what_a_person_did_meanwhile(project, hf):
    program(project, "end")
    later(project / "src" / "one.py", "my fix\n")
    with hf.run("job", workspace=project):
        (project / "src" / "one.py").write_text("ruined at once\n")
    assert any(each.read("src/one.py") == b"my fix\n" for each in hf.checkpoints("job"))


def test_undo_keeps_what_was_edited_since(project, hf):
    """Point 9: an undo is no reason to lose work by hand."""
    program(project, "end")
    first = hf.checkpoints("job")[-1]
    assert hf.recover(first.id, workspace=project).success
    assert not (project / "a.txt").exists()
    (project / "src" / "one.py").write_text("by hand, after the recovery\n")
    (project / "a.txt").write_text("by hand, too\n")
    undone = hf.undo("job")
    assert undone.success
    assert (project / "src" / "one.py").read_text() == "by hand, after the recovery\n"
    assert (project / "a.txt").read_text() == "by hand, too\n"
    assert (project / "b.txt").read_text() == "b\n", "what the recovery did is undone"
    assert any("'src/one.py'" in warning and "'a.txt'" in warning for warning in undone.warnings)


def test_restore_brings_deleted_files_back_without_a_flag(project):
    """Proves F9 on the command line: rm -r, then restore."""
    program(project, "end")
    time.sleep(1.1)
    subprocess.run(["rm", "-r", "src"], cwd=project, check=True)
    shown = cli(project, "restore", "job", "--dry-run")
    assert "you deleted 2 files: restored" in shown.stdout
    done = cli(project, "--yes", "restore", "job")
    assert done.returncode == 0, done.stderr
    assert (project / "src" / "one.py").read_text() == "one\n"


def test_resume_names_what_is_kept_and_claims_nothing_else(project):
    """Points 1, 3 and 4: nothing is kept in silence, and no plan that writes is said to change no file."""
    program(project, "kill")
    subprocess.run(["rm", "-r", "src"], cwd=project, check=True)
    said = cli(project, "resume", "job")
    assert said.returncode == 14, said.stderr
    assert "code was interrupted and had changed 3 files: kept" in said.stdout
    assert "2 files deleted since the last checkpoint, by whom is not known: kept deleted" in said.stdout
    assert "you deleted" not in said.stdout, "it was within a second of the last sign of life"
    assert "--take" in said.stdout
    assert "by others" not in said.stdout + said.stderr
    rolled = cli(project, "--yes", "resume", "job", "--take")
    assert rolled.returncode == 14, rolled.stderr
    assert (project / "src" / "one.py").read_text() == "one\n"


def test_a_directory_that_was_emptied_is_filled_and_it_is_said(project):
    program(project, "end")
    subprocess.run("rm -r ./*", cwd=project, check=True, shell=True)
    said = cli(project, "resume", "job")
    assert said.returncode == 14, said.stderr
    assert "changes no file" not in said.stderr
    assert "it overwrites nothing, and writes 6 files that are not there" in said.stderr
    assert (project / "a.txt").read_text() == "whole\n"


def test_a_sign_of_life_costs_no_sync_and_is_never_captured(project, hf):
    with hf.run("r", workspace=project) as run:
        assert any(path.suffix == ".alive" for path in (project.parent / "store").rglob("*"))
        assert not any("alive" in record.path for record in run.checkpoint().files())


def test_a_head_whose_note_of_a_persons_edits_is_damaged_is_walked_back_from(hf, project):
    """Proves X3: what a damaged checkpoint says that people left is not known, and stops no recovery."""
    with hf.run("job", workspace=project) as run:
        run.checkpoint(reason="before")
    time.sleep(1.1)
    (project / "keep.txt").write_text("mine\n")
    with hf.run("job", workspace=project) as run:
        run.checkpoint(state={"n": 1})
    head = hf.latest("job")
    assert "edits" in head.sections
    damage_section(project.parent / "store", head, "edits")
    result = hf.recover("job", workspace=project, decisions=Decisions(edits="take", conflicts="take"))
    assert result.success, result.errors
    assert any("is damaged" in warning for warning in result.warnings)
    assert hf.verify(result.checkpoint).sound
