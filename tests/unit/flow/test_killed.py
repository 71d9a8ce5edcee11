"""Flows whose process is killed with SIGKILL at every event, and at random moments, end as an unbroken one does."""

import errno
import os
import random
import signal
import threading
import time

import pytest

import holdfast
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.faults import Fault, FaultyDisk


def rich_flow(log):
    """Return a flow with a graph, gates, a fix, a replan, a loop, a scripted agent and an effect."""

    def say(text):
        return f"echo {text} >> '{log}'"

    return {
        "flow": "rich",
        "params": {"goal": "win"},
        "agents": {"planner": {"script": [{"output": "the plan", "usage": {"input_tokens": 5, "output_tokens": 5}}]}},
        "budget": {"tokens": 1000},
        "phases": {
            "plan": {"agent": "planner"},
            "gather": {
                "tasks": {
                    "a": f"{say('a')}; echo A > a.txt; echo A",
                    "b": f"{say('b')}; echo B",
                    "c": {
                        "run": f"{say('c')}; echo $HOLDFAST_TASKS_A_RESULT$HOLDFAST_TASKS_B_RESULT | tee c.txt",
                        "needs": ["a", "b"],
                    },
                }
            },
            "code": {
                "run": f"{say('code')}; echo 0 > n; echo coded",
                "gates": ["true", "test $(cat n) = 1"],
                "fix": f"{say('fix')}; echo 1 > n",
            },
            "risky": {"run": f"{say('risky')}; test -e planned", "replan": f"{say('replan')}; touch planned"},
            "loop": {
                "run": f"{say('loop')}; echo $HOLDFAST_ROUND",
                "repeat": {"until": "tasks.loop.result >= 3", "limit": 9},
            },
            "mail": {"run": f"{say('mail')}; echo sent", "effect": "mail", "on_unknown": "retry"},
        },
    }


def outcome(store):
    """Return what a finished run holds, without times and counts of lives."""
    with holdfast.open(store, settings=holdfast.Settings(), durability="process") as hf:
        head = hf.latest("rich")
        states = {name: (one.status, one.summary) for name, one in head.section("phases").phases.items()}
        steps = {one["step"]: one.get("result") for one in head.section("steps") if one["event"] == "done"}
        graph = {name: node.status for name, node in head.section("graph").tasks.items()}
        gates = head.section("gates").tasks["code/code"]
        spent = head.section("budget").spending["tokens"].used
        (agent,) = head.section("agents")
        assert not hf.verify().faults
        return states, steps, graph, (gates.stage, gates.fix_attempt), spent, agent.status, head.summary.status


def lived(store, work, flow, kill, *, at_call=None):
    """Resume the flow in a process of its own, which may kill itself; return whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            options = {} if at_call is None else {"vfs": faulty(store, at_call).vfs}
            store_made = SQLiteStore(store, durability="process", **options)
            hf = holdfast.Holdfast(store_made)
            result = run_flow(hf, flow, workspace=work, observer=kill, waiting="leave")
            os._exit(0 if result.status == "completed" else 3)
        except BaseException as error:  # noqa: BLE001 - a child says why it failed
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(4)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def faulty(store, at_call):
    """Return a disk that kills this process at one of its storage calls."""
    disk = FaultyDisk(store.parent, name=f"kill-{at_call}")
    disk.arm(Fault(at=at_call, kind="kill"))
    return disk


class At:
    """Kills its process at one of the events that it hears."""

    def __init__(self, number):
        self.left = number

    def __call__(self, event):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class After:
    """Kills its process after a time, whatever it is at."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.timer = None

    def __call__(self, event):
        if self.timer is None:
            self.timer = threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL))
            self.timer.start()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "work").mkdir()
    began = time.monotonic()
    assert lived(folder / "s.db", folder / "work", flow_from(rich_flow(folder / "log")), None)
    took = time.monotonic() - began
    return outcome(folder / "s.db"), (folder / "log").read_text().split(), took


def check(folder, unbroken, lives):
    expected, said, _took = unbroken
    states, steps, graph, gates, spent, agent, status = outcome(folder / "s.db")
    assert (states, graph, gates, agent, status) == (expected[0], expected[2], expected[3], expected[5], expected[6])
    assert steps.keys() == expected[1].keys()
    assert {name: steps[name]["result"] for name in ("gather/c", "code/code", "mail/mail")} == {
        name: expected[1][name]["result"] for name in ("gather/c", "code/code", "mail/mail")
    }
    assert spent == expected[4]
    heard = (folder / "log").read_text().split()
    for word in set(said):
        assert said.count(word) <= heard.count(word) <= said.count(word) + lives, word


