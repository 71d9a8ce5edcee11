"""One pipeline (research by two agents, implement with gates and a fix, approval, push), and all that happens to it.

Each test says what is kept, what runs again, what is asked, the exit code, the files and the money.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PATIENCE_S = 90
FLOW = """\
flow: pipeline
run_id: "issue-{params.n}"
params: {n: 42}
budget: {money: 100}
agents:
  researcher: [sh, ../agent.sh, "{input}"]
  coder: [sh, ../agent.sh, "{input}"]
phases:
  research:
    tasks:
      docs: {agent: researcher, input: "docs {params.n}", inputs: [prompt.md], artifacts: [docs.md]}
      code: {agent: researcher, input: "code {params.n}", artifacts: [code.md]}
  implement:
    agent: coder
    input: "implement {params.n}"
    gates: [test -s impl.txt, grep -q fixed impl.txt]
    fix: {agent: coder, input: "fix {params.n}"}
  push:
    approve: "push {params.n}?"
    run: git add -A && git commit -q -m "issue $HOLDFAST_PARAMS_N" && git push -q origin HEAD:main
    effect: pushes to the remote
"""
AGENT = """\
word=${1%% *}
echo "$word" >> ../log
if [ -e ../hold-$word ]; then echo half > half.txt; touch ../held; sleep 100; fi
case $word in
    docs) cat prompt.md > docs.md ;;
    code) echo code > code.md ;;
    implement) echo broken > impl.txt; if [ -e ../extra ]; then sh ../extra; fi ;;
    fix) echo fixed > impl.txt ;;
esac
echo '{"result": "done", "total_cost_usd": 0.1}'
"""
ALL = ["code", "docs", "fix", "implement"]


class Pipeline:
    """A project with a remote, and the command line in it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.remote = place.parent / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", self.remote], check=True)
        for line in ("init -q -b main", "config user.email ann@example.org", "config user.name Ann"):
            self.git(*line.split())
        self.git("remote", "add", "origin", str(self.remote))
        (place / "pipeline.yaml").write_text(FLOW)
        (place / "prompt.md").write_text("the prompt\n")
        (place.parent / "agent.sh").write_text(AGENT)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "start")

    def git(self, *words: str, place: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=place or self.place, capture_output=True, text=True, check=True)
        return done.stdout

    def begin(self, *words: str, place: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [BIN / "holdfast", *words], cwd=place or self.place, env=os.environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def call(self, *words: str, place: Path | None = None) -> tuple[int, str, str]:
        process = self.begin(*words, place=place)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def run(self, *words: str, place: Path | None = None) -> int:
        code, out, err = self.call("run", "pipeline.yaml", *words, place=place)
        self.said = out + err
        return code

    def log(self) -> list[str]:
        """What the agents were asked for since the last look; two of them at once in any order."""
        file = self.place.parent / "log"
        asked = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return sorted(asked)

    def money(self, run: str = "issue-42") -> float:
        return float(json.loads(self.call("cost", run, "--json")[1])["in_all"]["money"])

    def pushed(self) -> list[str]:
        heads = subprocess.run(["git", "-C", self.remote, "branch"], capture_output=True, text=True, check=True).stdout
        return self.git("-C", str(self.remote), "log", "--format=%s", "main").split("\n")[:-1] if heads else []

    def waits(self, run: str = "issue-42") -> list[str]:
        return [one["id"] for one in json.loads(self.call("status", run, "--json")[1])["waits"]]

    def ends_well(self, run: str = "issue-42") -> None:
        """Answer, run, and see it pushed once."""
        assert self.call("approve", run)[0] == 0
        assert self.run() == 0, self.said
        assert self.log() == []
        assert self.pushed()[0] == "issue 42"
        assert (self.place / "impl.txt").read_text() == "fixed\n"


@pytest.fixture
def pipeline(project):
    return Pipeline(project)


@pytest.fixture
def waiting(pipeline):
    """The pipeline as it waits for its approval."""
    assert pipeline.run() == 9, pipeline.said
    assert pipeline.log() == ALL
    return pipeline


def test_unbroken_it_asks_once_pays_once_and_pushes_once(waiting):
    """Proves F6."""
    assert (waiting.waits(), waiting.money(), waiting.pushed()) == (["approve:push"], 0.4, [])
    assert waiting.run() == 9  # nobody has answered
    assert waiting.log() == []
    waiting.ends_well()
    assert waiting.money() == 0.4
    assert waiting.run() == 0  # over: nothing is done
    assert len(waiting.pushed()) == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGHUP, 129), (signal.SIGTERM, 143)]
)
def test_ctrl_c_kill_and_a_closed_terminal_keep_what_was_done(pipeline, number, code):
    """Proves B3, F9."""
    (pipeline.place.parent / "hold-implement").touch()
    process = pipeline.begin("run", "pipeline.yaml")
    end = time.monotonic() + PATIENCE_S
    while not (pipeline.place.parent / "held").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(1.2)  # a sign of life after what was written
    process.send_signal(number)
    told = "".join(filter(None, process.communicate(timeout=PATIENCE_S)))
    assert process.returncode == code
    assert ("`holdfast resume issue-42` continues it" in told) == (number != signal.SIGKILL)
    (pipeline.place.parent / "hold-implement").unlink()
    assert pipeline.run() == 9, pipeline.said
    assert pipeline.log() == ["code", "docs", "fix", "implement", "implement"]  # research is kept
    assert (pipeline.place / "half.txt").exists()  # by default it is kept, and said if it was in no checkpoint
    assert ("half.txt" in pipeline.said) == (number == signal.SIGKILL)
    assert pipeline.money() == 0.5  # the attempt that was cut off is charged in full (E8)
    (pipeline.place / "half.txt").unlink()
    pipeline.ends_well()


