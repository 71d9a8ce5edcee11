"""The parts of a run as a program uses them: saved by its run, carried over, and there again in another process."""

import itertools
import os
import signal
import threading
from datetime import timedelta

import pytest

import holdfast
from crash.children import Child
from holdfast import RunCancelled, RunClosed, RunWaiting, UsageError
from holdfast.runtime.agents import AgentOutput
from holdfast.runtime.graph import TaskGraph
from holdfast.runtime.usage import TokenUsage
from holdfast.store.sqlite import SQLiteStore
from unit.runtime.lives import every_death, unbroken


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.db"


def killed(place, program, **options):
    """Let another process move the run, and kill it where the program ends."""

    def life(_report):
        with holdfast.open(place, interval_s=None) as hf, hf.run("r", **options) as run:
            program(run)
            os.kill(os.getpid(), signal.SIGKILL)

    ended = Child(life).join()
    assert ended.signal == signal.SIGKILL, ended.reports


def life(place, program, **options):
    with holdfast.open(place, interval_s=None) as hf, hf.run("r", **options) as run:
        return program(run)


def write(_given):
    return AgentOutput(output="text", summary="wrote it", location="notes.md", tokens=TokenUsage(input=7, output=3))


def fail(_given):
    raise ValueError("no idea")


MACHINE = {"states": ["plan", "act"], "guards": {("plan", "act"): lambda: False}}


def use_everything(run):
    machine = run.machine(**MACHINE)
    machine.request("act", trigger="asked")
    run.subject.update(title="Login", body="Add it", labels=["bug"], assignees=["ann"], branch="login", session="s1")
    run.context.set(project="shop", session="s1", task="add login", work_breakdown=["model", "view"])
    run.context.learn("tests first")
    run.context.decide("use sessions", "simple", id="d1")
    run.knowledge.inject("the house style", source="wiki")
    run.knowledge.capture("logins are case sensitive", kind="fact")
    run.team.add("coder", "writes")
    run.agents.team = run.team
    run.agents.register("coder", write)
    run.agents.register("critic", fail)
    run.declare_phases("research", "build", plan="plan.md", replan_limit=2)
    with run.phase("research", label="phase:research") as phase:
        run.agents.call("coder", {"about": "login"}, task="notes")
        phase.summarise("read all of it")
        phase.keep({"sources": 3})
    with pytest.raises(ValueError, match="no idea"), run.phase("build"):
        run.agents.call("critic", "look", task="review")
    run.phases.replan("build", "the critic has no idea")
    run.budget.limit(tokens=100, time_s=60, retries=3, subcalls=4, tool_calls=5)
    run.budget.spend(tokens=42, retries=1, subcalls=2, tool_calls=3, once="first")
    asked = run.mailbox.send("coder", "critic", "is it good?", expects_answer=True)
    run.mailbox.send("critic", "coder", "hurry")
    run.mailbox.answer(run.mailbox.receive("critic"), "no")
    assert run.mailbox.await_answer(asked) == "no"
    conflict = run.mailbox.conflicts.start("style", ["coder", "critic"])
    conflict.position("coder", "tabs")
    run.context.note(loop=3, progress=0.5)
    run.checkpoint(sections={"episode": {"version": 2}})