@pytest.mark.parametrize("start", range(2))
def test_killed_at_any_event_a_flow_ends_as_an_unbroken_one_does(tmp_path, unbroken, start):
    """Proves D8 and B8."""
    for number in range(3 + start * 15, 70, 30):
        folder = tmp_path / str(number)
        (folder / "work").mkdir(parents=True)
        flow = flow_from(rich_flow(folder / "log"))
        lives = 0
        while not lived(folder / "s.db", folder / "work", flow, At(number) if lives < 2 else None):
            lives += 1
        check(folder, unbroken, lives)


def test_killed_at_any_storage_call_a_flow_ends_as_an_unbroken_one_does(tmp_path, unbroken):
    """Proves D8 and B2."""
    for number in range(5, 240, 47):
        folder = tmp_path / str(number)
        (folder / "work").mkdir(parents=True)
        flow = flow_from(rich_flow(folder / "log"))
        assert not lived(folder / "s.db", folder / "work", flow, None, at_call=number)
        assert lived(folder / "s.db", folder / "work", flow, None)
        check(folder, unbroken, 1)


def test_killed_between_any_two_storage_calls_no_task_that_was_reported_done_runs_again(tmp_path):
    """Proves D8, D10, C16: the end of a task, its batch and the next beginning are one commit, before anyone hears."""
    killed = 0
    for number in range(30, 150, 9):
        folder = tmp_path / str(number)
        (folder / "work").mkdir(parents=True)
        log = folder / "log"
        tasks = {
            "one": f"echo one >> '{log}'",
            "two": {"needs": "one", "run": f"echo two >> '{log}'", "gates": f"echo gate >> '{log}'"},
        }
        flow = flow_from({"flow": "rich", "phases": {"build": {"tasks": tasks}}})

        def heard(event, log=log):
            if event.kind == "task_done":
                with log.open("a") as file:
                    file.write(f"heard-{event.task}\n")

        if not lived(folder / "s.db", folder / "work", flow, heard, at_call=number):
            killed += 1
            assert lived(folder / "s.db", folder / "work", flow, heard)
        said = log.read_text().split()
        for task in ("one", "two"):
            assert task not in said[said.index(f"heard-{task}") :] if f"heard-{task}" in said else True
            assert said.count(task) in (1, 2), number
        with holdfast.open(folder / "s.db", settings=holdfast.Settings(), durability="process") as hf:
            head = hf.latest("rich")
            assert (head.section("graph").completed_batches, head.summary.status) == ([1, 2], "completed")
            reasons = [one.reason for one in hf.checkpoints("rich")]
            assert {"batch 1", "before batch 2", "batch 2", "build/two: complete", "build is complete"} <= {*reasons}
            assert not hf.verify().faults
    assert killed > 5


def test_killed_at_random_moments_a_flow_ends_as_an_unbroken_one_does(tmp_path, unbroken):
    """Proves D8 and B8."""
    chance = random.Random(7)
    for number in range(2):
        folder = tmp_path / str(number)
        (folder / "work").mkdir(parents=True)
        flow = flow_from(rich_flow(folder / "log"))
        lives = 0
        while not lived(
            folder / "s.db",
            folder / "work",
            flow,
            After(chance.uniform(0.01, unbroken[2] * 0.6)) if lives < 8 else None,
        ):
            lives += 1
        check(folder, unbroken, lives)


def test_a_task_that_kills_its_parent_is_begun_again_in_the_next_life(tmp_path):
    (tmp_path / "work").mkdir()
    log = tmp_path / "log"
    run = f"echo two >> '{log}'; test $(wc -l < '{log}') -ge 3 || kill -9 $PPID; sleep 0.2; echo survived"
    flow = flow_from({"flow": "rich", "phases": {"one": f"echo one >> '{log}'", "two": run}})
    assert not lived(tmp_path / "s.db", tmp_path / "work", flow, None)
    assert lived(tmp_path / "s.db", tmp_path / "work", flow, None)
    assert log.read_text().split() == ["one", "two", "two"]


