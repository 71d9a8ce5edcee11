import os
import subprocess
import sys
import threading

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import CommandFailed, Divergence, RunWaiting, StepTimeout, UsageError, ValueRefused
from holdfast.model.sections import Agent, AgentTask, TokenUsage
from holdfast.runtime.agents import AgentOutput, Agents
from holdfast.runtime.command import Command
from holdfast.runtime.team import Team
from unit.runtime.lives import Disk, Life, every_death, unbroken
from unit.runtime.recorder import Recorder, is_identity

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def made(what=None, host=None, **options):
    agents = Agents(host or Recorder())
    agents.register("coder", what or (lambda given: f"did {given}"), role="writes code", **options)
    return agents


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures, error=None):
        self.calls = 0
        self.failures = failures
        self.error = error or ConnectionError("reset")

    def __call__(self, given):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return given


def test_an_agent_is_kept_with_input_output_times_attempts_and_usage():
    """Proves A3, C5."""
    host = Recorder()
    agents = made(
        lambda given: AgentOutput(
            output={"diff": given}, summary="one file", location="out/1.md", tokens=TokenUsage(input=10, output=3)
        ),
        host,
    )
    assert agents["coder"].status == "pending"
    assert agents.call("coder", "login", task="t1") == {"diff": "login"}
    agent = agents["coder"]
    assert (agent.status, agent.role, agent.input, agent.output) == (
        "completed",
        "writes code",
        "login",
        {"diff": "login"},
    )
    assert (agent.attempts, agent.tokens, agent.error) == (1, TokenUsage(input=10, output=3), None)
    assert agent.completed_at > agent.started_at
    task = agent.tasks["t1"]
    assert agents.outputs() == [("coder", "t1", task.completed_at, "one file", "out/1.md")]
    assert host.saved == [("agent_complete", "agent:coder/t1 done", None)]


def test_it_is_running_while_it_runs():
    """Proves A3."""
    seen = []
    agents = made(lambda _given: seen.append(agents.snapshot()[0]))
    agents.call("coder", 1, task="t1")
    assert (seen[0].status, seen[0].tasks["t1"].status, seen[0].attempts) == ("running", "running", 1)


def test_a_finished_task_is_not_called_again_and_its_output_is_returned():
    """Proves C5, D8."""
    flaky, disk = Flaky(0), Disk()
    for _ in range(2):
        life = Life(disk)
        agents = life.attach("agents", made(flaky, life))
        agents.resume()
        assert agents.call("coder", ["a"], task="t1") == ["a"]
        agents.call("coder", ["a"], task="t1").append("b")
        assert agents.call("coder", ["a"], task="t1") == ["a"]
    assert flaky.calls == 1


def test_another_input_for_a_finished_task_is_other_work():
    """Proves F1."""
    flaky = Flaky(0)
    agents = made(flaky)
    agents.call("coder", {"a": 1, "b": 2}, task="t1")
    agents.call("coder", {"b": 2, "a": 1}, task="t1")
    assert flaky.calls == 1
    agents.call("coder", {"a": 2}, task="t1")
    assert flaky.calls == 2


def test_calls_without_a_task_are_told_apart_by_their_number():
    flaky, disk = Flaky(0), Disk()
    for numbers in ((1, 1, 2), (1, 1, 2, 3)):
        life = Life(disk)
        agents = life.attach("agents", made(flaky, life))
        assert [agents.call("coder", n) for n in numbers] == list(numbers)
    assert list(agents["coder"].tasks) == ["1", "2", "3", "4"]
    assert flaky.calls == 4


def test_transient_errors_are_retried_and_attempts_and_tokens_add_up():
    """Proves A3, B8."""
    host = Recorder()

    def work(_given):
        agents.spend("coder", input_tokens=5)
        if agents["coder"].attempts < 3:
            raise TimeoutError("slow")
        return {"answer": 1, "usage": {"input_tokens": 2, "output_tokens": 4}}

    agents = made(work, host, retries=2, backoff=0.5)
    agents.call("coder", task="t1")
    assert agents["coder"].attempts == 3
    assert agents["coder"].tokens == agents.task("coder", "t1").tokens == TokenUsage(input=17, output=4)
    assert host.slept == [0.5, 1.0]
    assert host.triggers == ["agent_complete"]