def test_all_parts_are_there_again_after_the_process_was_killed(place):
    """Proves A3, A4, A5, B1, B5, B6, C2, C3, C5, C6, C7, C17, E1: through a run, in a process that knew nothing."""
    killed(place, use_everything)
    with holdfast.open(place) as hf, hf.run("r") as run:
        coder, critic = (run.agents[name] for name in ("coder", "critic"))
        assert (coder.status, coder.output, coder.attempts) == ("completed", "text", 1)
        assert (coder.tokens.input, coder.tokens.output) == (7, 3)
        assert coder.started_at <= coder.completed_at
        assert (critic.status, critic.input, critic.error) == ("failed", "look", "no idea")
        (output,) = run.agents.outputs()
        assert output[:2] == ("coder", "notes")
        assert output[3:] == ("wrote it", "notes.md")

        machine = run.machine(**MACHINE)
        assert (machine.current, machine.previous, machine.pending) == ("plan", None, ("act",))

        context = run.context
        assert (context.project, context.session, context.task) == ("shop", "s1", "add login")
        assert context.work_breakdown == ["model", "view"]
        assert context.lessons == ("tests first",)
        assert [(one.id, one.decision, one.rationale) for one in context.decisions] == [
            ("d1", "use sessions", "simple")
        ]
        assert context.metadata == {"loop": 3, "progress": 0.5}

        subject = run.subject.value
        assert (subject.title, subject.body, subject.labels) == ("Login", "Add it", ["bug"])
        assert (subject.assignees, subject.branch, subject.session) == (["ann"], "login", "s1")

        phases = run.declare_phases("research", "build")
        research, build = phases.state("research"), phases.state("build")
        assert (phases.plan, phases.completed, phases.next) == ("plan.md", ("research",), "build")
        assert (research.summary, research.result, research.label) == (
            "read all of it",
            {"sources": 3},
            "phase:research",
        )
        assert (build.status, build.error.message, build.attempt) == ("pending", "no idea", 1)
        assert [(one.phase, one.reason) for one in phases.replans.history()] == [("build", "the critic has no idea")]

        (member,) = run.team.members
        assert (member.agent, member.role, member.completed, member.pending) == ("coder", "writes", ["notes"], [])

        used = {name: (one.used, one.limit) for name, one in run.budget.spending.items() if name != "time_s"}
        assert used == {"tokens": (52, 100), "retries": (1, 3), "subcalls": (3, 4), "tool_calls": (3, 5)}
        assert run.budget.limit_of("time_s") == 60

        assert [entry.content for entry in run.knowledge.injected] == ["the house style"]
        assert [entry.content for entry in run.knowledge.pending] == ["logins are case sensitive"]

        assert [message.body for message in run.mailbox.pending] == ["hurry"]
        assert run.mailbox.answer_to("m1") == "no"
        assert run.mailbox.conflicts.running == ["style"]
        assert run.mailbox.conflicts.get("style").to_speak == ["critic"]
        assert run.head.section("episode") == {"version": 2}


def test_what_a_later_life_does_not_use_is_carried_over_and_costs_nothing(place):
    """Proves X2 for parts."""
    killed(place, use_everything)
    with holdfast.open(place) as hf:
        before = {one.name: one.root for one in hf.latest("r").record.envelope.sections}
    life(place, lambda run: run.step("one more", str, 1))
    with holdfast.open(place) as hf:
        after = {one.name: one.root for one in hf.latest("r").record.envelope.sections}
    kept = before.keys() - {
        "status",
        "steps",
        "journal",
        "waits",
        "budget",
    }  # a budget counts the time of every process
    assert kept >= {"agents", "workflow", "context", "subject", "phases", "team", "knowledge", "messages"}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_what_a_life_only_looks_at_is_stored_no_second_time(place):
    killed(place, use_everything)
    with holdfast.open(place) as hf:
        before = {one.name: one.root for one in hf.latest("r").record.envelope.sections}

    def look(run):
        run.machine(**MACHINE)
        run.declare_phases("research", "build")
        for part in ("context", "subject", "team", "knowledge", "mailbox"):
            getattr(run, part)
        run.step("one more", str, 1)

    life(place, look)
    with holdfast.open(place) as hf:
        after = {one.name: one.root for one in hf.latest("r").record.envelope.sections}
    looked_at = {"workflow", "context", "subject", "phases", "team", "knowledge", "messages"}
    assert {name: after[name] for name in looked_at} == {name: before[name] for name in looked_at}


def test_parts_that_are_never_used_leave_no_section(place):
    life(place, lambda run: run.step("one", str, 1))
    with holdfast.open(place) as hf:
        assert set(hf.latest("r").sections) == {"status", "steps"}


