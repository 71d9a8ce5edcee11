import pytest

import holdfast
from holdfast.errors import ValueRefused


@pytest.fixture
def run():
    with holdfast.open("memory:") as hf, hf.run("r") as run:
        yield run
        run.checkpoint()  # nothing that was refused is in the way


BAD = {"made": [object()]}


def a_conflict(run):
    return run.mailbox.conflicts.start("c", ["a", "b"])


@pytest.mark.parametrize(
    ("give", "what"),
    [
        (lambda run: run.mailbox.send("a", "b", BAD), "the message from 'a' to 'b'"),
        (lambda run: run.knowledge.capture(BAD, id="k"), "knowledge 'k'"),
        (lambda run: run.context.note(about=BAD), "context metadata"),
        (lambda run: run.context.set(work_breakdown=[BAD]), "context work_breakdown"),
        (lambda run: run.phases.note(about=BAD), "phases metadata"),
        (lambda run: run.subject.update(id="1", metadata=BAD), "subject metadata"),
        (lambda run: a_conflict(run).position("a", BAD), "the position of 'a' in conflict 'c'"),
        (lambda run: a_conflict(run).resolve(BAD), "the resolution of conflict 'c'"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_where_it_is_given(run, give, what):
    """Proves X4: the error names what it is about and where in it."""
    with pytest.raises(ValueRefused, match="made") as refused:
        give(run)
    assert what in str(refused.value)


def test_a_task_whose_result_cannot_be_stored_fails_and_the_others_are_kept(run):
    graph = run.graph()
    graph.add("bad", lambda: BAD)
    graph.add("good", lambda: {"made": 1})
    result = graph.run()
    assert (result.failed, result.completed) == (("bad",), ("good",))
    assert "task graph/bad.made[0]" in result.errors["bad"].message
    assert run.protection.since is None


def test_a_worker_whose_response_cannot_be_stored_has_failed(run):
    outcome = run.gates.task("t", lambda: BAD, []).run()
    assert not outcome.success
    assert "task t/work.response.made[0]" in outcome.error.message
    assert run.protection.since is None


def test_what_a_part_keeps_is_not_changed_with_what_was_given(run):
    body = {"made": [1]}
    run.mailbox.send("a", "b", body)
    body["made"].append(2)
    (message,) = run.mailbox.pending
    assert message.body == {"made": [1]}