def test_a_failed_call_is_kept_with_its_error_and_may_be_made_again():
    """Proves A3."""
    host, flaky = Recorder(), Flaky(1, ValueError("no such file"))
    agents = made(flaky, host, retries=5)
    with pytest.raises(ValueError, match="no such file"):
        agents.call("coder", 1, task="t1")
    task = agents.task("coder", "t1")
    assert (task.status, task.error.message, task.error.code, task.attempts) == (
        "failed",
        "no such file",
        "ValueError",
        1,
    )
    assert "Flaky" in task.error.stack or "__call__" in task.error.stack
    assert agents["coder"].error == "no such file"
    assert host.saved == [("error_occurred", "agent:coder/t1 failed: no such file", None)]
    assert agents.call("coder", 1, task="t1") == 1
    task = agents.task("coder", "t1")
    assert (task.status, task.error, task.attempts) == ("completed", None, 2)


def test_skipped_and_failed_are_kept_apart():
    """Proves A3."""
    agents = made(Flaky(99, ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        agents.call("coder", task="t1")
    agents.skip("coder", "t2", "not needed")
    statuses = {name: task.status for name, task in agents["coder"].tasks.items()}
    assert statuses == {"t1": "failed", "t2": "skipped"}
    assert agents["coder"].status == "failed"
    assert agents.task("coder", "t2").reason == "not needed"
    assert agents.call("coder", task="t2") is None
    agents.skip("coder", reason="continue without")
    assert agents["coder"].status == "skipped"
    assert agents.call("coder", task="t1") is None
    assert agents.outputs() == []


def test_a_completed_task_stays_completed_when_its_agent_is_skipped():
    agents = made()
    agents.call("coder", 1, task="t1")
    agents.skip("coder", "t1")
    agents.skip("coder")
    assert agents.task("coder", "t1").status == "completed"


def test_what_was_under_way_is_pending_when_the_run_is_carried_on_and_a_restore_alone_changes_nothing():
    """Proves A3, A12."""
    running = Agent(id="coder", status="running", tasks={"t1": AgentTask(status="running", attempts=1)})
    alone = Agent(id="reader", status="running")
    agents = made(Flaky(0))
    agents.restore([running, alone])
    assert agents.snapshot() == [running, alone]
    agents.resume()
    assert [one.status for one in agents.agents] == ["pending", "pending"]
    assert agents.call("coder", 5, task="t1") == 5
    assert agents.task("coder", "t1").attempts == 2


def test_an_agent_that_recovery_skipped_is_not_called_for_what_it_failed_at():
    """Proves A12."""
    agents = made(Flaky(9, ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        agents.call("coder", task="t1")
    section = [msgspec.structs.replace(one, status="skipped") for one in agents.snapshot()]
    agents.restore(section)
    agents.resume()
    assert agents.call("coder", task="t1") is None


def test_a_call_that_leaves_the_run_has_not_failed():
    def leave(_given):
        raise RunWaiting("r", "w", "approval", "?")

    host = Recorder()
    agents = made(leave, host)
    with pytest.raises(RunWaiting):
        agents.call("coder", task="t1")
    assert agents.task("coder", "t1").status == "running"
    assert host.saved == []
    agents.resume()
    assert agents.task("coder", "t1").status == "pending"


@pytest.mark.parametrize(
    ("returned", "output", "tokens"),
    [
        ("text", "text", TokenUsage()),
        (None, None, TokenUsage()),
        (("text", TokenUsage(input=1)), "text", TokenUsage(input=1)),
        (TokenUsage(output=2), None, TokenUsage(output=2)),
        ({"usage": {"input": 3, "output": 4}}, {"usage": {"input": 3, "output": 4}}, TokenUsage(input=3, output=4)),
        ({"usage": "much"}, {"usage": "much"}, TokenUsage()),
        ([1, {"usage": {"total_tokens": 9}}], [1, {"usage": {"total_tokens": 9}}], TokenUsage(input=9)),
        ((1, 2), (1, 2), TokenUsage()),
        (Command("echo hi").run(), "hi\n", TokenUsage()),
    ],
)
def test_usage_is_taken_from_what_is_returned(returned, output, tokens):
    """Proves A3."""
    agents = made(lambda _given: returned)
    assert agents.call("coder", task="t") == output
    assert agents["coder"].tokens == tokens


NOT_COUNTABLE = [
    *({"usage": {"input_tokens": tokens}} for tokens in (10**19, 2**64, 10**400)),
    *({"usage": tokens, "tool_calls": tokens} for tokens in (2**64, 10**400)),
    *(("x", TokenUsage(input=tokens)) for tokens in (2**64, 10**400, -5, float("nan"), float("inf"))),
    *(AgentOutput(output="x", tokens=TokenUsage(output=tokens)) for tokens in (2**64, -5, float("inf"))),
    AgentOutput(output="x", tool_calls=2**64),
]


@pytest.mark.parametrize("returned", NOT_COUNTABLE, ids=range(len(NOT_COUNTABLE)))
def test_a_count_that_cannot_be_one_is_a_typed_error_and_blocks_nothing(returned):
    """An agent's output is anybody's: the run is stored all the same, and its budgets count on."""
    with holdfast.open("memory:") as hf:
        with hf.run("r") as run:
            run.budget.limit(tokens=100)
            run.agents.register("coder", lambda _given: returned)
            with pytest.raises(UsageError):
                run.agents.call("coder")
            run.checkpoint(state=1)
        with hf.run("r") as run:
            run.budget.spend(tokens=1)
            run.checkpoint(state=2)
        assert hf.latest("r").section("budget").spending["tokens"].used == 1


def test_more_than_can_be_counted_in_all_is_stored():
    with holdfast.open("memory:") as hf:
        with hf.run("r") as run:
            run.agents.register("coder", lambda _given: {"usage": {"input_tokens": 10**18, "output_tokens": 10**18}})
            for _ in range(20):
                run.agents.call("coder")
            run.agents.spend("coder", input_tokens=10**18, task="1")
            limit = 10**18
            assert run.agents["coder"].tasks["1"].tokens == TokenUsage(input=limit, output=limit)
        assert hf.latest("r").section("budget").spending["tokens"].used == limit


def test_summary_and_location_are_taken_from_what_is_returned():
    """Proves C5."""
    agents = made(lambda given: given)
    agents.call("coder", "\n First line. \nmore", task="a")
    agents.call("coder", {"summary": "short", "location": "out.md"}, task="b")
    agents.call("coder", {"summary": 5, "location": 5}, task="c")
    assert [(one.task, one.summary, one.location) for one in agents.outputs("coder")] == [
        ("a", "First line.", None),
        ("b", "short", "out.md"),
        ("c", "", None),
    ]


def test_a_command_is_an_agent_too(tmp_path):
    """Proves A3, C5."""
    script = """read line; echo '{"result": "did '"$line"'", "usage": {"input_tokens": 7, "output_tokens": 2}}'"""
    agents = made(Command(script, output_file=tmp_path / "out.json"))
    assert agents.call("coder", "login", task="t1") == "did login"
    assert agents["coder"].tokens == TokenUsage(input=7, output=2)
    assert agents.outputs()[0].location == str(tmp_path / "out.json")
    agents.register("reader", Command("cat"))
    assert agents.call("reader", {"a": [1]}) == {"a": [1]}
    assert agents.call("reader") == ""
    with pytest.raises(UsageError, match="as JSON"):
        agents.call("reader", object())


def test_a_command_that_fails_or_reports_an_error_is_a_failed_agent():
    """Proves A3, D4."""
    agents = made(Command("echo broken >&2; exit 4"))
    with pytest.raises(CommandFailed, match="ended with 4: broken"):
        agents.call("coder", task="t1")
    assert agents.task("coder", "t1").error.code == "4"
    agents.register("claude", Command("""echo '{"is_error": true, "result": "no credit"}'"""))
    with pytest.raises(CommandFailed, match="no credit"):
        agents.call("claude")
    agents.register("slow", Command("exec sleep 1000"), timeout_s=0.1, retries=1, backoff=0)
    with pytest.raises(StepTimeout):
        agents.call("slow", task="t")
    assert agents.task("slow", "t").attempts == 2


def test_a_function_that_takes_too_long_is_left_behind():
    release = threading.Event()
    agents = made(lambda _given: release.wait(20), timeout_s=0.05)
    with pytest.raises(StepTimeout):
        agents.call("coder", task="t1")
    release.set()
    assert agents["coder"].status == "failed"


def test_a_task_may_be_done_by_something_of_its_own():
    agents = made()
    assert agents.call("coder", "x", task="t1", using=Command("cat; echo y")) == "xy\n"
    assert agents.call("nobody", 1, task="t1", using=lambda given: given + 1) == 2
    assert agents.call("nobody", 1, task="t1", using=lambda given: given + 9) == 2
    assert agents["nobody"].status == "completed"


def test_a_task_that_is_due_again_is_called_again():
    flaky = Flaky(0)
    agents = made(flaky)
    agents.call("coder", 1, task="t1")
    agents.retry("coder", "t1")
    assert agents["coder"].status == "pending"
    assert agents.call("coder", 2, task="t1") == 2
    assert (flaky.calls, agents.task("coder", "t1").attempts) == (2, 2)


def test_a_function_that_asks_for_nothing_is_given_nothing():
    assert made(lambda: "done").call("coder") == "done"
    assert made(lambda given="own": given).call("coder") == "own"
    assert made(lambda given="own": given).call("coder", "ours") == "ours"


def test_an_asynchronous_function_is_awaited():
    async def work(given):
        return given + 1

    assert made(work).call("coder", 1) == 2


def test_an_output_that_cannot_be_stored_is_held_and_not_asked_for_again(tmp_path):
    """The work is not lost: made storable, the same output is kept."""
    flaky = Flaky(0)
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        agents = run.register("agents", Agents(run.host))
        answer = threading.Lock
        agents.register("coder", lambda given: flaky(given) and answer)
        with pytest.raises(ValueRefused, match=r"agent:coder/t1.*store="):
            agents.call("coder", 1, task="t1")
        assert hf.latest("r").section("agents")[0].tasks["t1"].status == "failed"
        agents._registry.clear()
        agents.register("coder", flaky, store=repr)
        assert agents.call("coder", 1, task="t1") is answer
        assert hf.latest("r").section("agents")[0].output == repr(answer)
        assert flaky.calls == 1
        with pytest.raises(ValueRefused, match="the input of agent"):
            agents.call("coder", object(), task="t2")
        assert "t2" not in agents["coder"].tasks


def test_what_it_was_given_and_what_it_gave_is_nobodys_to_change():
    given, answer = ["in"], ["out"]
    agents = made(lambda _given: answer)
    agents.call("coder", given, task="t")
    taken = agents.snapshot()
    given.append(1)
    answer.append(1)
    assert (taken[0].input, taken[0].output) == (["in"], ["out"])


def test_the_team_is_kept_in_step_with_the_calls():
    """Proves C3."""
    seen = []
    team = Team(members={"coder": "writes"})
    agents = made(lambda _given: seen.append(team["coder"]))
    agents.team = team
    agents.call("coder", task="t1")
    assert (seen[0].status, seen[0].pending) == ("working", ["t1"])
    assert (team["coder"].status, team["coder"].completed, team["coder"].tasks_pending) == ("idle", ["t1"], 0)
    agents.register("stranger", lambda _given: None)
    agents.call("stranger")
    assert "stranger" not in team


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda agents: agents.call("codr"), "no agent 'codr': registered are coder"),
        (lambda agents: agents["codr"], "no agent 'codr'"),
        (lambda agents: agents.task("coder", "t"), "never called for task 't'"),
        (lambda agents: agents.register("coder", print), "registered already"),
        (lambda agents: agents.register("", print), "not a .*name"),
        (lambda agents: agents.register("x", "ls"), "give a function or a Command"),
        (lambda agents: agents.register("x", print, retries=-1), "retries"),
        (lambda agents: agents.spend("coder", input_tokens=-1, task="t"), "from 0 up"),
        (lambda agents: agents.spend("coder", input_tokens=1), "at 0 tasks now"),
    ],
)
def test_what_makes_no_sense_is_refused(ask, words):
    with pytest.raises(UsageError, match=words):
        ask(made())


def test_one_task_is_not_called_twice_at_once():
    errors = []

    def work(_given):
        try:
            agents.call("coder", task="t1")
        except UsageError as error:
            errors.append(str(error))

    agents = made(work)
    agents.call("coder", task="t1")
    assert "is at task 't1' already" in errors[0]


def test_threads_may_call_at_once():
    agents = made(lambda given: given * 2)
    results = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: agents.call("coder", n, task=f"t{n}")}))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == {n: n * 2 for n in range(20)}
    assert len(agents.outputs()) == 20


