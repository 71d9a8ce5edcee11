import asyncio
import threading
from functools import partial

import pytest

from holdfast.errors import EffectUncertain, GraphInvalid, RunWaiting, SectionInvalid, StepTimeout, UsageError
from holdfast.model.sections import Graph, TaskNode
from holdfast.runtime.graph import Progress, TaskGraph
from holdfast.runtime.host import Alone
from unit.runtime.lives import Disk, Killed, Life, every_death, every_two_deaths, same_through_bytes, unbroken


def diamond(did=None, **options):
    did = [] if did is None else did
    graph = TaskGraph(id="g", **options)
    graph.add("plan", lambda: did.append("plan") or 2)
    graph.add("left", lambda results: did.append("left") or results["plan"] + 1, needs=["plan"])
    graph.add("right", lambda results: did.append("right") or results["plan"] * 10, needs=["plan"])
    graph.add("join", lambda results: did.append("join") or sorted(results.items()), needs=["left", "right"])
    return graph


def test_tasks_run_after_what_they_need_and_get_its_results():
    graph = diamond()
    result = graph.run()
    assert result.is_whole
    assert result.completed == ("plan", "left", "right", "join")
    assert result.results["join"] == [("left", 3), ("right", 20)]
    assert graph.run() == result


def test_there_is_a_checkpoint_before_and_after_each_batch_and_after_each_task():
    """Proves C16, C4."""

    def program(life):
        graph = life.attach("graph", TaskGraph(life))
        graph.add("a", lambda: 1)
        graph.add("b", lambda: 2, needs=["a"])
        return graph.run()

    disk, _result, _saves = unbroken(program)
    assert disk.saves == [
        ("stage_complete", "before batch 1"), ("step_complete", "task graph/a done"), ("batch_complete", "batch 1"),
        ("stage_complete", "before batch 2"), ("step_complete", "task graph/b done"), ("batch_complete", "batch 2"),
    ]  # fmt: skip


def test_what_a_graph_has_stored_is_its_batches_and_the_state_of_each_task():
    """Proves C4."""
    life = Life(Disk())
    graph = TaskGraph(life, "issue-42")
    graph.add("a", lambda: {"lines": 3})
    graph.add("b", lambda: 1 / 0, needs=["a"])
    graph.add("c", lambda: None, needs=["b"])
    graph.run()
    value = graph.snapshot()
    assert (value.id, value.completed_batches, value.current_batch) == ("issue-42", [1, 2], None)
    a, b, c = value.tasks.values()
    assert (a.result.path, a.result.keys) == ("issue-42/a", ()), "the record of the call has the result"
    assert graph.node("a") == TaskNode(
        status="completed", result={"lines": 3}, started_at=life.now(), completed_at=life.now(), attempts=1, batch=1
    )
    assert (b.status, b.error.code, b.error.message, b.needs) == (
        "failed",
        "ZeroDivisionError",
        "division by zero",
        ["a"],
    )
    assert "1 / 0" in b.error.stack
    assert (c.status, c.attempts) == ("blocked", 0)


def test_a_failed_task_blocks_only_what_needs_it():
    graph = TaskGraph()
    graph.add("bad", [].pop)
    graph.add("after", lambda: 1, needs=["bad"])
    graph.add("far", lambda: 1, needs=["after"])
    graph.add("good", lambda: 1)
    graph.add("more", lambda: 2, needs=["good"])
    result = graph.run()
    assert result.completed == ("good", "more")
    assert result.failed == ("bad",)
    assert result.blocked == ("after", "far")
    assert result.errors["bad"].code == "IndexError"
    assert not result.is_whole


def test_a_failed_task_can_be_retried_and_what_it_held_back_goes_on():
    """Proves C16: a retry continues from there, and what is done stays done."""
    did, broken = [], [True]

    def shaky():
        did.append("shaky")
        if broken:
            raise ValueError("not yet")
        return 7

    graph = TaskGraph()
    graph.add("first", lambda: did.append("first"))
    graph.add("shaky", shaky, needs=["first"])
    graph.add("last", lambda results: results["shaky"] + 1, needs=["shaky"])
    assert graph.run().failed == ("shaky",)
    assert graph.run().failed == ("shaky",)
    assert did == ["first", "shaky"]
    broken.clear()
    assert graph.retry_failed() == ["shaky"]
    assert graph.node("last").status == "pending"
    result = graph.run()
    assert result.results["last"] == 8
    assert result.errors == {}
    assert did == ["first", "shaky", "shaky"]
    assert graph.snapshot().completed_batches == [1, 2, 3, 4]


