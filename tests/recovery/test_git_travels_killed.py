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
from crash.file_operations import moments, operations
from holdfast.errors import HoldfastError
from holdfast.recovery.fork import fork_files
from holdfast.workspace import git_create
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
