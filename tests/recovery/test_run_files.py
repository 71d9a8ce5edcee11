"""A run with a workspace, through the public door: captured by itself, compared, restored, undone, taken elsewhere."""

from __future__ import annotations

import os
import subprocess

import pytest

import holdfast
from holdfast.workspace.decide import Decisions
from holdfast.workspace.diff import summary


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "readme.txt").write_text("one\ntwo\nthree\n")
    (root / "src" / "main.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / ".env").write_text("TOKEN=1")
    return root


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


def tree(root):
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if ".holdfast" not in path.parts and ".git" not in path.parts
    }


def git(root, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=root, check=True, capture_output=True
    )


def test_a_checkpoint_holds_state_and_files_together(hf, project):
    """Proves X1, A6."""
    run = hf.run("r", workspace=project)
    checkpoint = run.checkpoint(state={"step": 1})
    again = hf.get(checkpoint.id)
    assert again.section("state") == {"step": 1}
    files = {record.path: record for record in again.files()}
    assert set(files) == {"readme.txt", "run.sh", "src", "src/main.py"}
    assert files["run.sh"].mode == 0o755
    assert again.read("src/main.py") == b"print(1)\n"
    assert again.section("workspace").files == 3
    assert again.not_captured.counts == {"secret": 1}
    assert again.git.head == "none"


def test_changes_are_told_since_the_parent_and_since_any_other(hf, project):
    """Proves A6, C8."""
    run = hf.run("r", workspace=project)
    first = run.checkpoint()
    (project / "readme.txt").write_text("one\nTWO\nthree\n")
    (project / "new.txt").write_text("new\n")
    run.checkpoint()
    (project / "src" / "main.py").unlink()
    third = run.checkpoint()
    assert [(change.path, change.status) for change in third.changes()] == [("src/main.py", "deleted")]
    since_first = {change.path: change.status for change in third.changes(first)}
    assert since_first == {"readme.txt": "modified", "new.txt": "created", "src/main.py": "deleted"}
    assert "-two\n+TWO\n" in next(diff.text for diff in third.diff(first) if diff.change.path == "readme.txt")
    assert "3 files changed, 2 insertions(+), 2 deletions(-)" in summary(third.diff(first))
    assert len(first.changes()) == 4  # without a parent everything is new


def test_a_restore_is_planned_applied_and_undone_by_one_more(hf, project):
    """Proves X4: shown before anything is touched, and every restore can be undone."""
    run = hf.run("r", workspace=project)
    first = run.checkpoint(state={"step": 1})
    before = tree(project)
    (project / "readme.txt").write_text("spoiled")
    (project / "extra.txt").write_text("extra")
    (project / "src" / "main.py").unlink()
    run.checkpoint(state={"step": 2})
    spoiled = tree(project)
    plan = run.workspace.plan(first)
    assert plan.counts() == {"replace": 1, "delete": 1, "write": 1}
    assert tree(project) == spoiled
    report = run.workspace.restore(plan)
    assert report.verified
    assert tree(project) == before
    safety = next(row for row in hf.checkpoints("r") if row.trigger == "before_destructive")
    run.workspace.restore(run.workspace.plan(safety))
    assert tree(project) == spoiled
    assert hf.latest("r").section("state") == {"step": 2}  # files alone were restored
    assert hf.verify().sound


def test_an_edit_made_outside_is_kept_and_a_conflict_refuses(hf, project):
    """Proves C15 (files), X4."""
    run = hf.run("r", workspace=project)
    first = run.checkpoint()
    (project / "src" / "main.py").write_text("print(2)\n")
    run.checkpoint()
    (project / "readme.txt").write_text("theirs\n")  # by others only
    (project / "src" / "main.py").write_text("print(3)\n")  # by the run and by others
    plan = run.workspace.plan(first)
    assert [(item.path, item.action) for item in plan.items] == [("readme.txt", "keep"), ("src/main.py", "conflict")]
    with pytest.raises(holdfast.RestoreConflict, match="main"):
        run.workspace.restore(plan)
    assert (project / "src" / "main.py").read_text() == "print(3)\n"
    run.workspace.restore(run.workspace.plan(first, decisions=Decisions(paths={"src": "take"})))
    assert (project / "src" / "main.py").read_text() == "print(1)\n"
    assert (project / "readme.txt").read_text() == "theirs\n"


def test_a_path_that_changed_after_the_plan_is_not_overwritten(hf, project):
    """Proves X4: what is applied is what was shown."""
    run = hf.run("r", workspace=project)
    first = run.checkpoint()
    (project / "readme.txt").write_text("second")
    run.checkpoint()
    plan = run.workspace.plan(first)
    (project / "readme.txt").write_text("changed since the plan")
    with pytest.raises(holdfast.RestoreConflict):
        run.workspace.restore(plan)
    assert (project / "readme.txt").read_text() == "changed since the plan"


def test_chosen_paths_and_another_directory(hf, project, tmp_path):
    """Proves X1: the same tree on another machine or in an empty directory."""
    run = hf.run("r", workspace=project)
    first = run.checkpoint()
    expected = {path: data for path, data in tree(project).items() if path != ".env"}
    run.workspace.restore(run.workspace.plan(first, into=tmp_path / "elsewhere"))
    assert tree(tmp_path / "elsewhere") == expected
    assert os.access(tmp_path / "elsewhere" / "run.sh", os.X_OK)
    (project / "readme.txt").write_text("x")
    (project / "run.sh").write_text("x")
    run.checkpoint()
    run.workspace.restore(run.workspace.plan(first, paths=["run.sh"]))
    assert (project / "run.sh").read_text() == "#!/bin/sh\n"
    assert (project / "readme.txt").read_text() == "x"


