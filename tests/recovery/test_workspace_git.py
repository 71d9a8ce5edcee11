"""Git positions in every state: read without a trace, and put back only where nothing can be lost."""

# ruff: noqa: TC003 - names are bytes here

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import RestoreFailed, RestoreRefused
from holdfast.workspace.checkout import checkout, plan_checkout
from holdfast.workspace.index import Indexed, dump
from holdfast.workspace.options import WorkspaceOptions
from holdfast.workspace.position import GitChange, IndexEntry
from unit.workspace.kit import Box, git, repository, seen, write


def _fingerprint(directory: Path) -> dict[str, tuple[str, int]]:
    """Every byte and time below .git."""
    return {
        str(path.relative_to(directory)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path / "w")
    repository(made.root, {"a": "1\n2\n3\n", "b": "x\n", "d": {"c": "y\n"}})
    return made


def test_a_plain_directory_has_no_repository(tmp_path):
    plain = Box(tmp_path / "p")
    write(plain.root, {"x": "1"})
    assert plain.capture().git.head == "none"


def test_branch_commit_staged_and_unstaged_are_told(box):
    """Proves A6 and C8."""
    write(box.root, {"a": "changed\n", "new": "n\n"})
    git(box.root, "add", "a", "new")
    git(box.root, "rm", "-q", "--cached", "b")
    write(box.root, {"a": "changed again\n"})
    (box.root / "d/c").unlink()
    position = box.capture().git
    assert (position.head, position.branch) == ("branch", "main")
    assert position.commit == git(box.root, "rev-parse", "HEAD").strip()
    assert set(position.staged) == {GitChange("a", "M"), GitChange("b", "D"), GitChange("new", "A")}
    assert set(position.unstaged) == {GitChange("a", "M"), GitChange("d/c", "D")}
    assert position.dirty


def test_only_the_paths_that_changed_are_asked_about_again_and_the_answer_is_the_same(box):
    box.capture()
    for content in ("x", "1\n2\n3\n"):
        write(box.root, {"a": content, "d/c": content})
        quick = box.capture().git
        fresh = Box(box.root).capture().git
        assert (quick.unstaged, quick.staged) == (fresh.unstaged, fresh.staged)


def test_unborn_and_detached_heads_are_represented(tmp_path, box):
    repository(tmp_path / "u")
    assert Box(tmp_path / "u").capture().git.head == "unborn"
    git(box.root, "checkout", "-q", "--detach")
    position = box.capture().git
    assert position.head == "detached"
    assert position.branch is None
    assert position.commit


def _conflicting(root: Path) -> None:
    git(root, "checkout", "-qb", "side")
    write(root, {"a": "side\n"})
    git(root, "commit", "-qam", "side")
    git(root, "checkout", "-q", "main")
    write(root, {"a": "main\n"})
    git(root, "commit", "-qam", "main")


@pytest.mark.parametrize(
    ("command", "operation"),
    [
        (("merge", "side"), "merge"),
        (("rebase", "side"), "rebase"),
        (("cherry-pick", "side"), "cherry-pick"),
        (("revert", "--no-edit", "HEAD~1"), "revert"),
    ],
)
def test_what_is_in_progress_is_told(box, command, operation):
    _conflicting(box.root)
    if operation == "revert":
        write(box.root, {"a": "more\n"})
        git(box.root, "commit", "-qam", "more")
    git(box.root, *command, check=False)
    position = box.capture().git
    assert position.operation == operation
    assert GitChange("a", "U") in position.unstaged


def test_a_broken_repository_is_a_told_problem_and_the_files_are_captured(tmp_path):
    broken = Box(tmp_path / "b")
    write(broken.root, {".git": "gitdir: /nowhere\n", "x": "1"})
    taken = broken.capture()
    assert taken.git.head == "unknown"
    assert taken.git.problem
    assert broken.paths(taken) == ["x"]


def test_a_workspace_inside_a_repository_has_its_position_and_its_rules(box):
    write(box.root, {".gitignore": "*.o\n/d/top\n", "d": {"x.o": "1", "top": "1", "kept": "1"}})
    inner = Box(box.root / "d")
    taken = inner.capture()
    assert inner.paths(taken) == ["c", "kept"]
    assert taken.git.branch == "main"


def test_capturing_leaves_no_trace_in_the_repository_and_runs_none_of_its_commands(box, tmp_path):
    """Proves A6: no commit, ref, index change, hook, filter or monitor."""
    mark = tmp_path / "ran"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for name in ("fsmonitor-watchman", "post-index-change", "pre-commit", "reference-transaction"):
        (box.root / ".git/hooks" / name).write_text(script.read_text())
        (box.root / ".git/hooks" / name).chmod(0o755)
    write(box.root, {".gitattributes": "* filter=evil diff=evil\n"})
    for setting in (
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "core.fsmonitor",
    ):
        git(box.root, "config", setting, str(script))
    write(box.root, {"a": "1\n2\n4\n"})
    before = _fingerprint(box.root / ".git")
    for _ in range(3):
        box.capture()
        os.utime(box.root / "b")
    assert not mark.exists()
    assert _fingerprint(box.root / ".git") == before


def test_a_filter_whose_name_is_not_utf8_is_not_run(box, tmp_path):
    mark = tmp_path / "ran"
    with (box.root / ".git/config").open("ab") as file:
        file.write(b'[filter "\xff"]\n\tclean = touch %s\n' % os.fsencode(mark))
    (box.root / ".gitattributes").write_bytes(b"* filter=\xff\n")
    write(box.root, {"a": "1\n2\n4\n"})
    assert GitChange("a", "M") in box.capture().git.unstaged
    assert not mark.exists()


def test_state_files_that_are_links_are_neither_read_nor_written_through(box, tmp_path):
    private, victim = tmp_path / "key", tmp_path / "victim"
    private.write_text("private")
    victim.write_text("precious")
    _conflicting(box.root)
    git(box.root, "merge", "side", check=False)
    wanted = box.capture()
    assert "MERGE_MSG" in dict(wanted.git.state_files)
    (box.root / ".git/MERGE_MSG").unlink()
    (box.root / ".git/MERGE_MSG").symlink_to(private)
    assert "MERGE_MSG" not in dict(box.capture().git.state_files)
    (box.root / ".git/MERGE_MSG").unlink()
    (box.root / ".git/MERGE_MSG").symlink_to(victim)
    (box.root / ".git/AUTO_MERGE").unlink(missing_ok=True)
    (box.root / ".git/AUTO_MERGE").symlink_to(victim)
    checkout(str(box.root), wanted.git, box.reader)
    assert (private.read_text(), victim.read_text()) == ("private", "precious")
    assert not (box.root / ".git/MERGE_MSG").is_symlink()
    assert (box.root / ".git/MERGE_MSG").read_bytes() == dict(wanted.git.state_files)["MERGE_MSG"]


@pytest.mark.parametrize("where", ["refs", "refs/heads", "objects", "logs", "objects/aa"])
def test_a_position_is_not_put_back_through_links_of_the_repository(box, tmp_path, where):
    write(box.root, {"new": "staged\n"})
    git(box.root, "add", "new")
    wanted = box.capture()
    git(box.root, "commit", "-qm", "later")
    git(box.root, "branch", "keep")
    box.capture()
    outside = tmp_path / "outside"
    place = box.root / ".git" / where
    (shutil.move if place.exists() else lambda _, to: to.mkdir())(place, outside)
    place.symlink_to(outside)
    before = _fingerprint(outside)
    with suppress(RestoreRefused, RestoreFailed):
        checkout(str(box.root), wanted.git, box.reader)
    assert _fingerprint(outside) == before


@pytest.mark.parametrize(
    "forged",
    [
        IndexEntry("../x", 0, 0o100644, "a" * 40),
        IndexEntry(".git/hooks/pre-commit", 0, 0o100755, "a" * 40),
        IndexEntry("x", 0, 0o160000, "../../../../etc/passwd"),
        IndexEntry("x", 7, 0o160000, "a" * 40),
        IndexEntry("x", 0, 0o104755, "a" * 40),
        IndexEntry("a/" * 900 + "x", 0, 0o160000, "a" * 40),
    ],
)
def test_a_stored_index_that_git_would_not_have_made_is_refused(box, forged):
    wanted = replace(box.capture().git, index=(forged,))
    before = _fingerprint(box.root / ".git")
    with pytest.raises(RestoreRefused):
        checkout(str(box.root), wanted, box.reader)
    for name in ("../../x", "a b", "x.lock", "", "refs/../../x"):
        with pytest.raises(RestoreRefused):
            checkout(str(box.root), replace(wanted, index=(), branch=name), box.reader)
    assert _fingerprint(box.root / ".git") == before


@pytest.mark.parametrize("path", [b"a/" * 900 + b"x", b"../x", b"d/../../x", b"d//x", b".GIT/x"])
def test_an_index_that_git_would_not_have_made_is_a_told_problem(box, path):
    entries = [Indexed(path, 0, 0o100644, "a" * 40)]
    (box.root / ".git/index").write_bytes(dump(entries, 20))
    assert "index is damaged" in box.capture().git.problem


def test_a_commit_that_unpacks_to_billions_of_paths_is_a_told_problem(box):
    tree = git(box.root, "rev-parse", "HEAD^{tree}").strip()
    for _ in range(10):
        made = subprocess.run(
            ["git", "mktree"],
            cwd=box.root,
            input="".join(f"040000 tree {tree}\t{i:02}\n" for i in range(20)).encode(),
            capture_output=True,
            check=True,
        )
        tree = made.stdout.decode().strip()
    git(box.root, "update-ref", "HEAD", git(box.root, "commit-tree", "-m", "bomb", tree).strip())
    assert "more than 500,000 paths" in box.capture().git.problem


def test_a_git_file_that_leads_to_another_repository_is_not_followed(tmp_path):
    repository(tmp_path / "private", {"x": "1"})
    git(tmp_path / "private", "worktree", "add", "-q", str(tmp_path / "linked"))
    write(tmp_path / "linked", {"secret": "staged and private"})
    git(tmp_path / "linked", "add", "-A")
    for target in (tmp_path / "private/.git", tmp_path / "private/.git/worktrees/linked"):
        hostile = Box(tmp_path / f"h{len(str(target))}")
        write(hostile.root, {".git": f"gitdir: {target}\n", "y": "1"})
        taken = hostile.capture()
        assert (taken.git.head, taken.git.blobs) == ("unknown", ())
        assert "does not belong" in taken.git.problem or "neither" in taken.git.problem


def test_staged_contents_of_another_repository_are_not_taken(box, tmp_path):
    """The index of a hostile repository names a blob that only the repository it borrows from has."""
    repository(tmp_path / "private", {"x": "private content"})
    shutil.copy(tmp_path / "private/.git/index", box.root / ".git/index")
    info = box.root / ".git/objects/info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{tmp_path}/private/.git/objects\n")
    position = box.capture().git
    assert position.blobs == ()
    assert position.problem


