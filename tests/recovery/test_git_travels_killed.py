"""Killed at any file operation of bringing files, recovering, forking or putting git back: the next start ends it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

import holdfast
from crash.children import TORTURE, Child
from crash.file_operations import killed_before, moments, operations
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.recovery.fork import fork_files
from holdfast.workspace import git_create
from holdfast.workspace.position import STATE_FILES
from recovery.odd_repositories import picture, plain
from recovery.recovery_kit import tree
from unit.workspace.kit import git, write

SAMPLE = None if TORTURE else 9


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "work"
    plain(root)
    write(root, {"a": "staged\n", "new": {"deep": {"x": "1\n"}}})
    git(root, "add", "a")
    with holdfast.open(tmp_path / "store") as hf, hf.run("r", workspace=root) as run:
        run.checkpoint(state=1)
    return tmp_path


def entered(place, target):
    with holdfast.open(place / "store") as hf, hf.run("r", workspace=target):
        pass


def recovered(place, target):
    with holdfast.open(place / "store") as hf:
        assert hf.recover("r", workspace=target).success


def left_in(folder):
    return {path.name for path in folder.iterdir() if path.name.startswith(("holdfast-", "index.lock", "HEAD.lock"))}


@pytest.mark.parametrize("act", [entered, recovered])
def test_files_and_repository_are_whole_after_a_kill_at_any_operation(place, act):
    """Proves X1, SCALE G1: never an empty directory, never files without their repository."""
    wanted, before = tree(place / "work"), picture(place / "work")
    (place / "whole").mkdir()
    total = operations(lambda: act(place, place / "whole"))
    assert picture(place / "whole") == before
    assert total > 100
    for at in moments(total, sample=SAMPLE):
        target = place / f"killed-{at}"
        target.mkdir()
        operations(lambda target=target: act(place, target), kill_at=at)
        act(place, target)
        assert tree(target) == wanted, at
        assert picture(target) == before, at
        left = {path.name for path in (target / ".holdfast").iterdir()}
        assert not {name for name in left if name.startswith(("repository-", "repositories.", "restore-"))}, at


def test_a_fork_that_is_killed_leaves_the_original_alone_and_is_made_whole_by_opening_it(place):
    """Proves F5: at any operation of making its worktree."""
    wanted, before = tree(place / "work"), git(place / "work", "status", "--porcelain=v2", "--branch")

    def forked(name):
        with holdfast.open(place / "store") as hf:
            fork_files(hf, hf.fork("r", name), place / name, beside=place / "work")

    total = operations(lambda: forked("whole"))
    for at in moments(total, sample=SAMPLE):
        name = f"fork-{at}"
        operations(lambda name=name: forked(name), kill_at=at)
        assert tree(place / "work") == wanted, at
        assert git(place / "work", "status", "--porcelain=v2", "--branch") == before, at
        with holdfast.open(place / "store") as hf:
            if not hf.has(name):
                continue
            (place / name).mkdir(exist_ok=True)
            with hf.run(name, workspace=place / name):
                assert tree(place / name) == wanted, at
        assert Path(place / name / ".git").exists(), at


@pytest.fixture
def moved(tmp_path):
    """A repository that stands elsewhere than at the first checkpoint: branch, commit, index and files."""
    root = tmp_path / "work"
    plain(root)
    write(root, {"a": "staged\n"})
    git(root, "add", "a")
    with holdfast.open(tmp_path / "store") as hf:
        run = hf.run("r", workspace=root)
        run.checkpoint(state=1)
        before = stands(tmp_path)
        git(root, "commit", "-q", "-m", "the run's own")
        git(root, "checkout", "-q", "-b", "another")
        write(root, {"a": "later\n", "b": "later\n", "more": {"x": "new\n"}})
        git(root, "add", "b")
        run.checkpoint(state=2)
    return tmp_path, before, stands(tmp_path)


def stands(folder):
    """Return where a repository stands, with its files; branches that it left behind do not count."""
    root = folder / "work"
    return git(root, "status", "--porcelain=v2", "--branch"), git(root, "ls-files", "--stage"), tree(root)


def put_back(folder):
    with holdfast.open(folder / "store") as hf:
        result = hf.recover("r@1", workspace=folder / "work", git=True, confirmed=True)
        assert result.success, result.errors


def copied(folder, name):
    """Return a copy of store and work tree."""
    target = folder / name
    shutil.copytree(folder / "store", target / "store", symlinks=True)
    shutil.copytree(folder / "work", target / "work", symlinks=True)
    return target


def test_git_that_is_put_back_is_whole_after_a_kill_at_any_operation(moved):
    """Proves X1: branch, commit, index and files end together, and no lock of a dead process stays in the way."""
    folder, before, after = moved
    total = operations(lambda: put_back(copied(folder, "whole")))
    assert stands(folder / "whole") == before
    assert total > 100
    ends = set()
    for at in moments(total, sample=SAMPLE):
        target = copied(folder, f"killed-{at}")
        operations(lambda target=target: put_back(target), kill_at=at)
        with holdfast.open(target / "store") as hf:
            hf.run("r", workspace=target / "work").close()
        found = stands(target)
        assert found == (before if found[2]["b"] == before[2]["b"] else after), at
        ends.add(found == before)
        with holdfast.open(target / "store") as hf:
            assert hf.latest("r").section("state") == (1 if found == before else 2), at
        put_back(target)
        assert stands(target) == before, at
        assert not left_in(target / "work/.git"), at
    assert ends == {True, False}


def opened(folder):
    with holdfast.open(folder / "store") as hf:
        hf.run("r", workspace=folder / "work").close()


def restored(folder):
    line = ["--store", str(folder / "store"), "restore", "r@1", "--git", "--take", "--yes", "--workspace"]
    assert main([*line, str(folder / "work")]) == 0


def undone(folder):
    with holdfast.open(folder / "store") as hf:
        result = hf.undo("r", workspace=folder / "work")
        assert result.success, result.errors


MOVES = [b"HEAD", b"HEAD.lock", b"index", b"index.lock"]


@pytest.mark.parametrize("name", [*MOVES, b"holdfast-checkout"])
@pytest.mark.parametrize("act", [put_back, restored, undone])
def test_git_ends_as_planned_after_a_kill_between_head_and_index(moved, act, name):
    """Proves X1, issue 15: opening the run ends what was begun: HEAD, index and files, and no lock is left."""
    folder, before, after = moved
    if act is undone:
        put_back(folder)
        before, after = after, before
    killed_before(lambda: act(folder), name)
    opened(folder)
    found = stands(folder)
    if name == b"holdfast-checkout":  # not noted yet, or all done
        found, before = found[2], before[2]
    assert found == before
    assert not left_in(folder / "work/.git")


@pytest.mark.parametrize("name", MOVES)
def test_a_recovery_that_moves_git_alone_is_finished_with_its_state(tmp_path, name):
    """Proves X1: where no file differs, git says how far a killed recovery came."""
    root = tmp_path / "work"
    plain(root)
    write(root, {"a": "later\n"})
    with holdfast.open(tmp_path / "store") as hf:
        run = hf.run("r", workspace=root)
        run.checkpoint(state=1)
        before = stands(tmp_path)
        git(root, "checkout", "-q", "-b", "another")
        git(root, "add", "a")
        run.checkpoint(state=2)
    killed_before(lambda: put_back(tmp_path), name)
    opened(tmp_path)
    assert stands(tmp_path) == before
    with holdfast.open(tmp_path / "store") as hf:
        assert hf.latest("r").section("state") == 1
    undone(tmp_path)
    assert git(root, "branch", "--show-current").strip() == "another"


@pytest.mark.parametrize("name", [b"index", b"MERGE_HEAD", b"MERGE_MSG", b"AUTO_MERGE"])
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_merge_in_progress_is_put_back_or_ended_whole(tmp_path, name, *, is_begun):
    """Proves X1: the files of what is in progress end with the index, at a kill between any of them."""
    root = tmp_path / "work"
    plain(root)
    git(root, "checkout", "-q", "-b", "theirs")
    write(root, {"a": "theirs\n"})
    git(root, "commit", "-q", "-a", "-m", "theirs")
    git(root, "checkout", "-q", "-")
    write(root, {"a": "ours\n"})
    git(root, "commit", "-q", "-a", "-m", "ours")
    steps = [lambda: git(root, "merge", "theirs", check=False), lambda: git(root, "reset", "-q", "--hard")]
    with holdfast.open(tmp_path / "store") as hf:
        run = hf.run("r", workspace=root)
        if is_begun:
            steps[0]()
        run.checkpoint(state=1)
        before = stands(tmp_path), in_progress(root)
        steps[int(is_begun)]()
        run.checkpoint(state=2)
    act = put_back if is_begun else exactly_restored  # only --exact ends a merge
    killed_before(lambda: act(tmp_path), name)
    opened(tmp_path)
    assert (stands(tmp_path), in_progress(root)) == before


def in_progress(root):
    return {name: (root / ".git" / name).read_bytes() for name in STATE_FILES if (root / ".git" / name).exists()}


def exactly_restored(folder):
    line = ["--store", str(folder / "store"), "restore", "r@1", "--git", "--exact", "--yes", "--workspace"]
    assert main([*line, str(folder / "work")]) == 0


def test_what_is_staged_after_the_kill_is_not_lost(moved, caplog):
    """Proves X4: a checkout that was killed is not finished over somebody's work, and says so."""
    folder, _, _ = moved
    killed_before(lambda: restored(folder), b"index")
    (folder / "work/.git/index.lock").unlink()
    write(folder / "work", {"mine": "1\n"})
    git(folder / "work", "add", "mine")
    staged = git(folder / "work", "ls-files", "--stage")
    opened(folder)
    assert git(folder / "work", "ls-files", "--stage") == staged
    assert "git was interrupted and is not finished" in caplog.text