def test_a_hand_edit_of_an_artifact_runs_its_task_and_what_follows_again(waiting):
    """Proves F2, F9."""
    (waiting.place / "docs.md").write_text("by hand\n")
    assert waiting.run() == 9
    assert waiting.log() == ["docs", "fix", "implement"]
    assert (waiting.place / "docs.md").read_text() == "the prompt\n"
    assert waiting.money() == pytest.approx(0.7)
    trees = json.loads(waiting.call("history", "docs.md", "issue-42", "--json")[1])["versions"]
    assert "you" in [one["author"]["by"] for one in trees]  # the hand edit is in a checkpoint, and can be had back
    waiting.ends_well()


def test_a_hand_edit_of_another_file_is_kept_and_repeats_nothing(waiting):
    """Proves F9."""
    (waiting.place / "README").write_text("mine\n")
    assert waiting.run() == 9
    assert (waiting.log(), waiting.money()) == ([], 0.4)
    waiting.ends_well()
    assert "README" in waiting.git("ls-files")


@pytest.mark.parametrize(
    ("edit", "again"),
    [
        (lambda place: (place / "prompt.md").write_text("another\n"), ["docs", "fix", "implement"]),
        (lambda place: _edit(place, "implement {params.n}", "implement well {params.n}"), ["fix", "implement"]),
        (lambda place: _edit(place, "grep -q fixed", "grep -qi fixed"), []),
        (lambda place: _edit(place, "money: 100", "money: 200"), []),
    ],
    ids=["prompt", "flow", "gate", "limit"],
)
def test_an_edit_runs_what_depends_on_it_again_and_the_old_yes_lapses(waiting, edit, again):
    """Proves F1."""
    assert waiting.call("approve", "issue-42")[0] == 0
    edit(waiting.place)
    code = waiting.run()
    asked = waiting.log()
    assert asked == again
    assert waiting.money() == pytest.approx(0.4 + 0.1 * len(again))
    if again:
        assert (code, waiting.pushed(), waiting.waits()) == (9, [], ["approve:push:2"]), waiting.said
        assert waiting.call("approve", "issue-42")[0] == 0
        code = waiting.run()
    elif code == 9:  # a changed gate: its verdict is part of what was approved
        assert waiting.call("approve", "issue-42")[0] == 0
        code = waiting.run()
    assert (code, len(waiting.pushed())) == (0, 2)


