"""Killed at any file operation of bringing files, recovering or forking: the next start makes files and git whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import holdfast
from crash.children import TORTURE, Child
from holdfast.recovery.fork import fork_files
from holdfast.workspace.ops import FileOps
from recovery.odd_repositories import picture, plain
from recovery.recovery_kit import tree
from unit.workspace.kit import git, write

OPERATIONS = [name for name in vars(FileOps) if not name.startswith("_")]
POINTS = 9


def counted(act, at=None):
    """Do something in a child, killed at an operation of its own; return how many there were."""

    def work(report):
        done = 0

        def before(real):
            def operation(self, *arguments):
                nonlocal done
                done += 1
                if done == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(self, *arguments)

            return operation

        for name in OPERATIONS:
            setattr(FileOps, name, before(getattr(FileOps, name)))
        act()
        report(done)

    ended = Child(work).join()
    assert ended.signal in (0, signal.SIGKILL), ended
    return ended.reports[0] if ended.reports else None


def moments(total):
    """Return at which operations to kill: each of them, or some from the first to the last."""
    return (
        range(1, total + 1) if TORTURE else sorted({1 + point * (total - 1) // (POINTS - 1) for point in range(POINTS)})
    )


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


@pytest.mark.parametrize("act", [entered, recovered])
def test_files_and_repository_are_whole_after_a_kill_at_any_operation(place, act):
    """Proves X1, SCALE G1: never an empty directory, never files without their repository."""
    wanted, before = tree(place / "work"), picture(place / "work")
    (place / "whole").mkdir()
    total = counted(lambda: act(place, place / "whole"))
    assert picture(place / "whole") == before
    for at in moments(total):
        target = place / f"killed-{at}"
        target.mkdir()
        counted(lambda target=target: act(place, target), at)
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

    total = counted(lambda: forked("whole"))
    for at in moments(total):
        name = f"fork-{at}"
        counted(lambda name=name: forked(name), at)
        assert tree(place / "work") == wanted, at
        assert git(place / "work", "status", "--porcelain=v2", "--branch") == before, at
        with holdfast.open(place / "store") as hf, hf.run(name, workspace=place / name):
            assert tree(place / name) == wanted, at
        assert Path(place / name / ".git").exists(), at
