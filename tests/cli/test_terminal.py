"""A session in a real terminal: what a person types, and what stands on the screen."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import holdfast

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux on this machine")
BIN = Path(sys.executable).parent
PATIENCE_S = 30


class Terminal:
    """A terminal of 100 columns with a shell in it."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._home = home
        self._lines = 0
        environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(folder.parent),
            "LANG": "C.UTF-8",
            "PYTHONPYCACHEPREFIX": os.environ["PYTHONPYCACHEPREFIX"],
        }
        line = ["bash", "--norc", "--noprofile"]
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", "-c", str(folder), *line, env=environment
        )

    def begin(self) -> None:
        """Wait for the shell."""
        self.type("PS1='> '; clear")
        self.wait_for(r"^>\s*$")

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._home / "socket"), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
            env=env,
        )
        return done.stdout

    def type(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, key: str) -> None:
        """Press one key."""
        self._tmux("send-keys", key)

    def screen(self, *, escapes: bool = False) -> str:
        """Return what is on the screen."""
        return self._tmux("capture-pane", "-p", *(["-e"] if escapes else [])).rstrip("\n")

    def wait_for(self, pattern: str) -> str:
        """Wait until the screen shows something."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            screen = self.screen()
            if re.search(pattern, screen, re.MULTILINE):
                return screen
            time.sleep(0.05)  # tmux tells nobody when a screen changes
        pytest.fail(f"{pattern!r} did not come:\n{self.screen()}")

    def run(self, line: str) -> str:
        """Clear the screen, run a line to its end, and return what it showed."""
        self._lines += 1
        self._tmux("send-keys", "C-l")
        self.type(f"{line}; echo =$?= {self._lines}")
        return self.wait_for(rf"^=\d+= {self._lines}\n>\s*$").split("\n", 1)[1]

    def close(self) -> None:
        """End the terminal and what runs in it."""
        self._tmux("kill-server")
        shutil.rmtree(self._home, ignore_errors=True)


@pytest.fixture
def terminal(project):
    opened = Terminal(project, Path(tempfile.mkdtemp(prefix="hf-tmux-")))
    try:
        opened.begin()
        yield opened
    finally:
        opened.close()


def test_a_first_session(terminal, project):
    """From nothing over a first checkpoint to diff, restore, fork and prune, as a person does it."""
    assert "Begin one here with `holdfast init`" in terminal.run("holdfast ls")
    assert "written holdfast.yaml" in terminal.run("holdfast init")
    (project / "main.py").write_text("print(1)\n")
    assert "work @1" in terminal.run("holdfast checkpoint work --workspace --reason 'it works' --label good")
    (project / "main.py").write_text("print(2)\n")
    assert "work @2" in terminal.run("holdfast checkpoint work --workspace --reason 'new idea'")
    assert re.search(r"^work +- +.* 2 +manual", terminal.run("holdfast ls"), re.MULTILINE)
    log = terminal.run("holdfast log work")
    assert re.search(r"^\* [0-9a-f]{8} @2 \(head\) manual new idea", log, re.MULTILINE)
    assert "+print(2)" in terminal.run("holdfast diff good work")

    terminal.type("clear; holdfast restore good")
    assert "the run changed 1 file since: restored" in terminal.wait_for(
        r"Restore 1 path in [^?]*\?\s*\[\s*y\s*/\s*N\s*\]"
    )
    terminal.type("y")
    terminal.wait_for(r"Restored: 0 written, 1 replaced, 0 deleted")
    assert (project / "main.py").read_text() == "print(1)\n"

    assert "other begins at work@1" in terminal.run("holdfast fork good other")
    terminal.type("clear; holdfast prune work --keep 1")
    terminal.wait_for(r"Delete \d+ and archive 0 checkpoints\? \[y/N\]")
    terminal.type("y")
    terminal.wait_for(r"Deleted \d+, archived 0\.")
    assert "Sound" in terminal.run("holdfast verify")


FLOW = """\
flow: build
phases:
  plan:
    tasks:
      think: {run: "echo thought >> done.txt"}
  work:
    tasks:
      slow: {run: "if [ -e begun ]; then echo worked >> done.txt; else touch begun; sleep 300; fi"}
"""


def test_a_flow_is_interrupted_and_carried_on(terminal, project):
    """Ctrl+C saves; the same line asks whether to resume, and does nothing twice."""
    (project / "flow.yaml").write_text(FLOW)
    terminal.type("clear; holdfast run flow.yaml; echo =$?=")
    end = time.monotonic() + PATIENCE_S
    while not (project / "begun").exists():
        assert time.monotonic() < end, terminal.screen()
        time.sleep(0.05)
    terminal.press("C-c")
    terminal.wait_for(r"^=130=")
    assert re.search(r"^build +open ", terminal.run("holdfast ls"), re.MULTILINE)
    assert "user_interrupt" in terminal.run("holdfast log build")
    terminal.type("clear; holdfast run flow.yaml; echo =$?=")
    terminal.wait_for(r"Resume it .*\? \[Y/n\]")
    terminal.type("")
    assert "1 kept from before" in terminal.wait_for(r"^=0=")
    assert (project / "done.txt").read_text() == "thought\nworked\n"
    assert "Complete" in terminal.run("holdfast resume build")


STORY = """\
flow: story
phases:
  plan: echo a lighthouse > plan.txt
  write:
    tasks:
      one: echo "chapter 1" >> story.txt
      two: {needs: one, run: 'test -e hurry || (touch begun; sleep 300); echo "chapter 2" >> story.txt'}
