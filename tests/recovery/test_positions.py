"""Positions: RUN#812 names any record of a journal, for reading, comparing, replaying, forking and going back."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

import holdfast
from holdfast import PositionUnavailable
from holdfast.store.commit import WENT_BACK
from store_calls import counted


@pytest.fixture
def hf(tmp_path):
    with holdfast.open(tmp_path / "store") as opened:
        yield opened


DONE = []


def work(name):
    DONE.append(name)
    return name.upper()


def make(hf, *names, run="r", state=None):
    """Do steps, without a checkpoint for each of them."""
    with hf.run(run) as handle:
        if state is not None:
            handle.checkpoint(state=state)
        for name in names:
            handle.step(name, work, name)


def place_of(hf, step, run="r"):
    """Return the position where a step had just ended."""
    return next(one.place for one in hf.replay(run).steps if one.step == step)


def steps_at(hf, spec):
    return [call["step"] for call in hf.find(spec).calls if call["event"] == "done"]


def records_of(hf, run="r"):
    return [item.record for item in hf.follow(run, wait_s=0) if item.record is not None]


def test_a_position_is_the_checkpoint_before_it_and_the_records_up_to_it(hf):
    """Proves X5."""
    make(hf, "one", "two", "three", state={"n": 1})
    place = place_of(hf, "two")
    found = hf.find(place)
    assert steps_at(hf, place) == ["one", "two"]
    assert found.section("state") == {"n": 1}
    assert (found.place, found.records_since > 0) == (place, True)
    assert f"those of r@{found.seq}" in found.capture_note
    assert hf.get(place).number == found.number == int(place.split("#")[1])
    assert found.id == hf.find(f"r@{found.seq}").id


def test_state_is_that_of_the_last_capture_at_or_before_the_position(hf):
    with hf.run("r") as run:
        run.checkpoint(state={"n": 1})
        run.step("one", work, "one")
        run.checkpoint(state={"n": 2})
        run.step("two", work, "two")
    assert hf.find(place_of(hf, "two")).section("state") == {"n": 2}
    first = [call for call in hf.find("r").calls if call["step"] == "one"]
    assert first
    before = next(one.number for one in records_of(hf) if one.path == "call:one") - 1
    assert hf.find(f"r#{before}").section("state") == {"n": 1}


def test_numbers_after_the_end_and_zero_are_refused_by_that_name(hf):
    make(hf, "one")
    last = hf.store.line("r").number
    for number in (0, last + 1, 10**17):
        with pytest.raises(PositionUnavailable) as refused:
            hf.find(f"r#{number}")
        assert refused.value.why == "after the end"
    assert str(last) in str(refused.value)


def test_a_label_with_the_sign_still_works_where_no_run_has_that_name(hf):
    with hf.run("r") as run:
        run.checkpoint(label="issue#12")
    assert hf.find("issue#12").label == "issue#12"


def test_going_back_to_a_position_keeps_what_came_before_it_and_runs_the_rest_again(hf):
    """Proves X5, A9: no finished call before the position runs again."""
    make(hf, "one", "two", "three", state={"n": 1})
    plan = hf.plan(place_of(hf, "two"))
    assert plan.place == place_of(hf, "two")
    assert plan.rerun == ("three",)
    assert any("those of checkpoint" in line for line in plan.lines())
    assert hf.recover(plan).success
    DONE.clear()
    make(hf, "one", "two", "three")
    assert DONE == ["three"]
    assert steps_at(hf, "r") == ["one", "two", "three"]


def test_numbers_are_never_used_twice_and_a_left_one_is_refused_or_opened_as_such(hf):
    """Proves X5."""
    make(hf, "one", "two", "three")
    kept, left = place_of(hf, "one"), place_of(hf, "three")
    end = hf.store.line("r").number
    hf.recover(kept)
    make(hf, "other")
    numbers = [one.number for one in records_of(hf)]
    assert numbers == sorted(set(numbers))
    assert int(place_of(hf, "other").split("#")[1]) > end
    found = hf.find(left)
    assert found.is_left
    assert "left" in found.capture_note
    assert steps_at(hf, left) == ["one", "two", "three"]
    with pytest.raises(PositionUnavailable) as refused:
        hf.plan(left)
    assert refused.value.why == "left"
    assert not hf.recover(left).success
    assert steps_at(hf, place_of(hf, "other")) == ["one", "other"]
    assert not hf.verify().faults


def test_going_back_is_one_commit_that_begins_with_a_record_of_where_it_went(hf):
    make(hf, "one", "two")
    kept = hf.find(place_of(hf, "one"))
    hf.recover(kept.place)
    (began,) = [one for one in records_of(hf) if one.kind == WENT_BACK]
    assert msgspec.msgpack.decode(began.body) == [list(one) for one in kept.ranges]
    head = hf.latest("r")
    assert head.record.ranges == (*kept.ranges, (began.number, head.number))


def test_going_back_twice_into_one_segment_and_across_it_leads_the_right_way(hf):
    make(hf, "a", "b", "c")
    first = place_of(hf, "a")
    hf.recover(place_of(hf, "b"))
    make(hf, "d", "e")
    second = place_of(hf, "d")
    hf.recover(first)
    make(hf, "f")
    assert steps_at(hf, "r") == ["a", "f"]
    assert steps_at(hf, second) == ["a", "b", "d"]
    assert hf.find(second).is_left
    assert steps_at(hf, place_of(hf, "f")) == ["a", "f"]
    hf.undo("r")
    assert steps_at(hf, "r") == ["a", "b", "d", "e"]
    assert not hf.find(second).is_left


def test_a_fork_at_a_position_has_its_calls_and_no_later_ones(hf):
    """Proves X5, X3."""
    make(hf, "one", "two", "three", state={"n": 7})
    first = hf.fork(place_of(hf, "two"), "other")
    assert first.section("state") == {"n": 7}
    DONE.clear()
    make(hf, "one", "two", "three", run="other")
    assert DONE == ["three"]


def test_a_fork_of_a_left_position_shows_what_would_have_happened(hf):
    make(hf, "one", "two", "three")
    left = place_of(hf, "two")
    hf.recover(place_of(hf, "one"))
    hf.fork(left, "other")
    assert steps_at(hf, "other") == ["one", "two"]


def push():
    DONE.append("push")
    run = PUSHING[-1]
    run.log("inside").append("line")
    raise KeyboardInterrupt


PUSHING = []


def interrupted(hf):
    """Leave a run with an effect that has begun, and return the position inside it."""
    with suppress(KeyboardInterrupt), hf.run("r") as run:
        PUSHING.append(run)
        run.step("before", work, "before")
        run.step("push", push, effect="git push")
    (inside,) = [one.number for one in records_of(hf) if one.path == "log:inside"]
    with hf.run("r") as run:
        run.step("after", work, "after")
    return f"r#{inside}"


def test_an_effect_open_where_it_goes_back_to_is_announced_and_closed(hf):
    place = interrupted(hf)
    plan = hf.plan(place)
    assert plan.closed == ("push",)
    assert not plan.unknown
    assert any("push" in warning and "will happen again" in warning for warning in plan.warnings)
    hf.recover(plan)
    newest = [call for call in hf.find("r").calls if call["step"] == "push"][-1]
    assert newest["event"] == "withdrawn"
    DONE.clear()
    with hf.run("r", waiting="leave") as run:
        assert run.step("push", lambda: DONE.append("pushed") or "pushed", effect="git push") == "pushed"
    assert DONE == ["pushed"]


def test_a_fork_closes_what_is_open_at_its_position_too(hf):
    place = interrupted(hf)
    first = hf.fork(place, "other")
    assert [call["event"] for call in first.calls if call["step"] == "push"] == ["started", "withdrawn"]


def test_a_decision_on_an_open_call_is_followed_when_going_back(hf):
    place = interrupted(hf)
    plan = hf.plan(place, unknown={"push": "skip"})
    assert plan.closed == ()
    hf.recover(plan)
    assert [call["event"] for call in hf.find("r").calls if call["step"] == "push"][-1] == "skipped"


def test_compare_counts_differences_of_calls_and_notes(hf):
    """Proves X5."""
    with hf.run("r") as run:
        run.checkpoint(state={"n": 1})
        run.step("one", work, "one")
        run.host.note("decided", "to continue")
        run.step("two", work, "two")
    changed = {one.name: one for one in hf.diff("r@1", "r").state.sections}
    assert sum(one.kind == "added" for one in changed["steps"].differences) == 2
    assert any(one.new["kind"] == "decided" for one in changed["journal"].differences)
    assert not hf.diff("r", "r")


def test_any_two_positions_of_any_runs_are_compared(hf):
    """Proves X5."""
    make(hf, "one", "two", "three", state={"n": 1})
    hf.fork(place_of(hf, "two"), "other")
    make(hf, "one", "two", "four", run="other", state={"n": 2})
    found = {one.name: one for one in hf.diff(place_of(hf, "three"), place_of(hf, "four", "other")).state.sections}
    told = str(found["steps"].differences)
    assert "'three'" in told
    assert "'four'" in told
    assert "'one'" not in told
    assert "state" in found
    left = place_of(hf, "three")
    hf.recover(place_of(hf, "one"))
    assert hf.diff(left, "r").state.sections


def test_files_of_a_position_are_those_of_the_capture_before_it(hf, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    with hf.run("r", workspace=project) as run:
        (project / "a.txt").write_text("one")
        run.checkpoint()
        run.step("one", work, "one")
        (project / "a.txt").write_text("two")
        run.step("two", work, "two")
        run.checkpoint()
    place = place_of(hf, "one")
    assert hf.find(place).read("a.txt") == b"one"
    assert hf.recover(place, workspace=project, files=True, decisions=None).success
    assert (project / "a.txt").read_text() == "one"
    assert steps_at(hf, "r") == ["one"]
    assert hf.undo("r", workspace=project).success
    assert (project / "a.txt").read_text() == "two"


def test_a_replay_ends_at_a_position_and_steps_through_positions(hf):
    """Proves A16."""
    make(hf, "one", "two", "three", state={"n": 1})
    replay = hf.replay(place_of(hf, "two"))
    assert [one.step for one in replay.steps] == ["one", "two"]
    replay.to("one")
    assert replay.point.place == place_of(hf, "one")
    assert "those of r@" in replay.note
    assert [one["step"] for one in replay.state["steps"]] == ["one"]
    replay.fork("other")
    assert steps_at(hf, "other") == ["one"]


def test_a_registered_object_gets_the_state_of_the_capture_before_the_position(hf):
    class Counter:
        value = 0

        def snapshot(self):
            return self.value

        def restore(self, value):
            self.value = value

    counter = Counter()
    run = hf.run("r")
    run.register("counter", counter)
    with run:
        counter.value = 1
        run.checkpoint()
        run.step("one", work, "one")
        counter.value = 2
        run.step("two", work, "two")
        run.checkpoint()
        place = place_of(hf, "one")
        assert hf.recover(place, run=run).success
        assert counter.value == 1
        DONE.clear()
        run.step("one", work, "one")
        run.step("two", work, "two")
    assert DONE == ["two"]


def test_a_position_that_compaction_took_is_refused_by_that_name(hf):
    make(hf, "one", "two", "three", "four")
    line = hf.store.line("r")
    place = place_of(hf, "three")
    two = int(place_of(hf, "two").split("#")[1])
    hf.store.journal.compact("r", [two])
    with pytest.raises(PositionUnavailable) as refused:
        hf.find(place)
    assert refused.value.why == "compacted"
    assert hf.find(f"r#{two - 1}").number == two - 1
    assert line.number == hf.store.line("r").number


def test_a_position_before_the_first_checkpoint_is_refused_by_that_name(hf):
    run = hf.run("r")
    run.log("lines").append("one")
    run.log("lines").append("two")
    run.checkpoint()
    run.close()
    with pytest.raises(PositionUnavailable) as refused:
        hf.find("r#1")
    assert refused.value.why == "before the first checkpoint"


def test_a_checkpoint_is_found_by_halving_not_by_walking(hf):
    with hf.run("r") as run:
        for number in range(300):
            run.checkpoint(state=number)
            run.log("lines").append(number)
    with counted(hf.store.medium) as calls:
        early = hf.find("r#20")
    assert early.number == 20
    assert calls.count < 60