def test_a_task_that_is_skipped_lets_what_needs_it_go_on():
    graph = TaskGraph()
    graph.add("bad", lambda: 1 / 0)
    graph.add("after", lambda results: results["bad"], needs=["bad"])
    graph.run()
    graph.skip("bad", "by hand")
    result = graph.run()
    assert result.skipped == ("bad",)
    assert result.results["after"] == "by hand"
    graph.skip("after")
    assert graph.node("after").status == "completed"


def test_no_more_tasks_run_at_once_than_the_limit_and_as_many_as_it_do():
    together = threading.Barrier(3)
    running, most, lock = [0], [0], threading.Lock()

    def task():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(10)
        with lock:
            running[0] -= 1

    graph = TaskGraph()
    for i in range(9):
        graph.add(f"t{i}", task)
    assert len(graph.run(limit=3).completed) == 9
    assert most == [3]


def test_transient_errors_are_retried_and_counted():
    life, tries = Life(Disk()), []

    def call():
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("gone")
        return "there"

    graph = TaskGraph(life)
    graph.add("call", call, retries=2, backoff_s=5)
    assert graph.run().results == {"call": "there"}
    assert graph.node("call").attempts == 3
    assert life.slept == [5, 10]


def test_a_task_that_takes_too_long_fails():
    release = threading.Event()
    graph = TaskGraph()
    graph.add("slow", partial(release.wait, 30), timeout_s=0.01)
    result = graph.run()
    release.set()
    assert result.errors["slow"].code == StepTimeout.__name__


def test_asynchronous_tasks_run_too():
    async def task(results):
        await asyncio.sleep(0)
        return results["a"] + 1

    graph = TaskGraph()
    graph.add("a", lambda: 1)
    graph.add("b", task, needs=["a"])
    assert graph.run().results["b"] == 2


def test_a_parameter_with_a_default_is_the_functions_own():
    graph = TaskGraph()
    for i in range(3):
        graph.add(f"t{i}", lambda i=i: i)
    assert graph.run().results == {"t0": 0, "t1": 1, "t2": 2}


def test_progress_says_which_batch_and_how_much_is_done():
    """Proves C16: progress reports show the batch that begins."""
    lines = []
    graph = diamond()
    graph.run(limit=1, progress=lines.append)
    assert lines[0] == Progress(batch=1, task=None, status="pending", done=0, total=4)
    assert lines[1] == Progress(1, "plan", "running", 0, 4)
    assert lines[2] == Progress(1, "plan", "completed", 1, 4)
    assert lines[-1] == Progress(3, "join", "completed", 4, 4)


def fails_by(name):
    raise ValueError(name)


def wide(life):
    """A graph of 12 tasks in five layers, one of which fails."""
    graph = life.attach("graph", TaskGraph(life, "wide"))

    def task(name, results):
        life.do(name)
        return [name, *(results[need][0] for need in sorted(results))]

    for i in range(4):
        graph.add(f"a{i}", lambda i=i: task(f"a{i}", {}))
        graph.add(f"b{i}", partial(task, f"b{i}"), needs=[f"a{i}", f"a{(i + 1) % 4}"])
    graph.add("bad", lambda: fails_by("bad"), needs=["b0"])
    graph.add("held", partial(task, "held"), needs=["bad"])
    graph.add("c", partial(task, "c"), needs=["b1", "b2"])
    graph.add("d", partial(task, "d"), needs=["c", "b3"])
    result = graph.run(limit=3)
    return result._replace(errors={name: error.message for name, error in result.errors.items()})


@pytest.mark.parametrize("limit", [1])
def test_killed_at_any_save_it_ends_as_if_unbroken_and_does_nothing_twice_that_was_saved(limit):
    """Proves C4, C12, C16: resumes at the exact task, batches rebuilt from what is pending."""

    def program(life):
        graph = life.attach("graph", TaskGraph(life, "chain"))
        for i in range(6):
            needs = [f"t{i - 1}"] if i % 2 else [f"t{i - 2}"] if i else []
            graph.add(f"t{i}", partial(lambda name: life.do(name) or name, f"t{i}"), needs=needs)
        before = {name for name, node in graph.snapshot().tasks.items() if node.status == "completed"}
        began = len(life.disk.did)
        result = graph.run(limit=limit)
        assert before.isdisjoint(life.disk.did[began:])
        return result

    _disk, end, _saves = unbroken(program)
    for where, disk, again in every_death(program):
        assert again == end, where
        assert len(disk.did) <= 7, where  # one task at most was under way
        assert set(disk.did) == set(end.completed)
    assert all(again == end for _where, _disk, again in every_two_deaths(program))