@some
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["call", "fail", "leave", "skip", "resume"]), st.sampled_from("ab"), st.sampled_from("xyz")
        ),
        max_size=12,
    )
)
def test_a_snapshot_comes_back_whole_and_never_changes(deeds):
    agents, kept = Agents(Recorder()), []

    def work(given):
        if given == "leave":
            raise RunWaiting("r", "w", "time", "")
        if given == "fail":
            raise ValueError(given)
        return [given]

    for name in "ab":
        agents.register(name, work)
    for deed, name, task in deeds:
        before = agents.snapshot(), agents.changes
        try:
            if deed == "skip":
                agents.skip(name, task)
            elif deed == "resume":
                agents.resume()
            else:
                agents.call(name, deed, task=task)
        except (ValueError, RunWaiting, Divergence):
            pass
        assert agents.snapshot() == before[0] or agents.changes > before[1]
        kept.append((agents.snapshot(), msgspec.json.encode(agents.snapshot())))
    assert is_identity("agents", agents, Agents())
    assert all(msgspec.json.encode(taken) == then for taken, then in kept)


def crew(life):
    agents = life.attach("agents", Agents(life))
    agents.resume()
    for name in ("reader", "coder"):
        agents.register(name, lambda given, name=name: life.do(f"{name} {given}") or f"{name} did {given}")
    return [agents.call(name, n, task=f"t{n}") for n in range(2) for name in ("reader", "coder")], agents.outputs()