def test_what_was_done_before_a_kill_is_not_done_again(tmp_path):
    """Proves D8."""
    (tmp_path / "work").mkdir()
    log = tmp_path / "log"
    phases = {name: f"echo {name} >> '{log}'" for name in ("one", "two", "three")}
    flow = flow_from({"flow": "rich", "phases": phases})

    def kill(event):
        if (event.kind, event.phase) == ("phase_done", "two"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert not lived(tmp_path / "s.db", tmp_path / "work", flow, kill)
    assert lived(tmp_path / "s.db", tmp_path / "work", flow, None)
    assert log.read_text().split() == ["one", "two", "three"]


def test_a_graph_is_a_record_behind_its_steps_and_does_nothing_twice(tmp_path):
    """Proves C4, C12: how a task's node stands is stored with the next record, and its step tells what is done."""
    (tmp_path / "work").mkdir()
    log = tmp_path / "log"
    tasks = {name: f"echo {name} >> '{log}'" for name in ("a", "b", "c", "d")}
    flow = flow_from({"flow": "rich", "phases": {"one": {"tasks": tasks, "parallel": 1}}})

    def kill(event):
        if (event.kind, event.task) == ("task_done", "c"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert not lived(tmp_path / "s.db", tmp_path / "work", flow, kill)
    with holdfast.open(tmp_path / "s.db", read_only=True) as hf:
        nodes = hf.latest("rich").section("graph").tasks
        assert [nodes[name].status for name in "abd"] == ["completed", "completed", "pending"]
    assert lived(tmp_path / "s.db", tmp_path / "work", flow, None)
    assert log.read_text().split() == ["a", "b", "c", "d"]
    with holdfast.open(tmp_path / "s.db", read_only=True) as hf:
        assert {node.status for node in hf.latest("rich").section("graph").tasks.values()} == {"completed"}


@pytest.mark.parametrize(
    ("edited", "said"), [(False, ["code", "g1", "g2", "g2"]), (True, ["code", "g1", "g2", "g1", "g2"])]
)
def test_passed_gates_run_again_only_if_somebody_changed_files_meanwhile(tmp_path, edited, said):
    """Proves D8."""
    work = tmp_path / "work"
    work.mkdir()
    log = tmp_path / "log"
    gates = [f"echo g1 >> '{log}'; touch written-by-a-gate", f"echo g2 >> '{log}'"]
    flow = flow_from({"flow": "rich", "phases": {"code": {"run": f"echo code >> '{log}'; echo a > f", "gates": gates}}})

    def kill(event):
        if event.kind == "gate_done" and "g2" in event.gate:
            os.kill(os.getpid(), signal.SIGKILL)

    assert not lived(tmp_path / "s.db", work, flow, kill)
    if edited:
        (work / "f").write_text("b")
    assert lived(tmp_path / "s.db", work, flow, None)
    assert log.read_text().split() == said


def test_a_flow_goes_on_over_a_full_disk_and_shows_that_it_is_not_protected(tmp_path):
    """Proves A14."""
    disk = FaultyDisk(tmp_path, name="full")
    full = Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=True)
    flow = flow_from({"flow": "p", "phases": dict.fromkeys(("one", "two", "three", "four"), "true")})
    heard = []

    def watch(event):
        heard.append(event.kind)
        if event.kind == "phase_done":
            disk.arm({"one": full, "three": None}.get(event.phase, disk.fault))

    with holdfast.Holdfast(SQLiteStore(tmp_path / "s.db", vfs=disk.vfs)) as hf:
        with pytest.warns(holdfast.UnprotectedWarning):
            result = run_flow(hf, flow, observer=watch)
        assert (result.status, hf.latest("p").summary.status) == ("completed", "completed")
    assert heard.index("unprotected") < heard.index("protected")
    disk.close()


def test_a_task_that_was_kept_and_not_yet_shown_is_shown_whole(bench):
    """Proves C4: the process died between the end of a task and the next commit."""

    class Died(BaseException):
        """The process is gone."""

    def die(event):
        if event.kind == "task_done":
            raise Died

    tasks = {"a": "echo one", "b": {"run": "echo two", "needs": "a"}}
    flow = {"flow": "p", "phases": {"one": {"tasks": tasks, "parallel": 1}}}
    with pytest.raises(Died):
        bench.run(flow, observer=die)
    assert bench.run(flow).status == "completed"
    with bench.open() as hf:
        nodes = hf.latest("p").section("graph").tasks
    assert {name: (node.status, node.result["summary"]) for name, node in nodes.items()} == {
        "a": ("completed", "one"),
        "b": ("completed", "two"),
    }
