"""Pipes, links, devices and huge files in place of plain ones: no command waits for them or follows them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.runtime.artifacts import changed

SAFETY_NET_S = 120


def command(*words, stdin=b""):
    """Call the command line in a process of its own: one that waits for a pipe would wait for ever."""
    line = [sys.executable, "-m", "holdfast", *map(str, words)]
    return subprocess.run(line, input=stdin, capture_output=True, check=False, timeout=SAFETY_NET_S)


def as_pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_link_to_a_device(path):
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def as_huge(path):
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(3 << 40)


def as_deep(path):
    """Below the limits of size, and deeper than any reader may follow."""
    path.unlink(missing_ok=True)
    path.write_bytes(b'{"a": ' + b"[" * 30_000)


ODD = [as_pipe, as_link_to_a_device, as_huge]


@pytest.mark.parametrize("odd", [*ODD, as_deep])
@pytest.mark.parametrize("suffix", [".at", ".alive", ".cache"])
def test_what_lies_beside_the_store_is_not_waited_for(story, odd, suffix):
    """Proves D11."""
    with holdfast.open().run("issue-42", workspace=story) as run:
        run.checkpoint(state={"step": 4})
    found = [path for path in (story / ".holdfast").iterdir() if path.suffix == suffix]
    assert found
    for path in found:
        odd(path)
    assert command("diff", "issue-42").returncode in (0, 1)
    assert command("restore", "issue-42@1", "--take", "-y").returncode == 0
    assert (story / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "words",
    [("flow", "check", "odd.md"), ("flow", "check", "odd.yaml"), ("run", "odd.yaml"), ("begin", "odd.md"),
     ("checkpoint", "r", "--state", "odd.json")],
)  # fmt: skip
def test_a_file_that_is_named_and_is_none_is_refused(project, odd, words):
    """Proves D11."""
    odd(project / next(word for word in words if word.startswith("odd")))
    done = command(*words)
    assert done.returncode not in (0, 1), done
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("odd", ODD)
def test_an_artifact_that_became_something_else_is_missing(project, odd):
    """Proves D11."""
    with holdfast.open().run("r", workspace=project) as run:
        (project / "made").write_text("x")
        artifact = run.context.add_artifact("made")
        odd(project / "made")
        assert [one.change for one in changed([artifact], project)] == ["missing"]


@pytest.mark.parametrize("odd", [as_pipe, as_link_to_a_device])
def test_begin_of_a_project_writes_through_no_gitignore(project, odd, tmp_path):
    (project / ".git").mkdir()
    odd(project / ".gitignore")
    done = command("init")
    assert done.returncode == 2, done


def test_init_does_not_write_through_a_link_of_the_repository(project, tmp_path):
    outside = tmp_path / "profile"
    outside.write_text("mine\n")
    (project / ".git").mkdir()
    (project / ".gitignore").symlink_to(outside)
    command("init")
    assert outside.read_text() == "mine\n"


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main"])
def test_a_pipe_in_git_is_not_waited_for(project, name):
    """Proves D11."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    (project / "a").write_text("x")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    assert command("checkpoint", "r", "--workspace").returncode == 0
    as_pipe(Path(project / ".git" / name))
    assert command("resume", "r", "-y").returncode not in (-9, 1)
    event = b'{"session_id": "s", "hook_event_name": "PostToolUse", "cwd": "%s", "tool_name": "Bash"}'
    command("hook", "claude", stdin=event % os.fsencode(project))
