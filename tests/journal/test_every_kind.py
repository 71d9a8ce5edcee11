"""What holds for a call holds for every kind of call: one table over all of them, with real processes and SIGKILL."""

import os
import signal
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

import holdfast
from crash.children import Child
from holdfast import RunWaiting, Settings, Trigger
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow

PAST = datetime(2020, 1, 1, tzinfo=UTC)
OFF = Settings(triggers={one.value: False for one in Trigger if one not in (Trigger.MANUAL, Trigger.RECOVERY)})


def step(run, work, **options):
    return run.step("one", work, **options)


def agent(run, work, **options):
    run.agents.register("coder", lambda _asked: work(), **options)
    return run.agents.call("coder", "do it", task="one")


def gate(run, work, **options):
    return run.gates.task("one", lambda: "made", [lambda: bool(work())], **options).run()


def fix(run, work, **options):
    fixed = []
    gates = [lambda: bool(fixed or run.calls.kept("one/fix:1"))]
    return run.gates.task("one", lambda: "made", gates, fix=lambda _failure: fixed.append(work()), **options).run()


def worker(run, work, **options):
    return run.gates.task("one", work, [lambda: True], **options).run()


def task(run, work, **options):
    graph = run.graph("g")
    graph.add("one", work, **options)
    return graph.run()


def phase(run, work):
    with run.phase("one") as entered:
        if entered.is_due:
            work()


def question(run, _work):
    return run.approve("Sure?")


def timer(run, _work):
    return run.sleep_until(PAST, name="one")


def decision(run, work):
    run.phases.phase("one")
    if not run.phases.replans.count("one"):
        run.phases.replan("one", "no good")
        work()


class Kind(NamedTuple):
    do: Any
    path: str
    works: bool = True
    """Whether it does work of its own, that can be killed, skipped and paid for."""


KINDS = {
    "step": Kind(step, "one"),
    "agent": Kind(agent, "agent:coder/one"),
    "gate": Kind(gate, "one/gate:1"),
    "fix": Kind(fix, "one/fix:1"),
    "task": Kind(task, "g/one"),
    "work": Kind(worker, "one/work"),
    "phase": Kind(phase, "one/", works=False),
    "question": Kind(question, "approve:Sure?", works=False),
    "timer": Kind(timer, "one", works=False),
    "decision": Kind(decision, "one/replan:1", works=False),
}
every = pytest.mark.parametrize("kind", KINDS)
working = pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.works])


class Place:
    """A run, and a log that its work writes by itself."""

    def __init__(self, path):
        self.path = path
        self.log = path / "log"

    @property
    def begun(self):
        return self.log.read_text().count("begun") if self.log.exists() else 0

    def process(self, kind, *, dies="", settings=None, prepare=None, **options):
        """Make the call in a process that dies in its work, after it, or not."""

        mode = [dies]  # a captured text would be an input of the step

        def life(report):
            def work():
                with self.log.open("a") as file:
                    file.write("begun\n")
                if mode == ["inside"]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return "done"

            with holdfast.open(self.path / "s", settings=settings) as hf:
                try:
                    with hf.run("r", waiting="leave") as run:
                        if prepare is not None:
                            prepare(run)
                        KINDS[kind].do(run, work, **options)
                        if dies == "after":
                            os.kill(os.getpid(), signal.SIGKILL)
                except RunWaiting as waiting:
                    report(waiting.kind)

        ended = Child(life).join()
        assert not any(isinstance(one, dict) for one in ended.reports), ended.reports
        assert ended.signal == (signal.SIGKILL if dies and not ended.reports else 0)
        return ended.reports

    def opened(self):
        return holdfast.open(self.path / "s")

    def ends(self, path):
        with self.opened() as hf:
            told = [one.kind.partition(" ") for one in hf.events("r") if one.what == path]
            return [event for kind, _, event in told if kind in KINDS and event not in ("", "started")]

    def finish(self, kind, settings=None):
        """Let a call come to its end in a process that dies right after it."""
        if kind == "question":
            assert self.process(kind, settings=settings) == ["approval"]
            with self.opened() as hf:
                hf.control.answer("r", "approve")
        self.process(kind, dies="after", settings=settings)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@every