def test_killed_anywhere_no_finished_call_is_made_again():
    """Proves C5, D8."""
    disk, end, _saves = unbroken(crew)
    assert len(disk.did) == 4
    for where, killed, ended, *_more in every_death(crew):
        assert ended == end, where
        assert list(dict.fromkeys(killed.did)) == disk.did, where
        assert len(killed.did) - 4 == (where[1] == "before"), where


def test_a_run_carries_its_agents_on(tmp_path):
    """Proves A3, C5."""
    calls = []

    def coder(given):
        calls.append(given)
        if given == 2 and len(calls) == 2:
            raise KeyboardInterrupt
        return {"did": given, "usage": {"input": 1, "output": 1}}

    def go():
        with holdfast.open(tmp_path) as hf, hf.run("r") as run:
            run.agents.register("coder", coder)
            return [run.agents.call("coder", n, task=f"t{n}")["did"] for n in (1, 2)]

    with pytest.raises(KeyboardInterrupt):
        go()
    with holdfast.open(tmp_path) as hf:
        head = hf.latest("r")
        assert head.section("agents")[0].tasks["t2"].status == "running"
        assert (head.recovery.can_resume, head.recovery.resume_agent) == (True, "coder")
    assert go() == [1, 2]
    assert calls == [1, 2, 2]
    with holdfast.open(tmp_path) as hf:
        agent = hf.latest("r").section("agents")[0]
        assert (agent.status, agent.attempts, agent.tokens) == ("completed", 2, TokenUsage(input=2, output=2))
        assert "agent_complete" in {one.trigger for one in hf.checkpoints("r")}