def test_a_phase_that_failed_keeps_its_error_and_its_steps_and_the_person_chooses(place):
    """Proves B5: retry and skip, over processes; to stop is to start it no more."""
    did = []

    def program(run):
        with run.phase("build"):
            run.step("write", lambda: did.append("write"))
            if len(did) < 3:
                run.step("test", lambda: did.append("test") or 1 / 0)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            life(place, program)
    assert did == ["write", "test", "test"]
    with holdfast.open(place) as hf:
        head = hf.latest("r")
        assert (head.summary.status, head.section("error").message) == ("failed", "division by zero")
        build = head.section("phases").phases["build"]
        assert (build.status, build.attempt, build.error.code) == ("failed", 2, "ZeroDivisionError")
    life(place, program)
    assert life(place, lambda run: run.phases.completed) == ("build",)

    def skipping(run):
        run.phases.skip("build", "not today")
        run.phases.skip("ship", "not today either")
        return run.phase("build").is_due, run.phase("ship").is_due

    assert life(place, skipping) == (False, False)
    assert life(place, lambda run: (run.phases.completed, run.phase("ship").is_due)) == (("build",), False)


def test_a_message_that_was_taken_and_not_dealt_with_comes_again_and_an_answer_stays(place):
    """Proves C6, C17."""
    killed(place, lambda run: (run.mailbox.send("a", "b", "why?", expects_answer=True), run.step("sent", str)))
    killed(place, lambda run: run.step("taken", str, run.mailbox.receive("b").body))

    def answered(run):
        message = run.mailbox.receive("b")
        assert (message.id, message.body) == ("m1", "why?")
        run.mailbox.answer(message, "because")

    killed(place, answered)

    def heard(run):
        assert run.mailbox.receive("b") is None
        assert not run.mailbox.pending
        return run.mailbox.await_answer("m1")

    assert life(place, heard) == "because"


def test_a_conflict_goes_on_in_the_round_and_with_the_speaker_where_the_process_died(place):
    """Proves C17."""

    def first(run):
        conflict = run.mailbox.conflicts.start("style", ["a", "b"], "tabs?")
        conflict.position("a", 1)
        conflict.position("b", 2)
        conflict.next_round()
        conflict.position("a", 3)

    killed(place, first)
    asked = []

    def speak(agent, conflict):
        asked.append((agent, conflict.round, conflict.positions))
        return 3

    def settle(conflict):
        return "three" if set(conflict.positions.values()) == {3} else None

    def second(run):
        return run.mailbox.conflicts.get("style").debate(speak, settle)

    assert life(place, second) == "three"
    assert asked == [("b", 2, {"a": 3, "b": 2})]
    assert life(place, second) == "three"
    assert len(asked) == 1


def test_at_its_limit_an_episode_waits_for_a_person_and_goes_on_exactly_there(place):
    """Proves E1, E6: the process may be gone meanwhile."""
    did = []

    def program(run):
        run.budget.limit(tokens=100, tool_calls=50)
        for loop in range(4):
            run.step(f"act-{loop}", did.append, loop)
            run.budget.spend(tokens=40, tool_calls=1, once=f"act-{loop}")
        return run.budget.used("tokens"), run.budget.limit_of("tokens")

    with pytest.raises(RunWaiting, match="120 of 100"):
        life(place, program, waiting="leave")
    assert did == [0, 1, 2]
    with holdfast.open(place) as outside:
        assert outside.latest("r").summary.status == "waiting"
        (wait,) = outside.control.waiting("r")
        assert (wait.kind, wait.details["budget"]) == ("budget", "tokens")
        outside.control.raise_budget("r", {"tokens": 60}, by="ann")
        assert outside.control.waiting("r") == []
    with pytest.raises(RunWaiting, match="160 of 160"):
        life(place, program, waiting="leave")
    with holdfast.open(place) as outside:
        outside.control.answer("r", "limit", value=500, by="ann")
    assert life(place, program) == (160, 500)
    assert life(place, program) == (160, 500)
    assert did == [0, 1, 2, 3]


def test_time_counts_over_processes_and_not_between_them(place):
    """Proves E1: time, used and limit."""
    clock = [1000.0]

    def spend(seconds):
        with (
            holdfast.Holdfast(SQLiteStore(place), monotonic=lambda: clock[0]) as hf,
            hf.run("r", waiting="leave") as run,
        ):
            run.budget.limit(time_s=100)
            clock[0] += seconds
            run.budget.check()
            return float(run.budget.used("time_s"))

    assert spend(30) == 30
    clock[0] += 5000
    assert spend(40) == 70
    with pytest.raises(RunWaiting, match="time_s is used up"):
        spend(40)


