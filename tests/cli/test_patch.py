"""`holdfast patch`: what one call changed, for `git apply` or as a commit, and who else when that cannot be told."""

from __future__ import annotations

import os
import subprocess

import pytest

import holdfast

FLOW = """\
flow: two
phases:
  first: {run: sh .tools/first.sh}
  second: {run: sh .tools/second.sh}
  third: {run: "true"}
  fourth:
    tasks:
      left: sleep 0.3; echo left > left; sleep 0.3
      right: sleep 0.3; echo right > right; sleep 0.3
"""
FIRST = """\
printf 'a\\nb\\n' > text; printf '\\0\\1\\2' > bin; ln -s text link; echo no >> base
mkdir 'odd dir'; echo x > 'odd dir/ü"y'
"""
SECOND = """\
printf 'a\\nB' > text; chmod +x base; rm link; printf '\\0\\5\\6' > bin; touch empty
"""


def git(place, *words, **options):
    return subprocess.run(
        ["git", *words], cwd=place, capture_output=True, check=True, env={**os.environ, "HOME": str(place)}, **options
    ).stdout.decode()


@pytest.fixture
def repository(project):
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.email", "ann@example.org")
    git(project, "config", "user.name", "Ann")
    (project / "base").write_text("base\n")
    (project / "two.yaml").write_text(FLOW)
    (project / ".tools").mkdir()
    (project / ".tools" / "first.sh").write_text(FIRST)
    (project / ".tools" / "second.sh").write_text(SECOND)
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "start")
    return project


def test_the_patches_of_all_calls_in_turn_make_the_same_files(hf, repository, tmp_path):
    """Proves F12."""
    git(repository, "clone", "-q", ".", str(tmp_path / "clone"))
    assert hf("run", "two.yaml").code == 0
    for call in ("first/first", "second/second"):
        patch = hf("patch", call, "two").out
        git(tmp_path / "clone", "apply", "--index", "-", input=patch.encode())
    git(repository, "add", "-A")
    left = git(repository, "ls-files", "-s", "--", ":!left", ":!right")
    assert git(tmp_path / "clone", "ls-files", "-s") == left


def test_a_call_that_changed_nothing_has_an_empty_patch(hf, repository):
    hf("run", "two.yaml")
    done = hf("patch", "third/third", "two")
    assert (done.code, done.out) == (0, "")
    assert "changed no file" in done.err


def test_calls_at_the_same_time_are_named_and_their_patch_is_one(hf, repository):
    """Proves F12."""
    hf("run", "two.yaml")
    done = hf("patch", "fourth/left", "two")
    assert done.code == 3
    assert "fourth/right" in done.err
    both = hf("patch", "fourth/left", "two", "--together", "--json").json
    assert (both["paths"], both["with_calls"]) == (["left", "right"], ["fourth/right"])


def test_calls_whose_trees_are_gone_are_all_named(hf, repository):
    """Proves F12."""
    hf("run", "two.yaml")
    for one in hf("log", "two", "--json").json["checkpoints"]:
        if one["phase"] == "first" or "first" in one["reason"] or "second begins" in one["reason"]:
            hf("delete", one["id"], "--yes")
    done = hf("patch", "second/second", "two")
    assert done.code == 3
    assert "first/first" in done.err
    assert hf("patch", "second/second", "two", "--together", "--json").json["with_calls"] == ["first/first"]


def test_an_unknown_call_is_not_found_and_the_nearest_are_named(hf, repository):
    hf("run", "two.yaml")
    done = hf("patch", "first/frist", "two")
    assert done.code == 3
    assert "first/first" in done.err


def test_a_commit_has_exactly_the_change_and_leaves_the_rest_alone(hf, repository):
    """Proves F12."""
    hf("run", "two.yaml")
    (repository / "staged").write_text("mine\n")
    git(repository, "add", "staged")
    before = {path: path.read_bytes() for path in repository.iterdir() if path.is_file()}
    done = hf("patch", "first/first", "two", "--commit")
    assert done.code == 0, done
    names = git(repository, "show", "--name-only", "--format=%s", "-z", "HEAD").replace("\0", "\n").split("\n")
    assert names[0] == "first/first"
    assert {"base", "bin", "link", "text"} <= set(names)
    assert "left" not in names
    assert git(repository, "show", "HEAD:text") == "a\nb\n"
    assert {path: path.read_bytes() for path in repository.iterdir() if path.is_file()} == before
    assert git(repository, "diff", "--cached", "--name-only") == "staged\n"
    second = hf("patch", "second/second", "two", "--commit", "-m", "the second")
    assert second.code == 0, second
    assert git(repository, "log", "--format=%s|%an", "-2").split("\n")[0] == "the second|Ann"


def test_a_commit_that_does_not_fit_is_refused_and_nothing_happens(hf, repository):
    hf("run", "two.yaml")
    head = git(repository, "rev-parse", "HEAD")
    done = hf("patch", "second/second", "two", "--commit")  # builds on what nobody committed
    assert done.code != 0
    assert "does not fit" in done.err
    git(repository, "add", "base")
    assert hf("patch", "first/first", "two", "--commit").code != 0  # what is staged of the same file is kept
    assert git(repository, "rev-parse", "HEAD") == head


def test_a_commit_while_another_git_holds_the_index_does_not_happen(hf, repository):
    hf("run", "two.yaml")
    head = git(repository, "rev-parse", "HEAD")
    lock = repository / ".git/index.lock"
    lock.touch()
    done = hf("patch", "first/first", "two", "--commit")
    assert done.code != 0
    assert "index.lock" in done.err
    assert lock.exists()
    assert git(repository, "rev-parse", "HEAD") == head
    lock.unlink()
    assert hf("patch", "first/first", "two", "--commit").code == 0
    assert git(repository, "rev-parse", "HEAD^") == head


def test_python_gives_the_same(hf, repository):
    """Proves F12."""
    hf("run", "two.yaml")
    with holdfast.open() as store:
        found = store.files.patch("two", "first/first")
    assert found.patch.decode() == hf("patch", "first/first", "two").out
    assert "text" in found.paths


def test_without_a_commit_the_branch_gets_none_and_the_message_says_what_to_do(hf, project):
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / "f.yaml").write_text("flow: f\nphases:\n  p: echo x > new\n")
    assert hf("run", "f.yaml").code == 0
    said = hf("patch", "p/p", "f", "--commit")
    assert said.code == 2
    assert "restored" not in said.err
    assert "git apply" in said.err