def _edit(place: Path, old: str, new: str) -> None:
    text = (place / "pipeline.yaml").read_text()
    assert old in text
    (place / "pipeline.yaml").write_text(text.replace(old, new))


def test_another_parameter_is_another_run_and_the_first_one_waits_on(waiting):
    """Proves F3."""
    assert waiting.run("--param", "n=43") == 9
    assert waiting.log() == ALL
    assert (waiting.money("issue-42"), waiting.money("issue-43")) == (0.4, 0.4)
    assert waiting.waits("issue-42") == waiting.waits("issue-43") == ["approve:push"]
    waiting.ends_well()


def test_a_used_up_budget_stops_the_fix_and_goes_on_when_it_is_raised(pipeline):
    """Proves E8, F6."""
    _edit(pipeline.place, "money: 100", "money: 0.3")
    assert pipeline.run() == 9
    assert (pipeline.log(), pipeline.money()) == (["code", "docs", "implement"], pytest.approx(0.3))
    assert pipeline.waits() == ["budget:money:1"]
    assert pipeline.run() == 9  # still nobody
    assert pipeline.log() == []
    assert pipeline.call("budget", "issue-42", "money+=10")[0] == 0
    assert pipeline.run() == 9, pipeline.said
    assert (pipeline.log(), pipeline.waits(), pipeline.money()) == (["fix"], ["approve:push"], 0.4)
    pipeline.ends_well()


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("git add -A", []),
        ("git stash -q -u && git stash pop -q", []),
        ("git add impl.txt && git reset -q --hard", ["fix", "implement"]),
        ("git clean -fdq -e impl.txt", ["code", "docs", "fix", "implement"]),
        ("git clean -fdxq -e impl.txt", ["code", "docs", "fix", "implement"]),
    ],
)
def test_what_an_agent_does_with_git_costs_no_record(pipeline, command, lost):
    """Proves F8."""
    (pipeline.place.parent / "extra").write_text(command)
    assert pipeline.run("--no-wait") == 9, pipeline.said
    first = pipeline.log()
    assert set(first) <= set(ALL)
    assert pipeline.money() == pytest.approx(0.1 * len(first))  # everything that was paid for is known
    assert pipeline.call("verify")[0] == 0
    assert ".holdfast" not in pipeline.git("ls-files")
    (pipeline.place.parent / "extra").unlink()
    if "clean" in command:  # it deleted the artifacts of research: they are made again, and what follows
        assert pipeline.run("--no-wait") == 9
        assert pipeline.log() == lost


def test_a_fork_works_in_its_own_directory_and_the_original_stays(waiting):
    """Proves F5."""
    before = {path.name: path.read_bytes() for path in waiting.place.iterdir() if path.is_file()}
    code, out, err = waiting.call("fork", "issue-42", "other", "--json")
    assert code == 0, err
    told = json.loads(out)
    place = Path(next(value for value in told.values() if isinstance(value, str) and Path(value).is_dir()))
    assert place != waiting.place
    assert (place / "impl.txt").read_text() == "fixed\n"
    assert waiting.call("run", "pipeline.yaml", "--run-id", "other")[0] == 9
    assert waiting.log() == []  # kept from the original
    assert waiting.call("approve", "other")[0] == 0
    assert waiting.call("run", "pipeline.yaml", "--run-id", "other")[0] == 0
    assert waiting.pushed()[0] == "issue 42"
    assert {path.name: path.read_bytes() for path in waiting.place.iterdir() if path.is_file()} == before
    assert waiting.waits() == ["approve:push"]  # the original was not answered


def test_it_goes_on_in_a_moved_project_and_from_another_directory(waiting):
    """Proves F5."""
    moved = waiting.place.parent / "moved"
    shutil.move(waiting.place, moved)
    waiting.place = moved
    assert waiting.run() == 9, waiting.said
    assert (waiting.log(), waiting.money()) == ([], 0.4)
    assert waiting.call("approve", "issue-42")[0] == 0
    code, out, err = waiting.call("-C", str(moved), "run", "pipeline.yaml", place=waiting.place.parent)
    assert code == 0, out + err
    assert waiting.pushed()[0] == "issue 42"