def test_a_graph_that_died_in_a_batch_goes_on_with_what_is_left_of_it(place, tmp_path):
    """Proves C4, C12: the exact task, through a run."""
    log = tmp_path / "log"

    def work(name):
        with log.open("a") as file:
            file.write(name + "\n")
        return name

    def graph_of(run, last):
        graph = run.graph("g")
        graph.add("a", lambda: work("a"))
        graph.add("b", lambda: work("b"))
        graph.add("c", last, needs=["a", "b"])
        return graph

    def die(_results):
        work("c")
        os.kill(os.getpid(), signal.SIGKILL)

    killed(place, lambda run: graph_of(run, die).run(limit=1))
    section = holdfast.open(place).latest("r").section("graph")
    assert (section.id, section.completed_batches, section.current_batch) == ("g", [1], 2)
    result = life(place, lambda run: graph_of(run, sorted).run())
    assert result.results == {"a": "a", "b": "b", "c": ["a", "b"]}
    assert log.read_text().split() == ["a", "b", "c"]
    section = holdfast.open(place).latest("r").section("graph")
    assert (section.completed_batches, section.current_batch) == ([1, 2], None)


def test_killed_at_any_save_a_graph_ends_with_no_batch_under_way_and_every_batch_counted():
    """Proves C4, C16."""

    def program(life):
        graph = life.attach("graph", TaskGraph(life, "g"))
        for name, needs in {"a": [], "b": [], "c": ["a", "b"], "d": ["c"]}.items():
            graph.add(name, lambda name=name: life.do(name), needs=needs)
        graph.run(limit=1)
        section = graph.snapshot()
        return section.completed_batches, section.current_batch, [task.batch for task in section.tasks.values()]

    _disk, end, _saves = unbroken(program)
    assert end == ([1, 2, 3], None, [1, 1, 2, 3])
    for where, _disk, broken_end in every_death(program):
        assert broken_end == end, where


def test_an_object_of_your_own_is_attached_like_a_part(place):
    class Notes:
        def __init__(self):
            self.lines = []

        def snapshot(self):
            return list(self.lines)

        def restore(self, value):
            self.lines = value

    def program(run):
        notes = run.register("notes", Notes())
        run.step("write", notes.lines.append, "one")
        return notes.lines

    assert life(place, program) == ["one"]
    assert life(place, program) == ["one"]


@pytest.mark.parametrize(
    "use",
    [
        lambda run: run.step("a", print),
        lambda run: run.agents.call("coder", "x", task="t"),
        lambda run: run.phase("p").__enter__(),
        lambda run: run.machine(states=["a", "b"]).to("b"),
        lambda run: run.mailbox.conflicts.start("c", ["a"]),
        lambda run: run.gates.task("t", print, []).run(),
        lambda run: run.approve("Deploy?"),
        lambda run: run.checkpoint(state=1),
    ],
    ids=["step", "agent", "phase", "machine", "conflict", "gates", "approve", "checkpoint"],
)
def test_a_closed_run_takes_nothing_and_calls_nobody(place, use):
    called = []
    with holdfast.open(place, interval_s=None) as hf:
        with hf.run("r") as run:
            run.agents.register("coder", called.append)
            run.step("first", str)
        head = hf.latest("r").id
        with pytest.raises(RunClosed):
            use(run)
        assert hf.latest("r").id == head
    assert called == []


def test_a_run_that_saves_nothing_still_works(place):
    """Proves D5: disabled, parts do their work and nothing is stored."""
    with holdfast.open(place, enabled=False) as hf, hf.run("r") as run:
        use_everything(run)
        assert run.step("a", str, 1) == "1"
        assert not hf.has("r")


def test_a_run_in_memory_has_all_parts():
    with holdfast.open("memory:") as hf:
        with hf.run("r") as run:
            use_everything(run)
        with hf.run("r") as run:
            assert run.team["coder"].completed == ["notes"]