def test_a_lock_that_git_holds_keeps_head_where_it_is(moved):
    """Proves X1, issue 15: HEAD does not move before the index can."""
    folder, _, after = moved
    lock = folder / "work/.git/index.lock"
    lock.write_bytes(b"")
    with holdfast.open(folder / "store") as hf:
        result = hf.recover("r@1", workspace=folder / "work", git=True, confirmed=True)
        assert not result.success
        assert hf.latest("r").section("state") == 2
    lock.unlink()
    assert stands(folder) == after


class Editor:
    """Somebody who adds a line to files again and again, each a new one, and creates files."""

    def __init__(self, root, names):
        self._root, self._names = root, names
        self.written: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._edit)

    def _edit(self):
        number = 0
        while not self._is_over.is_set():
            number += 1
            name = self._names[number % len(self._names)]
            token = f"edit {number} of {name}\n"
            try:
                with (self._root / name).open("r+" if number % 3 else "a") as file:
                    file.seek(0, os.SEEK_END)
                    file.write(token)
                self.written.append(token)
            except OSError:
                pass  # not there at this moment: nothing was written
            if not number % 20:
                (self._root / f"note-{number}").write_text(f"note {number}\n")
                self.written.append(f"note {number}\n")
            time.sleep(0.001)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()


def everywhere(folder):
    """Return all text that is left of a directory: on disk, rescued, and in every checkpoint."""
    found = [path.read_bytes() for path in (folder / "work").rglob("*") if path.is_file() and ".git/" not in str(path)]
    with holdfast.open(folder / "store") as hf:
        for checkpoint in hf.checkpoints("r"):
            one = hf.get(checkpoint.id)
            found += [one.read(file.path) for file in one.files() if file.kind == "file"]
    return b"\n".join(found).decode("utf-8", "replace")