"""


def test_the_way_of_the_tutorial(terminal, project):
    """Installed program, demo, own flow, Ctrl+C, kill -9, resume, diff, restore, fork, prune, as a person does it."""
    assert "holdfast " in terminal.run("holdfast --version")
    assert "sound" in terminal.run("holdfast demo")
    (project / "story.yaml").write_text(STORY)
    assert "written holdfast.yaml" in terminal.run("holdfast init")
    terminal.type("clear; holdfast run story.yaml; echo =$?=")
    wait_for_file(terminal, project / "begun")
    terminal.press("C-c")
    terminal.wait_for(r"^=130=")
    (project / "begun").unlink()

    terminal.type("clear; holdfast run story.yaml; echo =$?=")
    terminal.wait_for(r"Resume it .*\? \[Y/n\]")
    terminal.type("y")
    wait_for_file(terminal, project / "begun")
    os.kill(holder_of("story"), signal.SIGKILL)
    terminal.wait_for(r"^=137=")
    (project / "hurry").touch()
    assert "2 kept from before" in terminal.run("holdfast run story.yaml --resume")
    assert (project / "story.txt").read_text() == "chapter 1\nchapter 2\n"

    (project / "story.txt").write_text("ruined\n")
    assert "+ruined" in terminal.run("holdfast diff story")
    terminal.type("clear; holdfast restore story story.txt --take; echo =$?=")
    terminal.wait_for(r"Restore 1 path in [^?]*\?\s*\[\s*y\s*/\s*N\s*\]")
    terminal.type("y")
    terminal.wait_for(r"^=0=")
    assert (project / "story.txt").read_text() == "chapter 1\nchapter 2\n"

    assert "story-2 begins at story@" in terminal.run("holdfast fork story:before:write story-2 --into ../story-2")
    assert not (project.parent / "story-2" / "story.txt").exists()
    assert "Deleted" in terminal.run("holdfast prune story --keep 2 --yes")
    assert "Sound" in terminal.run("holdfast verify")


def wait_for_file(terminal, path):
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < end, terminal.screen()
        time.sleep(0.05)


def holder_of(run):
    """Return the process that moves a run, by its lease."""
    with holdfast.open() as store:
        try:
            with store.run(run):
                pytest.fail("nobody moves it")
        except holdfast.LeaseHeld as held:
            return int(re.search(r"pid (\d+)", held.owner)[1])


def test_ctrl_c_at_a_question_does_nothing(terminal, story):
    terminal.type("clear; holdfast delete --run issue-42; echo =$?=")
    terminal.wait_for(r"Delete for good\? \[y/N\]")
    terminal.press("C-c")
    terminal.wait_for(r"^=130=")
    terminal.type("clear; holdfast delete --run issue-42; echo =$?=")
    terminal.wait_for(r"Delete for good\? \[y/N\]")
    terminal.press("C-d")
    assert "closed in the middle of a question" in terminal.wait_for(r"^=12=").replace("\n", " ")
    assert "issue-42" in terminal.run("holdfast ls")


def test_colours_are_on_the_screen_and_off_with_no_color(terminal, story):
    terminal.run("holdfast log issue-42")
    assert "\x1b[" in terminal.screen(escapes=True)
    terminal.run("NO_COLOR=1 holdfast log issue-42")
    assert "\x1b[3" not in terminal.screen(escapes=True)


def test_long_output_goes_through_the_pager(terminal, project):
    store = holdfast.open()
    run = store.run("long")
    for i in range(60):
        run.checkpoint(reason=f"number {i}")
    store.close()
    terminal.type("clear; holdfast log long; echo =$?=")
    terminal.wait_for(r"^:")
    terminal.press("q")
    terminal.wait_for(r"^=0=")


def test_the_shell_completes_runs_and_labels(terminal, story):
    terminal.run('eval "$(holdfast completion bash)"')
    terminal._tmux("send-keys", "-l", "holdfast show iss")
    terminal.press("Tab")
    terminal.wait_for(r"^> holdfast show issue-42 ?$")
    terminal._tmux("send-keys", "C-u")
    terminal._tmux("send-keys", "-l", "holdfast cat issue-42@1:sr")
    terminal.press("Tab")
    terminal.wait_for(r"^> holdfast cat issue-42@1:src/main.py ?$")
    terminal._tmux("send-keys", "C-u")
    terminal._tmux("send-keys", "-l", "holdfast chec")
    terminal.press("Tab")
    terminal.wait_for(r"^> holdfast checkpoint ?$")


def test_a_run_is_replayed_by_hand(terminal, project):
    store = holdfast.open()
    with store.run("r") as run:
        run.step("plan", lambda: "think")
        run.step("act", lambda: "do")
    store.close()
    terminal.type("clear; holdfast replay r; echo =$?=")
    terminal.wait_for(r"^\[0/2\]\s*$")
    terminal.type("next")
    terminal.wait_for(r"^1\. plan done")
    terminal.type("q")
    terminal.wait_for(r"^=0=")