def test_what_the_journal_tells_is_in_order_and_outlives_the_process(place):
    killed(place, use_everything)
    lines = life(place, lambda run: run.recorder.journal())
    kinds = [line["kind"] for line in lines]
    assert [kind for kind in kinds if kind in ("replan", "conflict_start", "resumed")] == [
        "replan",
        "conflict_start",
        "resumed",
    ]
    times = [line["at"] for line in lines]
    assert times == sorted(times)
    assert times[-1] - times[0] < timedelta(hours=1)


def graph_of_two(run):
    graph = run.graph()
    graph.add("a", lambda: 1)
    graph.add("b", lambda: 2, needs=["a"])
    graph.run()


def settled_conflict(run):
    conflict = run.mailbox.conflicts.start("c", ["a"])
    conflict.position("a", 1)
    conflict.resolve(1)


def phase_that_fails(run):
    with pytest.raises(ZeroDivisionError), run.phase("p"):
        raise ZeroDivisionError


def answered_message(run):
    run.mailbox.send("a", "b", "?", expects_answer=True)
    run.mailbox.answer("m1", "!")


def captured_and_flushed(run):
    run.knowledge.capture("a fact")
    run.knowledge.flush(str)


def told(run):
    run.context.learn("a lesson")
    run.team.add("a", "writes")
    run.subject.update(title="t")
    run.knowledge.capture("a fact")
    run.budget.spend(tokens=1)
    run.mailbox.send("a", "b", "?")
    run.host.note("mine", "line")


def spent(run):
    run.budget.limit(tokens=10)
    run.budget.spend(tokens=9)


@pytest.mark.parametrize(
    ("use", "triggers"),
    [
        (lambda run: run.step("a", str), []),
        (lambda run: run.step("a", str, effect="mails"), []),
        (lambda run: run.parallel({"a": str, "b": str}, limit=1), []),
        (lambda run: run.phase("p").call(str), ["phase_transition", "phase_complete"]),
        (phase_that_fails, ["phase_transition", "error_occurred"]),
        (lambda run: run.phases.replan("p", "why"), ["replan"]),
        (lambda run: run.machine(states=["a", "b"]).to("b"), ["state_transition"]),
        (lambda run: (run.agents.register("a", str), run.agents.call("a")), ["agent_complete"]),
        (graph_of_two, ["stage_complete", "batch_complete"] * 2),
        (
            lambda run: run.gates.task("t", str, [lambda: True], files=True).run(),
            ["stage_complete", "stage_complete", "gate_complete", "stage_complete"],
        ),
        (spent, ["budget_warning"]),
        (answered_message, []),
        (settled_conflict, ["conflict_start", "conflict_resolved"]),
        (lambda run: run.sleep_until(run.host.now()), ["user_approval"] * 2),
        (captured_and_flushed, []),
        (told, []),
        (lambda run: run.complete(), ["shutdown"]),
    ],
    ids=[
        "step", "effect", "parallel", "phase", "failed phase", "replan", "machine", "agent", "graph", "gates", "budget",
        "messages", "conflict", "wait", "knowledge", "told", "complete",
    ],
)  # fmt: skip
def test_a_part_saves_when_the_document_says(use, triggers):
    """Proves A1, C10, D2: what docs/RUNTIME.md has in its table."""
    with holdfast.open("memory:", interval_s=None, retention={"enabled": False}) as hf, hf.run("r") as run:
        use(run)
        begun, *taken = reversed(hf.checkpoints("r"))
        assert begun.reason == "the run begins"
        assert [one.trigger for one in taken] == triggers


def test_a_new_run_is_there_before_its_first_step_has_ended(place):
    """Proves E6: it can be seen, paused and cancelled."""
    with holdfast.open(place) as outside, holdfast.open(place) as hf:

        def look():
            assert [one.id for one in outside.runs()] == ["r"]
            assert outside.latest("r").summary.status == "running"
            outside.control.cancel("r", by="ann")

        with pytest.raises(RunCancelled), hf.run("r") as run:  # noqa: PT012 - what happens in the block is the test
            run.step("one", look)
            for number in itertools.count():  # a run looks four times a second at most
                run.step(f"more-{number}", str)
        assert outside.latest("r").summary.status == "cancelled"