def test_three_failures_block_a_resume_and_say_so(tmp_path):
    """Proves A11."""
    with holdfast.open(tmp_path) as hf:
        run = hf.run("r")
        run.agents.register("coder", Flaky(3), retries=2, backoff=0)
        with pytest.raises(ConnectionError):
            run.agents.call("coder", task="t1")
        assert hf.latest("r").recovery.blockers == ("agent coder failed 3 times",)
        assert hf.latest("r").trigger == "error_occurred"


PROGRAM = """
import sys
import holdfast
from holdfast.runtime.command import Command

store, log, alive = sys.argv[1:]
with holdfast.open(store) as hf, hf.run("r") as run:
    run.agents.register("reader", Command(f"cat; echo reader >> {log}"))
    run.agents.register("coder", Command(f"echo coder >> {log}; exec 9>{alive}; test ! -p {alive} || exec sleep 1000"))
    notes = run.agents.call("reader", "notes", task="t1")
    run.agents.call("coder", notes, task="t2")
    run.complete()
"""


def test_killed_in_the_middle_of_a_command_and_begun_again_only_that_command_is_repeated(tmp_path):
    """Proves A3, C5, D8."""
    log, alive = tmp_path / "log", tmp_path / "alive"
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(log), str(alive)]
    os.mkfifo(alive)
    child = subprocess.Popen(program)
    with alive.open("rb") as reader, child:  # open once the second agent is at work
        child.kill()
        child.wait()
        reader.read()  # until the command of the dead process is gone, too
    alive.unlink()
    assert log.read_text().split() == ["reader", "coder"]
    subprocess.run(program, check=True, timeout=60)
    assert log.read_text().split() == ["reader", "coder", "coder"]
    with holdfast.open(tmp_path / "store") as hf:
        statuses = {one.id: one.status for one in hf.latest("r").section("agents")}
        assert statuses == {"reader": "completed", "coder": "completed"}
