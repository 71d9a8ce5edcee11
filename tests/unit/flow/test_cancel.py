"""A flow that is cancelled while its commands run: they end, whatever they are for, and nothing of them is recorded."""

import json
import time
from pathlib import Path

import pytest

from holdfast.journal.call_record import is_work


class Scene:
    """A flow with commands that write down their process, and somebody who acts when some of them have begun."""

    def __init__(self, bench):
        self._bench = bench
        self._pids = bench.folder / "pids"
        self.long = self.command("exec sleep 60")

    def command(self, text):
        """Return a command that says that it has begun."""
        return f"echo $$ >> '{self._pids}'; echo begun; {text}"

    def run(self, phases, *, begun=1, act=None, **flow):
        """Run it; once so many commands have begun, cancel it through a store of its own, or act otherwise."""
        seen = []

        def observe(event):
            if event.kind == "task_output" and "begun" in event.text:
                seen.append(event)
                if len(seen) == begun:
                    with self._bench.open() as hf:
                        hf.control.cancel("p", by="ann", note="wrong branch") if act is None else act(hf)

        return self._bench.run({"flow": "p", "phases": phases, **flow}, observer=observe)

    @property
    def left(self):
        """The commands that are still there."""
        return [pid for pid in self._pids.read_text().split() if Path("/proc", pid).exists()]

    @property
    def steps(self):
        """How each call ended that does something by itself."""
        with self._bench.open() as hf:
            return {line["step"]: line["event"] for line in hf.latest("p").calls if is_work(line)}


@pytest.fixture
def scene(bench):
    return Scene(bench)


def test_a_command_that_runs_ends_and_the_run_with_it(bench, scene):
    flow = {"one": "echo first", "two": {"run": scene.long, "retries": 3}, "three": bench.say("three")}
    began = time.monotonic()
    result = scene.run(flow)
    assert time.monotonic() - began < 20
    assert (result.status, result.tasks_done) == ("cancelled", 1)
    assert "cancelled by ann: wrong branch" in result.detail
    assert scene.left == []
    assert scene.steps == {"one/one": "done"}
    with bench.open() as hf:
        assert hf.latest("p").summary.status == "cancelled"
        assert hf.latest("p").section("phases").phases["two"].status == "running"
    assert bench.run({"flow": "p", "phases": flow}).status == "cancelled"
    assert bench.said == []


def test_a_command_may_tidy_up_before_it_ends(bench, scene):
    tidy = f'trap "echo tidy >> {bench.log}; exit 0" TERM; sleep 60 & wait'
    assert scene.run({"one": scene.command(tidy)}).status == "cancelled"
    assert bench.said == ["tidy"]
    assert scene.steps == {}


def test_a_command_that_does_not_heed_it_is_killed(scene):
    assert scene.run({"one": scene.command("trap '' TERM; while :; do sleep 60; done")}).status == "cancelled"
    assert scene.left == []


def test_all_commands_that_run_at_once_end_and_no_other_begins(bench, scene):
    tasks = {**dict.fromkeys("abc", scene.long), "later": bench.say("later")}
    result = scene.run({"one": {"tasks": tasks, "parallel": 3}}, begun=3)
    assert (result.status, bench.said, scene.left, scene.steps) == ("cancelled", [], [], {})


@pytest.mark.parametrize(
    "phase",
    [
        {"run": "true", "gates": ["{long}"]},
        {"run": "true", "gates": ["false"], "fix": "{long}"},
        {"agent": "coder", "input": "go"},
    ],
    ids=["gate", "fix", "agent"],
)
def test_gates_fixes_and_agents_end_too(bench, scene, phase):
    phase = json.loads(json.dumps(phase).replace("{long}", scene.long))
    result = scene.run({"one": phase}, agents={"coder": f"echo $HOLDFAST_INPUT; {scene.long}"})
    assert (result.status, scene.left) == ("cancelled", [])
    assert "one/one" not in scene.steps
    with bench.open() as hf:
        head = hf.latest("p")
        for task in head.section("gates").tasks.values() if "gates" in head.sections else ():
            assert (task.error, task.fix_attempt, [gate for gate in task.gate_results if gate.success]) == (None, 0, [])
        assert all(one.status in ("pending", "running") for one in head.section("agents"))


def test_a_replan_ends_too(scene):
    result = scene.run({"one": {"run": "false", "replan": {"run": scene.long}}})
    assert (result.status, scene.left, scene.steps) == ("cancelled", [], {"one/one": "failed"})


def test_a_pause_waits_for_the_end_of_the_command(bench, scene):
    flow = {"one": scene.command(f"sleep 2; {bench.say('done')}"), "two": bench.say("two")}
    result = scene.run(flow, act=lambda hf: hf.control.pause("p", by="ann"))
    assert (result.status, result.detail, bench.said) == ("waiting", "paused by ann", ["done"])


def test_a_command_that_ended_by_itself_meanwhile_is_done(bench, scene):
    result = scene.run({"one": scene.command("true"), "two": "sleep 0.3", "three": bench.say("three")})
    assert (result.status, scene.steps["one/one"], bench.said) == ("cancelled", "done", [])