def test_what_a_program_may_say_loosely_is_there_again_in_the_next_life(place, tmp_path):
    for _ in range(2):
        with holdfast.open(place, interval_s=None) as hf, hf.run("r") as run:
            graph = run.graph()
            graph.add("a", lambda: [1], effect=True)
            graph.add("b", lambda results: results["a"].append(2), needs=["a"])
            assert graph.run().results == {"a": [1], "b": None}
            run.agents.register("w", lambda: AgentOutput(output=1, location=tmp_path))
            assert run.agents.call("w", task="t") == 1


def test_an_error_whose_text_is_no_text_does_not_keep_the_end_from_being_saved(place):
    with holdfast.open(place, interval_s=None) as hf:
        with pytest.raises(ValueError, match="bad"), hf.run("r") as run:  # noqa: PT012 - in two steps
            run.context.set(task="t")
            raise ValueError("bad \udcff")
        assert hf.latest("r").summary.status == "failed"
        assert hf.latest("r").section("context").task == "t"


def test_the_time_of_short_lives_adds_up(tmp_path):
    now = [0.0]
    with holdfast.Holdfast(SQLiteStore(tmp_path / "time.db"), monotonic=lambda: now[0]) as hf:
        for life in range(5):
            with hf.run("r") as run:
                run.budget.limit(time_s=100)
                run.step(f"a{life}", str)
                now[0] += 0.5
        with hf.run("r") as run:
            assert run.budget.used("time_s") == 2.5


def test_a_raised_budget_and_that_it_was_asked_for_are_in_the_same_checkpoint(place):
    with holdfast.open(place, interval_s=None) as hf:
        for life in range(2):
            try:
                with hf.run("r", waiting="leave") as run:
                    raised, held = run.budget._raise, []
                    run.budget._raise = lambda *a, raised=raised, held=held, run=run, **k: (
                        held.append(run.lock.is_mine()),
                        raised(*a, **k),
                    )
                    run.budget.limit(tokens=10)
                    run.budget.spend(tokens=10, once="a")
                    assert held == [True]
            except RunWaiting:
                assert life == 0
                hf.control.answer("r", "raise", value=5)


def test_a_budget_may_be_raised_that_is_not_waited_for(place):
    """Proves E6: the wait ends with the budget that it is for, and with no other."""

    def program(run):
        run.budget.limit(tokens=100, money=5, time_s=3600)
        phase = run.budget.child("phase:a", {"tokens": 1000})
        run.budget.spend(tokens=100, once="a")
        return {name: run.budget.limit_of(name) for name in ("tokens", "money", "time_s")} | {
            "phase": phase.limit_of("tokens")
        }

    with pytest.raises(RunWaiting, match="tokens is used up"):
        life(place, program, waiting="leave")
    with holdfast.open(place) as outside:
        for given, says in (({"tokens": 5, "moneyy": 1}, "did you mean 'money'"), ({"foo": 1}, "'phase:a/tokens'")):
            with pytest.raises(UsageError, match=says):
                outside.control.raise_budget("r", given)
        assert outside.control.raise_budget("r", {"money": "2.50", "time": 60, "phase:a/tokens": 7}) == []
        assert len(outside.control.waiting("r")) == 1
    with pytest.raises(RunWaiting):
        life(place, program, waiting="leave")
    with holdfast.open(place) as outside:
        (ended,) = outside.control.raise_budget("r", {"tokens": 50, "money": 1})
        assert (ended.id, outside.control.waiting("r")) == ("budget:tokens:1", [])
    assert life(place, program) == {"tokens": 150, "money": 8.5, "time_s": 3660, "phase": 1007}
    assert life(place, program) == {"tokens": 150, "money": 8.5, "time_s": 3660, "phase": 1007}
    life(place, lambda run: run.complete())
    with holdfast.open(place) as outside, pytest.raises(UsageError, match="is completed"):
        outside.control.raise_budget("r", {"tokens": 1})


