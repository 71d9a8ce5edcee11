"""Git of a repository that somebody else made: nothing of its settings runs, whichever command is typed."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

import holdfast


def git(place, *words):
    env = {**os.environ, "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=place, capture_output=True, check=True, env=env).stdout.decode()


@pytest.fixture
def hostile(project, tmp_path):
    """A repository in which every setting that names a program names one that leaves a trace."""
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.email", "ann@example.org")
    git(project, "config", "user.name", "Ann")
    (project / "base").write_text("base\n")
    (project / "flow.yaml").write_text("flow: two\nphases:\n  first: {run: echo more >> base; echo new > new}\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "start")
    trace = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 $@ >> {trace}\ncat\n")
    program.chmod(0o700)
    for name in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "diff.external",
                 "diff.evil.textconv", "diff.evil.command", "merge.evil.driver", "core.pager", "core.editor",
                 "core.sshCommand", "gpg.program", "credential.helper", "core.alternateRefsCommand",
                 "alias.apply", "alias.commit-tree"):  # fmt: skip
        value = f"!{program}" if name.startswith("alias") else str(program)
        git(project, "config", name, value)
    git(project, "config", "commit.gpgSign", "true")
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-rewrite",
                 "fsmonitor-watchman", "post-commit"):  # fmt: skip
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o700)
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
    (project / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    return trace


def test_a_patch_becomes_a_commit_and_nothing_of_the_repository_runs(hf, hostile, project):
    assert hf("run", "flow.yaml").code == 0
    done = hf("patch", "first/first", "two", "--commit")
    assert done.code == 0, done
    assert not hostile.exists(), hostile.read_text()
    (project / ".git" / "config").write_text("")
    (project / ".git" / "info" / "attributes").unlink()
    assert git(project, "show", "-s", "--format=%s|%an", "HEAD") == "first/first|Ann\n"
    assert git(project, "show", "HEAD:base") == "base\nmore\n"
    assert git(project, "diff", "--cached", "--name-only") == ""
    assert git(project, "fsck", "--strict") == ""


def test_a_fork_becomes_a_worktree_and_nothing_of_the_repository_runs(hf, hostile, project, tmp_path):
    assert hf("run", "flow.yaml").code == 0
    assert hf("fork", "two", "other", "--into", str(tmp_path / "fork")).code == 0
    assert not hostile.exists(), hostile.read_text()
    (project / ".git" / "config").write_text("")
    (project / ".git" / "info" / "attributes").unlink()
    for path in (project / ".git" / "hooks").iterdir():
        path.unlink()
    fork = tmp_path / "fork"
    assert git(fork, "rev-parse", "--abbrev-ref", "HEAD") == "other\n"
    assert git(fork, "status", "--porcelain", "base") == " M base\n"
    assert str(fork) in git(project, "worktree", "list")
    assert git(project, "status", "--porcelain", "base") == " M base\n"
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    git(fork, *who, "commit", "-q", "--allow-empty", "-m", "more")  # it is a whole one


def test_only_one_module_starts_git():
    """Every call has the same settings: another place would forget one."""
    folder = Path(holdfast.__file__).parent
    found = [
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts
        and isinstance(node.elts[0], ast.Constant) and node.elts[0].value == "git"
    ]  # fmt: skip
    assert found == ["workspace/git.py"]
    workspace = {file.name for file in (folder / "workspace").glob("*.py") if ".Popen(" in file.read_text()}
    assert workspace == {"git.py"}