def test_a_finished_call_is_not_made_again_after_a_kill(place, kind):
    """Proves D8, E6: every kind."""
    place.finish(kind)
    begun, ends = place.begun, place.ends(KINDS[kind].path)
    assert ends[-1] == "done"
    for _ in range(2):
        assert place.process(kind) == []
    assert (place.begun, place.ends(KINDS[kind].path)) == (begun, ends)


@working
def test_an_unknown_outcome_is_done_again_unless_the_call_says_otherwise(place, kind):
    place.process(kind, dies="inside")
    place.process(kind)
    assert place.begun == 2
    assert place.ends(KINDS[kind].path) == ["done"]


@working
@pytest.mark.parametrize("policy", ["skip", "ask"])
def test_an_unknown_outcome_follows_the_policy_of_the_call(place, kind, policy):
    """Proves D8: every kind."""
    place.process(kind, dies="inside", on_unknown=policy)
    waits = place.process(kind, on_unknown=policy)
    assert (place.begun, waits) == (1, ["uncertain"] if policy == "ask" else [])


@working
def test_a_used_up_budget_stops_the_agents_that_a_call_asks(place, kind):
    """Proves E8: every kind."""

    def life(report):
        with holdfast.open(place.path / "s") as hf, hf.run("r", waiting="leave") as run:
            run.budget.limit(subcalls=1)
            run.agents.register("paid", lambda _asked: place.log.open("a").write("begun\n"))
            run.agents.call("paid", "x", task="first")
            try:
                KINDS[kind].do(run, lambda: run.agents.call("paid", "x", task="second"))
            except RunWaiting as waiting:
                report(waiting.kind)
                raise

    for _ in range(2):
        assert Child(life).join().reports[0] == "budget"
    assert place.begun == 1


@every
@pytest.mark.parametrize("settings", [OFF, Settings(automatic=False)], ids=["switched off", "automatic off"])
def test_no_kind_takes_a_checkpoint_that_is_switched_off_and_its_end_is_durable(place, kind, settings):
    """Proves A14, C14: every kind."""
    place.finish(kind, settings)
    with place.opened() as hf:
        assert {one.trigger for one in hf.checkpoints("r")} <= {"manual"}
    assert place.ends(KINDS[kind].path)[-1] == "done"


@every
def test_a_replay_shows_every_kind(place, kind):
    """Proves B12: every kind."""
    place.finish(kind)
    with place.opened() as hf:
        assert KINDS[kind].path in [one.step for one in hf.replay("r").steps]


def test_a_replan_of_a_flow_is_done_once(place):
    """Proves C6, D8."""
    work = f"echo begun >> '{place.log}'; touch good"
    flow = {
        "flow": "f",
        "phases": {"one": {"run": "test -e good", "replan": {"run": work, "limit": 1}}, "two": "kill -9 $PPID"},
    }
    (place.path / "w").mkdir()

    def life(_report):
        with place.opened() as hf:
            run_flow(hf, flow_from(flow), run_id="r", workspace=place.path / "w")

    for _ in range(2):
        assert Child(life).join().signal == signal.SIGKILL
    assert place.begun == 1
    with place.opened() as hf:
        assert ("replan", "done") in {(one["kind"], one["event"]) for one in hf.latest("r").calls}


@working
def test_what_kills_its_process_again_and_again_leaves_a_trace(place, kind):
    """Proves B8: which call it was, how often it was begun, and how many processes ended in the run."""
    for _ in range(5):
        place.process(kind, dies="inside")
    with place.opened() as hf:
        last = [one for one in hf.latest("r").calls if one["step"] == KINDS[kind].path][-1]
        died = [
            one
            for one in hf.run("r").recorder.journal()
            if one["kind"] == "resumed" and one["what"] == "it was running"
        ]
    assert (last["event"], last["attempts"], len(died)) == ("started", 4, 4)