def test_branch_commit_and_index_are_put_back(box):
    """Proves X1: the git position of a checkpoint, staged contents included."""
    write(box.root, {"a": "staged\n", "new": "n\n"})
    git(box.root, "add", "a", "new")
    git(box.root, "rm", "-q", "--cached", "b")
    write(box.root, {"a": "worked on\n"})
    wanted = box.capture()
    files = seen(box.root)
    git(box.root, "stash", "-q")
    git(box.root, "checkout", "-qb", "elsewhere")
    write(box.root, {"other": "o\n"})
    git(box.root, "add", "-A")
    git(box.root, "commit", "-qm", "elsewhere")
    git(box.root, "stash", "drop", "-q")
    git(box.root, "gc", "-q", "--prune=now")
    box.capture()
    box.restore(wanted)
    checkout(str(box.root), wanted.git, box.reader)
    now = Box(box.root).capture().git
    assert (now.branch, now.commit, now.staged, now.unstaged) == (
        "main",
        wanted.git.commit,
        wanted.git.staged,
        wanted.git.unstaged,
    )
    assert seen(box.root) == files
    assert git(box.root, "show", ":a") == "staged\n"
    git(box.root, "fsck", "--strict")


def test_a_merge_in_progress_is_put_back(box):
    _conflicting(box.root)
    git(box.root, "merge", "side", check=False)
    wanted = box.capture()
    git(box.root, "merge", "--abort")
    box.capture()
    box.restore(wanted)
    checkout(str(box.root), wanted.git, box.reader)
    assert Box(box.root).capture().git == wanted.git
    assert git(box.root, "ls-files", "-u").count("\n") == 3