@pytest.mark.parametrize("act", ["recover", "restore", "enter"])
def test_no_edit_is_lost_while_somebody_writes_all_the_while_and_processes_are_killed(moved, act):
    """Proves C15, X4: each line that an editor wrote is on disk, rescued or in a checkpoint, at whatever kill."""
    folder, _, _ = moved
    root = folder / "work"

    def work():
        with holdfast.open(folder / "store") as hf:
            try:
                if act == "recover":
                    hf.recover("r@1", workspace=root, confirmed=True)
                elif act == "restore":
                    run = hf.run("r", workspace=root)
                    run.workspace.restore(run.workspace.plan(hf.get(hf.find("r@1").id)))
                    run.close()
                else:
                    with hf.run("r", workspace=root):
                        pass
            except HoldfastError:
                pass  # a file moved under its hands: refused, or put back

    with Editor(root, ["a", "b", "n1", "more/x"]) as editor:
        total = operations(work)
        for at in moments(max(total, 60), sample=60 if TORTURE else 8):
            operations(work, kill_at=at)
    entered(folder, root)
    text = everywhere(folder)
    assert len(editor.written) > 20
    assert [token for token in editor.written if token not in text] == []


def test_a_recovery_that_is_finished_under_another_home_says_that_git_stays(moved, tmp_path, monkeypatch, caplog):
    """Proves X1: what another user began moves no git here, and that is said: in the log, the result and the run."""
    folder, before, after = moved

    def killed_before_git(report):
        monkeypatch.setattr(git_create, "checkout", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        put_back(folder)
        report("not killed")

    assert Child(killed_before_git).join().signal == signal.SIGKILL
    (tmp_path / "their-home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "their-home"))
    with holdfast.open(folder / "store") as hf:
        hf.run("r", workspace=folder / "work").close()
        head = hf.latest("r")
        assert head.section("state") == 1
        assert any("git is not put back" in warning for warning in head.section("recovery")["warnings"])
    assert "git is not put back" in caplog.text
    found = stands(folder)
    assert (found[1], found[2]) == (after[1], before[2]), "files of the checkpoint, the index of before"