def test_the_store_inside_the_workspace_is_neither_captured_nor_written(project):
    with holdfast.open(project / "data" / "own.db") as hf:
        checkpoint = hf.run("r", workspace=project).checkpoint()
        assert not [record.path for record in checkpoint.files() if record.path.startswith("data/")]


def test_a_new_process_knows_what_the_last_one_knew(tmp_path, project):
    """A cache left by the first handle lets the second one capture without reading a file again."""
    with holdfast.open(tmp_path / "store") as hf:
        first = hf.run("r", workspace=project).checkpoint()
    for path in project.rglob("*"):
        os.utime(path, (1, 1))
    with holdfast.open(tmp_path / "store") as hf:
        run = hf.run("r", workspace=project)
        assert run.workspace.changes() == []
        second = run.checkpoint()
        assert second.changes(hf.get(first.id)) == []


def test_git_goes_back_where_it_was_only_when_asked(hf, project):
    """Proves A6: branch, commit and index."""
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "readme.txt")
    git(project, "commit", "-qm", "first")
    (project / "readme.txt").write_text("staged\n")
    git(project, "add", "readme.txt")
    run = hf.run("r", workspace=project)
    first = run.checkpoint()
    assert (first.git.branch, first.git.dirty, [item.path for item in first.git.staged]) == (
        "main", True, ["readme.txt"],
    )  # fmt: skip
    git(project, "commit", "-qm", "second")
    git(project, "checkout", "-qb", "other")
    run.checkpoint()
    steps = run.workspace.restore_git(first)
    assert steps
    assert (project / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert "staged" in (project / "readme.txt").read_text()


def test_files_can_be_left_out_and_a_run_without_a_workspace_says_so(hf, project):
    run = hf.run("r", workspace=project)
    first = run.checkpoint()
    (project / "readme.txt").write_text("x")
    second = run.checkpoint(files=False)
    assert second.changes() == []
    assert second.workspace.root == first.workspace.root
    with pytest.raises(holdfast.UsageError, match="has no workspace"):
        _ = hf.run("plain").workspace
    with pytest.raises(holdfast.NotFound):
        hf.run("plain").checkpoint(state=1).files()
    with pytest.raises(holdfast.UsageError, match="does not exist"):
        hf.run("q", workspace=project / "missing")
    with pytest.raises(holdfast.UsageError, match="is not a directory"):
        hf.run("q", workspace=project / "readme.txt")


def captured(checkpoint):
    return {record.path for record in checkpoint.files()}


@pytest.mark.parametrize("place", ["my.db", "data/own.db"])
def test_a_database_in_the_workspace_is_left_out_with_its_own_files_only(project, place):
    """Not the folder that it lies in, and neither its journals nor the caches beside it."""
    (project / "data").mkdir()
    (project / "data" / "mine.txt").write_text("mine")
    expected = {"data", "data/mine.txt", "readme.txt", "run.sh", "src", "src/main.py"}
    for _ in range(2):
        with holdfast.open(project / place) as hf:
            run = hf.run("r", workspace=project)
            assert captured(run.checkpoint()) == expected
            assert captured(run.checkpoint(state=1)) == expected
            assert run.workspace.changes() == []
        (project / f"{place}-journal").touch()


def test_a_store_reached_through_a_link_is_left_out(project, tmp_path):
    (tmp_path / "door").symlink_to(project)
    with holdfast.open(tmp_path / "door" / "my.db") as hf:
        checkpoint = hf.run("r", workspace=project).checkpoint()
        assert not [path for path in captured(checkpoint) if path.startswith(("my.db", "workspace-"))]


def test_a_store_of_files_around_the_workspace_is_refused_and_inside_left_out(project):
    for folder in (project, project.parent):
        with holdfast.open(f"file://{folder}") as hf, pytest.raises(holdfast.UsageError, match="store elsewhere"):
            hf.run("r", workspace=project)
    with holdfast.open(f"file://{project}/src/kept") as hf:
        checkpoint = hf.run("r", workspace=project).checkpoint()
        assert "src/main.py" in captured(checkpoint)
        assert not [path for path in captured(checkpoint) if path.startswith("src/kept")]


def test_a_plan_for_another_directory_touches_nothing(hf, project, tmp_path):
    """Proves X4."""
    run = hf.run("r", workspace=project)
    plan = run.workspace.plan(run.checkpoint(), into=tmp_path / "far" / "away")
    assert not (tmp_path / "far").exists()
    assert plan.counts() == {"write": 4}
    left = tmp_path / "there" / ".holdfast" / "restore-0123"
    left.mkdir(parents=True)
    again = run.workspace.plan(hf.latest("r"), into=tmp_path / "there")
    assert left.exists()
    for made in (plan, again):
        assert run.workspace.restore(made).verified
    assert tree(tmp_path / "far" / "away") == tree(tmp_path / "there")
    assert not left.exists()


def test_a_file_that_was_just_deleted_comes_back_and_an_edit_is_kept(hf, project):
    """Proves X4: outside edits are kept, unless the person names the path or decides to take the checkpoint's."""
    run = hf.run("r", workspace=project)
    head = run.checkpoint()
    (project / "readme.txt").unlink()
    (project / "run.sh").write_text("spoiled")
    assert run.workspace.plan(head).counts() == {"keep": 1, "write": 1}
    assert run.workspace.plan(head, decisions=Decisions()).counts() == {"keep": 2}
    run.workspace.restore(run.workspace.plan(head))
    assert (project / "readme.txt").read_text() == "one\ntwo\nthree\n"
    assert (project / "run.sh").read_text() == "spoiled"
    run.workspace.restore(run.workspace.plan(head, decisions=Decisions(edits="take")))
    assert (project / "run.sh").read_text() == "#!/bin/sh\n"