def test_a_rebase_in_progress_is_put_back_and_can_be_continued(box):
    _conflicting(box.root)
    git(box.root, "rebase", "side", check=False)
    wanted, before = box.capture(), git(box.root, "status", "--porcelain=v2", "--branch")
    git(box.root, "rebase", "--abort")
    box.capture()
    box.restore(wanted)
    checkout(str(box.root), wanted.git, box.reader)
    assert git(box.root, "status", "--porcelain=v2", "--branch") == before
    write(box.root, {"a": "both\n"})
    git(box.root, "add", "a")
    git(box.root, "rebase", "--continue")
    assert not Box(box.root).capture().git.dirty


@pytest.mark.parametrize("case", ["commits", "detached", "staged", "operation", "foreign"])
def test_git_stays_where_it_is_when_something_would_be_lost(box, case, tmp_path):
    wanted = box.capture().git
    root = box.root
    if case == "commits":
        write(root, {"a": "later\n"})
        git(root, "commit", "-qam", "later")
    elif case == "detached":
        git(root, "checkout", "-q", "--detach")
        write(root, {"a": "loose\n"})
        git(root, "commit", "-qam", "loose")
    elif case == "staged":
        write(root, {"a": "only in the index\n"})
        git(root, "add", "a")
        write(root, {"a": "1\n2\n3\n"})
    elif case == "operation":
        _conflicting(root)
        git(root, "merge", "side", check=False)
    elif case == "foreign":
        repository(tmp_path / "f", {"z": "1"})
        root = tmp_path / "f"
    before = _fingerprint(root / ".git")
    with pytest.raises(RestoreRefused, match="git stays where it is"):
        checkout(str(root), wanted, box.reader)
    assert _fingerprint(root / ".git") == before


