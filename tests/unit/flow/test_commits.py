"""Few commits: what one end of a task causes is one, durable before the next work begins and before anyone hears."""

import errno
import threading
from contextlib import closing, contextmanager
from itertools import chain

import pytest

import holdfast
from holdfast.errors import Unprotected
from holdfast.flow.load import flow_from
from holdfast.flow.runner import run_flow
from holdfast.model.triggers import Trigger
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.store import Store
from holdfast.testing.faults import Fault, FaultyDisk

CAUSED = [
    "the run begins", "build begins (attempt 1)", "before batch 1", "build/one/agent:coder done", "step build/one done",
    "batch 1", "before batch 2", "build/two: before_execution", "build/two: coder_response", "build/two: gate_1",
    "build/two: complete", "step build/two done", "batch 2", "build is complete", "the run is complete",
]  # fmt: skip


@contextmanager
def counted(monkeypatch):
    """Count the commits of this process; each is listed with the reasons of its checkpoints."""
    commits, write = [], Store.write

    def counting(store, commit):
        made = write(store, commit)
        commits.append([one.envelope.reason for one in made.checkpoints])
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", counting)
        yield commits


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "s.db", settings=holdfast.Settings()) as opened:
        yield opened


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def two_tasks(**functions):
    """Return a flow of two tasks, one of an agent and one with a gate, and its functions."""
    flow = {
        "flow": "two",
        "agents": {"coder": {"call": "my:one"}},
        "phases": {
            "build": {
                "tasks": {"one": {"agent": "coder"}, "two": {"needs": "one", "call": "my:two", "gates": "test -e b"}}
            }
        },
    }
    return flow_from(flow), {f"my:{name}": function for name, function in functions.items()}


def test_two_tasks_an_agent_and_a_gate_take_at_most_eight_commits(hf, work, monkeypatch):
    """Proves C10, C16, D2, B2: each of their checkpoints is there, and those without work between them share one."""

    def one(call):
        (call.workspace / "a").write_text("a")
        return "ANSWER"

    def two(call):
        (call.workspace / "b").write_text("b")
        return "ok"

    flow, functions = two_tasks(one=one, two=two)
    with counted(monkeypatch) as commits:
        assert run_flow(hf, flow, workspace=work, functions=functions).status == "completed"
    assert len(commits) <= 8
    reasons = [one.reason for one in reversed(hf.checkpoints("two"))]
    assert list(chain(*commits)) == reasons
    assert reasons == CAUSED
    assert not hf.verify().faults
    by_reason = {one.reason: one for one in hf.checkpoints("two")}
    batch = by_reason["batch 1"].section("graph")
    assert (batch.completed_batches, batch.current_batch, batch.tasks["two"].status) == ([1], None, "pending")
    before = by_reason["before batch 2"].section("graph")
    assert (before.current_batch, before.tasks["two"].status) == (2, "running")
    assert by_reason["build is complete"].summary.status == "running"
    roots = {
        record.root
        for reason in ("step build/one done", "batch 1", "before batch 2", "build/two: before_execution")
        for record in by_reason[reason].record.envelope.sections
        if record.name == "workspace"
    }
    assert len(roots) == 1


def test_what_a_task_came_to_is_durable_before_the_next_begins_and_before_anyone_hears(hf, work, tmp_path):
    """Proves D10, C16."""
    seen, heard = [], []

    def stored():
        with holdfast.open(tmp_path / "s.db", settings=holdfast.Settings()) as other:
            return {one.reason for one in other.checkpoints("two")}

    def two(call):
        (call.workspace / "b").write_text("b")
        seen.append(stored())

    def observer(event):
        if event.kind == "task_done":
            heard.append((event.task, f"step build/{event.task} done" in stored()))

    flow, functions = two_tasks(one=lambda _call: "ANSWER", two=two)
    run_flow(hf, flow, workspace=work, functions=functions, observer=observer)
    assert {"step build/one done", "batch 1", "before batch 2", "build/two: before_execution"} <= seen[0]
    assert heard == [("one", True), ("two", True)]


@pytest.mark.parametrize("policy", ["continue", "stop"])
def test_a_group_that_cannot_be_stored_goes_with_the_next_commit(tmp_path, work, policy):
    """Proves D11, A10: memory follows the store."""
    done = []

    def one(_call):
        disk.arm(Fault(at=0, kind="errno", code=errno.ENOSPC, lasting=policy == "continue"))
        done.append("one")
        return "ANSWER"

    def two(call):
        disk.arm(None)
        done.append("two")
        (call.workspace / "b").write_text("b")

    flow, functions = two_tasks(one=one, two=two)
    disk = FaultyDisk(tmp_path)
    with disk, closing(SQLiteStore(tmp_path / "s.db", vfs=disk.vfs)) as store:
        hf = holdfast.Holdfast(store, settings=holdfast.Settings(on_checkpoint_failure=policy))
        if policy == "stop":
            with pytest.raises(Unprotected):
                run_flow(hf, flow, workspace=work, functions=functions)
            assert done == ["one"], "work must not begin where what came before it could not be stored"
        else:
            with pytest.warns(UserWarning, match="no space left"):
                assert run_flow(hf, flow, workspace=work, functions=functions).status == "completed"
        assert run_flow(hf, flow, workspace=work, functions=functions).status == "completed"
        assert done == ["one", "two"], "what was done went with the next commit"
        assert len([note for note in hf.latest("two").notes if note["what"] == "batch 1"]) == 1
        assert hf.latest("two").section("graph").tasks["one"].status == "completed"
        assert not hf.verify().faults


ANSWER = "the answer XYZZY"


