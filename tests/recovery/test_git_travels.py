"""Repositories travel: restored into an empty directory a repository is there with its history, and status is equal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import RunWaiting
from recovery.odd_repositories import ALL, FEW, cloned, picture, plain
from store_kit import STORES, open_store_in
from unit.workspace.kit import git, repository, write

CASES = ALL if os.environ.get("HOLDFAST_TORTURE") else FEW


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


def cli(project, *words):
    line = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(line, cwd=project, check=False, timeout=120, capture_output=True, text=True)


def captured(hf, root, name="r"):
    with hf.run(name, workspace=root) as run:
        run.checkpoint(state=1)
    return hf.latest(name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(part.__name__ for part in case))
def test_an_odd_repository_is_put_back_equal(hf, tmp_path, case):
    """Proves X1 and A6: whatever the repository looks like and whatever is under way in it."""
    layout, under_way = case
    root, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    layout(root)
    under_way(root)
    before = picture(root)
    captured(hf, root)
    elsewhere.mkdir()
    result = hf.recover("r", workspace=elsewhere)
    assert result.success, result.errors
    assert picture(elsewhere) == before
    assert not list(elsewhere.rglob("RAN"))
    assert not (elsewhere / ".holdfast/repositories.pending").exists()


@pytest.mark.parametrize("kind", STORES)
def test_a_repository_travels_by_copy_export_and_import_to_another_machine(tmp_path, kind):
    """Proves X1, SCALE G5."""
    root, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    cloned(root)
    write(root, {"a": "under way\n"})
    git(root, "add", "a")
    before = picture(root)
    with holdfast.open(tmp_path / "here") as hf:
        captured(hf, root)
        hf.transfer.export(tmp_path / "run.holdfast", "r")
    shutil.rmtree(root)
    shutil.rmtree(tmp_path / "work-origin")  # the remote is not needed
    with open_store_in(kind, tmp_path / "there") as store, holdfast.Holdfast(store) as hf:
        hf.transfer.import_from(tmp_path / "run.holdfast")
        elsewhere.mkdir()
        with hf.run("r", workspace=elsewhere):
            assert picture(elsewhere) == before
        assert hf.verify().sound


def test_the_command_line_brings_the_repository_and_says_so(tmp_path):
    root = tmp_path / "work"
    plain(root)
    with holdfast.open(root / ".holdfast") as hf:
        captured(hf, root)
    before = git(root, "log", "--oneline")
    done = cli(root, "restore", "r", "--into", str(tmp_path / "into"), "--yes")
    assert done.returncode == 0, done.stderr
    assert "a repository is created" in done.stdout
    assert git(tmp_path / "into", "log", "--oneline") == before
    shown = cli(root, "resume", "r", "--workspace", str(tmp_path / "into"), "--dry-run")
    assert "repository" not in shown.stdout, "there is one already"


def test_only_new_commits_are_packed_and_an_unchanged_repository_costs_nothing(hf, tmp_path):
    root = tmp_path / "work"
    repository(root, {"big": os.urandom(400_000).hex()})
    with hf.run("r", workspace=root) as run:
        first = run.checkpoint(state=1).git.history
        same = run.checkpoint(state=2).git.history
        write(root, {"a": "1\n"})
        git(root, "add", "-A")
        git(root, "commit", "-qm", "small")
        second = run.checkpoint(state=3).git.history
    with hf.run("r", workspace=root) as run:  # another handle knows it from the store
        write(root, {"a": "2\n"})
        git(root, "commit", "-qam", "smaller")
        third = run.checkpoint(state=4).git.history
    assert same == first
    assert second.packs[0] == third.packs[0] == first.packs[0]
    assert third.size_bytes - first.size_bytes < 5_000


def test_of_a_large_history_only_what_the_remote_does_not_have_is_kept_and_clone_fetches_the_rest(tmp_path):
    """Proves X1: base is remote and commit, the rest travels; a remote is asked only if somebody says so."""
    root, origin = tmp_path / "work", tmp_path / "work-origin"
    repository(origin, {"big": os.urandom(600_000).hex()})
    git(tmp_path, "clone", "-q", str(origin), str(root))
    write(root, {"mine": "not pushed\n"})
    git(root, "add", "-A")
    git(root, "commit", "-qm", "not pushed")
    before = picture(root)
    (tmp_path / "settings.yaml").write_text("workspace: {git_history_mb: 0.2}\n")
    with holdfast.open(tmp_path / "store", settings=tmp_path / "settings.yaml") as hf:
        taken = captured(hf, root)
        history = taken.git.history
        assert (history.base, history.problem) == ("remote", None)
        assert history.size_bytes < 5_000
        for name in ("without", "with"):
            (tmp_path / name).mkdir()
        told = hf.recover(taken.id, workspace=tmp_path / "without", confirmed=True)
        assert told.success
        assert any("no repository" in warning for warning in told.warnings)
        assert not (tmp_path / "without/.git").exists()
        done = hf.recover(taken.id, workspace=tmp_path / "with", clone=True)
        assert done.success, done.errors
        assert picture(tmp_path / "with") == before
        shutil.rmtree(origin)
        (tmp_path / "gone").mkdir()
        failed = hf.recover(taken.id, workspace=tmp_path / "gone", clone=True)
        assert not failed.success
        assert any("remote" in error for error in failed.errors)


def test_a_history_that_is_too_large_is_named_and_files_come_all_the_same(tmp_path):
    root, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    repository(root, {"big": os.urandom(600_000).hex()})
    elsewhere.mkdir()
    (tmp_path / "settings.yaml").write_text("workspace: {git_history_mb: 0.2}\n")
    with holdfast.open(tmp_path / "store", settings=tmp_path / "settings.yaml") as hf:
        history = captured(hf, root).git.history
        assert "git_history_mb" in str(history.problem)
        with pytest.raises(RunWaiting, match="no git repository"):
            hf.recover("r", workspace=elsewhere)
        result = hf.recover("r", workspace=elsewhere, confirmed=True)
        assert any("git_history_mb" in warning for warning in result.warnings)
        assert (elsewhere / "big").exists()


def test_what_is_left_out_by_the_user_does_not_travel_in_the_history(hf, tmp_path):
    """A file that .holdfastignore names is in no chunk, though git tracks it."""
    root = tmp_path / "work"
    repository(root, {"secret.txt": "do-not-keep-me", "a": "1\n", ".holdfastignore": "secret.txt\n"})
    taken = captured(hf, root)
    assert taken.git.history.packs == ()
    assert "1 tracked files are left out by rules" in taken.git.history.problem


URLS = [
    "ext::sh -c 'touch RAN'", "ext::touch% RAN", "--upload-pack=touch RAN", "-oProxyCommand=touch RAN", "fd::17",
    "ssh://-oProxyCommand=touch RAN/x", "-x:y", "host::y", "file://x\ny", 'https://h/"; rm', "git@-oProxyCommand=x:y",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_hostile_address_neither_travels_nor_is_asked(tmp_path, url):
    """A remote is untrusted: no helper, no option, no command."""
    root, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    repository(root, {"big": os.urandom(600_000).hex()})
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    with (root / ".git/config").open("a") as config:
        quoted = url.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        config.write(f'[remote "origin"]\n\turl = "{quoted}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
        config.write('[remote "evil"]\n\tuploadpack = touch RAN\n\tvcs = ext\n[core]\n\tsshCommand = touch RAN\n')
    elsewhere.mkdir()
    (tmp_path / "settings.yaml").write_text("workspace: {git_history_mb: 8}\n")
    with holdfast.open(tmp_path / "store", settings=tmp_path / "settings.yaml") as hf:
        captured(hf, root)
        hf.recover("r", workspace=elsewhere, clone=True)
        config = (elsewhere / ".git/config").read_text()
    assert "touch" not in config
    assert "url" not in config
    assert not list(tmp_path.rglob("RAN"))


def test_a_password_in_an_address_does_not_travel(hf, tmp_path):
    root, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    plain(root)
    git(root, "remote", "add", "origin", "https://me:hunter2@example.com/x.git")
    captured(hf, root)
    elsewhere.mkdir()
    hf.recover("r", workspace=elsewhere)
    config = Path(elsewhere / ".git/config").read_text()
    assert "hunter2" not in config
    assert "https://example.com/x.git" in config


def test_commands_of_a_rebase_that_was_under_way_are_left_out(hf, tmp_path):
    """`git rebase --continue` in a repository that came from elsewhere runs nothing that came with it."""
    root, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    plain(root)
    git(root, "rebase", "-q", "--exec", "test -e go", "HEAD~2", check=False)
    assert (root / ".git/rebase-merge").exists()
    captured(hf, root)
    elsewhere.mkdir()
    hf.recover("r", workspace=elsewhere)
    todo = (elsewhere / ".git/rebase-merge/git-rebase-todo").read_text()
    assert not any(line.startswith("exec") for line in todo.splitlines())
    git(elsewhere, "rebase", "--continue")
    assert not (elsewhere / ".git/rebase-merge").exists()
