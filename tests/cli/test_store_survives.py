"""The store survives the agents of a running flow: git's cleaning commands and rm, each for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
FLOW = """\
flow: work
phases:
  one: echo one >> ../paid; echo one > one.txt
  agent: {run: sh ../agent.sh}
  three: {run: echo three >> ../paid, approve: "continue?"}
"""


@pytest.fixture
def repository(project):
    for line in ("init -q -b main", "config user.email ann@example.org", "config user.name Ann"):
        subprocess.run(["git", *line.split()], cwd=project, check=True)
    (project / "work.yaml").write_text(FLOW)
    (project / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "start"], cwd=project, check=True)
    return project


def holdfast(place, *words):
    return subprocess.run(
        [BIN / "holdfast", *words], cwd=place, env=os.environ, capture_output=True, text=True, check=False, timeout=120
    )


def paid(place):
    return (place.parent / "paid").read_text().split()


@pytest.mark.parametrize(
    "command",
    [
        "git clean -fdq",
        "git clean -fdxq",
        "git add -A && git commit -qm all",
        "git stash -u -q && git stash pop -q",
        "git stash -u -a -q",
        "git add -A && git reset -q --hard",
        "rm -rf .holdfast",
        "rm .holdfast/holdfast.db",
    ],
)
def test_an_agents_command_neither_deletes_commits_nor_rolls_back_the_store(repository, command):
    """Proves F8."""
    (repository.parent / "agent.sh").write_text(command)
    first = holdfast(repository, "run", "work.yaml", "--no-wait")
    assert first.returncode == 9, first.stderr
    assert ("deleted or rolled back while" in first.stderr) == any(one in command for one in ("rm ", "-fdx", "-u -a"))
    line = ["git", "log", "--name-only", "--format="]
    assert b"holdfast.db" not in subprocess.run(line, cwd=repository, capture_output=True, check=True).stdout
    assert holdfast(repository, "verify").returncode == 0
    assert holdfast(repository, "approve", "work").returncode == 0
    again = holdfast(repository, "run", "work.yaml", "--no-wait")
    assert (again.returncode, paid(repository)) == (0, ["one", "three"]), again.stderr
    assert holdfast(repository, "status", "work", "--json").stdout.count('"completed"') >= 1


FORCED = """\
flow: work
phases:
  one: echo one >> ../paid
  commit: git add -Af && git commit -qm all
  two: {run: echo two >> ../paid, approve: "continue?"}
  reset: git reset -q --hard
  three: echo three >> ../paid
  last: sh ../last.sh
"""


def test_a_store_that_an_agent_forced_into_git_is_named_and_a_reset_of_it_loses_nothing(repository):
    """Proves F8: git put an older log in the place of the open one, and kill -9 would have lost what came after."""
    (repository / "work.yaml").write_text(FORCED.replace(', approve: "continue?"', ""))
    (repository.parent / "last.sh").write_text("mkdir ../again || exit 0; kill -9 $(cat ../pid); sleep 9")
    line = f'echo $$ > ../pid; exec "{BIN / "holdfast"}" run work.yaml --no-wait'
    first = subprocess.run(["sh", "-c", line], cwd=repository, capture_output=True, text=True, check=False, timeout=120)
    assert first.returncode == -9, first.stderr
    assert first.stderr.count("git tracks the store (.holdfast/holdfast.db") == 1
    assert first.stderr.count("deleted or rolled back while it was open") == 1
    assert holdfast(repository, "verify").returncode == 0
    again = holdfast(repository, "run", "work.yaml", "--no-wait", "--resume")
    assert (again.returncode, paid(repository)) == (0, ["one", "two", "three"]), again.stderr


def test_a_reset_that_puts_an_older_store_in_the_place_of_the_open_one_is_refused(repository):
    """Proves F8: what the run did since is not written into a file that nobody will find."""
    (repository / "work.yaml").write_text(FORCED)
    assert holdfast(repository, "run", "work.yaml", "--no-wait").returncode == 9
    assert holdfast(repository, "approve", "work").returncode == 0
    done = holdfast(repository, "run", "work.yaml", "--no-wait")
    assert done.returncode == 7, "its last phase fails and would wait for a person, but that cannot be saved"
    assert "deleted or replaced while it was open" in done.stderr
    assert "waiting work" not in done.stdout


def test_a_store_that_another_took_the_place_of_is_refused_and_never_completed(repository):
    """Proves F8."""
    (repository.parent / "agent.sh").write_text("cp -r .holdfast x; rm -rf .holdfast; mv x .holdfast")
    (repository / "work.yaml").write_text(FLOW.replace(', approve: "continue?"', ""))
    done = holdfast(repository, "run", "work.yaml", "--no-wait")
    assert done.returncode == 7
    assert "deleted or replaced while it was open" in done.stderr
    assert "completed" not in done.stdout
    assert holdfast(repository, "status", "work", "--json").stdout.count('"status": "completed"') <= 1