def answers_in(hf, run):
    """Count how often the answer stands in the head's sections as they are stored, and in the run's records."""
    head = hf.latest(run)
    stored = [head.raw_section(name) for name in head.sections if name not in ("workspace", "steps", "journal", "flow")]
    records = [body for _kind, _path, body in head.call_records()]
    return sum(repr(value).count("XYZZY") for value in stored) + sum(body.count(b"XYZZY") for body in records)


@pytest.mark.parametrize(
    "task",
    [
        {"call": "my:answer"},
        {"agent": "coder"},
        {"call": "my:answer", "gates": "true"},
        {"agent": "coder", "gates": "true"},
    ],
)
def test_an_answer_is_stored_once_and_once_in_short(hf, work, task):
    """Proves A3, C4, C5, D3: sections refer to the record of the call, and show what it has."""
    flow = {
        "flow": "asked",
        "agents": {"coder": {"call": "my:answer"}},
        "phases": {"build": {"tasks": {"one": task, "two": {"needs": "one", "run": "true"}}}, "after": "true"},
    }
    functions = {"my:answer": lambda _call: ANSWER}
    flow = flow_from(flow)
    assert run_flow(hf, flow, workspace=work, functions=functions).status == "completed"
    assert answers_in(hf, "asked") <= 2
    head = hf.latest("asked")
    steps = {line["step"]: line["result"] for line in head.calls if line["event"] == "done"}
    assert steps["build/one"]["result"] == ANSWER
    node = head.section("graph").tasks["one"]
    assert node.result == {"step": "build/one", "summary": ANSWER}
    assert head.section("phases").phases["build"].summary == f"one: {ANSWER}"
    if "gates" in task:
        assert head.section("gates").tasks["build/one"].coder_response["result"] == ANSWER
    if "agent" in task:
        (agent,) = head.section("agents")
        (done,) = agent.tasks.values()
        assert (agent.output["result"], done.output["result"], done.summary) == (ANSWER, ANSWER, ANSWER)
    again = run_flow(hf, flow, workspace=work, functions={"my:answer": pytest.fail})
    assert again.results["build"]["one"] == ANSWER


def test_views_of_parts_show_results_that_only_the_records_hold(hf):
    """Proves A3, C4, D3."""
    for _life in range(2):
        with hf.run("parts") as run:
            graph = run.graph()
            graph.add("a", lambda: {"answer": ANSWER})
            graph.add("b", lambda results: results["a"]["answer"], needs=["a"])
            assert graph.run().results == {"a": {"answer": ANSWER}, "b": ANSWER}
            assert graph.node("b").result == ANSWER
            run.agents.register("coder", lambda: ANSWER)
            assert run.agents.call("coder", task="t") == ANSWER
            assert run.agents["coder"].output == run.agents.agents[0].tasks["t"].output == ANSWER
            assert [one.summary for one in run.agents.outputs()] == [ANSWER]
            gated = run.gates.task("g", lambda: {"said": ANSWER}, ["true"])
            assert gated.run().response == run.gates.state("g").coder_response == {"said": ANSWER}
    assert answers_in(hf, "parts") <= 4, "once for each of the four calls"
    fork = hf.fork("parts", "forked")
    assert fork.section("graph").tasks["b"].result == ANSWER
    assert fork.section("agents")[0].output == ANSWER


class TestGroups:
    """`run.host.grouped()` by itself."""

    def test_saves_in_a_group_are_one_commit_at_its_end(self, hf, monkeypatch):
        """Proves D10."""
        with hf.run("r") as run, counted(monkeypatch) as commits:
            with run.host.grouped():
                run.context.decide("one")
                run.host.save(Trigger.STAGE_COMPLETE, "first")
                with run.host.grouped():
                    run.context.decide("two")
                    run.host.save(Trigger.STAGE_COMPLETE, "second")
                assert (commits, run.host.is_behind) == ([], True)
            assert commits == [["first", "second"]]
        first, second = (one for one in reversed(hf.checkpoints("r")) if one.reason in ("first", "second"))
        assert len(first.section("context").decisions) == 1
        assert len(second.section("context").decisions) == 2
        assert second.parent == first.id

    def test_work_inside_a_group_begins_after_a_commit_and_saves_at_once(self, hf, monkeypatch):
        """Proves D10."""
        with hf.run("r") as run, counted(monkeypatch) as commits, run.host.grouped():
            run.host.save(Trigger.STAGE_COMPLETE, "before")

            def work():
                assert commits == [["before"]]
                run.host.save(Trigger.STAGE_COMPLETE, "inside")
                assert commits == [["before"], ["inside"]]

            run.step("s", work)
            assert run.host.is_behind

    def test_what_another_thread_saves_takes_the_group_along(self, hf, monkeypatch):
        """Proves D10: nothing overtakes what was saved before it."""
        with hf.run("r") as run, counted(monkeypatch) as commits, run.host.grouped():
            run.host.save(Trigger.STAGE_COMPLETE, "before")
            other = threading.Thread(target=run.checkpoint, kwargs={"reason": "beside"})
            other.start()
            other.join()
            assert commits == [["before", "beside"]]
            assert not run.host.is_behind

    def test_an_error_that_ends_a_group_is_raised_and_what_was_saved_is_stored(self, hf, monkeypatch):
        with hf.run("r") as run, counted(monkeypatch) as commits:
            with pytest.raises(ZeroDivisionError), run.host.grouped():  # noqa: PT012 - saved before it
                run.host.save(Trigger.STAGE_COMPLETE, "before")
                raise ZeroDivisionError
            assert commits == [["before"]]

    def test_a_manual_checkpoint_in_a_group_is_durable_on_return(self, hf):
        with hf.run("r") as run, run.host.grouped():
            run.host.save(Trigger.STAGE_COMPLETE, "before")
            made = run.checkpoint(reason="mine")
            assert hf.get(made.id).reason == "mine"