def test_a_wide_graph_killed_at_any_save_ends_as_if_unbroken():
    """Proves C4, C16."""
    _disk, end, saves = unbroken(wide)
    assert end.failed == ("bad",)
    assert end.blocked == ("held",)
    for number in range(1, saves + 1, 2):  # threads save in one checkpoint when they can, so the number may be smaller
        disk = Disk()
        try:
            again = wide(Life(disk, number))
        except Killed:
            again = wide(Life(disk))
        assert again == end
        assert len(disk.did) <= 10 + 3


def test_a_task_that_was_under_way_runs_again():
    stored = Graph(id="g", current_batch=1, tasks={"a": TaskNode(status="running", attempts=1)})
    life = Life(Disk())
    graph = TaskGraph(life, "g")
    graph.restore(stored)
    graph.add("a", lambda: 5)
    assert graph.run().results == {"a": 5}
    assert graph.node("a").attempts == 2


def paying(life, **options):
    graph = life.attach("graph", TaskGraph(life, "pay"))
    graph.add("before", lambda: life.do("before"))
    graph.add("pay", lambda: life.do("paid") or "receipt", needs=["before"], effect="a payment", **options)
    graph.add("ship", lambda results: life.do("shipped") or results["pay"], needs=["pay"])
    return graph.run(limit=1)


def killed_after_paying(**options):
    disk = Disk()
    with pytest.raises(Killed):
        paying(Life(disk, 6), **options)
    assert disk.did == ["before", "paid"]
    assert disk.saves[-1] == ("step_complete", "task pay/pay started")
    return disk


def test_that_a_task_with_an_effect_begins_is_saved_first_and_its_unknown_outcome_is_asked_about():
    """Proves C4, and that an unknown outcome is retried, skipped or asked about."""
    disk = killed_after_paying()
    with pytest.raises(RunWaiting, match="a payment"):
        paying(Life(disk))
    with pytest.raises(RunWaiting):
        paying(Life(disk))
    asked = []
    disk.answer = lambda wait: asked.append(wait) or "retry"
    assert paying(Life(disk)).results["ship"] == "receipt"
    assert [wait.options for wait in asked] == [("retry", "skip", "stop")]
    assert asked[0].kind == "uncertain"
    assert disk.did == ["before", "paid", "paid", "shipped"]


def test_an_unknown_outcome_can_be_taken_as_done_with_its_result():
    disk = killed_after_paying()
    disk.answer = lambda _wait: "skip"
    assert paying(Life(disk)).skipped == ("pay",)
    assert disk.did == ["before", "paid", "shipped"]


def test_a_task_whose_outcome_is_unknown_twice_is_asked_about_twice():
    disk = killed_after_paying()
    asked = []
    disk.answer = lambda wait: asked.append(wait.id) or "retry"
    with pytest.raises(Killed):
        paying(Life(disk, 5))  # before batch, waits, answered, begins, and the end that is lost
    disk.answer = lambda wait: asked.append(wait.id) or "skip"
    assert paying(Life(disk)).skipped == ("pay",)
    assert [one.rpartition(":")[0] for one in asked] == ["task:pay/pay"] * 2
    assert len(set(asked)) == 2, "another start is another question"


def test_stopping_at_an_unknown_outcome_asks_again_in_the_next_life():
    disk = killed_after_paying()
    disk.answer = lambda _wait: "stop"
    with pytest.raises(EffectUncertain, match="pay"):
        paying(Life(disk))
    disk.answer = lambda _wait: "skip"
    assert paying(Life(disk)).skipped == ("pay",)


@pytest.mark.parametrize(("on_unknown", "did"), [("retry", 2), ("skip", 1)])
def test_a_task_may_say_itself_what_becomes_of_an_unknown_outcome(on_unknown, did):
    disk = killed_after_paying(on_unknown=on_unknown)
    paying(Life(disk), on_unknown=on_unknown)
    assert disk.did.count("paid") == did
    assert disk.did[-1] == "shipped"


@pytest.mark.parametrize("limit", [1, 2])
def test_a_run_that_is_left_inside_a_task_is_no_failure_and_the_others_are_kept(limit):
    waits = [True]

    def asks():
        if waits:
            raise RunWaiting("run-1", "w", "approval", "Deploy?")
        return "yes"

    graph = TaskGraph()
    graph.add("other", lambda: 1)
    graph.add("asks", asks, retries=3)
    with pytest.raises(RunWaiting):
        graph.run(limit=limit)
    assert graph.node("other").status == "completed"
    assert graph.node("asks").attempts == 1
    waits.clear()
    assert graph.run().results == {"other": 1, "asks": "yes"}