def test_commits_that_another_branch_holds_are_no_obstacle(box):
    wanted = box.capture()
    write(box.root, {"a": "later\n"})
    git(box.root, "commit", "-qam", "later")
    git(box.root, "branch", "keep")
    box.capture()
    box.restore(wanted)
    steps = plan_checkout(str(box.root), wanted.git)
    assert any("branch main moves" in step for step in steps)
    checkout(str(box.root), wanted.git, box.reader)
    now = Box(box.root).capture().git
    assert now.commit == wanted.git.commit
    assert not now.dirty
    assert plan_checkout(str(box.root), wanted.git) == []


def test_staged_contents_that_the_users_own_rules_leave_out_are_not_kept(tmp_path):
    root = tmp_path / "w"
    repository(root, {"a": "1", "sub": {".holdfastignore": "hidden\n"}, ".holdfastignore": "private/\n"})
    box = Box(root, WorkspaceOptions(ignore=("*.dump",), max_file_bytes=1000))
    hidden = {"private": {"x": "secret 1"}, "sub": {"hidden": "secret 2"}, "y.dump": "secret 3", "big": "4" * 1001}
    write(root, {**hidden, "open": "told"})
    git(root, "add", "-A", "-f")
    position = box.capture().git
    assert {entry.path for entry in position.index} == {"private/x", "sub/hidden", "y.dump", "big", "open"}
    assert [ref.size for _, ref in position.blobs] == [4]
    assert (
        position.problem
        == "3 staged contents are left out by rules or settings; 1 staged contents are too large to keep"
    )
    (root / ".holdfastignore").write_text("private/\nopen\n")
    assert box.capture().git.blobs == ()
