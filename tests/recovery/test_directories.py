"""A directory belongs to a run: a fork has its own, and one that does not stand at the head is brought to it first."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from recovery.recovery_kit import tree


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


def directory(place, **files):
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / f"{name}.txt").write_text(text)
    return place


def git(project, *arguments):
    named = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(named, cwd=project, check=True, capture_output=True, text=True).stdout


def cli(project, *words):
    line = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(line, cwd=project, check=False, timeout=60, capture_output=True, text=True)


FLOW = "flow: f\nphases:\n  one: {run: 'echo 1 > one.txt'}\n  two: {run: 'test -e stop && exit 1; echo 2 > two.txt'}\n"


def test_a_run_that_went_elsewhere_and_back_finds_no_stale_files(hf, tmp_path):
    """Point 7 and G2: A, then B, then A again; what B did is there, what it deleted is not back."""
    a, b = directory(tmp_path / "a", x="1\n", y="1\n", z="1\n"), directory(tmp_path / "b")
    with hf.run("r", workspace=a) as run:
        run.checkpoint(state=1)
    with hf.run("r", workspace=b):
        assert (b / "x.txt").read_text() == "1\n", "an empty directory gets the files first"
        (b / "x.txt").write_text("2\n")
        (b / "new.txt").write_text("2\n")
        (b / "z.txt").unlink()
    (a / "y.txt").write_text("edited in a\n")
    with hf.run("r", workspace=a):
        assert (a / "x.txt").read_text() == "2\n"
        assert (a / "new.txt").read_text() == "2\n"
        assert (a / "y.txt").read_text() == "edited in a\n"
        assert not (a / "z.txt").exists()
    head = hf.latest("r")
    held = {record.path: head.read(record.path) for record in head.files() if record.kind == "file"}
    assert held == {"x.txt": b"2\n", "y.txt": b"edited in a\n", "new.txt": b"2\n"}


def test_a_run_whose_files_were_not_brought_whole_does_not_start_in_an_empty_directory(hf, tmp_path):
    a, b = directory(tmp_path / "a", x="1\n"), directory(tmp_path / "b")
    with hf.run("r", workspace=a) as run:
        run.checkpoint(state=1)
    for _ in range(2):
        with hf.run("r", workspace=b):
            assert (b / "x.txt").read_text() == "1\n"
        (b / "x.txt").unlink()
        (b / ".holdfast").mkdir(exist_ok=True)


def test_a_stamp_that_came_with_a_copy_of_the_directory_is_not_believed(tmp_path):
    a = directory(tmp_path / "a", x="1\n")
    with holdfast.open(a / ".holdfast") as hf, hf.run("r", workspace=a) as run:
        run.checkpoint(state=1)
    copied = tmp_path / "copied"
    subprocess.run(["cp", "-a", a, copied], check=True)
    (copied / "x.txt").write_text("mine\n")
    with holdfast.open(copied / ".holdfast") as hf, hf.run("r", workspace=copied):
        assert (copied / "x.txt").read_text() == "mine\n"


def test_a_fork_is_a_git_worktree_and_its_work_is_done_there(tmp_path):
    """Proves F5: the fork's work never reaches the original's files, whoever types the obvious line."""
    project = directory(tmp_path / "project")
    (project / "f.yaml").write_text(FLOW)
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "f.yaml")
    git(project, "commit", "-qm", "first")
    assert cli(project, "init").returncode == 0
    (project / "stop").touch()
    assert cli(project, "run", "f.yaml", "--no-wait").returncode != 0
    (project / "stop").unlink()
    before = tree(project)
    forked = cli(project, "fork", "f:before:two", "other")
    assert forked.returncode == 0, forked.stderr
    place = tmp_path / "project-other"
    assert f"Its directory is {place} (a git worktree on branch other)" in forked.stderr
    assert "holdfast run f.yaml --run-id other" in forked.stderr
    assert "other" in git(project, "branch", "--list")
    assert git(place, "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD")
    (place / "stop").unlink(missing_ok=True)
    done = cli(project, "run", "f.yaml", "--run-id", "other", "--resume", "--no-wait")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (place / "two.txt").read_text() == "2\n"
    assert tree(project) == before
    assert str(place) in cli(project, "restore", "other", "--dry-run").stderr


@pytest.mark.parametrize("line", [["run", "f.yaml", "--no-wait"], ["status", "other"], ["checkpoint", "other"]])
def test_in_a_fork_s_directory_no_other_store_begins_when_its_project_was_moved(tmp_path, line):
    """Proves F5: the flow would begin from the start there, in silence."""
    project = directory(tmp_path / "project")
    (project / "f.yaml").write_text(FLOW)
    assert cli(project, "init").returncode == 0
    assert cli(project, "run", "f.yaml", "--no-wait").returncode == 0
    assert cli(project, "fork", "f:before:two", "other").returncode == 0
    place = tmp_path / "project-other"
    project.rename(tmp_path / "moved")
    refused = cli(place, *line)
    assert refused.returncode == 3, refused.stderr + refused.stdout
    assert "--store" in refused.stderr
    assert not project.exists()
    assert not (place / ".holdfast" / "holdfast.db").exists()
    named = cli(place, "--store", str(tmp_path / "moved" / ".holdfast"), "resume", "other", "--dry-run")
    assert named.returncode == 0, named.stderr
    assert str(place) in named.stdout + named.stderr


def test_a_fork_that_cannot_be_a_worktree_removes_nothing_behind_a_link(tmp_path):
    """Threat 6: `.git/worktrees` led elsewhere, and what had the fork's name there was deleted."""
    project, elsewhere = directory(tmp_path / "project", x="1"), tmp_path / "elsewhere"
    directory(elsewhere / "notes", mine="mine")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    assert cli(project, "checkpoint", "r", "--workspace").returncode == 0
    (project / ".git" / "worktrees").symlink_to(elsewhere)
    before = tree(elsewhere)
    assert cli(project, "fork", "r@1", "--into", str(tmp_path / "notes")).returncode == 0
    assert (tmp_path / "notes" / "x.txt").read_text() == "1"
    assert tree(elsewhere) == before