def test_restoring_is_the_identity():
    graph = diamond()
    graph.add("bad", lambda: 1 / 0, needs=["join"])
    graph.run()
    assert same_through_bytes("graph", graph, TaskGraph(id="g"))
    assert same_through_bytes("graph", TaskGraph(id="g"), diamond())


def test_a_snapshot_does_not_change_afterwards():
    graph, held = TaskGraph(), [1]
    graph.add("a", lambda: held)
    graph.run()
    value = graph.snapshot()
    held.append(2)
    graph.add("b", lambda: 1)
    graph.run()
    assert value.tasks.keys() == {"a"}
    assert value.tasks["a"].result == [1]
    assert value.completed_batches == [1]


def test_changes_grow_with_every_change_and_with_nothing_else():
    graph = diamond()
    before = graph.changes
    graph.snapshot(), graph.result, graph.batches(), graph.node("plan")
    assert graph.changes == before
    graph.run()
    assert graph.changes > before
    before = graph.changes
    graph.run()
    assert graph.changes == before


def test_a_graph_that_grew_since_keeps_what_is_done():
    disk = Disk()

    def program(life, more):
        graph = life.attach("graph", TaskGraph(life, "g"))
        graph.add("a", lambda: life.do("a"))
        if more:
            graph.add("b", lambda: life.do("b"), needs=["a"])
        return graph.run()

    program(Life(disk), more=False)
    assert program(Life(disk), more=True).completed == ("a", "b")
    assert disk.did == ["a", "b"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda graph: graph.add("a", lambda: 1), "'a' is there already"),
        (lambda graph: graph.add("b", lambda: 1, needs="a"), r"needs=\['a'\]"),
        (lambda graph: graph.add("", lambda: 1), "not a name for a task"),
        (lambda graph: graph.add("b", 5), "cannot be called"),
        (lambda graph: graph.add("b", print, on_unknown="maybe"), "use 'retry', 'skip' or 'ask'"),
        (lambda graph: graph.add("b", print, retries=-1), "retries=-1"),
        (lambda graph: graph.add("b", print, timeout_s=0), "timeout_s=0"),
        (lambda graph: graph.run(limit=0), "limit=0"),
        (lambda graph: graph.node("aa"), "did you mean 'a'"),
        (lambda graph: graph.restore({"id": "other"}), "the stored graph is 'other'"),
        (lambda graph: graph.add("b", print, needs=["aa"]) or graph.run(), "did you mean 'a'"),
        (lambda graph: graph.add("b", print, needs=["b"]) or graph.run(), "b -> b"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(make, says):
    graph = TaskGraph(id="g")
    graph.add("a", lambda: 1)
    with pytest.raises(UsageError, match=says):
        make(graph)


def test_a_task_of_the_record_that_has_no_function_is_named():
    graph = TaskGraph(id="g")
    graph.restore(Graph(id="g", tasks={"gone": TaskNode(status="pending"), "old": TaskNode(status="completed")}))
    with pytest.raises(GraphInvalid, match="'gone' is in the record and has no function here"):
        graph.run()
    graph.skip("gone")
    assert graph.run().completed == ("old",)


def test_a_graph_runs_once_at_a_time():
    graph = TaskGraph()
    graph.add("a", graph.run)
    assert graph.run().errors["a"].message == "graph 'graph' is running already"


def test_a_section_that_does_not_fit_is_refused():
    with pytest.raises(SectionInvalid, match="section 'graph'"):
        TaskGraph().restore({"id": "g", "tasks": {"a": {"status": "lost"}}})


def test_a_graph_does_not_run_inside_the_lock_that_its_tasks_need():
    host = Alone()
    graph = TaskGraph(host)
    with host.lock, pytest.raises(UsageError, match="inside the run's lock"):
        graph.run()


def test_a_task_may_add_tasks():
    graph = TaskGraph()

    def plan():
        for name in ("x", "y"):
            graph.add(name, lambda name=name: name, needs=["plan"])
        return 2

    graph.add("plan", plan)
    graph.add("last", lambda: "last", needs=["plan"])
    assert graph.run().completed == ("plan", "last", "x", "y")
    assert graph.snapshot().completed_batches == [1, 2]


def test_a_task_may_skip_another():
    graph = TaskGraph()
    graph.add("a", lambda: graph.skip("b", "no need"))
    graph.add("b", lambda: 1 / 0)
    graph.add("c", lambda results: results["b"], needs=["b"])
    result = graph.run(limit=1)
    assert result.skipped == ("b",)
    assert result.results["c"] == "no need"