def test_a_budget_is_raised_while_the_run_waits_for_it_in_a_block(place):
    """Proves E6: two threads want what one raise gives room for."""
    with holdfast.open(place, interval_s=None) as hf, holdfast.open(place) as outside, hf.run("r") as run:
        run.budget.limit(subcalls=1)
        run.budget.reserve(subcalls=1)
        told = []

        def answer(wait, reply):
            told.append((wait.id, reply and reply.choice))
            if reply is None:
                outside.control.raise_budget("r", {"subcalls": 1})

        run.host.on_wait = answer
        run.parallel({"a": lambda: run.budget.reserve(subcalls=1), "b": lambda: run.budget.reserve(subcalls=1)})
        assert (run.budget.used("subcalls"), run.budget.limit_of("subcalls")) == (3, 3)
        assert told == [
            ("budget:subcalls:1", None), ("budget:subcalls:1", "raised"),
            ("budget:subcalls:2", None), ("budget:subcalls:2", "raised"),
        ]  # fmt: skip


@pytest.mark.parametrize("choice", ["raise", "limit"])
def test_an_answer_that_needs_an_amount_is_refused_without_one(place, choice):
    def program(run):
        run.budget.limit(tokens=100)
        run.budget.spend(tokens=100, once="a")
        return run.budget.limit_of("tokens")

    with pytest.raises(RunWaiting):
        life(place, program, waiting="leave")
    with holdfast.open(place) as outside:
        refused = ((None, "needs an amount"), (-5, "tokens=-5"), ("many", "not a number"), ({"foo": 1}, "'tokens'"))
        for value, says in refused:
            with pytest.raises(UsageError, match=says):
                outside.control.answer("r", choice, value=value)
        assert len(outside.control.waiting("r")) == 1
        outside.control.answer("r", choice, value={"tokens": 500})
    assert life(place, program) == (600 if choice == "raise" else 500)


def test_no_clock_runs_while_the_run_is_paused_or_waits_for_somebody(place):
    """Proves E1: neither the budget's time nor how long a phase and a step took."""
    now = [0.0]
    with (
        holdfast.Holdfast(SQLiteStore(place), monotonic=lambda: now[0]) as hf,
        holdfast.open(place) as outside,
        hf.run("r") as run,
    ):

        def later(wait, reply):
            if reply is None:
                now[0] += 3600
                outside.control.unpause("r") if wait.kind == "pause" else outside.control.answer("r", "approve")

        def work(act=None):
            now[0] += 2
            if act is not None:
                act()

        run.host.on_wait = later
        assert run.budget.used("time_s") == 0
        with run.phase("p"):
            run.step("paused", work, lambda: outside.control.pause("r"))
            run.step("asks", work, lambda: run.approve("on?"))
            run.step("works", work)
        assert run.budget.used("time_s") == 6
        assert run.phases.state("p").duration_s == pytest.approx(6)  # this thread waited in other tests, too
        assert [run.calls.record(name)["duration_s"] for name in ("paused", "asks", "works")] == pytest.approx([2] * 3)
        kinds = [line["wait"] for line in run.recorder.journal() if line["kind"] == "waits"]
        assert kinds == ["pause", "approval"]


def test_the_time_up_to_the_last_checkpoint_outlives_a_process_that_is_killed(place):
    """Proves E1."""
    now = [0.0]
    hf = holdfast.Holdfast(SQLiteStore(place), monotonic=lambda: now[0])
    run = hf.run("r").__enter__()
    run.budget.count(tokens=1)
    for number in range(3):
        now[0] += 2
        run.step(f"s{number}", str)
    now[0] += 50
    with holdfast.open(place) as outside:
        assert outside.latest("r").section("budget").spending["time_s"].used == 6
    run.__exit__(None, None, None)
    hf.close()


def test_an_answer_from_another_thread_ends_a_wait_that_has_begun(tmp_path):
    """Proves C17."""
    with holdfast.open(tmp_path / "s.db", interval_s=None) as hf, hf.run("r") as run:
        question = run.mailbox.send("planner", "coder", "done?", expects_answer=True)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(run.mailbox.await_answer(question)), daemon=True)
        thread.start()
        while not (hf.has("r") and hf.control.waiting("r")):
            pass
        run.mailbox.answer(question, "yes")
        thread.join(30)
        assert answers == ["yes"]