def test_a_fork_whose_name_no_branch_can_have_is_detached(tmp_path):
    """Git keeps refs as paths: one cannot be both a branch and a directory of branches, also if they are packed."""
    project = directory(tmp_path / "project", x="1\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "x.txt")
    git(project, "commit", "-qm", "first")
    git(project, "branch", "feature/1")
    git(project, "pack-refs", "--all")
    with holdfast.open(project / ".holdfast") as hf, hf.run("r", workspace=project) as run:
        run.checkpoint(state=1)
    forked = cli(project, "fork", "r", "feature", "--into", str(tmp_path / "forked"))
    assert forked.returncode == 0, forked.stderr
    head = git(project, "rev-parse", "main")
    assert [git(project, "rev-parse", "feature/1"), git(tmp_path / "forked", "rev-parse", "HEAD")] == [head, head]


def test_without_git_a_fork_is_a_copy(tmp_path):
    project = directory(tmp_path / "project", x="1\n")
    with holdfast.open(project / ".holdfast") as hf, hf.run("r", workspace=project) as run:
        run.checkpoint(state=1)
    forked = cli(project, "fork", "r", "other")
    assert forked.returncode == 0, forked.stderr
    assert (tmp_path / "project-other" / "x.txt").read_text() == "1\n"
    assert "(a copy)" in forked.stderr
    assert cli(project, "fork", "r", "third", "--no-files").returncode == 0
    assert not (tmp_path / "project-third").exists()
    full = directory(tmp_path / "full", z="z")
    assert cli(project, "fork", "r", "fourth", "--into", str(full)).returncode != 0
    with holdfast.open(project / ".holdfast") as hf:
        assert not hf.has("fourth")
