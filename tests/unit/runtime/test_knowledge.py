import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import UsageError
from holdfast.runtime.knowledge import Knowledge
from unit.runtime.lives import every_death, unbroken
from unit.runtime.recorder import Recorder, is_identity

some = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def test_what_was_learned_is_pending_until_a_sink_has_taken_it():
    """Proves C7."""
    host, taken = Recorder(), []
    knowledge = Knowledge(host)
    told = knowledge.inject("tests run with pytest", source="wiki")
    learned = knowledge.capture({"pattern": "retry", "why": "rate limits"}, kind="lesson", source="coder")
    assert [one.id for one in knowledge.injected] == [told]
    assert [one.id for one in knowledge.pending] == [learned]
    flushed = knowledge.flush(taken.append)
    assert [one.id for one in taken] == [one.id for one in flushed] == [learned]
    assert (taken[0].content, taken[0].kind, taken[0].source) == (
        {"pattern": "retry", "why": "rate limits"}, "lesson", "coder",
    )  # fmt: skip
    assert (knowledge.pending, [one.id for one in knowledge.captured]) == ((), [learned])
    assert host.triggers == ["step_complete"]
    assert knowledge.flush(taken.append) == []
    assert host.triggers == ["step_complete"]


def test_an_entry_is_captured_once_whatever_the_order_of_its_keys():
    """Proves C7."""
    knowledge = Knowledge()
    first = knowledge.capture({"a": 1, "b": [2]})
    changes = knowledge.changes
    assert knowledge.capture({"b": [2], "a": 1}) == first
    knowledge.flush(lambda _entry: None)
    assert knowledge.capture({"a": 1, "b": [2]}) == first
    assert knowledge.pending == ()
    assert knowledge.changes == changes + 1
    assert knowledge.capture({"a": 1}, kind="other") != knowledge.capture({"a": 1})


def test_an_entry_may_have_an_id_of_its_own_and_needs_one_without_stable_content():
    knowledge = Knowledge()
    assert knowledge.capture(object(), id="mine") == "mine"
    with pytest.raises(UsageError, match="give the entry an id"):
        knowledge.capture(object())


def test_what_the_sink_took_before_it_failed_is_taken_and_the_rest_stays_pending():
    """Proves C7."""
    host, taken = Recorder(), []
    knowledge = Knowledge(host)
    for number in range(4):
        knowledge.capture(number)

    def sink(entry):
        if len(taken) == 2:
            raise ConnectionError("gone")
        taken.append(entry.content)

    with pytest.raises(ConnectionError):
        knowledge.flush(sink)
    assert host.triggers == ["step_complete"]
    assert [one.content for one in knowledge.pending] == [2, 3]
    taken.clear()
    knowledge.flush(lambda entry: taken.append(entry.content))
    assert taken == [2, 3]


def test_what_is_captured_while_a_sink_is_at_work_waits_for_the_next_flush():
    knowledge = Knowledge()
    knowledge.capture("a")
    knowledge.flush(lambda _entry: knowledge.capture("b"))
    assert [one.content for one in knowledge.pending] == ["b"]


def test_an_entry_is_nobody_elses_to_change():
    knowledge, content = Knowledge(), ["a"]
    knowledge.capture(content)
    taken = knowledge.snapshot()
    content.append("b")
    assert taken.pending[0].content == ["a"]


@some
@given(st.lists(st.tuples(st.sampled_from(["inject", "capture", "flush"]), st.integers(0, 4)), max_size=12))
def test_a_snapshot_comes_back_whole_and_never_changes(deeds):
    knowledge, kept, handed = Knowledge(Recorder()), [], []
    for deed, number in deeds:
        if deed == "flush":
            knowledge.flush(lambda entry: handed.append(entry.id))
        else:
            getattr(knowledge, deed)({"n": [number]})
        kept.append((knowledge.snapshot(), msgspec.json.encode(knowledge.snapshot())))
        fresh = Knowledge()
        fresh.restore(knowledge.snapshot())
        knowledge = fresh if number == 4 else knowledge
    assert is_identity("knowledge", knowledge, Knowledge())
    assert all(msgspec.json.encode(taken) == then for taken, then in kept)
    assert len(handed) == len(set(handed))


def learner(life):
    knowledge = life.attach("knowledge", Knowledge(life))
    for number in range(3):
        knowledge.capture(f"lesson {number}")
        knowledge.flush(lambda entry: life.do(entry.id))
    return [one.id for one in knowledge.captured], knowledge.pending


def test_killed_anywhere_each_entry_reaches_the_sink_under_one_id_and_is_captured_once():
    """Proves C7."""
    disk, end, _saves = unbroken(learner)
    assert len(disk.did) == 3
    for where, killed, ended, *_more in every_death(learner):
        assert ended == end, where
        assert list(dict.fromkeys(killed.did)) == disk.did, where
        assert len(killed.did) <= 4, where


def test_a_run_that_resumes_captures_nothing_twice(tmp_path):
    """Proves C7."""
    handed = []
    for _life in range(3):
        with holdfast.open(tmp_path) as hf, hf.run("r") as run:
            run.knowledge.inject("told")
            run.knowledge.capture("learned")
            run.knowledge.flush(lambda entry: handed.append(entry.content))
    assert handed == ["learned"]
    with holdfast.open(tmp_path) as hf:
        section = hf.latest("r").section("knowledge")
        assert [one.content for one in section.captured] == ["learned"]
        assert [one.content for one in section.injected] == ["told"]
